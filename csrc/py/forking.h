// A child of fork() has only the thread that forked. Process-wide state that other threads had switched temporarily, or
// locks that they held, would stay so for ever unless it is restored in the child.
#pragma once

namespace alternator {

// Registers a handler that is called in the child, with the GIL held. Returns true, so that it can initialize a
// variable at namespace scope.
bool in_children(void (*handler)());
void after_fork_in_child();

// Counts the users of a process-wide switch, in all threads and in this one. Protected by the GIL.
struct SwitchedBy {
  int& all;
  int& own;
  // True for the first user of begin(), and for the last one of end().
  bool begin() { return own++, all++ == 0; }
  bool end() { return own--, --all == 0; }
  // In the child: keeps this thread's users only. True if the switch was on and has no user any more.
  bool keep_own() {
    const int before = all;
    all = own;
    return before > 0 && own == 0;
  }
};

}  // namespace alternator

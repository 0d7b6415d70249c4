// A child of fork() goes on with the thread that forked, and with no other. What the others had switched in the process
// for a while, or had locked, stays so for ever unless somebody puts it right.
#pragma once

namespace alternator {

// Called in the child, with the GIL. Gives true, so that it can be said at namespace scope.
bool in_children(void (*handler)());
void after_fork_in_child();

// How often something is switched, by all threads and by the one at hand. The GIL protects it.
struct SwitchedBy {
  int& all;
  int& own;
  // True: it was the first, or the last.
  bool begin() { return own++, all++ == 0; }
  bool end() { return own--, --all == 0; }
  // In the child. True: all those who had switched it are gone.
  bool keep_own() {
    const int before = all;
    all = own;
    return before > 0 && own == 0;
  }
};

}  // namespace alternator

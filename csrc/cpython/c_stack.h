// How much of the thread's C stack is left. A Python call under our loop uses C stack, which CPython's recursion limit
// does not count.
#pragma once

namespace alternator::cpython {

// The lowest address at which a new frame may start; 0 where the platform does not report it.
extern thread_local char* c_stack_limit __attribute__((tls_model("initial-exec")));
char* find_c_stack_limit();

inline bool c_stack_low() {
  char* limit = c_stack_limit != nullptr ? c_stack_limit : find_c_stack_limit();
  return static_cast<char*>(__builtin_frame_address(0)) < limit;
}

}  // namespace alternator::cpython

#include "cpython/c_stack.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>

namespace alternator::cpython {

thread_local char* c_stack_limit = nullptr;

char* find_c_stack_limit() {
  // Reserve for code that does not check the limit: native code, error handling, the compiler backend.
  constexpr size_t kReserve = size_t{512} * 1024;
  pthread_attr_t attributes;
  void* lowest = nullptr;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    if (pthread_attr_getstack(&attributes, &lowest, &size) != 0) lowest = nullptr;
    pthread_attr_destroy(&attributes);
  }
  c_stack_limit =
      lowest != nullptr ? static_cast<char*>(lowest) + std::min(kReserve, size / 4) : reinterpret_cast<char*>(1);
  return c_stack_limit;
}

}  // namespace alternator::cpython

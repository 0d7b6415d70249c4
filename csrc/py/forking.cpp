#include "py/forking.h"

#include <vector>

namespace alternator {

static std::vector<void (*)()>& handlers() {
  static auto* all = new std::vector<void (*)()>;
  return *all;
}

bool in_children(void (*handler)()) {
  handlers().push_back(handler);
  return true;
}

void after_fork_in_child() {
  for (void (*handler)() : handlers()) handler();
}

}  // namespace alternator

// The taint sanitizer: proves that a trace sees no pre-existing object that was not lifted.
//
// It collects every object with state that is reachable from the call before the trace begins. After that, none of them
// may appear on the value stack unless the lifter knows it. Enabled by ALTERNATOR_SANITIZE_TAINT=1.
#pragma once

#include "py/ref.h"

#include <unordered_set>
#include <vector>

namespace alternator::lift {

class Taint {
 public:
  static bool wanted();

  // Everything that is reachable from `root` and has state of its own.
  void collect(Borrowed root);
  bool is_preexisting(PyObject* object) const { return preexisting_.count(object) != 0; }

 private:
  void push(PyObject* object);
  void enter(PyObject* object);

  std::unordered_set<PyObject*> preexisting_, seen_;
  std::vector<PyObject*> pending_;
};

}  // namespace alternator::lift

// Disables the garbage collector for a scope that allocates many objects and drops none, or in which no finalizer may
// run.
#pragma once

#include "py/forking.h"

#include <Python.h>

namespace alternator {

class WithoutCollector {
 public:
  WithoutCollector() : was_enabled_(PyGC_Disable()) {
    if (was_enabled_ != 0) switched().begin();
  }
  ~WithoutCollector() {
    if (was_enabled_ == 0) return;
    switched().end();
    PyGC_Enable();
  }
  WithoutCollector(const WithoutCollector&) = delete;
  WithoutCollector& operator=(const WithoutCollector&) = delete;

 private:
  static SwitchedBy switched() {
    static int all = 0;
    static thread_local int own = 0;
    return {all, own};
  }
  static inline const bool in_children_ = in_children([] {
    if (switched().keep_own()) PyGC_Enable();
  });
  int was_enabled_;
};

}  // namespace alternator

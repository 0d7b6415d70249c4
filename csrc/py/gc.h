// The garbage collector is off in a scope: one that makes many objects and drops none, or in which no finaliser may
// run.
#pragma once

#include <Python.h>

namespace alternator {

class WithoutCollector {
 public:
  WithoutCollector() : was_enabled_(PyGC_Disable()) {}
  ~WithoutCollector() {
    if (was_enabled_ != 0) PyGC_Enable();
  }
  WithoutCollector(const WithoutCollector&) = delete;
  WithoutCollector& operator=(const WithoutCollector&) = delete;

 private:
  int was_enabled_;
};

}  // namespace alternator

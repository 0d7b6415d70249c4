// Calls that are made for their output: print, warnings, logging.
#pragma once

#include "py/error.h"

namespace alternator::trace {

// The arguments of such a call.
class Arguments {
 public:
  Arguments(PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  size_t count() const { return positional_; }
  Borrowed operator[](size_t i) const { return arguments_[i]; }
  // Null: not given.
  Borrowed keyword(const char* name);
  bool all_taken() const;

 private:
  PyObject* const* arguments_;
  size_t positional_;
  Borrowed keyword_names_;
  size_t taken_ = 0;
};

// The list that warnings are recorded in now (catch_warnings(record=True)); null: there is none.
Borrowed recorded_warnings();

// What a residual program calls to log a record with a given location.
Borrowed log_function();

int init_effects();

}  // namespace alternator::trace

// One call of the traced program, in the form of a vectorcall.
#pragma once

#include "py/error.h"

namespace alternator::trace {

struct Call {
  Borrowed callable;
  PyObject* const* arguments;  // the positional ones first; the slot before them may be overwritten
  size_t positional;
  Borrowed keyword_names;  // a tuple; null: none

  size_t keywords() const { return keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0; }
  size_t count() const { return positional + keywords(); }
  // Exactly these arguments, none of them by keyword.
  bool has_positional(size_t least, size_t most) const {
    return !keyword_names && positional >= least && positional <= most;
  }
  bool has_positional(size_t wanted) const { return has_positional(wanted, wanted); }
};

// A call of a builtin method with its `self`, whether it is bound or not. `self` is null where the callable is none, or
// has none.
struct MethodCall {
  Borrowed self;
  Call rest;  // without self
};
inline MethodCall split_self(const Call& call) {
  if (PyCFunction_Check(call.callable.get())) return {PyCFunction_GET_SELF(call.callable.get()), call};
  if (call.positional == 0) return {{}, call};
  return {call.arguments[0], {call.callable, call.arguments + 1, call.positional - 1, call.keyword_names}};
}

}  // namespace alternator::trace

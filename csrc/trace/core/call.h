// One call of the traced program, in the form of a vectorcall.
#pragma once

#include "py/error.h"

#include <c10/util/SmallVector.h>

namespace alternator::trace {

struct Call {
  Borrowed callable;
  PyObject* const* arguments;  // the positional ones first; the slot before them may be overwritten
  size_t positional;
  Borrowed keyword_names;  // a tuple; null: none

  size_t keywords() const { return keyword_names ? static_cast<size_t>(PyTuple_GET_SIZE(keyword_names.get())) : 0; }
  size_t count() const { return positional + keywords(); }
  Borrowed keyword_name(size_t i) const { return PyTuple_GET_ITEM(keyword_names.get(), static_cast<Py_ssize_t>(i)); }
  Borrowed keyword_value(size_t i) const { return arguments[positional + i]; }
  // Exactly these arguments, none of them by keyword.
  bool has_positional(size_t least, size_t most) const {
    return !keyword_names && positional >= least && positional <= most;
  }
  bool has_positional(size_t wanted) const { return has_positional(wanted, wanted); }

  // The same arguments, given to another callable.
  Call of(Borrowed other) const { return {other, arguments, positional, keyword_names}; }
  // The same call with other arguments, as many of each kind.
  Call with(PyObject* const* others) const { return {callable, others, positional, keyword_names}; }
  // Without the first positional argument.
  Call without_first() const { return {callable, arguments + 1, positional - 1, keyword_names}; }

  // As it stands, by the interpreter. Null: an exception is set.
  Ref run() const {
    return Ref::steal(PyObject_Vectorcall(callable.get(), arguments, positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                          keyword_names.get()));
  }
};

// A call with one more argument in front: `self.method(x)` as `function(self, x)`. Few arguments need no allocation.
class CallWithSelf {
 public:
  CallWithSelf(const Call& call, Borrowed function, Borrowed self) {
    given_.reserve(call.count() + 2);
    given_.push_back(nullptr);
    given_.push_back(self.get());
    given_.append(call.arguments, call.arguments + call.count());
    call_ = {function, given_.data() + 1, call.positional + 1, call.keyword_names};
  }
  CallWithSelf(const CallWithSelf&) = delete;
  CallWithSelf& operator=(const CallWithSelf&) = delete;

  const Call& call() const { return call_; }

 private:
  c10::SmallVector<PyObject*, 8> given_;
  Call call_;
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
  return {call.arguments[0], call.without_first()};
}

}  // namespace alternator::trace

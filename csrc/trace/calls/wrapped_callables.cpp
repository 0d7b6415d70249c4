#include "trace/calls/wrapped_callables.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"

#include "trace/calls/markers.h"

#include <vector>

namespace alternator::trace {

Ref call_compiled(Tracer& t, const Call& call) {
  if (!is_compiled(call.callable)) return {};
  const lift::Known* known = t.lifter.known(call.callable);
  if (known == nullptr) stop(report::Reason::native_call, "a compiled function of unknown origin");
  lift::Source* const source = known->source;
  auto field = [&](const char* text) {
    Ref name = checked(PyUnicode_InternFromString(text));
    Ref value = checked(PyObject_GetAttr(call.callable.get(), name.get()));
    return t.lifter.lift(value, t.tree->child(source, lift::Access::kField, name));
  };
  Ref function = field("__wrapped__"), self = field("__self__");
  if (self.get() == Py_None) return trace::call(t, call.of(function));
  const CallWithSelf bound(call, function, self);
  return trace::call(t, bound.call());
}

Ref call_scripted(Tracer& t, const Call& call) {
  Ref function = scripted_function(call.callable);
  const lift::Known* known = function ? t.lifter.known(call.callable) : nullptr;
  if (known == nullptr) return {};
  t.tree->guard(known->source, {lift::GuardKind::kIs, Ref::share(call.callable)});
  return trace::call(t, call.of(t.lifter.lift(function, t.lifter.constant(function))));
}

// It calls its function with more arguments.
Ref call_partial(Tracer& t, const Call& call) {
  if (call.callable.type() != lift::known_types().partial) return {};
  auto field = [&](const char* name) { return checked(PyObject_GetAttrString(call.callable.get(), name)); };
  Ref function = field("func"), first = field("args"), named = field("keywords");
  std::vector<PyObject*> all{nullptr};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(first.get()); i++) all.push_back(PyTuple_GET_ITEM(first.get(), i));
  all.insert(all.end(), call.arguments, call.arguments + call.positional);
  const size_t positional = all.size() - 1;
  Ref merged = checked(PyDict_Copy(named.get()));
  for (size_t i = 0; i < call.keywords(); i++)
    check_status(PyDict_SetItem(merged.get(), call.keyword_name(i).get(), call.keyword_value(i).get()));
  if (PyDict_GET_SIZE(merged.get()) == 0) return trace::call(t, {function, all.data() + 1, positional, {}});
  Ref names = checked(PyTuple_New(PyDict_GET_SIZE(merged.get())));
  Py_ssize_t at = 0;
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(merged.get(), &position, &key, &value);) {
    if (!PyUnicode_Check(key)) {
      PyErr_SetString(PyExc_TypeError, "keywords must be strings");
      throw PyError();
    }
    PyTuple_SET_ITEM(names.get(), at++, Py_NewRef(key));
    all.push_back(value);
  }
  return trace::call(t, {function, all.data() + 1, positional, names});
}

Ref call_substitute(Tracer& t, const Call& call) {
  Ref function = substitute_of(call.callable);
  return function ? trace::call(t, call.of(t.lifter.lift(function, t.lifter.constant(function)))) : Ref();
}

}  // namespace alternator::trace

// contextvars.ContextVar. The program's writes go to the trace's own context, which is entered at the first of them:
// there, the real methods run. Values that were set before the trace are lifted when they are read. Values that are set
// at the end are set again in the caller's context.
#include "trace/stdlib/context_variables.h"
#include "trace/core/tracer.h"
#include "trace/stdlib/decimals.h"
#include "trace/torch/scoped_modes.h"

#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/natives.h"

namespace alternator::trace {

namespace {

Borrowed set_method() {
  static constinit Lasting<PyObject*> method;
  return method.get([] {
    PyObject* type = reinterpret_cast<PyObject*>(&PyContextVar_Type);
    return checked(PyObject_GetAttrString(type, "set")).release();
  });
}

}  // namespace

Ref ContextVariables::call(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names) {
  Borrowed variable;
  std::string_view name;
  if (PyCFunction_Check(callable.get())) {
    PyObject* self = PyCFunction_GET_SELF(callable.get());
    if (self == nullptr || !PyContextVar_CheckExact(self)) return {};
    variable = self;
    name = callable.as<PyCFunctionObject>()->m_ml->ml_name;
  } else if (Py_IS_TYPE(callable.get(), &PyMethodDescr_Type) && positional > 0) {
    auto* method = callable.as<PyMethodDescrObject>();
    if (method->d_common.d_type != &PyContextVar_Type || !PyContextVar_CheckExact(arguments[0])) return {};
    variable = arguments[0];
    name = method->d_method->ml_name;
    arguments++, positional--;
  } else {
    return {};
  }
  const lift::Known* known = t.lifter.known(variable);
  if (known != nullptr && !keyword_names) {
    if (name == "get" && positional <= 1) return value(variable, positional > 0 ? arguments[0] : Borrowed());
    if (name == "set" && positional == 1) return set(variable, arguments[0]);
    if (name == "reset" && positional == 1 && Py_IS_TYPE(arguments[0], &PyContextToken_Type)) {
      reset(variable, arguments[0]);
      return Ref::share(Py_None);
    }
  }
  stop(report::Reason::native_call, "ContextVar." + std::string(name));
}

Ref ContextVariables::value(Borrowed variable, Borrowed otherwise) {
  if (auto found = values_.find(variable.get()); found != values_.end()) return found->second;
  const lift::Known* known = t.lifter.known(variable);
  lift::Source* source = t.tree->child(known->source, lift::Access::kContextValue, {}, otherwise ? 1 : 0);
  Ref owner;
  if (Borrowed value = lift::follow(*source, known->original.get(), &owner)) return t.lifter.lift(value, source);
  t.tree->guard(source, {lift::GuardKind::kAbsent});
  if (otherwise) return Ref::share(otherwise);
  PyErr_SetObject(PyExc_LookupError, variable.get());
  throw PyError();
}

void ContextVariables::store(Borrowed variable, std::optional<Ref> value) {
  Borrowed set = set_method();
  t.lifter.drop_effect(set, variable);
  if (!value) {
    values_.erase(variable.get());
    return;
  }
  values_[variable.get()] = *value;
  t.lifter.known(variable)->source->bears_identity = true;
  t.lifter.note_constant(set);
  t.lifter.add_effect({Ref::share(set), checked(PyTuple_Pack(2, variable.get(), value->get())), {}});
}

Ref ContextVariables::set(Borrowed variable, Borrowed value) {
  t.lifter.escape(value);
  if (!context) {
    context = checked(PyContext_CopyCurrent());
    check_status(PyContext_Enter(context.get()));
  }
  auto before = values_.find(variable.get());
  Ref token = checked(PyContextVar_Set(variable.get(), value.get()));
  changes_.push_back({token, before != values_.end() ? std::optional(before->second) : std::nullopt});
  t.scopes->open(token);
  store(variable, Ref::share(value));
  return token;
}

void ContextVariables::reset(Borrowed variable, Borrowed token) {
  for (const ContextChange& change : changes_) {
    if (Borrowed(change.token) != token) continue;
    check_status(PyContextVar_Reset(variable.get(), token.get()));  // with eager's checks
    store(variable, change.before);
    return;
  }
  stop(report::Reason::native_call, "ContextVar.reset with a pre-existing token");
}

void ContextVariables::leave() {
  t.decimals->used = true;  // no decimal is computed any more
  const Ref left = std::move(context);
  if (left && PyContext_Exit(left.get()) < 0) PyErr_Clear();
}

}  // namespace alternator::trace

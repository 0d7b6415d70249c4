// contextvars.ContextVar. The program's writes go to the trace's own context, which is entered at the first of them:
// there, the real methods run. Values that were set before the trace are lifted when they are read. Values that are set
// at the end are set again in the caller's context.
#include "trace/stdlib/context_variables.h"
#include "trace/core/tracer.h"
#include "trace/stdlib/decimals.h"
#include "trace/torch/scoped_modes.h"

#include "lift/lifting/write_log.h"
#include "py/import.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
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

// A call of a method on a pre-existing variable, without keywords and with as many arguments as `least` to `most`.
static MethodCall method_call(Tracer& t, const Call& call, size_t least, size_t most) {
  MethodCall method = split_self(call);
  if (!method.self || !PyContextVar_CheckExact(method.self.get()) || t.lifter.known(method.self) == nullptr ||
      !method.rest.has_positional(least, most))
    stop(report::Reason::native_call, native_name(call.callable));
  return method;
}

bool register_context_variables(Handlers& handlers) {
  handlers.add_methods(&PyContextVar_Type, "get", [](Tracer& t, const Call& call) {
    const auto [variable, rest] = method_call(t, call, 0, 1);
    return t.context_variables->value(variable, rest.positional > 0 ? rest.arguments[0] : Borrowed());
  });
  handlers.add_methods(&PyContextVar_Type, "set", [](Tracer& t, const Call& call) {
    const auto [variable, rest] = method_call(t, call, 1, 1);
    return t.context_variables->set(variable, rest.arguments[0]);
  });
  handlers.add_methods(&PyContextVar_Type, "reset", [](Tracer& t, const Call& call) {
    const auto [variable, rest] = method_call(t, call, 1, 1);
    if (!Py_IS_TYPE(rest.arguments[0], &PyContextToken_Type))
      stop(report::Reason::native_call, native_name(call.callable));
    t.context_variables->reset(variable, rest.arguments[0]);
    return Ref::share(Py_None);
  });
  return true;
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
  t.lifter.write_log->drop_effect(set, variable);
  if (!value) {
    values_.erase(variable.get());
    return;
  }
  values_[variable.get()] = *value;
  t.lifter.known(variable)->source->bears_identity = true;
  t.lifter.note_constant(set);
  t.lifter.write_log->add_effect({Ref::share(set), checked(PyTuple_Pack(2, variable.get(), value->get())), {}});
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

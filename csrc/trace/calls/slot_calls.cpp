#include "trace/calls/slot_calls.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"

#include "lift/lifting/layouts.h"
#include "trace/calls/bound_slots.h"
#include "trace/calls/handlers.h"

namespace alternator::trace {

static Ref self_of(Borrowed wrapper) { return checked(PyObject_GetAttrString(wrapper.get(), "__self__")); }

static Ref call_bound(Tracer& t, const Call& call, Borrowed slot, Borrowed self) {
  const CallWithSelf bound(call, slot, self);
  return trace::call(t, bound.call());
}

Ref call_slot_of_container(Tracer& t, const Call& call) {
  if (!Py_IS_TYPE(call.callable.get(), &_PyMethodWrapper_Type) || t.lifter.known(call.callable) != nullptr) return {};
  Ref self = self_of(call.callable);
  if (!graph::is_tensor(self)) {
    const lift::Known* known = t.lifter.known(self);
    if (known == nullptr || (known->shadow == nullptr && !known->instance) || PyType_Check(self.get())) return {};
    if (known->shadow == nullptr && lift::layout_base(self.type()) != lift::known_types().simple_namespace) return {};
  }
  Ref name, owner, slot = slot_of_wrapper(call.callable, &name, &owner);
  return slot ? call_bound(t, call, slot, self) : Ref();
}

Ref call_preexisting_slot(Tracer& t, const Call& call) {
  const lift::Known* known = t.lifter.known(call.callable);
  if (known == nullptr || !known->opaque) return {};
  lift::Source* const source = known->source;
  Ref slot = bound_slot(call.callable, *t.tree, source);
  if (!slot) return {};
  Ref self = t.lifter.lift(self_of(call.callable), t.tree->child(source, lift::Access::kMethodSelf));
  return call_bound(t, call, slot, self);
}

Ref call_through_call_slot(Tracer& t, const Call& call) {
  Ref called;
  Call rest = call;
  if (Py_IS_TYPE(call.callable.get(), &_PyMethodWrapper_Type)) {
    Ref name = checked(PyObject_GetAttr(call.callable.get(), names::__name__));
    if (PyUnicode_Compare(name.get(), names::__call__) != 0) return {};
    called = self_of(call.callable);
  } else if (Py_IS_TYPE(call.callable.get(), &PyWrapperDescr_Type) && call.positional > 0) {
    auto* slot = call.callable.as<PyDescrObject>();
    if (PyUnicode_Compare(slot->d_name, names::__call__) != 0 || slot->d_type != Py_TYPE(call.arguments[0])) return {};
    called = Ref::share(call.arguments[0]);
    rest = call.without_first();
  }
  // A metaclass may have overridden `type.__call__`.
  if (!called || PyType_Check(called.get()) || (called.type()->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) return {};
  return trace::call(t, rest.of(called));
}

Ref call_slot_with_handler(Tracer& t, const Call& call) {
  Ref name, owner, slot = slot_of_wrapper(call.callable, &name, &owner);
  return slot && t.handlers.has(slot) ? call_bound(t, call, slot, self_of(call.callable)) : Ref();
}

}  // namespace alternator::trace

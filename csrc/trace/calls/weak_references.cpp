#include "trace/calls/weak_references.h"
#include "trace/calls/call_dispatch.h"
#include "trace/core/tracer.h"

#include "lift/lifting/write_log.h"
#include "lift/sources/finalization.h"
#include "trace/soundness/finalizers.h"

#include <algorithm>

namespace alternator::trace {

namespace {

// How many references to an object that the trace made are held by the tracer: to objects whose address was taken, and
// to functions.
Py_ssize_t kept_by_trace(const Tracer& t, Borrowed object) {
  if (t.lifter.known(object) != nullptr) return 0;
  const auto kept = std::ranges::count_if(t.keep_alive, [&](const Ref& one) { return Borrowed(one) == object; });
  return static_cast<Py_ssize_t>(kept) + (PyFunction_Check(object.get()) && t.lifter.made_here(object) ? 1 : 0);
}

// Alive in the trace, but perhaps not in eager: tensors of the recording, what the tracer itself references, and
// pre-existing objects that the program has removed from their place.
bool may_be_gone(const Tracer& t, Borrowed reference, Borrowed referent) {
  const lift::Known* known = t.lifter.known(referent);
  // No guard covers which slot holds an object that has not been read.
  if (known != nullptr && t.finalizers->behind_a_break) return true;
  const bool has_writes = t.lifter.write_log->has_writes();
  if (t.lifter.known(reference) != nullptr)
    return known != nullptr && has_writes && is_dropped(t.lifter, known->original);
  if (known != nullptr) return has_writes;
  const Py_ssize_t kept = kept_by_trace(t, referent);
  return (graph::is_tensor(referent) && Py_REFCNT(referent.get()) == 1) ||
         (kept > 0 && Py_REFCNT(referent.get()) <= kept);
}

}  // namespace

Ref call_weak_reference(Tracer& t, const Call& call) {
  if (Py_IS_TYPE(call.callable.get(), &_PyWeakref_CallableProxyType)) {
    if (t.lifter.known(call.callable) != nullptr) stop(report::Reason::opaque_object, "a pre-existing weak proxy");
    Ref referent = Ref::share(PyWeakref_GetObject(call.callable.get()));
    return referent.get() != Py_None ? trace::call(t, call.of(referent)) : Ref();
  }
  if (!PyWeakref_CheckRef(call.callable.get())) return {};
  Borrowed referent = PyWeakref_GetObject(call.callable.get());
  if (referent.get() != Py_None && may_be_gone(t, call.callable, referent))
    stop(report::Reason::native_call, "a weak reference to an object that may be gone");
  return {};
}

void check_finalization_is_reported(const Tracer& t, Borrowed made) {
  if (!PyWeakref_Check(made.get()) || made.as<PyWeakReference>()->wr_callback == nullptr) return;
  Borrowed referent = PyWeakref_GetObject(made.get());
  // A pre-existing object is referenced elsewhere too, unless a slot of a resumed frame holds the last reference.
  // Tensors of the trace are also referenced by the recording.
  const bool kept = t.lifter.known(referent) != nullptr
                        ? t.finalizers->behind_a_break && lift::is_watched(referent.get())
                        : graph::is_tensor(referent) || kept_by_trace(t, referent) > 0;
  if (kept)
    stop(report::Reason::native_call, "a weak reference with a callback, to an object that the trace keeps alive");
}

}  // namespace alternator::trace

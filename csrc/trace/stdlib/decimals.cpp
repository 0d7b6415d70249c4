// The module decimal. Its contexts hold settings that arithmetic reads, and flags that it sets. A trace computes in its
// own copy of the thread's context, which is entered before the program can reach anything that computes; the final
// state of that and other contexts is written back to the real ones.
#include "trace/stdlib/decimals.h"
#include "lift/lifting/decimal_contexts.h"
#include "lift/lifting/write_log.h"
#include "lift/sources/decimal_values.h"
#include "trace/stdlib/context_variables.h"

#include "cpython/decimal_layout.h"
#include "py/lasting.h"
#include "trace/calls/handlers.h"
#include "trace/calls/natives.h"
#include "trace/core/tracer.h"

#include <algorithm>

namespace alternator::trace {

namespace {

// Sets flags of a context as a computation does, and nothing else.
PyObject* raise_flags(PyObject*, PyObject* arguments) {
  PyObject* context;
  unsigned int flags;
  if (PyArg_ParseTuple(arguments, "O!I", lift::decimal_types()->context, &context, &flags) == 0) return nullptr;
  cpython::Signals signals = cpython::signals_of(context);
  signals.flags |= flags;
  cpython::set_signals(context, signals);
  Py_RETURN_NONE;
}

Borrowed flag_raiser() {
  static constinit Lasting<PyObject*> function;
  return function.get([] {
    static PyMethodDef method = {"raise_flags", raise_flags, METH_VARARGS, nullptr};
    return checked(PyCFunction_New(&method, nullptr)).release();
  });
}

}  // namespace

void Decimals::use() {
  if (used) return;
  used = true;
  const lift::DecimalTypes& types = *lift::decimal_types();
  // The thread's decimal context, which the trace's contextvars context lacks if the thread had none so far.
  if (t.context_variables->context) check_status(PyContext_Exit(t.context_variables->context.get()));
  Ref preexisting = Ref::steal(PyObject_CallNoArgs(types.get));
  if (!t.context_variables->context) t.context_variables->context = Ref::steal(PyContext_CopyCurrent());
  if (!t.context_variables->context || PyContext_Enter(t.context_variables->context.get()) < 0) {
    t.context_variables->context.reset();
    throw PyError();
  }
  if (!preexisting) throw PyError();
  if (!lift::is_decimal_context(preexisting.get()))
    stop(report::Reason::opaque_object, "the thread's context is of a subclass of decimal.Context");
  lift::Source* source = t.tree->child(t.lifter.constant(types.get), lift::Access::kQuery);
  context_ = t.lifter.decimals->lift(preexisting, source, false);
  checked(PyObject_CallOneArg(types.set, context_.get())).reset();
}

// The templates of Context(); setcontext() sets copies of them.
static bool is_template(const lift::Lifter& lifter, Borrowed context) {
  const lift::Known* known = lifter.known(context);
  const lift::DecimalTypes& types = *lift::decimal_types();
  return known != nullptr && std::find(std::begin(types.templates), std::end(types.templates), known->original.get()) !=
                                 std::end(types.templates);
}

static Ref current_context() { return checked(PyObject_CallNoArgs(lift::decimal_types()->get)); }

void Decimals::set_context(Borrowed context) {
  const lift::DecimalTypes& types = *lift::decimal_types();
  if (const lift::Known* known = t.lifter.known(context); known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, "decimal.setcontext");
  Ref given = Ref::share(context);
  if (is_template(t.lifter, context)) {
    given = checked(PyObject_CallMethod(context.get(), "copy", nullptr));
    checked(PyObject_CallMethod(given.get(), "clear_flags", nullptr)).reset();
  }
  checked(PyObject_CallOneArg(types.set, given.get())).reset();  // with eager's checks
  note_context(given);
}

// The context that becomes the thread's when the call ends.
void Decimals::note_context(Borrowed context) {
  Borrowed set = lift::decimal_types()->set;
  if (context_set_) t.lifter.write_log->drop_effect(set, context_set_);
  context_set_ = Ref::share(context);
  t.lifter.note_constant(set);
  t.lifter.write_log->add_effect({Ref::share(set), checked(PyTuple_Pack(1, context.get())), {}});
}

// Context(...): its native code starts from the real template.
void Decimals::check_template() {
  Borrowed original = lift::decimal_types()->templates[0];
  Ref copy = t.lifter.lift(original, t.lifter.constant(original));
  if (!lift::plain_equal(lift::parts_of_context(copy).get(), lift::parts_of_context(original).get()))
    stop(report::Reason::native_call, "a context after a default that was changed");
}

// getcontext() and localcontext(): the context that it returns, or copies, has flags that the program may read.
Ref Decimals::call_with_context(const Call& call) {
  use();
  t.lifter.decimals->see_flags(current_context());
  for (size_t i = 0; i < call.positional; i++) {
    if (const lift::Known* known = t.lifter.known(call.arguments[i]); known != nullptr && known->opaque)
      stop(report::Reason::opaque_object, native_name(call.callable));
  }
  return checked(PyObject_Vectorcall(call.callable.get(), call.arguments, call.positional, call.keyword_names.get()));
}

bool register_decimals(Handlers& handlers) {
  const lift::DecimalTypes* types = lift::decimal_types();
  if (types == nullptr) return false;
  constexpr Handler with_context = [](Tracer& t, const Call& call) { return t.decimals->call_with_context(call); };
  handlers.add(types->get, with_context);
  handlers.add(types->local, with_context);
  handlers.add(types->set, [](Tracer& t, const Call& call) {
    if (!call.has_positional(1)) return t.decimals->call_with_context(call);  // a TypeError
    t.decimals->use();
    t.decimals->set_context(call.arguments[0]);
    return Ref::share(Py_None);
  });
  return true;
}

void Decimals::finish() {
  if (!context_) return;
  const SavedError outer;
  for (const lift::DecimalContext& context : t.lifter.decimals->all()) {
    Ref now = lift::parts_of_context(context.copy);
    auto part = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(now.get(), i); };
    auto is_changed = [&](Py_ssize_t i) {
      return !lift::plain_equal(part(i), PyTuple_GET_ITEM(context.before.get(), i));
    };
    auto call = [&](Borrowed callable, Ref arguments) {
      t.lifter.note_constant(callable);
      t.lifter.write_log->add_effect({Ref::share(callable), std::move(arguments), {}});
    };
    PyObject* copy = context.copy.get();
    for (Py_ssize_t i = 0; i < lift::kFlagsPart; i++) {
      if (!is_changed(i)) continue;
      Ref name = checked(PyUnicode_InternFromString(lift::kContextSettings[i]));
      call(Natives::table().setattr, checked(PyTuple_Pack(3, copy, name.get(), part(i))));
    }
    if (!is_changed(lift::kFlagsPart) && !is_changed(lift::kTrapsPart)) continue;
    if (context.seen) {
      Ref signals = checked(PyTuple_Pack(2, part(lift::kFlagsPart), part(lift::kTrapsPart)));
      call(lift::signal_setter(), checked(PyTuple_Pack(2, copy, signals.get())));
    } else {
      call(flag_raiser(), checked(PyTuple_Pack(2, copy, part(lift::kFlagsPart))));
    }
  }
  Ref current = current_context();
  if (context_set_ && Borrowed(current) == Borrowed(context_set_)) return;
  if (context_set_) t.lifter.write_log->drop_effect(lift::decimal_types()->set, context_set_);
  if (Borrowed(current) != Borrowed(context_)) note_context(current);
}

}  // namespace alternator::trace

// Frames as objects, and the builtins that inspect their calling frame: locals, globals, eval, exec.
#include "trace/core/frame_access.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/attributes.h"
#include "trace/opcodes/items.h"
#include "trace/opcodes/raised_exceptions.h"

#include "cpython/frame_objects.h"
#include "lift/lifting/cells.h"
#include "lift/lifting/lazy_objects.h"
#include "lift/lifting/namespaces.h"
#include "py/names.h"
#include "trace/calls/natives.h"
#include "trace/torch/tensor_attributes.h"

#include <frameobject.h>

#include <algorithm>

namespace alternator::trace {

// Whether a frame is running now, as part of the trace.
bool FrameAccess::is_running_here(cpython::Frame* wanted) const {
  for (cpython::Frame* frame = cpython::current_frame(PyThreadState_Get()); frame != nullptr && frame != t.caller();
       frame = frame->previous) {
    if (frame == wanted) return true;
  }
  return false;
}

// Frames of the trace are reached through tracebacks, generators and sys._getframe; others through pre-existing
// tracebacks.
Ref FrameAccess::get_from_frame(Borrowed frame, Borrowed name) {
  auto* object = frame.as<PyFrameObject>();
  if (const lift::Known* known = t.lifter.known(frame); known != nullptr && known->opaque)
    stop(report::Reason::opaque_object, "frame." + text_of(name));
  if (equals(name, "f_globals") || equals(name, "f_builtins")) {
    Ref dict = checked(PyObject_GetAttr(frame.get(), name.get()));
    return t.lifter.made_here(dict) ? std::move(dict) : Ref(t.lifter.namespaces->of_globals(dict).copy);
  }
  if (equals(name, "f_locals")) {
    if (!is_running_here(object->f_frame)) stop(report::Reason::native_call, "the locals of a frame that has ended");
    return locals_of(object->f_frame);
  }
  if (equals(name, "f_back")) {
    if (!is_running_here(object->f_frame)) stop(report::Reason::native_call, "f_back of a frame that has ended");
    return frame_above(object->f_frame, 1);
  }
  Ref value = checked(PyObject_GetAttr(frame.get(), name.get()));
  return PyCode_Check(value.get()) ? t.lifter.lift(value, t.lifter.constant(value)) : std::move(value);
}

Ref FrameAccess::frame_above(cpython::Frame* frame, long depth) {
  Ref object = Ref::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  for (bool found = false; object;
       object = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(object.as<PyFrameObject>())))) {
    if (!is_running_here(object.as<PyFrameObject>()->f_frame)) break;
    found = found || object.as<PyFrameObject>()->f_frame == frame;
    if (!found || depth-- > 0) continue;
    // Eager would return the pre-existing frame object, whose frame is not running here.
    if (t.lifter.known(object) != nullptr) break;
    return object;
  }
  stop(report::Reason::native_call, "a frame of the caller");
}

// A frame that resumes in the trace is a pre-existing frame object to whoever references it.
Ref FrameAccess::stand_in_of_frame(const FrameState& state, lift::Source* source) {
  Ref frame =
      checked(reinterpret_cast<PyObject*>(PyFrame_New(PyThreadState_Get(), state.code.as<PyCodeObject>(),
                                                      state.function.as<PyFunctionObject>()->func_globals, nullptr)));
  t.lifter.lazy->know(frame, state.frame_object, source);
  t.exceptions->abandoned_frames.push_back(Ref(frame));
  held_frames.push_back(Ref(frame));
  return frame;
}

std::vector<Borrowed> FrameAccess::ended_frames() const {
  std::vector<Borrowed> ended;
  for (const Ref& frame : held_frames) {
    const auto is_it = [&](const FrameState& state) { return state.frame_object.get() == frame.get(); };
    if (cpython::is_over(frame.as<PyFrameObject>()) && std::ranges::none_of(t.result.cut, is_it))
      ended.push_back(frame);
  }
  return ended;
}

bool FrameAccess::is_held_by_caller(cpython::Frame* frame) const {
  return frame->frame_obj != nullptr && t.lifter.known(reinterpret_cast<PyObject*>(frame->frame_obj)) != nullptr;
}

// Whoever references the frame object keeps its locals alive after it has ended. A generator among them that still has
// code to run when it is closed stays alive then: such a frame ends concretely. (For pre-existing objects,
// check_finalizations() detects that they leave their slot.)
bool FrameAccess::may_finalize(const Position& position) const {
  if (t.exceptions->generators.empty() || !is_held_by_caller(position.frame)) return true;
  cpython::CodeUnit* first = cpython::first_instruction(cpython::code_of(position.frame));
  return !cpython::is_return(cpython::base_opcode(first[position.next_index()]));
}

// What locals() returns: one dict per frame, updated by each call.
Ref FrameAccess::locals_of(cpython::Frame* frame) {
  PyCodeObject* code = cpython::code_of(frame);
  if ((code->co_flags & CO_OPTIMIZED) == 0) {  // a class body, a module's code
    if (frame->f_locals == nullptr || t.lifter.namespaces->is_globals(frame->f_locals))
      stop(report::Reason::native_call, "the locals of a module's code");
    return Ref::share(frame->f_locals);
  }
  if (frame->f_locals == nullptr) frame->f_locals = checked(PyDict_New()).release();
  Ref dict = Ref::share(frame->f_locals);
  t.lifter.escape(dict);
  for (int i = 0; i < code->co_nlocalsplus; i++) {
    Borrowed name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    PyObject*& slot = frame->localsplus[i];
    if (slot != nullptr && Py_IS_TYPE(slot, &lazy_type)) {
      auto* lazy = reinterpret_cast<LazyObject*>(slot);
      Ref lifted = t.lifter.lift(lazy->value, lazy->source);
      Py_DECREF(std::exchange(slot, lifted.release()));
    }
    Ref value = Ref::share(slot);
    const auto kind = static_cast<unsigned char>(PyBytes_AS_STRING(code->co_localspluskinds)[i]);
    if (value && (kind & (CO_FAST_CELL | CO_FAST_FREE)) != 0 && PyCell_Check(value.get()))
      value = t.lifter.cells->is_preexisting(value) ? t.lifter.cells->load(value) : Ref::share(PyCell_GET(value.get()));
    if (value) {
      t.lifter.escape(value);
      check_status(PyDict_SetItem(dict.get(), name.get(), value.get()));
    } else if (PyDict_DelItem(dict.get(), name.get()) < 0) {
      PyErr_Clear();
    }
  }
  return dict;
}

// The dict that code runs in when the program passes `globals`: a pre-existing namespace itself, or a dict that the
// trace made.
Ref FrameAccess::globals_for_code(Borrowed globals) {
  // A dict subclass may override item access, and a non-dict is an error of the call.
  if (!PyDict_CheckExact(globals.get()))
    stop(report::Reason::native_call, "code that runs in something other than a dict");
  if (lift::Known* known = t.lifter.known(globals)) {
    if (known->shadow == nullptr) stop(report::Reason::native_call, "code that runs in a pre-existing dict");
    if (known->shadow->is_namespace) return Ref(known->original);
    t.lifter.escape(globals);
    return Ref::share(globals);
  }
  t.lifter.note_made_here(globals);
  return Ref::share(globals);
}

// eval(source, globals, locals) and exec: the code re-enters the tracer through the frame evaluation hook.
Ref FrameAccess::run_code(const Call& call) {
  const auto& [callable, arguments, count, keyword_names] = call;
  cpython::Frame* frame = cpython::current_frame(PyThreadState_Get());
  Ref source = Ref::share(arguments[0]);
  if (!PyUnicode_CheckExact(source.get()) && !PyBytes_CheckExact(source.get()) && !PyCode_Check(source.get()))
    stop(report::Reason::native_call, native_name(callable) + " of something other than a string or a code object");
  Ref globals, locals;
  const bool own = count < 2 || arguments[1] == Py_None;
  globals = own ? Ref::share(frame->f_globals) : globals_for_code(arguments[1]);
  if (own && !t.lifter.made_here(globals)) t.lifter.namespaces->of_globals(globals);
  if (PyObject* builtins = PyDict_GetItemString(globals.get(), "__builtins__")) {
    if (PyDict_CheckExact(builtins) && t.lifter.known(builtins) == nullptr &&
        !t.lifter.namespaces->is_globals(builtins) && !t.lifter.namespaces->is_globals(globals)) {
      t.lifter.note_made_here(builtins);
    }
  } else {
    if (t.lifter.namespaces->is_globals(globals))
      stop(report::Reason::native_call, "code in a namespace without __builtins__");
    check_status(PyDict_SetItemString(globals.get(), "__builtins__",
                                      t.lifter.namespaces->of_globals(PyEval_GetBuiltins()).copy.get()));
  }
  if (count > 2 && arguments[2] != Py_None) {
    locals = Ref::share(arguments[2]);
    t.lifter.escape(locals);
    check_use(t, locals, "the locals of code");
    if (lift::Known* known = t.lifter.known(locals);
        known != nullptr && known->shadow != nullptr && known->shadow->is_namespace)
      locals = Ref(known->original);
  } else {
    locals = own ? (frame->f_locals == frame->f_globals ? Ref(globals) : locals_of(frame)) : Ref(globals);
  }
  PyObject* all[] = {nullptr, source.get(), globals.get(), locals.get()};
  return checked(PyObject_Vectorcall(callable.get(), all + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

Ref FrameAccess::call(const Call& call) {
  const Natives& natives = Natives::table();
  cpython::Frame* frame = cpython::current_frame(PyThreadState_Get());
  auto is = [&](PyObject* native, size_t least, size_t most) {
    return call.callable.get() == native && call.has_positional(least, most);
  };
  if (is(natives.globals, 0, 0)) {
    Borrowed dict = frame->f_globals;
    return t.lifter.made_here(dict) ? Ref::share(dict) : Ref(t.lifter.namespaces->of_globals(dict).copy);
  }
  if (is(natives.locals, 0, 0) || is(natives.vars, 0, 0)) return locals_of(frame);
  if (is(natives.dir, 0, 0)) {
    Ref space = locals_of(frame);
    // The keys() of a mapping of another class would be called.
    if (!PyDict_CheckExact(space.get())) stop(report::Reason::native_call, "dir() in something other than a dict");
    Ref names = checked(PyDict_Keys(space.get()));
    check_status(PyList_Sort(names.get()));
    return names;
  }
  if (is(natives.eval, 1, 3) || is(natives.exec, 1, 3)) return run_code(call);
  auto asked_frame = [&] {
    const long depth = call.positional == 1 ? PyLong_AsLong(call.arguments[0]) : 0;
    if (depth == -1 && PyErr_Occurred()) throw PyError();
    return frame_above(frame, depth > 0 ? depth : 0);
  };
  if (is(natives.get_frame, 0, 1)) return asked_frame();
  // The module in which the function of a frame was defined.
  if (natives.get_module_name != nullptr && is(natives.get_module_name, 0, 1)) {
    Ref above = asked_frame();
    Borrowed function = cpython::function_of(above.as<PyFrameObject>()->f_frame);
    if (!PyFunction_Check(function.get())) stop(report::Reason::native_call, "sys._getframemodulename");
    return get_from_function(t, t.lifter.lift(function, t.lifter.constant(function)),
                             checked(PyUnicode_InternFromString("__module__")));
  }
  return {};
}

}  // namespace alternator::trace

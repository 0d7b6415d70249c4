// interpret, run, capture, and what tests and benchmarks need to inspect the loop.
#include "bindings/bind_interpreter.h"

#include "interpreter/capture.h"
#include "interpreter/frame_hook.h"
#include "py/names.h"

namespace alternator {

namespace {

// --- Capture: a chain of frames stopped at an instruction -------------------------------------------
struct CaptureObject {
  PyObject_HEAD Chain* chain;
};

void capture_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete reinterpret_cast<CaptureObject*>(self)->chain;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

int capture_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  for (const FrameState& state : *reinterpret_cast<CaptureObject*>(self)->chain) {
    for (const Ref& value : state.locals) Py_VISIT(value.get());
    for (const Ref& value : state.stack) Py_VISIT(value.get());
    Py_VISIT(state.function.get());
    Py_VISIT(state.locals_mapping.get());
    Py_VISIT(state.frame_object.get());
    Py_VISIT(state.handled.get());
    Py_VISIT(state.first_argument.get());
    Py_VISIT(state.generator.get());
  }
  return 0;
}

int capture_clear(PyObject* self) {
  reinterpret_cast<CaptureObject*>(self)->chain->clear();
  return 0;
}

PyObject* capture_resume(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"loop", nullptr};
  int in_loop = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:resume", const_cast<char**>(keywords), &in_loop)) return nullptr;
  Chain* held = reinterpret_cast<CaptureObject*>(self)->chain;
  if (held->empty()) {
    PyErr_SetString(PyExc_RuntimeError, "this capture has been continued: its values live in other frames now");
    return nullptr;
  }
  Chain chain;
  // A chain that cannot be resumed stays, so that it can still be inspected.
  if (cannot_continue(*held) == nullptr) chain.swap(*held);
  acquire_hook();
  control.running += in_loop;
  Ref result = continue_chain(chain.empty() ? *held : chain, in_loop != 0 ? run_in_loop : nullptr);
  control.running -= in_loop;
  release_hook();
  return result.release();
}

PyObject* capture_frames(PyObject* self, void*) {
  const Chain& chain = *reinterpret_cast<CaptureObject*>(self)->chain;
  Ref frames = Ref::steal(PyList_New(0));
  if (!frames) return nullptr;
  for (auto state = chain.rbegin(); state != chain.rend(); ++state) {
    Ref item =
        Ref::steal(Py_BuildValue("(Ois)", state->code.get(), state->next * static_cast<int>(sizeof(cpython::CodeUnit)),
                                 continuation_name(state->continuation)));
    if (!item || PyList_Append(frames.get(), item.get()) < 0) return nullptr;
  }
  return frames.release();
}

PyObject* capture_cannot(PyObject* self, void*) {
  const std::string* why = cannot_continue(*reinterpret_cast<CaptureObject*>(self)->chain);
  if (why == nullptr) Py_RETURN_NONE;
  return PyUnicode_FromString(why->c_str());
}

PyMethodDef capture_methods[] = {{"resume", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(capture_resume)),
                                  METH_VARARGS | METH_KEYWORDS,
                                  "resume(loop=True): continue on fresh frames, in our loop or the default one; the "
                                  "result or exception of the call"},
                                 {}};
PyGetSetDef capture_getset[] = {
    {"frames", capture_frames, nullptr, "(code, offset, continuation) of each frame, outermost first", nullptr},
    {"cannot", capture_cannot, nullptr, "why the chain cannot be continued, or None", nullptr},
    {}};
PyType_Slot capture_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(capture_dealloc)},
                               {Py_tp_traverse, reinterpret_cast<void*>(capture_traverse)},
                               {Py_tp_clear, reinterpret_cast<void*>(capture_clear)},
                               {Py_tp_methods, capture_methods},
                               {Py_tp_getset, capture_getset},
                               {}};
PyType_Spec capture_spec = {"alternator.Capture", sizeof(CaptureObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, capture_slots};
PyTypeObject* capture_type;

// --- switches ------------------------------------------------------------------------------------------
PyObject* set_interpret(PyObject*, PyObject* on) {
  const Tri wanted = truth(on);
  if (wanted.error()) return nullptr;
  if (wanted.yes() != global_control.interpret) {
    global_control.interpret = wanted.yes();
    if (wanted.yes()) {
      acquire_hook();
    } else {
      release_hook();
    }
  }
  Py_RETURN_NONE;
}

PyObject* set_idle(PyObject*, PyObject* on) {
  const Tri wanted = truth(on);
  if (wanted.error()) return nullptr;
  set_idle_hook(wanted.yes());
  Py_RETURN_NONE;
}

PyObject* set_exit_every(PyObject*, PyObject* n) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(n);
  if (PyErr_Occurred()) return nullptr;
  global_control.exit_every = value;
  control.exit_countdown = 0;
  Py_RETURN_NONE;
}

PyObject* get_stats(PyObject*, PyObject*) {
  const Stats& stats = control.stats;
  return Py_BuildValue("{s:K,s:K,s:K}", "instructions", static_cast<unsigned long long>(stats.instructions), "frames",
                       static_cast<unsigned long long>(stats.frames), "exits",
                       static_cast<unsigned long long>(stats.exits));
}

PyObject* reset_stats(PyObject*, PyObject*) {
  control.stats = {};
  Py_RETURN_NONE;
}

// --- running -------------------------------------------------------------------------------------------
Ref call_in_loop(PyObject* function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  acquire_hook();
  control.running++;
  Ref result = Ref::steal(PyObject_Vectorcall(function, args, static_cast<size_t>(nargs), kwnames));
  control.running--;
  release_hook();
  return result;
}

PyObject* run_function(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs < 1) {
    PyErr_SetString(PyExc_TypeError, "run(function, *args, **kwargs) needs a function");
    return nullptr;
  }
  return call_in_loop(args[0], args + 1, nargs - 1, kwnames).release();
}

// (code, n, function, *args): the common arguments of run_exit and capture.
bool start_watch(const char* name, PyObject* const* args, Py_ssize_t nargs, Verdict action, Watch* watch) {
  if (nargs < 3 || !PyCode_Check(args[0])) {
    PyErr_Format(PyExc_TypeError, "%s(code, n, function, *args) needs a code object, a number and a function", name);
    return false;
  }
  watch->code = reinterpret_cast<PyCodeObject*>(args[0]);
  watch->countdown = PyLong_AsUnsignedLongLong(args[1]);
  watch->action = action;
  return !PyErr_Occurred();
}

PyObject* run_exit(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  Watch watch;
  if (!start_watch("run_exit", args, nargs, Verdict::kLeave, &watch)) return nullptr;
  Watch* outer = std::exchange(control.watch, &watch);
  Ref result = call_in_loop(args[2], args + 3, nargs - 3, nullptr);
  control.watch = outer;
  if (!result) return nullptr;
  return Py_BuildValue("(OKO)", watch.hit ? Py_True : Py_False, static_cast<unsigned long long>(watch.seen),
                       result.get());
}

PyObject* capture(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  Watch watch;
  if (!start_watch("capture", args, nargs, Verdict::kCapture, &watch)) return nullptr;
  auto* object = reinterpret_cast<CaptureObject*>(capture_type->tp_alloc(capture_type, 0));
  if (object == nullptr) return nullptr;
  Ref owner = Ref::steal(reinterpret_cast<PyObject*>(object));
  object->chain = new Chain;
  watch.chain = object->chain;
  Watch* outer = std::exchange(control.watch, &watch);
  Ref result = call_in_loop(args[2], args + 3, nargs - 3, nullptr);
  control.watch = outer;
  if (capture_in_flight()) {
    // A chain is complete if it reaches the function that was called. It is not if a finalizer or a callback was
    // captured whose caller is native code.
    PyObject* called = PyMethod_Check(args[2]) ? PyMethod_GET_FUNCTION(args[2]) : args[2];
    FrameState& outermost = object->chain->back();
    if (result || outermost.function.get() != called) {
      outermost.continuation = Continuation::kCannot;
      outermost.cannot = "native code lies between the call and the frame that it led to";
    }
    finish_capture();
    return owner.release();
  }
  if (!object->chain->empty()) {  // refused: the call ran to its end
    PyErr_Clear();
    return owner.release();
  }
  if (!result) return nullptr;
  return PyTuple_Pack(1, result.get());
}

PyObject* list_opcodes(PyObject*, PyObject*) {
  Ref table = Ref::steal(PyDict_New());
  if (!table) return nullptr;
#define ALT_OPCODE(NAME, EFFECT, OPERANDS, CONTINUATION, MEANING)                                \
  {                                                                                              \
    Ref row = Ref::steal(Py_BuildValue("(iiss)", NAME, cpython::caches(NAME), EFFECT, MEANING)); \
    if (!row || PyDict_SetItemString(table.get(), #NAME, row.get()) < 0) return nullptr;         \
  }
#include "cpython/opcodes.def"
#undef ALT_OPCODE
  return table.release();
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}
PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"interpret", set_interpret, METH_O, "interpret(on): every new frame of every thread runs in our loop while on"},
    {"idle_hook", set_idle, METH_O, "idle_hook(on): a frame hook that only forwards, for comparison"},
    {"exit_every", set_exit_every, METH_O,
     "exit_every(n): leave to the default loop at each n-th instruction; 0: never"},
    {"stats", get_stats, METH_NOARGS, "stats(): what this thread's frames did in the loop"},
    {"reset_stats", reset_stats, METH_NOARGS, "reset_stats()"},
    {"run", fast(run_function), METH_FASTCALL | METH_KEYWORDS, "run(function, *args, **kwargs): call it in our loop"},
    {"run_exit", fast(run_exit), METH_FASTCALL,
     "run_exit(code, n, function, *args): leave to the default loop at the n-th instruction executed in code; "
     "(hit, instructions seen, result)"},
    {"capture", fast(capture), METH_FASTCALL,
     "capture(code, n, function, *args): stop at the n-th instruction executed in code; a Capture, or (result,)"},
    {"opcodes", list_opcodes, METH_NOARGS, "opcodes(): name -> (number, cache entries, stack effect, meaning)"},
    {}};

}  // namespace

int bind_interpreter(PyObject* module) {
  if (init_names() < 0 || cpython::init_micros() < 0 || init_capture() < 0) return -1;
  Ref type = Ref::steal(PyType_FromSpec(&capture_spec));
  if (!type || PyModule_AddObjectRef(module, "Capture", type.get()) < 0) return -1;
  capture_type = reinterpret_cast<PyTypeObject*>(type.release());
  return PyModule_AddFunctions(module, methods);
}

}  // namespace alternator

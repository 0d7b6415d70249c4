#include "graph/record/recording_mode.h"

#include "graph/record/record_error.h"
#include "graph/record/recorder.h"
#include "py/lasting.h"

#include <torch/csrc/PyInterpreter.h>

namespace alternator::graph {
namespace {

struct ModeObject {
  PyObject_HEAD Recorder* recorder;  // null once the recording is over
};

// __torch_function__(func, types, args=(), kwargs=None). Torch has popped this mode off the stack for the call.
PyObject* torch_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  return guarded([&]() -> Ref {
    if (count < 2 || (count > 2 && !PyTuple_Check(arguments[2])) ||
        (count > 3 && arguments[3] != Py_None && !PyDict_Check(arguments[3]))) {
      PyErr_SetString(PyExc_TypeError, "__torch_function__(func, types, args=(), kwargs=None)");
      throw PyError();
    }
    Ref empty;
    if (count <= 2) empty = checked(PyTuple_New(0));
    PyObject* args = count > 2 ? arguments[2] : empty.get();
    PyObject* kwargs = count > 3 && arguments[3] != Py_None ? arguments[3] : nullptr;
    Recorder* recorder = reinterpret_cast<ModeObject*>(self)->recorder;
    if (recorder == nullptr) return checked(PyObject_Call(arguments[0], args, kwargs));
    return with_torch_errors([&] { return recorder->call_from_mode(arguments[0], arguments[1], args, kwargs); });
  });
}

void dealloc_mode(PyObject* self) noexcept {
  // An instance of a heap type owns a reference to it.
  Ref type = Ref::steal(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  type.as<PyTypeObject>()->tp_free(self);
}

PyMethodDef methods[] = {
    {"__torch_function__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(torch_function)), METH_FASTCALL,
     "Records the call."},
    {}};

PyTypeObject* mode_type() {
  static constinit Lasting<Ref> type;
  return type
      .get([] {
        PyType_Slot slots[] = {{Py_tp_methods, methods},
                               {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_mode)},
                               {Py_tp_doc, const_cast<char*>("Brings torch calls to a recorder.")},
                               {}};
        PyType_Spec spec = {"alternator._C.graph.RecordMode", sizeof(ModeObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
        return checked(PyType_FromSpec(&spec));
      })
      .as<PyTypeObject>();
}

}  // namespace

Ref make_mode(Recorder& recorder) {
  PyTypeObject* type = mode_type();
  Ref mode = checked(type->tp_alloc(type, 0));
  mode.as<ModeObject>()->recorder = &recorder;
  return mode;
}

void detach_mode(Borrowed mode) { mode.as<ModeObject>()->recorder = nullptr; }

ModeOnStack::ModeOnStack(Borrowed mode) : before_(at::impl::PythonTorchFunctionTLS::get_state()) {
  at::impl::PythonTorchFunctionTLS::push_onto_stack(
      std::make_shared<c10::SafePyObject>(Ref::share(mode).release(), getPyInterpreter()));
}

ModeOnStack::~ModeOnStack() { at::impl::PythonTorchFunctionTLS::set_state(before_); }

bool is_recording_mode(PyTypeObject* type) { return type == mode_type(); }

bool is_top_mode(Borrowed mode) {
  using at::impl::PythonTorchFunctionTLS;
  const int64_t depth = PythonTorchFunctionTLS::stack_len();
  return depth > 0 && PythonTorchFunctionTLS::get_stack_at(depth - 1)->ptr(getPyInterpreter()) == mode.get();
}

}  // namespace alternator::graph

// Runs one opcode in the default loop: as a code object of a few instructions.
#include "cpython/micro.h"

#include "cpython/operations.h"

namespace alternator::cpython {

static PyObject* micro_functions[kMicroCount];
static PyObject* micro_name;

static int make_micro(const MicroCode& micro) {
  Ref globals = Ref::steal(PyDict_New());
  if (!globals || PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins()) < 0) return -1;
  // The template supplies a code object of the right arity; only its instructions are replaced.
  const char* text = micro.has_arguments ? "def template(a=None, b=None): return a\n" : "def template(): return None\n";
  Ref done = Ref::steal(PyRun_String(text, Py_file_input, globals.get(), globals.get()));
  if (!done) return -1;
  PyObject* function = PyDict_GetItemString(globals.get(), "template");
  Ref replace = Ref::steal(PyObject_GetAttrString(PyFunction_GetCode(function), "replace"));
  Ref bytes = Ref::steal(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(micro.code), micro.size));
  if (!replace || !bytes) return -1;
  Ref keywords =
      Ref::steal(Py_BuildValue("{s:O,s:i,s:O}", "co_code", bytes.get(), "co_stacksize", 6, "co_name", micro_name));
  Ref empty = Ref::steal(PyTuple_New(0));
  if (!keywords || !empty) return -1;
  Ref code = Ref::steal(PyObject_Call(replace.get(), empty.get(), keywords.get()));
  if (!code || PyObject_SetAttrString(function, "__code__", code.get()) < 0) return -1;
  micro_functions[static_cast<size_t>(micro.which)] = Py_NewRef(function);
  return 0;
}

int init_micros() {
  if (micro_name != nullptr) return 0;
  Ref name = Ref::steal(PyUnicode_InternFromString("<alternator opcode>"));
  if (!name) return -1;
  micro_name = name.release();
  for (const MicroCode& micro : micro_codes()) {
    if (make_micro(micro) < 0) return -1;
  }
  return 0;
}

PyCodeObject* micro_code(Micro which) {
  return reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(micro_functions[static_cast<size_t>(which)]));
}

bool is_micro(const PyCodeObject* code) { return code->co_name == micro_name; }

Ref run_micro(Micro which, std::initializer_list<PyObject*> arguments) {
  PyObject* function = micro_functions[static_cast<size_t>(which)];
  const Headroom headroom(PyThreadState_Get());
  Ref result = Ref::steal(PyObject_Vectorcall(function, arguments.begin(), arguments.size(), nullptr));
  if (result) return result;
  // The line of this code object must not show in the user's traceback.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (traceback != nullptr && PyTraceBack_Check(traceback)) {
    auto* rest = reinterpret_cast<PyObject*>(reinterpret_cast<PyTracebackObject*>(traceback)->tb_next);
    Py_XINCREF(rest);
    Py_SETREF(traceback, rest);
    if (value != nullptr && PyExceptionInstance_Check(value)) {
      PyException_SetTraceback(value, traceback != nullptr ? traceback : Py_None);
    }
  }
  PyErr_Restore(type, value, traceback);
  return {};
}

}  // namespace alternator::cpython

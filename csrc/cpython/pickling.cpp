#include "cpython/version.h"

#include "cpython/pickling.h"

#include "py/error.h"
#include "py/lasting.h"

namespace alternator::cpython {

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000

namespace {

// A warning is recorded in the __warningregistry__ of the running Python function's globals, and not shown a second
// time. So the call is made by a function of our own whose registry already has the entry: no warning is issued
// whatever the filters say.
struct Quiet {
  Ref registry = checked(PyDict_New());
  Ref version = checked(PyUnicode_InternFromString("version"));
  Ref warned = checked(
      Py_BuildValue("(sOi)", "Pickle, copy, and deepcopy support will be removed from itertools in Python 3.14.",
                    PyExc_DeprecationWarning, 1));
  Ref caller;

  Quiet() {
    Ref globals = checked(PyDict_New());
    check_status(PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins()));
    check_status(PyDict_SetItemString(globals.get(), "__warningregistry__", registry.get()));
    Ref code = checked(Py_CompileString("lambda callable, *arguments: callable(*arguments)", "<quiet>", Py_eval_input));
    caller = checked(PyEval_EvalCode(code.get(), globals.get(), globals.get()));
  }
};

}  // namespace

Ref call_quietly(PyObject* callable, PyObject* const* arguments, size_t count) {
  static constinit Lasting<Quiet> lasting;
  const Quiet& quiet = lasting.get();
  // CPython clears the registry whenever the filters change.
  Ref now = checked(PyLong_FromLong(PyInterpreterState_Get()->warnings.filters_version));
  check_status(PyDict_SetItem(quiet.registry.get(), quiet.version.get(), now.get()));
  check_status(PyDict_SetItem(quiet.registry.get(), quiet.warned.get(), Py_True));
  Ref all = checked(PyTuple_New(static_cast<Py_ssize_t>(count) + 1));
  PyTuple_SET_ITEM(all.get(), 0, Py_NewRef(callable));
  for (size_t i = 0; i < count; i++)
    PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i) + 1, Py_NewRef(arguments[i]));
  return Ref::steal(PyObject_Call(quiet.caller.get(), all.get(), nullptr));
}

#else

Ref call_quietly(PyObject* callable, PyObject* const* arguments, size_t count) {
  return Ref::steal(PyObject_Vectorcall(callable, arguments, count, nullptr));
}

#endif

}  // namespace alternator::cpython

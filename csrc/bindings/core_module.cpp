// _alternator_core: the components that depend on CPython only, without torch.
#include "bindings/bind_interpreter.h"

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_alternator_core", "Alternator's interpreter, without torch.",
                                 -1};

PyMODINIT_FUNC PyInit__alternator_core() {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr || alternator::bind_interpreter(module) == 0) return module;
  Py_DECREF(module);
  return nullptr;
}

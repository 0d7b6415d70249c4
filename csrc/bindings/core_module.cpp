// _alternator_core: the components that depend on CPython only, without torch.
#include "bindings/bind_interpreter.h"
#include "bindings/bind_shapes.h"

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_alternator_core", "Alternator's interpreter, without torch.",
                                 -1};

// _alternator_core.shapes, as alternator._C.shapes.
static int add_shapes(PyObject* module) {
  PyObject* shapes = PyImport_AddModule("_alternator_core.shapes");
  if (shapes == nullptr || alternator::bind_shapes(shapes) < 0) return -1;
  return PyModule_AddObjectRef(module, "shapes", shapes);
}

PyMODINIT_FUNC PyInit__alternator_core() {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr || (alternator::bind_interpreter(module) == 0 && add_shapes(module) == 0)) return module;
  Py_DECREF(module);
  return nullptr;
}

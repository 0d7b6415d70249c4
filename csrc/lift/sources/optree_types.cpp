#include "lift/sources/optree_types.h"

#include "py/lasting.h"

namespace alternator::lift {

const TreeTypes* tree_types() {
  static const TreeTypes* found = nullptr;
  if (found != nullptr) return found;
  static constinit Lasting<PyObject*> lasting;
  PyObject* name = lasting.get([] { return checked(PyUnicode_InternFromString("optree._C")).release(); });
  PyObject* module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (module == nullptr || !PyModule_Check(module)) return nullptr;
  auto type = [&](const char* word) {
    PyObject* value = PyDict_GetItemString(PyModule_GetDict(module), word);  // null: the import is in progress
    return value != nullptr && PyType_Check(value) ? reinterpret_cast<PyTypeObject*>(value) : nullptr;
  };
  PyTypeObject *spec = type("PyTreeSpec"), *iterator = type("PyTreeIter");
  if (spec == nullptr || iterator == nullptr) return nullptr;
  Py_INCREF(spec);
  Py_INCREF(iterator);
  found = new TreeTypes{spec, iterator};
  return found;
}

}  // namespace alternator::lift

#include "graph/record/torch_function_classes.h"

#include "graph/record/torch_types.h"
#include "py/lasting.h"

namespace alternator::graph {

// The class's __torch_function__ attribute; null: it has none.
static PyObject* torch_function_of(PyTypeObject* type) {
  static constinit Lasting<PyObject*> lasting;
  PyObject* name = lasting.get([] { return PyUnicode_InternFromString("__torch_function__"); });
  if (name == nullptr) throw PyError();
  return _PyType_Lookup(type, name);
}

bool is_asked(PyTypeObject* type) {
  const TorchTypes& types = torch_types();
  // A class that is not defined in Python has none.
  if (type == types.tensor || type == types.parameter || (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) [[likely]]
    return false;
  PyObject* found = torch_function_of(type);
  return found != nullptr && found != torch_function_of(types.parameter);  // nn.Parameter's is disabled
}

bool has_own_torch_function(PyTypeObject* type) {
  return is_asked(type) && torch_function_of(type) != torch_function_of(torch_types().tensor);
}

bool any_of_class(Borrowed object, bool (*test)(PyTypeObject*)) {
  PyObject* raw = object.get();
  if (test(Py_TYPE(raw))) return true;
  if (PyTuple_Check(raw) || PyList_Check(raw)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(raw); ++i)
      if (any_of_class(PySequence_Fast_GET_ITEM(raw, i), test)) return true;
  } else if (PyDict_Check(raw)) {
    PyObject *key, *value;
    for (Py_ssize_t position = 0; PyDict_Next(raw, &position, &key, &value);)
      if (any_of_class(value, test)) return true;
  }
  return false;
}

}  // namespace alternator::graph

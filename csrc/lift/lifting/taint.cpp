#include "lift/lifting/taint.h"

#include "cpython/objects.h"
#include "lift/sources/numpy_types.h"
#include "lift/sources/plain.h"

#include "fake/python_tensor.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

namespace alternator::lift {

bool Taint::wanted() {
  static const bool answer = [] {
    const char* text = std::getenv("ALTERNATOR_SANITIZE_TAINT");
    return text != nullptr && *text != '\0' && strcmp(text, "0") != 0;
  }();
  return answer;
}

// Whether a program could read or write state of the object. Classes, modules, code and immutable values have none; the
// elements of a tuple are checked when they are read.
static bool has_state(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyType_Check(object) || PyModule_Check(object) || is_plain(object) || PyTuple_Check(object) ||
      PyFrozenSet_CheckExact(object)) {
    return false;
  }
  return PyList_Check(object) || PyDict_Check(object) || PyAnySet_Check(object) || PyByteArray_Check(object) ||
         PyCell_Check(object) || PyFunction_Check(object) || fake::is_tensor_object(object) || is_array(object) ||
         (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
}

// Whether a file is the user's, judged by its path: libraries are too large to be searched each time.
static bool is_users_file(const char* file) {
  return file != nullptr && strstr(file, "site-packages") == nullptr && strstr(file, "/lib/python") == nullptr &&
         *file != '<';
}

static bool is_users(PyFunctionObject* function) {
  const char* file = PyUnicode_AsUTF8(reinterpret_cast<PyCodeObject*>(function->func_code)->co_filename);
  if (file == nullptr) PyErr_Clear();
  return is_users_file(file);
}

static bool is_users_class(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return false;
  static auto* answers = new std::unordered_map<std::string, bool>;
  PyObject* name = PyDict_GetItemString(cpython::own_dict(type), "__module__");
  if (name == nullptr || !PyUnicode_Check(name)) return true;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) return PyErr_Clear(), true;
  auto [answer, is_new] = answers->try_emplace(text, true);
  if (!is_new) return answer->second;
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), text);
  if (module != nullptr && PyModule_Check(module)) {
    PyObject* file = PyDict_GetItemString(PyModule_GetDict(module), "__file__");
    const char* path = file != nullptr && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : nullptr;
    answer->second = is_users_file(path);
    PyErr_Clear();
  }
  return answer->second;
}

void Taint::push(PyObject* object) {
  if (object == nullptr || !seen_.insert(object).second) return;
  if (has_state(object)) preexisting_.insert(object);
  pending_.push_back(object);
}

void Taint::enter(PyObject* object) {
  if (PyModule_Check(object) || PyCode_Check(object)) return;
  if (PyFunction_Check(object)) {
    auto* function = reinterpret_cast<PyFunctionObject*>(object);
    push(function->func_closure);
    push(function->func_defaults);
    push(function->func_kwdefaults);
    push(function->func_dict);
    if (!is_users(function)) return;
    // The dict itself is read through the function whose globals it is.
    PyObject *key, *value;
    if (!seen_.insert(function->func_globals).second) return;
    for (Py_ssize_t position = 0; PyDict_Next(function->func_globals, &position, &key, &value);) push(value);
    return;
  }
  PyTypeObject* type = Py_TYPE(object);
  push(reinterpret_cast<PyObject*>(type));
  if (PyType_Check(object) && !is_users_class(reinterpret_cast<PyTypeObject*>(object))) return;
  if (type->tp_traverse == nullptr || !PyObject_IS_GC(object)) return;
  type->tp_traverse(
      object,
      [](PyObject* found, void* self) {
        static_cast<Taint*>(self)->push(found);
        return 0;
      },
      this);
}

void Taint::collect(Borrowed root) {
  push(root.get());
  while (!pending_.empty()) {
    PyObject* object = pending_.back();
    pending_.pop_back();
    enter(object);
  }
}

}  // namespace alternator::lift

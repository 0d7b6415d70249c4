#include "trace/calls/code_table.h"

#include "cpython/objects.h"
#include "py/error.h"

#include <string>
#include <string_view>

namespace alternator::trace {

PyObject* loaded_module(const char* name) {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), name);
  PyErr_Clear();
  return module;
}

uint64_t modules_version() { return cpython::dict_version(PyImport_GetModuleDict()); }

// Null: there is none of that name.
static PyObject* code_named(PyObject* code, const char* qualified_name) {
  PyObject* const own = reinterpret_cast<PyCodeObject*>(code)->co_qualname;
  if (PyUnicode_CompareWithASCIIString(own, qualified_name) == 0) return code;
  PyObject* const constants = reinterpret_cast<PyCodeObject*>(code)->co_consts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
    PyObject* const constant = PyTuple_GET_ITEM(constants, i);
    PyObject* found = PyCode_Check(constant) ? code_named(constant, qualified_name) : nullptr;
    if (found != nullptr) return found;
  }
  return nullptr;
}

Ref find_code(const char* module, const char* qualified_name) {
  const SavedError outer;
  Ref found = Ref::share(loaded_module(module));
  std::string_view path = qualified_name;
  for (path = path.substr(0, path.find(".<locals>")); found && !path.empty();) {
    const size_t dot = path.find('.');
    found = Ref::steal(PyObject_GetAttrString(found.get(), std::string(path.substr(0, dot)).c_str()));
    path = dot == path.npos ? std::string_view() : path.substr(dot + 1);
  }
  while (found) {
    if (PyMethod_Check(found.get())) found = Ref::share(PyMethod_GET_FUNCTION(found.get()));  // a class method
    PyObject* code = PyFunction_Check(found.get()) ? PyFunction_GET_CODE(found.get()) : nullptr;
    PyObject* wanted = code != nullptr ? code_named(code, qualified_name) : nullptr;
    if (wanted != nullptr) return Ref::share(wanted);
    found = Ref::steal(PyObject_GetAttrString(found.get(), "__wrapped__"));
  }
  return {};
}

}  // namespace alternator::trace

#include "replay/rebuild_kinds.h"

#include "cpython/objects.h"
#include "lift/lifting/layouts.h"
#include "lift/sources/layout.h"
#include "py/import.h"
#include "replay/recipes.h"

#include <unordered_map>

namespace alternator::replay {

namespace {

struct Row {
  Kind kind;
  const char* type;
  bool found = false;
};

Row rows[] = {
#define ALT_REBUILD(name, type, recipe) {{#name, recipes::recipe, nullptr}, type},
#define ALT_NEVER(type, what) {{"never", nullptr, what}, type},
#include "replay/rebuild.def"
#undef ALT_REBUILD
#undef ALT_NEVER
};

// By type; the types are kept alive, since their addresses are the keys.
std::unordered_map<PyTypeObject*, const Kind*>& table() {
  static auto* table = new std::unordered_map<PyTypeObject*, const Kind*>;
  return *table;
}

Ref row_namespace() {
  Ref names = checked(PyDict_New());
  for (const char* name : {"collections", "functools", "itertools", "operator", "re", "sys", "types", "weakref"}) {
    Ref module = import_module(name);
    check_status(PyDict_SetItemString(names.get(), name, module.get()));
  }
  check_status(PyDict_SetItemString(names.get(), "__builtins__", PyEval_GetBuiltins()));
  return names;
}

// Some rows name a module that may be imported later.
void find_types() {
  Ref names = row_namespace();
  for (Row& row : rows) {
    if (row.found) continue;
    Ref type = Ref::steal(PyRun_String(row.type, Py_eval_input, names.get(), names.get()));
    if (!type) {
      if (!PyErr_ExceptionMatches(PyExc_KeyError)) throw PyError();
      PyErr_Clear();
      continue;
    }
    ALT_CHECK(PyType_Check(type.get()), row.type);
    row.found = true;
    table().try_emplace(type.as<PyTypeObject>(), &row.kind);
    type.release();
  }
}

}  // namespace

const Kind* kind_of(PyTypeObject* type) {
  auto found = table().find(type);
  if (found != table().end()) return found->second;
  find_types();
  found = table().find(type);
  return found != table().end() ? found->second : nullptr;
}

PyTypeObject* layout_of(PyTypeObject* type) { return lift::layout_base(type); }

std::string full_name(PyTypeObject* type) {
  std::string name = type->tp_name;
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 || name.find('.') != std::string::npos) return name;
  PyObject* module = PyDict_GetItemString(cpython::own_dict(type), "__module__");
  if (module != nullptr && PyUnicode_Check(module)) {
    if (const char* text = PyUnicode_AsUTF8(module)) return std::string(text) + "." + name;
    PyErr_Clear();
  }
  return name;
}

}  // namespace alternator::replay

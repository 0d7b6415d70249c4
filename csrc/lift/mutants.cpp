#include "lift/mutants.h"

#include "lift/lifter.h"

#include "fake/python_tensor.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace alternator::lift {

std::vector<std::string> mutant_names() {
  return {
#define ALT_ROW(name) "lift." #name,
#include "lift/rows.def"
#undef ALT_ROW
  };
}

#ifdef ALTERNATOR_MUTANTS
namespace {

std::set<std::string, std::less<>>& disabled() {
  static auto* names = new std::set<std::string, std::less<>>;
  return *names;
}

// As Lifter::lift() goes through them.
const char* row_of(Borrowed value) {
  PyObject* v = value.get();
  PyTypeObject* type = value.type();
  auto is = [&](const char* name) { return std::strcmp(type->tp_name, name) == 0; };
  if (is_plain(v)) return std::strcmp(Py_TYPE(type)->tp_name, "EnumType") == 0 ? "enum_member" : "plain";
  if (fake::is_tensor_object(v)) return "tensor";
  if (PyType_Check(v)) return "class";
  if (PyFunction_Check(v)) return "function";
  if (PyTuple_Check(v)) return "tuple";
  if (PyList_Check(v)) return "list";
  if (PyDict_Check(v)) return "dict";
  if (PyAnySet_Check(v)) return "set";
  if (is("collections.deque")) return "deque";
  if (type == &PyMethod_Type) return "method";
  if (PyCFunction_Check(v)) return "builtin";
  if (is("functools.partial")) return "partial";
  if (PyWeakref_CheckRefExact(v)) return "weak_reference";
  if (PyModule_Check(v)) return "module";
  if (PyCell_Check(v)) return "cell";
  if (type->tp_descr_get != nullptr && (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return "descriptor";
  return has_plain_layout(type) ? "instance" : "opaque";
}

}  // namespace

bool set_mutant(std::string_view name, bool off) {
  const std::vector<std::string> names = mutant_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) return false;
  if (off) {
    disabled().emplace(name);
  } else if (const auto found = disabled().find(name); found != disabled().end()) {
    disabled().erase(found);
  }
  return true;
}

bool is_switched_off(Borrowed value) {
  return !disabled().empty() && disabled().count("lift." + std::string(row_of(value))) != 0;
}
#endif

}  // namespace alternator::lift

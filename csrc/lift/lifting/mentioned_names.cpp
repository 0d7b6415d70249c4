#include "lift/lifting/mentioned_names.h"

#include "lift/lifting/lifter.h"
#include "py/names.h"

#include <algorithm>

namespace alternator::lift {
namespace {

bool mention(const std::unordered_set<std::string>& texts, PyObject* name) {
  const char* characters = PyUnicode_AsUTF8(name);
  if (characters == nullptr) {
    PyErr_Clear();  // a name that is not UTF-8 is in no message either
    return false;
  }
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(characters) != text.npos; });
}

}  // namespace

void guard_names_in(Lifter& lifter, const std::unordered_set<std::string>& texts) {
  if (texts.empty()) return;
  std::unordered_set<PyTypeObject*> seen;
  auto look_at_class = [&](PyTypeObject* type) {
    if (!seen.insert(type).second || (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0) return;
    if (lifter.made_here(reinterpret_cast<PyObject*>(type))) return;
    auto* heap_type = reinterpret_cast<PyHeapTypeObject*>(type);
    auto keeps = [&](PyObject* field, PyObject* name) {
      if (!mention(texts, name)) return;
      Source* source = lifter.constant(reinterpret_cast<PyObject*>(type));
      lifter.guard(lifter.tree().child(source, Access::kField, field), GuardKind::kEquals, name);
    };
    keeps(names::__name__, heap_type->ht_name);
    keeps(names::__qualname__, heap_type->ht_qualname);
  };
  lifter.each_known([&](PyObject*, const Known& known) {
    PyObject* original = known.original.get();
    if (PyFunction_Check(original)) {
      PyObject* name = reinterpret_cast<PyFunctionObject*>(original)->func_qualname;
      if (mention(texts, name))
        lifter.guard(lifter.tree().child(known.source, Access::kField, names::__qualname__), GuardKind::kEquals, name);
    }
    auto* type = PyType_Check(original) ? reinterpret_cast<PyTypeObject*>(original) : Py_TYPE(original);
    PyObject* bases = type->tp_mro;
    for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); i++)
      look_at_class(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i)));
  });
}

}  // namespace alternator::lift

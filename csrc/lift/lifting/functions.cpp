// Default arguments of pre-existing functions, and the constants of the code that runs.
#include "lift/lifting/functions.h"

#include "lift/lifting/classes.h"
#include "lift/lifting/lifter.h"

namespace alternator::lift {

void Functions::use_defaults(PyFunctionObject* function, PyObject** slots) {
  Borrowed f = function;
  if (lifter_.made_here(f) || (function->func_defaults == nullptr && function->func_kwdefaults == nullptr)) return;
  const Known* k = lifter_.known(f);
  Source* source = k != nullptr ? k->source : lifter_.constant(f);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  auto replace = [&](int slot, PyObject* value, Source* value_source) {
    // The caller may have passed the very object that is the default; lifting it twice is harmless.
    if (slots[slot] != value || lifter_.known(value) != nullptr) return;
    Ref lifted = lifter_.lift(value, value_source);
    Py_DECREF(std::exchange(slots[slot], lifted.release()));
  };
  if (PyObject* defaults = function->func_defaults) {
    Source* tuple = lifter_.tree().child(source, Access::kDefaults);
    const Py_ssize_t count = PyTuple_GET_SIZE(defaults);
    lifter_.guard(tuple, GuardKind::kLength, {}, count);
    for (Py_ssize_t i = 0; i < count; i++) {
      replace(code->co_argcount - static_cast<int>(count - i), PyTuple_GET_ITEM(defaults, i),
              lifter_.tree().child(tuple, Access::kIndex, {}, i));
    }
  } else {
    lifter_.guard(lifter_.tree().child(source, Access::kDefaults), GuardKind::kAbsent);
  }
  if (PyObject* defaults = function->func_kwdefaults) {
    Source* dict = lifter_.tree().child(source, Access::kKeywordDefaults);
    for (int i = 0; i < code->co_kwonlyargcount; i++) {
      PyObject* name = PyTuple_GET_ITEM(PyCode_GetVarnames(code), code->co_argcount + i);
      PyObject* value = PyDict_GetItemWithError(defaults, name);
      if (value != nullptr) replace(code->co_argcount + i, value, lifter_.tree().child(dict, Access::kItem, name));
    }
  }
}

void Functions::guard_defaults() {
  std::vector<std::pair<PyFunctionObject*, Source*>> functions;
  lifter_.each_known([&](PyObject* object, const Known& known) {
    if (PyFunction_Check(object) && known.source != nullptr && defaults_guarded_.insert(object).second)
      functions.emplace_back(reinterpret_cast<PyFunctionObject*>(object), known.source);
  });
  const PointerSet<PyTypeObject> types = lifter_.classes->with_special_methods();
  for (PyTypeObject* type : types) {  // native code calls these unlifted
    if (lifter_.made_here(Borrowed(reinterpret_cast<PyObject*>(type)))) continue;
    Ref methods = special_methods(type);
    PyObject *name, *method;
    for (Py_ssize_t position = 0; PyDict_Next(methods.get(), &position, &name, &method);) {
      if (PyFunction_Check(method) && defaults_guarded_.insert(method).second)
        functions.emplace_back(reinterpret_cast<PyFunctionObject*>(method), lifter_.constant(method));
    }
  }
  for (const auto& [function, source] : functions) guard_defaults_of(function, source);
}

void Functions::guard_defaults_of(PyFunctionObject* function, Source* source) {
  Source* positional = lifter_.tree().child(source, Access::kDefaults);
  if (PyObject* defaults = function->func_defaults) {
    lifter_.guard(positional, GuardKind::kLength, {}, PyTuple_GET_SIZE(defaults));
  } else {
    lifter_.guard(positional, GuardKind::kAbsent);
  }
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  if (code->co_kwonlyargcount == 0) return;
  Source* named = lifter_.tree().child(source, Access::kKeywordDefaults);
  if (function->func_kwdefaults == nullptr) {
    lifter_.guard(named, GuardKind::kAbsent);
    return;
  }
  Ref names = checked(PyCode_GetVarnames(code));
  for (int i = 0; i < code->co_kwonlyargcount; i++) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), code->co_argcount + i);
    const bool has = contains(function->func_kwdefaults, name).value();
    lifter_.guard(named, has ? GuardKind::kHasKey : GuardKind::kLacksKey, name);
  }
}

static void add_constants(PyObject* tuple, PointerSet<PyObject>& constants) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    PyObject* constant = PyTuple_GET_ITEM(tuple, i);
    if (constants.insert(constant).second && PyTuple_Check(constant)) add_constants(constant, constants);
  }
}

void Functions::note_code(Borrowed code) {
  if (!codes_.insert(code.get()).second) return;
  lifter_.keep(Ref::share(code));
  add_constants(code.as<PyCodeObject>()->co_consts, code_constants_);
}

}  // namespace alternator::lift

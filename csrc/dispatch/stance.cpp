#include "dispatch/stance.h"

#include "py/ref.h"

namespace alternator::dispatch {

namespace {

// An interned name, made once since it is looked up on every call; if that fails, a later call tries again.
struct Name {
  const char* text;
  PyObject* made = nullptr;
  PyObject* in(PyObject* dict) {
    if (made == nullptr) made = PyUnicode_InternFromString(text);
    PyObject* found = made != nullptr ? PyDict_GetItemWithError(dict, made) : nullptr;
    if (found == nullptr) PyErr_Clear();
    return found;
  }
};

// The module that holds the stance; null: not imported, so no stance was set.
PyObject* name_space() {
  static constinit Name name{"torch._dynamo.eval_frame"};
  static PyObject* found = nullptr;
  if (found != nullptr) return found;
  PyObject* module = name.in(PyImport_GetModuleDict());
  if (module != nullptr && PyModule_Check(module)) found = Py_NewRef(PyModule_GetDict(module));
  return found;
}

Stance read(Borrowed setting) {
  const SavedError outer;
  Ref name = Ref::steal(PyObject_GetAttrString(setting.get(), "stance"));
  auto is = [&](const char* text) {
    return name && PyUnicode_Check(name.get()) && PyUnicode_CompareWithASCIIString(name.get(), text) == 0;
  };
  PyErr_Clear();
  if (is("force_eager")) return Stance::kEager;
  if (is("eager_on_recompile")) return Stance::kKnownOnly;
  if (is("fail_on_recompile")) return Stance::kMustBeKnown;
  if (is("eager_then_compile") || is("aot_eager_then_compile")) return Stance::kEagerFirst;
  Ref backend = Ref::steal(PyObject_GetAttrString(setting.get(), "backend"));
  PyErr_Clear();
  return backend && backend.get() != Py_None ? Stance::kOtherBackend : Stance::kDefault;
}

}  // namespace

Stance stance() {
  static constinit Name name{"_stance"};
  static PyObject* last = nullptr;  // every set_stance makes a new object
  static Stance meaning = Stance::kDefault;
  PyObject* variables = name_space();
  PyObject* setting = variables != nullptr ? name.in(variables) : nullptr;
  if (setting == nullptr) return Stance::kDefault;
  if (setting != last) {
    const Stance found = read(setting);
    Ref old = Ref::steal(std::exchange(last, Py_NewRef(setting)));
    meaning = found;
  }
  return meaning;
}

void raise_unknown_call(Borrowed function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.get()));
  PyErr_Format(PyExc_RuntimeError,
               "Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: '%U', function name: "
               "'%U', line number: %d",
               code->co_filename, code->co_name, code->co_firstlineno);
  throw PyError();
}

}  // namespace alternator::dispatch

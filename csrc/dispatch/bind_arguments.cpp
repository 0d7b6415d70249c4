#include "dispatch/bind_arguments.h"

namespace alternator::dispatch {

// The slot of a parameter that can be passed by keyword; -1: there is none.
static int slot_of(PyCodeObject* code, PyObject* name, int begin, int end) {
  PyObject* names = code->co_localsplusnames;
  for (int i = begin; i < end; i++) {
    if (PyTuple_GET_ITEM(names, i) == name) return i;
  }
  for (int i = begin; i < end; i++) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0) return i;
  }
  return -1;
}

bool bind_arguments(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                    std::vector<Ref>* slots) {
  auto* f = function.as<PyFunctionObject>();
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  const int total = code->co_argcount + code->co_kwonlyargcount;
  const bool takes_more = (code->co_flags & CO_VARARGS) != 0, takes_names = (code->co_flags & CO_VARKEYWORDS) != 0;
  const int given = static_cast<int>(positional), taken = std::min(given, code->co_argcount);
  if (given > code->co_argcount && !takes_more) return false;
  slots->resize(static_cast<size_t>(code->co_nlocalsplus));
  auto slot = [&](int i) -> Ref& { return (*slots)[static_cast<size_t>(i)]; };
  for (int i = 0; i < taken; i++) slot(i) = Ref::share(arguments[i]);
  if (takes_more) {
    Ref rest = checked(PyTuple_New(given - taken));
    for (int i = taken; i < given; i++) PyTuple_SET_ITEM(rest.get(), i - taken, Py_NewRef(arguments[i]));
    slot(total) = std::move(rest);
  }
  Ref others = takes_names ? checked(PyDict_New()) : Ref();
  const Py_ssize_t named = keyword_names ? PyTuple_GET_SIZE(keyword_names.get()) : 0;
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject* name = PyTuple_GET_ITEM(keyword_names.get(), i);
    PyObject* value = arguments[given + i];
    if (!PyUnicode_Check(name)) return false;
    const int found = slot_of(code, name, code->co_posonlyargcount, total);
    if (found >= 0) {
      if (slot(found)) return false;  // multiple values for one parameter
      slot(found) = Ref::share(value);
    } else if (takes_names) {
      check_status(PyDict_SetItem(others.get(), name, value));
    } else {
      return false;
    }
  }
  if (takes_names) slot(total + (takes_more ? 1 : 0)) = std::move(others);
  const int defaults = f->func_defaults != nullptr ? static_cast<int>(PyTuple_GET_SIZE(f->func_defaults)) : 0;
  const int first_default = code->co_argcount - defaults;
  for (int i = taken; i < code->co_argcount; i++) {
    if (slot(i)) continue;
    if (i < first_default) return false;
    slot(i) = Ref::share(PyTuple_GET_ITEM(f->func_defaults, i - first_default));
  }
  for (int i = code->co_argcount; i < total; i++) {
    if (slot(i)) continue;
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    PyObject* value = f->func_kwdefaults != nullptr ? PyDict_GetItemWithError(f->func_kwdefaults, name) : nullptr;
    if (value == nullptr) return PyErr_Clear(), false;
    slot(i) = Ref::share(value);
  }
  return true;
}

}  // namespace alternator::dispatch

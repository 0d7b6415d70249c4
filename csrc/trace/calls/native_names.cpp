// How messages name native functions.
#include "cpython/method_wrappers.h"
#include "trace/calls/natives.h"

#include <cstring>

namespace alternator::trace {

static std::string text_or_empty(PyObject* text) {
  const char* utf8 = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  if (utf8 == nullptr) PyErr_Clear();
  return utf8 != nullptr ? utf8 : "";
}

static std::string joined(std::string owner, const std::string& name) {
  if (owner.empty() || name.empty()) return owner + name;
  owner += '.';
  return owner += name;
}

// type.__qualname__
static std::string qualified_name(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0)
    return text_or_empty(reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname);
  const char* dot = strrchr(type->tp_name, '.');
  return dot != nullptr ? dot + 1 : type->tp_name;
}

// `__module__` and `__qualname__` of objects that store them in fields; empty: they must be read as attributes.
static std::string plain_name(Borrowed callable) {
  if (callable.type() == &PyMethodDescr_Type) {
    return joined(qualified_name(reinterpret_cast<PyDescrObject*>(callable.get())->d_type),
                  callable.as<PyMethodDescrObject>()->d_method->ml_name);
  }
  if (PyFunction_Check(callable.get())) {
    auto* function = callable.as<PyFunctionObject>();
    return joined(text_or_empty(function->func_module), text_or_empty(function->func_qualname));
  }
  if (!PyCFunction_CheckExact(callable.get())) return {};
  auto* function = callable.as<PyCFunctionObject>();
  PyObject* self = PyCFunction_GET_SELF(callable.get());
  std::string owner = text_or_empty(function->m_module);
  if (self != nullptr && !PyModule_Check(self))
    owner = joined(owner, qualified_name(PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self)));
  return joined(std::move(owner), function->m_ml->ml_name);
}

std::string native_name(Borrowed callable) {
  std::string result = plain_name(callable);
  if (!result.empty()) return result;
  const SavedError outer;  // the name may be wanted for the message of a failure
  for (const char* attribute : {"__module__", "__qualname__"}) {
    Ref text = Ref::steal(PyObject_GetAttrString(callable.get(), attribute));
    result = joined(std::move(result), text_or_empty(text.get()));
    PyErr_Clear();
  }
  return result.empty() ? callable.type()->tp_name : result;
}

std::string_view defined_name(Borrowed callable) {
  if (PyCFunction_Check(callable.get())) return callable.as<PyCFunctionObject>()->m_ml->ml_name;
  PyObject* slot = callable.get();
  if (const cpython::MethodWrapper* wrapper = cpython::as_method_wrapper(slot))
    slot = reinterpret_cast<PyObject*>(wrapper->slot);
  PyTypeObject* kind = Py_TYPE(slot);
  if (kind != &PyMethodDescr_Type && kind != &PyWrapperDescr_Type && kind != &PyClassMethodDescr_Type) return {};
  const char* text = PyUnicode_AsUTF8(reinterpret_cast<PyDescrObject*>(slot)->d_name);
  if (text == nullptr) PyErr_Clear();
  return text != nullptr ? text : "";
}

}  // namespace alternator::trace

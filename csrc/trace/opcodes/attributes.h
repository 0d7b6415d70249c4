// What reading and writing attributes have in common.
#pragma once

#include "trace/core/tracer.h"
#include "trace/torch/tensor_attributes.h"

namespace alternator::trace {

inline bool equals(Borrowed name, const char* text) { return PyUnicode_CompareWithASCIIString(name.get(), text) == 0; }

// Fields of a function that a program may set.
inline bool is_written_field(Borrowed name) {
  return equals(name, "__name__") || equals(name, "__qualname__") || equals(name, "__doc__") ||
         equals(name, "__module__");
}

// A weak proxy that the call has created, with a live referent. The referent of a pre-existing one was never lifted.
inline bool is_proxy_of_trace(const lift::Lifter& lifter, Borrowed object) {
  if (!PyWeakref_CheckProxy(object.get())) return false;
  if (lifter.known(object) != nullptr) stop(report::Reason::opaque_object, "a pre-existing weak proxy");
  return PyWeakref_GetObject(object.get()) != Py_None;
}

// object's method, inherited by a builtin class: dict.__getattribute__ and the like.
template <class Slot>
bool is_generic(Borrowed method, Slot* slot) {
  return Py_IS_TYPE(method.get(), &PyWrapperDescr_Type) &&
         reinterpret_cast<PyWrapperDescrObject*>(method.get())->d_wrapped == reinterpret_cast<void*>(slot);
}

}  // namespace alternator::trace

// What reading and writing attributes have in common.
#pragma once

#include "lift/sources/source.h"
#include "trace/core/tracer.h"
#include "trace/opcodes/special_owners.h"
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

Ref get_attribute(Tracer& t, Borrowed owner, Borrowed name);
// What a type has under the name of a special method, bound to the object; null: nothing.
Ref special_method(Tracer& t, Borrowed owner, Borrowed name);

void use_descriptor(Tracer& t, Borrowed attribute, PyTypeObject* type, Borrowed name);
// Whether it is a data descriptor, which takes precedence over the instance dict.
bool comes_first(Tracer& t, Borrowed attribute, PyTypeObject* type, Borrowed name);
// object.__getattribute__. Null with `absent`: there is no such attribute.
Ref get_generic(Tracer& t, Borrowed owner, Borrowed name, bool* absent);
// `written`: the program set it on the class during the trace.
Ref bind_descriptor(Tracer& t, Borrowed descriptor, Borrowed owner, PyTypeObject* type, lift::Source* source,
                    bool written = false);
bool is_written_by_program(Tracer& t, PyTypeObject* type, Borrowed name);

}  // namespace alternator::trace

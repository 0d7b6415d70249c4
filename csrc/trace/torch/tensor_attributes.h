// Helpers for tensor attributes that opcodes/attributes.cpp uses.
#pragma once

#include "lift/lifting/lifter.h"
#include "trace/core/call.h"
#include "trace/torch/tensor_members.h"

#include <string>

namespace alternator::trace {

class Tracer;

inline bool is_torchs_getter(PyObject* attribute) {
  return attribute != nullptr &&
         (Py_IS_TYPE(attribute, &PyGetSetDescr_Type) || Py_IS_TYPE(attribute, &PyProperty_Type));
}

// A name, for messages.
std::string text_of(Borrowed name);
// Sets a slot of a container subclass, or a field that the layout has besides its items (default_factory): writes it in
// the private copy, where native code looks, and notes the write. False: it is neither.
bool set_member_of_container(lift::Lifter& lifter, Borrowed container, Borrowed name, Borrowed value);
[[noreturn]] void no_attribute(Borrowed owner, Borrowed name, bool writes = false);

Ref get_from_tensor(Tracer& t, Borrowed tensor, Borrowed name);
// The method may have been looked up before the trace.
void check_tensor_method(Tracer& t, const Call& call, MemberFlags method, const std::string& name);

}  // namespace alternator::trace

// Attribute writes: the language's rules, over private copies; what is set on a class is written back.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

void set_attribute(Tracer& t, Borrowed owner, Borrowed name, Borrowed value);  // null: delete
void store_on_class(Tracer& t, PyTypeObject* type, Borrowed name, Borrowed value);
void set_generic(Tracer& t, Borrowed owner, Borrowed name, Borrowed value);

}  // namespace alternator::trace

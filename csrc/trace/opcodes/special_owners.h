// Attribute reads of modules, classes, functions and super(): owners with look-up rules of their own.
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

Ref get_from_module(Tracer& t, Borrowed module, Borrowed name);
Ref get_from_type(Tracer& t, PyTypeObject* type, Borrowed name);
Ref get_from_function(Tracer& t, Borrowed function, Borrowed name);
Ref get_from_super(Tracer& t, Borrowed super, Borrowed name);

}  // namespace alternator::trace

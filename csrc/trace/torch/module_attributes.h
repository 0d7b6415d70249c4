// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

Ref module_attribute(Tracer& t, Borrowed module, Borrowed name);  // module_attributes.cpp

}  // namespace alternator::trace

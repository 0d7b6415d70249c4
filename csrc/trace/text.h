// Texts of objects.
#pragma once

#include "trace/tracer.h"

namespace alternator::trace {

// Before str() or format() of an object: code of its class may make that text, whatever its repr() would show.
enum class TextOf : uint8_t { kStr, kFormat };
void check_text_of(Tracer& tracer, Borrowed value, TextOf how);

}  // namespace alternator::trace

// Values formatted with str() or format() instead of repr() (value_text.cpp).
#pragma once

#include "trace/core/tracer.h"

namespace alternator::trace {

enum class OwnText : uint8_t { kStr, kFormat };

// As Tracer::check_text(); but where the class defines the method in Python, its frame is traced.
void check_own_text(Tracer& t, Borrowed value, OwnText how = OwnText::kStr);
// Checks what `format % value` shows.
void check_percent_text(Tracer& t, Borrowed format, Borrowed value);
// Checks what format.format(value) shows.
void check_field_text(Tracer& t, Borrowed format, Borrowed value);

void check_text(Tracer& t, Borrowed value, int depth = 0);
// Before native code iterates over a value, or over what it holds: stops on a set whose order depends on addresses.
void check_order(Tracer& t, Borrowed value, const char* what);

}  // namespace alternator::trace

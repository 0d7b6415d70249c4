// Values whose own text is asked for, not their repr (value_text.cpp).
#pragma once

#include "trace/core/tracer.h"

namespace alternator::trace {

enum class OwnText : uint8_t { kStr, kFormat };

// As Tracer::check_text(); but where code of the class's gives the text, that is traced.
void check_own_text(Tracer& t, Borrowed value, OwnText how = OwnText::kStr);
// What `format % value` shows.
void check_percent_text(Tracer& t, Borrowed format, Borrowed value);
// What format.format(value) shows of it.
void check_field_text(Tracer& t, Borrowed format, Borrowed value);

}  // namespace alternator::trace

// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Arguments;
class Tracer;

Ref find_logger(Tracer& t, Borrowed function, PyObject* const* arguments, size_t count);
void log(Tracer& t, Borrowed method, Arguments& given);
void check_logger(Tracer& t, Borrowed logger);
bool is_logged(Tracer& t, Borrowed logger, long level);
void check_unwritten(Tracer& t, Borrowed object);

}  // namespace alternator::trace

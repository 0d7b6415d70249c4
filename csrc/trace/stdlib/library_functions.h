// Standard library functions that are handled specially: caches that must not be mutated, C code with a Python twin.
#pragma once

#include "trace/core/call.h"

namespace alternator::trace {

class Tracer;

class LibraryFunctions {
 public:
  explicit LibraryFunctions(Tracer& tracer) : t(tracer) {}

  // re._compile(pattern, flags), behind all functions of re.
  Ref compile_pattern(Borrowed pattern, Borrowed flags);

 private:
  Tracer& t;
  Ref patterns_;  // dict: arguments of re.compile in this trace -> the pattern
};

}  // namespace alternator::trace

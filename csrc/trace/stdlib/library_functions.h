// TODO
#pragma once

#include "py/ref.h"

namespace alternator::trace {

class Tracer;

class LibraryFunctions {
 public:
  explicit LibraryFunctions(Tracer& tracer) : t(tracer) {}
  // Standard library functions that are handled specially (library_functions.cpp); null: none of these.
  Ref call(Borrowed function, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref cache_attribute(Borrowed owner, Borrowed name);
  static bool reads_attributes(Borrowed value);

 private:
  Ref compile_pattern(PyObject* const* arguments);
  Ref call_getter(Borrowed getter, Borrowed object);
  Ref find_cached(Borrowed wrapper, PyObject* const* arguments, size_t count);
  Ref call_cached(Borrowed wrapper, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  bool is_preexisting_value(Borrowed value);
  static bool reads_objects(Borrowed value);
  int place_of_reader(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names);
  Ref call_with_stand_in(Borrowed callable, PyObject* const* arguments, size_t positional, Borrowed keyword_names,
                         size_t place);
  Ref patterns_;  // dict: arguments of re.compile in this trace -> the pattern
  Ref cached_;    // dict: calls of lru_cache functions in this trace -> their results
  Tracer& t;
};

}  // namespace alternator::trace

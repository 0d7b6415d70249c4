// What native code itself reads of its arguments, past the gate: the value of an unbacked symbol
// (unbacked_arithmetic.cpp), the attributes and items that a format string names (library_functions.cpp).
#pragma once

#include "py/ref.h"
#include "trace/calls/native_flags.h"

#include <cstddef>

namespace alternator::trace {

// Active while native code runs that reads the concrete values that user code returns to it: a key, an element, the
// result of a special method. It does not apply to what that user code does in between.
class Reading {
 public:
  explicit Reading(bool reads, bool adds = false);
  ~Reading();
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  static bool now();
  // ... that adds these values, or tests their truth: it inspects anything but an unbacked symbol, for which that is
  // recorded, or a break.
  static bool adds();
  // This trace has created an iterator that itself passes values from user code to native code, such as map(math.sqrt,
  // generator): whatever iterates over it may do so unknowingly.
  static bool& later();

 private:
  const bool before_, added_before_;
};

// Whether the function, or the constructor of a type with the layout of `base`, reads concrete values.
bool reads_digits(Borrowed callable, NativeFlags flags);
bool reads_digits(PyTypeObject* base);
// How many unbacked ints user code has returned to native code, in this thread.
size_t& integers_given();

// Whether a format string names attributes or items of its arguments: "{0.x}", but not "{:.2f}".
bool has_field_path(Borrowed format);

}  // namespace alternator::trace

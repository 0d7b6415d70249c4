// What native code reads by itself of what it is given, past the gate: the digits of a number that only a run knows
// (unbacked_arithmetic.cpp), the attributes and items that a format string names (library_functions.cpp).
#pragma once

#include "py/ref.h"

#include <string>
#include <string_view>

namespace alternator::trace {

// While native code is at work that reads the digits of what code of the program's gives it: a key, an element, a
// result of a special method. What that code does in between is its own affair.
class Reading {
 public:
  explicit Reading(bool reads, bool adds = false);
  ~Reading();
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  static bool now();
  // ... that adds what it gets, or asks for its truth: it looks at anything but a number that only a run knows, for
  // which that is recorded, or a break.
  static bool adds();
  // In this trace an iterator was made that hands what code of the program's gives it to native code by itself, such
  // as map(math.sqrt, generator): whoever goes through it may do so by accident.
  static bool& later();

 private:
  const bool before_, added_before_;
};

// Whether the function, or the constructor of a type whose instances begin as those of `base`, reads them.
bool reads_digits(Borrowed callable, const std::string& name);
bool reads_digits(PyTypeObject* base);
// How many integers without a value code of the program's has given to native code, in this thread.
size_t& integers_given();

// str.format and str.format_map.
inline bool is_formatter(std::string_view method) { return method == "format" || method == "format_map"; }

}  // namespace alternator::trace

// Python's operators and functions of numbers, as expressions over backed symbols (fake/backed_symbols.h): ints and
// floats mixed as Python mixes them, each float operation rounded where Python rounds it.
#pragma once

#include "fake/backed_symbols.h"

#include <string_view>

namespace alternator::trace {

// By the name that the module `operator`, `math` or `builtins` has for it; `b` is null for functions of one number.
// Null: there is no such expression. The sign of an exponent is guarded.
shapes::Expression operation_of(fake::BackedSymbols& symbols, std::string_view function, shapes::Expression a,
                                shapes::Expression b);

// a < b and so on (Py_LT, ...), exactly as Python compares an int with a float. Null: as above.
shapes::Expression comparison_of(fake::BackedSymbols& symbols, int operation, shapes::Expression a,
                                 shapes::Expression b);

// Whether it is not 0.
shapes::Expression truth_of(fake::BackedSymbols& symbols, shapes::Expression number);

}  // namespace alternator::trace

// Expressions as a user would write them in Python.
#pragma once

#include "shapes/expression.h"

#include <functional>

namespace alternator::shapes {

// The name of the symbol with that number.
using SymbolNames = std::function<std::string(size_t)>;

// With symbols as s0, s1, ...
std::string text(Expression expression);
std::string text(Expression expression, const SymbolNames& names);

}  // namespace alternator::shapes

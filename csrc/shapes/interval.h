// Intervals of integers: what is known about the size of a value.
#pragma once

#include "shapes/scalar_math.h"

#include <optional>

namespace alternator::shapes {

// From `low` to `high`, both included. INT64_MIN as `low` and INT64_MAX as `high` stand for "no bound": values of
// expressions may be larger than what int64 holds. Never empty.
struct Interval {
  int64_t low = kLowest;
  int64_t high = kHighest;

  static Interval of(int64_t value) { return {value, value}; }
  bool has_low() const { return low != kLowest; }
  bool has_high() const { return high != kHighest; }
  // Exactly one value, `low`.
  bool is_single() const { return low == high && has_low() && has_high(); }
  bool contains(int64_t value) const { return low <= value && value <= high; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Of all values that the operation has on values of the operands, where it is defined.
Interval operator+(const Interval& a, const Interval& b);
Interval operator*(const Interval& a, const Interval& b);
Interval operator-(const Interval& a);
Interval operator-(const Interval& a, const Interval& b);
Interval power(const Interval& base, int64_t exponent);
Interval floor_divide(const Interval& dividend, const Interval& divisor);
Interval modulo(const Interval& dividend, const Interval& divisor);
Interval minimum(const Interval& a, const Interval& b);
Interval maximum(const Interval& a, const Interval& b);

// Nothing if they have no value in common.
std::optional<Interval> intersect(const Interval& a, const Interval& b);
// The integers x for which x * factor lies in `product`; `factor` is not 0. Nothing if there are none.
std::optional<Interval> divide_exactly(const Interval& product, int64_t factor);

}  // namespace alternator::shapes

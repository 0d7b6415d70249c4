#include "shapes/interval.h"

#include <algorithm>

namespace alternator::shapes {

namespace {

// Bounds as wide integers, where infinity is a number larger than all others: the product of two int64 is at most this.
constexpr Wide kInfinity = Wide{1} << 126;

bool infinite(Wide value) { return value >= kInfinity || value <= -kInfinity; }
Wide saturate(Wide value) { return std::clamp(value, -kInfinity, kInfinity); }

struct Bounds {
  Wide low;
  Wide high;
};

Bounds widen(const Interval& interval) {
  return {interval.has_low() ? Wide{interval.low} : -kInfinity, interval.has_high() ? Wide{interval.high} : kInfinity};
}
// Bounds that int64 cannot hold are given up, which only makes the interval larger.
Interval narrow(const Bounds& bounds) {
  return {static_cast<int64_t>(std::clamp(bounds.low, Wide{kLowest}, Wide{kHighest})),
          static_cast<int64_t>(std::clamp(bounds.high, Wide{kLowest}, Wide{kHighest}))};
}

// Values are finite, so a bound of 0 times one that is infinite is 0.
Wide multiply(Wide a, Wide b) {
  if (a == 0 || b == 0) return 0;
  if (infinite(a) || infinite(b)) return (a < 0) == (b < 0) ? kInfinity : -kInfinity;
  return saturate(a * b);
}

// `b` is positive.
Wide divide(Wide a, Wide b) {
  if (infinite(b)) return a < 0 ? -1 : 0;
  if (infinite(a)) return a;
  return floor_quotient(a, b);
}

Bounds negate(const Bounds& bounds) { return {-bounds.high, -bounds.low}; }
Bounds join(const Bounds& a, const Bounds& b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

// By a divisor of at least 1.
Bounds floor_divide_by_positive(const Bounds& a, const Bounds& b) {
  return {std::min(divide(a.low, b.low), divide(a.low, b.high)),
          std::max(divide(a.high, b.low), divide(a.high, b.high))};
}

Bounds modulo_by_positive(const Bounds& a, const Bounds& b) {
  if (a.low >= 0 && a.high < b.low) return a;
  const Wide largest = infinite(b.high) ? kInfinity : b.high - 1;
  return {0, a.low >= 0 ? std::min(a.high, largest) : largest};
}

// The operation on the positive and on the negative divisors. With the signs of both operands changed, a quotient stays
// as it is and a remainder changes its sign.
template <class Operation>
Interval by_sign_of_divisor(const Interval& dividend, const Interval& divisor, Operation operation, bool changes_sign) {
  const Bounds a = widen(dividend);
  const Bounds b = widen(divisor);
  std::optional<Bounds> result;
  if (b.high >= 1) result = operation(a, Bounds{std::max(b.low, Wide{1}), b.high});
  if (b.low <= -1) {
    const Bounds mirrored = operation(negate(a), Bounds{std::max(-b.high, Wide{1}), -b.low});
    const Bounds negative = changes_sign ? negate(mirrored) : mirrored;
    result = result ? join(*result, negative) : negative;
  }
  return result ? narrow(*result) : Interval{};
}

}  // namespace

Interval operator+(const Interval& a, const Interval& b) {
  const Bounds x = widen(a);
  const Bounds y = widen(b);
  return narrow({infinite(x.low) || infinite(y.low) ? -kInfinity : x.low + y.low,
                 infinite(x.high) || infinite(y.high) ? kInfinity : x.high + y.high});
}

Interval operator-(const Interval& a) { return narrow(negate(widen(a))); }
Interval operator-(const Interval& a, const Interval& b) {
  // Not a + -b: the negation may give a bound up that the sum can hold.
  const Bounds x = widen(a);
  const Bounds y = negate(widen(b));
  return narrow({infinite(x.low) || infinite(y.low) ? -kInfinity : x.low + y.low,
                 infinite(x.high) || infinite(y.high) ? kInfinity : x.high + y.high});
}

Interval operator*(const Interval& a, const Interval& b) {
  const Bounds x = widen(a);
  const Bounds y = widen(b);
  const auto [low, high] =
      std::minmax({multiply(x.low, y.low), multiply(x.low, y.high), multiply(x.high, y.low), multiply(x.high, y.high)});
  return narrow({low, high});
}

Interval power(const Interval& base, int64_t exponent) {
  if (exponent == 0) return Interval::of(1);
  Interval result = base;
  for (int64_t step = 1; step < exponent; step++) {
    const Interval next = result * base;
    // A fixed point stays one.
    if (next == result) break;
    result = next;
  }
  if (exponent % 2 != 0) return result;
  const int64_t least = base.contains(0) ? 0 : 1;
  return {std::max(result.low, least), std::max(result.high, least)};
}

Interval floor_divide(const Interval& dividend, const Interval& divisor) {
  return by_sign_of_divisor(dividend, divisor, floor_divide_by_positive, false);
}

Interval modulo(const Interval& dividend, const Interval& divisor) {
  return by_sign_of_divisor(dividend, divisor, modulo_by_positive, true);
}

Interval minimum(const Interval& a, const Interval& b) { return {std::min(a.low, b.low), std::min(a.high, b.high)}; }
Interval maximum(const Interval& a, const Interval& b) { return {std::max(a.low, b.low), std::max(a.high, b.high)}; }

std::optional<Interval> intersect(const Interval& a, const Interval& b) {
  const Interval common{std::max(a.low, b.low), std::min(a.high, b.high)};
  if (common.low > common.high) return std::nullopt;
  return common;
}

std::optional<Interval> divide_exactly(const Interval& product, int64_t factor) {
  Bounds bounds = widen(product);
  Wide positive = factor;
  if (factor < 0) {
    bounds = negate(bounds);
    positive = -positive;
  }
  const Bounds result{infinite(bounds.low) ? bounds.low : ceil_quotient(bounds.low, positive),
                      infinite(bounds.high) ? bounds.high : floor_quotient(bounds.high, positive)};
  if (result.low > result.high) return std::nullopt;
  return narrow(result);
}

}  // namespace alternator::shapes

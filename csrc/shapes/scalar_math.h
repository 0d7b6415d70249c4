// Arithmetic on values: what Python computes, or false where Python raises or int64 cannot hold the result.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

namespace alternator::shapes {

// Wide enough for the product of two int64.
using Wide = __int128;

inline constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

inline bool checked_add(int64_t a, int64_t b, int64_t* result) { return !__builtin_add_overflow(a, b, result); }
inline bool checked_multiply(int64_t a, int64_t b, int64_t* result) { return !__builtin_mul_overflow(a, b, result); }
inline bool checked_negate(int64_t a, int64_t* result) { return !__builtin_sub_overflow(int64_t{0}, a, result); }

inline bool fits(Wide value) { return value >= kLowest && value <= kHighest; }

// Rounded down; `b` is not 0.
inline Wide floor_quotient(Wide a, Wide b) {
  const Wide quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
inline Wide ceil_quotient(Wide a, Wide b) { return -floor_quotient(-a, b); }

inline bool checked_floor_divide(int64_t a, int64_t b, int64_t* result) {
  if (b == 0 || (a == kLowest && b == -1)) return false;
  const int64_t quotient = a / b;
  *result = a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
  return true;
}

inline bool checked_modulo(int64_t a, int64_t b, int64_t* result) {
  if (b == 0) return false;
  // INT64_MIN % -1 traps on some machines.
  const int64_t remainder = b == -1 ? 0 : a % b;
  *result = remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
  return true;
}

// `exponent` is not negative.
inline bool checked_power(int64_t base, int64_t exponent, int64_t* result) {
  int64_t power = 1;
  while (true) {
    if ((exponent & 1) != 0 && !checked_multiply(power, base, &power)) return false;
    exponent >>= 1;
    if (exponent == 0) break;
    // Of 0, 1 and -1 no power overflows; of others, a square that does is a factor of the result.
    if (!checked_multiply(base, base, &base)) return false;
  }
  *result = power;
  return true;
}

// In [0, modulus); `modulus` is positive.
inline int64_t residue(Wide value, int64_t modulus) {
  const Wide remainder = value % modulus;
  return static_cast<int64_t>(remainder < 0 ? remainder + modulus : remainder);
}

// Also of INT64_MIN, whose magnitude int64 cannot hold.
inline uint64_t magnitude(int64_t value) { return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : value; }

// Of integers that a double holds exactly, the quotient of the doubles is the rounded quotient, as Python's.
inline bool checked_true_divide(int64_t a, int64_t b, double* result) {
  constexpr uint64_t kExact = uint64_t{1} << 53;
  if (b == 0 || magnitude(a) > kExact || magnitude(b) > kExact) return false;
  *result = static_cast<double>(a) / static_cast<double>(b);
  return true;
}

inline bool checked_float_divide(double a, double b, double* result) {
  if (b == 0) return false;
  *result = a / b;
  return true;
}

// Python's `//` and `%` of floats; `b` is not 0.
struct FloatDivision {
  double quotient, remainder;
};
inline FloatDivision divide_floats(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1.0;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), remainder};
  const double rounded = std::floor(quotient);
  return {quotient - rounded > 0.5 ? rounded + 1.0 : rounded, remainder};
}

// Of finite floats; false where Python raises, or gives a complex number.
inline bool checked_float_power(double base, double exponent, double* result) {
  if (!std::isfinite(base) || !std::isfinite(exponent)) return false;
  const bool odd = std::fmod(std::fabs(exponent), 2.0) == 1.0;
  if (exponent == 0) {
    *result = 1.0;
  } else if (base == 0) {
    if (exponent < 0) return false;
    *result = odd ? base : 0.0;
  } else {
    if (base < 0 && exponent != std::floor(exponent)) return false;
    const double power = std::fabs(base) == 1.0 ? 1.0 : std::pow(std::fabs(base), exponent);
    *result = base < 0 && odd ? -power : power;
  }
  return std::isfinite(*result);
}

// round(x): halves to even.
inline double round_half_even(double value) {
  const double rounded = std::round(value);
  return std::fabs(value - rounded) == 0.5 ? 2.0 * std::round(value / 2.0) : rounded;
}

// `value` is an integer, an infinity or NaN.
inline bool checked_to_integer(double value, int64_t* result) {
  if (!(value >= -0x1p63 && value < 0x1p63)) return false;
  *result = static_cast<int64_t>(value);
  return true;
}

}  // namespace alternator::shapes

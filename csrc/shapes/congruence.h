// Congruences: what is known about the remainder of a value.
#pragma once

#include "shapes/scalar_math.h"

#include <optional>

namespace alternator::shapes {

// The value is `remainder` plus a multiple of `modulus`, 0 <= remainder < modulus. Modulus 1: nothing is known; modulus
// 0: the value is `remainder`.
struct Congruence {
  int64_t modulus = 1;
  int64_t remainder = 0;

  static Congruence of(int64_t value) { return {0, value}; }
  bool excludes_zero() const { return remainder != 0; }
  // The remainder of the value by a positive `divisor`, if that is known.
  std::optional<int64_t> remainder_by(int64_t divisor) const;
  friend bool operator==(const Congruence&, const Congruence&) = default;
};

Congruence operator+(const Congruence& a, const Congruence& b);
Congruence operator*(const Congruence& a, const Congruence& b);
// By a positive divisor.
Congruence floor_divide(const Congruence& dividend, int64_t divisor);
Congruence modulo(const Congruence& dividend, int64_t divisor);
// Of a value that is one of two.
Congruence either(const Congruence& a, const Congruence& b);

// Both hold. Nothing if they contradict each other.
std::optional<Congruence> both(const Congruence& a, const Congruence& b);
// The congruence of x, from that of factor * x; `factor` is not 0. Nothing if no x has it.
std::optional<Congruence> divide_exactly(const Congruence& product, int64_t factor);

}  // namespace alternator::shapes

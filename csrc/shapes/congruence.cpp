#include "shapes/congruence.h"

#include <utility>

namespace alternator::shapes {

namespace {

Wide gcd(Wide a, Wide b) {
  a = a < 0 ? -a : a;
  b = b < 0 ? -b : b;
  while (b != 0) a = std::exchange(b, a % b);
  return a;
}

// Nothing is known where int64 cannot hold it.
Congruence make(Wide modulus, Wide remainder) {
  if (modulus == 0) return fits(remainder) ? Congruence::of(static_cast<int64_t>(remainder)) : Congruence{};
  if (!fits(modulus)) return {};
  return {static_cast<int64_t>(modulus), residue(remainder, static_cast<int64_t>(modulus))};
}

// The inverse of `value` by a positive modulus that has no factor in common with it.
Wide inverse(Wide value, Wide modulus) {
  Wide previous = 0;
  Wide current = 1;
  Wide a = modulus;
  Wide b = ((value % modulus) + modulus) % modulus;
  while (b != 0) {
    const Wide quotient = a / b;
    a = std::exchange(b, a - quotient * b);
    previous = std::exchange(current, previous - quotient * current);
  }
  return ((previous % modulus) + modulus) % modulus;
}

}  // namespace

std::optional<int64_t> Congruence::remainder_by(int64_t divisor) const {
  if (modulus % divisor != 0) return std::nullopt;
  return residue(remainder, divisor);
}

Congruence operator+(const Congruence& a, const Congruence& b) {
  return make(gcd(a.modulus, b.modulus), Wide{a.remainder} + b.remainder);
}

Congruence operator*(const Congruence& a, const Congruence& b) {
  const Wide modulus =
      gcd(gcd(Wide{a.modulus} * b.modulus, Wide{a.modulus} * b.remainder), Wide{b.modulus} * a.remainder);
  return make(modulus, Wide{a.remainder} * b.remainder);
}

Congruence floor_divide(const Congruence& dividend, int64_t divisor) {
  if (dividend.modulus % divisor != 0) return {};
  return make(dividend.modulus / divisor, floor_quotient(dividend.remainder, divisor));
}

Congruence modulo(const Congruence& dividend, int64_t divisor) {
  if (const std::optional<int64_t> known = dividend.remainder_by(divisor)) return Congruence::of(*known);
  return make(gcd(dividend.modulus, divisor), dividend.remainder);
}

Congruence either(const Congruence& a, const Congruence& b) {
  return make(gcd(gcd(a.modulus, b.modulus), Wide{a.remainder} - b.remainder), a.remainder);
}

std::optional<Congruence> both(const Congruence& a, const Congruence& b) {
  if (a.modulus == 0 || b.modulus == 0) {
    const Congruence& exact = a.modulus == 0 ? a : b;
    const Congruence& other = a.modulus == 0 ? b : a;
    if (other.modulus == 0) return exact == other ? std::optional(exact) : std::nullopt;
    if (residue(exact.remainder, other.modulus) != other.remainder) return std::nullopt;
    return exact;
  }
  const Wide common = gcd(a.modulus, b.modulus);
  const Wide difference = Wide{b.remainder} - a.remainder;
  if (difference % common != 0) return std::nullopt;
  const Wide rest = b.modulus / common;
  const Wide modulus = a.modulus * rest;
  if (!fits(modulus)) return a.modulus >= b.modulus ? a : b;
  const Wide steps = (((difference / common) % rest + rest) % rest) * inverse(a.modulus / common, rest) % rest;
  return make(modulus, a.remainder + a.modulus * steps);
}

std::optional<Congruence> divide_exactly(const Congruence& product, int64_t factor) {
  if (product.modulus == 0) {
    if (Wide{product.remainder} % factor != 0) return std::nullopt;
    return make(0, Wide{product.remainder} / factor);
  }
  const Wide common = gcd(product.modulus, factor);
  if (product.remainder % common != 0) return std::nullopt;
  const Wide modulus = product.modulus / common;
  if (modulus == 1) return Congruence{};
  return make(modulus, (product.remainder / common) * inverse(Wide{factor} / common, modulus));
}

}  // namespace alternator::shapes

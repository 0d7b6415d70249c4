// Expressions, intervals, congruences and guard bytecode of csrc/shapes. tests/shapes compares random ones with Python.
#include "framework.h"
#include "shapes/environment.h"
#include "shapes/expression_text.h"
#include "shapes/guard_bytecode.h"

namespace alternator::shapes {
namespace {

int64_t floor_divided(int64_t a, int64_t b) { return static_cast<int64_t>(floor_quotient(a, b)); }
int64_t remainder(int64_t a, int64_t b) { return a - b * floor_divided(a, b); }

template <class Body>
void for_intervals(int64_t limit, Body body) {
  for (int64_t low = -limit; low <= limit; low++) {
    for (int64_t high = low; high <= limit; high++) body(Interval{low, high});
  }
}

// --- Intervals
// -----------------------------------------------------------------------------------------------------------

TEST(intervals_contain_every_result_of_small_operands) {
  for_intervals(4, [](Interval x) {
    for_intervals(4, [&](Interval y) {
      for (int64_t a = x.low; a <= x.high; a++) {
        for (int64_t b = y.low; b <= y.high; b++) {
          CHECK((x + y).contains(a + b));
          CHECK((x - y).contains(a - b));
          CHECK((x * y).contains(a * b));
          CHECK(minimum(x, y).contains(std::min(a, b)));
          CHECK(maximum(x, y).contains(std::max(a, b)));
          if (b != 0) CHECK(floor_divide(x, y).contains(floor_divided(a, b)));
          if (b != 0) CHECK(modulo(x, y).contains(remainder(a, b)));
        }
      }
    });
    for (int64_t exponent = 0; exponent < 6; exponent++) {
      for (int64_t a = x.low; a <= x.high; a++) {
        int64_t value = 0;
        CHECK(checked_power(a, exponent, &value));
        CHECK(power(x, exponent).contains(value));
      }
    }
    for (int64_t factor = -3; factor <= 3; factor++) {
      if (factor == 0) continue;
      const auto quotients = divide_exactly(x, factor);
      for (int64_t a = -20; a <= 20; a++) {
        if (x.contains(a * factor)) CHECK(quotients && quotients->contains(a));
      }
    }
  });
}

TEST(intervals_without_a_bound_stay_without) {
  const Interval all;
  const Interval sizes{0, kHighest};
  CHECK(sizes + sizes == sizes);
  CHECK(sizes * sizes == sizes);
  CHECK(sizes - sizes == all);
  CHECK(-sizes == (Interval{kLowest, 0}));
  CHECK(sizes * Interval::of(0) == Interval::of(0));
  CHECK(all * Interval::of(-1) == all);
  CHECK(floor_divide(sizes, sizes) == sizes);
  CHECK(floor_divide(all, Interval::of(0)) == all);
  CHECK(modulo(all, Interval::of(-8)) == (Interval{-7, 0}));
  CHECK(modulo(all, Interval{-8, 4}) == (Interval{-7, 3}));
  CHECK(modulo(sizes, sizes) == sizes);
  CHECK(power(all, 2) == sizes);
}

TEST(an_interval_at_the_end_of_int64_is_no_single_value) {
  // What is beyond has no bound: more than INT64_MAX may be meant.
  CHECK(!Interval::of(kHighest).is_single());
  CHECK(!Interval::of(kLowest).is_single());
  CHECK(!(Interval::of(kHighest) + Interval::of(1)).has_high());
  CHECK(!(-Interval::of(kLowest)).has_high());
  CHECK((-Interval::of(kLowest)).low == kHighest);
  CHECK(!floor_divide(Interval::of(kLowest), Interval::of(-1)).is_single());
}

// --- Congruences
// ---------------------------------------------------------------------------------------------------------

template <class Body>
void for_congruences(Body body) {
  for (int64_t modulus = 0; modulus <= 7; modulus++) {
    for (int64_t rest = modulus == 0 ? -3 : 0; rest < std::max<int64_t>(modulus, 1); rest++)
      body(Congruence{modulus, rest});
  }
}

bool has(const Congruence& congruence, int64_t value) {
  return congruence.modulus == 0 ? value == congruence.remainder
                                 : remainder(value, congruence.modulus) == congruence.remainder;
}

TEST(congruences_hold_for_every_result_of_small_operands) {
  for_congruences([](Congruence x) {
    for_congruences([&](Congruence y) {
      const auto common = both(x, y);
      for (int64_t a = -9; a <= 9; a++) {
        if (!has(x, a)) continue;
        if (has(y, a)) CHECK(common && has(*common, a));
        for (int64_t b = -9; b <= 9; b++) {
          if (!has(y, b)) continue;
          CHECK(has(x + y, a + b));
          CHECK(has(x * y, a * b));
          CHECK(has(either(x, y), a) && has(either(x, y), b));
        }
      }
      // Both say no more than each of the two: as many values have both.
      for (int64_t a = -60; common && a <= 60; a++) CHECK_EQ(has(*common, a), has(x, a) && has(y, a));
    });
    for (int64_t divisor = 1; divisor <= 8; divisor++) {
      const auto rest = x.remainder_by(divisor);
      const auto quotient = divide_exactly(x, divisor);
      for (int64_t a = -60; a <= 60; a++) {
        if (has(x, a)) CHECK(has(floor_divide(x, divisor), floor_divided(a, divisor)));
        if (has(x, a)) CHECK(has(modulo(x, divisor), remainder(a, divisor)));
        if (has(x, a) && rest) CHECK_EQ(*rest, remainder(a, divisor));
        if (has(x, a * divisor)) CHECK(quotient && has(*quotient, a));
      }
    }
  });
}

TEST(congruences_with_huge_moduli_are_given_up_not_wrapped) {
  const Congruence huge{kHighest, 5};
  CHECK(has(huge * Congruence::of(2), 10));
  CHECK_EQ((huge * Congruence::of(2)).modulus, 1);
  CHECK_EQ((Congruence::of(kLowest) * Congruence::of(-1)).modulus, 1);
  CHECK(both(huge, {kHighest - 1, 3}) == huge);
}

// --- Canonical form
// ------------------------------------------------------------------------------------------------------

struct Shapes {
  ShapeEnvironment environment;
  Expression s0 = environment.add_symbol(10, {0, kHighest});
  Expression s1 = environment.add_symbol(12, {0, kHighest});
  Expression number = environment.add_symbol(-3);

  Expression n(int64_t value) { return environment.integer(value); }
};

TEST(equal_polynomials_are_one_node) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  CHECK(e.add(s0, s1) == e.add(s1, s0));
  CHECK(e.multiply(e.add(s0, s1), e.subtract(s0, s1)) == e.subtract(e.power(s0, 2), e.power(s1, 2)));
  CHECK(e.subtract(e.add(s0, shapes.n(5)), s0) == shapes.n(5));
  CHECK(e.multiply(s0, shapes.n(0)) == shapes.n(0));
  CHECK(e.multiply(s0, shapes.n(1)) == s0);
  CHECK(e.less(s0, s1) == e.less_equal(e.add(s0, shapes.n(1)), s1));
  CHECK(e.equal(e.scale(s0, 2), e.scale(s1, 2)) == e.equal(s1, s0));
  CHECK(e.negation(e.negation(e.less(s0, s1))) == e.less(s0, s1));
}

TEST(quotients_and_remainders_by_constants_are_split) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  CHECK(e.floor_divide(e.scale(s0, 8), shapes.n(8)) == s0);
  CHECK_EQ(text(e.floor_divide(e.add(e.scale(s0, 8), shapes.n(11)), shapes.n(8))), "s0 + 1");
  CHECK_EQ(text(e.floor_divide(e.floor_divide(s0, shapes.n(2)), shapes.n(3))), "s0 // 6");
  CHECK_EQ(text(e.floor_divide(s0, shapes.n(-2))), "-s0 // 2");
  CHECK(e.modulo(e.scale(s0, 8), shapes.n(8)) == shapes.n(0));
  CHECK_EQ(text(e.modulo(e.add(e.scale(s0, 9), shapes.n(17)), shapes.n(8))), "(s0 + 1) % 8");
  CHECK_EQ(text(e.modulo(s0, shapes.n(-8))), "-(-s0 % 8)");
  CHECK(e.add(e.scale(e.floor_divide(x, shapes.n(4)), 4), e.modulo(x, shapes.n(4))) == x);
}

TEST(a_division_that_may_fail_is_not_simplified_away) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  const Expression product = e.multiply(s0, s1);
  const Expression quotient = e.floor_divide(product, s1);
  CHECK(quotient != s0);
  CHECK(!quotient->total);
  CHECK(e.subtract(quotient, quotient) != shapes.n(0));
  CHECK(e.multiply(quotient, shapes.n(0)) != shapes.n(0));
  CHECK(e.equal(quotient, quotient)->kind != Kind::kBoolean);
  CHECK(!e.decide(e.equal(quotient, quotient)));
  CHECK(e.assume(e.not_equal(s1, shapes.n(0))) == Assumed::kRecorded);
  CHECK(e.floor_divide(product, s1) == s0);
  CHECK(e.simplify(quotient) == s0);
  CHECK(e.simplify(e.subtract(quotient, quotient)) == shapes.n(0));
  CHECK(e.modulo(product, s1) == shapes.n(0));
}

TEST(what_overflows_is_no_expression) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  CHECK(e.negate(shapes.n(kLowest)) == nullptr);
  CHECK(e.floor_divide(shapes.n(kLowest), shapes.n(-1)) == nullptr);
  CHECK(e.floor_divide(s0, shapes.n(kLowest)) == nullptr);
  CHECK(e.modulo(shapes.n(kLowest), shapes.n(-1)) == shapes.n(0));
  CHECK(e.floor_divide(s0, shapes.n(0)) == nullptr);
  CHECK(e.modulo(s0, shapes.n(0)) == nullptr);
  CHECK(e.scale(e.scale(s0, kHighest), 2) == nullptr);
  // The constant fits, the hint does not: 10 * INT64_MAX.
  CHECK(e.scale(s0, kHighest) == nullptr);
  CHECK(e.add(nullptr, s0) == nullptr);
  CHECK(e.less(nullptr, s0) == nullptr);
  // Python decides these, though the difference of the two sides does not fit.
  CHECK(e.less(shapes.n(kLowest), shapes.n(kHighest))->hint.integer == 1);
  CHECK(e.less_equal(x, shapes.n(kLowest))->hint.integer == 0);
}

TEST(expressions_do_not_grow_without_end) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  Expression deep = x;
  int steps = 0;
  while (deep != nullptr && steps < 1000) {
    deep = e.floor_divide(e.add(e.multiply(deep, deep), s0), e.add(e.maximum(deep, s1), shapes.n(1)));
    steps++;
  }
  CHECK(deep == nullptr);
}

TEST(min_and_max_drop_what_is_dominated) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  CHECK(e.maximum(s0, shapes.n(-1)) == s0);
  CHECK(e.minimum(e.add(s0, shapes.n(1)), s0) == s0);
  CHECK(e.maximum(e.maximum(s0, s1), s0) == e.maximum(s1, s0));
  CHECK_EQ(text(e.absolute(x)), "max(s2, -s2)");
  CHECK(e.absolute(s0) == s0);
}

// --- Facts
// ---------------------------------------------------------------------------------------------------------------

TEST(equalities_replace_the_later_symbol) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  const Expression s3 = e.add_symbol(10, {2, kHighest});
  CHECK(e.assume(e.equal(s0, s3), 7) == Assumed::kRecorded);
  CHECK_EQ(text(e.simplify(e.add(s3, shapes.n(1)))), "s0 + 1");
  CHECK(e.facts().interval(s0).low == 2);
  CHECK(e.assume(e.equal(s3, s0)) == Assumed::kKnown);
  CHECK(e.assume(e.equal(s1, e.add(s0, shapes.n(2)))) == Assumed::kRecorded);
  CHECK(e.decide(e.less(s3, s1)) == true);
  CHECK_EQ(text(e.simplify(e.multiply(s3, s1))), "2*s0 + s0**2");
  CHECK_EQ(e.guards().size(), 2U);
  CHECK_EQ(e.guards()[0].tag, 7U);
  CHECK_EQ(text(e.guards()[0].condition), "s0 == s3");
}

TEST(divisibility_decides_and_simplifies) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  CHECK(e.assume(e.equal(e.modulo(s1, shapes.n(4)), shapes.n(0))) == Assumed::kRecorded);
  CHECK(e.scale(e.floor_divide(s1, shapes.n(4)), 4) == s1);
  CHECK(e.decide(e.equal(e.modulo(s1, shapes.n(2)), shapes.n(0))) == true);
  CHECK(e.decide(e.equal(s1, shapes.n(6))) == false);
  CHECK(e.decide(e.less_equal(s1, shapes.n(3))).has_value() == false);
  CHECK(e.assume(e.less_equal(shapes.n(1), s1)) == Assumed::kRecorded);
  CHECK(e.decide(e.less_equal(shapes.n(4), s1)) == true);
}

TEST(an_assumption_about_an_expression_is_remembered) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  CHECK(e.assume(e.less(s0, s1)) == Assumed::kRecorded);
  CHECK(e.decide(e.less(e.scale(s0, 2), e.add(e.scale(s1, 2), shapes.n(1)))) == true);
  CHECK(e.decide(e.equal(s0, s1)) == false);
  CHECK(e.assume(e.less_equal(e.multiply(s0, s1), shapes.n(200))) == Assumed::kRecorded);
  CHECK(e.decide(e.less(e.multiply(s0, s1), shapes.n(300))) == true);
  CHECK(e.assume(e.less(s1, s0)) == Assumed::kContradiction);
  CHECK_EQ(e.guards().size(), 2U);
}

TEST(a_condition_that_the_hints_contradict_is_not_taken) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  CHECK(e.assume(e.equal(s0, s1)) == Assumed::kContradiction);
  CHECK(e.guards().empty());
  CHECK(e.simplify(s1) == s1);
}

TEST(a_common_factor_decides_a_comparison) {
  ShapeEnvironment e;
  const Expression a = e.add_symbol(4, {2, kHighest});
  const Expression b = e.add_symbol(5, {2, kHighest});
  CHECK(e.decide(e.less_equal(a, e.multiply(a, b))) == true);
  CHECK(e.floor_divide(e.multiply(e.add(a, e.integer(1)), b), e.add(a, e.integer(1))) == b);
  CHECK(e.floor_divide(e.multiply(a, b), e.scale(a, 2)) == e.floor_divide(b, e.integer(2)));
}

// --- Floats
// --------------------------------------------------------------------------------------------------------------

TEST(floats_are_told_apart_by_bits_and_compared_by_value) {
  ShapeEnvironment e;
  CHECK(e.real(0.0) != e.real(-0.0));
  CHECK(e.combine(Kind::kFloatEq, e.real(0.0), e.real(-0.0)) == e.boolean(true));
  CHECK(e.combine(Kind::kFloatDiv, e.real(1.0), e.real(-0.0)) == nullptr);
  const Expression x = e.add_float_symbol(0.5);
  CHECK(e.combine(Kind::kFloatEq, x, x)->kind == Kind::kFloatEq);  // NaN
  CHECK(e.negation(e.combine(Kind::kFloatLt, x, e.real(1.0)))->kind == Kind::kNot);
  CHECK_EQ(text(e.combine(Kind::kFloatMul, x, e.real(2.0))), "s0 * 2.0");
}

// --- Bytecode
// ------------------------------------------------------------------------------------------------------------

GuardBytecode compiled(const std::vector<Expression>& conditions) {
  const std::optional<GuardBytecode> program = GuardBytecode::compile(conditions);
  CHECK(program.has_value());
  return program.value_or(GuardBytecode());
}

bool check(const std::vector<Expression>& conditions, const std::vector<int64_t>& values) {
  std::vector<Register> registers;
  registers.reserve(values.size());
  for (const int64_t value : values) registers.push_back({.integer = value});
  return compiled(conditions).check(registers.data());
}

TEST(bytecode_fails_where_a_value_is_undefined) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  const Expression even = e.equal(e.modulo(s0, s1), s0);
  CHECK(check({even}, {3, 5, 0}));
  CHECK(!check({even}, {3, 0, 0}));
  CHECK(!check({e.less_equal(e.multiply(s0, s1), x)}, {kHighest, 2, 0}));
  // One part decides, whatever the other is.
  CHECK(check({e.any_of(even, e.equal(s1, shapes.n(0)))}, {3, 0, 0}));
  CHECK(!check({e.any_of(even, e.equal(s1, shapes.n(1)))}, {3, 0, 0}));
}

TEST(bytecode_merges_the_bounds_of_a_symbol) {
  Shapes shapes;
  auto& [e, s0, s1, x] = shapes;
  const std::vector<Expression> bounds{e.less_equal(shapes.n(2), s0), e.less_equal(s0, shapes.n(8)),
                                       e.less_equal(x, shapes.n(-1))};
  CHECK_EQ(compiled(bounds).size(), 2U);
  CHECK(check(bounds, {2, 0, -1}));
  CHECK(!check(bounds, {1, 0, -1}));
  CHECK(!check(bounds, {9, 0, -1}));
  CHECK(!check(bounds, {8, 0, 0}));
  CHECK(!check({e.equal(s0, shapes.n(2)), e.equal(s0, shapes.n(3))}, {2, 0, 0}));
}

TEST(bytecode_computes_sums_that_overflow_only_on_the_way) {
  ShapeEnvironment e;
  const Expression a = e.add_symbol(1);
  const Expression b = e.add_symbol(1);
  const Register registers[] = {{.integer = kHighest}, {.integer = kHighest}};
  const std::optional<Register> value = evaluate(e.subtract(e.scale(a, 2), b), registers);
  CHECK_EQ(value.value_or(Register{}).integer, kHighest);
  CHECK(!evaluate(e.add(a, b), registers));
}

TEST(bytecode_that_needs_too_much_is_refused) {
  ShapeEnvironment e;
  std::vector<Expression> terms;
  Expression sum = e.integer(0);
  for (int64_t index = 0; index < 300; index++) {
    const Expression symbol = e.add_symbol(1);
    sum = e.add(sum, e.multiply(symbol, symbol));
  }
  CHECK(sum != nullptr);
  const Expression results[] = {sum};
  CHECK(!GuardBytecode::compile({}, results));
}

}  // namespace
}  // namespace alternator::shapes

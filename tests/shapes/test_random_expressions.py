"""The core's expressions, facts and guards against Python's integers, over random expressions and values."""

from __future__ import annotations

import math
import os
import random
import struct
from typing import Any

import pytest
from random_expressions import (
    CONVERSIONS,
    FLOAT_COMPARISONS,
    FLOATS,
    FLOATS_OF_ONE,
    HIGH,
    LOW,
    Evaluator,
    Sample,
    build,
    computed,
    shapes,
)

# More of everything: for a search, not for every run.
SCALE = float(os.environ.get("ALTERNATOR_SHAPES_SCALE", "1"))
SEED = int(os.environ.get("ALTERNATOR_SHAPES_SEED", "0"))
MODES = [
    pytest.param(hints, huge, id=f"{'hints' if hints else 'unbacked'}-{'huge' if huge else 'small'}")
    for hints in (True, False)
    for huge in (False, True)
]


def samples(count: int, length: int, hints: bool, huge: bool, assumptions: int = 0) -> Any:
    """`count` environments with `length` expressions each."""
    for seed in range(int(count * SCALE)):
        rng = random.Random(f"{SEED} {seed} {hints} {huge}")
        shallow = seed % 2 == 0
        sample = Sample(rng, hints=hints, huge=huge, shallow=shallow)
        for step in range(length):
            sample.grow()
            if assumptions and step % (length // assumptions) == length // assumptions // 2:
                sample.assume(typical=shallow)
        yield sample


def check_values(sample: Sample, symbols: list[int], reference: list[Any], evaluator: Evaluator) -> None:
    """Every expression has Python's value, and bytecode has it wherever 64 bits hold all that it is computed from."""
    exact = evaluator.values(symbols)
    environment = sample.environment
    for expression, wanted in zip(sample.expressions, reference):
        context = (expression, symbols, environment.guards())
        value = exact[evaluator.index[expression]]
        assert value is wanted or value == wanted, context
        found = environment.check([], symbols, [expression])
        if found is not None:
            assert found == [wanted], context
        else:
            assert wanted is None or evaluator.overflows(expression, exact), context
        if expression.kind in ("integer", "boolean"):
            continue
        if isinstance(wanted, bool):
            holds = environment.check([expression], symbols) is not None
            assert holds == (found == [True]), context
        elif wanted is not None:
            low, high = environment.interval(expression)
            assert (low is None or low <= wanted) and (high is None or wanted <= high), (*context, low, high)
            modulus, remainder = environment.congruence(expression)
            assert (wanted - remainder) % modulus == 0 if modulus else wanted == remainder, (
                *context,
                modulus,
                remainder,
            )


@pytest.mark.parametrize(("hints", "huge"), MODES)
def test_a_hundred_thousand_expressions_have_pythons_values(hints: bool, huge: bool) -> None:
    checked = 0
    for sample in samples(150, 220, hints, huge):
        evaluator = Evaluator()
        for expression in sample.expressions:
            evaluator.add(expression)
        checked += len(sample.expressions)
        for symbols in (sample.hints, sample.assignment(), sample.assignment()):
            check_values(sample, symbols, sample.reference(symbols), evaluator)
    assert checked >= 25_000 * SCALE


@pytest.mark.parametrize(("hints", "huge"), MODES)
def test_what_is_decided_and_simplified_is_true_of_all_values_that_satisfy_the_guards(hints: bool, huge: bool) -> None:
    decided = satisfied = 0
    for sample in samples(150, 80, hints, huge, assumptions=5):
        environment = sample.environment
        evaluator = Evaluator()
        simplified = [environment.simplify(expression) for expression in sample.expressions]
        for expression in (*sample.expressions, *simplified):
            evaluator.add(expression)
        decisions = {position: environment.decide(sample.expressions[position]) for position in sample.conditions}
        decisions = {position: answer for position, answer in decisions.items() if answer is not None}
        decided += len(decisions)
        for symbols, reference in sample.satisfying(tries=200, wanted=12):
            satisfied += 1
            check_values(sample, symbols, reference, evaluator)
            exact = evaluator.values(symbols)
            for expression, simpler, wanted in zip(sample.expressions, simplified, reference):
                assert exact[evaluator.index[simpler]] == wanted, (expression, simpler, symbols, environment.guards())
            for position, answer in decisions.items():
                wanted = reference[position]
                assert wanted is answer, (sample.expressions[position], symbols, environment.guards())
    assert decided > 500 * SCALE and satisfied > 500 * SCALE


@pytest.mark.parametrize(("hints", "huge"), MODES)
def test_guards_hold_exactly_where_all_that_was_assumed_does(hints: bool, huge: bool) -> None:
    met = missed = 0
    for sample in samples(200, 60, hints, huge, assumptions=6):
        environment = sample.environment
        guards = [condition for condition, _ in environment.guards()]
        evaluator = Evaluator()
        for expression in (*sample.expressions, *guards):
            evaluator.add(expression)
        for number in range(40):
            symbols = sample.hints if number == 0 and hints else sample.assignment()
            reference = sample.reference(symbols)
            wanted = all(reference[condition] is True for condition in sample.assumed)
            holds = environment.check(guards, symbols) is not None
            context = (guards, [sample.expressions[condition] for condition in sample.assumed], symbols)
            if holds != wanted:
                # The only excuse: 64 bits do not hold what a guard is computed from.
                exact = evaluator.values(symbols)
                assert wanted and any(evaluator.overflows(guard, exact) for guard in guards), context
            met += holds
            missed += not holds
    assert met > 500 * SCALE and missed > 500 * SCALE


def test_texts_are_python_that_has_the_same_value() -> None:
    for sample in samples(60, 100, True, False):
        symbols = sample.assignment()
        names = {f"s{number}": value for number, value in enumerate(symbols)}
        for expression, wanted in zip(sample.expressions, sample.reference(symbols)):
            if wanted is None or "and" in repr(expression) or "or" in repr(expression):
                continue  # Python's `and` stops at an operand that has no value
            assert eval(repr(expression), {}, names) == wanted, (expression, symbols)


def bits(value: Any) -> Any:
    return struct.pack("d", value) if isinstance(value, float) and not math.isnan(value) else str(value)


def test_floats_have_pythons_bits() -> None:
    odd = (0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 5e-324, 1e308, 0.1, 2.0**53, -(2.0**63), 2.0**63)
    checked = 0
    for seed in range(int(300 * SCALE)):
        rng = random.Random(f"floats {SEED} {seed}")
        environment = shapes.Environment()
        recipes: list[Any] = [("symbol", 0), ("symbol", 1), ("symbol", 2), *rng.sample(odd, 3)]
        hint = rng.choice([None, 1.0])
        floats = [environment.float_symbol(hint), environment.float_symbol(hint)]
        integer = environment.symbol(None if hint is None else 3)
        expressions = [*floats, integer, *(environment.real(value) for value in recipes[3:])]
        sorts = ["float", "float", "int", "float", "float", "float"]
        for _ in range(40):
            name, table = rng.choice(
                [(name, table) for table in (FLOATS, FLOAT_COMPARISONS, CONVERSIONS) for name in table]
            )
            count = 1 if name in FLOATS_OF_ONE or name.endswith(("_int", "to_float")) else 2
            sort = "int" if name in ("to_float", "int_true_div") else "float"
            operands = [rng.choice([index for index, each in enumerate(sorts) if each == sort]) for _ in range(count)]
            expression = build(environment, name, [expressions[operand] for operand in operands])
            if expression is None:
                continue
            recipes.append((name, *operands))
            expressions.append(expression)
            sorts.append("int" if name.endswith("_int") else "bool" if table is FLOAT_COMPARISONS else "float")
        for _ in range(5):
            symbols = [rng.choice(odd), rng.choice(odd), rng.choice([0, 1, -7, 2**53 + 1, LOW, HIGH])]
            values: list[Any] = []
            for recipe, expression in zip(recipes, expressions):
                wanted = computed(recipe, values, symbols)
                values.append(wanted)
                if type(wanted) is int and not LOW <= wanted <= HIGH:
                    values[-1] = wanted = None
                found = environment.check([], symbols, [expression])
                assert (found is None) == (wanted is None), (expression, symbols, wanted, found)
                assert found is None or bits(found[0]) == bits(wanted), (expression, symbols, wanted, found)
                checked += 1
    assert checked > 10_000 * SCALE


def test_powers_and_common_divisors_of_integers() -> None:
    numbers = (0, 1, -1, 2, -3, 7, 62, 63, 64, 2**31, -(2**31), HIGH, LOW)
    environment = shapes.Environment()
    a, b = environment.symbol(None), environment.symbol(None)
    power, divisor = environment.make("pow", a, b), environment.make("gcd", a, b)
    for x in numbers:
        for y in numbers:
            wanted = x**y if y >= 0 and (y < 70 or x in (-1, 0, 1)) else None
            wanted = wanted if wanted is not None and LOW <= wanted <= HIGH else None
            assert environment.check([], [x, y], [power]) == (None if wanted is None else [wanted]), (x, y)
            if LOW not in (x, y):
                assert environment.check([], [x, y], [divisor]) == [math.gcd(x, y)], (x, y)


def test_a_float_that_equals_a_constant_is_one() -> None:
    """A zero equals two of them, and NaN equals nothing."""
    for hint, kind, known in [
        (0.5, "float_eq", True),
        (0.0, "float_eq", False),
        (-0.0, "float_same", True),
        (math.nan, "float_same", True),
    ]:
        environment = shapes.Environment()
        x = environment.float_symbol(hint)
        environment.assume(environment.make(kind, x, environment.real(hint)))
        assert (environment.simplify(x).kind == "float") == known
        for value in (0.5, 0.0, -0.0, math.nan, 1.0):
            equal = value == hint if kind == "float_eq" else bits(value) == bits(hint)
            guards = [condition for condition, _ in environment.guards()]
            assert (environment.check(guards, [value]) is not None) == equal, (hint, value)

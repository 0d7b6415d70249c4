"""Random expressions, each beside what Python computes: the core's answer must be the same wherever it has one."""

from __future__ import annotations

import importlib
import math
import os
import random
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LOW, HIGH = -(2**63), 2**63 - 1


def load_shapes() -> Any:
    folder = os.environ.get("ALTERNATOR_CORE_DIR") or ROOT / "build" / "core-{}.{}".format(*sys.version_info[:2])
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module("_alternator_core").shapes


shapes = load_shapes()


# ----------------------------------------------------------------------------------------- what Python computes: None is no value


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*operands: Any) -> Any:
        if any(operand is None for operand in operands):
            return None
        try:
            return function(*operands)
        except (ZeroDivisionError, OverflowError, ValueError):
            return None

    return apply


def all_of(*operands: bool | None) -> bool | None:
    return False if False in operands else None if None in operands else True


def any_of(*operands: bool | None) -> bool | None:
    return True if True in operands else None if None in operands else False


def true_divide(a: int, b: int) -> float | None:
    quotient = a / b
    return quotient if max(abs(a), abs(b)) <= 2**53 else None  # larger ones are left to Python


def finite(function: Callable[[float], float]) -> Callable[[float], float | None]:
    """Of finite floats: what is left of them is left to Python."""
    return lambda x: result if math.isfinite(x) and math.isfinite(result := function(x)) else None


def power(a: float, b: float) -> float | None:
    result = a**b if math.isfinite(a) and math.isfinite(b) else None
    return result if isinstance(result, float) and math.isfinite(result) else None


INTEGERS: dict[str, Callable[..., Any]] = {
    "add": strict(lambda a, b: a + b),
    "subtract": strict(lambda a, b: a - b),
    "multiply": strict(lambda a, b: a * b),
    "negate": strict(lambda a: -a),
    "square": strict(lambda a: a * a),
    "cube": strict(lambda a: a**3),
    "floor_div": strict(lambda a, b: a // b),
    "mod": strict(lambda a, b: a % b),
    "min": strict(min),
    "max": strict(max),
}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": strict(lambda a, b: a == b),
    "ne": strict(lambda a, b: a != b),
    "le": strict(lambda a, b: a <= b),
    "less": strict(lambda a, b: a < b),
}
LOGIC: dict[str, Callable[..., Any]] = {"and": all_of, "or": any_of, "not": strict(lambda a: not a)}
FLOATS: dict[str, Callable[..., Any]] = {
    "float_add": strict(lambda a, b: a + b),
    "float_sub": strict(lambda a, b: a - b),
    "float_mul": strict(lambda a, b: a * b),
    "float_div": strict(lambda a, b: a / b),
    "float_floor_div": strict(lambda a, b: a // b),
    "float_mod": strict(lambda a, b: a % b),
    "float_pow": strict(power),
    "float_min": strict(min),
    "float_max": strict(max),
    "float_copysign": strict(math.copysign),
    "float_neg": strict(lambda a: -a),
    "float_abs": strict(abs),
    "float_sqrt": strict(math.sqrt),
    "float_exp": strict(finite(math.exp)),
    "float_log": strict(finite(math.log)),
    "float_log2": strict(finite(math.log2)),
    "float_sin": strict(finite(math.sin)),
    "float_cos": strict(finite(math.cos)),
    "float_tanh": strict(finite(math.tanh)),
}
FLOAT_COMPARISONS: dict[str, Callable[..., Any]] = {
    "float_eq": strict(lambda a, b: a == b),
    "float_ne": strict(lambda a, b: a != b),
    "float_lt": strict(lambda a, b: a < b),
    "float_le": strict(lambda a, b: a <= b),
    "float_same": strict(lambda a, b: struct.pack("d", a) == struct.pack("d", b)),
}
CONVERSIONS: dict[str, Callable[..., Any]] = {
    "to_float": strict(float),
    "trunc_to_int": strict(int),
    "floor_to_int": strict(math.floor),
    "ceil_to_int": strict(math.ceil),
    "round_to_int": strict(round),
    "int_true_div": strict(true_divide),
}
_OF_ONE = {"neg", "abs", "sqrt", "exp", "log", "log2", "sin", "cos", "tanh"}
FLOATS_OF_ONE = {name for name in FLOATS if name.rpartition("_")[2] in _OF_ONE}
REFERENCE = INTEGERS | COMPARISONS | LOGIC | FLOATS | FLOAT_COMPARISONS | CONVERSIONS


def build(environment: Any, name: str, operands: Sequence[Any]) -> Any:
    if name == "add":
        return environment.make("sum", *operands)
    if name == "subtract":
        minus = environment.make("product", environment.integer(-1), operands[1])
        return environment.make("sum", operands[0], minus)
    if name == "multiply":
        return environment.make("product", *operands)
    if name == "negate":
        return environment.make("product", environment.integer(-1), *operands)
    if name in ("square", "cube"):
        return environment.power(operands[0], 2 if name == "square" else 3)
    if name == "less":
        return environment.less(*operands)
    return environment.make(name, *operands)


# --------------------------------------------------------------------------------- the core's expressions, evaluated in Python


def value_of(kind: str, value: Any, operands: list[Any], factors: list[int], symbols: Sequence[Any]) -> Any:
    if kind in ("integer", "float"):
        return value
    if kind == "boolean":
        return bool(value)
    if kind in ("symbol", "float_symbol"):
        return symbols[value]
    if kind in LOGIC:
        return LOGIC[kind](*operands)
    if None in operands:
        return None
    if kind == "sum":
        return value + sum(operand * factor for operand, factor in zip(operands, factors))
    if kind == "product":
        return math.prod(operand**factor for operand, factor in zip(operands, factors))
    return REFERENCE[kind](*operands)


class Evaluator:
    """Expressions of one environment, evaluated with Python's integers: no bound, and every operand counts."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, Any, list[int], list[int]]] = []
        self.index: dict[Any, int] = {}

    def add(self, expression: Any) -> int:
        found = self.index.get(expression)
        if found is None:
            terms = expression.terms
            operands = [self.add(operand) for operand, _ in terms]
            self.nodes.append((expression.kind, expression.value, operands, [factor for _, factor in terms]))
            found = self.index[expression] = len(self.nodes) - 1
        return found

    def values(self, symbols: Sequence[Any]) -> list[Any]:
        values: list[Any] = []
        for kind, value, operands, factors in self.nodes:
            values.append(value_of(kind, value, [values[operand] for operand in operands], factors, symbols))
        return values

    def overflows(self, expression: Any, values: list[Any]) -> bool:
        """Whether a value that the expression is computed from does not fit into 64 bits, or may not."""
        seen: set[int] = set()
        todo = [self.index[expression]]
        while todo:
            index = todo.pop()
            if index in seen:
                continue
            seen.add(index)
            kind, _, operands, factors = self.nodes[index]
            value = values[index]
            if isinstance(value, int) and not LOW <= value <= HIGH:
                return True
            if kind == "product":
                # Also a step on the way, if a later factor is 0.
                product = 1
                for operand, factor in zip(operands, factors):
                    if values[operand] is not None:
                        product *= max(1, abs(values[operand])) ** factor
                if product > HIGH:
                    return True
            todo += operands
        return False


# -------------------------------------------------------------------------------------------------------------------- random


def computed(recipe: Any, values: Sequence[Any], symbols: Sequence[Any]) -> Any:
    """What Python computes for one expression, given the values of those before it."""
    if not isinstance(recipe, tuple):
        return recipe
    if recipe[0] == "symbol":
        return symbols[recipe[1]]
    return REFERENCE[recipe[0]](*[values[operand] for operand in recipe[1:]])


class Sample:
    """Random expressions of one environment: for each, the expression and how Python computes it."""

    SMALL = tuple(range(-4, 13))
    CONSTANTS = (0, 1, -1, 2, 3, 4, 5, 6, 7, 8, 16, -2, -3, -8, 100)
    HUGE = (LOW, LOW + 1, HIGH, HIGH - 1, 2**62, -(2**62), 2**32, 2**31 - 1, 3 * 10**9, 10**12)

    def __init__(
        self, rng: random.Random, symbols: int = 4, hints: bool = True, huge: bool = False, shallow: bool = False
    ) -> None:
        self.rng = rng
        self.huge = huge
        self.shallow = shallow  # made of symbols and constants rather than of each other
        self.environment = shapes.Environment()
        self.bounds = [
            rng.choice([(None, None), (0, None), (1, None), (2, None), (0, 8), (-5, 5)]) for _ in range(symbols)
        ]
        self.hints = [self.value(*bounds) for bounds in self.bounds]
        # How each is computed: a constant, ("symbol", number), or (name, *positions of the operands).
        self.recipes: list[Any] = []
        self.expressions: list[Any] = []
        self.integers: list[int] = []
        self.conditions: list[int] = []
        self.lost = 0
        self.assumed: list[int] = []
        for number, (bounds, hint) in enumerate(zip(self.bounds, self.hints)):
            symbol = self.environment.symbol(hint if hints else None, *bounds)
            self.keep(self.integers, ("symbol", number), symbol)
        for constant in rng.sample(self.CONSTANTS, 4) + (rng.sample(self.HUGE, 2) if huge else []):
            self.keep(self.integers, constant, self.environment.integer(constant))
        self.leaves = len(self.integers)

    def value(self, low: int | None, high: int | None) -> int:
        """A value between the bounds, often one of the odd ones."""
        low, high = LOW if low is None else low, HIGH if high is None else high
        if self.huge and self.rng.random() < 0.5:
            pool = [value for value in (*self.HUGE, low, high) if low <= value <= high]
            return self.rng.choice(pool) if pool else low
        return min(max(self.rng.choice(self.SMALL), low), high)

    def keep(self, where: list[int], recipe: Any, expression: Any) -> bool:
        if expression is None:
            self.lost += 1
            return False
        self.recipes.append(recipe)
        self.expressions.append(expression)
        where.append(len(self.recipes) - 1)
        return True

    def grow(self) -> bool:
        """One more expression."""
        rng = self.rng
        table, where, pool = rng.choices(
            [
                (INTEGERS, self.integers, self.integers),
                (COMPARISONS, self.conditions, self.integers),
                (LOGIC, self.conditions, self.conditions),
            ],
            weights=[8, 3, 2 if self.conditions else 0],
        )[0]
        name = rng.choice(list(table))
        count = 1 if name in ("negate", "square", "cube", "not") else 2
        operands = [self.operand(pool) for _ in range(count)]
        return self.apply(where, name, *operands)

    def operand(self, pool: list[int]) -> int:
        if self.shallow:
            return self.rng.choice(pool[: self.leaves] if self.rng.random() < 0.6 else pool[-8:])
        # The recent ones more often: expressions grow.
        return self.rng.choice(pool[-12:] if self.rng.random() < 0.4 else pool)

    def apply(self, where: list[int], name: str, *operands: int) -> bool:
        expression = build(self.environment, name, [self.expressions[operand] for operand in operands])
        return self.keep(where, (name, *operands), expression)

    def constant(self, value: int) -> int:
        self.keep(self.integers, value, self.environment.integer(value))
        return self.integers[-1]

    def typical(self) -> bool:
        """A condition as programs have them, which the hints satisfy."""
        rng = self.rng
        s, t = rng.sample(range(len(self.bounds)), 2)
        a, b = self.hints[s], self.hints[t]
        factor = rng.choice([1, 2, 3, 4, 6, 8, -1, -2])
        slack = rng.choice([0, 0, 1, 3])
        form = rng.randrange(12)
        if form < 3:  # s <= c, c <= s, s == c
            bounds = [(s, self.constant(a + slack)), (self.constant(a - slack), s), (s, self.constant(a))]
            return self.apply(self.conditions, "eq" if form == 2 else "le", *bounds[form])
        if form < 5:  # s % k == r, (s // k) == q
            name = "mod" if form == 3 else "floor_div"
            wanted = self.constant(INTEGERS[name](a, factor))
            self.apply(self.integers, name, s, self.constant(factor))
            return self.apply(self.conditions, "eq", self.integers[-1], wanted)
        if form == 5:
            return self.apply(self.conditions, "ne" if a != b else "eq", s, t)
        if form == 6:
            return self.apply(self.conditions, "ne", s, self.constant(0 if a != 0 else 1))
        # a combination of both, compared with about its value
        total = INTEGERS[name := rng.choice(["add", "subtract", "multiply", "min", "max"])](a * factor, b)
        if not self.apply(self.integers, "multiply", s, self.constant(factor)):
            return False
        if not self.apply(self.integers, name, self.integers[-1], t):
            return False
        left = self.integers[-1]
        if form < 9:
            return LOW <= total <= HIGH and self.apply(self.conditions, "eq", left, self.constant(total))
        if form == 9:  # s == expression of the others
            third = rng.randrange(len(self.bounds))
            return self.apply(self.conditions, "eq" if total == self.hints[third] else "ne", third, left)
        wanted = total + slack if form == 10 else total - slack
        if not LOW <= wanted <= HIGH:
            return False
        limit = self.constant(wanted)
        return self.apply(self.conditions, "le", *((left, limit) if form == 10 else (limit, left)))

    def assume(self, typical: bool = False) -> str | None:
        """Assumes a random condition."""
        if typical and not self.typical():
            return None
        if not self.conditions:
            return None
        condition = self.conditions[-1] if typical else self.rng.choice(self.conditions)
        answer: str = self.environment.assume(self.expressions[condition], condition)
        if answer != "contradiction":
            self.assumed.append(condition)
        return answer

    def assignment(self) -> list[int]:
        if self.rng.random() < 0.4:  # near the hints
            return [
                hint if self.rng.random() < 0.7 else self.value(*bounds)
                for hint, bounds in zip(self.hints, self.bounds)
            ]
        values = [self.value(*bounds) for bounds in self.bounds]
        if self.rng.random() < 0.3:  # equal ones
            first, second = self.rng.sample(range(len(values)), 2)
            low, high = self.bounds[second]
            if (low is None or values[first] >= low) and (high is None or values[first] <= high):
                values[second] = values[first]
        return values

    def reference(self, symbols: Sequence[int]) -> list[Any]:
        """What Python computes, for every expression."""
        values: list[Any] = []
        for recipe in self.recipes:
            values.append(computed(recipe, values, symbols))
        return values

    def satisfying(self, tries: int, wanted: int) -> Iterable[tuple[list[int], list[Any]]]:
        """Assignments under which everything that was assumed is true."""
        for number in range(tries):
            symbols = self.hints if number == 0 else self.assignment()
            values = self.reference(symbols)
            if all(values[condition] is True for condition in self.assumed):
                yield symbols, values
                wanted -= 1
                if wanted == 0:
                    return

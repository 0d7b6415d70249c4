"""Expressions go to sympy and back, and have the same values there."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

sympy = pytest.importorskip("sympy", reason="torch, and sympy with it, is not installed for this interpreter")
pytest.importorskip("torch", reason="torch is not installed for this interpreter")

from random_expressions import Evaluator, Sample  # noqa: E402
from torch.utils._sympy.functions import (  # noqa: E402
    CeilToInt,
    CleanDiv,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    Identity,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    ModularIndexing,
    PowByNatural,
    PythonMod,
    ToFloat,
    TruncToInt,
)

from alternator import _C  # noqa: E402
from alternator.sympy_bridge import from_sympy, to_sympy  # noqa: E402

s, t = sympy.symbols("s t", integer=True, nonnegative=True)
n = sympy.Symbol("n", integer=True)
x, y = sympy.symbols("x y", real=True)


class Bridge:
    """s, t: sizes; n: any int; x, y: floats."""

    def __init__(self) -> None:
        self.environment = _C.shapes.Environment()
        symbol = self.environment.symbol
        operands = [
            symbol(10, 0),
            symbol(12, 1),
            symbol(-7),
            *(self.environment.float_symbol(hint) for hint in (0.5, 3.0)),
        ]
        self.symbols = dict(zip((s, t, n, x, y), operands))

    def take(self, expression: Any) -> Any:
        return from_sympy(self.environment, expression, self.symbols)

    def give(self, expression: Any) -> Any:
        return to_sympy(self.environment, expression, list(self.symbols))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (2 * s + 1, "2*s0 + 1"),
        (s**2 * t - 3, "s0**2*s1 - 3"),
        (FloorDiv(s, 2), "s0 // 2"),
        (CleanDiv(s, 2), "s0 // 2"),
        (FloorDiv(s + 3, t), "(s0 + 3) // s1"),
        (Mod(s, 8), "s0 % 8"),
        (PythonMod(n, 8), "s2 % 8"),
        (sympy.Mod(n, 8), "s2 % 8"),
        (ModularIndexing(s, 2, 8), "s0 // 2 % 8"),
        (Max(s, t, n), "max(s0, s1, s2)"),
        (Min(s, t), "min(s0, s1)"),
        (sympy.Max(s, t), "max(s0, s1)"),
        (PowByNatural(s, 3), "s0**3"),
        (Identity(s + 1), "s0 + 1"),
        (sympy.Eq(Mod(s, 8), 0), "s0 % 8 == 0"),
        (sympy.Ne(s, t), "s0 != s1"),
        (sympy.Lt(s, t), "s0 < s1"),
        (sympy.Ge(s, 2), "s0 >= 2"),
        (sympy.Gt(s, t), "s1 < s0"),
        (sympy.And(s > 2, sympy.Ne(s, t)), "s0 >= 3 and s0 != s1"),
        (sympy.Or(s > 2, t > 5), "s0 >= 3 or s1 >= 6"),
        (sympy.true, "True"),
        (sympy.Integer(7), "7"),
        (7, "7"),
        (True, "True"),
        (ToFloat(s), "float(s0)"),
        (TruncToInt(x), "int(s3)"),
        (FloorToInt(IntTrueDiv(s, t)), "math.floor(s0 / s1)"),
        (CeilToInt(x), "math.ceil(s3)"),
        (FloatTrueDiv(x, y), "s3 / s4"),
        (sympy.Lt(x, 0.5), "s3 < 0.5"),
        (sympy.Gt(x, y), "s4 < s3"),
        (-x, "-s3"),
    ],
    ids=str,
)
def test_what_shape_env_holds_is_understood(expression: Any, text: str) -> None:
    assert repr(Bridge().take(expression)) == text


@pytest.mark.parametrize(
    "expression",
    [
        s / 2,
        sympy.Rational(1, 2),
        sympy.oo,
        sympy.sqrt(s),
        s**t,
        s**-1,
        sympy.Symbol("unknown"),
        x + y,
        x * y,
        s + x,
        sympy.Lt(s, x),
        sympy.Lt(s, 0.5),
        sympy.Piecewise((s, s > 2), (t, True)),
        sympy.Integer(2**63),
        s * 2**63,
        sympy.sin(x),
        sympy.And(s > 2, sympy.Eq(sympy.sin(x), 0)),
        "s",
        None,
    ],
    ids=str,
)
def test_the_rest_is_none(expression: Any) -> None:
    assert Bridge().take(expression) is None


def test_what_sympy_would_change_is_not_given() -> None:
    bridge = Bridge()
    make, environment = bridge.environment.make, bridge.environment
    integer, real = (bridge.symbols[n], bridge.symbols[x])
    refused = [
        make("floor_div", bridge.symbols[s], integer),  # torch's rules are wrong for negative divisors
        make("mod", bridge.symbols[s], integer),
        make("float_add", real, real),
        make("float_eq", real, real),
        make("not", make("float_lt", real, environment.real(1.0))),
        environment.real(-0.0),
        environment.real(math.inf),
        environment.real(math.nan),
    ]
    for expression in refused:
        assert expression is not None and bridge.give(expression) is None, expression
    assert bridge.give(make("mod", integer, environment.integer(8))) == PythonMod(n, 8)
    assert bridge.give(make("mod", bridge.symbols[s], environment.integer(8))) == Mod(s, 8)


def test_random_expressions_come_back_with_the_same_values() -> None:
    names = sympy.symbols("s0:4", integer=True)
    there = 0
    for seed in range(40):
        sample = Sample(random.Random(seed), hints=seed % 2 == 0, shallow=True)
        for _ in range(40):
            sample.grow()
        evaluator = Evaluator()
        pairs = []
        for position, expression in enumerate(sample.expressions):
            foreign = to_sympy(sample.environment, expression, names)
            if foreign is None:
                continue
            back = from_sympy(sample.environment, foreign, dict(zip(names, sample.expressions)))
            # sympy may have made it so large that it has no form here; what it gave is right all the same.
            if back is not None:
                evaluator.add(back)
            pairs.append((position, foreign, back))
        for _ in range(3):
            symbols = sample.assignment()
            reference, values = sample.reference(symbols), evaluator.values(symbols)
            for position, foreign, back in pairs:
                wanted = reference[position]
                if wanted is None:
                    continue
                there += 1
                context = (sample.expressions[position], foreign, back, symbols)
                assert foreign.xreplace(dict(zip(names, map(sympy.Integer, symbols)))) == wanted, context
                assert back is None or values[evaluator.index[back]] == wanted, context
    assert there > 2000

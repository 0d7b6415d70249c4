"""Expressions over sizes (csrc/shapes) as sympy expressions, as torch's ShapeEnv has them, and back.

Both directions return None for what has no exact counterpart: the caller settles on the value. What sympy computes with floats
is rounded in an order of its own, so sums and products of floats stay on their side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

__all__ = ["from_sympy", "to_sympy"]


class Expression(Protocol):
    """`alternator._C.shapes.Expression`."""

    @property
    def kind(self) -> str: ...
    @property
    def sort(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def hint(self) -> Any: ...
    @property
    def terms(self) -> tuple[tuple[Expression, int], ...]: ...
    def text(self, names: Sequence[str], /) -> str: ...


class Environment(Protocol):
    """`alternator._C.shapes.Environment`."""

    def integer(self, value: int, /) -> Expression | None: ...
    def boolean(self, value: bool, /) -> Expression: ...
    def real(self, value: float, /) -> Expression: ...
    def make(self, kind: str, /, *operands: Expression | None) -> Expression | None: ...
    def less(self, a: Expression | None, b: Expression | None, /) -> Expression | None: ...
    def power(self, base: Expression | None, exponent: int, /) -> Expression | None: ...
    def interval(self, expression: Expression, /) -> tuple[int | None, int | None]: ...


# ------------------------------------------------------------------------------------------------------------------ to sympy


def to_sympy(
    environment: Environment,
    expression: Expression,
    symbols: Sequence[Any] | Mapping[int, Any],
    computed: Mapping[Expression, Any] | None = None,
) -> Any | None:
    """The expression in sympy, where the symbol of number n is `symbols[n]`. `computed`: expressions that are symbols in sympy."""
    return _ToSympy(environment, symbols, computed or {}).translate(expression)


class _ToSympy:
    def __init__(
        self,
        environment: Environment,
        symbols: Sequence[Any] | Mapping[int, Any],
        computed: Mapping[Expression, Any],
    ) -> None:
        self.environment = environment
        self.symbols = symbols
        self.done: dict[Expression, Any | None] = dict(computed)

    def translate(self, expression: Expression) -> Any | None:
        if expression not in self.done:
            self.done[expression] = self.build(expression)
        return self.done[expression]

    def build(self, expression: Expression) -> Any | None:
        import sympy  # type: ignore[import-untyped]
        from torch.utils._sympy import functions

        kind = expression.kind
        if kind in ("symbol", "float_symbol"):
            return self.symbols[expression.value]
        if kind == "integer":
            return sympy.Integer(expression.value)
        if kind == "boolean":
            return sympy.true if expression.value else sympy.false
        if kind == "float":
            # sympy has one zero, and its infinities and NaN have rules of their own.
            value = expression.value
            exact = math.isfinite(value) and (value != 0 or math.copysign(1, value) > 0)
            return sympy.Float(value) if exact else None
        terms: list[tuple[Any, int]] = [(self.translate(operand), factor) for operand, factor in expression.terms]
        operands = [operand for operand, _ in terms]
        if any(operand is None for operand in operands):
            return None
        if kind == "sum":
            return sympy.Add(expression.value, *(factor * operand for operand, factor in terms))
        if kind == "product":
            return sympy.Mul(*(operand**factor for operand, factor in terms))
        if kind in ("floor_div", "mod"):
            return self.division(expression, operands)
        if kind == "not":
            return None  # of floats only: sympy takes the opposite of `<` to be `>=`, and NaN is neither
        if kind in ("float_eq", "float_ne") and operands[0] == operands[1]:
            return None  # a test for NaN, which sympy would decide
        function = {
            "min": functions.Min,
            "max": functions.Max,
            "eq": sympy.Eq,
            "ne": sympy.Ne,
            "le": sympy.Le,
            "and": sympy.And,
            "or": sympy.Or,
            "float_eq": sympy.Eq,
            "float_ne": sympy.Ne,
            "float_lt": sympy.Lt,
            "float_le": sympy.Le,
            "to_float": functions.ToFloat,
            "trunc_to_int": functions.TruncToInt,
            "floor_to_int": functions.FloorToInt,
            "ceil_to_int": functions.CeilToInt,
            "int_true_div": functions.IntTrueDiv,
            "float_div": functions.FloatTrueDiv,
        }.get(kind)
        return None if function is None else function(*operands)

    def division(self, expression: Expression, operands: list[Any]) -> Any | None:
        from torch.utils._sympy import functions

        dividend, divisor = (self.environment.interval(operand)[0] for operand, _ in expression.terms)
        # The rules of torch's FloorDiv and Mod hold for positive divisors.
        if divisor is None or divisor < 1:
            return None
        if expression.kind == "floor_div":
            return functions.FloorDiv(*operands)
        return (functions.Mod if dividend is not None and dividend >= 0 else functions.PythonMod)(*operands)


# ---------------------------------------------------------------------------------------------------------------- from sympy


def from_sympy(environment: Environment, expression: Any, symbols: Mapping[Any, Expression]) -> Expression | None:
    """The expression in `environment`, where a sympy symbol is `symbols[symbol]`."""
    return _FromSympy(environment, symbols).translate(expression)


Translator = Callable[["_FromSympy", Any], Expression | None]


class _FromSympy:
    def __init__(self, environment: Environment, symbols: Mapping[Any, Expression]) -> None:
        self.environment = environment
        self.symbols = symbols
        self.done: dict[Any, Expression | None] = {}

    def translate(self, expression: Any) -> Expression | None:
        # True and 1 are equal in Python, as sympy's numbers and Python's are.
        key = (type(expression), expression)
        if key not in self.done:
            translator = next((found for kind in type(expression).__mro__ if (found := _translators().get(kind))), None)
            self.done[key] = None if translator is None else translator(self, expression)
        return self.done[key]

    def operands(self, expression: Any) -> list[Expression] | None:
        operands = [self.translate(operand) for operand in expression.args]
        known = [operand for operand in operands if operand is not None]
        return known if len(known) == len(operands) else None

    def sorted_operands(self, expression: Any, sort: str) -> list[Expression] | None:
        """The operands, if all of them are of that sort."""
        operands = self.operands(expression)
        return operands if operands is not None and all(operand.sort == sort for operand in operands) else None

    def symbol(self, expression: Any) -> Expression | None:
        return self.symbols.get(expression)

    def integer(self, expression: Any) -> Expression | None:
        return self.environment.integer(int(expression))

    def boolean(self, expression: Any) -> Expression | None:
        return self.environment.boolean(bool(expression))

    def real(self, expression: Any) -> Expression | None:
        value = float(expression)
        # A Float may have more digits than a double.
        return self.environment.real(value) if type(expression)(value) == expression else None

    def negative(self, expression: Any) -> Expression | None:
        """-x, of a float."""
        if len(expression.args) != 2 or expression.args[0] != -1:
            return None
        operand = self.translate(expression.args[1])
        return self.environment.make("float_neg", operand) if operand is not None and operand.sort == "float" else None

    def multiply(self, expression: Any) -> Expression | None:
        operands = self.sorted_operands(expression, "integer")
        return self.negative(expression) if operands is None else self.environment.make("product", *operands)

    def power(self, expression: Any) -> Expression | None:
        base, exponent = self.translate(expression.args[0]), expression.args[1]
        if base is None or base.sort != "integer" or not exponent.is_Integer or exponent < 0:
            return None
        return self.environment.power(base, int(exponent))

    def modular_indexing(self, expression: Any) -> Expression | None:
        operands = self.sorted_operands(expression, "integer")
        if operands is None:
            return None
        base, divisor, modulus = operands
        return self.environment.make("mod", self.environment.make("floor_div", base, divisor), modulus)

    def compare(self, expression: Any, integers: str, floats: str, swapped: bool = False) -> Expression | None:
        operands = self.operands(expression)
        if operands is None:
            return None
        if swapped:
            operands.reverse()
        if all(operand.sort == "integer" for operand in operands):
            return (
                self.environment.less(*operands) if integers == "less" else self.environment.make(integers, *operands)
            )
        # An integer with a float, which Python compares exactly, has no counterpart.
        return self.environment.make(floats, *operands) if all(each.sort == "float" for each in operands) else None


def _same(kind: str, sort: str) -> Translator:
    """An operation that is one of ours."""

    def translate(bridge: _FromSympy, expression: Any) -> Expression | None:
        operands = bridge.sorted_operands(expression, sort)
        return None if operands is None else bridge.environment.make(kind, *operands)

    return translate


def _comparison(integers: str, floats: str, swapped: bool = False) -> Translator:
    return lambda bridge, expression: bridge.compare(expression, integers, floats, swapped)


@functools.cache
def _translators() -> Mapping[type, Translator]:
    import sympy
    from sympy.logic.boolalg import BooleanAtom  # type: ignore[import-untyped]
    from torch.utils._sympy import functions

    return {
        sympy.Symbol: _FromSympy.symbol,
        sympy.Integer: _FromSympy.integer,
        sympy.Float: _FromSympy.real,
        BooleanAtom: _FromSympy.boolean,
        int: _FromSympy.integer,
        bool: _FromSympy.boolean,
        sympy.Add: _same("sum", "integer"),
        sympy.Mul: _FromSympy.multiply,
        sympy.Pow: _FromSympy.power,
        functions.PowByNatural: _FromSympy.power,
        functions.FloorDiv: _same("floor_div", "integer"),
        functions.Mod: _same("mod", "integer"),
        functions.PythonMod: _same("mod", "integer"),
        sympy.Mod: _same("mod", "integer"),
        functions.ModularIndexing: _FromSympy.modular_indexing,
        functions.Max: _same("max", "integer"),
        functions.Min: _same("min", "integer"),
        sympy.Max: _same("max", "integer"),
        sympy.Min: _same("min", "integer"),
        functions.Identity: lambda bridge, expression: bridge.translate(expression.args[0]),
        functions.ToFloat: _same("to_float", "integer"),
        functions.TruncToInt: _same("trunc_to_int", "float"),
        functions.FloorToInt: _same("floor_to_int", "float"),
        functions.CeilToInt: _same("ceil_to_int", "float"),
        functions.IntTrueDiv: _same("int_true_div", "integer"),
        functions.FloatTrueDiv: _same("float_div", "float"),
        sympy.Eq: _comparison("eq", "float_eq"),
        sympy.Ne: _comparison("ne", "float_ne"),
        sympy.Le: _comparison("le", "float_le"),
        sympy.Lt: _comparison("less", "float_lt"),
        sympy.Ge: _comparison("le", "float_le", swapped=True),
        sympy.Gt: _comparison("less", "float_lt", swapped=True),
        sympy.And: _same("and", "boolean"),
        sympy.Or: _same("or", "boolean"),
        sympy.Not: _same("not", "boolean"),
    }

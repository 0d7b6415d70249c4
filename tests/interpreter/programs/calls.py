"""Calls of every shape: nested, keyword, star, closures, decorators, recursion, methods of objects on both sides of an operator."""
from __future__ import annotations

import functools
from typing import Any

from programs import handled, program, trace, where
from programs.exceptions import Manager


def innermost(value: int) -> Any:
    if value == 7:
        raise ValueError("seven")
    places = [where() for _ in range(1)]
    return value * 2 + 1, places[0]


def middle(first: int, *rest: Any, key: int = 3, **others: Any) -> Any:
    try:
        result = innermost(first)
    except ValueError as error:
        result = ("caught", trace(error), innermost(1), handled())
    with Manager([], True) as manager:
        innermost(first + key)
    return result, manager.log, rest, others


@program
def nested() -> Any:
    out: list[Any] = []
    for value in (1, 4, 7):
        out.append(middle(value, 9, z=value))
        try:
            innermost(7)
        except ValueError as error:
            out.append((trace(error), handled()))
    return out, where()


@program
def keywords() -> Any:
    def take(a: Any, b: Any = 2, /, c: Any = 3, *rest: Any, d: Any, e: Any = 5, **others: Any) -> Any:
        return a, b, c, rest, d, e, others, where()

    positional, named = (1, 2, 3, 4), {"d": 0, "z": 9}
    out = [take(1, d=4), take(1, 2, c=3, d=4, q=5), take(*positional, **named), take(*positional, 5, **named, y=1), take(0, *(), d=1, **{})]
    for bad in (lambda: take(), lambda: take(1), lambda: take(1, d=1, **{"d": 2}), lambda: take(*3), lambda: take(**{1: 2})):
        try:
            bad()
        except TypeError as error:
            out.append(str(error))
    return out


@program
def closures() -> Any:
    count = 1

    def increase(by: int = 2, *, more: int = 5) -> int:
        nonlocal count
        count += by + more
        return count

    def adder(left: int) -> Any:
        def add(right: int) -> Any:
            return left + right + count, where()

        return add

    late = [lambda: index for index in range(2)]
    return increase(), adder(10)(5), increase(by=1, more=2), count, [call() for call in late]


@program
def decorated() -> Any:
    def tagged(tag: str) -> Any:
        def decorate(function: Any) -> Any:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                return tag, result

            return wrapper

        return decorate

    @tagged("outer")
    @tagged("inner")
    def subject(value: int, *, extra: int = 0) -> Any:
        return value + extra, where()

    return subject(1), subject(2, extra=3), subject.__name__


@program
def recursion() -> Any:
    def fib(number: int) -> int:
        return number if number < 2 else fib(number - 1) + fib(number - 2)

    def down(number: int) -> Any:
        if number == 0:
            return where()
        try:
            return down(number - 1)
        finally:
            out.append(number)

    out: list[int] = []
    return fib(6), down(4), out


class Vector:
    def __init__(self, value: int) -> None:
        self.value = value

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Vector):
            return NotImplemented
        total = self.value + other.value
        return Vector(total)

    def __radd__(self, other: Any) -> Any:
        return Vector(other + self.value)

    def __iadd__(self, other: Any) -> Any:
        self.value += other
        return self

    def __neg__(self) -> Any:
        return Vector(-self.value)

    def __invert__(self) -> Any:
        return Vector(~self.value)

    def __getitem__(self, index: Any) -> Any:
        doubled = index * 2
        return doubled + self.value

    def __setitem__(self, index: Any, value: Any) -> None:
        self.value = value
        self.value = value + index

    def __delitem__(self, index: Any) -> None:
        self.value = 0
        self.place = where()

    def __lt__(self, other: Any) -> bool:
        return self.value < other.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self.value == other.value

    def __contains__(self, item: int) -> bool:
        found = item == self.value
        return found

    def __bool__(self) -> bool:
        return self.value != 0

    def __len__(self) -> int:
        return abs(self.value)

    def __call__(self, *args: int) -> Any:
        return self.value, args, where()


@program(cannot="COMPARE_OP")
def operator_methods() -> Any:
    left, right = Vector(1), Vector(2)
    total = left + right
    total += 4
    reflected = 5 + total
    total[3] = total[1]
    out = [total.value, reflected.value, total[0], left < right, left == right, left != right, (-left).value, (~left).value]
    out.append(left(1, 2))
    del total[0]
    out.append(total.place)
    return out


@program(cannot="CALL.* of (<class 'type'>|len)")
def converted_answers() -> Any:
    left, nothing = Vector(1), Vector(0)
    out: list[Any] = [1 in left, 2 not in left, not left, not nothing, bool(left), len(Vector(3))]
    if nothing:
        out.append("never")
    while left:
        left.value -= 1
        out.append(left.value)
    return out


@program(cannot="CALL.* of setattr")
def failing_operators() -> Any:
    class Bad:
        def __add__(self, other: Any) -> Any:
            raise ArithmeticError("add", where())

        def __getattr__(self, name: str) -> Any:
            if name == "present":
                return where()
            raise AttributeError(name)

        def __setattr__(self, name: str, value: Any) -> None:
            raise ArithmeticError(name)

    bad, out = Bad(), []
    out.append(bad.present)
    for attempt in (lambda: bad + 1, lambda: bad.absent, lambda: setattr(bad, "q", 1), lambda: bad[0], lambda: -bad, lambda: bad < bad):
        try:
            attempt()
        except Exception as error:
            out.append((repr(error), trace(error)))
    try:
        bad.direct = 1
    except ArithmeticError as error:
        out.append((repr(error), trace(error)))
    return out


@program(cannot="CALL.* of (sorted|<class 'type'>|max|sum|reduce)")
def callbacks() -> Any:
    def key(value: int) -> int:
        local = -value
        return local

    out = [sorted([3, 1, 2], key=key), list(map(key, (1, 2))), sum(value for value in (1, 2)), functools.reduce(lambda a, b: a + b, [1, 2, 3])]
    out.append(max((1, 5, 3), key=key))
    return out

"""Loops, branches, comprehensions, matching, unpacking, operators on plain objects."""
from __future__ import annotations

from typing import Any

from programs import program, where


@program
def loops() -> Any:
    total = 0
    for outer in range(4):
        for inner in (1, 2):
            if inner == 2 and outer == 1:
                continue
            total += outer * inner
        while total > 5:
            total -= 2
            if total == 4:
                break
    else:
        total += 1000
    return total


@program
def branches() -> Any:
    out = []
    for value in (None, 0, 1, "", "x", [], [0]):
        kind = "none" if value is None else "truthy" if value else "falsy"
        out.append((kind, value or "or", value and "and", not value, value is not None))
        if value is None:
            continue
        while value is not None and value:
            value = None
        assert value is None or not value, value
    chain: Any = [1, [2, None]]
    while chain is not None:
        chain = chain[1] if isinstance(chain, list) else None
    while chain is None:
        chain = 0
    low, high = 1, 3
    out.append(low < 2 < high)
    out.append(low < 0 < high)
    return out


@program
def comprehensions() -> Any:
    factor = 3
    scaled = [item * factor for item in range(4) if item != 2]
    by_name = {name: value for name, value in zip("abc", scaled)}
    pairs = {(left, right) for left in range(2) for right in range(2)}
    nested = [[column + row for column in range(2)] for row in range(2)]
    item = "outer"
    shadow = [item for item in (1, 2)]
    return scaled, by_name, sorted(pairs), nested, item, shadow, [(lambda: value)() for value in (1, 2)]


@program
def unpacking() -> Any:
    first, *middle, last = range(5)
    (left, right), *rest = [(1, 2), 3]
    merged = [*middle, *rest, *"ab"]
    table = {**{"a": 1}, "b": 2, **{"a": 3}}
    members = {*merged, first}
    out = [first, middle, last, left, right, rest, merged, table, sorted(map(str, members)), (*middle, first)]
    try:
        one, two = (1, 2, 3)
    except ValueError as error:
        out.append(str(error))
    try:
        one, *two, three, four = (1,)
    except ValueError as error:
        out.append(str(error))
    return out


@program
def operators_on_builtins() -> Any:
    number, text, items = 7, "ab", [1, 2, 3, 4]
    out = [number + 2, number - 2, number * 2, number / 2, number // 2, number % 4, number**2, number << 2, number >> 1, number & 3,
           number | 8, number ^ 5, -number, +number, ~number, not number, number == 7, number != 7, number < 8, number >= 8]
    out.append(1 in items)
    out.append(9 not in items)
    out.append(items is items)
    items[0] += 5
    items[1:3] = [9]
    out += [items[0:2], items[-1], items[::2], text * 2, text[0]]
    del items[0]
    number += 1
    number -= 2
    number *= 3
    number **= 2
    number //= 5
    number %= 50
    number |= 1
    number &= 31
    number ^= 4
    number <<= 2
    number >>= 1
    out += [number, items, f"{number:>5}|{text!r}|{text!s:<4}|{number}|{text!a}", f"{text}"]
    return out


@program
def patterns() -> Any:
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x: int, y: int) -> None:
            self.x, self.y = x, y

    out: list[Any] = []
    subjects = [1, [1, 2, 3], [1, [2]], {"a": 1, "b": 2}, {"c": 0}, "text", 3.5, complex(1, 2), Point(0, 3), Point(4, 5), (), None]
    for subject in subjects:
        match subject:
            case 1 | 2:
                out.append("small")
            case [_, [inner]]:
                out.append(("nested", inner))
            case [head, *tail]:
                out.append((head, tail))
            case {"a": value, **others}:
                out.append((value, others))
            case str(word) if word == "text":
                out.append(word)
            case complex(real=real):
                out.append(real)
            case Point(0, y):
                out.append(("axis", y))
            case Point(x=x, y=y):
                out.append(("point", x, y))
            case None:
                out.append("none")
            case _:
                out.append("other")
    return out


@program
def names_deleted() -> Any:
    value: Any = 1
    holder = {"k": [1, 2]}

    def inner() -> str:
        try:
            return str(captured)
        except NameError as error:
            return str(error)

    captured = 5
    out: list[Any] = [inner()]
    del captured
    out.append(inner())
    del holder["k"][0]
    del value
    try:
        out.append(value)
    except UnboundLocalError as error:
        out.append(str(error))
    return out, holder, where()


def wide_function() -> Any:
    """More names, constants and jumps than one byte of argument can say."""
    lines = ["def wide_body(flag):"]
    lines += [f"    v{index} = {index + 1000}" for index in range(270)]
    lines += ["    for step in range(2):", "        if flag:"]
    lines += [f"            v{index} += step" for index in range(0, 270, 5)]
    lines += ["        else:", "            continue", "        if step > 5: break"]
    lines += ["    return " + " + ".join(f"v{index}" for index in range(0, 270, 30))]
    space: dict[str, Any] = {}
    exec(compile("\n".join(lines), __file__, "exec"), space)
    return space["wide_body"]


WIDE = wide_function()


@program
def wide() -> Any:
    return WIDE(True)

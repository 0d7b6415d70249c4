"""Functions of the standard library that keep caches: what they give is what eager gives, the very object included."""

from __future__ import annotations

import functools
import re
import typing

from harness import T, program

ELEMENT = typing.TypeVar("ELEMENT")
FACTOR = 2
STATE = [1]


@functools.lru_cache
def doubled(n, by=2):
    return n * by


@functools.lru_cache
def scaled(n):
    return n * FACTOR


@functools.lru_cache
def counted(n):
    STATE.append(n)
    return len(STATE)


@program()
def test_cached_function_of_its_arguments(t):
    f = t.compile(lambda x, n: (x * doubled(n), doubled(n, 3), doubled(n, by=4)))
    f(T(2), 3)
    f.hit(T(2), 3)
    f(T(2), 4)
    doubled.cache_clear()
    f.hit(T(2), 3)


@program(one_graph=False)
def test_cached_function_that_reads_a_global(t):
    """The cache keeps what the global was then."""
    scaled.cache_clear()
    t.undo(lambda: globals().update(FACTOR=2))
    f = t.compile(lambda x, n: x * scaled(n))
    f(T(2), 3)
    globals()["FACTOR"] = 5
    f(T(2), 3)
    f(T(2), 4)
    scaled.cache_clear()
    f(T(2), 3)


@program(one_graph=False)
def test_cached_function_that_writes(t):
    counted.cache_clear()
    del STATE[1:]
    t.watch(lambda: list(STATE))
    f = t.compile(lambda x, n: x + counted(n))
    f(T(2), 3)
    f(T(2), 3)
    STATE.append(0)
    f(T(2), 3)
    f(T(2), 5)


@program(one_graph=False)
def test_cached_method_reads_its_object(t):
    class Table:
        def __init__(self, width):
            self.width = width

        @functools.lru_cache  # noqa: B019
        def area(self, n):
            return self.width * n

    table = Table(3)
    f = t.compile(lambda x, n: x * table.area(n))
    f(T(2), 2)
    table.width = 4
    f(T(2), 2)
    f(T(2), 3)


@program()
def test_typing_aliases_leave_the_call(t):
    def fn(x):
        aliases = (
            typing.List[int],  # noqa: UP006
            typing.Optional[ELEMENT],  # noqa: UP007
            typing.Callable[[int], ELEMENT],
            typing.Literal[1, "a"],
            typing.List[ELEMENT][str],  # noqa: UP006
        )
        return x + 1, aliases, [a is b for a, b in zip(aliases, EXPECTED, strict=True)]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


EXPECTED = (
    typing.List[int],  # noqa: UP006
    typing.Optional[ELEMENT],  # noqa: UP007
    typing.Callable[[int], ELEMENT],
    typing.Literal[1, "a"],
    typing.List[ELEMENT][str],  # noqa: UP006
)


@program()
def test_typing_aliases_of_a_class_of_the_call(t):
    def fn(x):
        class Made:
            pass

        of_it = typing.List[Made]  # noqa: UP006
        return x + 1, of_it is typing.List[Made], of_it.__args__[0] is Made  # noqa: UP006

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_patterns_are_one_object(t):
    known = re.compile("a(b+)c")

    def fn(x, text):
        pattern = re.compile("a(b+)c")
        found = pattern.search(text)
        return x * (len(found.group(1)) if found else 0), pattern is known, re.sub("b", "d", text)

    f = t.compile(fn)
    f(T(2), "xabbbc")
    f.hit(T(2), "xabbbc")
    f(T(2), "none")

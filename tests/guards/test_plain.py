"""Plain values: which they are, and when two are equal."""

from __future__ import annotations

import collections
import enum
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guard_trees import guards

DEQUE = "collections.deque" if sys.version_info < (3, 12) else "deque"  # how the type calls itself


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ONE = 1


class Bits(enum.Flag):
    A = 1
    B = 2


class MyInt(int):
    pass


class Loud:
    """Whoever asks it anything hears about it."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("__eq__ was called")

    def __hash__(self) -> int:
        raise AssertionError("__hash__ was called")

    def __repr__(self) -> str:
        raise AssertionError("__repr__ was called")

    def __bool__(self) -> bool:
        raise AssertionError("__bool__ was called")

    def __len__(self) -> int:
        raise AssertionError("__len__ was called")


PLAIN: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: 7,
    lambda: 10**40,
    lambda: -(10**40),
    lambda: 0.5,
    lambda: math.nan,
    lambda: -0.0,
    lambda: complex(1, -0.0),
    lambda: "",
    lambda: "text" * 100,
    lambda: "näïve \udce4",
    lambda: b"bytes" * 50,
    lambda: ...,
    lambda: NotImplemented,
    lambda: range(1, 10**30, 3),
    lambda: slice(1, None, "x"),
    lambda: torch.float32,
    lambda: torch.device("cuda", 1),
    lambda: torch.strided,
    lambda: torch.channels_last,
    lambda: torch.per_tensor_affine,
    lambda: torch.Size([2, 3]),
    lambda: Color.RED,
    lambda: Number.ONE,
    lambda: Bits.A | Bits.B,
]
NOT_PLAIN: list[Callable[[], Any]] = [
    lambda: (1, 2),
    lambda: [],
    lambda: {},
    lambda: {1},
    lambda: frozenset({1}),
    lambda: MyInt(3),
    lambda: slice(Loud(), None),
    lambda: bytearray(b"x"),
    lambda: torch.tensor(1),
    lambda: Color,
    lambda: int,
    lambda: print,
    object,
]


@pytest.mark.parametrize("make", PLAIN)
def test_plain_values_are_plain_and_equal_to_themselves_made_again(make: Callable[[], Any]) -> None:
    assert guards.is_plain(make())
    assert guards.plain_equal(make(), make())


@pytest.mark.parametrize("make", NOT_PLAIN)
def test_other_values_are_not_plain(make: Callable[[], Any]) -> None:
    assert not guards.is_plain(make())


def test_no_two_of_them_are_equal() -> None:
    values = [make() for make in PLAIN]
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            assert guards.plain_equal(a, b) == (i == j), (a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (True, 1),
        (0.0, -0.0),
        (1, 1.0),
        (1, MyInt(1)),
        (1, Number.ONE),
        (complex(0.0, 1), complex(-0.0, 1)),
        ("a", b"a"),
        (range(0), range(1, 1)),
        (slice(0), slice(0, 0)),
        (slice(1), slice(True)),
        ((1, 2), [1, 2]),
        ((1, 2), (1, True)),
        ((0.0,), (-0.0,)),
        ((), None),
        ([1], [1, 2]),
        ({1: 2}, {1: 3}),
        ({1: 2, 3: 4}, {3: 4, 1: 2}),
        ({1: 2}, {True: 2}),
        ({1, 2}, {1, 3}),
        ({1}, frozenset({1})),
        (collections.OrderedDict(a=1), {"a": 1}),
        (torch.Size([1]), (1,)),
        (torch.device("cpu"), torch.device("meta")),
        (torch.device("cuda", 0), torch.device("cuda", 1)),
        (math.nan, -math.nan),
    ],
)
def test_what_is_not_the_same_bits_is_not_equal(a: Any, b: Any) -> None:
    assert not guards.plain_equal(a, b)
    assert not guards.plain_equal(b, a)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (1, (2.5, "x"), None),
        lambda: [1, [2, [3]]],
        lambda: {"a": (1,), "b": {"c": 2}},
        lambda: {1, 2, 3},
        lambda: frozenset({"a", "b"}),
        lambda: collections.OrderedDict(a=1, b=2),
    ],
)
def test_containers_of_plain_values_are_compared_deeply(make: Callable[[], Any]) -> None:
    assert guards.plain_equal(make(), make())


def test_the_order_of_an_ordered_dict_counts() -> None:
    a, b = collections.OrderedDict(a=1, b=2), collections.OrderedDict(a=1, b=2)
    b.move_to_end("a")
    assert not guards.plain_equal(a, b)
    a.move_to_end("a")
    assert guards.plain_equal(a, b)


def test_equal_sets_that_iterate_differently_are_not_equal() -> None:
    a, b = {8, 0}, {0, 8}  # the same slot: who comes first stays first
    assert a == b
    assert (list(a) == list(b)) == guards.plain_equal(a, b)
    assert list(a) != list(b)


def test_nobody_is_asked() -> None:
    x, y = Loud(), Loud()
    assert guards.plain_equal(x, x)
    assert not guards.plain_equal(x, y)
    assert guards.plain_equal((1, x), (1, x))
    assert not guards.plain_equal([x], [y])
    assert not guards.is_plain(x)
    assert guards.show(x) == "<Loud object>"
    assert guards.show([x, 1]) == "[<Loud object>, 1]"


def test_values_nested_without_end_are_equal_only_to_themselves() -> None:
    a: list[Any] = []
    a.append(a)
    b: list[Any] = []
    b.append(b)
    assert guards.plain_equal(a, a)
    assert not guards.plain_equal(a, b)
    assert guards.show(a).startswith("[[")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        ("a", "'a'"),
        (Color.RED, "Color.RED"),
        (torch.float32, "torch.float32"),
        (Loud, "Loud"),
        (int, "int"),
        (b"x" * 1000, "a bytes of length 1000"),
        ((1,), "(1,)"),
        ({"a": [1, 2]}, "{'a': [1, 2]}"),
        (math, "the module math"),
        (print, "the builtin print"),
        (collections.deque([1]), f"a {DEQUE} of length 1"),
        (test_nobody_is_asked, "the function test_nobody_is_asked"),
    ],
)
def test_show(value: Any, text: str) -> None:
    assert guards.show(value) == text


def test_show_is_short() -> None:
    assert guards.show(10**5000) == "a large int"
    assert len(guards.show(list(range(100_000)))) < 100
    assert len(guards.show("ä" * 100_000)) < 200
    assert guards.show("\ud800") == r"'\ud800'"

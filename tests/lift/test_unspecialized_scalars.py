"""Numbers that are another one each time: after some entries they are left to the instructions that use them."""

from __future__ import annotations

import array
import bisect
import functools
import itertools
import math
import operator
import time
from typing import Any

import pytest
import torch
from harness import REGISTRY, T, add_row, check, program
from trace_support import check_loop, in_child

import alternator

STEP = 0


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.weight + self.calls


def counting_down(x: Any) -> Any:
    i = 20
    while i > 0:
        x = torch.sin(x)
        i -= 1
        time.sleep(0)
    return x, i


def reading_the_index(x: Any) -> Any:
    for i in range(20):
        x = torch.sin(x) + i
        time.sleep(0)
    return x


def counting_up(x: Any) -> Any:
    steps = 0
    for _ in range(20):
        x = torch.sin(x)
        steps += 1
        time.sleep(0)
    return x * steps, steps


def until_it_is_small(x: Any) -> Any:
    step = 0
    while True:
        x = torch.sin(x)
        step += 1
        if x.sum() < 0.5 or step > 30:
            return x, step


def with_a_rate(x: Any) -> Any:
    rate = 1.0
    for _ in range(20):
        x = x - rate * torch.cos(x)
        rate *= 0.9
        time.sleep(0)
    return x, rate


def in_a_cell(x: Any) -> Any:
    n = 0

    def once(y: Any) -> Any:
        nonlocal n
        n += 1
        return torch.sin(y)

    for _ in range(20):
        x = once(x)
        time.sleep(0)
    return x, n


def numbering(x: Any) -> Any:
    for i, y in enumerate([x + k for k in range(20)]):
        x = torch.sin(x) + y
        time.sleep(0)
    return x, i


def using_the_numbers(x: Any) -> Any:
    total = 0
    for i, (name, y) in enumerate(dict.fromkeys("abcdefghijkl", x).items()):
        x = torch.sin(x) + y
        total += i
        time.sleep(0)
    return x, total, i, name


def once_more(x: Any) -> Any:
    y = torch.sin(x)
    time.sleep(0)
    return y + 1


def appending(x: Any) -> Any:
    made = []
    for _ in range(20):
        made.append(once_more(x))
    return sum(made), len(made)


def in_a_comprehension(x: Any) -> Any:
    made = [once_more(x) for _ in range(20)]
    return sum(made), len(made)


LOOPS = [
    counting_down,
    reading_the_index,
    counting_up,
    until_it_is_small,
    with_a_rate,
    in_a_cell,
    numbering,
    using_the_numbers,
    appending,
    in_a_comprehension,
]


@pytest.mark.parametrize("fn", LOOPS, ids=lambda fn: fn.__name__)
def test_a_loop_that_counts_makes_few_graphs(fn: Any) -> None:
    check_loop(fn, 8)


@program(one_graph=False)
def test_a_tuple_that_is_taken_apart(t):
    """What is not read of it is not guarded; what is, is. Given back, it is the same object."""
    kept = []
    t.watch(lambda: list(kept))

    def fn(x, pair, other):
        number, thing = pair
        kept.append(pair)
        if thing is other:
            return x * 2, thing, number
        thing.append(x + 1)
        return x, pair, thing, number

    f = t.compile(fn)
    for n in range(12):
        shared = [n]
        f(T(3), (1000 + n, shared), shared)
        f(T(3), (n, [n]), shared)
        f(T(3), (2.5, [n]), None)
    alone = t.compile(lambda x, pair: [x + 1, *(lambda a, b: (b, b))(*pair)])
    alone(T(3), (1, 2))
    alone(T(3), [1, 2])
    apart = t.compile(lambda x, pair: [(x + a, b) for a, b in (pair,)])
    apart(T(3), (1, "text"))
    apart(T(3), (1, "text"))
    apart(T(3), (1, None))
    apart(T(3), (1, 2, 3))  # too many values


@program(one_graph=False)
def test_a_tuple_with_a_changing_number_as_a_whole(t):
    def fn(x, pair):
        number, name = pair
        y = x + 1
        return y, {pair: 1}, pair == (3, "a"), f"{pair}", hash(pair) == hash((number, name)), "%d %s" % pair

    f = t.compile(fn)
    for n in range(10):
        f(T(3), (n, "a"))


@program(one_graph=False)
def test_a_number_given_to_the_function(t):
    f = t.compile(lambda x, n: (x * n, n, [n], n + 1))
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0):
        f(T(3), n)


@program(one_graph=False)
def test_its_class_is_guarded(t):
    f = t.compile(lambda x, n: (x + 1, n, type(n) is int, isinstance(n, int)))
    for n in (1, 2, 3, 4, 5, 6, 7):
        f(T(3), n)
    f(T(3), 7.5)
    f(T(3), True)
    f(T(3), "text")
    f(T(3), None)
    f(T(3), 8)


@program(one_graph=False)
def test_it_is_only_kept(t):
    kept = []
    t.watch(lambda: list(kept))

    def fn(x, n):
        kept.append(n)
        return {"n": n, "x": x + 1}

    f = t.compile(fn)
    for n in range(12):
        f(T(3), 1000 + n)


@program(one_graph=False)
def test_it_decides(t):
    def fn(x, n):
        y = x + 1
        if n > 6:
            return y * 2
        return [y, n] if n % 2 else {n: y}

    f = t.compile(fn)
    for n in range(12):
        f(T(3), n)


@program(one_graph=False)
def test_it_is_an_index_and_a_text(t):
    def fn(x, n):
        y = torch.sin(x)
        return y[n], f"{n:03}", range(n), [10, 20, 30, 40][n % 4], (1, 2) * n, n == n, n is n

    f = t.compile(fn)
    for n in range(9):
        f(T(9), n)


@program(one_graph=False)
def test_a_module_that_counts(t):
    net = Counting()
    t.watch(lambda: net.calls)
    f = t.compile(net)
    for s in range(12):
        f(T(3, s=s))
    net.calls = 2.5
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_a_global_that_counts(t):
    global STEP
    STEP = 0
    t.watch(lambda: STEP)

    def fn(x):
        global STEP
        STEP += 1
        return x * STEP

    f = t.compile(fn)
    for s in range(12):
        f(T(3, s=s))


class Standing:
    """For a number, in whatever native code asks for one."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number

    __len__ = __int__ = __hash__ = __index__

    def __bool__(self):
        return self.number > 3

    def __float__(self):
        return self.number + 0.5


@program(one_graph=False)
def test_through_special_methods(t):
    standing = Standing(0)

    def fn(x):
        listed = [10, 20, 30, 40, 50, 60, 70, 80, 90][standing]
        return (
            torch.sin(x),
            listed,
            list(range(standing)),
            len(standing),
            int(standing),
            "yes" if standing else "no",
            {standing: 1},
        )

    f = t.compile(fn)
    for n in range(9):
        standing.number = n
        f(T(3))


class Giving:
    """Gives a number to whatever native code asks for one."""

    def __init__(self, number):
        self.number = number

    def give(self, *_):
        return self.number

    def __iter__(self):
        yield self.number
        yield 2
        yield 2.5


GIVEN = {
    "fsum of a map": lambda one: math.fsum(map(Giving.give, [one])),
    "fsum of a generator": lambda one: math.fsum(each for each in one),
    "fsum of an object": math.fsum,
    "product": lambda one: math.prod(one, start=0.5),
    "sum": sum,
    "sum from a float on": lambda one: sum(one, 0.5),
    "array": lambda one: array.array("d", one).tolist(),
    "key of a sort": lambda one: sorted([1, 2.5, 3], key=lambda v: one.number if v == 1 else v),
    "key of the largest": lambda one: max([1, 2.5, 3], key=lambda v: one.number if v == 1 else v),
    "tuples as keys": lambda one: sorted([1, 2.5, 3], key=lambda v: (0, one.number if v == 1 else v)),
    "smallest": min,
    "bisect": lambda one: bisect.bisect_left([1, 4, 7], 4.5, key=lambda v: one.number + v if v == 4 else v),
    "reduce": lambda one: functools.reduce(one.give, [1, 2, 3]),
    "operators of a reduction": lambda one: functools.reduce(operator.add, one, 0.5),
    "accumulate": lambda one: list(itertools.accumulate([0.5, 1, 2], lambda a, b: b + one.number)),
    "count": lambda one: operator.countOf(one, 2.5),
    "moved": lambda one: [*one, tuple(one), list(zip(one, one)), dict(a=one.give())],
}


def giving(use):
    def script(t):
        whole, half = Giving(0), Giving(0.5)

        def fn(x):
            return torch.sin(x), use(whole), use(half)

        f = t.compile(fn)
        for n in range(9):
            whole.number, half.number = n, n + 0.5
            f(T(3))

    return script


GIVEN_NAMES = [
    add_row(__name__, "test_given_to_native_code", name, giving(use), one_graph=False) for name, use in GIVEN.items()
]


@pytest.mark.parametrize("name", GIVEN_NAMES, ids=list(GIVEN))
def test_given_to_native_code(name):
    """By a callback, a generator, an element: the number comes into the trace while the native code is at work."""
    check(REGISTRY[name])


@program(one_graph=False)
def test_two_places_with_one_number(t):
    f = t.compile(lambda x, a, b: (x + 1, a is b, a == b, a, b))
    for n in range(300, 308):
        f(T(3), n, n)
    f(T(3), 5, 5)
    f(T(3), 5, 6)


@program(one_graph=False)
def test_gradients(t):
    def fn(x, n):
        return (torch.sin(x) * n).sum() / (n + 1)

    f = t.compile(fn)
    for n in range(9):
        x = T(3).requires_grad_()
        f(x, n).backward()
        t.watch(lambda x=x: x.grad)


@in_child
def test_a_whole_graph_keeps_its_numbers(front: Any) -> None:
    alternator.reset()
    compiled = alternator.compile(lambda x, n: x * n, backend="eager", fullgraph=True)
    for n in range(8):
        assert torch.equal(compiled(T(3), n), T(3) * n)
    assert alternator.counters()["graphs"] == 2  # a number that differs is a symbol


@in_child
def test_where_a_break_is_an_error_numbers_are_kept(front: Any) -> None:
    alternator.reset()

    def fn(x: Any, n: int) -> Any:
        with alternator.error_on_graph_break(True):
            return x * n

    compiled = alternator.compile(fn, backend="eager")
    for n in range(8):
        assert torch.equal(compiled(T(3), n), T(3) * n)


@in_child
def test_numbers_of_any_size(front: Any) -> None:
    alternator.reset()
    # Nobody looks at it; a number that is read is kept until the last trace, which is for all of them.
    for function, traces in ((lambda x, n: (x + 1, n), 1), (lambda x, n: (x + 1, {"n": n}["n"]), 4)):
        alternator.reset()
        compiled = alternator.compile(function, backend="eager")
        for n in (1, 2, 3, 4, 5, 6, 2**63, -(2**70), 0):
            x, found = compiled(T(3), n)
            assert torch.equal(x, T(3) + 1) and found is n
        assert alternator.counters()["traces"] == traces

    compiled = alternator.compile(lambda x, n: x * n, backend="eager")
    for n in (1, 2, 3, 4, 5, 6):
        compiled(T(3), n)
    for n in (2**64, -(2**70)):
        with pytest.raises((OverflowError, RuntimeError)) as wanted:
            T(3) * n
        with pytest.raises(wanted.type) as found:
            compiled(T(3), n)
        assert str(found.value) == str(wanted.value)

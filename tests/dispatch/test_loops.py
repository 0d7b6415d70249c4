"""Loops with a graph break in their body: the iterator is a pre-existing object behind the break, and is advanced there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from harness import REGISTRY, T, add_row, check, forked, program
from torch import nn

import alternator

LAYERS = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))
TABLE = {f"layer{i}": layer for i, layer in enumerate(LAYERS)}

# What a loop iterates over; `rows` is a list of five modules. The value that a step uses is the last one of a tuple.
ITERABLES: dict[str, Callable[[Any], Any]] = {
    "a list": lambda rows: rows,
    "a tuple": tuple,
    "a ModuleList": lambda rows: LAYERS,
    "a range": lambda rows: range(5),
    "a range by steps": lambda rows: range(9, -1, -2),
    "a large range": lambda rows: range(1 << 70, (1 << 70) + 5),
    "enumerate": enumerate,
    "enumerate from 3": lambda rows: enumerate(tuple(rows), 3),
    "zip": lambda rows: zip(range(5), rows),
    "zip of zips": lambda rows: zip(enumerate("abcde"), zip(rows, rows)),
    "strict zip": lambda rows: zip(range(5), rows, strict=True),
    "reversed": reversed,
    "reversed tuple": lambda rows: reversed(tuple(rows)),
    "reversed range": lambda rows: reversed(range(5)),
    "keys": lambda rows: TABLE,
    "values": lambda rows: TABLE.values(),
    "items": lambda rows: TABLE.items(),
    "a string": lambda rows: "abcde",
    "a wide string": lambda rows: "abcd\u1234",
    "bytes": lambda rows: b"abcde",
    "islice": lambda rows: itertools.islice(rows + rows, 1, 10, 2),
    "chain": lambda rows: itertools.chain(rows[:2], tuple(rows[2:]), ()),
    "repeat": lambda rows: itertools.repeat(rows[0], 5),
    "count": lambda rows: zip(itertools.count(2, 3), rows),
    "a set": lambda rows: {1, 2, 3, 4, 5},
}


def used(x: torch.Tensor, value: Any) -> torch.Tensor:
    while type(value) is tuple:
        value = value[-1]
    if isinstance(value, nn.Module):
        return value(x)
    return x * (len(value) if isinstance(value, str) else value % 7)


def looping(make: Callable[[Any], Any]) -> Callable[..., Any]:
    def fn(x: torch.Tensor, seen: list[Any] | None = None) -> torch.Tensor:
        rows = list(LAYERS)
        for value in make(rows):
            x = used(x, value)
            if seen is not None:
                seen.append(value if not isinstance(value, nn.Module) else 0)
            alternator.graph_break()
            x = x.relu() + 1
        else:
            x = x - 2
        return x

    return fn


def script(make: Callable[[Any], Any]) -> Callable[[Any], None]:
    def run(t: Any) -> None:
        f = t.compile(looping(make))
        for s in range(3):
            f(T(2, 4, s=s), [])

    run.__module__ = __name__
    return run


@pytest.mark.parametrize(
    "name", [add_row(__name__, "test_results", name, script(make), one_graph=False) for name, make in ITERABLES.items()]
)
def test_results(name: str) -> None:
    check(REGISTRY[name])


# Strings, and ints beyond 64 bits, that are read are constants, or breaks of their own; an iterator over a set cannot be reconstructed.
OTHER_BREAKS = ("a large range", "keys", "items", "a string", "a wide string", "a set")


@pytest.mark.parametrize("name", [name for name in ITERABLES if name not in OTHER_BREAKS])
def test_one_break_an_iteration(name: str) -> None:
    """Five iterations with a break in each are six calls of graphs: what is behind a break and before the next is one."""
    assert forked(lambda: graph_calls(looping(ITERABLES[name]))) == 6


def test_one_break_an_iteration_over_items() -> None:
    """A name that the loop assigns and does not read is no guard."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for _, layer in TABLE.items():
            x = layer(x)
            time.sleep(0)
        return x

    assert forked(lambda: graph_calls(fn)) == 5


def graph_calls(fn: Callable[..., Any]) -> int:
    calls: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return lambda *arguments: (calls.append(1), graph(*arguments))[1]

    f = alternator.compile(fn, backend=backend)
    for _ in range(8):  # numbers become symbols
        f(T(2, 4))
    calls.clear()
    f(T(2, 4))
    return len(calls)


@program(one_graph=False)
def test_the_container_changes_under_the_loop(t):
    def fn(x, rows, change):
        seen = []
        for row in rows:
            x = x * row
            seen.append(row)
            alternator.graph_break()
            change(rows, row)
            x = x + 1
        return x, seen, rows

    def append(rows, row):
        if row == 2.0:
            rows.append(9.0)

    def remove(rows, row):
        if row == 2.0:
            rows.remove(1.0)

    def clear(rows, row):
        if row == 3.0:
            rows.clear()

    def replace(rows, row):
        rows[-1] = rows[-1] + row

    def nothing(rows, row):
        pass

    f = t.compile(fn)
    for change in (nothing, append, remove, clear, replace, nothing, append):
        f(T(2), [1.0, 2.0, 3.0, 4.0], change)


@program(one_graph=False)
def test_a_dict_changes_under_the_loop(t):
    def fn(x, table, name):
        try:
            for key, value in table.items():
                x = x * value
                alternator.graph_break()
                if key == name:
                    table[name + "'"] = 1.0
                x = x + 1
        except RuntimeError as error:
            return x, str(error), table
        return x, None, table

    f = t.compile(fn)
    for name in ("z", "a", "b", "c", "z", "a"):
        f(T(2), {"a": 2.0, "b": 3.0, "c": 4.0}, name)


@program(one_graph=False)
def test_iterators_that_share_their_parts(t):
    def pairs(x, rows):
        it = iter(rows)
        for a, b in zip(it, it):
            x = x * a + b
            alternator.graph_break()
            x = x + 1
        return x, list(it)

    def numbered(x, rows):
        it = iter(rows)
        for i, a in enumerate(it):
            x = x * a + i
            alternator.graph_break()
            x = x + next(it, 0.5)
        return x, list(it)

    def twice(x, rows):
        it = iter(rows)
        for a in it:
            x = x * a
            alternator.graph_break()
            for b in it:
                x = x - b
                break
        return x, list(it)

    for fn in (pairs, numbered, twice):
        f = t.compile(fn)
        for rows in ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [5.0, 2.0, 3.0], [], [1.0]):
            f(T(2), rows)
            f(T(2), tuple(rows))


@program(one_graph=False)
def test_where_the_loop_ends(t):
    def fn(x, rows, last):
        it = iter(rows)
        for i, row in enumerate(it):
            if row == last:
                break
            if i == 1:
                continue
            x = x * row
            alternator.graph_break()
        else:
            x = -x
        return x, i, it

    f = t.compile(fn)
    for last in (9.0, 2.0, 3.0, 9.0, 1.0):
        for rows in ([1.0, 2.0, 3.0], (1.0, 2.0, 3.0, 4.0)):
            f(T(2), rows, last)


@program(one_graph=False)
def test_nested_loops(t):
    def fn(x, rows, columns):
        for i, row in enumerate(rows):
            for column in zip(columns, range(3)):
                x = x * row + column[0]
                alternator.graph_break()
                x = x - column[1]
            x = x + i
        return x

    f = t.compile(fn)
    for _ in range(2):
        f(T(2), [1.0, 2.0, 3.0], (0.5, 1.5))
        f(T(2), [1.0, 2.0], (0.5, 1.5, 2.5, 3.5))
        f(T(2), [], (0.5,))
        f(T(2), [1.0], ())


@program(one_graph=False)
def test_lengths_that_differ(t):
    """The rest of a loop without further breaks is unrolled; from some lengths on it is not."""

    def fn(x, rows):
        for i, row in enumerate(rows):
            if i == 0:
                alternator.graph_break()
            x = x * row + 1
        return x

    f = t.compile(fn)
    for n in range(12):
        f(T(2), [0.5] * n)


@program(one_graph=False)
def test_gradients_through_a_loop_with_breaks(t):
    layers = [nn.Linear(4, 4) for _ in range(3)]

    def fn(x):
        for layer in layers:
            x = layer(x)
            alternator.graph_break()
            x = x.tanh()
        return x.sum()

    f = t.compile(fn)
    for s in range(3):
        x = T(2, 4, s=s).requires_grad_()
        f(x).backward()
        t.note((x.grad, [p.grad for layer in layers for p in layer.parameters()]))


@program(one_graph=False)
def test_iterators_of_the_caller(t):
    ids = itertools.count(3)

    def fn(x, it):
        total = x * next(ids)
        for value in it:
            total = total + value
            if value == 2:
                break
        return total, next(it, None)

    f = t.compile(fn)
    t.watch(lambda: repr(ids))
    for make in (list, tuple, lambda rows: zip(rows), lambda rows: dict.fromkeys(rows), list):
        it = iter(make([1, 2, 3, 4]))
        if not isinstance(it, zip):
            f(T(2), it)
            t.note(list(it))
    f(T(2), iter([]))
    f(T(2), (n for n in [1, 2, 3]))


@program(one_graph=False)
def test_tensors_of_a_loop(t):
    """Batches of other sizes, written to behind the break."""

    def fn(batches, weight):
        total = 0.0
        for number, batch in enumerate(batches):
            y = batch @ weight
            alternator.graph_break()
            batch.mul_(2)
            total = total + y.sum() * number
        return total

    f = t.compile(fn)
    for sizes in ((2, 3, 4), (2, 3, 4, 5, 6), (1, 7), ()):
        f([T(n, 4, s=n) for n in sizes], T(4, 2))


@program(one_graph=False)
def test_the_users_own_iterators(t):
    class Steps:
        def __init__(self, n: int) -> None:
            self.n = n

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            self.n -= 1
            if self.n < 0:
                raise StopIteration
            return self.n

    class Rows(list):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            return reversed(self)

    def fn(x, rows):
        for i, row in enumerate(rows):
            x = x * (row + 1) + i
            time.sleep(0)
            x = x + 1
        return x, rows

    f = t.compile(fn)
    for make in (lambda: Steps(3), lambda: Rows([1, 2, 3]), lambda: Rows([4, 2]), lambda: map(abs, [-1, -2])):
        f(T(2), make() if not isinstance(make(), map) else list(make()))
        f(T(2), make())

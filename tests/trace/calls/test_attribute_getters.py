"""Native functions that read objects by themselves (operator.attrgetter, methodcaller, getattr), called by native code."""

from __future__ import annotations

import functools
import itertools
import operator

import torch
from harness import T, program
from torch import nn


class Row:
    def __init__(self, value, rank):
        self.value, self.rank = value, rank

    def scaled(self, by, plus=0):
        return self.value * by + plus

    @property
    def double(self):
        return self.value * 2


def rows(x):
    return [Row(x, 3), Row(x + 1, 3), Row(x + 2, 1)]


@program()
def test_map(t):
    def fn(x):
        values = list(map(operator.attrgetter("value"), rows(x)))
        pairs = list(map(operator.attrgetter("double", "rank"), rows(x)))
        calls = sum(map(operator.methodcaller("scaled", 3, plus=1), rows(x)))
        return values, pairs, calls, list(map(operator.methodcaller("sum", 0), [x, x * 2]))

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))
    f(T(2, 2))


@program()
def test_getattr_and_its_like(t):
    def fn(x):
        values = list(map(getattr, rows(x), ["value", "rank", "double"]))
        known = list(map(hasattr, rows(x), ["value", "size", "rank"]))
        kinds = list(map(isinstance, [x, 3, "a"], [torch.Tensor, str, str]))
        made = rows(x)
        list(map(setattr, made, ["rank"] * 3, [7, 8, 9]))
        pairs = list(itertools.starmap(getattr, [(made[0], "rank"), (made[1], "value")]))
        return values, known, kinds, pairs

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program()
def test_a_path_of_names(t):
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 2)))
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(T(*p.shape))
    f = t.compile(lambda x, path: x @ functools.reduce(getattr, path.split("."), net).T)
    f(T(3), "0.weight")
    f(T(3), "1.0.weight")
    f.hit(T(3, s=1), "0.weight")
    net[0].weight = nn.Parameter(T(3, 3, s=4))
    f(T(3), "0.weight")


@program()
def test_other_iterators(t):
    def fn(x):
        groups = [(k, [r.value for r in g]) for k, g in itertools.groupby(rows(x), key=operator.attrgetter("rank"))]
        others = [len(list(g)) for _, g in itertools.groupby(rows(x), operator.attrgetter("rank"))]
        kept = [r.value for r in filter(operator.attrgetter("rank"), [*rows(x), Row(x, 0)])]
        left = [r.value for r in itertools.filterfalse(operator.attrgetter("rank"), [*rows(x), Row(x, 0)])]
        begun = [r.value for r in itertools.takewhile(operator.attrgetter("rank"), [Row(x, 1), Row(x, 0), Row(x, 1)])]
        rest = [r.value for r in itertools.dropwhile(operator.attrgetter("rank"), [Row(x, 1), Row(x, 0), Row(x, 1)])]
        return groups, others, kept, left, begun, rest, min(rows(x), key=operator.attrgetter("rank")).value

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program()
def test_objects_from_outside(t):
    table = [Row(T(3), 0), Row(T(3, s=1), 2)]
    t.watch(lambda: [(r.value, r.rank) for r in table])
    f = t.compile(lambda x: [r.value * x for r in filter(operator.attrgetter("rank"), table)])
    f(T(3))
    f.hit(T(3, s=1))
    table[0].rank = 5
    f(T(3))
    table.append(Row(T(3, s=2), 1))
    f(T(3))


@program(one_graph=False)
def test_one_that_leaves_the_call(t):
    f = t.compile(lambda x: map(operator.attrgetter("value"), rows(x)))
    for s in range(2):
        made = f.call(T(3, s=s))
        t.note(type(made.__reduce__()[1][0]).__name__)
        t.note(list(made))


@program(one_graph=False)
def test_one_that_is_open_at_a_break(t):
    def fn(x):
        total = 0
        for value in map(operator.attrgetter("value"), rows(x)):
            total = total + (value * 2 if value.sum() > 1 else value)
        return total

    f = t.compile(fn)
    for s in range(4):
        f(T(3, s=s))


@program(one_graph=False)
def test_what_fails(t):
    def fn(x, name):
        try:
            return list(map(operator.attrgetter(name), rows(x)))
        except AttributeError as error:
            return str(error)

    f = t.compile(fn)
    f(T(3), "value")
    f(T(3), "nothing")
    g = t.compile(lambda x, name: [*rows(x)] and sorted(map(getattr, rows(x), [name] * 3)))
    g(T(3), "rank")
    g(T(3), "missing")
    g(T(3), "rank")

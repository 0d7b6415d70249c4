"""Operators on tensors are nodes of their own names; where another class has a say in it, that is heard."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from harness import T, forked, program

import alternator


@program()
def test_all_operators(t):
    def arithmetic(x, y):
        a = [x + y, x - 1, 2 - x, x * 2.5, x / y, 3 / y, x // 2, x % 2, 2**x, x**2, -x, +x, x @ y]
        b = [x < y, x <= 1, x == y, 1 != x, x > 0.5, True >= x]
        return a, b

    def whole_numbers(i, j):
        return i & j, i | 1, i ^ j, ~i, i << 1, j >> 1, 5 & i, 2 | j, 7 ^ i

    f = t.compile(arithmetic)
    g = t.compile(whole_numbers)
    for k in (1.0, 2.0):
        f(T(3, 3) * k, torch.ones(3, 3))
        g(torch.arange(4), torch.arange(4) + 1)


@program()
def test_in_place_on_what_came_from_outside(t):
    def change(x, y, i):
        before = x * 1
        x += 1
        x -= y
        x *= 2
        x /= 4
        x **= 2
        i &= 6
        i |= 1
        i ^= 2
        view = x[0]
        view += 10
        return before, x, view

    f = t.compile(change)
    for _ in range(3):
        f(T(2, 3), torch.ones(2, 3), torch.arange(5))


@program()
def test_in_place_on_a_number(t):
    def count(x):
        total = 0
        for row in x:
            total += row.sum()
        return total

    f = t.compile(count)
    f(T(3, 2))
    f(T(3, 2))


@program()
def test_in_place_by_name_only(t):
    def multiply(x, w):
        kept = x
        x @= w
        return kept, x

    f = t.compile(multiply)
    f(T(3, 3), T(3, 3))
    f(T(3, 3), T(3, 3) * 2)


class Left:
    def __init__(self, by):
        self.by = by

    def __radd__(self, other):
        return other * self.by

    def __add__(self, other):
        return other - self.by

    def __rmatmul__(self, other):
        return "mine"


@program()
def test_a_class_with_a_say_in_it(t):
    def mixed(x, one):
        return one + x, 1 + one

    f = t.compile(mixed)
    one = Left(3)
    f(T(3), one)
    one.by = 4
    f(T(3), one)


class Loud(torch.Tensor):
    def __add__(self, other):
        return super().__add__(other) * 2


@program(one_graph=False)
def test_a_subclass_of_tensor(t):
    f = t.compile(lambda x, y: (x + y, y + x))
    f(T(3).as_subclass(Loud), T(3))
    f(T(3).as_subclass(Loud), T(3))


class Masked(torch.Tensor):
    def __add__(self, other):
        return super().__add__(other) * 2

    def __rsub__(self, other):
        return super().__rsub__(other) * 3

    def sum(self):
        return super().sum() * 10

    def plainly(self, other):
        return super().__add__(other), super().sum(), torch.Tensor.sum(self), super().mul(other).sum()


@program(one_graph=False)
def test_methods_that_a_subclass_overrides(t):
    f = t.compile(lambda x, y: (x.plainly(y), x + y, y + x, y - x, x.sum(), torch.sum(x), torch.Tensor.__add__(x, y)))
    f(T(3).as_subclass(Masked), T(3))
    f(T(3).as_subclass(Masked), T(3))
    f(T(4).as_subclass(Masked), T(4))


@program(one_graph=False)
def test_sizes_that_do_not_fit(t):
    def wrong(x, y):
        try:
            return x + y
        except RuntimeError:
            return x - 1

    f = t.compile(wrong)
    f(T(3), T(4))
    f(T(3), T(3))


@program()
def test_with_gradients(t):
    def loss(w, x):
        y = (x @ w - 1) ** 2 / 3
        return (y * -x[:, :2]).sum()

    w = torch.ones(3, 2, requires_grad=True)
    f = t.compile(loss)
    for _ in range(2):
        result = f(w, T(4, 3))
        t.note(result.requires_grad)


class Index:
    def __init__(self, v):
        self.v = v

    def __index__(self):
        return self.v


class Counting(Index):
    n = 0

    def __index__(self):
        self.n += 1
        return self.v


@program()
def test_objects_that_stand_for_numbers(t):
    i, counting = Index(1), Counting(1)
    t.undo(lambda of=Index.__index__: setattr(Index, "__index__", of))
    t.watch(lambda: (counting.v, counting.n))

    def fn(x):
        return x[i], torch.zeros(i, 2).shape, x.repeat(i, 2), x[counting:], x[(counting,)]

    f = t.compile(fn)
    f(T(4))
    f(T(4))
    i.v = counting.v = 2
    f(T(4))
    Index.__index__ = lambda self: 3
    f(T(4))


class Whole(int):
    pass


class Position:
    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n

    def __rpow__(self, other):
        return "power"

    def __rfloordiv__(self, other):
        return "quotient"


class Row(Position):
    """For torch a sequence, and no number."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (0, 1)[i]


class Backwards(tuple):
    __slots__ = ()

    def __iter__(self):
        return iter([1])


@program(one_graph=False)
def test_slices_from_outside_inside_of_an_index(t):
    def store(x, cut):
        x = x.clone()
        x[0, cut] = 9
        return x

    x = T(3, 4)
    for fn in (
        lambda x, cut: x[:, cut],
        lambda x, cut: x[None, ..., cut],
        lambda x, cut: x[[0], cut],
        lambda x, cut: torch.Tensor.__getitem__(x, (0, cut)),
        store,
    ):
        f = t.compile(fn)
        for cut in (slice(Whole(0), None), slice(Whole(1), None), slice(Position(1), 3), slice(1, 2), slice(Whole(1))):
            f(x, cut)
        place = Position(0)
        cut = slice(place, None)
        f(x, cut)
        place.n = 2
        f(x, cut)


@program(one_graph=False)
def test_objects_that_stand_for_a_number(t):
    """Torch asks them in an index and for a size, and nowhere else."""

    def stored(x, n):
        x = x.clone()
        x[0] = n
        return x

    x = T(3, 4)
    for fn in (
        lambda x, n: x[n],
        lambda x, n: x[n, 1],
        lambda x, n: x[1, n:],
        lambda x, n: x[[n]],
        lambda x, n: x**n,
        lambda x, n: x // n,
        lambda x, n: torch.add(x, n),
        lambda x, n: x.clamp(n),
        lambda x, n: torch.full((2,), n),
        lambda x, n: torch.zeros(n),
        lambda x, n: x.narrow(0, n, 1),
        lambda x, n: x.narrow(n, 0, 1),
        lambda x, n: x.expand(n, 3, 4),
        lambda x, n: torch.nn.functional.softmax(x, n),
        stored,
    ):
        f = t.compile(fn)
        for n in (Position(1), Position(0), Row(1), Whole(1)):
            f(x, n)
    f = t.compile(lambda x, key: x[key])
    for key in ((0, 1), Backwards((0, 1)), torch.Size((0, 1))):
        f(x, key)


@program(one_graph=False)
def test_numbers_that_torch_refuses(t):
    numpy = pytest.importorskip("numpy")
    x = T(4, 2)
    for fn, values in (
        (lambda x, n: x.split(n), (1, numpy.int64(1), numpy.int32(2))),
        (lambda x, n: torch.unravel_index(torch.tensor(3), (n, 4)), (2, numpy.int64(2))),
        (lambda _, n: torch.Tensor(n), (2.5, True, [1.0, 2.0])),
        (lambda _, n: torch.LongTensor(n), (2.5, False, [1, 2])),
        (lambda x, n: x.new(n), (2.5, [1.0])),
    ):
        f = t.compile(fn)
        for n in values:
            f(x, n)


SLOTS: dict[str, Any] = {
    "__getitem__": lambda x: x.__getitem__(0) + 1,
    "__setitem__": lambda x: (x.__setitem__(0, 5), x + 1),
    "__setitem__ of a result": lambda x: ((y := x * 2).__setitem__((0,), x.sum()), y),
    "a slot that is kept": lambda x: (get := x.__getitem__, get(0) + get(1))[1],
    "a slot as an argument": lambda x: list(map(x.__getitem__, (0, 1))),
    "a slot in a partial": lambda x: functools.partial(x.__getitem__, 1)() * 2,
    "__setattr__": lambda x: (x.__setattr__("mark", 3), x + x.mark),
    "__getattribute__": lambda x: (x.__getattribute__("shape"), x + 1),
    "__len__": lambda x: x + x.__len__(),
    "of a shape": lambda x: x + x.shape.__getitem__(0) + x.shape.__len__(),
}


@pytest.mark.parametrize("name", SLOTS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_slots_of_tensors(name: str, backend: str) -> None:
    """Bound to their tensor, and called by name."""

    def check() -> None:
        fn = SLOTS[name]
        compiled = alternator.compile(fn, backend=backend)
        for start in (0, 7):
            x, y = T(3, s=start), T(3, s=start)
            torch.testing.assert_close(compiled(x), fn(y), rtol=0, atol=0)
            assert torch.equal(x, y) and vars(x) == vars(y)

    forked(check)

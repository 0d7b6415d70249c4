"""Tensors of subclasses, and classes with a __torch_function__ of their own: what those do happens once. See also test_torch_function_classes."""

from __future__ import annotations

import pytest
import torch
from harness import REGISTRY, T, add_row, check, program

SEEN: list[str] = []


class Plain(torch.Tensor):
    pass


class Telling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Answering(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(func.__name__)
        if func is torch.Tensor.shape.__get__:
            return (5,)
        return torch.ones(2)


class Holding:
    """No tensor at all."""

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(func.__name__)
        args = [a.tensor if isinstance(a, Holding) else a for a in args]
        return func(*args, **(kwargs or {})) + 1


USES = {
    "operator": lambda x: x + 1,
    "reflected": lambda x: 2 * x,
    "with a tensor": lambda x: torch.ones(3) + x,
    "index": lambda x: x[0],
    "attribute": lambda x: x.shape,
    "method": lambda x: x.relu(),
    "function": lambda x: torch.relu(x),
    "keyword": lambda x: torch.add(input=x, other=1),
    "in a list": lambda x: torch.cat([x, x]),
    "by native code": lambda x: list(map(torch.relu, [x])),
    "sum": lambda x: sum([x, x]),
    "functional": lambda x: torch.nn.functional.softmax(x, dim=0),
}


def uses(make, row):
    def script(t):
        f = t.compile(USES[row])
        t.watch(lambda: list(SEEN))
        SEEN.clear()
        for s in (0, 1):
            f(make(T(3, s=s)))

    return script


MAKERS = {
    "plain": lambda x: x.as_subclass(Plain),
    "telling": lambda x: x.as_subclass(Telling),
    "answering": lambda x: x.as_subclass(Answering),
    "holding": Holding,
}
NO_TENSOR = ("index", "attribute", "method", "in a list")
NAMES = [
    # A keyword that Holding does not look at comes back to it, for ever.
    add_row(__name__, "test_row", f"{kind}, {row}", uses(make, row), one_graph=(kind, row) != ("holding", "keyword"))
    for kind, make in MAKERS.items()
    for row in USES
    if not (kind == "holding" and row in NO_TENSOR)
]


@pytest.mark.parametrize("name", NAMES, ids=[name.partition("[")[2][:-1] for name in NAMES])
def test_row(name):
    check(REGISTRY[name])


@program()
def test_a_subclass_made_inside(t):
    def fn(x):
        y = (x.as_subclass(Plain) + 1).sum()
        return y, type(y) is Plain, y.as_subclass(torch.Tensor)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program()
def test_one_that_tells_made_inside(t):
    t.watch(lambda: list(SEEN))
    SEEN.clear()
    f = t.compile(lambda x: (x + 1).as_subclass(Telling) * 2)
    f(T(3))
    f(T(3))


@program()
def test_a_subclass_that_is_changed_later(t):
    class Mine(torch.Tensor):
        pass

    t.watch(lambda: list(SEEN))
    SEEN.clear()
    f = t.compile(lambda x: x + 1)
    f(T(3).as_subclass(Mine))

    def tells(cls, func, types, args=(), kwargs=None):
        SEEN.append(func.__name__)
        return torch.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs or {})

    Mine.__torch_function__ = classmethod(tells)
    f(T(3).as_subclass(Mine))
    del Mine.__torch_function__
    f(T(3).as_subclass(Mine))

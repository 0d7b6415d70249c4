"""functools.singledispatch: the registry is guarded, the cache is filled as the call would have filled it."""

from __future__ import annotations

import abc
import functools

import torch
from harness import T, program

import alternator


def made():
    """A function of its own for each test."""

    @functools.singledispatch
    def scale(a, x):
        return x * 2

    @scale.register
    def _(a: int, x):
        return x * a

    @scale.register(str)
    def _(a, x):
        return x + len(a)

    return scale


def cache_of(function):
    names = function.dispatch.__code__.co_freevars
    cells = dict(zip(names, function.dispatch.__closure__, strict=True))
    return {cls.__name__: found.__code__.co_firstlineno for cls, found in cells["dispatch_cache"].cell_contents.items()}


@program(graphs=5)
def test_classes(t):
    scale = made()

    def fn(a, x):
        return scale(a, x)

    t.watch(lambda: cache_of(scale))
    f = t.compile(fn, dynamic=False)
    f(2, T(2))
    f.hit(2, T(2))
    f("abc", T(2))
    f(1.5, T(2))
    f(True, T(2))
    f([], T(2))
    f.hit(2, T(2))
    f.hit("abc", T(2))


@program()
def test_it_is_registered_later(t):
    scale = made()

    def fn(a, x):
        return scale(a, x)

    t.watch(lambda: cache_of(scale))
    f = t.compile(fn)
    f(1.5, T(2))
    f.hit(1.5, T(2))
    scale.register(float, lambda a, x: x - a)
    f.miss(1.5, T(2))
    f.hit(1.5, T(2))
    scale.register(object, lambda a, x: x)
    f(None, T(2))


class Base:
    pass


class Derived(Base):
    pass


@program()
def test_classes_of_the_program(t):
    scale = made()
    scale.register(Base, lambda a, x: x * 5)

    def fn(a, x):
        return scale(a, x), scale.dispatch(type(a)) is scale.dispatch(Base)

    t.watch(lambda: cache_of(scale))
    f = t.compile(fn)
    f(Derived(), T(2))
    f.hit(Derived(), T(2))
    scale.register(Derived, lambda a, x: x * 6)
    f.miss(Derived(), T(2))
    f(Base(), T(2))


@program()
def test_tensors(t):
    @functools.singledispatch
    def norm(x):
        return 0

    @norm.register
    def _(x: torch.Tensor):
        return x.norm()

    @norm.register(list)
    @norm.register(tuple)
    def _(xs):
        return sum(norm(x) for x in xs)

    t.watch(lambda: cache_of(norm))
    f = t.compile(lambda x: norm([x, (x + 1, x), 3]))
    f(T(3))
    f.hit(T(3))


@program(graphs=1)
def test_methods(t):
    class Dispatching:
        def __init__(self):
            self.seen = []

        @functools.singledispatchmethod
        def act(self, a, x):
            return x

        @act.register
        def _(self, a: int, x):
            self.seen.append(a)
            return x * a

    one = Dispatching()

    def fn(a, x):
        return one.act(a, x)

    t.watch(lambda: one.seen)
    f = t.compile(fn, dynamic=False)
    for a in (2, 2, "a", 2):
        f(a, T(2))


@program(one_graph=False)
def test_abstract_classes(t):
    class Sized(abc.ABC):
        @abc.abstractmethod
        def size(self):
            return 0

    class Other:
        pass

    scale = made()
    scale.register(Sized, lambda a, x: x * 7)

    def fn(a, x):
        return scale(a, x)

    t.watch(lambda: cache_of(scale))
    f = t.compile(fn)
    f(Other(), T(2))
    f(Other(), T(2))
    Sized.register(Other)
    f(Other(), T(2))
    f(Other(), T(2))
    f(2, T(2))


@program(one_graph=False)
def test_it_cannot_decide(t):
    class One(abc.ABC):  # noqa: B024
        pass

    class Two(abc.ABC):  # noqa: B024
        pass

    class Both:
        pass

    One.register(Both)
    Two.register(Both)
    scale = made()
    scale.register(One, lambda a, x: x)
    scale.register(Two, lambda a, x: x)

    def fn(x):
        try:
            return scale(Both(), x)
        except RuntimeError as error:
            return x + 1, str(error)

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_bases_that_change(t):
    class Left:
        pass

    class Right:
        pass

    class Moving(Left):
        pass

    scale = made()
    scale.register(Left, lambda a, x: x * 3)
    scale.register(Right, lambda a, x: x * 4)

    def fn(a, x):
        return scale(a, x)

    t.watch(lambda: cache_of(scale))
    f = t.compile(fn)
    f(Moving(), T(2))
    f(Moving(), T(2))
    Moving.__bases__ = (Right,)
    f(Moving(), T(2))  # the cache still says Left
    scale._clear_cache()
    f(Moving(), T(2))
    f(Moving(), T(2))


@program(one_graph=False)
def test_registered_in_the_call(t):
    scale = made()

    def fn(a, x):
        y = scale(a, x)
        scale.register(type(a), lambda a, x: x * 9)
        return y, scale(a, x)

    t.watch(lambda: cache_of(scale))
    f = t.compile(fn)
    f(1.5, T(2))
    f(1.5, T(2))


@program(one_graph=False)
def test_made_in_the_call(t):
    def fn(a, x):
        return made()(a, x)

    f = t.compile(fn)
    f(2, T(2))
    f("abc", T(2))


@program(one_graph=False)
def test_breaks_inside(t):
    @functools.singledispatch
    def scale(a, x):
        alternator.graph_break()
        return x * 2

    @scale.register
    def _(a: int, x):
        y = x * a
        alternator.graph_break()
        return y + 1

    t.watch(lambda: cache_of(scale))
    f = t.compile(lambda a, x: scale(a, x + 1) * 2)
    for a in (2, "a", 2, "a"):
        f(a, T(2))

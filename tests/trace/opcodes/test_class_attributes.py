"""Writes to attributes of classes that existed before the call."""

from __future__ import annotations

import torch
from harness import T, program
from torch import nn


@program()
def test_counter_on_the_class(t):
    class Net(nn.Module):
        calls = 0
        names: list[str] = []

        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            Net.calls += 1
            type(self).names.append(f"call {self.calls}")
            return self.lin(x) * self.calls

    t.watch(lambda: (Net.calls, Net.names))
    f = t.compile(Net())
    for _ in range(3):
        f(T(1, 2))
    Net.calls = 0
    f(T(1, 2))


@program()
def test_written_and_read_in_many_ways(t):
    class Base:
        n = 1
        only_base = "b"

        @classmethod
        def bump(cls):
            cls.n += 1
            return cls.n

        def get(self):
            return self.n

    class Derived(Base):
        def get(self):
            return super().n, super().get()

    def fn(x):
        own = Base.bump()
        both = Derived().get(), Derived.n, getattr(Derived(), "n"), Base().n, hasattr(Derived, "late")
        Base.late = x + 1
        Derived.only_base = "d"
        derived = Derived.bump()
        return own, both, Derived().late, Derived.only_base, Base.only_base, derived, Base.n, x * Derived.n

    t.watch(lambda: (Base.__dict__.keys(), Base.n, Derived.__dict__.get("n")))
    f = t.compile(fn)
    f(T(2))
    f(T(2))
    del Derived.n, Base.late
    f(T(2))


@program()
def test_a_subclass_gets_its_own_later(t):
    class Base:
        n = 1

    class Derived(Base):
        pass

    def fn(x):
        Base.n = 5
        return x * Derived.n

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    Derived.n = 7
    f(T(2))
    del Derived.n
    f(T(2))


@program()
def test_functions_and_tensors_as_class_attributes(t):
    class Holder:
        scale = None

        def use(self, x):
            return x

    def tripled(self, x):
        return x * 3

    def fn(x):
        Holder.scale = x.sum()
        Holder.use = tripled
        Holder.fixed = staticmethod(torch.relu)
        one = Holder()
        return one.use(x) * one.scale, one.fixed(x)

    t.watch(lambda: (Holder.scale, Holder.use is tripled))
    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_deleted(t):
    class Box:
        a = 1

    def fn(x):
        had = hasattr(Box, "a")
        if had:
            del Box.a
        return x + 1, had, hasattr(Box, "a"), getattr(Box, "a", None), hasattr(Box(), "a")

    t.watch(lambda: "a" in Box.__dict__)
    f = t.compile(fn)
    f(T(2))
    f(T(2))
    Box.a = 2
    f(T(2))


@program(one_graph=False)
def test_deleted_before_a_base(t):
    class Base:
        a = "base"

    class Box(Base):
        a = "own"

    def fn(x):
        del Box.a
        return Box.a, Box().a, x + 1

    f = t.compile(fn)
    f(T(2))
    Box.a = "again"
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_special_methods_and_descriptors(t):
    class Value:
        def __init__(self, n):
            self._n = n

        def __eq__(self, other):
            return self._n == other._n

        n = property(lambda self: self._n)

    def fn(x, how):
        if how == "eq":
            Value.__eq__ = lambda self, other: False
        if how == "property":
            Value.n = property(lambda self: -self._n)
        if how == "plain over property":
            Value.n = 3
        return Value(1) == Value(1), Value(2).n, x + 1

    f = t.compile(fn)
    f(T(2), "")
    for how in ("eq", "property", "plain over property", ""):
        f(T(2), how)


@program()
def test_metaclass_that_watches(t):
    log = []
    t.watch(lambda: log)

    class Watching(type):
        def __setattr__(cls, name, value):
            log.append((name, value))
            super().__setattr__(name, value)

        def __delattr__(cls, name):
            log.append(name)
            type.__delattr__(cls, name)

    class Box(metaclass=Watching):
        n = 1

    def fn(x):
        Box.n = Box.n + 1
        Box.m = 1
        del Box.m
        type.__setattr__(Box, "quiet", 1)
        return x * Box.n

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_patterns_after_a_write(t):
    class Point:
        __match_args__ = ("x",)
        y = 1

        def __init__(self, x):
            self.x = x

    def fn(x):
        Point.y = 2
        match Point(1):
            case Point(x=1, y=2):
                return x * 2
        return x

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_immutable_types(t):
    def fn(x):
        try:
            int.new = 1
        except TypeError as error:
            return str(error), x
        return x

    f = t.compile(fn)
    f(T(2))


@program()
def test_written_before_an_exception(t):
    class Box:
        n = 0

    def fn(x):
        Box.n += 1
        raise ValueError(Box.n)

    t.watch(lambda: Box.n)
    f = t.compile(fn)
    f(T(2))
    f(T(2))

"""Attributes, descriptors, operators, classes and metaclasses: run, not modeled."""

from __future__ import annotations

import abc
import dataclasses
import sys

import torch
from harness import T, program

import alternator


class Box:
    def __init__(self, value=1):
        self.value = value


# ------------------------------------------------------------------------------------- attributes and descriptors


@program()
def test_properties_and_descriptors(t):
    class Times:
        def __init__(self, k):
            self.k, self.log = k, []

        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, owner):
            return self if obj is None else getattr(obj, self.name, 0) * self.k

        def __set__(self, obj, value):
            self.log.append(value)
            setattr(obj, self.name, value)

        def __delete__(self, obj):
            self.log.append("deleted")
            delattr(obj, self.name)

    class A:
        d = Times(3)

        @property
        def p(self):
            return self.d + 1

        @p.setter
        def p(self, value):
            self.d = value * 2

        @p.deleter
        def p(self):
            del self.d

    def fn(o, x):
        o.d = 4
        y = x + o.d
        o.p = 5
        z = x * o.p
        del o.p
        return y, z, o.d, A.d.k

    f = t.compile(fn)
    f(A(), T(2))
    f.hit(A(), T(2))
    A.__dict__["d"].k = 5
    f(A(), T(2))


@program()
def test_non_data_descriptor_and_instance(t):
    class Once:
        def __init__(self, make):
            self.make = make

        def __get__(self, obj, owner):
            value = obj.__dict__["v"] = self.make(obj)
            return value

    class A:
        v = Once(lambda self: [self.n])

        def __init__(self, n):
            self.n = n

    f = t.compile(lambda o, x: (x + o.v[0], o.v is o.v))
    one = A(2)
    f(one, T(2))
    f(one, T(2))
    f(A(3), T(2))


@program()
def test_getattr_and_getattribute(t):
    class A:
        def __init__(self):
            self.q = 3

        def __getattr__(self, name):
            if name.startswith("dyn_"):
                return int(name[4:])
            raise AttributeError(name)

    class B:
        def __init__(self):
            self.q = 3
            self.asked = []

        def __getattribute__(self, name):
            if name == "w":
                object.__getattribute__(self, "asked").append(name)
                return object.__getattribute__(self, "q") * 2
            return super().__getattribute__(name)

    f = t.compile(lambda a, b, x: (x + a.q + a.dyn_5 + b.w + b.q, hasattr(a, "nope"), getattr(a, "zip", 4)))
    f(A(), B(), T(2))
    f.hit(A(), B(), T(2))


@program()
def test_what_an_attribute_error_is_about(t):
    class Asked:
        def __getattr__(self, name):
            raise AttributeError("none of these", name="chosen") if name == "named" else AttributeError("not " + name)

        @property
        def hidden(self):
            return self._hidden

        @property
        def broken(self):
            raise AttributeError("broken")

    class Meta(type):
        def __getattr__(cls, name):
            raise AttributeError("no class has " + name)

    class Plain(metaclass=Meta):
        pass

    def fn(x, o, stop):
        found = []
        for read in (
            lambda: o.zork,
            lambda: o.named,
            lambda: o.hidden,
            lambda: o.broken,
            lambda: Plain.foo,
            lambda: getattr(o, "bar"),
            lambda: torch.not_there,
        ):
            try:
                read()
            except AttributeError as error:
                found.append((str(error), error.name, error.obj is o, error.obj is None))
        if stop:
            alternator.graph_break()
        return x + 1, found

    f = t.compile(fn)
    f(T(2), Asked(), False)
    f.hit(T(2), Asked(), False)


@program(one_graph=False)
def test_what_an_attribute_error_behind_a_break_is_about(t):
    class Asked:
        def __getattr__(self, name):
            alternator.graph_break()
            raise AttributeError("not " + name)

    class Plain:
        @property
        def broken(self):
            alternator.graph_break()
            raise AttributeError("broken")

    def fn(x, o):
        try:
            return x + o.broken
        except AttributeError as error:
            return x + 1, str(error), error.name, error.obj is o

    f = t.compile(fn)
    # From CPython 3.12 on it depends on how often eager was there before whether the error of a property is named.
    for o in (Asked(), Plain(), Asked()) if sys.version_info < (3, 12) else (Asked(), Asked()):
        f(T(2), o)


@program()
def test_super(t):
    class A:
        def scale(self, x):
            return x * 2

        @classmethod
        def make(cls):
            return cls()

        @property
        def k(self):
            return 5

    class B(A):
        def scale(self, x):
            return super().scale(x) + 1

        @classmethod
        def make(cls):
            made = super().make()
            made.note = "b"
            return made

        @property
        def k(self):
            return super().k + 1

    class C(B):
        def scale(self, x):
            return super(B, self).scale(x) + super().scale(x)

    f = t.compile(lambda o, x: (o.scale(x), o.k, o.make().note))
    f(C(), T(2))
    f.hit(C(), T(2))
    A.scale = lambda self, x: x * 10
    f(C(), T(2))


@program()
def test_multiple_inheritance(t):
    class Root:
        def go(self, x):
            return [x]

    class Left(Root):
        def go(self, x):
            return ["left", *super().go(x + 1)]

    class Right(Root):
        def go(self, x):
            return ["right", *super().go(x * 2)]

    class Both(Left, Right):
        pass

    f = t.compile(lambda o, x: o.go(x))
    f(Both(), T(2))
    f.hit(Both(), T(2))
    f(Left(), T(2))


@program()
def test_operators_of_the_users(t):
    class V:
        def __init__(self, x):
            self.x = x

        def __add__(self, o):
            return V(self.x + (o.x if isinstance(o, V) else o))

        __radd__ = __add__

        def __iadd__(self, o):
            self.x = self.x + o
            return self

        def __getitem__(self, i):
            return self.x[i]

        def __setitem__(self, i, v):
            self.last = (i, v)

        def __contains__(self, v):
            return v == 1

        def __lt__(self, o):
            return True

        def __eq__(self, o):
            return NotImplemented

        __hash__ = object.__hash__

        def __bool__(self):
            return False

        def __neg__(self):
            return V(-self.x)

        def __call__(self, k):
            return self.x * k

        def __matmul__(self, o):
            return V(self.x @ o.x)

    def fn(a, b):
        c = a + b + 1
        d = 2 + c
        d += 3
        d[0] = 1
        return d.x, c[0], 1 in c, a < b, a == b, bool(a), (-a).x, a(3), (a @ b).x, not a, d.last

    f = t.compile(fn)
    f(V(T(2)), V(T(2)))
    f.hit(V(T(2)), V(T(2)))


@program()
def test_tensor_subclass_operators_with_reflected(t):
    class Scalar:
        def __init__(self, n):
            self.n = n

        def __rmul__(self, x):
            return x * self.n

        def __radd__(self, x):
            return ("radd", self.n)

    f = t.compile(lambda x, s: (x * s.n, s.__rmul__(x), 1 + s))
    f(T(2), Scalar(3))
    f.hit(T(2), Scalar(3))
    f(T(2), Scalar(4))


# -------------------------------------------------------------------------------------------- classes and metaclasses


@program()
def test_metaclass_call_and_prepare(t):
    class Meta(type):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.by_meta = cls.__name__
            return made

        @classmethod
        def __prepare__(mcs, name, bases, **kw):
            return {"prepared": kw.get("k", 0)}

        def __new__(mcs, name, bases, space, **kw):
            return super().__new__(mcs, name, bases, space)

        def __init__(cls, name, bases, space, **kw):
            super().__init__(name, bases, space)

        def __len__(cls):
            return 7

        def __contains__(cls, item):
            return item == 3

    class A(metaclass=Meta, k=4):
        def __init__(self, n):
            self.n = n

    def fn(x):
        a = A(2)
        return x * a.n + A.prepared + len(A), a.by_meta, 3 in A

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_instancecheck_and_subclasscheck(t):
    class Meta(type):
        def __instancecheck__(cls, other):
            return hasattr(other, "quack")

        def __subclasscheck__(cls, other):
            return "quack" in vars(other)

    class Duck(metaclass=Meta):
        pass

    class Mallard:
        quack = 1

    f = t.compile(lambda o, x: (isinstance(o, Duck), issubclass(type(o), Duck), x + 1))
    f(Mallard(), T(2))
    f.hit(Mallard(), T(2))
    f(Box(), T(2))


@program()
def test_class_bodies(t):
    def fn(x):
        k = 3

        class A:
            n = k * 2
            items = [i for i in range(3)]

            def scale(self, x):
                return x * self.n * k

            @staticmethod
            def plus(x):
                return x + 1

        @dataclasses.dataclass
        class B:
            a: int
            b: int = 2

        class C(A):
            def scale(self, x):
                return super().scale(x) + 1

        return C().scale(x), A.plus(x), B(1).b, A.__qualname__

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_init_subclass_and_set_name(t):
    def fn(x):
        class Named:
            def __set_name__(self, owner, name):
                self.name = name

        class Base:
            kinds = []

            def __init_subclass__(cls, **kw):
                super().__init_subclass__()
                cls.kinds.append((cls.__name__, kw))

        class Derived(Base, flag=1):
            field = Named()

        return x + len(Base.kinds), Base.kinds, Derived.field.name

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_abstract_classes(t):
    class A(abc.ABC):
        @abc.abstractmethod
        def go(self, x): ...

    class B(A):
        def go(self, x):
            return x + 1

    def fn(x):
        try:
            A()
        except TypeError as error:
            text = str(error)
        return B().go(x), text, isinstance(B(), A)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_new_returning_another(t):
    class Single:
        only = None

        def __new__(cls, n):
            if cls.only is None:
                cls.only = super().__new__(cls)
            return cls.only

        def __init__(self, n):
            self.n = n

    f = t.compile(lambda x: (x + Single(2).n, Single(3) is Single(4), Single.only.n))
    f(T(2))
    f(T(2))


@program()
def test_class_getitem_and_generic(t):
    class G:
        def __class_getitem__(cls, item):
            return (cls.__name__, item)

    f = t.compile(lambda x: (G[3], G["a"], x + 1))
    f(T(2))
    f.hit(T(2))


@program(one_graph=False)
def test_classes_with_the_names_of_others(t):
    """Types are known by what they are, not by what they are called."""

    class EnumType(type):
        pass

    class ABCMeta(type):
        def __instancecheck__(cls, value):
            return hasattr(value, "n")

    class Looks(metaclass=EnumType):
        pass

    class Asked(metaclass=ABCMeta):
        pass

    partial = type("functools.partial", (), {"func": None, "__call__": lambda self, x: x * self.n})

    def fn(x, looks, called):
        return x * looks.n, isinstance(looks, Asked), called(x), looks

    looks, called = Looks(), partial()
    f = t.compile(fn)
    for n in (1, 2, 3):
        looks.n = called.n = n
        f(T(3), looks, called)
    del looks.n
    f(T(3), looks, called)


@program(one_graph=False)
def test_dir_with_a_hook(t):
    """dir() sorts what a __dir__ gives, and wants names."""

    class Named:
        def __init__(self, names):
            self.names = names

        def __dir__(self):
            return self.names

    class Odd:
        __dir__ = staticmethod(lambda: ["z", "b"])

    class Listed(type):
        def __dir__(cls):
            return (name for name in ("q", "c"))

    class OfListed(metaclass=Listed):
        pass

    f = t.compile(lambda x, o: (x + 1, dir(o)))
    for names in (["z", "a"], ("b", "a", "c"), [3, "a"], [2, 1], 5):
        f(T(2), Named(names))
    f(T(2), Odd())
    f(T(2), OfListed)
    f(T(2), OfListed)

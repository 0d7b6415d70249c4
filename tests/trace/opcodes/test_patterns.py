"""Class patterns: over objects from outside and from inside; __match_args__, properties and classes change."""

from __future__ import annotations

from harness import T, program


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class Numbered(Point):
    pass


@program()
def test_objects_from_outside(t):
    def fn(p, x):
        match p:
            case Numbered(0, y=y):
                return x + y
            case Point(a, b) if a == b:
                return x * a
            case Point(x=a):
                return x - a
            case int(n) | float(n):
                return x + n
            case str() as text:
                return x + len(text)
        return x

    f = t.compile(fn)
    for p in (Point(2, 2), Point(1, 2), Numbered(0, 5), Numbered(1, 5), 3, 2.5, "abc", None):
        f(p, T(2))
    f.hit(Point(2, 2), T(2))


@program()
def test_match_args_change(t):
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    def outside(p, x):
        match p:
            case Point(a, b):
                return x + a * 10 + b
            case Point():
                return x

    def inside(x):
        return outside(Point(3, 4), x)

    f, g = t.compile(outside), t.compile(inside)
    p = Point(1, 2)
    f(p, T(2)), g(T(2))
    f.hit(p, T(2))
    Point.__match_args__ = ("y", "x")
    f(p, T(2)), g(T(2))
    Point.__match_args__ = ["x", "y"]
    f(p, T(2)), g(T(2))
    Point.__match_args__ = ("x",)
    f(p, T(2)), g(T(2))
    Point.__match_args__ = ("x", "x")
    f(p, T(2)), g(T(2))
    del Point.__match_args__
    f(p, T(2)), g(T(2))


@program()
def test_attributes_that_are_code(t):
    log = []

    class Lazy:
        __match_args__ = ("a", "b")

        @property
        def a(self):
            log.append("a")
            return 1

        @property
        def b(self):
            log.append("b")
            raise AttributeError("b")

    def fn(p, x):
        match p:
            case Lazy(2, 3):
                return x
            case Lazy(1, 3):
                return x + 1
            case Lazy(1):
                return x + 2

    f = t.compile(fn)
    t.watch(lambda: list(log))
    f(Lazy(), T(2))
    f(Lazy(), T(2))
    Lazy.b = 3
    f(Lazy(), T(2))


@program()
def test_instances_by_hook(t):
    class Meta(type):
        def __instancecheck__(cls, instance):
            return hasattr(instance, "quacks")

    class Duck(metaclass=Meta):
        pass

    def fn(p, x):
        match p:
            case Duck(quacks=n):
                return x + n
            case _:
                return x

    f = t.compile(fn)
    p = Point(1, 2)
    f(p, T(2))
    p.quacks = 5
    f(p, T(2))

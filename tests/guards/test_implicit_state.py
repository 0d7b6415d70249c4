"""Facts that no value shows and that can change all the same: bases, names of classes, what sys.modules has, contents of cells."""

from __future__ import annotations

import codecs
import collections
import copy
import functools
import sys
import types

import torch
from harness import T, program

import alternator

STATE = [1]


@program(one_graph=False)
def test_a_module_with_a_class_of_its_own(t):
    class Module(types.ModuleType):
        k = 2

        @property
        def p(self):
            return STATE[0]

    m = Module("of_its_own")
    f = t.compile(lambda m, x: x * m.k + m.p)
    f(m, T(2))
    Module.k = 3
    f(m, T(2))
    STATE[0] = 4
    f(m, T(2))
    m.k = 9
    f(m, T(2))
    STATE[0] = 1
    g = t.compile(lambda m, x: x * getattr(m, "q", 1))
    g(m, T(2))
    Module.q = 5
    g(m, T(2))
    del Module.q
    g(m, T(2))


@program()
def test_names_and_bases_of_classes(t):
    class First:
        pass

    class Second:
        pass

    class A(First):
        "a text"

    def fn(o, x):
        cls = type(o)
        return (
            x + 1,
            cls.__name__,
            cls.__qualname__,
            cls.__module__,
            cls.__doc__,
            cls.__base__,
            cls.__bases__,
            cls.__mro__,
        )

    f = t.compile(fn)
    f(A(), T(2))
    f.hit(A(), T(2))
    A.__name__ = "B"
    f.miss(A(), T(2))
    A.__qualname__ = "Q"
    f.miss(A(), T(2))
    A.__module__ = "elsewhere"
    f(A(), T(2))
    A.__bases__ = (Second,)
    f(A(), T(2))
    f(3, T(2))


@program()
def test_instance_tests_follow_the_bases(t):
    class First:
        pass

    class Second:
        pass

    class A(First):
        pass

    def fn(o, x):
        return x + 1, isinstance(o, Second), issubclass(A, Second), isinstance(o, (int, Second)), isinstance(o, First)

    f = t.compile(fn)
    f(A(), T(2))
    f.hit(A(), T(2))
    A.__bases__ = (Second,)
    f.miss(A(), T(2))
    A.__bases__ = (First,)
    f(A(), T(2))


@program(graphs=3)
def test_imports_follow_sys_modules(t):
    first, second = types.ModuleType("swapped"), types.ModuleType("swapped")
    first.k, second.k = 2, 3
    sys.modules["swapped"] = first
    t.undo(lambda: sys.modules.pop("swapped", None))

    def fn(x):
        import swapped
        from swapped import k

        return x * swapped.k * k

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    sys.modules["swapped"] = second
    f(T(2))
    second.k = 5
    f(T(2))


@program()
def test_contents_of_cells(t):
    def make():
        n = 1

        def count():
            nonlocal n
            n += 1
            return n

        return count

    def fn(count, x):
        count()
        cell = count.__closure__[0]
        seen = x * cell.cell_contents
        cell.cell_contents = 10
        return seen, count(), cell.cell_contents

    f = t.compile(fn)
    count = make()
    f(count, T(2))
    f(count, T(2))
    f.hit(make(), T(2))


@program(one_graph=False)
def test_fields_of_what_is_lifted_as_it_is(t):
    class A:
        @property
        def p(self):
            "as it was"

    def fn(p, x):
        p.__doc__ = "changed"
        return x + 1

    f = t.compile(fn)
    own = A.__dict__["p"]
    f(own, T(2))
    t.note(own.__doc__)


@program(one_graph=False)
def test_attributes_of_partials(t):
    def fn(p, x):
        before = getattr(p, "tag", 1)
        p.tag = 3
        return x * before * p.tag

    f = t.compile(fn)
    p = functools.partial(len)
    f(p, T(2))
    t.note(vars(p))
    p.tag = 5
    f(p, T(2))
    g = t.compile(lambda p, x: x * getattr(p, "tag", 1))
    g(functools.partial(len), T(2))
    g(p, T(2))
    p.tag = 6
    g(p, T(2))


def add(*numbers, **more):
    return sum(numbers) + sum(more.values())


def partial_with(state):
    """One whose __dict__ came from __setstate__: an empty one counts."""
    made = functools.partial(add)
    made.__setstate__((add, (1,), {"k": 2}, state))
    return made


@program(one_graph=False)
def test_partials_of_partials(t):
    def made(p, x):
        q = functools.partial(p, 3)
        return q(x), q, q.func is p, q.args, q.keywords

    def given(q, x):
        return q(x), type(q.func), len(q.args), q.func

    f, g = t.compile(made), t.compile(given)
    tagged = functools.partial(add, 1)
    tagged.tag = 5
    for p in (functools.partial(add, 1), functools.partial(add, 1), tagged, partial_with({}), partial_with({"a": 1}),
              partial_with(None), functools.partial(add, 1)):  # fmt: skip
        f(p, T(2))
        g(functools.partial(p, 2), T(2))
        g(functools.partial(p, 2, k=4), T(2))
    late = functools.partial(add, 1)
    f.hit(late, T(2))
    late.tag = 1
    f(late, T(2))
    del late.tag
    f(late, T(2))


@program(one_graph=False)
def test_what_a_partial_holds_is_written(t):
    def fn(p, x):
        p.keywords["k"] = p.keywords.get("k", 0) + 1
        return p(x), p.keywords

    f = t.compile(fn)
    p = functools.partial(add, 1)
    for _ in range(3):
        f(p, T(2))
    f(functools.partial(add, 1, k=7), T(2))

    def attributes(p, q, x):
        vars(p)["n"] = len(vars(p))
        return x * p.n, p is q, vars(p) is vars(q), getattr(q, "n", 3), hasattr(q, "other")

    g = t.compile(attributes)
    shared = {"a": 1}
    p, q = partial_with(shared), partial_with(shared)
    for _ in range(2):
        g(p, q, T(2))
    g(p, p, T(2))
    g(partial_with({"a": 1}), partial_with({"n": 2}), T(2))
    g(functools.partial(add), functools.partial(add), T(2))
    t.note([vars(p), vars(q), shared])


@program(one_graph=False)
def test_methods_of_outside_exceptions(t):
    class Mine(Exception):
        pass

    def fn(e, x):
        e.add_note("seen")
        return x + 1, e.args, e.with_traceback(None) is e, getattr(e, "__notes__", None)

    f = t.compile(fn)
    e = Mine(1)
    f(e, T(2))
    f(e, T(2))
    f(Mine(2), T(2))
    g = t.compile(lambda e, x: (x + 1, str(e), repr(e), BaseException.__str__(e)))
    g(e, T(2))
    e.args = (5,)
    g(e, T(2))


@program()
def test_slots_that_are_set_and_deleted(t):
    class Slots:
        __slots__ = ("a", "b")

    def fn(s, x):
        if not hasattr(s, "a"):
            s.a = 1
        s.a += 1
        s.b = x
        result = x * s.a
        del s.b
        return result

    f = t.compile(fn)
    s = Slots()
    f(s, T(2))
    f(s, T(2))
    del s.a
    f.hit(s, T(2))
    s.b = 5
    f(s, T(2))
    f.hit(Slots(), T(2))


@program()
def test_descriptors_set_on_new_objects(t):
    class Field:
        def __init__(self):
            self.log, self.n = [], 2

        def __get__(self, o, cls):
            return self if o is None else o.__dict__["_v"]

        def __set__(self, o, value):
            self.log.append(value)
            self.n += 1
            o.__dict__["_v"] = value * self.n

        def __delete__(self, o):
            self.log.append("deleted")

    class A:
        d = Field()

    field = A.__dict__["d"]

    def fn(x):
        a = A()
        a.d = 5
        result = x * a.d
        del a.d
        return result

    f = t.compile(fn)
    t.watch(lambda: (field.log, field.n))
    f(T(2))
    f(T(2))
    field.n = 10
    f(T(2))


@program(one_graph=False)
def test_special_methods_that_are_objects(t):
    class Add:
        def __init__(self):
            self.n, self.calls = 1, []

        def __call__(self, o):
            self.calls.append(1)
            return self.n

    class Bind:
        def __get__(self, o, cls):
            return lambda k: STATE[0] * k

    class A:
        __add__ = Add()

    class B:
        __add__ = Bind()

    class C:
        __add__ = functools.partialmethod(lambda self, a, b: a * STATE[0], 3)

    class Made:
        __init__ = Bind()

    add = A.__dict__["__add__"]
    f = t.compile(lambda a, x: x * (a + 1))
    t.watch(lambda: add.calls)
    for _ in range(2):
        f(A(), T(2))
        add.n += 1
        for cls in (B, C):
            f(cls(), T(2))
            STATE[0] += 1
    STATE[0] = 1


@program(one_graph=False)
def test_a_literal_that_is_handed_over(t):
    def fn(a, x):
        return x + 1, a is (1, 2), a == (1, 2)  # noqa: F632

    f = t.compile(fn)
    own = next(constant for constant in fn.__code__.co_consts if constant == (1, 2))
    f(own, T(2))
    f(tuple([1, 2]), T(2))
    f(own, T(2))


@program(one_graph=False)
def test_tensor_classes(t):
    class Mine(torch.Tensor):
        k = 2

        @property
        def p(self):
            return STATE[0]

        def scaled(self):
            return self * self.k

        @classmethod
        def of_class(cls):
            return cls.k

    def make():
        return T(2).as_subclass(Mine)

    f = t.compile(lambda x: (x * x.k, x * x.p, x.scaled(), x.of_class()))
    f(make())
    Mine.k = 3
    f(make())
    x = make()
    x.k = 7
    f(x)
    STATE[0] = 5
    f(make())
    STATE[0] = 1

    class Asks(torch.Tensor):
        def __getattr__(self, name):
            return STATE[0]

    g = t.compile(lambda x: x * x.anything)
    g(T(2).as_subclass(Asks))
    STATE[0] = 2
    g(T(2).as_subclass(Asks))
    STATE[0] = 1


@program(one_graph=False)
def test_how_many_digits_a_number_may_have(t):
    def fn(n, x):
        try:
            return x + len(str(10**n))
        except ValueError as error:
            return x - 1, str(error)

    f = t.compile(fn)
    old = sys.get_int_max_str_digits()
    t.undo(lambda: sys.set_int_max_str_digits(old))
    for limit in (old, 0, 5500, 700, old):
        sys.set_int_max_str_digits(limit)
        f(5000, T(2))


@program(one_graph=False)
def test_handlers_of_encoding_errors(t):
    def fn(text, x):
        return text.encode("ascii", "test_implicit_state"), text.encode("ascii", errors="replace"), x + 1

    def others(raw, x):
        return (
            raw.decode("ascii", "test_implicit_state"),
            str(raw, "ascii", "test_implicit_state"),
            bytes("\u1234", "ascii", "test_implicit_state"),
            x + 1,
        )

    f, g = t.compile(fn), t.compile(others)
    for mark in ("?", "?", "!!"):
        codecs.register_error("test_implicit_state", lambda error, mark=mark: (mark, error.end))
        f("a\u1234", T(2))
        g(b"a\xff", T(2))


class Plain:
    pass


@program()
def test_an_object_in_a_set_of_plain_values(t):
    thing, found = Plain(), set()
    f = t.compile(lambda x, thing: (x + 1, thing in found))
    for change in (lambda: None, lambda: found.add(thing), found.clear, lambda: found.add(1), lambda: found.add(thing)):
        change()
        f(T(2), thing)


@program(one_graph=False)
def test_special_methods_of_containers_by_name(t):
    items, table, line, plain, named = [], {}, collections.deque([1]), Plain(), types.SimpleNamespace(a=1)
    t.watch(lambda: (list(items), dict(table), list(line)))

    def reads(x):
        return (
            x + 1,
            (items.__len__(), items.__contains__(1), items.__eq__([1]), items.__add__([2]), list(items.__iter__())),
            (table.__len__(), table.__or__({1: 2}), table.__contains__(3)),
            (line.__getitem__(0), line.__len__()),
            (plain.__dict__.__len__(), named.__eq__(types.SimpleNamespace(a=1))),
        )

    def writes(x):
        items.__setitem__(0, 5)
        items.__iadd__([6])
        table.__setitem__(3, 5)
        return x + 1

    f = t.compile(reads)
    f(T(2))
    items.append(1)
    f(T(2))
    table[3] = 4
    f(T(2))
    line[0] = 7
    f(T(2))
    plain.more = 1
    f(T(2))
    named.a = 2
    f(T(2))
    f = t.compile(writes)
    f(T(2))
    items.append(3)
    f(T(2))
    items.clear()
    f(T(2))


@program(one_graph=False)
def test_cells_as_arguments(t):
    one, other = types.CellType(1), types.CellType(1)
    for fn in (
        lambda x, a, b: (x + 1, a is b),
        lambda x, a, b: (x + 1, a == b),
        lambda x, a, b: (x + 1, [a] == [b], (a,) != (b,)),
    ):
        f = t.compile(fn)
        f(T(2), one, one)
        f(T(2), one, other)
        f(T(2), one, one)
        other.cell_contents = 2
        f(T(2), one, other)
        other.cell_contents = 1


@program(one_graph=False)
def test_slices_with_numbers_that_change(t):
    def later(value):
        alternator.graph_break()
        return value

    f = t.compile(lambda x, b, k: (x + 1, slice(b, 2) == slice(k, later(2))))
    for k in (10, 11, 12, 13, 14, 1):
        f(T(2), True, k)


@program()
def test_copies_of_literals(t):
    """deepcopy() gives a tuple of plain values back as it is."""

    def fn(x, given=(1, (2,))):
        literal = (1, (2, "a"))
        copied, made = copy.deepcopy(literal), copy.deepcopy([literal, literal])
        return x + 1, copied is literal, made[0] is made[1], made[0] is literal, tuple(literal) is literal

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))

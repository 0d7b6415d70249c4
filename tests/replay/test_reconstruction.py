"""Objects that are made in a call and outlive it: reconstructed each time, with identity as it was; inputs come back as themselves."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import decimal
import enum
import functools
import itertools
import types
import typing
import weakref

import torch
from harness import T, program
from torch import nn

import alternator

Point = collections.namedtuple("Point", "x y")


class Box:
    def __init__(self, value=None):
        self.value = value


@dataclasses.dataclass
class Data:
    a: torch.Tensor
    b: int = 2
    c: list = dataclasses.field(default_factory=list)

    def twice(self):
        return self.a * 2


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: typing.Any
    b: int = 1


# ------------------------------------------------------------------------------------------------------ containers


@program(graphs=1)
def test_containers_of_every_kind(t):
    def fn(x):
        y = x + 1
        return (
            [y],
            (y, 1),
            {"k": y},
            {1, 2},
            frozenset([3]),
            collections.deque([y], 3),
            slice(1, y.shape[0]),
            range(2),
            bytearray(b"ab"),
        )

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(graphs=1)
def test_collections(t):
    def fn(x):
        counts = collections.defaultdict(list)
        counts["a"].append(x + 1)
        ordered = collections.OrderedDict(b=1, a=x)
        ordered.move_to_end("b")
        return counts, ordered, collections.Counter("aab"), Point(x, 2), collections.ChainMap({"a": 1}, {"b": 2})

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_subclasses_of_containers(t):
    class L(list):
        pass

    class D(dict):
        def __setitem__(self, key, value):
            raise AssertionError("rebuilding must not run this")

    class P(tuple):
        __slots__ = ()

    class S(set):
        pass

    def fn(x):
        items = L([x, 1])
        items.note = "n"
        d = D(a=x)
        return items, d, P((x, 2)), S([1])

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(graphs=1)
def test_one_object_stays_one(t):
    def fn(x):
        inner = [x + 1]
        return inner, [inner, inner], {"again": inner}, (inner,)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(graphs=1)
def test_two_objects_stay_two(t):
    def fn(x):
        y = x + 1
        return [y], [y], y, y.view(2)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(graphs=1)
def test_cycles(t):
    def fn(x):
        items = [x + 1]
        items.append(items)
        d = {"self": None, "items": items}
        d["self"] = d
        box = Box()
        box.value = (box, d)
        items.append(box)
        return items

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_inputs_come_back_as_themselves(t):
    def fn(x, items, d, o, p, g):
        return x, items, d, o, p, g, [x, items], items[0], o.value

    f = t.compile(fn)
    args = (T(2), [[1]], {"a": [2]}, Box([3]), (1, [2]), len)
    f(*args)
    f.hit(*args)
    f.hit(T(2), [[1]], {"a": [2]}, Box([3]), (1, [2]), len)


@program()
def test_inputs_inside_new_objects(t):
    def fn(x, items, o):
        return {"x": x, "all": [items, o, items[0]], "again": (o,)}

    f = t.compile(fn)
    f(T(2), [[1]], Box())
    f.hit(T(2), [[1]], Box())


@program()
def test_inputs_returned_after_a_write(t):
    def fn(items, x):
        items.append(x + 1)
        return items, items[-1]

    f = t.compile(fn)
    f([], T(2))
    f.hit([], T(2))


@program()
def test_new_objects_are_new_each_time(t):
    def fn(x):
        return [], {}, Box(), x + 1

    f = t.compile(fn)
    first = f(T(2))
    first[0].append("kept by the caller")
    first[1]["k"] = 1
    first[2].value = 5
    f.hit(T(2))


@program()
def test_constant_tensors_are_fresh(t):
    def fn(x):
        return torch.tensor([1.0, 2.0]), torch.zeros(2), x + 1

    f = t.compile(fn)
    first = f(T(2))
    first[0].add_(5)
    first[1].add_(5)
    f.hit(T(2))


@program()
def test_outputs_that_are_one_tensor(t):
    f = t.compile(lambda x: (x, (y := x + 1), y, y.view(-1), x[0], x.t()))
    f(T(2, 2))
    f.hit(T(2, 2))


@program()
def test_no_tensors_at_all(t):
    f = t.compile(lambda n: [n + 1, {"n": n}])
    f(1)
    f.hit(1)
    f(2)


@program()
def test_returns_a_constant_container(t):
    f = t.compile(lambda x: ((1, 2), "text", None, 10**20))
    f(T(2))
    f.hit(T(2))


# -------------------------------------------------------------------------------------------------- objects, classes


@program(graphs=1)
def test_instances(t):
    def fn(x):
        box = Box([x + 1])
        box.more = box.value
        return box

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_init_is_not_run_again(t):
    made = []

    class Counted:
        def __init__(self):
            made.append(1)

    def fn(x):
        c = Counted()
        c.x = x + 1
        return c

    t.watch(lambda: made)
    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_new_and_slots(t):
    class Slotted:
        __slots__ = ("a", "b")

        def __new__(cls, *args):
            made = super().__new__(cls)
            made.b = "from new"
            return made

    def fn(x):
        s = Slotted()
        s.a = x + 1
        return s

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(graphs=1)
def test_dataclasses(t):
    def fn(x):
        d = Data(x + 1, c=[x])
        d.b += 1
        return d, d.twice(), Frozen(x, 3), dataclasses.replace(d, b=9), dataclasses.asdict(Frozen(1))

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_model_output(t):
    """The way Hugging Face models return their results."""

    class Output(collections.OrderedDict):
        def __init_subclass__(cls):
            dataclasses.dataclass(cls)

        def __post_init__(self):
            for field in dataclasses.fields(self):
                value = getattr(self, field.name)
                if value is not None:
                    self[field.name] = value

        def __setattr__(self, name, value):
            if name in self.keys() and value is not None:
                super().__setitem__(name, value)
            super().__setattr__(name, value)

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            super().__setattr__(key, value)

        def __getitem__(self, key):
            return dict(self.items())[key] if isinstance(key, str) else self.to_tuple()[key]

        def to_tuple(self):
            return tuple(self[k] for k in self.keys())

    @dataclasses.dataclass
    class Mine(Output):
        loss: typing.Any = None
        logits: typing.Any = None
        hidden: typing.Any = None

    def fn(x):
        o = Mine(logits=x * 2, hidden=(x, x + 1))
        o.loss = o.logits.sum()
        o["loss"] = o.loss * 2
        return o, o[0]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    g = t.compile(lambda o: (o.logits + 1, o["hidden"][0], o[0], list(o.keys())))
    g(Mine(logits=T(2), hidden=(T(2), T(2))))
    g(Mine(logits=T(2), hidden=(T(2), T(2))))


@program()
def test_modules_made_in_the_call(t):
    def fn(x):
        m = nn.Linear(2, 2)
        with torch.no_grad():
            m.weight.fill_(1.0)
            m.bias.zero_()
        return m(x), m

    f = t.compile(fn)
    f.free(T(2, 2))
    f.free(T(2, 2))


@program()
def test_functions_made_in_the_call(t):
    def fn(x):
        n = x.shape[0]

        def scale(y, k=2, *, j=[1]):  # noqa: B006
            return y * n * k + j[0]

        scale.note = x
        return scale, lambda: x

    f = t.compile(fn)
    a = f(T(2))
    b = f.hit(T(2))
    t.note((a[0](T(2)), b[0](T(2)), b[1]() is a[1]()))


@program()
def test_functions_that_share_a_cell(t):
    def fn(x):
        n = 0

        def up():
            nonlocal n
            n += 1
            return n

        def look():
            return n, x

        up()
        return up, look

    f = t.compile(fn)
    up, look = f(T(2))
    t.note((up(), up(), look()))
    up, look = f.hit(T(2))
    t.note((up(), look()))


@program()
def test_classes_made_in_the_call_are_made_anew(t):
    def fn(x):
        class Made:
            k = 2

            def __init__(self, v):
                self.v = v

            def scaled(self):
                return self.v * self.k

        return Made, Made(x), Made(x).scaled()

    f = t.compile(fn)
    a = f(T(2))
    b = f(T(2))
    t.note((a[0] is b[0], isinstance(b[1], a[0]), b[1].scaled()))


@program()
def test_class_made_and_thrown_away(t):
    def fn(x):
        class Made:
            k = 2

        return x * Made.k, Made.__name__

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(one_graph=False)
def test_subclass_of_an_outside_class(t):
    class Base:
        seen = []

        def __init_subclass__(cls):
            Base.seen.append(cls.__name__)

    def fn(x):
        class Derived(Base):
            pass

        return x + len(Base.__subclasses__()), Derived

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_a_trace_that_ends_while_a_class_is_made(t):
    """Its half of a class is no subclass of anything."""

    class Base:
        def __init_subclass__(cls):
            alternator.graph_break()

    def fn(x):
        class Derived(Base):
            pass

        return x + len(Base.__subclasses__()), Derived

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_named_tuple_class_made_in_the_call(t):
    def fn(x):
        made = collections.namedtuple("Made", "a b")
        return made(x, 1)[1], made._fields

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_enum_class_made_in_the_call(t):
    f = t.compile(lambda x: (len(enum.Enum("Made", "A B")), x + 1))
    f.free(T(2))
    f.free(T(2))


# ------------------------------------------------------------------------------------ methods, partials, iterators


@program()
def test_bound_methods_and_partials(t):
    class A:
        def scale(self, x):
            return x * 2

    def fn(o, items, x):
        return o.scale, items.append, functools.partial(o.scale, x), x.add, A().scale, "a".upper, str.upper, torch.relu

    f = t.compile(fn)
    one, items = A(), []
    r = f(one, items, T(2))
    r[1](5)
    t.note((items, r[2](), r[3](1)))
    r = f.hit(one, items, T(2))
    r[1](6)
    t.note((items, r[2](), r[3](1)))


@program()
def test_iterators_at_their_end(t):
    """They are of their type still, and stay at their end."""

    def fn(x, items, number):
        made = [iter([x]), reversed([1]), iter((1,)), iter("a"), iter("\u1234"), iter(b"a"), iter(range(1))]
        made.append(iter([1].pop, 1))
        of_items = [iter(items), reversed(items)]
        for one in made + of_items:
            list(one)
        items.append(number)
        return x + number, made, of_items, [iter([]), reversed([]), iter(b"")]

    f = t.compile(fn)
    f(T(3), [1, 2], 1)
    f.hit(T(3, s=1), [1, 2], 1)
    for one in sum((f(T(3), [1], 2) or [[], [], []])[1:], []):
        t.note(list(one))


@program()
def test_iterators_returned(t):
    def fn(items, x):
        it = iter(items)
        next(it)
        new = iter([1, x, 3])
        next(new)
        return (
            it,
            new,
            enumerate([x]),
            zip([1], [x]),
            reversed([1, 2]),
            iter({"a": 1}.items()),
            map(torch.relu, [x]),
            range(3).__iter__(),
        )

    f = t.compile(fn)
    items = [1, 2, 3]
    r = f.free(items, T(2))
    items.append(4)
    t.note([list(i) for i in r])
    r = f.free(items, T(2))
    t.note([list(i) for i in r])


@program(one_graph=False)
def test_itertools_returned(t):
    def fn(x):
        c = itertools.count(3)
        next(c)
        return c, itertools.chain([1], [x]), itertools.repeat(x, 2), itertools.islice([1, 2, 3], 2)

    f = t.compile(fn)
    r = f(T(2))
    t.note((next(r[0]), list(r[1]), list(r[2])))
    r = f(T(2))
    t.note((next(r[0]), list(r[1]), list(r[2])))


@program()
def test_dict_views_returned(t):
    def fn(d, x):
        new = {"a": x}
        return d.keys(), new.items(), new.values()

    f = t.compile(fn)
    d = {"k": 1}
    r = f(d, T(2))
    d["later"] = 2
    t.note(list(r[0]))
    r = f(d, T(2))
    d["even later"] = 2
    t.note(list(r[0]))


@program(one_graph=False)
def test_suspended_generator_returned(t):
    def fn(x):
        def counting():
            n = 0
            while True:
                n += 1
                got = yield x * n
                if got:
                    return

        g = counting()
        first = next(g)
        return g, first

    f = t.compile(fn)
    g, _ = f(T(2))
    t.note(next(g))
    h, _ = f(T(2))
    t.note((next(h), next(g), g is h))


@program(one_graph=False)
def test_fresh_generator_returned(t):
    f = t.compile(lambda x: (x * i for i in range(2)))
    t.note(list(f(T(2))))
    t.note(list(f(T(2))))


# ---------------------------------------------------------------------------------------------- exceptions as values


@program()
def test_exception_returned(t):
    def fn(x):
        try:
            {}["q"]
        except KeyError as e:
            try:
                raise ValueError("z", x.shape[0]) from e
            except ValueError as g:
                return [g], type(g.__cause__), x + 1

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_exception_made_but_not_raised(t):
    class Mine(Exception):
        def __init__(self, code, detail):
            super().__init__(f"{code}: {detail}")
            self.code = code

    def fn(x):
        e = Mine(3, "d")
        e.add_note("a note")
        e.__cause__ = ValueError("why")
        return e, x + 1

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_exception_group_returned(t):
    def fn(x):
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError("t")])
        except* ValueError as group:
            kept = group
        except* TypeError:
            pass
        return kept, x + 1

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_exception_stored_with_its_context(t):
    errors = []

    def fn(x):
        try:
            try:
                raise KeyError("inner")
            finally:
                int("no number")
        except ValueError as e:
            errors.append(e)
        return x + 1

    t.watch(lambda: errors)
    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


# ------------------------------------------------------------------------------------------------------- other types


@program()
def test_values_of_the_standard_library(t):
    import datetime
    import fractions
    import pathlib
    import uuid

    def fn(x):
        return (decimal.Decimal("1.5") + 1, fractions.Fraction(1, 3), datetime.date(2020, 1, 2), datetime.timedelta(days=1),
                pathlib.PurePosixPath("/a") / "b", uuid.UUID(int=3), complex(1, 2), memoryview(b"ab").tolist(), x + 1)  # fmt: skip

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_types_of_python(t):
    def fn(x):
        return (list[int], typing.Optional[int], int | str, types.SimpleNamespace(a=x), types.MappingProxyType({"a": 1}),
                property(len), staticmethod(len), type(x), object, NotImplemented, ...)  # fmt: skip

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_object_instance_as_sentinel(t):
    def fn(x):
        s = object()
        return s, [s], x + 1

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(one_graph=False)
def test_weak_reference_to_a_new_object(t):
    def fn(x):
        box = Box(x)
        return box, weakref.ref(box)

    f = t.compile(fn)
    box, ref = f(T(2))
    t.note(ref() is box)
    box, ref = f(T(2))
    t.note(ref() is box)


@program(one_graph=False)
def test_handles_are_never_rebuilt_by_guess(t):
    import io
    import threading

    def fn(x):
        return threading.Lock(), io.StringIO("abc"), threading.local(), x + 1

    f = t.compile(fn)
    a = f(T(2))
    b = f(T(2))
    t.note((a[0] is b[0], a[1] is b[1], b[0].acquire(blocking=False), b[1].read(), b[1].read()))


@program(one_graph=False)
def test_a_proxy_is_not_what_it_stands_for(t):
    def fn(o, x):
        return weakref.proxy(o), x + 1

    f = t.compile(fn)
    one = Box(3)
    t.note(f(one, T(2))[0].value)
    t.note(f(one, T(2))[0].value)


@program(one_graph=False)
def test_a_proxy_from_outside(t):
    """What it stands for is looked at concretely: nothing else finds it again."""

    class Scale(Box):
        def __call__(self, x):
            return x * self.value

        def __len__(self):
            return self.value

    one, other = Scale(2), Box(5)
    held = weakref.proxy(one)
    t.watch(lambda: one.value)

    def fn(x, given):
        held.value += 1
        return x * held.value, held(x), len(held), given.value, isinstance(given, Scale), given.__class__.__name__

    f = t.compile(fn)
    f(T(2), weakref.proxy(one))
    f(T(2), weakref.proxy(one))
    one.value = 7
    f(T(2), weakref.proxy(other))
    other.value = 1
    f(T(2), weakref.proxy(other))

    def made_here(o, x):
        near = weakref.proxy(o)
        near.value += 1
        return x * near.value, isinstance(near, Box)

    f = t.compile(made_here)
    f(one, T(2))
    f(one, T(2))


@program(one_graph=False)
def test_finalizer_of_an_object_made_in_the_call(t):
    log = []

    class Final:
        def __init__(self, n):
            self.n = n

        def __del__(self):
            log.append(self.n)

    def fn(x):
        d = Final(1)
        y = x + d.n
        del d
        e = Final(2)
        return y + e.n

    t.watch(lambda: list(log))
    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_reduce_of_the_users_is_not_asked(t):
    asked = []

    class Reducing:
        def __init__(self, n):
            self.n = n

        def __reduce_ex__(self, protocol):
            asked.append(protocol)
            return (Reducing, (0,))

        def __getstate__(self):
            asked.append("state")
            return {}

        def __copy__(self):
            asked.append("copy")
            return self

        def __deepcopy__(self, memo):
            asked.append("deepcopy")
            return self

    t.watch(lambda: list(asked))
    f = t.compile(lambda x: (Reducing(x.shape[0]), x + 1))
    f(T(2))
    f(T(2))


@program()
def test_context_manager_object_returned(t):
    f = t.compile(lambda x: (torch.no_grad(), contextlib.nullcontext(x), x + 1))
    f.free(T(2))
    f.free(T(2))


# ----------------------------------------------------------------------------------------------- found by the fuzzer


@program()
def test_dict_of_a_made_object_is_its_own(t):
    class Node:
        def __init__(self, n):
            self.n = n
            self.link = None

    def fn(x, node):
        made = Node(node.n)
        vars(made)["extra"] = 3
        made.__dict__["more"] = x + 1
        node.link = made
        return x

    f = t.compile(fn)
    f(T(2), Node(1))
    f.hit(T(2), Node(1))


@program()
def test_empty_frozenset_is_made_anew(t):
    f = t.compile(lambda x: (frozenset([]), (), x + 1))
    first = f(T(2))
    second = f.hit(T(2))
    t.note(first[0] is second[0])

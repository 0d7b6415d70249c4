"""What depends on where an object lies: hashes, ids, the order of sets, texts. None of it may become a constant."""

from __future__ import annotations

import functools
import itertools
import math

import torch
from harness import T, program


class Thing:
    def __init__(self, n=1):
        self.n = n


class Slotted:
    __slots__ = ("n",)

    def __init__(self, n=1):
        self.n = n


def is_own(number, wanted):
    """Addresses differ between runs: only whether it is the right one is compared."""
    return int(number) == wanted


@program(one_graph=False)
def test_hashes_of_objects(t):
    ways = [
        lambda o: hash(o),
        lambda o: o.__hash__(),
        lambda o: object.__hash__(o),
        lambda o: hash((o,)),
        lambda o: hash((1, (o, "a"))),
        lambda o: hash(frozenset([o])),
        lambda o: hash((id(o),)),
        lambda o: (o, 1).__hash__(),
        lambda o: tuple.__hash__((o, 1)),
        lambda o: list(map(hash, [o]))[0],
        lambda o: list(map(type(o).__hash__, [o]))[0],
        lambda o: type(o).__hash__.__call__(o),
        lambda o: torch.Tensor.__hash__(self=o),
        lambda o: functools.partial(hash, o)(),
        lambda o: functools.reduce(lambda a, b: hash(b), [o], 0),
        lambda o: o.__hash__,
    ]
    for way in ways:
        f = t.compile(lambda o, x, way=way: (x + 1, way(o)))
        for o in (Thing(), Thing(2), Slotted(), T(2), T(3), len):
            _, number = f.call(o, T(2))
            wanted = way(o)
            t.note(number == wanted if not callable(wanted) else number() == wanted())


@program()
def test_hashes_of_values(t):
    f = t.compile(lambda x, values: (x + 1, list(map(hash, values))))
    f(T(2), (1, "a", 2.5, b"b", 1j, True))
    f.hit(T(2), (1, "a", 2.5, b"b", 1j, True))
    f.miss(T(2), (1, "b"))


@program(one_graph=False)
def test_hashes_of_values_with_addresses(t):
    f = t.compile(lambda x, values: (x + 1, list(map(hash, values))))
    for _ in range(2):
        values = (1, float("nan")), (None, 1), [Thing()], (Thing(), 2)
        for value in values:
            t.note(f.call(T(2), value)[1] == list(map(hash, value)))


@program()
def test_hashes_as_keys_and_compared(t):
    def fn(a, b, x):
        seen = {hash(a): 1, hash((b, 1)): 2}
        return x * seen[hash(a)] + seen[hash((b, 1))], hash(a) == hash(b), hash(a) != hash(b), hash(a) in seen

    f = t.compile(fn)
    a, b = Thing(), Thing()
    f(a, b, T(2))
    f.hit(b, a, T(2))
    f.hit(Thing(), Thing(), T(2))
    f.free(Thing, Thing(), T(2))


@program()
def test_hashes_of_values(t):
    def fn(k, x):
        return x + 1, hash(k), hash((k, "a")), k.__hash__(), hash(frozenset([k])), hash(int), hash((k, torch.float32))

    f = t.compile(fn)
    for k in (1, True, "a", 2.5, b"b", None, (1, 2), 1, "a", range(3)):
        f(k, T(2))


@program()
def test_a_hash_of_the_users(t):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return self.n + 7

        def __eq__(self, other):
            return self.n == other.n

    def fn(k, x):
        made = Key(3)
        return x * hash(k), hash((k, 1)), {made: 5}[Key(3)], hash(made)

    f = t.compile(fn)
    f(Key(1), T(2))
    f.hit(Key(1), T(2))
    f.miss(Key(2), T(2))
    t.patch(Key, "__hash__", lambda self: 9)
    f(Key(2), T(2))


@program(one_graph=False)
def test_a_hash_of_the_users_made_of_addresses(t):
    class Key:
        def __init__(self, o):
            self.o = o

        def __hash__(self):
            return hash((self.o, 1))

    class Second(Key):
        def __hash__(self):
            return super().__hash__()

    class Third(Thing):
        def __hash__(self):
            return super().__hash__()

    def fn(k, x):
        return x + 1, hash(k), hash((k, 2)), k.__hash__()

    f = t.compile(fn)
    for k in (Key(Thing()), Key(Thing()), Second(Thing()), Second(Thing()), Third(), Third()):
        _, *numbers = f.call(k, T(2))
        t.note(numbers == [hash(k), hash((k, 2)), hash(k)])


@program(one_graph=False)
def test_an_id_that_was_written_down(t):
    """A number of an earlier call says nothing about this call's object."""
    ways = [
        lambda o, saved: id(o) == saved[0],
        lambda o, saved: id(o) in saved,
        lambda o, saved: id(o) in dict.fromkeys(saved),
        lambda o, saved: id(o) in set(saved),
        lambda o, saved: {n: True for n in saved}.get(id(o), False),
        lambda o, saved: {n: True for n in saved}.setdefault(id(o), False),
        lambda o, saved: saved.count(id(o)),
        lambda o, saved: saved[0] == id(o),
        lambda o, saved: (saved[0],) == (id(o),),
        lambda o, saved: hash(o) == saved[1],
        lambda o, saved: id(o) == float(saved[0]),
    ]
    for way in ways:
        f = t.compile(lambda o, saved, x, way=way: x + 1 if way(o, saved) else x - 1)
        a, b = Thing(), Thing()
        saved = [id(a), hash(a)]
        t.note([f.call(o, list(saved), T(2)) for o in (a, b, a, b, Thing())])


@program()
def test_an_id_beside_other_things(t):
    def fn(o, x):
        n = id(o)
        return x + 1, n == None, n != "a", n == 3, n == 2.5, n in (1, 2, "a"), n in {1: 2}, [n] == [None], n == id(o)  # noqa: E711

    f = t.compile(fn)
    f(Thing(), T(2))
    f.hit(Thing(), T(2))


@program(one_graph=False)
def test_an_id_in_a_text_or_a_tensor(t):
    ways = [
        lambda o: "%d" % (id(o),),
        lambda o: "%d" % id(o),
        lambda o: "%x %s" % (id(o), 1),
        lambda o: "%(a)d" % {"a": id(o)},
        lambda o: b"%d" % (id(o),),
        lambda o: f"{id(o)}",
        lambda o: str([id(o)]),
        lambda o: torch.tensor([id(o)]).tolist(),
        lambda o: torch.tensor([[1, id(o)]]).tolist(),
        lambda o: sum([id(o)]),
        lambda o: max([1, id(o)]),
        lambda o: [*map(int, [id(o)])],
        lambda o: divmod(id(o), 7),
        lambda o: list(map(id, [o])),
    ]
    for way in ways:
        f = t.compile(lambda o, x, way=way: (x + 1, way(o)))
        for o in (Thing(), Thing(), Thing()):
            _, got = f.call(o, T(2))
            t.note(got == way(o))


def firsts(items):
    return [o.n for o in items]


def unpack(s):
    a, *_ = s
    return a.n


def extend(s):
    items = []
    items += s
    return firsts(items)


WAYS = [
    lambda s: firsts(s),
    lambda s: firsts(list(s)),
    lambda s: firsts(tuple(s)),
    lambda s: firsts([*s]),
    lambda s: firsts(sorted(s, key=lambda o: 0)),
    lambda s: firsts(iter(s)),
    lambda s: firsts(dict.fromkeys(s)),
    lambda s: firsts(o for o in s),
    lambda s: [i + o.n for i, o in enumerate(s)],
    lambda s: firsts(map(lambda o: o, s)),
    lambda s: firsts(itertools.chain(s)),
    lambda s: firsts(itertools.chain.from_iterable([s])),
    lambda s: [o.n for o, _ in zip(s, range(9), strict=False)],
    lambda s: max(s, key=lambda o: 0).n,
    lambda s: next(iter(s)).n,
    lambda s: (lambda *a: firsts(a))(*s),
    lambda s: firsts(functools.reduce(lambda a, o: [*a, o], s, [])),
    lambda s: firsts([].__add__(list(s))),
    lambda s: "".join([str(o.n) for o in s]),
    unpack,
    extend,
]


def in_the_order_of_addresses(t, ways):
    """The order is nobody's choice, but it is one: the set that comes back has it too."""
    for at, way in enumerate(ways):

        def fn(objects, x, way=way):
            s = {*objects}
            return x + 1, s, way(s)

        f = t.compile(fn)
        g = t.compile(lambda s, x, way=way: (x + 1, way(s)))
        for _ in range(8):
            objects = [Thing(i) for i in range(6)]
            _, s, order = f.call(objects, T(2))
            t.note((at, order == way(s), len(s)))
            s = set(objects)
            t.note((at, g.call(s, T(2))[1] == way(s)))


@program(one_graph=False)
def test_sets_in_the_order_of_addresses(t):
    in_the_order_of_addresses(t, WAYS[0::3])


@program(one_graph=False)
def test_more_sets_in_the_order_of_addresses(t):
    in_the_order_of_addresses(t, WAYS[1::3])


@program(one_graph=False)
def test_still_more_sets_in_the_order_of_addresses(t):
    in_the_order_of_addresses(t, WAYS[2::3])


@program(one_graph=False)
def test_a_set_gives_up_one_of_its_elements(t):
    def fn(objects, x):
        s = {*objects}
        one = s.pop()
        return x + 1, s, one

    f = t.compile(fn)
    for _ in range(4):
        objects = [Thing(i) for i in range(6)]
        _, s, one = f.call(objects, T(2))
        t.note((one in s, len(s), {one, *s} == {*objects}))


@program()
def test_sets_of_objects_that_nobody_goes_through(t):
    def fn(a, b, x):
        s = {a, b}
        both = s | {a}
        s.add(3)
        return x * len(s), a in s, s == both, both <= s, {a} < both, bool(s), a in both - {b}

    f = t.compile(fn)
    a, b = Thing(), Thing()
    f(a, b, T(2))
    f.hit(b, a, T(2))
    f(a, a, T(2))


@program(one_graph=False)
def test_sets_from_outside_in_their_order(t):
    def fn(s, x):
        return [x * o.n for o in s]

    f = t.compile(fn)
    objects = [Thing(i) for i in range(5)]
    for count in (2, 3, 5, 3, 2):
        for s in (set(objects[:count]), frozenset(objects[-count:])):
            t.note([bool(a.equal(b)) for a, b in zip(f.call(s, T(2)), fn(s, T(2)), strict=True)])


@program(one_graph=False)
def test_texts_with_addresses(t):
    def make():
        yield 1

    ways = [
        lambda o: str({o}),
        lambda o: repr([[[[[[[o]]]]]]]),
        lambda o: "%s" % o,
        lambda o: "%r %s" % ([o], 1),
        lambda o: "%(a)s" % {"a": o},
        lambda o: str(ValueError(o)),
        lambda o: str(KeyError(o)),
        lambda o: repr(ValueError(1, [o])),
        lambda o: str(make()),
        lambda o: str(iter([])),
        lambda o: repr([].append),
        lambda o: repr(functools.partial(len, o)),
        lambda o: str({1: o}.values()),
        lambda o: ",".join(map(str, [o, 1])),
        lambda o: ",".join(map(repr, [o])),
        lambda o: ",".join(map("{}".format, [o])),
        lambda o: "{a}".format_map({"a": o}),
        lambda o: o.__repr__(),
        lambda o: o.__str__(),
        lambda o: object.__repr__(o),
        lambda o: format(o),
        lambda o: f"{o!r:>10}",
        lambda o: str(lambda: 1),
        lambda o: "{0}".format(o),
        lambda o: "{}".format([o]),
        lambda o: str.format("{}", o),
        lambda o: str.__mod__("%s", o),
    ]
    # The text of an object that the call makes is never the same twice.
    from_outside = {"make", "iter", "append", "values", "partial"}
    for at, way in enumerate(ways):
        f = t.compile(lambda o, x, way=way: (x + 1, way(o)))
        for o in (Thing(), Thing()):
            _, text = f.call(o, T(2))
            if not from_outside & {*way.__code__.co_names, *way.__code__.co_freevars} and "lambda" not in text:
                t.note((at, text == way(o)))


@program(one_graph=False)
def test_texts_of_outside_exceptions_and_classes(t):
    class Named:
        pass

    def fn(e, x):
        return x + 1, str(e), repr(e), f"{e}", str(Named), "%s" % Named

    f = t.compile(fn)
    f(ValueError("a"), T(2))
    f(ValueError("b"), T(2))
    f(KeyError("b"), T(2))
    Named.__qualname__ = "Other"
    f(KeyError("b"), T(2))
    f(None, T(2))
    Named.__module__ = "elsewhere"
    f(None, T(2))


@program(one_graph=False)
def test_nan_is_found_by_identity(t):
    nan = float("nan")

    def fn(a, b, x):
        return (
            x + 1,
            a in [b],
            [a] == [b],
            (a,) == (b,),
            {a: 1}.get(b),
            [b].count(a),
            a in {b},
            a is b,
            a == b,
            math.nan in [a],
            {a: 1} == {b: 1},
        )

    f = t.compile(fn)
    f(nan, nan, T(2))
    f(nan, float("nan"), T(2))
    f(float("nan"), nan, T(2))
    f(math.nan, nan, T(2))
    f(math.nan, math.nan, T(2))
    f(nan, nan, T(2))
    g = t.compile(lambda d, k, x: (x + 1, k in d, d.get(k, 0), k in list(d), d))
    g({nan: 1}, nan, T(2))
    g({nan: 1}, float("nan"), T(2))
    g({float("nan"): 1}, nan, T(2))
    g({1.0: 1}, nan, T(2))
    h = t.compile(lambda items, k, x: (x + 1, k in items, items.index(k) if k in items else -1))
    items = [*range(20), nan]
    for k in (nan, float("nan"), nan, 3):
        h(items, k, T(2))
        h(set(items), 3, T(2)) if k == 3 else h(list(items), k, T(2))
    s = t.compile(lambda s, k, x: (x + 1, k in s))
    for k in (nan, float("nan"), nan):
        t.note(s.call({nan, 1}, k, T(2)))


# ------------------------------------------------------------------------- what native code does with what it is given


@program(one_graph=False)
def test_builtins_as_callbacks(t):
    class Node:
        def __init__(self, n):
            self.n = n
            self.next = None

    ways = [
        lambda o: functools.reduce(getattr, ["next", "n"], o),
        lambda o: list(map(getattr, [o], ["n"])),
        lambda o: list(map(hasattr, [o, o.next], ["n", "gone"])),
        lambda o: functools.partial(getattr, o, "n")(),
        lambda o: functools.partial(getattr, o)("n"),
        lambda o: list(map(functools.partial(getattr, o), ["n"])),
        lambda o: [dict(v) for v in map(vars, [o.next])],
        lambda o: list(map(setattr, [o], ["n"], [o.n + 1])) and o.n,
        lambda o: sorted([o.next, o], key=id)[0] in (o, o.next),
        lambda o: max([o, o.next], key=hash) in (o, o.next),
        lambda o: [type(e) is Node for e in map(lambda e: e, [o])],
        lambda o: list(map(type, [o])) == [Node],
        lambda o: [n.n for n in map(Node, [o.n, 2])],
        lambda o: list(map(len, [[1], (1, 2)])),
        lambda o: list(map({"a": o.n}.__getitem__, ["a"])),
        lambda o: list(map({"a": o.n}.get, ["a", "b"])),
        lambda o: ",".join(map(str, [1, 2.5, "a", None])),
        lambda o: list(map(int, ["1", "2"])),
        lambda o: list(map(str.upper, ["a"])),
        lambda o: sorted(["b", "A"], key=str.lower),
        lambda o: list(filter(None, [0, 1])),
        lambda o: list(map(isinstance, [o], [Node])),
        lambda o: list(itertools.starmap(getattr, [(o, "n")])),
    ]
    for way in ways:
        f = t.compile(lambda o, x, way=way: (x + 1, way(o)))
        for n in (1, 2, 1, 3):
            o = Node(n)
            o.next = Node(n + 10)
            f(o, T(2))


@program()
def test_partials_are_their_functions(t):
    def scale(x, k, *rest, bias=0, **more):
        return x * k + bias, rest, more

    class Net:
        def __init__(self):
            self.k = 2

        def go(self, x, k):
            return x * k * self.k

    net = Net()

    def fn(p, q, x):
        return p(x, 3), p(x, 3, 4, bias=5, z=6), q(x), functools.partial(p, x)(3)

    f = t.compile(fn)
    f(functools.partial(scale, bias=2), functools.partial(net.go, k=3), T(2))
    f.hit(functools.partial(scale, bias=2), functools.partial(net.go, k=3), T(2))
    f(functools.partial(scale, bias=3), functools.partial(net.go, k=3), T(2))
    net.k = 5
    f(functools.partial(scale, bias=3), functools.partial(net.go, k=4), T(2))


# ------------------------------------------------------------------------------------------------------ other holes


@program()
def test_an_apply_that_calls_super(t):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @classmethod
        def apply(cls, x):
            return super().apply(x + 1)

    f = t.compile(lambda x: Double.apply(x) * 3)
    f(T(3))
    x = T(3, rg=True)
    f(x).sum().backward()
    t.note(x.grad)
    f.hit(T(3))


@program(one_graph=False)
def test_an_instance_test_of_one_that_says_another_class(t):
    import collections.abc

    class Says:
        def __init__(self, cls):
            self.cls = cls

        @property
        def __class__(self):
            return self.cls

    class Hidden:
        def __init__(self, cls):
            self.cls = cls

        def __getattribute__(self, name):
            return object.__getattribute__(self, "cls") if name == "__class__" else object.__getattribute__(self, name)

    def fn(o, x):
        return x + (1 if isinstance(o, collections.abc.Mapping) else 2), isinstance(o, list), isinstance(o, Says)

    f = t.compile(fn)
    for kind in (Says, Hidden):
        f(kind(dict), T(2))
        f(kind(list), T(2))
        f(kind(dict), T(2))


@program(one_graph=False)
def test_a_function_that_is_called_like_torchs_shield(t):
    def _disable_dynamo(k):
        def inner(x):
            return x * k

        return inner

    f = t.compile(lambda g, x: g(x) + 1)
    g = _disable_dynamo(3)
    g.__qualname__ = "_disable_dynamo.<locals>.inner"
    g.__code__ = g.__code__.replace(co_qualname="_disable_dynamo.<locals>.inner")
    f(g, T(2))
    g.__wrapped__ = lambda x: x - 1
    f(g, T(2))
    from torch._compile import _disable_dynamo as shield

    h = shield(lambda x: x * 2)
    t.note(f.call(h.__wrapped__ if t.eager else h, T(2)))


@program()
def test_sentinels_are_only_identities(t):
    missing = object()

    def fn(o, p, x):
        return x + (1 if o is missing else 2), o is p

    f = t.compile(fn)
    f(object(), object(), T(2))
    f.hit(object(), object(), T(2))
    f(missing, object(), T(2))
    f(missing, missing, T(2))


@program()
def test_the_class_of_numbers_that_follow_addresses(t):
    class Thing:
        pass

    thing = Thing()
    f = t.compile(lambda x: (x + 1, type(hash(thing)) is int, id(thing).__class__, isinstance(id(thing), int)))
    f(T(2))
    f.hit(T(2))


def test_an_id_compared_with_a_number():
    import alternator

    def fn(x, thing, number):
        return x * 2 if id(thing) == number else x + 1

    alternator.reset()
    f = alternator.compile(fn, backend="eager", fullgraph=True)
    first, second = Thing(1), Thing(2)
    for thing, number in (
        (first, id(first)),
        (first, id(first)),
        (second, id(first)),
        (second, id(second)),
        (Thing(3), id(first)),
        (first, id(first)),
    ):
        assert torch.equal(f(T(2), thing, number), fn(T(2), thing, number))
    assert alternator.counters()["hits"] == 2
    number = id(second)
    del second
    for _ in range(50):  # another object may get the address
        other = Thing(5)
        assert torch.equal(f(T(2), other, number), fn(T(2), other, number))


@program(one_graph=False)
def test_an_id_of_something_made_here_that_was_written_down(t):
    def fn(x, number):
        made = Thing(4)
        return x * 2 if id(made) == number else x + 1

    f = t.compile(fn)
    f(T(2), 1 << 40)
    f(T(2), 1 << 41)

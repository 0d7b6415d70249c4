"""Every kind of value that a residual program makes again: types, contents, identity, cycles."""

from __future__ import annotations

import abc
import collections
import dataclasses
import decimal
import enum
import functools
import gc
import itertools
import operator
import random
import re
import sys
import types
import weakref
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="replay needs torch")

from hand import made_here, rebuild, replay, text_of  # noqa: E402


class Point(NamedTuple):
    x: Any
    y: Any


class Plain:
    limit = 3

    def __init__(self, *values: Any, **named: Any) -> None:
        raise AssertionError("__init__ must not run")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("__setattr__ must not run")

    def method(self) -> Any:
        return self


def plain(cls: type = Plain, **attributes: Any) -> Any:
    made = object.__new__(cls)
    made.__dict__.update(attributes)
    return made


class Slotted:
    __slots__ = ("__weakref__", "first", "second")


class SlottedMore(Slotted):
    __slots__ = ("_SlottedMore__third", "extra")


class WithProperty:
    @property
    def value(self) -> Any:
        raise AssertionError("a getter must not run")

    @value.setter
    def value(self, new: Any) -> None:
        raise AssertionError("a setter must not run")


class MyList(list):
    def append(self, item: Any) -> None:
        raise AssertionError("an overridden method must not run")

    extend = __iadd__ = __setitem__ = append


class MyDict(dict):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("an overridden method must not run")


class MyOrdered(collections.OrderedDict):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("an overridden method must not run")


class MySet(set):
    pass


class MyFrozenset(frozenset):
    pass


class MyDeque(collections.deque):
    pass


class MyTuple(tuple):
    pass


class MyInt(int):
    pass


class MyFloat(float):
    pass


class MyStr(str):
    pass


class MyBytes(bytes):
    pass


class MyComplex(complex):
    pass


class Color(enum.Enum):
    RED = 1


class MyError(Exception):
    def __init__(self, *args: Any) -> None:
        raise AssertionError("__init__ must not run")


@dataclasses.dataclass
class Record:
    value: Any
    others: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Key:
    name: str


class Number:
    def __init__(self, n: int) -> None:
        self.n = n

    def __hash__(self) -> int:
        return self.n

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Number) and self.n == other.n


def filled(container: Any, **attributes: Any) -> Any:
    container.__dict__.update(attributes)
    return container


# ---- containers


def test_constants_are_kept_by_object() -> None:
    big, text = 10**30, "a text with spaces"
    assert rebuild(lambda x, y: big) is big
    assert rebuild(lambda x, y: (big, text)) == (big, text)
    assert rebuild(lambda x, y: Color.RED) is Color.RED
    assert rebuild(lambda x, y: Point) is Point
    assert rebuild(lambda x, y: sys) is sys
    assert rebuild(lambda x, y: len) is len
    assert rebuild(lambda x, y: torch.float32) is torch.float32
    made = (1, ("two", frozenset({3})))
    again = rebuild(lambda x, y: made)
    assert again == made and again is not made and again[1] is not made[1]  # a tuple that the call made is another one


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: x,
        lambda x, y: (x, y, x, 1),
        lambda x, y: [],
        lambda x, y: [x, [y, x], []],
        lambda x, y: {"a": x, "b": {"c": y}, 3: None, None: ()},
        lambda x, y: {(1, "a"): x},
        lambda x, y: Point(x, [y]),
        lambda x, y: slice(x, [y], None),
        lambda x, y: {1, 2, "three"},
        lambda x, y: frozenset({1, 2, (3, "four")}),
        lambda x, y: {x, y},
        lambda x, y: frozenset({x}),
        lambda x, y: collections.deque([x, y, 1]),
        lambda x, y: collections.deque([x, y], maxlen=2),
        lambda x, y: collections.OrderedDict([("b", x), ("a", y)]),
        lambda x, y: collections.defaultdict(list, {"a": [x]}),
        lambda x, y: collections.defaultdict(None, {"a": [x]}),
        lambda x, y: collections.Counter("abca"),
        lambda x, y: collections.ChainMap({"a": x}, {"b": y}),
        lambda x, y: MyList([x, MyList([y])]),
        lambda x, y: filled(MyList([x]), name="me"),
        lambda x, y: filled(MyDict({"a": x}), name=y),
        lambda x, y: MySet({1, 2}),
        lambda x, y: MyFrozenset({1, 2}),
        lambda x, y: filled(MyDeque([x], maxlen=7), name=y),
        lambda x, y: filled(MyTuple((x, y)), name="me"),
        lambda x, y: [MyInt(3), MyFloat(-0.0), MyStr("s"), MyBytes(b"b"), MyComplex(1j), MyInt(10**40)],
        lambda x, y: filled(MyInt(3), tensor=x),
        lambda x, y: torch.return_types.max((x, y)),
        lambda x, y: types.SimpleNamespace(a=x, b=[y]),
        lambda x, y: types.MappingProxyType({"a": x}),
        lambda x, y: bytearray(b"abc"),
        lambda x, y: [object(), object()],
        lambda x, y: torch.Size([2, 3]),
        lambda x, y: re.compile("a+"),
        lambda x, y: list[int],
    ],
)
def test_containers(make: Any) -> None:
    rebuild(make)


def test_ordered_dict_has_its_own_order() -> None:
    def make(x: Any, y: Any) -> Any:
        d = MyOrdered()
        for key, value in (("a", x), ("b", y), ("c", 3)):
            collections.OrderedDict.__setitem__(d, key, value)
        d.move_to_end("a")
        d.move_to_end("c", last=False)
        return d

    assert list(rebuild(make)) == ["c", "b", "a"]


def test_mutable_objects_are_new_each_time() -> None:
    residual = replay.World().build([[], {}, set(), object()])
    first, second = residual.run(), residual.run()
    assert first is not second
    assert all(a is not b for a, b in zip(first, second))


def test_one_object_stays_one() -> None:
    def make(x: Any, y: Any) -> Any:
        shared = [x]
        key = Point(1, (2,))
        return {"a": shared, "b": (shared, [shared]), "c": key, "d": [key, x, x]}

    result = rebuild(make)
    assert result["a"] is result["b"][0] is result["b"][1][0]
    assert result["c"] is result["d"][0]


def test_cycles() -> None:
    def make(x: Any, y: Any) -> Any:
        loop: list[Any] = [x]
        loop.append(loop)
        mapping: dict[str, Any] = {"loop": loop}
        mapping["self"] = (mapping, loop)
        a, b = plain(t=x), plain(t=y)
        a.__dict__["other"], b.__dict__["other"] = b, a
        a.__dict__["bound"] = a.method
        queue = collections.deque([a])
        queue.append((queue,))
        return loop, mapping, a, queue

    rebuild(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: [decimal.Decimal("1.5"), x],
        lambda x, y: [decimal.Context(prec=5, flags=[decimal.Inexact]), x],
        lambda x, y: [vars(type)["__name__"], x],
        lambda x, y: [vars(dict)["fromkeys"], x],
        lambda x, y: [range(2, 9, 3), x],
    ],
    ids=["decimal", "decimal_context", "getset_descriptor", "classmethod_descriptor", "range"],
)
def test_what_traces_seldom_make(make: Any) -> None:
    rebuild(make)


def test_a_number_of_its_own_for_every_run() -> None:
    residual = replay.World(made_here).build([decimal.Decimal("1.5")])
    one, other = residual.run({}, [])[0], residual.run({}, [])[0]
    assert one == other == decimal.Decimal("1.5")
    assert one is not other


def test_deep_structures() -> None:
    def nested_lists(x: Any, y: Any) -> Any:
        out: Any = [x]
        for _ in range(20_000):
            out = [out]
        return out

    world = replay.World()
    made = nested_lists(torch.ones(1), None)
    result = world.build(made).run({}, [torch.ones(1)])
    depth = 0
    while isinstance(result[0], list):
        result, depth = result[0], depth + 1
    assert depth == 20_000

    nested: Any = (torch.ones(1),)
    for _ in range(5_000):
        nested = (nested,)
    with pytest.raises(replay.CannotRebuild, match="nested too deeply"):
        replay.World().build(nested)


def test_order_of_sets() -> None:
    # Hashes of a class of the user's, and of tuples, decide an order too: these all meet in one place of a small table.
    for names in itertools.permutations([0, 8, 16, 24], 3):
        rebuild(lambda x, y, names=names: [{Number(n) for n in names}, x])
        rebuild(lambda x, y, names=names: [frozenset(Number(n) for n in names), x])
    for pairs in itertools.permutations([(0, 1), (1, 0), (2, 3), (4, "a")]):
        rebuild(lambda x, y, pairs=pairs: [set(pairs), x])
    for numbers in ([8, 0], [0, 8, 16, 24], list(range(50)), [1, 100, 33, 65, 129], ["a", "b", "c", "d", "e", "f"]):
        rebuild(lambda x, y, numbers=numbers: set(numbers))
        rebuild(lambda x, y, numbers=numbers: [set(numbers).copy(), x])
        rebuild(lambda x, y, numbers=numbers: [frozenset(numbers), x])
        rebuild(lambda x, y, numbers=numbers: [set(numbers) | {1000}, x])

    # Tables of every fullness, in which elements stand in each other's way.
    draw = random.Random(0)
    for _ in range(300):
        some = draw.sample(range(0, 4096, draw.choice([1, 8, 32, 257])), draw.choice([6, 7, 9, 15]))
        rebuild(lambda x, y, some=some: [set(some).copy(), {str(n) for n in some}, frozenset(some) | {1, 9}, x])

    def shrunk(x: Any, y: Any) -> Any:
        numbers = set(range(1000))
        numbers.intersection_update({8, 1, 1000, 264, 520})
        return [numbers, x]

    try:
        rebuild(shrunk)
    except replay.CannotRebuild as error:
        assert "order of iteration" in str(error)


# ---- instances


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: plain(a=x, b=[y], c="c"),
        lambda x, y: plain(limit=x),
        lambda x, y: plain(WithProperty, value=x, other=y),
        lambda x, y: Record(x, [y]),
        lambda x, y: [plain()] * 3,
        lambda x, y: plain(**{"a": plain(a=plain(a=x))}),
    ],
)
def test_instances(make: Any) -> None:
    rebuild(make)


def test_slots() -> None:
    def make(x: Any, y: Any) -> Any:
        a, b = Slotted(), SlottedMore()
        a.first = x
        b.second, b.extra = [a, y], b
        SlottedMore.__dict__["_SlottedMore__third"].__set__(b, "third")
        return a, b

    rebuild(make)


def test_instance_dicts_that_are_seen() -> None:
    def before(x: Any, y: Any) -> Any:
        p = plain(a=x)
        return p.__dict__, p

    def after(x: Any, y: Any) -> Any:
        p = plain(a=x)
        return p, p.__dict__, [p.__dict__]

    def inside(x: Any, y: Any) -> Any:
        p = plain(a=x)
        p.__dict__["me"] = p.__dict__
        return p

    def shared(x: Any, y: Any) -> Any:
        p, q = plain(a=x), plain()
        object.__setattr__(q, "__dict__", p.__dict__)
        return [p, q]

    for make in (before, after, inside, shared):
        rebuild(make)
    result = rebuild(shared)
    result[0].__dict__["new"] = 1
    assert result[1].new == 1


def test_attributes_that_are_no_names() -> None:
    def make(x: Any, y: Any) -> Any:
        p = plain(a=x)
        p.__dict__[3] = y
        return p

    rebuild(make)


def test_keys_with_hashes_of_their_own() -> None:
    def make(x: Any, y: Any) -> Any:
        k = Key("a")
        return {k: x, (Key("b"), 1): {Key("c"): k}}, {Key("d"), k}, frozenset({Key("e")}), [frozenset({(1, Key("f"))})]

    result = rebuild(make)
    assert result[0][Key("a")] is not None and Key("d") in result[1] and Key("e") in result[2]
    assert (1, Key("f")) in result[3][0]


def test_tensors_keep_type_and_attributes() -> None:
    fake = torch.nn.Parameter(torch.zeros(2))
    fake.note = ["mine", fake]
    leaf = torch.zeros(2, requires_grad=True)
    residual = replay.World().build((fake, leaf, fake))
    assert residual.outputs[0] is fake and residual.outputs[1] is leaf and len(residual.outputs) == 2
    a, b = torch.ones(2), torch.full((2,), 2.0)
    first, second, third = residual.run({}, [a, b])
    assert type(first) is torch.nn.Parameter and first.requires_grad and torch.equal(first, torch.ones(2))
    assert first is third and first.note == ["mine", first] and first.note[1] is first
    assert second is b and second.requires_grad
    ready = torch.nn.Parameter(torch.ones(2))
    assert residual.run({}, [ready, b])[0] is ready


# ---- functions


def test_functions() -> None:
    def make(x: Any, y: Any) -> Any:
        count = 0

        def inner(a: int, b: Any = x, *, c: Any = y, d: list[str] | None = None) -> Any:
            """Its text."""
            return count, b, c, x

        inner.attribute = [y]

        def recursive(n: int) -> Any:
            nonlocal count
            count += 1
            return recursive(n - 1) if n else inner

        def renamed() -> None: ...

        renamed.__name__, renamed.__doc__, renamed.__module__ = "other", "text", "elsewhere"
        renamed.__qualname__ = "make.<locals>.make.other"
        return inner, recursive, renamed, lambda: renamed

    inner, recursive, renamed, lam = rebuild(make)
    assert inner(1)[1] is inner.__defaults__[0] and inner(1)[0] == 0
    assert recursive(3) is inner and inner(1)[0] == 4  # one cell
    assert renamed.__name__ == "other" and lam() is renamed


def test_empty_cells() -> None:
    def make(x: Any, y: Any) -> Any:
        def inner() -> Any:
            return later

        if False:
            later = x
        return inner

    with pytest.raises(NameError):
        rebuild(make)()


def test_methods_and_builtins() -> None:
    def make(x: Any, y: Any) -> Any:
        p, items = plain(a=x), [y]
        return (
            p,
            p.method,
            items,
            items.append,
            items.__len__,
            "a".join,
            Plain.method.__get__(p),
            {}.fromkeys,
            dict.fromkeys,
        )

    p, method, items, append, length, *_ = rebuild(make)
    append(1)
    assert method() is p and len(items) == 2 == length()


def test_partials() -> None:
    def make(x: Any, y: Any) -> Any:
        inner = functools.partial(max, x, key=y)
        inner.note = "kept apart"
        outer = functools.partial(inner, [y], default=inner)
        return outer, outer.keywords, inner.args, functools.partial(lambda: x)

    rebuild(make)


def test_super_property_static_class_methods() -> None:
    def make(x: Any, y: Any) -> Any:
        def getter(self: Any) -> Any:
            """The getter's text."""
            return x

        p = plain(a=x)
        return (
            super(Plain, p),
            super(Plain, Plain),
            property(getter),
            property(getter, getter, None, "text"),
            staticmethod(getter),
            classmethod(getter),
        )

    rebuild(make)


def test_weak_references() -> None:
    def make(x: Any, y: Any) -> Any:
        p = plain(a=x)
        gone = weakref.ref(Record(1))
        gc.collect()
        calls: list[Any] = []
        return p, weakref.ref(p), weakref.ref(p), gone, weakref.ref(p, calls.append), calls

    p, ref, same, gone, with_callback, calls = rebuild(make)
    assert ref() is p and ref is same and gone() is None
    del p
    gc.collect()
    assert ref() is None and calls == [with_callback]


def test_weak_containers() -> None:
    def make(x: Any, y: Any) -> Any:
        p = plain(a=x)
        d, s = weakref.WeakValueDictionary(), weakref.WeakSet()
        d["p"] = p
        s.add(p)
        return p, d, s, weakref.WeakMethod(p.method)

    world = replay.World(lambda f: isinstance(f, types.FunctionType) and f.__name__ in ("remove", "_remove", "_cb"))
    p, d, s, m = world.build(make(torch.zeros(1), None)).run({}, [torch.ones(1)])
    assert d["p"] is p and p in s and m()() is p
    del p
    gc.collect()
    assert len(d) == 0 and len(s) == 0 and m() is None


# ---- exceptions


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise error from cause
    except BaseException as caught:
        return caught


def test_exceptions() -> None:
    def make(x: Any, y: Any) -> Any:
        bare = Exception.__new__(MyError, "a", x)
        bare.note = y
        noted = ValueError("text", [x])
        noted.add_note("a note")
        loop = RuntimeError()
        loop.args = (loop,)  # its repr never ends
        return (
            bare,
            noted,
            loop,
            raised(ValueError(x)),
            raised(ValueError(1), TypeError(2)),
            raised(ValueError(1), None),
            OSError(2, "No such file", "name"),
            FileNotFoundError(2, "No such file"),
            StopIteration(x),
            SystemExit(3),
            ImportError("no", name="n", path="p"),
            AttributeError("no", name="n", obj=bare),
            UnicodeDecodeError("utf-8", b"abc", 1, 2, "reason"),
            SyntaxError("bad", ("file", 1, 2, "text")),
            ExceptionGroup("group", [ValueError(x), ExceptionGroup("inner", [KeyError("k")])]),
            BaseExceptionGroup("group", [KeyboardInterrupt()]),
            torch.cuda.OutOfMemoryError("text"),
        )

    result = rebuild(make)
    assert str(result[6]) == "[Errno 2] No such file: 'name'"
    assert result[3].__context__.args == ("first",) and result[4].__cause__.args == (2,)


def test_tracebacks_show_the_same_lines() -> None:
    import traceback

    def make(x: Any, y: Any) -> Any:
        return raised(ValueError(1))

    stand_in, real = make(0, 0), None
    residual = replay.World(made_here).build(stand_in)
    real = residual.run()
    assert real is not stand_in
    assert traceback.format_exception(real) == traceback.format_exception(stand_in)
    assert real.__traceback__.tb_frame is not stand_in.__traceback__.tb_frame
    try:
        raise real
    except ValueError as again:
        assert len(traceback.extract_tb(again.__traceback__)) == len(traceback.extract_tb(stand_in.__traceback__)) + 1


# ---- iterators and views


def advanced(iterator: Any, steps: int) -> Any:
    for _ in range(steps):
        next(iterator)
    return iterator


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: advanced(iter([x, y, 1]), 1),
        lambda x, y: advanced(iter((x, y, 1)), 2),
        lambda x, y: advanced(reversed([x, y, 1]), 1),
        lambda x, y: advanced(iter(range(5)), 2),
        lambda x, y: advanced(iter(range(1 << 70)), 2),
        lambda x, y: advanced(iter("abc"), 1),
        lambda x, y: advanced(iter("a\u1234c"), 1),
        lambda x, y: advanced(iter(b"abc"), 1),
        lambda x, y: iter(collections.deque([x, y])),
        lambda x, y: advanced(iter(collections.deque([x, y])), 1),
        lambda x, y: advanced(enumerate([x, y], 5), 1),
        lambda x, y: advanced(zip([x, y], "ab"), 1),
        lambda x, y: advanced(zip([x, y], [1, 2], strict=True), 1),
        lambda x, y: map(id_of_one, [1, 2]),
        lambda x, y: filter(None, [1, 0, 2]),
        lambda x, y: advanced(reversed(range(5)), 1),
        lambda x, y: advanced(itertools.chain([x], [y, 1]), 2),
        lambda x, y: itertools.count(3, 2),
        lambda x, y: advanced(itertools.cycle([x, y]), 3),
        lambda x, y: itertools.repeat(x, 3),
        lambda x, y: advanced(itertools.islice([x, y, 1, 2], 1, 4), 1),
        lambda x, y: advanced(itertools.product("ab", [1, 2]), 1),
        lambda x, y: advanced(itertools.permutations([1, 2, 3], 2), 2),
        lambda x, y: advanced(itertools.combinations([1, 2, 3], 2), 1),
        lambda x, y: advanced(itertools.accumulate([1, 2, 3]), 1),
        lambda x, y: itertools.starmap(max, [(1, 2)]),
        lambda x, y: itertools.takewhile(bool, [1, 1, 0]),
        lambda x, y: advanced(itertools.dropwhile(bool, [1, 0, 2, 3]), 1),
        lambda x, y: itertools.compress("abc", [1, 0, 1]),
        lambda x, y: advanced(itertools.zip_longest([x], [1, 2], fillvalue=y), 1),
        lambda x, y: {"a": x}.keys(),
        lambda x, y: {"a": x}.values(),
        lambda x, y: {"a": x}.items(),
        lambda x, y: collections.OrderedDict(a=x).items(),
        lambda x, y: advanced(iter({"a": x, "b": y}), 1),
        lambda x, y: advanced(iter({"a": x, "b": y}.values()), 1),
        lambda x, y: advanced(iter({"a": x, "b": y}.items()), 1),
        lambda x, y: advanced(iter({"a": x, "b": y}.values()), 2),
        lambda x, y: advanced(iter({"a": x, "b": y}), 2),
        lambda x, y: iter({}.items()),
        lambda x, y: (operator.itemgetter(1, 2), operator.attrgetter("a.b"), operator.methodcaller("f", 1, k=2)),
    ],
)
def test_iterators(make: Any) -> None:
    rebuild(make)


def id_of_one(value: Any) -> Any:
    return value


def test_iterators_belong_to_their_container() -> None:
    def make(x: Any, y: Any) -> Any:
        items = [x, y]
        items.append(advanced(iter(items), 1))
        mapping = {"a": x, "b": y}
        view = mapping.keys()
        return items, items[2], mapping, view, advanced(iter(mapping), 1), list(view)

    rebuild(make)
    residual = replay.World().build(make(torch.zeros(1), torch.zeros(1)))
    items, iterator, mapping, view, keys, _ = residual.run({}, [torch.ones(1), torch.ones(1)])
    items.append("more")
    assert "more" in list(iterator)
    mapping["c"] = 1
    assert list(view) == ["a", "b", "c"]
    with pytest.raises(RuntimeError):
        next(keys)


def test_generators_stand_where_they_stood() -> None:
    def inner(held: Any) -> Any:
        yield held[0]
        return "inner"

    def steps(first: Any, held: Any, name: str = "n") -> Any:
        local = [first, held]
        got = yield first
        local.append(got)
        local.append((yield from inner(held)))
        yield name, local

    def make(x: Any, y: Any) -> Any:
        held = [y]
        new, started, inside, done = (steps(x, held) for _ in range(4))
        next(started)
        next(inside)
        inside.send("sent")
        list(done)
        return held, new, started, inside, done

    x, y = torch.zeros(1), torch.ones(1)
    residual = replay.World().build(make(x, y))
    for _ in range(2):
        held, new, started, inside, done = residual.run({}, [a := torch.ones(2), b := torch.ones(3)])
        assert held[0] is not y and {id(a), id(b)} >= {id(held[0])}
        first = next(new)
        assert first is not x and first is not held[0]
        assert new.send("again") is held[0] and started.send("sent") is held[0]
        for generator_object, sent in ((new, "again"), (started, "sent"), (inside, "sent")):
            ((name, local),) = list(generator_object)
            assert name == "n" and local[0] is first and local[1] is held and local[2:] == [sent, "inner"]
        assert list(done) == []
        assert inside.__name__ == "steps" and inside.__qualname__.endswith("<locals>.steps")


def test_exhausted_iterators() -> None:
    def make(x: Any, y: Any) -> Any:
        def done(iterator: Any) -> Any:
            list(iterator)
            return iterator

        return [
            done(iter([x])),
            done(iter({"a": x})),
            done(iter((x,))),
            done(zip([x])),
            done(enumerate([x])),
            done(iter(range(2))),
        ]

    for iterator in rebuild(make):
        assert list(iterator) == []


# ---- classes


def test_classes_are_made_anew() -> None:
    def make(x: Any, y: Any) -> Any:
        class Base:
            """Text."""

            shared = [x]

            def __init__(self, value: Any) -> None:
                super().__init__()
                self.value = value

            def __eq__(self, other: Any) -> bool:
                return isinstance(other, Base) and self.value is other.value

            @property
            def twice(self) -> Any:
                return self.value, self.value

            @staticmethod
            def static() -> Any:
                return y

            @classmethod
            def create(cls) -> Any:
                return cls(x)

        class Derived(Base, Slotted):
            __slots__ = ["extra", "more"]
            inner: int = 3

            def __hash__(self) -> int:
                return 7

            def __init_subclass__(cls) -> None:
                raise AssertionError("must not run")

        Derived.added = "later"
        made = Derived(x)
        made.extra = y
        return Base, Derived, made, Base(y), made.create, {made: "key"}

    Base, Derived, made, base, create, mapping = rebuild(make)
    assert made.twice[0] is made.value and Base.static() is made.extra
    assert type(create()) is Derived and isinstance(made, Base) and made == create()
    assert mapping[made] == "key" and Derived.__doc__ is None and Base.__doc__ == "Text."
    with pytest.raises(TypeError):
        hash(base)
    with pytest.raises(AttributeError):
        del base.twice
    again = rebuild(make)
    assert again[0] is not Base


def test_classes_with_metaclasses() -> None:
    def make(x: Any, y: Any) -> Any:
        class Meta(type):
            def __new__(cls, name: str, bases: Any, space: Any) -> Any:
                made = super().__new__(cls, name, bases, space)
                count.append(name)
                return made

            def __call__(cls, *args: Any) -> Any:
                return (cls, args)

            def __setattr__(cls, name: str, value: Any) -> None:
                raise AssertionError("must not run")

        count: list[str] = []

        class Made(metaclass=Meta):
            tensor = x

        return Meta, Made, count

    Meta, Made, count = rebuild(make)
    assert count == ["Made"] and Made(1) == (Made, (1,))


def test_abstract_classes_and_enums() -> None:
    def make(x: Any, y: Any) -> Any:
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self) -> Any: ...

        class Square(Shape):
            def area(self) -> Any:
                return x

        class Level(enum.IntEnum):
            LOW = 1
            HIGH = 2

        return Shape, Square, Level, Level.HIGH

    world = replay.World(lambda o: made_here(o) or getattr(o, "__qualname__", "").startswith("Level."))
    Shape, Square, Level, high = world.build(make(torch.zeros(1), None)).run({}, [torch.ones(1)])
    with pytest.raises(TypeError):
        Shape()
    assert torch.equal(Square().area(), torch.ones(1)) and isinstance(Square(), Shape)
    assert Level.HIGH is high and Level(2) is high and Level["LOW"].value == 1 and type(high) is Level


def test_classes_that_cannot_be_made_again() -> None:
    class Registry:
        found: list[Any] = []

        def __init_subclass__(cls) -> None:
            Registry.found.append(cls)

    def make(x: Any, y: Any) -> Any:
        class Made(Registry):
            pass

        return Made

    with pytest.raises(replay.CannotRebuild, match="__init_subclass__"):
        rebuild(make)


# ---- what is never reconstructed


class Thread:
    pass


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x, y: memoryview(b"a"), "a memory view"),
        (lambda x, y: weakref.proxy(Thread), "a weak proxy"),
        (lambda x, y: sys._getframe(), "a frame"),
        (lambda x, y: iter({1, 2}), "over a set"),
        (lambda x, y: __import__("threading").Lock(), "a lock"),
        (lambda x, y: open("/dev/null"), "_io.TextIOWrapper"),  # noqa: SIM115
        (lambda x, y: functools.lru_cache(len), "lru_cache"),
        (lambda x, y: types.ModuleType("new"), "sys.modules"),
        (lambda x, y: __import__("threading").local(), "local"),
        (lambda x, y: type("C", (), {}).__dict__, "belong to a class"),
    ],
)
def test_what_is_never_made_again(make: Any, words: str) -> None:
    with pytest.raises(replay.CannotRebuild, match=words):
        replay.World(made_here).build(make(torch.zeros(1), torch.zeros(1)))


# ---- the program itself


def test_text() -> None:
    assert text_of(lambda x, y: (x, [y, 1], {"a": x})) == (
        "t0 = [graph[1], 1]\nt1 = {'a': graph[0]}\nt2 = (graph[0], t0, t1)\nreturn t2\n"
    )
    for make in (lambda x, y: [plain(a=x)], lambda x, y: {x}, lambda x, y: raised(ValueError(x))):
        assert "return t" in text_of(make)


def test_nothing_leaks() -> None:
    def make(x: Any, y: Any) -> Any:
        class Made:
            value = x

        def function(a: Any = y) -> Any:
            return Made, x

        loop: list[Any] = [function, Made(), raised(ValueError(x)), {Key("a"): plain(a=y)}, {1, 2}, iter([x])]
        loop.append(loop)
        return loop

    world = replay.World(made_here)
    residual = world.build(make(torch.zeros(1), torch.zeros(1)))
    tensors = [torch.ones(1), torch.ones(1)]
    for _ in range(3):
        residual.run({}, tensors)
    gc.collect()
    before = len(gc.get_objects()), [sys.getrefcount(t) for t in tensors]
    for _ in range(50):
        residual.run({}, tensors)
    gc.collect()
    after = len(gc.get_objects()), [sys.getrefcount(t) for t in tensors]
    assert abs(after[0] - before[0]) <= 3 and after[1] == before[1]


def holder_of(value: Any) -> Any:
    return lambda: value


def test_a_program_keeps_nothing_of_the_trace() -> None:
    p, t = plain(a=1), torch.zeros(1)
    made = [p, t, holder_of(p)]
    watch = [weakref.ref(p), weakref.ref(t)]
    world = replay.World(lambda o: isinstance(o, types.FunctionType))
    residual = world.build(made)
    text = residual.text()
    outputs = len(residual.outputs)
    del world, made, p, t
    residual.outputs.clear()
    gc.collect()
    assert [w() for w in watch] == [None, None] and outputs == 1
    assert residual.text() == text

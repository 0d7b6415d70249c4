"""Python code that an instruction reaches through C code of its own: what the inner frame returns is not what the instruction gives.

`d[key]` may call key.__hash__, `a != b` may call a.__eq__ and negate it, `x = None` may call a finalizer. Continuing such a chain by pushing
the inner result would be a wrong answer. Each point must either be continued rightly or be refused.
"""
from __future__ import annotations

import functools
import weakref
from typing import Any

from programs import program, where


class Key:
    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        number = self.value
        return number

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Key) and other.value == self.value
        return same

    def __index__(self) -> int:
        index = self.value
        return index

    def __str__(self) -> str:
        text = f"<{self.value}>"
        return text

    def __repr__(self) -> str:
        return "Key" + str(self)

    def __format__(self, spec: str) -> str:
        padded = str(self.value).rjust(len(spec))
        return padded


@program(cannot="BUILD_MAP|STORE_SUBSCR|BINARY_SUBSCR|CONTAINS_OP|DELETE_SUBSCR|BUILD_SET|MAP_ADD|SET_ADD")
def hashed_keys() -> Any:
    table = {Key(1): "one"}
    table[Key(2)] = "two"
    out = [table[Key(1)], Key(2) in table, Key(3) in table, table[Key(2)]]
    del table[Key(1)]
    members = {Key(1), Key(1), Key(2)}
    out += [len(table), len(members), Key(1) in members, {**table, Key(4): 0}[Key(4)]]
    listed = {Key(value): value for value in (1, 2, 1)}
    return out, len(listed), len({Key(value) for value in (1, 2, 1)})


@program(cannot="COMPARE_OP|CONTAINS_OP")
def compared_elements() -> Any:
    left, right = [Key(1), Key(2)], [Key(1), Key(2)]
    out = [left == right, left != right, Key(2) in left, Key(9) in left, (Key(1),) == (Key(1),), Key(1) != Key(1), Key(1) != Key(2)]
    return out


@program(cannot="BINARY_SUBSCR|BINARY_SLICE|STORE_SLICE|BINARY_OP|STORE_SUBSCR|DELETE_SUBSCR")
def indexed() -> Any:
    items = [10, 20, 30]
    out: list[Any] = [items[Key(1)], items[Key(0) : Key(2)], "ab" * Key(2), [0] * Key(2), items[Key(2)]]
    items[Key(0)] = 11
    items[Key(1) : Key(2)] = [21, 22]
    del items[Key(3)]
    return out, items


@program(cannot="FORMAT_|CONVERT_VALUE|CALL.* of (format|<class 'type'>)|BINARY_OP")
def formatted() -> Any:
    key = Key(7)
    return f"{key}", f"{key!s}", f"{key!r}", f"{key:xxx}", "%s" % key, "%r-%s" % (key, key), "{}".format(key), str(key)


@program(cannot="COMPARE_OP")
def refused_operators() -> Any:
    class Left:
        def __add__(self, other: Any) -> Any:
            return NotImplemented

        def __lt__(self, other: Any) -> Any:
            return NotImplemented

        def __eq__(self, other: object) -> Any:
            return NotImplemented

        def __isub__(self, other: Any) -> Any:
            return NotImplemented

        def __sub__(self, other: Any) -> Any:
            return "sub"

    class Right:
        def __radd__(self, other: Any) -> Any:
            return "radd"

        def __gt__(self, other: Any) -> Any:
            return "gt"

        def __eq__(self, other: object) -> Any:
            return "eq"

    class More(Left):
        def __radd__(self, other: Any) -> Any:
            return "subclass first"

    left: Any = Left()
    out: list[Any] = [left + Right(), left < Right(), left == Right(), left == left, Left() + More()]
    left -= 1
    out.append(left)
    try:
        Left() + Left()
    except TypeError as error:
        out.append(str(error))
    try:
        Left() < 3
    except TypeError as error:
        out.append(str(error))
    return out


@program(cannot="BINARY_OP|COMPARE_OP")
def one_function_for_both_sides() -> Any:
    """The same function is asked as the left and as the right operand's method: which of the two calls was it?"""

    class Base:
        def __init__(self, name: str) -> None:
            self.name = name

        def ask(self, other: Any) -> Any:
            log.append((self.name, other.name))
            return NotImplemented if self.name == "left" else (self.name, other.name)

        __add__ = __radd__ = __iadd__ = ask
        __lt__ = __gt__ = __eq__ = ask

    class One(Base):
        pass

    class Two(Base):
        pass

    log: list[Any] = []
    one: Any = One("left")
    two: Any = Two("right")
    out: list[Any] = [one + two, two + one, one < two, one == two, one == One("other"), two > one]
    one += two
    out.append(one)
    nobody = One("left")
    try:
        nobody < Two("left")
    except TypeError as error:
        out.append(str(error))
    try:
        nobody + Two("left")
    except TypeError as error:
        out.append(str(error))
    out.append((nobody == Two("left"), nobody == nobody))
    return out, log


@program(cannot="LOAD_ATTR")
def attribute_fallbacks() -> Any:
    class Half:
        @property
        def broken(self) -> Any:
            raise AttributeError("inner")

        def __getattr__(self, name: str) -> Any:
            return "fallback " + name

    class Lazy:
        @functools.cached_property
        def value(self) -> int:
            made = 5
            return made

    class Plain:
        @property
        def call(self) -> Any:
            chosen = len
            return chosen

    class Child(Plain):
        @property
        def call(self) -> Any:
            below = super().call
            return below

    half, lazy = Half(), Lazy()
    return half.broken, half.other, lazy.value, lazy.value, Plain().call("abc"), Child().call([1]), Half().broken.upper()


@program(cannot="FOR_ITER|SEND|a generator being closed")
def iterators_from_c() -> Any:
    def twice(value: int) -> int:
        doubled = value * 2
        return doubled

    def odd(value: int) -> bool:
        return value % 2 == 1

    def steps() -> Any:
        for value in (1, 2):
            yield value

    counter = iter([1, 2, 0, 3])
    out: list[Any] = []
    for value in map(twice, (1, 2)):
        out.append(value)
    for value in filter(odd, (1, 2, 3)):
        out.append(value)
    for pair in enumerate(steps()):
        out.append(pair)
    for pair in zip(steps(), steps()):
        out.append(pair)
    for value in iter(lambda: next(counter), 0):
        out.append(value)

    def relayed() -> Any:
        yield from map(twice, (3, 4))

    out += [value for value in relayed()]
    return out


@program(cannot="a finalizer")
def finalizers() -> Any:
    class Noisy:
        def __init__(self, name: str) -> None:
            self.name = name

        def __add__(self, other: Any) -> Any:
            return self.name + "+"

        # A capture that is dropped may leave one behind whose __init__ never ended.
        name = "unnamed"

        def __del__(self) -> None:
            log.append(self.name)
            log.append(len(where()) > 2)

    def use(thing: Any) -> int:
        del thing
        return 1

    log: list[Any] = []
    kept = Noisy("a")
    kept = None
    out: list[Any] = [Noisy("b") + 1, use(Noisy("c")), [Noisy("d")] == [], kept]
    for _ in [Noisy("e")]:
        pass
    Noisy("f")
    table = {"k": Noisy("g")}
    table["k"] = 0
    watched = Key(1)
    reference = weakref.ref(watched, lambda gone: log.append("gone"))
    watched = Key(2)
    return out, log, reference() is None


class Folding(dict):  # type: ignore[type-arg]
    """A namespace whose lookups are Python code; names that it lacks fall through to globals."""

    def __getitem__(self, name: str) -> Any:
        if name == "virtual":
            return 42
        return dict.__getitem__(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        dict.__setitem__(self, name, value)


@program(cannot="CALL.* of __build_class__|LOAD_NAME|STORE_NAME")
def python_namespace() -> Any:
    class Meta(type):
        @classmethod
        def __prepare__(mcs, name: str, bases: Any) -> Any:
            return Folding()

        def __new__(mcs, name: str, bases: Any, space: Any) -> Any:
            return super().__new__(mcs, name, bases, dict(space))

    class Body(metaclass=Meta):
        first = virtual  # type: ignore[name-defined]  # noqa: F821
        second = len("abc")
        third = first + second

    return Body.first, Body.second, Body.third


@program(cannot="BINARY_OP|UNPACK_SEQUENCE|LIST_EXTEND|SET_UPDATE|CALL_FUNCTION_EX|DICT_UPDATE|DICT_MERGE")
def containers_from_python() -> Any:
    class Filling(dict):  # type: ignore[type-arg]
        def __missing__(self, key: Any) -> Any:
            made = key * 2
            return made

    class Pair:
        def __iter__(self) -> Any:
            yield 1
            yield 2

        def keys(self) -> Any:
            names = ["x", "y"]
            return names

        def __getitem__(self, key: Any) -> Any:
            found = str(key) + "!"
            return found

    def take(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    items = [0]
    items += Pair()
    first, second = Pair()
    out = [Filling()[3], items, first, second, [*Pair()], {*Pair()}, (*Pair(),), {**Pair()}, take(*Pair()), take(**Pair())]
    match {"x": 1}:
        case {"x": value}:
            out.append(value)
    return out


@program(cannot="LIST_EXTEND")
def truth_refused() -> Any:
    class Odd:
        def __bool__(self) -> Any:
            return 3

    class Long:
        def __len__(self) -> int:
            return -1

    class Loose:
        def __contains__(self, item: Any) -> Any:
            return "yes"

        def __iter__(self) -> Any:
            return 5

    out: list[Any] = [1 in Loose()]
    for attempt in (lambda: not Odd(), lambda: not Long(), lambda: [*Loose()], lambda: 1 if Odd() else 2):
        try:
            out.append(attempt())
        except (TypeError, ValueError) as error:
            out.append(str(error))
    try:
        for _ in Loose():
            pass
    except TypeError as error:
        out.append(str(error))
    return out


@program(cannot="CALL.* of isinstance|MATCH_CLASS")
def instance_checks() -> Any:
    class Meta(type):
        def __instancecheck__(cls, other: Any) -> Any:
            answer = other == 5
            return answer

        @property
        def __match_args__(cls) -> Any:
            return ("real",)

    class Five(metaclass=Meta):
        pass

    out = [isinstance(5, Five), isinstance(6, Five)]
    for subject in (5, 6):
        match subject:
            case Five(real):
                out.append(real)
            case _:
                out.append("no")
    return out


@program(cannot="GET_ANEXT|GET_AWAITABLE|GET_AITER")
def awaitables_by_hand() -> Any:
    class Ready:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __await__(self) -> Any:
            made = iter([self.value])
            return made

    class Steps:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> Any:
            this = self
            return this

        def __anext__(self) -> Any:
            if self.left == 0:
                raise StopAsyncIteration
            self.left -= 1
            return Ready(self.left)

    class Wrong:
        def __await__(self) -> Any:
            return 5

    async def body() -> Any:
        out: list[Any] = [await Ready(1)]
        async for value in Steps():
            out.append(value)
        try:
            await Wrong()
        except TypeError as error:
            out.append(str(error))
        return out

    running, asked = body(), []
    while True:
        try:
            asked.append(running.send(None))
        except StopIteration as stop:
            return stop.value, asked


@program(cannot="CALL.* of <class 'functools._lru_cache_wrapper'>")
def called_through_c() -> Any:
    def take(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs, where()

    class Holder:
        method = functools.partialmethod(take, 1)

    partial = functools.partial(take, 1, key=2)
    cached = functools.lru_cache(take)
    return partial(3), Holder().method(2)[0][1:], cached(5), cached(5), take.__get__(7)(8)

"""Functions of the standard library that keep caches: what they give is what eager gives, the very object included."""

from __future__ import annotations

import builtins
import functools
import inspect
import logging
import operator
import pickle
import random
import re
import typing

from harness import T, program

ELEMENT = typing.TypeVar("ELEMENT")
FACTOR = 2
STATE = [1]


@functools.lru_cache
def doubled(n, by=2):
    return n * by


@functools.lru_cache
def scaled(n):
    return n * FACTOR


@functools.lru_cache
def counted(n):
    STATE.append(n)
    return len(STATE)


@program()
def test_cached_function_of_its_arguments(t):
    f = t.compile(lambda x, n: (x * doubled(n), doubled(n, 3), doubled(n, by=4)))
    f(T(2), 3)
    f.hit(T(2), 3)
    f(T(2), 4)
    doubled.cache_clear()
    f(T(2), 3)


@program(one_graph=False)
def test_cached_function_that_reads_a_global(t):
    """The cache keeps what the global was then."""
    scaled.cache_clear()
    t.undo(lambda: globals().update(FACTOR=2))
    f = t.compile(lambda x, n: x * scaled(n))
    f(T(2), 3)
    globals()["FACTOR"] = 5
    f(T(2), 3)
    f(T(2), 4)
    scaled.cache_clear()
    f(T(2), 3)


@program(one_graph=False)
def test_cached_function_that_writes(t):
    counted.cache_clear()
    del STATE[1:]
    t.watch(lambda: list(STATE))
    f = t.compile(lambda x, n: x + counted(n))
    f(T(2), 3)
    f(T(2), 3)
    STATE.append(0)
    f(T(2), 3)
    f(T(2), 5)


@program(one_graph=False)
def test_cached_for_another_nan(t):
    answers = iter(range(100))
    ask = functools.lru_cache(lambda number: next(answers))
    t.watch(ask.cache_info)
    f = t.compile(lambda x, number: (x, ask(number)))
    one = float("nan")
    ask(one)
    for number in (one, float("nan"), one, float("nan")):
        f(T(2), number)


@program(one_graph=False)
def test_cached_before_the_trace(t):
    """What a cache holds already is read from there, whatever the function would say now; hits are counted as in eager."""
    state = {"answer": 3}

    def wanted(*key):
        return state["answer"] + len(key)

    for limit in (None, 2):
        ask = functools.lru_cache(limit)(wanted)
        t.watch(lambda ask=ask: ask.cache_info())
        f = t.compile(lambda x, *key, ask=ask: (x + ask(*key), ask(*key), ask("other")))
        for call in range(3):
            ask("a")
            ask("other")
            f(T(2), "a")
            f(T(2), "a")
            state["answer"] += call
            f(T(2), "a")
            ask(1, 2.5)
            f(T(2), 1, 2.5)
            f(T(2))
            ask.cache_clear()
            f(T(2), "a")


@program()
def test_attributes_without_descriptors(t):
    """inspect.getattr_static keeps in a cache which classes have a `__dict__` of their own."""

    class Base:
        level = 1

        def __init__(self, first=0, *, second=1):
            self.first = first

        @property
        def second(self):
            return 2

    class Slotted:
        __slots__ = ("level",)

    def look(thing, name):
        found = inspect.getattr_static(thing, name, None)
        return found if isinstance(found, int) else type(found)

    def fn(x, thing):
        class Own(Base):
            extra = 2

        own = Own()
        own.level = 5
        inside = look(own, "level"), look(Own, "level"), look(Own, "extra"), look(own, "second"), look(own, "none")
        outside = look(thing, "level"), look(thing, "first"), look(Base, "second"), look(Slotted, "level")
        return x * look(thing, "level"), inside, outside, str(inspect.signature(Own)), str(inspect.signature(Base))

    f = t.compile(fn)
    thing = Base(3)
    f(T(2), Base(3))
    f.hit(T(2), Base(3))
    f(T(2), thing)
    thing.level = 7
    f.miss(T(2), thing)
    Base.level = 4
    f(T(2), thing)
    f.miss(T(2), Base(3))
    f.miss(T(2), Base(4))


@program()
def test_objects_kept_in_a_cache(t):
    built = functools.lru_cache(lambda n: [T(2) * n, {"n": n}])
    built(1), built(2)
    t.watch(lambda: (built.cache_info(), built.__wrapped__))

    def fn(x, n):
        table = built(n)
        table[1]["n"] += 1
        return x * table[0] + table[1]["n"], table, table is built(n)

    f = t.compile(fn)
    f(T(2), 1)
    f(T(2), 1)
    f(T(2), 2)
    built(1).append(3)
    f(T(2), 1)


@program(one_graph=False)
def test_cached_method_reads_its_object(t):
    class Table:
        def __init__(self, width):
            self.width = width

        @functools.lru_cache  # noqa: B019
        def area(self, n):
            return self.width * n

    table = Table(3)
    f = t.compile(lambda x, n: x * table.area(n))
    f(T(2), 2)
    table.width = 4
    f(T(2), 2)
    f(T(2), 3)


@program()
def test_typing_aliases_leave_the_call(t):
    def fn(x):
        aliases = (
            typing.List[int],  # noqa: UP006
            typing.Optional[ELEMENT],  # noqa: UP007
            typing.Callable[[int], ELEMENT],
            typing.Literal[1, "a"],
            typing.List[ELEMENT][str],  # noqa: UP006
        )
        return x + 1, aliases, [a is b for a, b in zip(aliases, EXPECTED, strict=True)]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


EXPECTED = (
    typing.List[int],  # noqa: UP006
    typing.Optional[ELEMENT],  # noqa: UP007
    typing.Callable[[int], ELEMENT],
    typing.Literal[1, "a"],
    typing.List[ELEMENT][str],  # noqa: UP006
)


@program()
def test_typing_aliases_of_a_class_of_the_call(t):
    def fn(x):
        class Made:
            pass

        of_it = typing.List[Made]  # noqa: UP006
        return x + 1, of_it is typing.List[Made], of_it.__args__[0] is Made  # noqa: UP006

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_patterns_are_one_object(t):
    known = re.compile("a(b+)c")

    def fn(x, text):
        pattern = re.compile("a(b+)c")
        found = pattern.search(text)
        return x * (len(found.group(1)) if found else 0), pattern is known, re.sub("b", "d", text)

    f = t.compile(fn)
    f(T(2), "xabbbc")
    f.hit(T(2), "xabbbc")
    f(T(2), "none")


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right


@program()
def test_pickled_texts_and_objects(t):
    """Which of two equal texts are one object shows in the bytes."""

    def fn(x, a, b):
        pair = Pair("left", ["left", a, b])
        data = [pickle.dumps(pair, protocol) for protocol in range(6)]
        again = pickle.loads(data[-1])
        return x + 1, data, again.right, again.left

    f = t.compile(fn)
    one, other = "".join(["te", "xt"]), "".join(["te", "xt"])
    f(T(2), one, other)
    f(T(2), one, one)
    f(T(2), one, other)
    f.hit(T(2), one, other)
    f(T(2), other, one)


@program(one_graph=False)
def test_pickle_that_fails(t):
    def fn(x, data):
        try:
            pickle.loads(data)
        except (pickle.UnpicklingError, EOFError) as e:
            return x + 1, type(e).__name__, str(e)
        return x

    f = t.compile(fn)
    f(T(2), b"")
    f(T(2), b"x")
    f(T(2), pickle.dumps(1))


def used_set(history):
    made = {1, 2, 3}
    if history == "popped":
        made.pop()
        made.add(1)
    if history == "large":
        made = set(range(100))
        made -= set(range(4, 100)) | {0}
    return made


@program()
def test_order_of_a_set_follows_its_history(t):
    def fn(x, s):
        first = s.pop()
        s.add(77)
        s.add(first + 3)
        return x + first, list(s)

    f = t.compile(fn)
    for history in ("", "popped", "large", "", "popped", "large"):
        f(T(2), used_set(history))
    f.hit(T(2), used_set("large"))


class Tagged(set):
    tag = "class"


@program()
def test_subclass_of_set(t):
    def fn(x, s):
        s.add(len(s) + 10)
        s.tag += "+"
        return x * len(s), sorted(s), s.tag, 1 in s, type(s & {1}) is type(s)

    f = t.compile(fn)
    s = Tagged([1, 2])
    f(T(2), s)
    f(T(2), s)
    s.discard(1)
    f(T(2), s)
    f(T(2), Tagged([5]))


@program()
def test_texts_made_of_texts(t):
    def fn(x, d):
        class Shown:
            def __repr__(self):
                return "shown"

            def method(self):
                pass

        return (
            x + 1,
            repr(d.keys()),
            repr(d.values()),
            repr(list[int]),
            repr(int | str),
            repr(operator.itemgetter(1, "a")),
            repr(slice(1, None)),
            repr(Shown().method),
            repr(re.match("a+", "aab")),
        )

    f = t.compile(fn)
    f(T(2), {"a": 1})
    f.hit(T(2), {"a": 1})
    f(T(2), {"a": 2})
    f(T(2), {"b": 2})


@program(one_graph=False)
def test_protocol_of_the_call(t):
    def fn(x, o):
        @typing.runtime_checkable
        class Sized(typing.Protocol):
            def size(self): ...

        return x + 1, isinstance(o, Sized), isinstance(o, typing.Protocol)

    class Box:
        def size(self):
            return 1

    f = t.compile(fn)
    f(T(2), Box())
    f(T(2), 3)
    f(T(2), Box())


@program()
def test_a_generator_with_a_seed(t):
    def fn(x, seed):
        numbers = random.Random(seed)
        first = numbers.random(), numbers.randint(1, 6), numbers.gauss(0, 1), numbers.getrandbits(70)
        state = numbers.getstate()
        rows = list(range(8))
        numbers.shuffle(rows)
        numbers.setstate(state)
        again = numbers.sample(range(9), 4), numbers.choice("abc"), numbers.uniform(1, 2)
        numbers.seed(3)
        return x * first[0], first, rows, again, numbers.random(), numbers

    f = t.compile(fn)
    f(T(2), 3)
    f.hit(T(2), 3)
    f.miss(T(2), 4)
    f.miss(T(2), 2.5)
    f.hit(T(2), 3)
    random.random()
    f.hit(T(2), 4)


@program(one_graph=False)
def test_a_generator_without_a_seed(t):
    class Lazy(random.Random):
        def __init__(self, seed=None):
            pass

    class Made(random.Random):
        def __new__(cls, seed):
            return super().__new__(cls)

        def __init__(self, seed):
            pass

    def fn(x, way):
        numbers = [random.Random, Lazy, lambda: Lazy(seed=3), lambda: Made(3), lambda: random.Random(3)][way]()
        if way == 4:
            numbers.seed()
        return x + 1, numbers.random()

    f = t.compile(fn)
    for way in range(5):
        one, other = f.call(T(2), way)[1], f.call(T(2), way)[1]
        t.note(one != other)


@program()
def test_instances_of_a_protocol_of_the_call(t):
    class Box:
        def size(self):
            return 1

    class Sack(Box):
        size = None

    class Bare:
        pass

    def fn(x, o):
        @typing.runtime_checkable
        class Sized(typing.Protocol):
            def size(self): ...

        @typing.runtime_checkable
        class Named(Sized, typing.Protocol):
            name: str

        class Mine(Sized):
            pass

        answers = isinstance(o, Sized), isinstance(o, Named), issubclass(type(o), Sized), isinstance(Mine(), Sized)
        try:
            return x + 1, answers, issubclass(type(o), Named)
        except TypeError as error:
            return x + 1, answers, str(error)

    f = t.compile(fn)
    f(T(2), Box())
    f.hit(T(2), Box())
    f.miss(T(2), 3)
    f.miss(T(2), Sack())
    f(T(2), Bare())
    f.hit(T(2), Bare())
    Bare.size = Box.size
    f.miss(T(2), Bare())
    named = Box()
    named.name = "box"
    f.miss(T(2), named)
    del Box.size
    f.miss(T(2), Box())


@program()
def test_a_constant_tuple_is_not_none(t):
    def fn(x, pick):
        state = (1, 2) if pick else None
        return x + (1 if state is not None else 2), state is x

    f = t.compile(fn)
    f(T(2), True)
    f(T(2), False)
    f.hit(T(2), True)


@program(one_graph=False)
def test_reduced_iterators_name_the_builtin_of_now(t):
    def fn(x, replace):
        # Nothing is compiled while the name is another one: a backend is Python too, and uses it.
        y = x + 1
        iterator = iter([1, 2])
        known = builtins.iter
        if replace:
            builtins.iter = len
        named = iterator.__reduce__()[0]
        builtins.iter = known
        return y, named is len, named is known

    f = t.compile(fn)
    f(T(2), False)
    f(T(2), True)
    f(T(2), False)


@program()
def test_missing_attribute_says_of_what(t):
    class Plain:
        def __getattribute__(self, name):
            return object.__getattribute__(self, name)

    def fn(x, name):
        plain = Plain()
        try:
            object.__getattribute__(plain, name)
        except AttributeError as e:
            first = e.name, e.obj is plain, str(e)
        try:
            getattr(plain, name)
        except AttributeError as e:
            return x + 1, first, e.name, e.obj is plain, str(e)
        return x

    f = t.compile(fn)
    f(T(2), "missing")
    f.hit(T(2), "missing")
    f(T(2), "other")


@program()
def test_caches_are_filled(t):
    doubled = functools.lru_cache(lambda n, *, plus: 2 * n + plus)
    t.watch(doubled.cache_info)
    f = t.compile(lambda x, n: (x + doubled(n, plus=2), doubled(n, plus=1)))
    for n in (1, 1, 2, 1):
        f(T(2), n)
    doubled.cache_clear()
    f(T(2), 1)
    t.note(doubled(1, plus=2))


class Frozen(frozenset):
    scale = 2

    def total(self):
        return sum(self) * self.scale


@program()
def test_frozen_set_of_a_class_of_its_own(t):
    def fn(x, given):
        return x * given.total(), given | {7}, 3 in given, list(given), sorted(given & frozenset([1, 3])), given.tag

    def tagged(items, tag):
        made = Frozen(items)
        made.tag = tag
        return made

    f = t.compile(fn)
    one = tagged([1, 2, 3], "a")
    f(T(3), one)
    f.hit(T(3), one)
    f.hit(T(3), tagged([1, 2, 3], "a"))
    f.miss(T(3), tagged([1, 2, 4], "a"))
    f.miss(T(3), tagged([1, 2, 3], "b"))

    def writes(x, given):
        given.seen = len(given)
        return x + 1

    f = t.compile(writes)
    for made in (one, one, tagged([5], "c")):
        f(T(3), made)
        t.note(made.seen)


LOGGERS = [logging.getLogger("test_cached_functions.one"), logging.getLogger("test_cached_functions.other")]


def warn_once(logger, text):
    logger.warning(text)


@program(one_graph=False)
def test_caches_that_are_asked_with_a_logger(t):
    once = functools.lru_cache(None)(warn_once)
    limited = functools.lru_cache(2)(warn_once)

    def fn(x, name, text):
        once(LOGGERS[name], text)
        limited(LOGGERS[name], text)
        return x + 1

    f = t.compile(fn)
    for name in (0, 0, 1, 0, 1):
        for text in ("a", "b"):
            f(T(3), name, text)
            t.note((once.cache_info(), limited.cache_info()))
    once.cache_clear()
    f(T(3), 0, "a")
    f(T(3), 0, "a")
    t.note((once.cache_info(), limited.cache_info()))


@program()
def test_cache_that_knows_the_logger_already(t):
    once = functools.lru_cache(None)(warn_once)
    once(LOGGERS[0], "a")

    def fn(x):
        once(LOGGERS[0], "a")
        return x + 1

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))
    t.note(once.cache_info())


@program(one_graph=False)
def test_patterns_that_are_none(t):
    f = t.compile(lambda x, pattern: (x + 1, re.compile(pattern).pattern))
    for pattern in ("(", "a", "[", "("):
        f(T(2), pattern)


class Row:
    def __init__(self, name, tensor):
        self.name, self.tensor = name, tensor

    def scaled(self, by=1):
        return len(self.name) * by

    @property
    def told(self):
        print(self.name)
        return self.name


@program()
def test_getters_as_keys(t):
    name = operator.attrgetter("name")

    def fn(rows):
        ordered = sorted(rows, key=name, reverse=True)
        rows.sort(key=operator.attrgetter("tensor.ndim", "name"))
        longest = max(*rows, key=operator.methodcaller("scaled", by=2))
        shortest = min([], key=name, default=None), min(rows, key=operator.methodcaller("scaled"))
        return [row.tensor * 2 for row in ordered], rows, longest, shortest

    f = t.compile(fn)
    f([Row("b", T(2)), Row("ccc", T(1, 2)), Row("aa", T(3))])
    f.hit([Row("b", T(2, s=1)), Row("ccc", T(1, 2)), Row("aa", T(3))])
    f([Row("b", T(2)), Row("ddd", T(1, 2)), Row("zz", T(3))])
    name = operator.attrgetter("tensor.ndim")
    f([Row("b", T(2)), Row("ddd", T(1, 2)), Row("zz", T(3))])


@program(one_graph=False)
def test_getters_as_keys_that_fail_or_show(t):
    def fn(rows, name):
        key = operator.attrgetter(name)
        try:
            return [row.tensor + 1 for row in sorted(rows, key=key)]
        except AttributeError as error:
            return str(error), error.name

    f = t.compile(fn)
    for name in ("name", "absent", "told", "name", "absent"):
        f([Row("b", T(2)), Row("a", T(2))], name)


def _with_caches():
    @functools.lru_cache
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @functools.lru_cache(4)
    def twice(n, plus=0):
        return 2 * fibonacci(n) + plus

    return fibonacci, twice


@program()
def test_a_function_with_a_cache_that_calls_itself(t):
    """What the cache has, and how often it was asked, is as in eager, from nothing and when it is full."""
    fibonacci, _ = _with_caches()
    t.watch(fibonacci.cache_info)
    f = t.compile(lambda x, n: x * fibonacci(n) + fibonacci(n))
    f(T(2), 40)
    f(T(2), 40)
    fibonacci.cache_clear()
    f(T(2), 40)


@program(one_graph=False)
def test_functions_with_caches_that_call_each_other(t):
    """... and when it is filled in part."""
    fibonacci, twice = _with_caches()
    t.watch(lambda: (fibonacci.cache_info(), twice.cache_info()))
    f = t.compile(lambda x, n: x * fibonacci(n) + twice(n - 1, plus=1) + fibonacci(n))
    f(T(2), 40)
    f(T(2), 40)
    f(T(2), 41)
    fibonacci.cache_clear()
    f(T(2), 40)
    twice.cache_clear()
    f(T(2), 40)
    fibonacci.cache_clear()
    fibonacci(20)
    f(T(2), 41)

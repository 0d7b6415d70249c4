"""Classes that the call makes over outside bases: what they inherit is guarded, and nobody outside gets to see them."""

from __future__ import annotations

import abc
import collections
import collections.abc
import dataclasses
import enum
import functools
import typing

from harness import T, program


class Base:
    scale = 2
    made = []

    def go(self, x):
        return x * self.scale

    def __len__(self):
        return 3


class Meta(type):
    def __new__(mcls, name, bases, namespace):
        cls = super().__new__(mcls, name, bases, namespace)
        cls.tag = len(namespace)
        return cls


class WithMeta(metaclass=Meta):
    pass


@program()
def test_inherited_attributes_are_guarded(t):
    def fn(x):
        class Here(Base):
            def more(self, x):
                return super().go(x) + 1

        return Here().more(x), Here().go(x), Here.scale, len(Here())

    f = t.compile(fn)
    f(T(2))
    f.hit(T(3, s=1)[:2])
    t.patch(Base, "scale", 5)
    f.miss(T(2))
    t.patch(Base, "go", lambda self, x: x - 1)
    f.miss(T(2))
    t.patch(Base, "__len__", lambda self: 4)
    f.miss(T(2))
    f.hit(T(2))


@program()
def test_absent_in_the_base_until_later(t):
    def fn(x):
        class Here(Base):
            pass

        return x + getattr(Here(), "later", 1)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    t.patch(Base, "later", 7)
    f.miss(T(2))


@program()
def test_bases_of_the_base_change(t):
    class One:
        k = 1

    class Two:
        k = 2

    class Child(One):
        pass

    def fn(x):
        class Here(Child):
            pass

        return x + Here.k

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    Child.__bases__ = (Two,)
    f.miss(T(2))


@program()
def test_subclasses_are_not_listed_by_a_trace(t):
    def fn(x):
        class Here(Base):
            pass

        return x + Here.scale

    f = t.compile(fn)
    f(T(2))
    t.note([cls.__name__ for cls in Base.__subclasses__() if cls.__name__ != "Here"])


@program()
def test_returned_class_is_made_anew(t):
    def fn(x):
        class Here(Base):
            scale = 4

        return Here, Here().go(x)

    f = t.compile(fn)
    a, _ = f(T(2))
    b, _ = f.hit(T(2))
    t.note((a is b, a.__mro__[1] is Base, a().go(1), isinstance(b(), Base)))


@program()
def test_init_subclass_and_metaclass(t):
    class Registering:
        names = []

        def __init_subclass__(cls, extra=0, **kwargs):
            super().__init_subclass__(**kwargs)
            Registering.names.append(cls.__name__)
            cls.extra = extra

    t.watch(lambda: Registering.names)

    def fn(x):
        class Here(Registering, extra=4):
            pass

        class There(WithMeta):
            a = 1

        return x * Here.extra + There.tag

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_set_name_sees_the_class(t):
    class Named:
        def __set_name__(self, owner, name):
            owner.seen = name
            self.name = name

    def fn(x):
        class Here(Base):
            field = Named()

        return x + len(Here.seen), Here.field.name

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_enum_members(t):
    def fn(x, k):
        class Color(enum.Enum):
            RED = 1
            BLUE = 2

        return x + Color(k).value, Color.RED.name, [c.name for c in Color]

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 2)


@program()
def test_abstract_base(t):
    class Abstract(abc.ABC):
        @abc.abstractmethod
        def go(self): ...

    def fn(x):
        class Here(Abstract):
            def go(self):
                return 3

        class Not(Abstract):
            pass

        try:
            Not()
            text = "made"
        except TypeError as error:
            text = str(error)
        return x + Here().go(), isinstance(Here(), Abstract), text

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    Abstract.__abstractmethods__ = frozenset()
    f(T(2))


@program()
def test_collection_of_ones_own(t):
    def fn(x, n):
        class Numbers(collections.abc.Sequence):
            def __len__(self):
                return n

            def __getitem__(self, i):
                if i >= n:
                    raise IndexError(i)
                return i * 2

        numbers = Numbers()
        return x * sum(numbers), list(reversed(numbers)), 4 in numbers, isinstance(numbers, collections.abc.Sized)

    f = t.compile(fn)
    f(T(2), 3)
    f.hit(T(2), 3)
    f(T(2), 4)


@program()
def test_dataclass_and_namedtuple(t):
    def fn(x, k):
        @dataclasses.dataclass
        class Data(Base):
            a: int = k
            b: float = 0.5

        Point = collections.namedtuple("Point", "p q")
        data = Data(b=2.5)
        point = Point(1, q=data.a)
        return x * data.a + data.b, repr(data), tuple(point), data == Data(k, 2.5)

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 2)


V = typing.TypeVar("V")


@program()
def test_generic(t):
    def fn(x):
        class Stack(typing.Generic[V]):
            def __init__(self):
                self.items = []

        made = Stack[int]()
        made.items.append(x + 1)
        return made.items[0]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_total_ordering(t):
    def fn(x, k):
        @functools.total_ordering
        class Version(Base):
            def __init__(self, n):
                self.n = n

            def __eq__(self, other):
                return self.n == other.n

            def __lt__(self, other):
                return self.n < other.n

        return x + 1 if Version(k) >= Version(2) else x - 1

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 3)


@program()
def test_descriptor_of_an_outside_class_on_a_new_object(t):
    class Counts:
        def __init__(self):
            self.count = 0

        def __set__(self, obj, value):
            self.count += 1
            obj.__dict__["value"] = value

        def __get__(self, obj, owner=None):
            return self if obj is None else obj.__dict__["value"]

    class Holder:
        d = Counts()

    def fn(x):
        holder = Holder()
        holder.d = 3
        return x * holder.d + Holder.d.count

    t.watch(lambda: Holder.d.count)
    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_subclasses_asked_for(t):
    class One:
        pass

    def fn(x):
        return x + len(One.__subclasses__())

    f = t.compile(fn)
    f(T(2))

    class Two(One):
        pass

    f(T(2))
    t.note(Two)


@program()
def test_base_written_in_the_same_call(t):
    class Base:
        kind = 1

    t.watch(lambda: Base.kind)

    def fn(x, k):
        class Made(Base):
            def own(self):
                return super().kind

        made = Made()
        before = Made.kind, made.kind, made.own()
        Base.kind = k
        return x * Made.kind, before, made.kind, made.own(), getattr(made, "kind")

    f = t.compile(fn)
    f(T(2), 5)
    f(T(2), 5)
    f(T(2), 6)
    f(T(2), 6)
    f.hit(T(2), 6)


@program(one_graph=False)
def test_names_of_a_class_that_was_written(t):
    class Base:
        kind = 1

    def fn(x, k):
        class Made(Base):
            pass

        Base.fresh = k
        return x * k, "fresh" in dir(Made), "fresh" in vars(Base), "fresh" in dir(Base)

    f = t.compile(fn)
    f(T(2), 5)
    f(T(2), 5)
    f(T(2), 6)


@program()
def test_subclasses_that_were_there_before(t):
    class Base:
        pass

    class One(Base):
        k = 2.0

    class Two(Base):
        k = 3.0

    def fn(x):
        found = Base.__subclasses__()
        return x * sum(cls.k for cls in found), found

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    One.k = 5.0
    f(T(2))
    third = type("Third", (Base,), {"k": 7.0})
    f(T(2))
    f.hit(T(2))
    third.k = 1.0
    f(T(2))
    Two.__bases__ = (One,)
    f(T(2))


@program(one_graph=False)
def test_what_is_registered_with_an_abstract_class(t):
    def fn(x):
        class One(abc.ABC):
            @abc.abstractmethod
            def act(self):
                pass

        class Other(abc.ABC):
            pass

        return One, Other, x + 1

    f = t.compile(fn)
    for _ in range(2):
        one, other, _ = f(T(2))
        one.register(int)
        t.note((isinstance(3, one), isinstance(3, other), one.__abstractmethods__, issubclass(int, abc.ABC)))
        try:
            one()
        except TypeError as error:
            t.note(str(error))


@program()
def test_class_that_is_being_made_is_looked_at(t):
    """While mro() runs, a class has no order of bases yet."""

    class Own(Base):
        pass

    def fn(x):
        seen = []

        class Looks(type):
            def mro(cls):
                seen.append((cls.__mro__, hasattr(cls, "other"), hasattr(super(cls, cls), "other"), cls.flag))
                return type.mro(cls)

            flag = 3

        class Made(Own, metaclass=Looks):
            other = 5

        return x * Made.other, seen, Made().go(x), Made.flag

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))
    Own.scale = 4
    f(T(3))
    Own.__len__ = lambda self: 5
    f(T(3))


@program()
def test_descriptors_that_take_themselves_off_their_class(t):
    class Once:
        def __get__(self, owner, cls=None):
            del cls.value
            junk.append([str(i) for i in range(100)])
            return self.text + "!"

        text = "once"

    class Evil:
        def __hash__(self):
            return hash("value")

        def __eq__(self, other):
            if "value" in vars(Holder):
                del Holder.value
            junk.append([object() for _ in range(100)])
            return False

    def fn(x):
        nonlocal Holder

        class Holder:
            value = Once()

        a = Holder.value

        class Holder:
            value = Later()

        h = Holder()
        vars(h)[Evil()] = 0
        return x + 1, a, h.value, hasattr(h, "value")

    class Later:
        def __get__(self, owner, cls=None):
            return 7

    Holder = None
    junk = []
    f = t.compile(fn)
    f(T(3))
    f(T(3, s=1))


@program()
def test_names_that_type_knows_in_the_body(t):
    def fn(x):
        class Named:
            @property
            def __name__(self):
                return "an instance"

            @property
            def __bases__(self):
                return 3

        return x + 1, Named, Named(), Named().__name__, Named.__name__

    f = t.compile(fn)
    for call in (f, f.hit):
        _, cls, made, _, _ = call(T(3))
        t.note((cls.__name__, made.__name__, cls.__bases__, made.__bases__, cls.__qualname__))


@program()
def test_abstract_metaclass(t):
    def fn(x):
        class A(metaclass=abc.ABCMeta):
            @abc.abstractmethod
            def go(cls):
                pass

        class Meta(type, A):
            def go(cls):
                return 2

        class Made(metaclass=Meta):
            pass

        return x * Made.go(), isinstance(Made, A)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program(one_graph=False)
def test_code_in_a_dict_of_a_class_of_its_own(t):
    class Space(dict):
        def __missing__(self, name):
            return len(name)

    def fn(x):
        return x + eval("number", Space(number=3)), eval("lambda: longer", Space())()

    def wrong(x):
        try:
            eval("1", [])
        except TypeError as error:
            return x + 1, str(error)

    class Mapping:
        def __getitem__(self, name):
            raise KeyError(name)

        def keys(self):
            return ["z", "y"]

    def asks(x):
        return x + 1, eval("dir()", {}, Mapping()), eval("dir()", {}, {"b": 1, "a": 2})

    for body in (fn, wrong, asks):
        f = t.compile(body)
        f(T(3))
        f(T(3, s=1))

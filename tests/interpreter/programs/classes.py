"""Class bodies, construction, descriptors, super, metaclasses."""
from __future__ import annotations

from typing import Any

from programs import program, trace, where


@program
def class_bodies() -> Any:
    count = 2

    class Base:
        place = where()
        table = {}
        for index in range(count):
            table[index] = index * 2
        del index

        def method(self) -> Any:
            return __class__.__name__, where()  # type: ignore[name-defined]

    class Derived(Base):
        size: int = count
        place = Base.place[0]
        flags = [flag for flag in (1, 2)]

        def method(self) -> Any:
            return "derived", super().method(), count

    return Base.place, Base.table, Derived.size, Derived.place, Derived().method(), Derived.flags


@program
def constructors() -> Any:
    class Plain:
        def __init__(self, value: int, *, scale: int = 1) -> None:
            self.value = value * scale
            self.place = where()

    class Child(Plain):
        def __init__(self, value: int) -> None:
            super().__init__(value + 1, scale=10)
            self.extra = self.value

    one, two = Plain(3), Child(4)
    return one.value, one.place, two.value, two.extra, two.place


@program
def self_rebound() -> Any:
    """The object that a call returns is the one that was made, whatever __init__ does with the name self."""

    class Odd:
        def __init__(self, value: int) -> None:
            made = self
            self = [value]  # type: ignore[assignment]
            made.value = value + len(self)
            del self

    class Cell:
        def __init__(self, value: int) -> None:
            self.value = value
            read = lambda: self  # noqa: E731
            self.same = read() is self
            self = None  # type: ignore[assignment]

    return type(Odd(1)).__name__, Odd(2).value, Cell(5).value, Cell(6).same


@program
def new_methods() -> Any:
    class Made:
        def __new__(cls, value: int) -> Any:
            made = super().__new__(cls)
            made.first = value
            return made

        def __init__(self, value: int) -> None:
            self.second = self.first + value  # type: ignore[attr-defined]

    class Other:
        def __new__(cls) -> Any:
            return "not an instance"

    made = Made(2)
    return made.first, made.second, Other()


@program
def failing_init() -> Any:
    class Failing:
        def __init__(self, kind: str) -> None:
            if kind == "raise":
                raise ValueError(kind)
            if kind == "value":
                return 5  # type: ignore[return-value]

    out: list[Any] = [type(Failing("fine")).__name__]
    for kind in ("raise", "value"):
        try:
            Failing(kind)
        except (ValueError, TypeError) as error:
            out.append((repr(error), trace(error)))
    return out


@program
def descriptors() -> Any:
    class Account:
        def __init__(self) -> None:
            self.stored = 1

        @property
        def value(self) -> int:
            current = self.stored
            return current

        @value.setter
        def value(self, new: int) -> None:
            self.stored = new
            self.place = where()

        @value.deleter
        def value(self) -> None:
            self.stored = 0

        @staticmethod
        def fixed(number: int) -> int:
            return number + 1

        @classmethod
        def named(cls, number: int) -> Any:
            return cls.__name__, number

    account = Account()
    out: list[Any] = [account.value]
    account.value = 5
    account.value += 2
    out += [account.value, account.place, Account.fixed(1), account.fixed(2), Account.named(3), account.named(4)]
    del account.value
    bound = account.named
    out += [account.value, bound(6)]
    return out


@program(cannot="CALL.* of __build_class__")
def python_descriptors() -> Any:
    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = "_" + name

        def __get__(self, instance: Any, owner: type) -> Any:
            if instance is None:
                return self
            found = instance.__dict__.get(self.name)
            return found

        def __set__(self, instance: Any, value: Any) -> None:
            instance.__dict__[self.name] = value * 2

    class Model:
        field = Field()

    model = Model()
    model.field = 4
    return model.field, Model.field is Model.__dict__["field"]


@program
def attribute_hooks() -> Any:
    class Watched:
        def __init__(self) -> None:
            self.log: list[str] = []

        def __getattribute__(self, name: str) -> Any:
            found = object.__getattribute__(self, name)
            return found

        def __getattr__(self, name: str) -> Any:
            self.log.append(name)
            return len(self.log)

        def __delattr__(self, name: str) -> None:
            self.log.append("del " + name)

    watched = Watched()
    out = [watched.first, watched.second]
    del watched.third
    return out, watched.log


@program(cannot="CALL.* of (__build_class__|__new__|<class 'method-wrapper'>)")
def metaclasses() -> Any:
    class Meta(type):
        def __new__(mcs, name: str, bases: Any, space: Any, **options: Any) -> Any:
            space["options"] = options
            return super().__new__(mcs, name, bases, space)

        def __init__(cls, name: str, bases: Any, space: Any, **options: Any) -> None:
            super().__init__(name, bases, space)

        @classmethod
        def __prepare__(mcs, name: str, bases: Any, **options: Any) -> Any:
            return {"prepared": name}

        def __call__(cls, *args: Any) -> Any:
            made = super().__call__(*args)
            return made

    class Base(metaclass=Meta, flag=1):
        def __init__(self, value: int = 0) -> None:
            self.value = value

        def __init_subclass__(cls, **options: Any) -> None:
            cls.seen = options  # type: ignore[attr-defined]

    class Derived(Base, more=2):
        pass

    return Base.options, Base.prepared, Derived.seen, Derived(3).value  # type: ignore[attr-defined]


@program
def methods() -> Any:
    class Tree:
        def __init__(self, value: int) -> None:
            self.value = value
            self.children: list[Tree] = []

        def add(self, child: Tree) -> Tree:
            self.children.append(child)
            return self

        def total(self) -> int:
            sum_ = self.value
            for child in self.children:
                sum_ += child.total()
            return sum_

        def deepest(self) -> Any:
            return self.children[0].deepest() if self.children else where()

    tree = Tree(1).add(Tree(2).add(Tree(3))).add(Tree(4))
    call = tree.total
    return tree.total(), call(), tree.deepest(), Tree.total(tree)

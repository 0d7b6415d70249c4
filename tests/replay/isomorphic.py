"""Whether two graphs of objects look the same: types, values, order, and which objects are one."""

from __future__ import annotations

import collections
import functools
import itertools
import types
import weakref
from typing import Any

import torch

ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range, types.CodeType)
# Iterators are compared by what they still give, at the very end.
ITERATORS = tuple(
    {
        type(iter(x))
        for x in ([], (), {}, {}.values(), {}.items(), range(0), range(1 << 70), "", "\u1234", b"", collections.deque())
    }
    | {type(reversed([])), reversed, enumerate, zip, map, filter, type(iter(int, 0))}
    | {itertools.chain, itertools.count, itertools.cycle, itertools.repeat, itertools.islice, itertools.product}
    | {itertools.permutations, itertools.combinations, itertools.accumulate, itertools.starmap}
    | {itertools.takewhile, itertools.dropwhile, itertools.compress, itertools.zip_longest}
)


class Differ(AssertionError):
    pass


class Comparison:
    def __init__(self, made_here: Any) -> None:
        self.made_here = made_here
        self.forth: dict[int, Any] = {}
        self.back: dict[int, Any] = {}
        self.iterators: list[tuple[Any, Any, str]] = []

    def want(self, condition: bool, path: str, *what: Any) -> None:
        if not condition:
            raise Differ(f"{path}: {' / '.join(map(repr, what))}")

    def same(self, a: Any, b: Any, path: str = "result") -> None:
        if isinstance(a, ATOMS) and type(a) in ATOMS:
            self.want(type(a) is type(b) and (a == b or a != a), path, a, b)
            return
        if id(a) in self.forth or id(b) in self.back:
            self.want(self.forth.get(id(a)) is b and self.back.get(id(b)) is a, path, "one object against two")
            return
        self.forth[id(a)], self.back[id(b)] = b, a
        if a is b:
            return
        if isinstance(a, type) and isinstance(b, type):
            self.want(self.made_here(a) and self.made_here(b), path, a, b)
            self.class_(a, b, path)
            return
        if self.made_here(type(a)):
            self.same(type(a), type(b), f"type({path})")
        else:
            self.want(type(a) is type(b), path, type(a), type(b))
        if isinstance(a, ITERATORS) and type(a) in ITERATORS:
            self.iterators.append((a, b, path))
            return
        self.contents(a, b, path)
        if not isinstance(a, types.FunctionType):
            self.attributes(a, b, path)

    def each(self, a: Any, b: Any, path: str) -> None:
        a, b = list(a), list(b)
        self.want(len(a) == len(b), path, a, b)
        for i, (x, y) in enumerate(zip(a, b)):
            self.same(x, y, f"{path}[{i}]")

    def contents(self, a: Any, b: Any, path: str) -> None:
        if isinstance(a, torch.Tensor):
            self.want(a.requires_grad == b.requires_grad and torch.equal(a, b), path, a, b)
        elif isinstance(a, collections.OrderedDict):
            self.each(collections.OrderedDict.items(a), collections.OrderedDict.items(b), path)
        elif isinstance(a, dict):
            self.each(dict.items(a), dict.items(b), path)
            if isinstance(a, collections.defaultdict):
                self.same(a.default_factory, b.default_factory, f"{path}.default_factory")
        elif isinstance(a, list):
            self.each(list.__iter__(a), list.__iter__(b), path)
        elif isinstance(a, tuple):
            self.each(tuple.__iter__(a), tuple.__iter__(b), path)
        elif isinstance(a, collections.deque):
            self.each(a, b, path)
            self.want(a.maxlen == b.maxlen, path, a, b)
        elif isinstance(a, (set, frozenset)):
            if all(type(x).__hash__ is not object.__hash__ and not isinstance(x, torch.Tensor) for x in a):
                self.each(a, b, path)  # also the order
            else:
                self.want(len(a) == len(b), path, a, b)
                self.each(sorted(a, key=address_free), sorted(b, key=address_free), path)
        elif isinstance(a, (int, float, complex, str, bytes, bytearray)):
            self.want(type(a).__mro__[-2](a) == type(b).__mro__[-2](b), path, a, b)
        elif isinstance(a, slice):
            self.each((a.start, a.stop, a.step), (b.start, b.stop, b.step), path)
        elif isinstance(a, types.FunctionType):
            for name in (
                "code",
                "globals",
                "name",
                "qualname",
                "defaults",
                "kwdefaults",
                "doc",
                "module",
                "annotations",
                "dict",
            ):
                self.same(getattr(a, f"__{name}__"), getattr(b, f"__{name}__"), f"{path}.__{name}__")
            self.each(a.__closure__ or (), b.__closure__ or (), f"{path}.__closure__")
        elif isinstance(a, types.CellType):
            self.same(contents(a), contents(b), f"{path}.cell_contents")
        elif isinstance(a, types.MethodType):
            self.each((a.__func__, a.__self__), (b.__func__, b.__self__), path)
        elif isinstance(a, (types.BuiltinFunctionType, types.MethodWrapperType)):
            self.each((a.__name__, a.__self__), (b.__name__, b.__self__), path)
        elif isinstance(a, functools.partial):
            self.each((a.func, a.args, a.keywords), (b.func, b.args, b.keywords), path)
        elif isinstance(a, BaseException):
            names = "args", "__cause__", "__context__", "__suppress_context__", "__traceback__"
            self.each([getattr(a, n) for n in names], [getattr(b, n) for n in names], path)
            if isinstance(a, BaseExceptionGroup):
                self.each((a.message, a.exceptions), (b.message, b.exceptions), path)
            for name in (
                "errno",
                "strerror",
                "filename",
                "value",
                "code",
                "name",
                "obj",
                "path",
                "lineno",
                "start",
                "end",
            ):
                self.same(getattr(a, name, None), getattr(b, name, None), f"{path}.{name}")
        elif isinstance(a, types.TracebackType):
            self.each(
                (a.tb_frame.f_code, a.tb_lineno, a.tb_lasti, a.tb_next),
                (b.tb_frame.f_code, b.tb_lineno, b.tb_lasti, b.tb_next),
                path,
            )
        elif isinstance(a, super):
            self.each((a.__thisclass__, a.__self__), (b.__thisclass__, b.__self__), path)
        elif isinstance(a, property):
            self.each((a.fget, a.fset, a.fdel, a.__doc__), (b.fget, b.fset, b.fdel, b.__doc__), path)
        elif isinstance(a, (staticmethod, classmethod)):
            self.same(a.__func__, b.__func__, path)
        elif isinstance(a, weakref.ref):
            self.same(a(), b(), f"{path}()")
            self.same(a.__callback__, b.__callback__, path)
        elif isinstance(a, types.MappingProxyType):
            self.each(a.items(), b.items(), path)
        elif isinstance(a, (type({}.keys()), type({}.values()), type({}.items()))):
            self.each(a, b, path)
        elif not hasattr(a, "__dict__") and type(a) is not object and not has_slots(type(a)):
            self.want(a == b or repr(a) == repr(b), path, a, b)

    def attributes(self, a: Any, b: Any, path: str) -> None:
        try:
            first, second = object.__getattribute__(a, "__dict__"), object.__getattribute__(b, "__dict__")
        except AttributeError:
            pass
        else:
            self.same(first, second, f"{path}.__dict__")
        for owner, other in zip(type(a).__mro__, type(b).__mro__):
            for name, member in vars(owner).items():
                if isinstance(member, types.MemberDescriptorType) and not isinstance(
                    a, (types.ModuleType, super, property)
                ):
                    if owner.__module__ in ("builtins", "_functools", "functools", "collections"):
                        continue
                    self.same(read(member, a), read(vars(other)[name], b), f"{path}.{name}")

    def class_(self, a: type, b: type, path: str) -> None:
        self.want((a.__name__, a.__qualname__) == (b.__name__, b.__qualname__), path, a, b)
        self.same(type(a), type(b), f"type({path})")
        self.each(a.__bases__, b.__bases__, f"{path}.__bases__")
        self.want(list(vars(a)) == list(vars(b)), path, list(vars(a)), list(vars(b)))
        for name in vars(a):
            if (
                isinstance(vars(a)[name], (types.MemberDescriptorType, types.GetSetDescriptorType))
                or name == "_abc_impl"
            ):
                self.want(type(vars(a)[name]) is type(vars(b)[name]), path, name)
                continue
            self.same(vars(a)[name], vars(b)[name], f"{path}.{name}")

    def finish(self) -> None:
        for a, b, path in self.iterators:
            self.each(itertools.islice(a, 50), itertools.islice(b, 50), path)


def address_free(value: Any) -> str:
    return str(value.tolist()) if isinstance(value, torch.Tensor) else type(value).__name__


def contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def read(member: Any, owner: Any) -> Any:
    try:
        return member.__get__(owner)
    except AttributeError:
        return "empty"


def has_slots(cls: type) -> bool:
    return any("__slots__" in vars(base) for base in cls.__mro__)


def check_same(a: Any, b: Any, made_here: Any = lambda o: False) -> None:
    comparison = Comparison(made_here)
    comparison.same(a, b)
    comparison.finish()

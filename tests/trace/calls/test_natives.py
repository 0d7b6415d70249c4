"""The natives table: C functions and types that a trace may run, line by line.

A row is a name, an expression over arguments, and variants of those. Each variant is called twice (the second must hit), then the
next one (what the native read has changed), and the first once more. LATER rows are right today if they run eagerly.
"""

from __future__ import annotations

import abc
import ast
import base64
import bisect
import collections
import collections.abc
import contextlib
import copy
import csv
import dataclasses
import datetime
import decimal
import difflib
import enum
import fnmatch
import fractions
import functools
import hashlib
import heapq
import inspect
import io
import itertools
import json
import math
import numbers
import operator
import os
import pathlib
import pprint
import random
import re
import shlex
import statistics
import string
import struct
import sys
import textwrap
import types
import typing
import urllib.parse
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from harness import REGISTRY, Run, T, add_row, check, program


class Box:
    def __init__(self, v, items=None):
        self.v, self.items = v, items if items is not None else [1, 2]

    def __repr__(self):
        return f"Box({self.v})"


class Ordered:
    def __init__(self, v):
        self.v = v

    def __lt__(self, other):
        return self.v < other.v

    def __eq__(self, other):
        return self.v == other.v

    def __hash__(self):
        return self.v

    def __index__(self):
        return self.v

    def __iter__(self):
        yield self.v
        yield self.v + 1

    def __len__(self):
        return self.v

    def __contains__(self, item):
        return item == self.v

    def __bool__(self):
        return self.v > 1

    def __int__(self):
        return self.v * 10

    def __float__(self):
        return self.v / 2

    def __abs__(self):
        return -self.v

    def __round__(self, digits=0):
        return self.v + digits

    def __format__(self, spec):
        return f"<{self.v}{spec}>"

    def __reversed__(self):
        return iter([self.v])

    def __divmod__(self, other):
        return (self.v, other)

    def __getitem__(self, key):
        return (self.v, key)

    def __add__(self, other):
        return ("add", self.v, other)

    def __radd__(self, other):
        return ("radd", self.v, other)

    def __neg__(self):
        return -self.v

    def __matmul__(self, other):
        return ("matmul", other)

    def __bytes__(self):
        return b"b"

    def __complex__(self):
        return 1j

    def __dir__(self):
        return ["a", "b"]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Mode(enum.IntFlag):
    R = 1
    W = 2


@dataclasses.dataclass(order=True)
class Data:
    a: int = 1
    b: list = dataclasses.field(default_factory=lambda: [1, {"q": 2}])


@functools.singledispatch
def described(v):
    return "other"


@described.register
def _(v: int):
    return "int"


class Template(abc.ABC):
    @abc.abstractmethod
    def go(self): ...


class Concrete(Template):
    def go(self):
        return 3


class Sized(typing.Protocol):
    def __len__(self) -> int: ...


Point = collections.namedtuple("Point", "x y", defaults=[9])
B, O = Box, Ordered


class Cached:
    def __init__(self, n):
        self.n = n

    @functools.cached_property
    def p(self):
        return [self.n * 2]


@contextlib.contextmanager
def appending(items):
    items.append("in")
    try:
        yield 5
    finally:
        items.append("out")


def reraised(f: Callable[[], Any]) -> Any:
    try:
        return f()
    except Exception as error:
        return type(error).__name__, str(error)


ROWS: dict[str, tuple[Any, ...]] = {
    # ---- builtins
    "abs": (lambda a: abs(a), (-3,), (2.5,), (O(2),)),
    "all any": (lambda a: (all(a), any(a)), ([1, 0],), ([1, 2],), ([],)),
    "ascii repr str": (lambda a: (ascii(a), repr(a), str(a)), ("é",), (B(1),), (B(2),), ([B(3)],)),
    "bin hex oct": (lambda a: (bin(a), hex(a), oct(a)), (10,), (11,), (O(3),)),
    "bool": (lambda a: bool(a), ([],), ([1],), (O(1),), (O(2),)),
    "bytes bytearray": (lambda a: (bytes(a), bytearray(a)), ([1, 2],), ([1, 3],), (b"ab",)),
    "callable": (lambda a: callable(a), (len,), (3,), (B,), (B(1),)),
    "chr ord": (lambda a, b: (chr(a), ord(b)), (97, "b"), (98, "b"), (97, "c")),
    "complex": (lambda a, b: complex(a, b), (1, 2), (1, 3)),
    "dict": (lambda a: (dict(a), dict(a, z=1), dict(zip("ab", [1, 2], strict=True))), ({"a": 1},), ({"a": 2},), ([("k", 3)],)),
    "dir": (lambda a: [n for n in dir(a) if not n.startswith("_")], (B(1),), (O(2),)),
    "divmod pow": (lambda a, b: (divmod(a, b), pow(a, b), pow(a, b, 7)), (7, 2), (8, 2), (7, 3)),
    "divmod of the user's": (lambda a: divmod(a, 3), (O(1),), (O(2),)),
    "enumerate": (lambda a: list(enumerate(a, 2)), ([1, 2],), ([1, 3],), (O(4),)),
    "filter map": (lambda a: (list(filter(None, a)), list(map(lambda v: v + 1, a))), ([0, 1],), ([0, 2],)),
    "float int": (lambda a: (float(a), int(a)), (3.5,), ("7",), (O(4),)),
    "int of base": (lambda a, b: int(a, b), ("11", 2), ("11", 3)),
    "format": (lambda a, b: (format(a, b), f"{a:{b}}"), (3, ">4"), (3, "<4"), (4, ">4"), (O(1), "x"), (O(2), "x")),
    "frozenset set": (lambda a: (sorted(frozenset(a)), len(set(a))), ([1, 1],), ([1, 2],)),
    "getattr default": (lambda a: (getattr(a, "v", 0), getattr(a, "nothing", 5)), (B(1),), (B(2),), (3,)),
    "hasattr": (lambda a: (hasattr(a, "v"), hasattr(a, "w")), (B(1),), (3,)),
    "hash": (lambda a: hash(a), (3,), ("a",), ((1, 2),), (O(4),)),
    "hash of an address": (lambda a, b: hash(a) == hash(b), (B(1), B(1)),),
    "isinstance issubclass": (lambda a: (isinstance(a, (int, Box)), issubclass(type(a), object)), (3,), (B(1),), ("a",)),
    "isinstance union": (lambda a: isinstance(a, int | str), (3,), ("a",), (2.5,)),
    "iter next": (lambda a: (next(iter(a)), next(iter([]), "none")), ([1, 2],), ([3],), (O(5),)),
    "iter sentinel": (lambda a: list(iter(iter(a).__next__, 3)), ([1, 2, 3, 4],), ([1, 3],)),
    "len": (lambda a: len(a), ([1],), ("ab",), ({1: 2},), (O(5),), (O(6),)),
    "list tuple": (lambda a: (list(a), tuple(a)), ((1, 2),), ((1, 3),), (O(4),), ({"k": 1},)),
    "max min": (lambda a: (max(a), min(a), max(a, key=lambda v: -v), min([], default=3)), ([1, 3, 2],), ([4, 3, 2],)),
    "max min of the user's": (lambda a: (max(a).v, min(a).v), ([O(1), O(3)],), ([O(4), O(3)],)),
    "memoryview": (lambda a: (memoryview(a)[1], memoryview(a).tolist()), (b"ab",), (b"ac",)),
    "object type": (lambda a: (type(a).__name__, type(a) is int, isinstance(object(), object)), (1,), ("a",)),
    "range": (lambda a: (list(range(a)), range(1, a)[-1], a in range(3)), (3,), (4,), (2,)),
    "reversed": (lambda a: list(reversed(a)), ([1, 2],), ([1, 3],), (O(4),), ({"a": 1},)),
    "round": (lambda a: (round(a), round(a, 1)), (2.55,), (3.45,), (O(3),)),
    "slice": (lambda a: (slice(a), [1, 2, 3][slice(a)], slice(1, a).indices(5)), (2,), (3,)),
    "sorted": (lambda a: (sorted(a), sorted(a, reverse=True), sorted(a, key=lambda v: v % 3)), ([3, 1, 2],), ([4, 1, 2],)),
    "sorted of the user's": (lambda a: [v.v for v in sorted(a)], ([O(3), O(1)],), ([O(1), O(3)],)),
    "sum": (lambda a: (sum(a), sum(a, 10)), ([1, 2],), ([1, 3],), ([1.5],)),
    "sum of the user's": (lambda a: sum(a), ([O(1)],), ([O(2)],)),
    "sum of tensors": (lambda a: sum(a), ([T(2), T(2)],), ([T(2)],), ([T(2), 1],)),
    "vars": (lambda a: dict(vars(a)), (B(1),), (B(2),)),
    "zip": (lambda a, b: list(zip(a, b, strict=False)), ([1, 2], [3, 4]), ([1, 2], [3]), ([1, 5], [3, 4])),
    "zip strict": (lambda a, b: reraised(lambda: list(zip(a, b, strict=True))), ([1], [2]), ([1], [])),
    "import": (lambda a: __import__("math").floor(a), (2.5,), (3.5,)),
    "id": (lambda a: ({id(a): 1}[id(a)], id(a) == id(a)), ([1],), ([2],)),
    "eval": (lambda a: eval("a + 1", {"a": a}), (1,), (2,)),
    "compile exec": (lambda a: exec(f"y = {a} + 1", space := {}) or space["y"], (1,), (2,)),
    # ---- str, bytes, int, float methods
    "str methods": (lambda a: (a.upper(), a.split(","), a.replace("a", "b"), a.strip(), a.find("b"), a.encode(), a.partition(","),
                               a.startswith("a"), a.isdigit(), a.join(["x", "y"]), a.center(9, "-"), a.title(), a.zfill(5)),
                    ("a,b",), ("b,a",)),
    "str.join": (lambda a: (",".join(a), "".join(map(str, a))), (["a", "b"],), (["a", "c"],)),
    "str.format": (lambda a, b: ("{} {b} {0!r:>5}".format(a, b=b), "{0[0]}".format([a])), ("a", 1), ("a", 2), ("c", 1)),
    "str.format of an attribute": (lambda a: "{0.v} {0.items[1]}".format(a), (B(1),), (B(2),), (B(1, [1, 7]),)),
    "str.format_map": (lambda a: "{k}".format_map(a), ({"k": 1},), ({"k": 2},)),
    "str %": (lambda a, b: ("%s %d %r %5.2f" % (a, b, a, b), "%(k)s" % {"k": a}), ("a", 1), ("b", 1), (B(1), 1), (B(2), 1)),
    "str.translate": (lambda a: "abc".translate(str.maketrans(a)), ({"a": "x"},), ({"a": "y"},)),
    "maketrans": (lambda a, b: (str.maketrans(a, b, "z"), b"abc".translate(bytes.maketrans(a.encode(), b.encode()))), ("ab", "xy"), ("ab", "xz")),
    "f-string": (lambda a: f"{a} {a!r} {a!s:>8}", (1,), ("a",), (B(1),), (B(2),), ([B(3)],)),
    "bytes methods": (lambda a: (a.decode(), a.hex(), a.split(b","), a + b"z", a[0]), (b"a,b",), (b"a,c",)),
    "bytes.fromhex": (lambda a: (bytes.fromhex(a), int.from_bytes(b"ab", "big")), ("61",), ("62",)),
    "int methods": (lambda a: (a.bit_length(), a.to_bytes(2, "big"), a.conjugate(), a.as_integer_ratio(), a.bit_count()), (5,), (9,)),
    "float methods": (lambda a: (a.is_integer(), a.hex(), a.as_integer_ratio(), float.fromhex("0x1p3")), (2.5,), (3.0,)),
    # ---- containers
    "list methods": (lambda a: (a.index(2), a.count(2), a.copy(), a + [1], a * 2, a[::-1], a == [1, 2], [0] < a), ([1, 2],), ([2, 2],)),
    "tuple methods": (lambda a: (a.index(2), a.count(2), a + (1,), a * 2, a[1:], a == (1, 2)), ((1, 2),), ((2, 2),)),
    "dict methods": (lambda a: (list(a.keys()), list(a.items()), a.copy(), a | {"z": 1}, a == {"k": 1}, dict.fromkeys(a, 0),
                                a.keys() & {"k"}, len(a.values())), ({"k": 1},), ({"k": 2},), ({"j": 1, "k": 1},)),
    "set methods": (lambda a: (sorted(a | {5}), sorted(a & {1, 2}), sorted(a - {1}), sorted(a ^ {1, 9}), a <= {1, 2, 3}, a.isdisjoint({4}),
                               a == {1, 2}), ({1, 2},), ({1, 4},)),
    "comparison of nested": (lambda a, b: (a == b, a < b), ([1, (2, [3])], [1, (2, [4])]), ([1, (2, [4])], [1, (2, [4])])),
    "comparison of the user's": (lambda a, b: (a == b, a in [b], [a] == [b]), (O(1), O(1)), (O(1), O(2))),
    "membership in the user's": (lambda a, b: b in a, (O(1), 1), (O(1), 2)),
    "subscript of the user's": (lambda a: (a[1], a[1:2], a["k"]), (O(1),), (O(2),)),
    # ---- operator
    "operator": (lambda a, b: (operator.add(a, b), operator.mul(a, b), operator.lt(a, b), operator.neg(a), operator.index(a), operator.xor(a, b)),
                 (1, 2), (2, 2)),
    "operator of the user's": (lambda a: (operator.add(a, 1), operator.neg(a), operator.truth(a), operator.length_hint(a)), (O(1),), (O(2),)),
    "operator.itemgetter": (lambda a: (operator.itemgetter(1)(a), operator.itemgetter(0, 1)(a)), ([1, 2],), ([1, 3],)),
    "operator.attrgetter": (lambda a: (operator.attrgetter("v")(a), operator.attrgetter("v", "items")(a)), (B(1),), (B(2),), (B(1, [5]),)),
    "attrgetter as a key": (lambda a: [b.v for b in sorted(a, key=operator.attrgetter("v"))], ([B(3), B(1)],), ([B(1), B(3)],)),
    "operator.methodcaller": (lambda a: operator.methodcaller("index", 2)(a), ([1, 2],), ([2, 1],)),
    "operator in place": (lambda a: (operator.iadd(a, [3]), a), ([1],), ([2],)),
    "operator.setitem": (lambda a: (operator.setitem(a, 0, 9), operator.delitem(a, 1), a), ([1, 2],), ([1, 2, 3],)),
    "operator.contains": (lambda a: (operator.contains(a, 1), operator.countOf(a, 1), operator.indexOf(a, 2)), ([1, 2],), ([2, 1],)),
    # ---- math
    "math": (lambda a: (math.sqrt(a), math.floor(a), math.ceil(a), math.log(a), math.isclose(a, 2), math.copysign(1, a), math.frexp(a)),
             (2.5,), (2.0,)),
    "math of ints": (lambda a: (math.gcd(a, 6), math.prod([a, 2]), math.comb(a, 2), math.isqrt(a), math.factorial(a)), (4,), (9,)),
    "math of the user's": (lambda a: (math.sqrt(a), math.floor(a), math.sin(a)), (O(2),), (O(4),)),
    "math.fsum": (lambda a: math.fsum(a), ([0.1, 0.2],), ([0.1, 0.3],)),
    # ---- itertools
    "itertools.chain": (lambda a: (list(itertools.chain(a, a)), list(itertools.chain.from_iterable([a, [9]]))), ([1],), ([2],)),
    "itertools.product": (lambda a: (list(itertools.product(a, "ab")), list(itertools.permutations(a)), list(itertools.combinations(a, 2))),
                          ([1, 2],), ([1, 3],)),
    "itertools.groupby": (lambda a: [(k, list(g)) for k, g in itertools.groupby(sorted(a), key=lambda v: v % 2)], ([3, 1, 2],), ([3, 1],)),
    "itertools.accumulate": (lambda a: (list(itertools.accumulate(a)), list(itertools.accumulate(a, lambda p, q: p * q))), ([1, 2],), ([1, 3],)),
    "itertools.islice cycle": (lambda a: (list(itertools.islice(itertools.cycle(a), 4)), list(itertools.islice(itertools.count(2), 3))),
                               ([1, 2],), ([1],)),
    "itertools.takewhile": (lambda a: (list(itertools.takewhile(lambda v: v < 2, a)), list(itertools.dropwhile(lambda v: v < 2, a)),
                                       list(itertools.filterfalse(lambda v: v < 2, a)), list(itertools.compress(a, [1, 0, 1]))),
                            ([1, 2, 1],), ([0, 3, 1],)),
    "itertools.zip_longest": (lambda a: (list(itertools.zip_longest(a, [1], fillvalue=0)), list(itertools.starmap(pow, [(2, 3)])),
                                         list(itertools.pairwise(a)), list(itertools.repeat(3, 2))), ([1, 2],), ([1, 2, 3],)),
    "itertools.tee": (lambda a: [list(i) for i in itertools.tee(a)], ([1, 2],), ([1],)),
    # ---- functools
    "functools.reduce": (lambda a: (functools.reduce(lambda p, q: p * q, a), functools.reduce(operator.add, a, 1)), ([1, 2],), ([1, 3],)),
    "functools.reduce of tensors": (lambda a: functools.reduce(operator.mul, a), ([T(2), T(2)],), ([T(2)],)),
    "functools.partial": (lambda a: (functools.partial(pow, a)(2), functools.partial(int, base=2)("11")), (3,), (4,)),
    "functools.cmp_to_key": (lambda a: sorted(a, key=functools.cmp_to_key(lambda p, q: q - p)), ([1, 2],), ([3, 2],)),
    "functools.wraps": (lambda a: functools.wraps(reraised)(lambda: a).__name__, (1,)),
    "functools.cached_property": (lambda a: (a.p[0] + a.p[0], "p" in vars(a)), (Cached(1),), (Cached(2),)),
    "functools.singledispatch": (lambda a: described(a), (1,), ("a",), (True,)),
    "functools.total_ordering": (lambda a, b: (a <= b, a > b), (Data(1), Data(2)), (Data(2), Data(1))),
    # ---- collections
    "collections.deque": (lambda a: (list(collections.deque(a, 2)), collections.deque(a)[-1], collections.deque(a).index(2)), ([1, 2],), ([2, 3],)),
    "collections.Counter": (lambda a: (collections.Counter(a).most_common(1), (collections.Counter(a) + collections.Counter("a"))["a"]),
                            ("aab",), ("abb",)),
    "collections.OrderedDict": (lambda a: (list(collections.OrderedDict(a)), collections.OrderedDict(a) == collections.OrderedDict(b=2, a=1)),
                                ({"a": 1, "b": 2},), ({"b": 2, "a": 1},)),
    "collections.defaultdict": (lambda a: (collections.defaultdict(list, a)["q"], collections.defaultdict(int, a)["k"]), ({"k": 1},), ({"k": 2},)),
    "collections.namedtuple": (lambda a: (Point(a), Point(a)._replace(x=1), Point._make([a, 2]), Point(a)._asdict(), Point._fields), (1,), (2,)),
    "collections.ChainMap": (lambda a: (dict(collections.ChainMap({"z": 1}, a)), collections.ChainMap(a, {"k": 0})["k"]), ({"k": 1},), ({"k": 2},)),
    "collections.UserDict": (lambda a: (collections.UserDict(a)["k"], list(collections.UserList([a])), collections.UserString("a") + "b"),
                             ({"k": 1},), ({"k": 2},)),
    "collections.abc": (lambda a: (isinstance(a, collections.abc.Mapping), isinstance(a, collections.abc.Sequence),
                                   isinstance(a, collections.abc.Iterable), isinstance(a, collections.abc.Hashable),
                                   isinstance(a, collections.abc.Callable)), ({},), ([],), ("a",), (len,), (B(1),)),
    # ---- copy
    "copy.copy": (lambda a: (copy.copy(a), copy.copy(a) is a), ([1, [2]],), ({"k": [1]},), (B(1),), ((1,),)),
    "copy.deepcopy": (lambda a: copy.deepcopy(a), ([1, [2]],), ([1, [3]],), (B(1, [B(2)]),), ({"k": (1, [2])},)),
    "copy.deepcopy keeps sharing": (lambda a: copy.deepcopy([a, a, {"k": a}]), ([1],), ([2],)),
    "copy.replace": (lambda a: dataclasses.replace(a, a=5), (Data(1),), (Data(1, [2]),)),
    # ---- types
    "types": (lambda a: (isinstance(a, types.FunctionType), types.SimpleNamespace(k=3).k, isinstance(len, types.BuiltinFunctionType)),
              (reraised,), (len,)),
    "types.MethodType": (lambda a: types.MethodType(lambda self: self.v, a)(), (B(1),), (B(2),)),
    "types.MappingProxyType": (lambda a: (types.MappingProxyType(a)["k"], dict(types.MappingProxyType(a))), ({"k": 1},), ({"k": 2},)),
    "types.GenericAlias": (lambda: (list[int].__origin__, typing.get_args(dict[str, int]), (int | None).__args__), ()),
    # ---- enum
    "enum": (lambda a: (a.value, a.name, Color(2), Color["RED"], list(Color), len(Color), a in Color, Color(a.value) is a),
             (Color.RED,), (Color.BLUE,)),
    "enum flags": (lambda a: (a | Mode.W, Mode.R in a, ~a & Mode.W, a.value, list(Mode.R | Mode.W)), (Mode.R,), (Mode.W,)),
    "enum missing": (lambda a: reraised(lambda: Color(a)), (3,), (1,)),
    # ---- dataclasses
    "dataclasses.asdict": (lambda a: (dataclasses.asdict(a), dataclasses.astuple(a)), (Data(),), (Data(2),), (Data(1, [3]),)),
    "dataclasses.fields": (lambda a: ([f.name for f in dataclasses.fields(a)], dataclasses.is_dataclass(a)), (Data(),)),
    "dataclass comparison": (lambda a, b: (a == b, a < b, repr(a)), (Data(1), Data(1)), (Data(1), Data(2))),
    "dataclasses.make_dataclass": (lambda a: dataclasses.make_dataclass("Z", ["a"])(a).a, (3,), (4,)),
    # ---- string, re
    "string": (lambda a: (string.ascii_letters[0], string.Template("$a ${b}").substitute(a), string.capwords("a b"), string.Formatter().format("{}", 1)),
               ({"a": 1, "b": 2},), ({"a": 2, "b": 2},)),
    "re": (lambda a: ([m.group(1) for m in re.finditer(r"(\w+)=", a)], re.sub("a", "b", a), re.split(",", a), re.match("a", a) is None,
                      re.findall(r"\d", a), re.sub(r"\d", lambda m: m.group() * 2, a), re.fullmatch(r"(?P<k>.*)", a)["k"]),
           ("a=1,b=2",), ("b=1",)),
    "re.compile": (lambda a, b: (re.compile(a).search(b).span(), re.compile(a).pattern, re.escape(b)), ("b+", "abbc"), ("b+", "abc"), ("c", "abbc")),
    "re of a compiled pattern": (lambda a, b: a.sub("-", b), (re.compile("a"), "banana"), (re.compile("n"), "banana"), (re.compile("a"), "bab")),
    # ---- contextlib, abc, typing
    "contextlib.contextmanager": (lambda a: [(v, list(a)) for v in [appending(a).__enter__()]], ([],), ([1],)),
    "contextlib.suppress": (lambda a: [None for _ in [0] if not contextlib.suppress(KeyError).__exit__(a, a(), None)], (ValueError,), (KeyError,)),
    "contextlib.nullcontext": (lambda a: contextlib.nullcontext(a).__enter__(), (1,), (2,)),
    "abc": (lambda a: (isinstance(a, Template), a.go(), reraised(Template)[0]), (Concrete(),)),
    "abc.isinstance of a virtual class": (lambda a: (isinstance(a, numbers.Number), isinstance(a, numbers.Integral)), (1,), (2.5,), ("a",)),
    "typing": (lambda a: (typing.get_origin(typing.List[int]), typing.cast(int, a), typing.get_type_hints(Sized.__len__)), (1,), ("a",)),  # noqa: UP006
    # ---- torch
    "torch.Size": (lambda a: (torch.Size(a), torch.Size(a).numel(), torch.Size([1]) + torch.Size(a)), ([1, 2],), ([2, 2],)),
    "torch.dtype": (lambda a: (a.is_floating_point, a.itemsize, torch.finfo(torch.float32).eps, torch.iinfo(torch.int8).max,
                               torch.promote_types(a, torch.int64)), (torch.float16,), (torch.int8,)),
    "torch.device": (lambda a: (torch.device(a).type, torch.device(a) == torch.device("cpu"), str(torch.device(a))), ("cpu",), ("meta",)),
    "torch.is_tensor": (lambda a: (torch.is_tensor(a), torch.is_floating_point(a), isinstance(a, torch.FloatTensor), torch.is_complex(a)),
                        (T(2),), (T(2, dtype=torch.int64),)),
    "tensor iteration": (lambda a: ([r * 2 for r in a], len(a), [*a], (lambda p, q: p + q)(*a)), (T(2, 2),), (T(2, 3),)),
    "tensor constructors": (lambda a: (torch.tensor(a), torch.arange(a[0]), torch.full((2,), a[1]), torch.tensor([a, a]).shape), ([2, 3],), ([3, 3],)),
    "torch.ops": (lambda a: torch.ops.aten.add.Tensor(a, a) + torch.ops.aten.mul(a, 2), (T(2),), (T(3),)),
    "torch.nn.functional": (lambda a: (torch.nn.functional.relu(a), torch.nn.functional.softmax(a, -1), torch.nn.functional.pad(a, (1, 1))), (T(2, 2),)),
    "torch.nn.init free maths": (lambda a: torch.nn.init.calculate_gain(a), ("relu",), ("tanh",)),
    "torch.utils of strides": (lambda a: (a.stride(), a.size(), a.size(0), a.dim(), a.is_contiguous(), a.element_size()), (T(2, 3),), (T(3, 2).t(),)),
}  # fmt: skip

# Right when they run eagerly; captured when somebody adds their lines.
LATER: dict[str, tuple[Any, ...]] = {
    # The attribute that is named is the one that the call has written.
    "str.format as a function": (lambda a: (setattr(a, "v", a.v + 5), str.format("{0.v}", a), str.format("{0}", a)), (Box(1),), (Box(2),)),
    "str.format_map of an attribute": (lambda a: (setattr(a, "v", a.v + 5), "{k.v}".format_map({"k": a}), str.format_map("{k.v}", {"k": a})), (Box(1),), (Box(2),)),
    "str.format as a callback": (lambda a: (setattr(a, "v", a.v + 5), [*map("{0.v}".format, [a]), *map(str.format, ["{0.v}"], [a])]), (Box(1),), (Box(2),)),
    "str.format as a key": (lambda a, b: (setattr(a, "v", a.v + 5), max([a, b], key="{0.v}".format).v), (Box(1), Box(3)), (Box(2), Box(8))),
    "str.format_map as a callback": (lambda a: (setattr(a, "v", a.v + 5), [*map("{k.v}".format_map, [{"k": a}])]), (Box(1),), (Box(2),)),
    "json": (lambda a: (json.dumps(a, sort_keys=True), json.loads('{"a": [1, 2.5]}')), ({"b": [1, None, True], "a": "x"},), ({"b": 1},)),
    "textwrap": (lambda a: (textwrap.fill(a, 10), textwrap.dedent("  a\n  b")), ("hello big world again",), ("hello",)),
    "statistics": (lambda a: (statistics.mean(a), statistics.median(a), statistics.pstdev(a)), ([1, 2, 3, 4],), ([1, 2],)),
    "heapq": (lambda a: (heapq.nsmallest(2, a), heapq.heapify(a), heapq.heappop(a), heapq.heappush(a, 0), a), ([3, 1, 2],), ([3, 4, 2],)),
    "bisect": (lambda a: (bisect.bisect(a, 2), bisect.insort(a, 2), a), ([1, 3],), ([2, 3],)),
    "decimal": (lambda a: decimal.Decimal(a) + 1, ("1.5",), ("2.5",)),
    "fractions": (lambda a: (fractions.Fraction(a, 6) + 1, float(fractions.Fraction(a, 6))), (3,), (4,)),
    "datetime": (lambda a: datetime.date(2020, 1, a) + datetime.timedelta(days=3), (3,), (4,)),
    "struct": (lambda a: (struct.pack("<I", a), struct.unpack("<I", b"abcd")), (3,), (4,)),
    "base64": (lambda a: base64.b64encode(a), (b"abc",), (b"abd",)),
    "hashlib": (lambda a: hashlib.md5(a).hexdigest(), (b"abc",), (b"abd",)),
    "difflib": (lambda a, b: difflib.SequenceMatcher(None, a, b).ratio(), ("abcd", "abxd"), ("abcd", "abcd")),
    "pprint": (lambda a: pprint.pformat(a), ({"a": [1, 2]},), ({"a": [1]},)),
    "inspect": (lambda a: (str(inspect.signature(a)), inspect.isfunction(a), inspect.isclass(a)), (reraised,), (appending,)),
    "ast": (lambda a: ast.literal_eval(a), ('[1, {"a": 2}]',), ("[2]",)),
    "urllib.parse": (lambda a: (urllib.parse.urlparse(a).netloc, urllib.parse.quote("a b")), ("http://h/p?q=1",), ("http://i/",)),
    "pathlib": (lambda a: (str(pathlib.PurePosixPath(a) / "b"), pathlib.PurePosixPath(a).suffix), ("/a/c.txt",), ("/a/c.py",)),
    "shlex": (lambda a: shlex.split(a), ('a "b c"',), ("a b",)),
    "fnmatch": (lambda a: fnmatch.fnmatch(a, "*.py"), ("a.py",), ("a.txt",)),
    "csv": (lambda a: list(csv.reader(io.StringIO(a))), ("a,b\n1,2\n",), ("a\n",)),
    "StringIO": (lambda a: (print(a, file=(s := io.StringIO())), s.getvalue()), ("hi",), ("ho",)),
    "random.Random": (lambda a: (random.Random(a).random(), random.Random(a).sample(range(9), 3)), (3,), (4,)),
    "os.path": (lambda a: (os.path.join("a", a), os.fspath(a), os.path.splitext(a), os.sep), ("b.c",), ("d.e",)),
    "os.environ": (lambda a: os.environ.get(a, "none"), ("SURELY_NOT_SET",),),
    "sys": (lambda a: (sys.intern(a), sys.getrecursionlimit(), sys.byteorder, sys.maxsize, sys.exc_info()[0]), ("name",), ("other",)),
    "weakref.ref": (lambda a: (weakref.ref(a)() is a, weakref.ref(a)().v), (B(1),), (B(2),)),
    "weakref.WeakValueDictionary": (lambda a: weakref.WeakValueDictionary({"k": a})["k"].v, (B(1),), (B(2),)),
    "numpy": (lambda a: (torch.from_numpy(a.numpy() * 2), a.numpy().sum().item()), (T(2),), (T(3),)),
    "getsizeof": (lambda a: sys.getsizeof(a) > 0, ([1],), ((1,),)),
    "sys._getframe": (lambda: sys._getframe().f_code.co_name, ()),
    "locals": (lambda a: sorted(locals().items()), (1,), (2,)),
    "tensor item": (lambda a: (a[0].item() > 5, float(a[0]), a.tolist()), (T(2),), (T(2, s=3),)),
    "tensor repr": (lambda a: (repr(a), f"{a}", str([a])), (T(2),), (T(2, s=3),)),
    "ContextVar": (lambda a: VARIABLE.get() + a, (1,), (2,)),
    "ExitStack": (lambda a: (with_exit_stack(a), a), ([],), ([1],)),
}  # fmt: skip

VARIABLE = __import__("contextvars").ContextVar("VARIABLE", default=3)


def with_exit_stack(items):
    with contextlib.ExitStack() as stack:
        stack.callback(items.append, 1)
        stack.enter_context(contextlib.suppress(KeyError))
        {}["q"]
    return len(items)


def script_of(body: Any, variants: tuple[tuple[Any, ...], ...], hits: bool) -> Callable[[Run], None]:
    def script(t: Run) -> None:
        def fn(x, *args):
            return body(*args), x + 1

        f = t.compile(fn)
        again = f.hit if hits else f
        for variant in variants:
            f(T(2), *copy.deepcopy(variant))
            again(T(2), *copy.deepcopy(variant))
        again(T(2), *copy.deepcopy(variants[0]))

    return script


NAMES = [add_row(__name__, "test_native", name, script_of(row[0], row[1:], True)) for name, row in ROWS.items()]
LATER_NAMES = [
    add_row(__name__, "test_later", name, script_of(row[0], row[1:], False), one_graph=False)
    for name, row in LATER.items()
]


@pytest.mark.parametrize("name", NAMES, ids=list(ROWS))
def test_native(name):
    check(REGISTRY[name])


@pytest.mark.parametrize("name", LATER_NAMES, ids=list(LATER))
def test_later(name):
    check(REGISTRY[name])


@program()
def test_functions_of_torch_that_no_table_names(t):
    def fn(x, y):
        padded = torch.nn.utils.rnn.pad_sequence([x, y], batch_first=True)
        shape = torch.broadcast_shapes(x.shape, (2, 1))
        return F.hardswish(x), F.hardsigmoid(x), padded, x.expand(shape), torch.ops.aten.threshold_backward(x, x, 0.0)

    f = t.compile(fn)
    f(T(3), T(2))
    f(T(3, rg=True), T(2))[0].sum().backward()
    f.hit(T(3), T(2))
    f(T(1), T(2))


@program()
def test_types_in_signatures(t):
    def taking(x: list[int], y: int | None = None) -> dict[str, list[int]]:
        return {"a": x}

    def fn(x):
        signature = inspect.signature(taking)
        return x + len(signature.parameters), taking.__annotations__["y"] is signature.parameters["y"].annotation

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    taking.__annotations__["y"] = int
    f(T(2))


BOUND_MATCH = re.compile("(a+)(b)").match


@program(graphs=2)
def test_native_methods_that_are_handed_their_class(t):
    """A bound method of a pattern, found in a global, and made in the call."""

    def fn(x, text):
        found = BOUND_MATCH(text)
        finder = re.compile("b").search
        return x + len(found.group(1)), finder, finder(text).start()

    f = t.compile(fn)
    f(T(3), "aab")
    f.hit(T(3), "aab")
    f.miss(T(3), "ab")
    t.note(f(T(3), "ab")[1]("xxb").start())

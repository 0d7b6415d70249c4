"""Every line of the natives table (csrc/trace/calls/natives.def), with arguments that are found by trying.

A function of the table, or a method of one of its types, is called with arguments from outside: twice (the second call must hit), with other
arguments, for which it says something else, and with the first ones again. What cannot be called so has its reason in APART.
"""

from __future__ import annotations

import collections
import copy
import datetime
import decimal
import functools
import importlib
import itertools
import operator
import re
import struct
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import REGISTRY, T, add_row, check

TABLE = Path(__file__).resolve().parents[3] / "csrc" / "trace" / "calls" / "natives.def"
LINE = re.compile(r'^ALT_(FUNCTIONS|TYPES)\("([\w.]+)", [\w| ]+, "([^"]*)"\)', re.M)
PER_PROGRAM = 24
MUTABLE = (list, dict, set, bytearray, collections.deque, types.SimpleNamespace, decimal.Context)

NUMBERS: list[Any] = [2, 3, 0.5, 1.5, True]
TEXTS: list[Any] = ["b", "a b", "1", b"ab", b"YWI="]
OTHERS: list[Any] = [
    [3, 1, 2],
    [1],
    (1, 2),
    ("a", "b"),
    {"b": 1},
    {"a": 1, "c": 2},
    {1, 2},
    slice(0, 2),
    None,
    len,
    int,
    str,
]
POOL = NUMBERS + TEXTS + OTHERS


def add(a: Any, b: Any = 1) -> Any:
    return a + b


# Instances to call methods on, two of each type: they differ in what they hold.
SAMPLES: dict[type, tuple[Any, Any]] = {
    int: (6, 7), float: (1.5, 2.25), complex: (1 + 2j, 3 - 1j), bool: (True, False), str: ("a b", "c,d"), bytes: (b"ab", b"cd"),
    bytearray: (bytearray(b"ab"), bytearray(b"cd")), list: ([3, 1, 2], [1, 2]), dict: ({"b": 1, "a": 2}, {"b": 3}), set: ({1, 2}, {3}),
    frozenset: (frozenset({1, 2}), frozenset({3})), tuple: ((1, 2), (3,)), range: (range(4), range(1, 9, 2)), slice: (slice(1, 3), slice(0, 2)),
    property: (property(len), property(str)), staticmethod: (staticmethod(len), staticmethod(str)),
    collections.deque: (collections.deque([3, 1, 2]), collections.deque([1], 4)),
    collections.OrderedDict: (collections.OrderedDict(b=1, a=2), collections.OrderedDict(b=3)),
    collections.defaultdict: (collections.defaultdict(list, b=1), collections.defaultdict(int, b=2)),
    types.SimpleNamespace: (types.SimpleNamespace(b=1), types.SimpleNamespace(b=2)),
    types.MappingProxyType: (types.MappingProxyType({"b": 1}), types.MappingProxyType({"b": 2})),
    struct.Struct: (struct.Struct("b"), struct.Struct("2b")), functools.partial: (functools.partial(add, 1), functools.partial(add, 2)),
    operator.itemgetter: (operator.itemgetter(1), operator.itemgetter(0)), operator.attrgetter: (operator.attrgetter("real"), operator.attrgetter("imag")),
    operator.methodcaller: (operator.methodcaller("upper"), operator.methodcaller("title")), re.Pattern: (re.compile("b"), re.compile("a ")),
    datetime.date: (datetime.date(2020, 1, 2), datetime.date(2021, 3, 4)), datetime.timedelta: (datetime.timedelta(1), datetime.timedelta(2, 3)),
    datetime.datetime: (datetime.datetime(2020, 1, 2, 3), datetime.datetime(2021, 3, 4)), datetime.time: (datetime.time(1, 2), datetime.time(3)),
    decimal.Decimal: (decimal.Decimal("1.50"), decimal.Decimal("-2E+3")), decimal.Context: (decimal.Context(prec=4), decimal.Context(prec=5)),
    torch.Size: (torch.Size([1, 2]), torch.Size([3])), torch.device: (torch.device("cpu"), torch.device("meta")),
}  # fmt: skip

# Arguments that are not found by trying.
GIVEN: dict[str, list[tuple[Any, ...]]] = {
    "types.MappingProxyType": [({"b": 1},), ({"a": 1},)],
    "builtins.compile": [("1 + 1", "f", "eval"), ("2", "f", "eval")], "types.UnionType": [], "itertools.groupby": [([1, 1, 2],), ([1, 2, 2], str)],
    "itertools.tee": [((1, 2), 2), ((3,), 3)], "_struct.unpack": [("b", b"a"), ("2b", b"ab")], "_struct.Struct": [("b",), ("2b",)],
    "_operator.setitem": [({"b": 1}, "b", 2), ([1, 2], 0, 3)], "builtins.ExceptionGroup": [("b", [ValueError(1)]), ("c", [KeyError(2)])],
    "unicodedata.normalize": [("NFC", "e\u0301"), ("NFD", "\u00e9")], "unicodedata.lookup": [("DIGIT ONE",), ("DIGIT TWO",)],
    "builtins.UnicodeDecodeError": [("utf8", b"ab", 0, 1, "b"), ("utf8", b"ab", 1, 2, "c")], "unicodedata.is_normalized": [("NFC", "e\u0301"), ("NFC", "e")],
    "builtins.UnicodeEncodeError": [("utf8", "ab", 0, 1, "b"), ("utf8", "ab", 1, 2, "c")], "builtins.UnicodeTranslateError": [("ab", 0, 1, "b"), ("ab", 1, 2, "c")],
    "builtins.BaseExceptionGroup": [("b", [KeyboardInterrupt()]), ("c", [SystemExit(2)])], "torch.device": [("cpu",), ("cuda", 1)],
    "datetime.timezone": [(datetime.timedelta(hours=1),), (datetime.timedelta(hours=2), "b")],
    "marshal.loads": [(b"i\x01\x00\x00\x00",), (b"N",)], "_string.formatter_field_name_split": [("a.b",), ("c[0]",)],
}  # fmt: skip

# Why a line is not called like the others: it has tests of its own, or an object of it cannot come from outside.
STATE = "reads or sets the state of the thread: test_context_managers, test_flags, test_guards_of_traces"
CLASSES = "makes or asks classes: test_classes_made_in_a_call, test_classes"
INSIDE = "from outside it is opaque: made inside, in test_natives and test_cached_functions"
APART: dict[str, str] = {
    "torch._C": STATE, "torch._C._functorch": STATE, "torch._C._autograd": STATE,
    "_abc": CLASSES, "builtins.__build_class__": CLASSES, "builtins.type": CLASSES, "builtins.super": CLASSES, "builtins.object": CLASSES,
    "_thread": INSIDE, "_io": INSIDE, "_hashlib": INSIDE, "array": INSIDE, "_weakref": INSIDE, "weakref": INSIDE, "_random": INSIDE,
    "types.FrameType": "test_introspection", "types.CodeType": "test_introspection", "types.TracebackType": "test_exceptions",
}  # fmt: skip


def lines() -> list[tuple[str, str, str]]:
    return [(kind, module, name) for kind, module, names in LINE.findall(TABLE.read_text()) for name in names.split()]


def told(value: Any) -> Any:
    """What a test may compare: iterators say what comes next."""
    if isinstance(value, collections.abc.Iterator):
        return type(value).__name__, list(itertools.islice(value, 6))
    return value


def fresh(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(copy.deepcopy(one) if isinstance(one, MUTABLE) else one for one in args)


def tried(function: Any, args: tuple[Any, ...]) -> str | None:
    """What it says, as text; None: it does not want these arguments."""
    given = fresh(args)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return repr((told(function(*given)), given))
    except Exception:
        return None


def found(function: Any, first: tuple[Any, ...] = (), other: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Up to two tuples of arguments (after `first`) that it takes, and for which it says different things."""
    for count in (1, 2, 0, 3):
        pool = POOL if count < 3 else [2, 0.5, "b", "a b", [1], (1, 2)]
        good: list[tuple[tuple[Any, ...], str]] = []
        for chosen in itertools.product(pool, repeat=count):
            for start in {id(first): first, id(other): other}.values():
                says = tried(function, start + chosen)
                if says is None or " at 0x" in says:
                    continue
                if not good or says != good[0][1]:
                    good.append((start + chosen, says))
                if len(good) == 2:
                    return [args for args, _ in good]
        if good:
            return [args for args, _ in good]
    return []


def rows() -> dict[str, tuple[Any, list[tuple[Any, ...]]]]:
    """name -> (callable, its arguments)."""
    result: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {}
    for kind, module, name in lines():
        full = f"{module}.{name}"
        if module in APART or full in APART or (module == "torch.return_types"):
            continue
        thing = getattr(importlib.import_module(module), name, None)
        if thing is None:
            continue  # of another version
        result[full] = (thing, GIVEN.get(full) or found(thing))
        if kind == "TYPES" and thing in SAMPLES:
            first, second = SAMPLES[thing]
            for method, attribute in sorted(vars(thing).items()):
                if (
                    callable(attribute)
                    and method not in METHODS_APART
                    and not isinstance(attribute, (type, staticmethod, classmethod))
                ):
                    result[f"{full}.{method}"] = (attribute, found(attribute, (first,), (second,)))
    return result


# Lines that nothing from the pool fits, and where they are tested.
MADE_BY_CODE = "not called by its name: made by def, yield, class and attribute access throughout"
ELSEWHERE: dict[str, str] = {
    "builtins.next": "test_natives, test_generators: an iterator can be asked only once", "builtins.property": "test_classes, test_rebuild_rows", "builtins.memoryview": "test_natives",
    "types.CellType": "test_rebuild_rows", "types.FunctionType": "test_functions, test_rebuild_rows", "types.UnionType": "test_rebuild_rows",
    **dict.fromkeys(("types.GeneratorType", "types.CoroutineType", "types.AsyncGeneratorType", "types.BuiltinFunctionType", "types.MethodWrapperType", "types.WrapperDescriptorType",
                     "types.MethodDescriptorType", "types.GetSetDescriptorType", "types.MemberDescriptorType"), MADE_BY_CODE),
    "_operator.matmul": "test_operators, of tensors", "_operator.imatmul": "test_operators, of tensors", "_functools.cmp_to_key": "test_natives", "_struct.pack_into": "writes to a buffer, which is opaque from outside",
    "re.Pattern": "made by re.compile", "re.Match": "made by a search: test_rebuild_rows", "datetime.tzinfo": "abstract", "functools._lru_cache_wrapper": "test_cached_functions",
    "torch.dtype": "has no constructor", "torch.layout": "has no constructor", "torch.memory_format": "has no constructor",
}  # fmt: skip
# Right, but not captured; the reason that is given for a type goes for its methods.
UNCAPTURED: dict[str, str] = {
    "builtins.bytearray": "opaque from outside", "builtins.staticmethod.__repr__": "shows an address", "_collections._tuplegetter": "cannot be reconstructed",
    "types.SimpleNamespace.__": "reads the attributes of a pre-existing object natively", "re.Pattern.finditer": "a match that was found by a descriptor's call",
    "re.Pattern.fullmatch": "likewise", "re.Pattern.match": "likewise", "re.Pattern.search": "likewise",
    "datetime.date.ctime": "the locale", "datetime.date.strftime": "the locale", "datetime.time.strftime": "the locale", "datetime.datetime.ctime": "the locale",
    "datetime.date.isocalendar": "cannot be reconstructed", "datetime.date.timetuple": "cannot be reconstructed", "datetime.datetime.timetuple": "cannot be reconstructed",
    "datetime.datetime.utctimetuple": "cannot be reconstructed", "datetime.datetime.astimezone": "the time zone", "datetime.datetime.timestamp": "the time zone",
    "torch.finfo": "cannot be reconstructed", "torch.iinfo": "cannot be reconstructed",
    "types.MappingProxyType.__repr__": "shows what it holds natively", "types.MappingProxyType.__str__": "likewise", "itertools.groupby": "groups cannot be reconstructed", "itertools.tee": "cannot be reconstructed",
    "_struct.Struct": "cannot be reconstructed", "_string.formatter_field_name_split": "cannot be reconstructed", "torch.device.__call__": "a decorator: test_default_device",
    "operator.attrgetter.__call__": "reads attributes natively", "operator.methodcaller.__call__": "likewise",
    "operator.itemgetter.__repr__": "shows what it holds natively", "operator.attrgetter.__repr__": "likewise", "operator.methodcaller.__repr__": "likewise",
}  # fmt: skip
METHODS_APART = {"__new__", "__hash__", "__sizeof__", "__reduce__", "__reduce_ex__", "__getattribute__", "__setattr__", "__delattr__", "__init__",
                 "__setstate__", "__getstate__", "__class_getitem__", "__get__", "__alloc__", "__enter__", "__exit__"}  # fmt: skip
ROWS = rows()


def script_of(names: list[str]) -> Any:
    def script(t):
        for name in names:
            function, variants = ROWS[name]

            def fn(x, args, function=function):
                said = function(*args)
                if isinstance(said, collections.abc.Iterator):
                    said = type(said).__name__, list(itertools.islice(said, 6))
                return x + 1, said

            f = t.compile(fn)
            again = f.free if any(name.startswith(begin) for begin in UNCAPTURED) else f.hit
            f(T(2), fresh(variants[0]))
            again(T(2), fresh(variants[0]))
            for other in variants[1:]:
                f(T(2), fresh(other))
                again(T(2), fresh(variants[0]))

    return script


def add_rows(captured: bool) -> list[str]:
    names = [name for name, (_, variants) in ROWS.items() if variants]
    names = [name for name in names if captured != any(name.startswith(begin) for begin in UNCAPTURED)]
    groups = [names[i : i + PER_PROGRAM] for i in range(0, len(names), PER_PROGRAM)]
    return [
        add_row(__name__, "test_lines", f"{group[0]} to {group[-1]}", script_of(group), captured) for group in groups
    ]


NAMES = add_rows(captured=True) + add_rows(captured=False)


@pytest.mark.parametrize("name", NAMES)
def test_lines(name):
    check(REGISTRY[name])


def test_every_line_is_tried():
    lines_without = {f"{module}.{name}" for _, module, name in lines()} & {
        name for name, (_, variants) in ROWS.items() if not variants
    }
    assert lines_without == set(ELSEWHERE)

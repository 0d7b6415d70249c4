"""Every row of replay/rebuild.def: an object of its kind that was made in the call, and leaves it."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import functools
import io
import itertools
import operator
import random
import re
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import REGISTRY, T, add_row, check


class Base:
    def __init__(self, value=None):
        self.value = value

    def method(self):
        return self.value


class IntValue(int):
    pass


class FloatValue(float):
    pass


class ComplexValue(complex):
    pass


class StrValue(str):
    pass


class BytesValue(bytes):
    pass


def counting(x):
    for i in range(3):
        yield x * i


def started(iterator):
    """One that stands behind its first element."""
    next(iterator)
    return iterator


def seeded(seed):
    """One that has given a number, and keeps another one back."""
    generator = random.Random(seed)
    generator.gauss(0, generator.random())
    return generator


def failing(x):
    try:
        raise ValueError("made here")
    except ValueError as error:
        return error.__traceback__


def referenced(x):
    held = Base(x)
    return held, weakref.ref(held)


ROWS: dict[str, Any] = {
    "object": lambda x: (object(), Base(x)),
    "namespace": lambda x: types.SimpleNamespace(x=x),
    "tuple": lambda x: (x, [x]),
    "list": lambda x: [x, 1],
    "dict": lambda x: {"x": x},
    "ordered_dict": lambda x: collections.OrderedDict(x=x),
    "default_dict": lambda x: collections.defaultdict(list, x=x),
    "set": lambda x: {1, 2},
    "frozenset": lambda x: frozenset([1, "a"]),
    "deque": lambda x: collections.deque([x, 1], 3),
    "slice": lambda x: slice(1, [2], 3),
    "mapping_proxy": lambda x: types.MappingProxyType({"x": x}),
    "dict_keys": lambda x: (d := {"x": x}, d.keys()),
    "dict_values": lambda x: (d := {"x": x}, d.values()),
    "dict_items": lambda x: (d := {"x": x}, d.items()),
    "ordered_keys": lambda x: (d := collections.OrderedDict(x=x), d.keys()),
    "ordered_values": lambda x: (d := collections.OrderedDict(x=x), d.values()),
    "ordered_items": lambda x: (d := collections.OrderedDict(x=x), d.items()),
    "int_value": lambda x: with_attribute(IntValue(3), x),
    "float_value": lambda x: with_attribute(FloatValue(2.5), x),
    "complex_value": lambda x: with_attribute(ComplexValue(1j), x),
    "str_value": lambda x: with_attribute(StrValue("text"), x),
    "bytes_value": lambda x: with_attribute(BytesValue(b"bytes"), x),
    "function": lambda x: lambda: x,
    "cell": lambda x: (lambda: x).__closure__[0],
    "method": lambda x: Base(x).method,
    "builtin": lambda x: [x].append,
    "builtin_of_class": lambda x: re.compile("b").search,
    "method_wrapper": lambda x: [x].__len__,
    "partial": lambda x: functools.partial(operator.add, x),
    "super": lambda x: super(Base, Base(x)),
    "property": lambda x: property(lambda self: x),
    "static_method": lambda x: staticmethod(lambda: x),
    "class_method": lambda x: classmethod(lambda cls: x),
    "weak_reference": referenced,
    "traceback": failing,
    "frame": failing,
    "generator": lambda x: started(counting(x)),
    "list_iterator": lambda x: started(iter([1, x, 2])),
    "list_reverse_iterator": lambda x: started(reversed([1, x, 2])),
    "tuple_iterator": lambda x: started(iter((1, x, 2))),
    "range_iterator": lambda x: started(iter(range(5))),
    "long_range_iterator": lambda x: started(iter(range(1 << 70))),
    "str_iterator": lambda x: started(iter("\u1234bc")),
    "str_ascii_iterator": lambda x: started(iter("abc")),
    "bytes_iterator": lambda x: started(iter(b"abc")),
    "callable_iterator": lambda x: started(iter(lambda: x, None)),
    "deque_iterator": lambda x: started(iter(collections.deque([1, x]))),
    "reversed": lambda x: started(reversed((1, x, 2))),
    "enumerate": lambda x: started(enumerate([1, x])),
    "zip": lambda x: started(zip([1, 2], [x, x], strict=False)),
    "map": lambda x: started(map(str, [1, 2, 3])),
    "filter": lambda x: started(filter(None, [1, 2, 3])),
    "chain": lambda x: started(itertools.chain([1, x], [2])),
    "count": lambda x: started(itertools.count(3)),
    "cycle": lambda x: started(itertools.cycle([1, x])),
    "repeat": lambda x: started(itertools.repeat(x, 3)),
    "islice": lambda x: started(itertools.islice([1, x, 2], 2)),
    "product": lambda x: started(itertools.product([1, 2], [x])),
    "permutations": lambda x: started(itertools.permutations([1, x])),
    "combinations": lambda x: started(itertools.combinations([1, x, 2], 2)),
    "accumulate": lambda x: started(itertools.accumulate([1, 2, 3])),
    "starmap": lambda x: started(itertools.starmap(pow, [(2, 3), (3, 2)])),
    "takewhile": lambda x: started(itertools.takewhile(bool, [1, 2, 0])),
    "dropwhile": lambda x: started(itertools.dropwhile(bool, [1, 0, 3])),
    "compress": lambda x: started(itertools.compress([1, x, 2], [1, 1, 1])),
    "zip_longest": lambda x: started(itertools.zip_longest([1, x], [2])),
    "dict_key_iterator": lambda x: (d := {"a": x, "b": 1}, started(iter(d))),
    "dict_value_iterator": lambda x: (d := {"a": x, "b": 1}, started(iter(d.values()))),
    "dict_item_iterator": lambda x: (d := {"a": x, "b": 1}, started(iter(d.items()))),
    "bytearray": lambda x: bytearray(b"abc"),
    "decimal": lambda x: decimal.Decimal("1.5"),
    "decimal_context": lambda x: decimal.Context(prec=5, flags=[decimal.Inexact], traps=[decimal.Overflow]),
    "random_generator": lambda x: seeded(7),
    "date": lambda x: datetime.date(2024, 1, 2),
    "datetime": lambda x: datetime.datetime(2024, 1, 2, 3),
    "time": lambda x: datetime.time(1, 2),
    "timedelta": lambda x: datetime.timedelta(seconds=3),
    "timezone": lambda x: datetime.timezone(datetime.timedelta(hours=1)),
    "array": lambda x: array.array("i", [1, 2]),
    "numpy_array": lambda x: (a := np.arange(6).reshape(2, 3), a[1:], np.asfortranarray(a)),
    "sequence_iterator": lambda x: (a := np.arange(3), started(iter(a))),
    "string_io": lambda x: io.StringIO("text"),
    "bytes_io": lambda x: io.BytesIO(b"bytes"),
    "item_getter": lambda x: operator.itemgetter(1, 2),
    "attribute_getter": lambda x: operator.attrgetter("a.b"),
    "method_caller": lambda x: operator.methodcaller("add", 1),
    "generic_alias": lambda x: list[int],
    "code": lambda x: (lambda: 1).__code__,
    "pattern": lambda x: re.compile("a+b"),
    "match": lambda x: re.match("a+", "aab"),
    "union": lambda x: int | str,
    "method_descriptor": lambda x: list.append,
    "wrapper_descriptor": lambda x: object.__repr__,
    "getset_descriptor": lambda x: vars(type)["__name__"],
    "member_descriptor": lambda x: vars(types.FunctionType)["__closure__"],
    "classmethod_descriptor": lambda x: vars(dict)["fromkeys"],
    "module": lambda x: sys.modules["math"],
}


def with_attribute(value, x):
    value.extra = [x]
    return value


def script_of(make: Any) -> Any:
    def script(t: Any) -> None:
        def fn(x):
            return make(x), x + 1

        f = t.compile(fn)
        results = [f(T(2))[0], f(T(2, s=1))[0], f(T(2))[0]]
        t.note([a is b for a, b in itertools.combinations(results, 2)])

    return script


try:
    import torch.utils._cxx_pytree as cxx_pytree
except ImportError:  # it needs optree
    WITHOUT = {"tree_spec"}
else:
    WITHOUT = set()
    ROWS["tree_spec"] = lambda x: cxx_pytree.tree_structure([x, {"b": (x, 1)}, torch.Size([1])])

NAMES = [add_row(__name__, "test_rebuilt", row, script_of(make), one_graph=False) for row, make in ROWS.items()]


@pytest.mark.parametrize("name", NAMES, ids=list(ROWS))
def test_rebuilt(name: str) -> None:
    check(REGISTRY[name])


def test_every_row_is_here() -> None:
    table = Path(__file__).resolve().parents[2] / "csrc" / "replay" / "rebuild.def"
    if not table.exists():
        pytest.skip("the sources are not here")
    assert set(re.findall(r"^ALT_REBUILD\((\w+),", table.read_text(), re.M)) == set(ROWS) | WITHOUT

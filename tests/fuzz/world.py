"""What every random program may use, besides what it defines itself."""

from __future__ import annotations

import ast
import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import random
import sys
import time
import types
import warnings
import weakref
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

import numpy as np
import torch
from frontends import FrontEnd
from harness import Program, Record, T
from torch import nn

import alternator

MODULE = "fuzzed"
Point = collections.namedtuple("Point", "left right")

PRELUDE = '''
class Plain:
    k = 2

    def __init__(self, n):
        self.n = n
        self.items = [1, 2]
        self.cache = {}
        self.x = None
        self.link = None
        self.recent = collections.deque([n], maxlen=3)

    def scaled(self, x):
        return x * 2 + self.k

    def bump(self, by):
        self.n += by

    def twin(self):
        made = type(self)(self.n)
        made.link = self
        return made

    def __len__(self):
        return len(self.items)

    def __repr__(self):
        return f"{type(self).__name__}({self.n})"


class Tight:
    __slots__ = ("n", "items", "cache", "x", "link", "recent")
    k = 3
    __init__, bump, twin, __len__, __repr__ = Plain.__init__, Plain.bump, Plain.twin, Plain.__len__, Plain.__repr__

    def scaled(self, x):
        return x * self.n


class Mine(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.text = text


class Guarded:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append(kind and kind.__name__)
        return kind is Mine


@contextlib.contextmanager
def logged(log):
    log.append("in")
    try:
        yield len(log)
    except LookupError:
        log.append("lookup")
    finally:
        log.append("out")


def pause(*values):
    graph_break()
    return values[0] if values else None


@contextlib.contextmanager
def scoped(log, n=0):
    log.append(("scoped", n))
    graph_break()
    try:
        yield n + 1
        log.append("fine")
    except ValueError as error:
        graph_break()
        log.append(str(error))
        raise KeyError(n) from error
    except LookupError as error:
        log.append(type(error).__name__)
    finally:
        graph_break()
        log.append("left")


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        graph_break()
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append((kind and kind.__name__, traceback is None))
        graph_break()
        return self.swallow


@dataclasses.dataclass
class Data:
    n: int
    x: object = None
    items: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.items.append(self.n)


class Num:
    def __init__(self, n):
        self.n = n

    def __add__(self, other):
        graph_break()
        return Num(self.n + getattr(other, "n", other))

    __radd__ = __add__

    def __lt__(self, other):
        graph_break()
        return self.n < other.n

    def __bool__(self):
        graph_break()
        return self.n > 1

    def __len__(self):
        return 2

    def __iter__(self):
        yield self.n
        graph_break()
        yield self.n + 1

    def __getitem__(self, index):
        graph_break()
        return (self.n, index)

    def __contains__(self, value):
        graph_break()
        return value == self.n

    def __call__(self, value):
        graph_break()
        self.n += 1
        return value

    def __eq__(self, other):
        graph_break()
        return isinstance(other, Num) and self.n == other.n

    def __hash__(self):
        return 5

    @property
    def prop(self):
        graph_break()
        return self.n * 2

    @functools.cached_property
    def cached(self):
        graph_break()
        return self.n * 3

    def __repr__(self):
        return f"Num({self.n})"


class Color(enum.Enum):
    A = 1
    B = 2

    @classmethod
    def _missing_(cls, value):
        return cls.A


@functools.lru_cache(maxsize=4)
def memo(n):
    graph_break()
    return n * 2


def counted(start):
    def decorate(fn):
        @functools.wraps(fn)
        def inner(*values, **named):
            inner.calls += 1
            graph_break()
            return fn(*values, **named)

        inner.calls = start
        return inner

    return decorate


def grads(result):
    """Backward over whatever can be differentiated in a result."""
    found = []

    def walk(value, depth=0):
        if isinstance(value, torch.Tensor):
            if value.requires_grad and value.is_floating_point():
                found.append(value)
        elif depth < 4 and isinstance(value, (list, tuple)):
            for one in value:
                walk(one, depth + 1)
        elif depth < 4 and isinstance(value, dict):
            for one in value.values():
                walk(one, depth + 1)

    walk(result)
    if found:
        try:
            sum(one.sum() for one in found).backward()
        except RuntimeError as error:
            print("backward:", str(error)[:60])
'''
NAMES = {
    "torch": torch, "nn": nn, "T": T, "collections": collections, "contextlib": contextlib, "copy": copy, "functools": functools,
    "itertools": itertools, "math": math, "Point": Point, "dataclasses": dataclasses, "enum": enum, "np": np, "operator": operator, "random": random, "sys": sys,
    "time": time, "types": types, "weakref": weakref, "CV": contextvars.ContextVar("CV", default=0), "graph_break": alternator.graph_break,
}  # fmt: skip
# Modules that programs may name must be findable, as those of real programs are.
sys.modules.setdefault(MODULE, types.ModuleType(MODULE))
PRELUDE_CODE = compile(PRELUDE, "<prelude>", "exec")


class RandomProgram(Program):
    """Made anew for every run, classes and all, from the same code objects: what one run edits, the next does not see."""

    def __init__(self, source: str, name: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.code = compile(source, f"<{name}>", "exec")
        super().__init__(self.build(), name, one_graph=False)

    def build(self) -> Any:
        space: dict[str, Any] = {**NAMES, "__name__": MODULE}
        exec(PRELUDE_CODE, space)
        exec(self.code, space)
        return space["program"]

    def run(self, frontend: FrontEnd | None, **how: bool) -> Record:
        self.script = self.build()
        return super().run(frontend, **how)


def self_contained(source: str) -> str:
    """The program with what it uses of the prelude inside: ready to be minimized and written out."""
    tree = ast.parse(source)
    prelude = {node.name: node for node in ast.parse(PRELUDE).body}  # type: ignore[attr-defined]
    used: list[str] = []
    todo: list[ast.AST] = [tree]
    while todo:
        for node in ast.walk(todo.pop()):
            if isinstance(node, ast.Name) and node.id in prelude and node.id not in used:
                used.append(node.id)
                todo.append(prelude[node.id])
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body[:0] = [prelude[name] for name in prelude if name in used]
    return ast.unparse(ast.fix_missing_locations(tree))

"""What every random program may use, besides what it defines itself."""

from __future__ import annotations

import ast
import collections
import contextlib
import copy
import functools
import itertools
import math
import sys
import types
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "trace"))

import torch
from frontends import FrontEnd
from harness import Program, Record, T
from torch import nn

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
    "itertools": itertools, "math": math, "Point": Point,
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
    """The program with what it uses of the prelude inside: ready to be minimised and written out."""
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

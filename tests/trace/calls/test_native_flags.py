"""The rows of the natives table: every name in them exists, every flag is declared and used, and flags mean what they say."""

from __future__ import annotations

import datetime
import functools
import importlib
import itertools
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # with torch's symbolic shapes: once here, and not in the process of every test
from frontends import FrontEnd
from harness import T
from trace_support import in_child

FOLDER = Path(__file__).resolve().parents[3] / "csrc" / "trace" / "calls"
TABLE = (FOLDER / "natives.def").read_text()
ROW = re.compile(r'^ALT_(\w+)\((?:"([\w.]+)", )?(?:([\w| ]+), )?"((?:[^"\\]|\\.)*)"\)', re.M)
FLAGGED = {"FUNCTIONS", "TYPES", "METHODS", "ANY_TYPE", "TYPE_OF"}
# Names that only some builds or versions have, and which.
VERSION_DEPENDENT = {"torch._C._cuda_getDeviceCount": "builds with CUDA"}


def rows() -> list[tuple[str, str, str, str]]:
    """Kind, owner, flags, names; not those of optree, which may be absent."""
    return [row for row in ROW.findall(TABLE) if not row[0].startswith("TREE")]


def owner_of(kind: str, path: str) -> Any:
    if kind != "METHODS":
        return importlib.import_module(path)
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_every_row_is_read() -> None:
    lines = [line for line in TABLE.splitlines() if line.startswith("ALT_") and not line.startswith("ALT_TREE")]
    assert len(rows()) == len(lines)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions lack some names, and have others")
def test_every_name_exists() -> None:
    missing = {
        f"{path}.{name}"
        for kind, path, _, names in rows()
        if kind not in ("ANY_TYPE", "TYPE_OF")
        for name in names.split()
        if not hasattr(owner_of(kind, path), name)
    }
    assert missing <= set(VERSION_DEPENDENT)


def test_every_name_of_any_type_exists() -> None:
    types = [
        getattr(importlib.import_module(path), n, None) for k, path, _, ns in rows() if k == "TYPES" for n in ns.split()
    ]
    for kind, _, _, names in rows():
        for name in names.split() if kind == "ANY_TYPE" else ():
            assert any(isinstance(one, type) and name in dir(one) for one in types), name


def test_no_name_is_twice_in_the_rows_of_a_kind() -> None:
    seen: set[tuple[str, str, str, str]] = set()
    for kind, path, flags, names in rows():
        for name in names.split() if kind != "TYPE_OF" else ():
            # Only methods have several rows, whose flags add up: each says something else.
            key = (kind, path, name, flags if kind in ("METHODS", "ANY_TYPE") else "")
            assert key not in seen, key
            seen.add(key)


def test_flags_are_declared_and_used() -> None:
    declared = set(re.findall(r"^  (k\w+) = ", (FOLDER / "native_flags.h").read_text(), re.M))
    used = {flag for kind, _, flags, _ in rows() if kind in FLAGGED for flag in flags.split(" | ")}
    assert used == declared - {"kListed"}  # ALT_FUNCTIONS itself sets that


# ------------------------------------------------------------------------------------------------------- what they mean


class Plain:
    pass


class Text(str):
    pass


class Day(datetime.date):
    pass


# name -> what is called with an unbacked int, and the reason for which it breaks, if it does
OF_SYMBOLS: dict[str, tuple[Callable[[Any], Any], str | None]] = {
    "kMoves": (lambda k: [next(iter([k])), len([k]), any([False]), (k,)], None),
    "kMoves, of a symbol itself": (lambda k: len(str(k)), "unbacked_value"),
    "kReadsType": (lambda k: (isinstance(k, int), callable(k)), None),
    "no kMoves": (lambda k: repr([k]), "unbacked_value"),
    "kKeeps": (lambda k: [[].append(k), {}.setdefault("a", k), {}.get("a", k)], None),
    "kKeeps, but no kTakesValues": (lambda k: [1].insert(k, 2), "unbacked_value"),
    "kReadsValues": (lambda k: [k, 2].index(2), "unbacked_value"),
    "kAdds": (lambda k: sum([k, 1]), None),
    "kMoves, not of a subclass": (lambda k: Text(",").join(["a", str(len([k]))]), "unbacked_value"),
}  # fmt: skip
# The same without one.
OF_OTHERS: dict[str, tuple[Callable[[], Any], str | None]] = {
    "kFolds": (lambda: functools.reduce(lambda a, b: a + b, [1, 2]), None),
    "kUnordered": (lambda: (len({"a", "b"}), "a" in {"a", "b"}), None),
    "kShowsAddress": (lambda: len(object.__repr__(Plain())), "address_text"),
    "kFormats": (lambda: "{0.imag}".format(2), None),
    "kFormats, of another object": (lambda: "{0.__class__.__name__}".format(Plain()), "address_text"),
    "kFormats, called by native code": (lambda: list(map("{0.imag}".format, [1, 2])), "native_call"),
    "kFormats, of a subclass": (lambda: list(map(Text("{0.imag}").format, [1, 2])), "native_call"),
    "kEncodes": (lambda: "a".encode("utf8", "replace"), None),
    "kCallsArguments": (lambda: sorted(["b", "a"], key=str.upper), None),
    "kReflects": (lambda: list(map(object.__sizeof__, [1, 2])), "native_call"),
    "kReflects, of a function": (lambda: list(itertools.starmap(issubclass, [(int, int)])), "native_call"),
    "kReadsRelated": (lambda: Plain.mro(), "native_call"),
    "kDenied": (lambda: datetime.date.today().year > 2000, "native_call"),
    "kDenied, inherited": (lambda: Day(2020, 1, 2).strftime("%Y"), "native_call"),
    "no kDenied": (lambda: datetime.date(2020, 1, 2).isoformat(), None),
    "kConstructs": (lambda: random.Random.__new__(random.Random) is None, "native_call"),
    "kMutatesUnread": (lambda: (BEFORE.append(1), BEFORE.pop()), None),
    "kReduces": (lambda: [1].__reduce_ex__(2)[0].__name__, None),
    "kThrows": (lambda: thrown(ValueError("a")), None),
}  # fmt: skip
BEFORE = [1]


def thrown(error: Exception) -> str:
    def waits() -> Any:
        yield 1

    generator = waits()
    next(generator)
    try:
        generator.throw(error)
    except ValueError as raised:
        return str(raised)
    return ""


def compare(fn: Callable[..., Any], reason: str | None) -> None:
    @in_child
    def body(_: FrontEnd) -> None:
        import alternator

        alternator.config.capture_scalar_outputs = True
        compiled = alternator.compile(fn, backend="eager")
        for value in (3, 5):
            eager, found = fn(T(2), torch.tensor(value)), compiled(T(2), torch.tensor(value))
            assert torch.equal(eager[0], found[0]) and eager[1] == found[1]
        breaks = set(alternator.counters()["breaks"])
        assert reason in breaks if reason is not None else breaks == set()

    body()


@pytest.mark.parametrize("name", OF_SYMBOLS)
def test_flags_with_a_symbol(name: str) -> None:
    function, reason = OF_SYMBOLS[name]

    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        return x + k, function(k)

    compare(fn, reason)


@pytest.mark.parametrize("name", OF_OTHERS)
def test_flags_with_other_values(name: str) -> None:
    function, reason = OF_OTHERS[name]
    compare(lambda x, n: (x + n, function()), reason)

"""Import statements inside of a function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from harness import T, program

import alternator

PACKAGE = {
    "__init__.py": "BASE = 1\n",
    "near.py": "by = 2.0\n",
    "late.py": "by = 7.0\n",
    "inner/__init__.py": "",
    "inner/user.py": """
def sibling(x):
    from . import __name__ as name
    return x + len(name)

def near(x):
    from ..near import by
    return x * by

def package(x):
    from .. import BASE, near
    return x * near.by + BASE

def late(x):
    from ..late import by
    return x * by

def late_name(x):
    from .. import late
    return x * late.by

def too_far(x):
    from ....nothing import by
    return x * by
""",
}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name, text in PACKAGE.items():
        file = tmp_path / "some_package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    alternator.reset()
    importlib.import_module("some_package.near")
    yield importlib.import_module("some_package.inner.user")
    for name in [name for name in sys.modules if name.startswith("some_package")]:
        del sys.modules[name]


def x() -> torch.Tensor:
    return torch.arange(3.0)


@pytest.mark.parametrize("name", ["sibling", "near", "package"])
def test_relative_imports_of_what_is_loaded(user: ModuleType, name: str) -> None:
    function = getattr(user, name)
    compiled = alternator.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x()), function(x()))
    assert alternator.counters()["graphs"] == 1


def test_what_they_find_is_a_fact(user: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = alternator.compile(user.near, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x()), x() * 2)
    sys.modules["some_package.near"].by = 3.0  # type: ignore[attr-defined]
    assert torch.equal(compiled(x()), x() * 3)
    other: Any = ModuleType("some_package.near")
    other.by = 4.0
    monkeypatch.setitem(sys.modules, "some_package.near", other)
    assert torch.equal(compiled(x()), x() * 4)
    # Another module under the same relative name.
    monkeypatch.setattr(user, "__package__", "some_package.inner.deeper")
    moved: Any = ModuleType("some_package.inner.near")
    moved.by = 5.0
    monkeypatch.setitem(sys.modules, "some_package.inner.near", moved)
    monkeypatch.setitem(sys.modules, "some_package.inner.deeper", ModuleType("some_package.inner.deeper"))
    assert torch.equal(compiled(x()), x() * 5)


@pytest.mark.parametrize("name", ["late", "late_name"])
def test_a_first_import_is_a_break(user: ModuleType, name: str) -> None:
    compiled = alternator.compile(getattr(user, name), backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(x()), x() * 7)
    assert alternator.counters()["breaks"]["first_import"] >= 1
    assert "some_package.late" in sys.modules


def test_errors_are_eagers(user: ModuleType) -> None:
    for function in (user.too_far, alternator.compile(user.too_far, backend="eager")):
        with pytest.raises(ImportError, match="beyond top-level package"):
            function(x())


def test_legacy_new() -> None:
    def f(x: Any) -> Any:
        made = x.new(2, 3).fill_(1.5), x.new(x.size()).zero_(), x.new([4.0, 5.0])
        return [part + 1 for part in made]

    compiled = alternator.compile(f, backend="eager")
    for _ in range(2):
        for got, wanted in zip(compiled(x()), f(x()), strict=True):
            assert torch.equal(got, wanted)
            assert (got.dtype, got.requires_grad) == (wanted.dtype, wanted.requires_grad)
    whole = alternator.compile(lambda x: x.new(x.shape[0], 2).fill_(3) + 1, backend="eager", fullgraph=True)
    assert torch.equal(whole(x()), torch.full((3, 2), 4.0))


def test_methods_of_a_modules_own_class() -> None:
    import torch._dynamo.config as settings

    def f(x: Any) -> Any:
        ask = settings.get_type  # bound anew each time it is read
        return x + (1 if callable(ask) else 2)

    alternator.reset()
    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x()), x() + 1)
    assert (alternator.counters()["graphs"], alternator.counters()["hits"]) == (1, 1)


@program(one_graph=False)
def test_names_that_a_module_lacks(t):
    def fn(x):
        try:
            from math import not_there
        except ImportError as error:
            return "fallback", str(error), error.name, x + 1
        return not_there

    def raises(x):
        from types import not_there

        return x + not_there

    for function in (fn, raises):
        f = t.compile(function)
        f(T(2))
        f(T(2))

"""Trees of sources built by hand: `Walk("f", obj).attr("x").guard("kIs", v).program()`."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="guards know torch")

from alternator._C import guards

ABSENT = guards.absent


class Tree:
    """A tree over the slots of an imaginary frame."""

    def __init__(self) -> None:
        self.tree = guards.SourceTree()
        self.needed: list[Any] = []

    def slot(self, index: int = 0, name: str | None = None) -> Path:
        return Path(self, self.tree.slot(index, name or f"a{index}"))

    def function(self) -> Path:
        return Path(self, self.tree.function())

    def constant(self, value: Any) -> Path:
        return Path(self, self.tree.constant(value))

    def program(self) -> Program:
        return Program(guards.Program(self.tree, self.needed))


class Path:
    """A source; each step gives another."""

    def __init__(self, tree: Tree, source: Any) -> None:
        self.tree, self.source = tree, source

    def step(self, access: str, key: Any = ABSENT, index: int = 0) -> Path:
        return Path(self.tree, self.tree.tree.child(self.source, access, key, index))

    def attr(self, name: str) -> Path:
        return self.step("kDict").step("kItem", name)

    def item(self, key: Any) -> Path:
        return self.step("kItem", key)

    def at(self, index: int) -> Path:
        return self.step("kIndex", index=index)

    def guard(self, kind: str, value: Any = ABSENT, **more: Any) -> Path:
        if isinstance(more.get("other"), Path):
            more["other"] = more["other"].source
        self.tree.tree.guard(self.source, kind, value, **more)
        return self

    def identity(self) -> Path:
        self.source.bears_identity = True
        return self

    def need(self) -> Path:
        self.tree.needed.append(self.source)
        return self

    @property
    def text(self) -> str:
        text: str = self.source.text
        return text

    def program(self) -> Program:
        return self.tree.program()


class Program:
    def __init__(self, program: Any) -> None:
        self.program = program

    def check(self, *slots: Any, function: Any = None) -> Any:
        return self.program.check(function, slots)

    def holds(self, *slots: Any, function: Any = None) -> bool:
        return self.check(*slots, function=function) is not None

    def why(self, *slots: Any, function: Any = None) -> str:
        """The text of the guard that fails; the check has failed first."""
        assert not self.holds(*slots, function=function)
        text: str = self.program.explain(function, slots)["text"]
        assert text
        return text

    @property
    def texts(self) -> list[str]:
        texts: list[str] = self.program.texts
        return texts


def only(kind: str, value: Any = ABSENT, **more: Any) -> Program:
    """A program with one guard, on the first slot."""
    return Tree().slot().guard(kind, value, **more).program()

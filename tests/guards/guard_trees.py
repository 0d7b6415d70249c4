"""Trees of sources built by hand: `Tree().slot().attr("x").guard("kIs", v).program()`.

Every check is made several times, so that bindings come into being and are used, and each is verified by walking."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="guards know torch")

from alternator._C import guards  # noqa: E402

ABSENT = guards.absent
guards.set_verify(True)


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

    def once(self, *slots: Any, function: Any = None) -> Any:
        return self.program.check(function, slots)

    def check(self, *slots: Any, function: Any = None) -> Any:
        first = self.once(*slots, function=function)
        for _ in range(3):
            again = self.once(*slots, function=function)
            assert (again is None) == (first is None)
        return first

    def holds(self, *slots: Any, function: Any = None) -> bool:
        return self.check(*slots, function=function) is not None

    def why(self, *slots: Any, function: Any = None) -> str:
        """The text of the guard that fails; the check has failed first."""
        assert not self.holds(*slots, function=function)
        text: str = self.program.explain(function, slots)["text"]
        assert text
        return text

    @property
    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = self.program.counts
        return counts

    def is_bound(self, *slots: Any, function: Any = None) -> bool:
        """The guards hold, and nothing was walked but arguments that have no binding: tensors and plain values."""
        before = self.counts
        assert self.once(*slots, function=function) is not None
        after = self.counts
        arguments = sum(isinstance(slot, torch.Tensor) or slot is ABSENT or guards.is_plain(slot) for slot in slots)
        return after["bound"] > before["bound"] and after["walked"] - before["walked"] <= arguments

    @property
    def texts(self) -> list[str]:
        texts: list[str] = self.program.texts
        return texts


def only(kind: str, value: Any = ABSENT, **more: Any) -> Program:
    """A program with one guard, on the first slot."""
    return Tree().slot().guard(kind, value, **more).program()

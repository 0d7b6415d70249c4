"""torch.compiler.set_stance."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import alternator

pytestmark = pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="an older torch has none")


def x(size: int = 4) -> torch.Tensor:
    return torch.arange(float(size))


@pytest.fixture
def seen() -> list[bool]:
    return []


@pytest.fixture
def compiled(seen: list[bool]) -> Any:
    alternator.reset()

    def fn(x: Any) -> Any:
        seen.append(alternator.is_compiling())
        return torch.sin(x) + 1

    return alternator.compile(fn, backend="eager")


def test_force_eager(compiled: Any, seen: list[bool]) -> None:
    compiled(x())
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(compiled(x()), torch.sin(x()) + 1)
        assert torch.equal(compiled(x(5)), torch.sin(x(5)) + 1)
    compiled(x())
    assert seen == [True, False, False, True]
    assert alternator.counters()["traces"] == 1


def test_eager_on_recompile(compiled: Any, seen: list[bool]) -> None:
    compiled(x())
    with torch.compiler.set_stance("eager_on_recompile"):
        assert torch.equal(compiled(x()), torch.sin(x()) + 1)
        assert torch.equal(compiled(x(5)), torch.sin(x(5)) + 1)
    assert seen == [True, True, False]
    assert alternator.counters()["traces"] == 1
    compiled(x(5))
    assert seen[-1] and alternator.counters()["traces"] == 2


def test_fail_on_recompile(compiled: Any) -> None:
    compiled(x())
    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(compiled(x()), torch.sin(x()) + 1)
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(x(5))
    assert torch.equal(compiled(x(5)), torch.sin(x(5)) + 1)


def test_as_a_function_and_a_decorator(compiled: Any, seen: list[bool]) -> None:
    @torch.compiler.set_stance("force_eager")
    def calls() -> Any:
        return compiled(x())

    calls()
    torch.compiler.set_stance("force_eager")
    try:
        compiled(x())
    finally:
        torch.compiler.set_stance("default")
    compiled(x())
    assert seen == [False, False, True]


def test_a_stance_below_a_break() -> None:
    seen: list[bool] = []

    def inner(x: Any) -> Any:
        seen.append(alternator.is_compiling())
        return torch.cos(x)

    @alternator.disable(recursive=False)
    def marked(x: Any) -> Any:
        with torch.compiler.set_stance("force_eager"):
            first = inner(x)
        return first + inner(x)

    compiled = alternator.compile(lambda x: marked(x + 1) * 2, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x()), torch.cos(x() + 1) * 4)
    assert seen == [False, True, False, True]


def test_eager_then_compile(compiled: Any, seen: list[bool]) -> None:
    with torch.compiler.set_stance("eager_then_compile"):
        for size in (4, 4, 5):
            assert torch.equal(compiled(x(size)), torch.sin(x(size)) + 1)
    assert seen == [False, True, True]


def test_force_backend() -> None:
    calls = []

    def counting(gm: Any, inputs: Any) -> Any:
        calls.append(gm)
        return gm.forward

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.sin(x) + 1

    for make in (lambda: lambda x: torch.sin(x) + 1, Net):
        calls.clear()
        compiled = alternator.compile(make(), backend=counting)
        for _ in range(2):
            with torch.compiler.set_stance("default", force_backend="eager"):
                assert torch.equal(compiled(x()), torch.sin(x()) + 1)
            assert not calls
        compiled(x())
        assert len(calls) == 1
        with torch.compiler.set_stance("default", force_backend=counting):
            compiled(x())
        assert len(calls) == 1  # it is compiled with that one already

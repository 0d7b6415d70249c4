"""Graphs that raise when they run, since data is not what it was: the call has done what eager has done until then."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from harness import T, program
from trace_support import alone

import alternator

WORDS: list[str] = []


@program(one_graph=False)
def test_an_index_out_of_bounds(t):
    def fn(x, index, seen):
        seen.append("before")
        y = x[index] * 2
        seen.append("after")
        return y

    f = t.compile(fn)
    f(T(4), torch.tensor([1]), [])
    f(T(4), torch.tensor([9]), [])
    f.hit(T(4), torch.tensor([2]), [])


@program(one_graph=False)
def test_handled_by_the_program(t):
    def fn(x, index):
        try:
            y = x[index] * 2
        except IndexError:
            WORDS.append("out of bounds")
            return x - 1
        return y + 1

    f = t.compile(fn)
    f(T(4), torch.tensor([1]))
    f(T(4), torch.tensor([9]))
    f(T(4), torch.tensor([2]))


@program(one_graph=False)
def test_behind_a_break(t):
    def fn(x, index, seen):
        seen.append(1)
        x = x + 1
        alternator.graph_break()
        seen.append(2)
        y = x[index]
        seen.append(3)
        return y

    f = t.compile(fn)
    f(T(4), torch.tensor([1]), [])
    f(T(4), torch.tensor([9]), [])
    f(T(4), torch.tensor([1]), [])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_lines(backend: str) -> None:
    @alone
    def run() -> None:
        def fn(x: Any, index: Any) -> Any:
            y = x + 1
            return y[index] * 2

        alternator.reset()
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        compiled(torch.ones(4), torch.tensor([1]))
        frames = []
        for function in (fn, compiled):
            with pytest.raises(IndexError) as raised:
                function(torch.ones(4), torch.tensor([9]))
            frames.append(
                [(frame.name, frame.lineno) for frame in traceback.extract_tb(raised.value.__traceback__)][1:]
            )
        assert frames[0] == frames[1]
        assert alternator.counters()["traces"] == 1

    run()


@alone
def test_what_a_backend_of_ones_own_raises() -> None:
    calls = []

    def backend(gm: Any, inputs: list[Any]) -> Any:
        def run(*given: Any) -> Any:
            calls.append(1)
            raise ZeroDivisionError("of the backend's")

        return run

    compiled = alternator.compile(lambda x: x + 1, backend=backend)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="of the backend's"):
            compiled(torch.ones(2))
    assert len(calls) == 2


@program(one_graph=False)
def test_a_factorisation_that_fails(t):
    def fn(x, seen):
        seen.append("before")
        try:
            return torch.linalg.cholesky(x).sum()
        except torch.linalg.LinAlgError:
            seen.append("not positive")
            return torch.linalg.cholesky(x + 3 * torch.eye(2)).sum()

    f = t.compile(fn)
    f(torch.eye(2), [])
    f(-torch.eye(2), [])
    f.hit(torch.eye(2) * 2, [])
    f(-4 * torch.eye(2), [])


@alone
def test_what_was_written_before_is_not_written_twice() -> None:
    def fn(x: Any, buffer: Any, index: Any) -> Any:
        buffer.add_(1)
        return x[index]

    compiled = alternator.compile(fn, backend="eager")
    buffer = torch.zeros(2)
    compiled(torch.ones(4), buffer, torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(torch.ones(4), buffer, torch.tensor([9]))
    assert buffer.tolist() == [2, 2]

"""with compiling(): whatever is called inside is compiled."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import alternator


def double(x: Any) -> Any:
    return x * 2


def inner(x: Any) -> Any:
    return double(x) + 1


class Counter:
    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, inputs: list[Any]) -> Any:
        self.graphs.append(gm)
        return gm.forward


@pytest.fixture(autouse=True)
def _fresh() -> None:
    alternator.reset()


def x() -> torch.Tensor:
    return torch.arange(4.0)


def test_functions_and_modules_are_compiled() -> None:
    counter = Counter()
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    expected = net(x())
    compiling = alternator.compiling(backend=counter)
    for _ in range(3):
        with compiling:
            assert torch.equal(inner(x()), x() * 2 + 1)
            assert torch.equal(net(x()), expected)
    assert len(counter.graphs) == 2
    inner(x())
    net(x())
    assert len(counter.graphs) == 2
    assert not alternator._C.hook_installed() if hasattr(alternator._C, "hook_installed") else True


def test_changes_between_calls_are_seen() -> None:
    counter = Counter()
    box = {"by": 2.0}

    def scale(x: Any) -> Any:
        box["calls"] = box.get("calls", 0) + 1
        return x * box["by"]

    with alternator.compiling(backend=counter):
        for number, by in enumerate((2.0, 3.0, 2.0)):
            box["by"] = by
            assert torch.equal(scale(x()), x() * by)
            assert box["calls"] == number + 1
            scale(torch.ones(2, 2))
            box["calls"] -= 1


def test_one_inside_another_and_errors() -> None:
    first, second = Counter(), Counter()
    with alternator.compiling(backend=first):
        inner(x())
        with pytest.raises(ZeroDivisionError), alternator.compiling(backend=second):  # noqa: PT012
            inner(x())
            raise ZeroDivisionError
        double(x() + 1)
    double(x())
    assert (len(first.graphs), len(second.graphs)) == (2, 1)


def test_other_threads_are_left_alone() -> None:
    counter = Counter()
    with alternator.compiling(backend=counter):
        thread = threading.Thread(target=inner, args=(x(),))
        thread.start()
        thread.join()
    assert counter.graphs == []


def test_what_is_compiled_or_disabled_by_itself_stays_so() -> None:
    counter, own = Counter(), Counter()
    compiled = alternator.compile(inner, backend=own)
    left = alternator.disable(double)
    with alternator.compiling(backend=counter):
        assert torch.equal(compiled(x()), x() * 2 + 1)
        assert torch.equal(left(x()), x() * 2)
    assert (len(own.graphs), len(counter.graphs)) == (1, 0)


def test_a_generator_that_is_left_in_the_middle() -> None:
    counter = Counter()

    def steps() -> Any:
        with alternator.compiling(backend=counter):
            yield inner(x())
            yield inner(x())

    running = steps()
    next(running)
    del running
    double(x())
    assert len(counter.graphs) == 1

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


X = torch.arange(4.0)  # a function that makes one would be compiled, too


def test_functions_and_modules_are_compiled() -> None:
    counter = Counter()
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    expected = net(X)
    compiling = alternator.compiling(backend=counter)
    for _ in range(3):
        with compiling:
            assert torch.equal(inner(X), X * 2 + 1)
            assert torch.equal(net(X), expected)
    assert len(counter.graphs) == 2
    inner(X)
    net(X)
    assert len(counter.graphs) == 2


def test_changes_between_calls_are_seen() -> None:
    counter = Counter()
    box = {"by": 2.0}

    def scale(x: Any) -> Any:
        box["calls"] = box.get("calls", 0) + 1
        return x * box["by"]

    with alternator.compiling(backend=counter):
        for number, by in enumerate((2.0, 3.0, 2.0)):
            box["by"] = by
            assert torch.equal(scale(X), X * by)
            assert box["calls"] == number + 1
            scale(torch.ones(2, 2))
            box["calls"] -= 1


def test_one_inside_another_and_errors() -> None:
    first, second = Counter(), Counter()
    left = False
    with alternator.compiling(backend=first):
        inner(X)
        try:
            with alternator.compiling(backend=second):
                inner(X)
                raise ZeroDivisionError
        except ZeroDivisionError:
            left = True
        double(X)
    double(X)
    assert left
    assert (len(first.graphs), len(second.graphs)) == (2, 1)


def test_other_threads_are_left_alone() -> None:
    counter = Counter()
    with alternator.compiling(backend=counter):
        thread = threading.Thread(target=inner, args=(X,))
        thread.start()
        thread.join()
    assert counter.graphs == []


def test_what_is_compiled_or_disabled_by_itself_stays_so() -> None:
    counter, own = Counter(), Counter()
    compiled = alternator.compile(inner, backend=own)
    left = alternator.disable(double)
    with alternator.compiling(backend=counter):
        assert torch.equal(compiled(X), X * 2 + 1)
        assert torch.equal(left(X), X * 2)
    assert (len(own.graphs), len(counter.graphs)) == (1, 0)


def test_a_generator_that_is_left_in_the_middle() -> None:
    counter = Counter()

    def steps() -> Any:
        with alternator.compiling(backend=counter):
            yield inner(X)
            yield inner(X)

    running = steps()
    next(running)
    del running
    double(X)
    assert len(counter.graphs) == 1


def test_reset_inside_of_a_compiled_function() -> None:
    @alternator.compile(backend="eager")
    def fn(x: Any) -> Any:
        y = x * 2
        alternator.reset()
        return y + 1

    for _ in range(3):
        assert fn(torch.ones(2)).tolist() == [3, 3]

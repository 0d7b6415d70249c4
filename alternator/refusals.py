"""Graphs that a backend was meant to compile and does not: what only its own answer can tell.

What the graph alone tells is decided before: csrc/backend/choose_runner.h.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any


class Uncompiled(Exception):
    """The graph runs the recorded program; the message says why. It is raised where that turns out, and caught in one place."""

    def __init__(self, reason: str, *, compiler: str | None = None, warns: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.compiler = compiler  # what it does not go through; None: the backend
        self.warns = warns  # False: just as well, nothing to warn of


class NeedsStatic(Exception):
    """The graph can be compiled only with constants in place of these symbols of its environment, by number."""

    def __init__(self, symbols: Iterable[int], reason: str) -> None:
        super().__init__(reason)
        self.symbols = sorted(set(symbols))


# Errors of AOTAutograd for graphs that eager runs, or rejects only in a backward pass that may never run: writes to inputs that share
# memory, or to tensors that a backward pass would need, and results whose autograd history an `autograd.grad()` has freed.
_REFUSALS = (
    "aot_autograd() does not yet handle",
    "one of the variables needed for gradient computation has been modified by an inplace operation",
    "Trying to backward through the graph a second time",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "outs_to_grad length (",
    "that has internal overlap",
    "more than one element of the written-to tensor refers to a single memory location",
    "mutating a non-functional tensor",  # the fused steps of optimizers
    "Could not guard on data-dependent expression",  # its own code needs the value of an unbacked symbol
)


def is_refusal(error: BaseException | None) -> bool:
    return isinstance(error, Uncompiled) or (
        isinstance(error, Exception) and any(text in str(error) for text in _REFUSALS)
    )


def needs_static(error: BaseException, symbols: Sequence[Any]) -> NeedsStatic | None:
    """A torch backend failed on a graph with symbols: whether it may do better without. `symbols`: of the graph."""
    text = str(error)
    if "Could not guard on data-dependent expression" in text:  # compilers do not learn the values of floats
        floats = [number for number, symbol in enumerate(symbols) if symbol[2] == "float"]
        return NeedsStatic(floats or range(len(symbols)), first_line(error))
    if is_refusal(error):  # it would be refused without symbols too
        return None
    return NeedsStatic(range(len(symbols)), f"{type(error).__name__}: {first_line(error)}")


def came_from_backward(error: BaseException, functions: Sequence[Any]) -> bool:
    """Whether the backward() of one of these autograd.Functions raised `error`. AOTAutograd runs each one while it compiles, eager
    only where a gradient is required."""
    codes = {getattr(method, "__code__", None) for cls in functions for method in (cls.backward, cls.vjp)}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def asks_to_skip(error: BaseException) -> bool:
    exc: Any = sys.modules.get("torch._dynamo.exc")
    return exc is not None and isinstance(error, exc.SkipFrame)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

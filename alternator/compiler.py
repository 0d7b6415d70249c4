"""compile, reset and counters: the front door, as far as it is built."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from . import config
from ._load import load_core

_C = load_core()
log = logging.getLogger("alternator")

Backend = Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]


def _target(model: Any) -> tuple[FunctionType, Any]:
    """The Python function that a call of `model` runs, and the object that it is bound to."""
    if isinstance(model, FunctionType):
        return model, None
    if isinstance(model, MethodType) and isinstance(model.__func__, FunctionType):
        return model.__func__, model.__self__
    call = getattr(type(model), "__call__", None)  # noqa: B004  the function itself is wanted
    if isinstance(call, FunctionType):
        return call, model
    raise TypeError(
        f"alternator.compile needs a Python function, a method, or an object with a Python __call__, not {model!r}"
    )


def _backend(backend: str | Backend) -> Backend | None:
    if callable(backend):
        return backend
    if backend == "eager":
        return None
    raise ValueError(f"unknown backend {backend!r}: so far there are 'eager' and any callable (gm, example_inputs)")


def _say_break(reason: str, text: str, whole: bool) -> None:
    what = "the rest of the call runs without compilation" if whole else "graph break"
    log.warning("%s [%s]\n%s", what, reason, text)


def compile(model: Any = None, *, backend: str | Backend = "eager", fullgraph: bool = False) -> Any:
    """A callable that does what `model` does, through a graph that `backend` compiled.

    What cannot be traced runs as it is, and the logger "alternator" says why; with `fullgraph` it raises.
    """
    if model is None:
        return lambda decorated: compile(decorated, backend=backend, fullgraph=fullgraph)
    function, self = _target(model)
    return _C.compile(function, self, _backend(backend), fullgraph, config.recompile_limit, _say_break)


def reset() -> None:
    """Forget everything that was compiled, and all counts."""
    _C.reset()


def counters() -> dict[str, Any]:
    """What happened since the last reset: calls, hits, traces, graphs, eager calls, breaks by reason."""
    result: dict[str, Any] = _C.counters()
    return result

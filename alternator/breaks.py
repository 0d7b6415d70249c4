"""Graph breaks that a program requests, forbids, or wants around a function."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

# Where a trace has to break, the core reads the value that the traced program has set.
_error_on_graph_break = False


def graph_break(msg: str = "") -> None:
    """Ends the graph here: what comes before and what comes after is compiled separately."""


class ErrorOnGraphBreak:
    def __init__(self, flag: bool) -> None:
        self.flag = flag
        self.before: list[bool] = []

    def __enter__(self) -> None:
        global _error_on_graph_break
        self.before.append(_error_on_graph_break)
        _error_on_graph_break = self.flag

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _error_on_graph_break
        _error_on_graph_break = self.before.pop()

    def __call__(self, fn: Function) -> Function:
        @functools.wraps(fn)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return within  # type: ignore[return-value]


def error_on_graph_break(flag: bool) -> ErrorOnGraphBreak:
    """A context manager and decorator: with True, a graph break is an error (Unsupported), as with fullgraph=True; with False, it is
    allowed again. The innermost one counts. It is read when a call is compiled, not on later hits.

    torch._dynamo.error_on_graph_break is honored too.
    """
    if not isinstance(flag, bool):
        raise TypeError(f"error_on_graph_break must be True or False, not {flag!r}")
    return ErrorOnGraphBreak(flag)


def skip(fn: Any = None) -> Any:
    """Marks a function to run eagerly wherever it is called: not a part of any graph. Also a decorator; it returns fn itself.

    Inside a compiled function, the functions that fn calls are compiled separately. torch._dynamo.decorators.skip sets the same mark.
    """
    if fn is None:
        return skip
    from .compiler import _innermost

    fn = _innermost(fn)
    if not callable(fn):
        raise TypeError(f"alternator.skip needs a function, not {fn!r}")
    fn._torchdynamo_disable = True
    return fn


def _dynamo(name: str) -> Any:
    return getattr(importlib.import_module("torch._dynamo"), name)


def allow_in_graph(fn: Any) -> Any:
    """Calls of fn are one opaque node: torch.compiler.allow_in_graph."""
    return _dynamo("allow_in_graph")(fn)


def disallow_in_graph(fn: Any) -> Any:
    """Calls of a torch function are graph breaks from now on: torch._dynamo.disallow_in_graph. allow_in_graph undoes it."""
    return _dynamo("disallow_in_graph")(fn)


def nonstrict_trace(fn: Function) -> Function:
    """Calls of fn are one node, which backends trace into and Alternator does not: torch._dynamo.nonstrict_trace."""
    marked: Function = _dynamo("nonstrict_trace")(fn)
    return marked


def assume_constant_result(fn: Any) -> Any:
    """What fn returns never changes: it is called once, while compiling. torch.compiler.assume_constant_result."""
    fn._dynamo_marked_constant = True
    return fn

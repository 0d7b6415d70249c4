"""What `compile` and compiled functions raise by themselves."""

from __future__ import annotations

import functools
import sys
from typing import Any

# One type for all: what a user can do about it differs from sentence to sentence, not from type to type.


class BackendFailed(RuntimeError):
    """A backend raised while it compiled a graph. `inner_exception` is what it raised."""

    backend_name: str
    inner_exception: BaseException
    graph: str


class Unsupported(RuntimeError):
    """A break, where fullgraph=True or error_on_graph_break(True) allows none. `reason` is its id."""

    reason: str


@functools.cache
def _unsupported_type(torch_type: type[Exception] | None) -> type[Unsupported]:
    if torch_type is None:
        return Unsupported
    return type("Unsupported", (Unsupported, torch_type), {"__module__": __name__, "__init__": Exception.__init__})


def unsupported(fields: dict[str, Any]) -> Unsupported:
    exc: Any = sys.modules.get("torch._dynamo.exc")
    text = (
        f"alternator: {fields['flag']}, but the function cannot be captured whole: {fields['cause']}\n{fields['text']}"
    )
    error = _unsupported_type(exc.Unsupported if exc is not None else None)(text)
    error.reason = fields["reason"]
    for name, value in {"msg": text, "real_stack": [], "gb_type": fields["cause"]}.items():
        setattr(error, name, value)  # torch's own have these
    return error


BackendCompilerFailed = BackendFailed  # torch's name


@functools.cache
def _backend_failed_type(torch_type: type[Exception] | None) -> type[BackendFailed]:
    """Programs that catch torch's own exception catch ours too, once torch._dynamo is loaded."""
    if torch_type is None:
        return BackendFailed
    return type("BackendFailed", (BackendFailed, torch_type), {"__module__": __name__, "__init__": Exception.__init__})


def backend_failed(backend: str, graph: str, where: str, error: BaseException) -> BackendFailed:
    exc: Any = sys.modules.get("torch._dynamo.exc")
    text = (
        f"backend={backend!r} raised {type(error).__name__} while it compiled {graph}, made from {where}:\n"
        f"  {error}\n\n"
        f"The graph itself: TORCH_LOGS=graph_code. To run such graphs without the backend:\n"
        f"  import alternator; alternator.config.suppress_errors = True\n"
        f"or compile with backend='eager'."
    )
    failed = _backend_failed_type(exc.BackendCompilerFailed if exc is not None else None)(text)
    failed.backend_name = backend
    failed.inner_exception = error
    failed.graph = graph
    failed.real_stack = []  # type: ignore[attr-defined]  # torch's own have one
    return failed

"""Exceptions of `compile` and of compiled functions."""

from __future__ import annotations

import functools
import sys
from typing import Any, ClassVar, TypeVar

# Few types: what a user can do about an error is in its message, not in its type.


class _Error(RuntimeError):
    torchs_name: ClassVar[str]  # the exception that torch raises in this case
    torchs_module: ClassVar[str] = "torch._dynamo.exc"

    def __reduce__(self) -> Any:
        own = next(cls for cls in type(self).__mro__ if cls.__dict__.get("torchs_name") is not None)
        return _make, (own, *self.args), self.__dict__


class BackendFailed(_Error):
    """A backend raised while it compiled a graph. `inner_exception` is what it raised."""

    torchs_name = "BackendCompilerFailed"
    backend_name: str
    inner_exception: BaseException
    graph: str


class Unsupported(_Error):
    """A graph break where fullgraph=True or error_on_graph_break(True) forbids it. `reason` is its id."""

    torchs_name = "Unsupported"
    reason: str


class RecompileError(_Error):
    """A call that matches no existing entry, where error_on_recompile is set."""

    torchs_name = "RecompileError"


class RecompileLimitHit(_Error):
    """A call beyond the recompile limit, where fullgraph=True or fail_on_recompile_limit_hit forbids to run it eagerly."""

    torchs_name = "FailOnRecompileLimitHit"


class ConstraintViolation(_Error):
    """A size that mark_dynamic demands as dynamic, and that the program needs as a constant."""

    torchs_name = "ConstraintViolationError"
    torchs_module = "torch.fx.experimental.symbolic_shapes"


BackendCompilerFailed = BackendFailed  # torch's name
_Own = TypeVar("_Own", bound=_Error)


@functools.cache
def _also_torchs(own: type[Any], torch_type: type[Exception]) -> Any:
    return type(own.__name__, (own, torch_type), {"__module__": __name__, "__init__": Exception.__init__})


def _make(own: type[_Own], *args: Any) -> _Own:
    """Once torch's module is loaded, the exception also derives from torch's, so that handlers for that catch it."""
    torchs = sys.modules.get(own.torchs_module)
    kind: Any = own
    cls: type[_Own] = own if torchs is None else _also_torchs(kind, getattr(torchs, own.torchs_name))
    return cls(*args)


def unsupported(fields: dict[str, Any]) -> Unsupported:
    text = (
        f"alternator: {fields['flag']}, but the function cannot be captured whole: {fields['cause']}\n{fields['text']}"
    )
    error = _make(Unsupported, text)
    error.reason = fields["reason"]
    for name, value in {"msg": text, "real_stack": [], "gb_type": fields["cause"]}.items():
        setattr(error, name, value)  # attributes of torch's exception
    return error


def backend_failed(backend: str, graph: str, where: str, error: BaseException) -> BackendFailed:
    text = (
        f"backend={backend!r} raised {type(error).__name__} while it compiled {graph}, made from {where}:\n"
        f"  {error}\n\n"
        f"The graph itself: TORCH_LOGS=graph_code. To run such graphs without the backend:\n"
        f"  import alternator; alternator.config.suppress_errors = True\n"
        f"or compile with backend='eager'."
    )
    failed = _make(BackendFailed, text)
    failed.backend_name = backend
    failed.inner_exception = error
    failed.graph = graph
    failed.real_stack = []  # type: ignore[attr-defined]  # an attribute of torch's exception
    return failed


def recompile_error(function: str, failures: list[str]) -> RecompileError:
    rows = "\n".join(f"    - {failure}" for failure in failures)
    return _make(
        RecompileError,
        f"Recompiling function {function}, which error_on_recompile forbids\n"
        f"    triggered by the following guard failure(s):\n{rows}",
    )


def recompile_limit_hit(fields: dict[str, Any]) -> RecompileLimitHit:
    return _make(RecompileLimitHit, f"Hard failure due to {fields['flag']}\n{fields['text']}")


def constraint_violation(symbols: list[Any]) -> ConstraintViolation:
    """`symbols`: events.Symbol."""
    rows = []
    for symbol in symbols:
        if symbol.narrowed:
            rows.append(
                f"  - Not all values of {symbol.torchs_name} in the specified range {symbol.given} satisfy the generated guards, "
                f"which hold for {symbol.range}. Change the range of the mark, or use maybe_mark_dynamic."
            )
        else:
            why = f": {symbol.reason}" if symbol.reason else ""
            rows.append(
                f"  - You marked {symbol.torchs_name} as dynamic but your code specialized it to be a constant ({symbol.value}){why}. "
                "If you're using mark_dynamic, either remove it or use maybe_mark_dynamic."
            )
        if symbol.lines:
            rows.append("\nUser stack:")
        for line in symbol.lines:
            rows += [f'  File "{line.file}", line {line.line}, in {line.function}'] + [f"    {line.text}"] * bool(
                line.text
            )
            rows += [f"    {' ' * line.text.find(line.mark)}{'^' * len(line.mark)}"] * bool(
                line.mark and line.mark in line.text
            )
        rows.append("")
    names = ", ".join(symbol.torchs_name for symbol in symbols)
    title = f'Constraints violated ({names})! For more information, run with TORCH_LOGS="+dynamic".'
    return _make(ConstraintViolation, "\n".join([title, *rows]))

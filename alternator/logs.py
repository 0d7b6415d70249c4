"""What is said, and where: torch's artifact logs (TORCH_LOGS), its structured trace (TORCH_TRACE), the terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch
from torch._guards import CompileId
from torch._logging._internal import LazyString, getArtifactLogger, trace_log, trace_structured

from . import config

# Warnings: what runs without compilation, and why.
log = logging.getLogger("alternator")

# Under "torch", whose handlers TORCH_LOGS sets up.
_NAME = "torch.alternator"
_graph_log = getArtifactLogger(_NAME, "graph")
_graph_code_log = getArtifactLogger(_NAME, "graph_code")
_guards_log = getArtifactLogger(_NAME, "guards")
_recompiles_log = getArtifactLogger(_NAME, "recompiles")
_breaks_log = getArtifactLogger(_NAME, "graph_breaks")


def _is_tracing() -> bool:
    """Whether TORCH_TRACE wants records. torch's own handler is there from the start; without a folder it has nothing to do."""
    return any(getattr(handler, "root_dir", True) is not None for handler in trace_log.handlers)


def wants_graphs() -> bool:
    return _is_tracing() or _graph_log.isEnabledFor(logging.DEBUG) or _graph_code_log.isEnabledFor(logging.DEBUG)


def place(code: CodeType) -> str:
    return f"{code.co_qualname} in {code.co_filename}:{code.co_firstlineno}"


def _readable(gm: Any) -> str:
    text: str = gm.print_readable(print_output=False, include_stride=True, include_device=True)
    return text


def _sizes(gm: Any) -> dict[str, list[int]]:
    examples = {node.name: node.meta.get("example_value") for node in gm.graph.nodes}
    return {name: list(value.shape) for name, value in examples.items() if isinstance(value, torch.Tensor)}


def _start_record(code: CodeType) -> dict[str, Any]:
    from torch._logging.structured import intern_string

    frame = {"line": code.co_firstlineno, "name": code.co_name, "filename": intern_string(code.co_filename)}
    return {"stack": [frame]}


def graph(name: str, gm: Any, code: CodeType) -> None:
    """A graph is on its way to its backend."""
    if not wants_graphs():
        return
    trace_structured("dynamo_start", lambda: _start_record(code))
    _graph_code_log.debug("TRACED GRAPH\n %s (%s)\n%s", name, place(code), LazyString(_readable, gm))
    if _graph_log.isEnabledFor(logging.DEBUG):
        rows = [f"{n.op:15} {n.name:30} {n.target!s:50} {n.args} {n.kwargs}" for n in gm.graph.nodes]
        _graph_log.debug("TRACED GRAPH\n %s (%s)\n%s", name, place(code), "\n".join(rows))
    trace_structured("dynamo_output_graph", lambda: {"sizes": _sizes(gm)}, payload_fn=lambda: _readable(gm))


@contextlib.contextmanager
def compiling(backend: str, name: str, gm: Any, code: CodeType) -> Iterator[None]:
    """A backend compiles: a line on the terminal if it takes long, and a record of how long it took."""
    began = time.time()
    with _progress(f"alternator: {backend} compiles {name} ({len(gm.graph.nodes)} nodes, {place(code)})"):
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            if _is_tracing():
                trace_structured("compilation_metrics", lambda: _metrics(began, backend, gm, code, failure))


def _metrics(began: float, backend: str, gm: Any, code: CodeType, failure: BaseException | None) -> dict[str, Any]:
    took = time.time() - began
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    return {
        "co_name": code.co_name,
        "co_filename": code.co_filename,
        "co_firstlineno": code.co_firstlineno,
        "graph_op_count": len(calls),
        "graph_node_count": len(gm.graph.nodes),
        "graph_input_count": len(gm.graph.find_nodes(op="placeholder")),
        "start_time": began,
        "backend": backend,
        "backend_compile_time_s": took,
        "entire_frame_compile_time_s": took,
        "fail_type": type(failure).__name__ if failure is not None else None,
        "fail_reason": str(failure) if failure is not None else None,
    }


@contextlib.contextmanager
def _progress(what: str) -> Iterator[None]:
    stream = sys.stderr
    after = config.progress_after
    if after <= 0 or stream is None or not stream.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        began, shown = time.monotonic(), False
        while not done.wait(1.0 if shown else after):
            stream.write(f"\r{what} ... {time.monotonic() - began:.0f} s")
            stream.flush()
            shown = True
        if shown:
            stream.write("\r\x1b[K")
            stream.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Listener:
    """Told by the core what happens to one compiled function."""

    def __init__(self, code: CodeType, frame: int) -> None:
        self.code = code
        self.frame = frame
        self.entries = 0

    def _compile_id(self) -> CompileId:
        return CompileId(frame_id=self.frame, frame_compile_id=max(self.entries - 1, 0))

    def recompiling(self, reasons: list[str]) -> None:
        """None of the entries fits a call: for each, the guard that fails."""
        if _recompiles_log.isEnabledFor(logging.DEBUG):
            lines = "\n".join(f"    - {number}: {reason}" for number, reason in enumerate(reasons))
            _recompiles_log.debug(
                "Recompiling function %s\n    triggered by the following guard failure(s):\n%s", place(self.code), lines
            )
        if not _is_tracing():
            return
        trace_structured(
            "artifact",
            lambda: {"name": "recompile_reasons", "encoding": "json"},
            payload_fn=lambda: reasons,
            compile_id=self._compile_id(),
        )

    def wants_guards(self) -> bool:
        return _is_tracing() or _guards_log.isEnabledFor(logging.DEBUG)

    def added(self, guards: list[str] | None) -> None:
        """There is a new entry; its guards, where wants_guards()."""
        self.entries += 1
        if guards is None:
            return
        _guards_log.debug("GUARDS of %s\n%s", place(self.code), "\n".join(f"| {guard}" for guard in guards))
        trace_structured("dynamo_cpp_guards_str", payload_fn=lambda: "\n".join(guards), compile_id=self._compile_id())

    def broke(self, reason: str, text: str, whole: bool) -> None:
        """Something could not be captured: one instruction, or the rest of the call."""
        what = "the rest of the call runs without compilation" if whole else "graph break"
        log.warning("%s [%s]\n%s", what, reason, text)
        _breaks_log.debug("Graph break in %s [%s]\n%s", place(self.code), reason, text)
        if not _is_tracing():
            return
        trace_structured(
            "artifact",
            lambda: {"name": "dynamo_graph_break_reason", "encoding": "string"},
            payload_fn=lambda: f"{reason}\n{text}",
            compile_id=self._compile_id(),
        )

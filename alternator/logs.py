"""Where events are logged: TORCH_LOGS and ALTERNATOR_LOGS, torch's structured trace (TORCH_TRACE), the terminal."""

from __future__ import annotations

import atexit
import contextlib
import linecache
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from torch._logging._internal import getArtifactLogger, trace_log, trace_structured

from . import config, events
from .events import Assumed, Break, Compiled, Entry, Event, Graph, Line, Recompile, Runner, Specialized, Symbols
from .pseudo import program_text

# Warnings about what runs without compilation, and why.
log = logging.getLogger("alternator")

ARTIFACTS = ("graph", "graph_code", "graph_sizes", "guards", "recompiles", "graph_breaks", "bytecode")
NAMES = (*ARTIFACTS, "dynamo", "dynamic")

# Loggers of TORCH_LOGS. Below "torch", whose handlers torch sets up.
_torchs = {name: getArtifactLogger("torch.alternator", name) for name in ARTIFACTS}
_torchs["dynamo"] = logging.getLogger("torch._dynamo.alternator")
_torchs["dynamic"] = logging.getLogger("torch.fx.experimental.symbolic_shapes.alternator")
_levels = dict.fromkeys(ARTIFACTS, logging.DEBUG) | {"dynamo": logging.INFO, "dynamic": logging.INFO}

# Loggers of ALTERNATOR_LOGS.
_own = logging.getLogger("alternator.logs")
_own_names: set[str] = set()


def set_logs(names: str) -> None:
    """Sets the logs that ALTERNATOR_LOGS selects: comma-separated names of logs; "all", or "" for none."""
    wanted = [name.strip().lstrip("+-") for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in (*NAMES, "all"):
            raise ValueError(f"ALTERNATOR_LOGS: there is no log {name!r}; there are {', '.join(NAMES)}, and all.")
    _own_names.clear()
    _own_names.update(NAMES if "all" in wanted else wanted)
    if _own_names and not _own.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[%(artifact)s] %(message)s"))
        _own.addHandler(handler)
        _own.setLevel(logging.DEBUG)
        _own.propagate = False


def _is_on(name: str) -> bool:
    return name in _own_names or _torchs[name].isEnabledFor(_levels[name])


def _say(name: str, message: str, *args: Any) -> None:
    level = _levels[name]
    if _torchs[name].isEnabledFor(level):
        _torchs[name].log(level, message, *args)
    elif name in _own_names:
        _own.log(level, message, *args, extra={"artifact": name})


def _is_tracing() -> bool:
    """Whether TORCH_TRACE is on. torch's handler is always installed; without a folder it is inactive."""
    return any(getattr(handler, "root_dir", True) is not None for handler in trace_log.handlers)


class Repeated:
    """Messages that are logged once, and counted from then on."""

    def __init__(self) -> None:
        self.counts: Counter[Hashable] = Counter()
        self.texts: dict[Hashable, tuple[str, str]] = {}
        self.lock = threading.RLock()  # reporting a break may cause another one

    def is_new(self, key: Hashable, log_name: str, short: str) -> bool:
        with self.lock:
            self.counts[key] += 1
            self.texts.setdefault(key, (log_name, short))
            return self.counts[key] == 1

    def flush(self) -> None:
        """Logs the counts of messages that occurred more than once, and resets."""
        with self.lock:
            counts, texts = self.counts, self.texts
            self.counts, self.texts = Counter(), {}
        for key, count in counts.items():
            if count > 1:
                name, short = texts[key]
                _say(name, "%s: %d times in all", short, count)


repeated = Repeated()


def _after_fork() -> None:
    repeated.lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(repeated.flush)


def _short(at: Line | None) -> str:
    return str(at) if at is not None else "an unknown location"


def _begin(lines: tuple[Line, ...]) -> str:
    return f", resumed at {lines[-1]}" if lines else ""


class _Terminal(events.Subscriber):
    """The artifact logs."""

    def wants_graphs(self) -> bool:
        return any(_is_on(name) for name in ("graph", "graph_code", "graph_sizes"))

    def wants_details(self) -> bool:
        return _is_on("guards") or _is_on("bytecode")

    def wants_conditions(self) -> bool:
        return _is_on("dynamic")

    def report(self, event: Event) -> None:
        handler: Callable[[Any], None] | None = getattr(self, event.kind, None)
        if handler is not None:
            handler(event)

    def graph(self, event: Graph) -> None:
        title = f"{event.name} ({event.function})"
        if _is_on("graph_code"):
            _say("graph_code", "TRACED GRAPH\n %s\n%s", title, event.readable)
        if _is_on("graph"):
            nodes = event.module.graph.nodes
            rows = [f"{n.op:15} {n.name:30} {n.target!s:50} {n.args} {n.kwargs}" for n in nodes]
            _say("graph", "TRACED GRAPH\n %s\n%s", title, "\n".join(rows))
        if _is_on("graph_sizes"):
            rows = [f"{name}: {str(tuple(size)).replace(chr(39), '')}" for name, size in event.sizes.items()]
            _say("graph_sizes", "TRACED GRAPH TENSOR SIZES\n===== %s =====\n%s", title, "\n".join(rows))

    def compiled(self, event: Compiled) -> None:
        graph = event.graph
        _say(
            "dynamo",
            "%s compiled %s of %s in %.3f s",
            graph.backend,
            graph.name,
            event.function,
            event.seconds["backend"],
        )

    def runner(self, event: Runner) -> None:
        if event.warns:
            log.warning("%s %s", event.segment or event.graph, event.text)

    def assumed(self, event: Assumed) -> None:
        _say("dynamic", "%s: %s", event.graph, event.text)

    def specialized(self, event: Specialized) -> None:
        _say("dynamic", "%s: %s", event.graph, event.text)

    def entry(self, event: Entry) -> None:
        if event.guards is not None:
            _say(
                "guards",
                "GUARDS of %s%s\n%s",
                event.function,
                _begin(event.resumed_at),
                "\n".join(f"| {g}" for g in event.guards),
            )
        if _is_on("bytecode"):
            _say("bytecode", "PROGRAM of %s\n%s", event.function, program_text(event))
        if _is_on("dynamo"):
            what = "not captured" if event.eager else f"captured, {event.operations} operations"
            took = sum(event.seconds.values())
            _say("dynamo", "%s%s: %s in %.4f s", event.function, _begin(event.resumed_at), what, took)

    def symbols(self, event: Symbols) -> None:
        if not _is_on("dynamic"):
            return
        for symbol in event.symbols:
            _say("dynamic", "%s%s: %s", event.function, _begin(event.resumed_at), symbol.text)
        for guard in event.conditions:
            if guard.at is not None:
                code = linecache.getline(guard.at.file, guard.at.line).strip()
                _say("dynamic", "eval %s [guard added] %s  # %s", guard.wanted, code, guard.at)

    def recompile(self, event: Recompile) -> None:
        title = f"Recompiling function {event.function}{_begin(event.resumed_at)}"
        key = ("recompile", title, tuple(guard.text for guard in event.failures))
        if not (_is_on("recompiles") or _is_on("dynamo")) or not repeated.is_new(key, "recompiles", title):
            return
        lines = "\n".join(f"    - {number}: {guard}" for number, guard in enumerate(event.failures))
        _say("recompiles", "%s\n    triggered by the following guard failure(s):\n%s", title, lines)
        _say("dynamo", "%s", title)

    def __getattr__(self, name: str) -> Any:
        if name == "break":  # a keyword
            return self.broke
        raise AttributeError(name)

    def broke(self, event: Break) -> None:
        short = f"Graph break [{event.reason}] at {_short(event.at)}"
        if not repeated.is_new(event.key, "graph_breaks", short):
            return
        what = event.outcome
        if event.reason == "recompile_limit":  # beginning as torch's warning does
            what = f"alternator {event.context.partition(';')[0]}: {what}"
        # A refused break is in the exception.
        if not event.refused and not _is_on("graph_breaks"):
            log.warning("%s [%s]\n%s", what, event.reason, event.text)
        _say(
            "graph_breaks",
            "Graph break in %s [%s]\n%s\n  See: %s",
            event.function,
            event.reason,
            event.text,
            event.anchor,
        )
        _say("dynamo", "%s", short)


class _Trace(events.Subscriber):
    """Records for TORCH_TRACE, in the format that tlparse reads."""

    def wants_graphs(self) -> bool:
        return _is_tracing()

    def wants_details(self) -> bool:
        return _is_tracing()

    def report(self, event: Event) -> None:
        if not _is_tracing():
            return
        if isinstance(event, Graph):
            trace_structured("dynamo_start", lambda: _start_record(event))
            trace_structured("dynamo_output_graph", lambda: {"sizes": event.sizes}, payload_fn=lambda: event.readable)
        elif isinstance(event, Runner):
            _artifact("graph_runner", "string", f"{event.segment or event.graph} {event.text}")
        elif isinstance(event, Compiled):
            trace_structured("compilation_metrics", lambda: _metrics(event))
        elif isinstance(event, Entry):
            guards = "\n".join(str(guard) for guard in event.guards or ())
            trace_structured("dynamo_cpp_guards_str", payload_fn=lambda: guards)
        elif isinstance(event, Recompile):
            reasons = [str(guard) for guard in event.failures]
            _artifact("recompile_reasons", "json", reasons)
        elif isinstance(event, Break):
            _artifact("dynamo_graph_break_reason", "string", f"{event.reason}\n{event.text}")


def _artifact(name: str, encoding: str, payload: Any) -> None:
    trace_structured("artifact", lambda: {"name": name, "encoding": encoding}, payload_fn=lambda: payload)


def _start_record(event: Graph) -> dict[str, Any]:
    from torch._logging.structured import intern_string

    code = event.code
    frame = {"line": code.co_firstlineno, "name": code.co_name, "filename": intern_string(code.co_filename)}
    return {"stack": [frame]}


def _metrics(event: Compiled) -> dict[str, Any]:
    graph, code, failure = event.graph, event.graph.code, event.failure
    return {
        "co_name": code.co_name,
        "co_filename": code.co_filename,
        "co_firstlineno": code.co_firstlineno,
        "graph_op_count": graph.operations,
        "graph_node_count": graph.nodes,
        "graph_input_count": len(graph.inputs),
        "start_time": event.began,
        "backend": graph.backend,
        "backend_compile_time_s": event.seconds["backend"],
        "entire_frame_compile_time_s": event.seconds["backend"],
        "fail_type": type(failure).__name__ if failure is not None else None,
        "fail_reason": str(failure) if failure is not None else None,
    }


class _DynamoCounters(events.Subscriber):
    """Updates torch._dynamo.utils.counters, which programs and their tests read."""

    def report(self, event: Event) -> None:
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
        if counters is None:  # not loaded: nothing can have read them
            return
        if isinstance(event, Entry):
            counters["frames"]["total"] += 1
            counters["frames"]["ok"] += not event.eager
            if event.operations:
                counters["stats"]["unique_graphs"] += 1
                counters["stats"]["calls_captured"] += event.operations
        elif isinstance(event, Break):
            counters["graph_break"][f"{event.cause} ({event.context})" if event.context else event.cause] += 1


events.subscribe(_Terminal())
events.subscribe(_Trace())
events.subscribe(_DynamoCounters())
set_logs(os.environ.get("ALTERNATOR_LOGS", ""))


def progress(graph: Graph) -> contextlib.AbstractContextManager[None]:
    """Shows a progress line on the terminal while a backend compiles, if it takes long."""
    return _progress(f"alternator: {graph.backend} compiles {graph.name} ({graph.nodes} nodes, {graph.function})")


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

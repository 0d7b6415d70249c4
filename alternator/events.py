"""Compilation events: the one source of logs, structured traces and explanations.

The core reports to a Listener; a Listener creates events and passes them to all subscribers.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, ClassVar

import torch
from torch._guards import CompileContext, CompileId, compile_context

from . import config, exc


@dataclass(frozen=True)
class Line:
    """A line of user code."""

    file: str
    line: int
    function: str
    text: str = ""  # without its indentation; empty: the source is not available
    mark: str = ""  # the part of it that the event is about; empty: all of it

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, in {self.function}"


def _line(fields: dict[str, Any] | None) -> Line | None:
    return Line(**fields) if fields is not None else None


def _lines(rows: list[dict[str, Any]]) -> tuple[Line, ...]:
    return tuple(Line(**row) for row in rows)


@dataclass(frozen=True)
class Guard:
    """A condition that must hold for an entry to be used again."""

    source: str  # "self.layers[3].weight"; empty: ambient state
    kind: str
    sentence: str
    wanted: str
    got: str  # the value that was found, where it failed
    at: Line | None  # the user's line that made it
    text: str

    def __str__(self) -> str:
        return self.text


def _guard(fields: dict[str, Any]) -> Guard:
    return Guard(**{**fields, "at": _line(fields["at"])})


@dataclass(frozen=True)
class Event:
    kind: ClassVar[str]
    function: str  # the compiled function: its name and location
    compile_id: CompileId


@dataclass(frozen=True)
class Break(Event):
    """A graph break: something could not be captured."""

    kind = "break"
    reason: str  # an id of break_reasons()
    cause: str
    context: str  # what it was about: "time.sleep"
    hint: str
    at: Line | None
    callers: tuple[Line, ...]  # the call stack, outermost first
    whole: bool  # the rest of the call runs without compilation; otherwise one instruction
    text: str
    refused_by: str | None = None  # the option that forbids it, "fullgraph=True" for example: the call raises

    @property
    def refused(self) -> bool:
        return self.refused_by is not None

    @property
    def outcome(self) -> str:
        if self.refused_by is not None:
            return f"refused by {self.refused_by}"
        return "the rest of the call runs without compilation" if self.whole else "graph break"

    @property
    def anchor(self) -> str:
        """Where the documentation explains it."""
        return f"docs/breaks.md#{self.reason}"

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for breaks of the same kind at the same location."""
        return self.reason, self.context, self.at, self.callers, self.whole, self.refused_by


@dataclass(frozen=True)
class Recompile(Event):
    """No existing entry matches a call."""

    kind = "recompile"
    resumed_at: tuple[Line, ...]  # outermost frame first; empty: at the start of the function
    failures: tuple[Guard, ...]  # for each entry, the newest first, the guard that failed


@dataclass(frozen=True)
class Graph(Event):
    """A graph is about to be compiled by its backend."""

    kind = "graph"
    name: str
    backend: str
    module: Any  # the torch.fx.GraphModule; backends may change it
    code: CodeType  # of the innermost function where the graph begins
    inputs: tuple[str, ...]  # their sources
    seconds: dict[str, float]  # export

    def settled(self, detailed: bool) -> Graph:
        """A snapshot: a backend may change the module. Without `detailed` it does not keep the module."""
        _ = self.operations, self.nodes
        if detailed:
            _ = self.readable, self.sizes
            return self
        copy = dataclasses.replace(self, module=None)
        copy.__dict__.update({"operations": self.operations, "nodes": self.nodes})
        return copy

    @functools.cached_property
    def readable(self) -> str:
        """As Python code. It must be read before the backend runs, which may change the module."""
        text: str = self.module.print_readable(print_output=False, include_stride=True, include_device=True)
        return text

    @functools.cached_property
    def sizes(self) -> dict[str, list[int | str]]:
        """The sizes of the values in it, where there are example values. Symbolic ones are texts."""
        examples = {node.name: node.meta.get("example_value") for node in self.module.graph.nodes}
        return {
            name: [size if isinstance(size, int) else str(size) for size in value.shape]
            for name, value in examples.items()
            if isinstance(value, torch.Tensor)
        }

    @functools.cached_property
    def operations(self) -> int:
        return sum(node.op.startswith("call_") for node in self.module.graph.nodes)

    @functools.cached_property
    def nodes(self) -> int:
        return len(self.module.graph.nodes)


@dataclass(frozen=True)
class Compiled(Event):
    """A backend has compiled a graph, or failed."""

    kind = "compiled"
    graph: Graph
    began: float
    seconds: dict[str, float]  # backend
    failure: BaseException | None = None


@dataclass(frozen=True)
class Runner(Event):
    """It is settled who runs a graph. For backend "eager", only if a subscriber wants_graphs()."""

    kind = "runner"
    graph: str  # its name
    segment: str | None  # the name of the one segment of it that this is about; None: the whole graph
    runner: str  # "recorded", "compiled" or "compiled in segments": csrc/backend/choose_runner.h
    compiler: str  # the backend; or "AOTAutograd", where a user callable is built on it
    reason: str | None  # why it is not compiled; None: it is
    warns: bool  # a compiler was meant to compile it

    @property
    def text(self) -> str:
        if self.reason is None:
            between = ", around nodes that no compiler may see" if self.runner == "compiled in segments" else ""
            return f"runs what {self.compiler} compiled{between}"
        return f"runs the recorded program{f', not through {self.compiler}' if self.warns else ''}: {self.reason}"


@dataclass(frozen=True)
class Assumed(Event):
    """A compiler has assumed something about the symbols of a graph: it becomes a guard."""

    kind = "assumed"
    graph: str  # its name
    compiler: str
    condition: str
    where: str  # "(_prims_common/__init__.py:1118 in infer_size)"; empty: it is a bound, or an equality

    @property
    def text(self) -> str:
        return f"{self.compiler} assumes {self.condition} {self.where}".rstrip()


@dataclass(frozen=True)
class Specialized(Event):
    """A compiler cannot do with symbols: the function is traced again with constants in their place."""

    kind = "specialized"
    graph: str  # its name
    compiler: str
    symbols: tuple[str, ...]  # their sources: "L['x'].size()[0]"
    reason: str

    @property
    def text(self) -> str:
        return f"{', '.join(self.symbols)} cannot be symbolic for {self.compiler}: {self.reason}"


@dataclass(frozen=True)
class Entry(Event):
    """A new entry: a compiled version of a function, or of a part of it."""

    kind = "entry"
    resumed_at: tuple[Line, ...]  # as in Recompile
    stops_at: tuple[Line, ...]  # the same for the break at which it ends; empty: it ends with the function
    reason: str | None  # why it stops, or captures nothing
    eager: bool  # nothing was captured: such calls run eagerly
    acts: bool  # it has side effects
    raises: bool  # it ends with an exception
    operations: int  # of its graph; 0: it has none
    seconds: dict[str, float]  # trace, install
    graph: str | None = None  # its name, if one was exported for a backend or a log
    # If a subscriber wants_details():
    guards: tuple[Guard, ...] | None = None
    inputs: tuple[str, ...] = ()  # of the graph
    arguments: tuple[str, ...] = ()  # of a resume point
    residual: tuple[str, ...] = ()  # the residual program
    results: tuple[str, ...] = ()
    result_names: tuple[str, ...] = ()  # the variable of each, where it stops at a break


@dataclass(frozen=True)
class Symbol:
    """A size or a number that was a symbol of a trace."""

    name: str  # "x.size(0)"
    value: int | float  # in the call that was traced
    why: str  # it was a symbol
    fixed: bool  # the trace has specialized on it
    lines: tuple[Line, ...]  # the user's lines that did
    reason: str  # why it could not even become one; empty: it was one
    given: str  # the values that it may have: "[2, int_oo]"
    range: str  # ... of which the trace is valid for these
    narrowed: bool  # fewer than a mark gives
    torchs_name: str  # "L['x'].size()[0]"

    @property
    def text(self) -> str:
        if not self.fixed:
            return f"{self.name} is symbolic, now {self.value}, in {self.range}: {self.why}"
        because = self.reason or ", ".join(f"{line}" + (f" [{line.text}]" if line.text else "") for line in self.lines)
        return f"{self.name} is specialized to {self.value} ({self.why}): {because or 'by the core'}"


def _symbol(fields: dict[str, Any]) -> Symbol:
    return Symbol(**{**fields, "lines": _lines(fields["lines"])})


@dataclass(frozen=True)
class Symbols(Event):
    """A trace has, or had, symbolic sizes and numbers."""

    kind = "symbols"
    resumed_at: tuple[Line, ...]  # as in Recompile
    symbols: tuple[Symbol, ...]
    conditions: tuple[Guard, ...]  # the guards over them, if a subscriber wants_conditions()


class Subscriber:
    """Receives the events. Costly parts of events are only computed if a subscriber wants them."""

    def wants_graphs(self) -> bool:
        """Whether an FX graph is needed even for backend "eager", which exports none."""
        return False

    def wants_details(self) -> bool:
        return False

    def wants_conditions(self) -> bool:
        return False

    def report(self, event: Event) -> None:
        raise NotImplementedError


_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber) -> None:
    _subscribers.append(subscriber)


def unsubscribe(subscriber: Subscriber) -> None:
    _subscribers.remove(subscriber)


def wants_graphs() -> bool:
    return any(subscriber.wants_graphs() for subscriber in _subscribers)


def wants_details() -> bool:
    return any(subscriber.wants_details() for subscriber in _subscribers)


def wants_conditions() -> bool:
    return any(subscriber.wants_conditions() for subscriber in _subscribers)


def emit(event: Event) -> None:
    with compile_context(CompileContext(event.compile_id)):  # so that torch's logs and traces name the compilation
        for subscriber in tuple(_subscribers):
            subscriber.report(event)


def place(code: CodeType) -> str:
    return f"{code.co_qualname} in {code.co_filename}:{code.co_firstlineno}"


class _Pending(threading.local):
    """The entry that this thread is building."""

    graph: str | None = None  # its name
    recompile: Recompile | None = None  # the event that caused it


@dataclass(eq=False)
class Listener:
    """Receives the core's reports about one compiled function: csrc/dispatch/events.h."""

    code: CodeType
    frame: int
    entries: int = 0
    pending: _Pending = field(default_factory=_Pending)

    def compile_id(self) -> CompileId:
        return CompileId(frame_id=self.frame, frame_compile_id=self.entries)

    def broke(self, fields: dict[str, Any]) -> None:
        self.pending.recompile = None  # the trace failed, without a graph
        named = {**fields, "at": _line(fields["at"]), "callers": _lines(fields["callers"])}
        emit(Break(place(self.code), self.compile_id(), **named))

    def recompiling(self, fields: dict[str, Any]) -> None:
        failures = tuple(_guard(row) for row in fields["failures"])
        event = Recompile(place(self.code), self.compile_id(), _lines(fields["resumed_at"]), failures)
        self.pending.recompile = event
        emit(event)

    def check_recompile(self) -> None:
        """Called by the hand-off: an exception cannot propagate from the core's report of a recompile itself."""
        event, self.pending.recompile = self.pending.recompile, None
        if event is not None and config.is_set("error_on_recompile"):
            raise exc.recompile_error(event.function, [str(guard) for guard in event.failures])

    def wants_details(self) -> bool:
        return wants_details()

    def wants_conditions(self) -> bool:
        return wants_conditions()

    def added(self, fields: dict[str, Any]) -> None:
        named: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        for name in ("resumed_at", "stops_at"):
            named[name] = _lines(fields[name])
        if "guards" in fields:
            named["guards"] = tuple(_guard(row) for row in fields["guards"])
        if not fields["resumed_at"]:
            named["arguments"] = _parameters(self.code)
        graph, self.pending.graph, self.pending.recompile = self.pending.graph, None, None
        emit(Entry(place(self.code), self.compile_id(), graph=graph, **named))
        self.entries += 1

    def graph(self, **fields: Any) -> Graph:
        """Called by the hand-off: a graph of the function is about to be compiled by a backend."""
        made = Graph(place(self.code), self.compile_id(), **fields)
        self.pending.graph = made.name
        emit(made)
        return made

    def compiled(self, graph: Graph, began: float, seconds: float, failure: BaseException | None) -> None:
        emit(Compiled(graph.function, graph.compile_id, graph, began, {"backend": seconds}, failure))

    def runs(self, **fields: Any) -> None:
        """Called by the hand-off: it is settled who runs a graph of the function."""
        emit(Runner(place(self.code), self.compile_id(), **fields))

    def assumed(self, **fields: Any) -> None:
        """Called by the hand-off: a compiler relies on it."""
        emit(Assumed(place(self.code), self.compile_id(), **fields))

    def specialized(self, **fields: Any) -> None:
        """Called by the hand-off: the function is about to be traced again."""
        emit(Specialized(place(self.code), self.compile_id(), **fields))

    def symbolic(self, fields: dict[str, Any]) -> None:
        symbols = tuple(_symbol(row) for row in fields["symbols"])
        conditions = tuple(_guard(row) for row in fields["conditions"])
        emit(Symbols(place(self.code), self.compile_id(), _lines(fields["resumed_at"]), symbols, conditions))

    def refusal(self, fields: dict[str, Any]) -> BaseException:
        return exc.unsupported(fields)

    def limit_hit(self, fields: dict[str, Any]) -> BaseException:
        return exc.recompile_limit_hit(fields)

    def violation(self, rows: list[dict[str, Any]]) -> BaseException:
        return exc.constraint_violation([_symbol(row) for row in rows])


def _parameters(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]

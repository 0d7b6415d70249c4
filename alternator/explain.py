"""explain(fn)(*args): what was captured of a call, as an object."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from . import compiler, events
from .backends import Compiler
from .events import Break, Compiled, Entry, Event, Graph, Guard, Line, Recompile, Runner

PHASES = ("trace", "export", "backend", "install")


class Explanation:
    """What was compiled, what was not and why, and how long it took.

    graphs      a Graph for each graph that was captured: name, operations, module (a torch.fx.GraphModule), ...
    runners     a Runner for each of them: who runs it (runner), and why no compiler does (reason)
    breaks      a Break for each graph break: reason, cause, at (file, line, function, text), hint, ...
    recompiles  a Recompile for each call that matched no earlier entry: failures (source, wanted, got, at)
    entries     an Entry for each compiled version: guards, where it begins and stops
    """

    def __init__(self, happened: list[Event], result: Any = None) -> None:
        self.graphs = [event for event in happened if isinstance(event, Graph)]
        self.breaks = [event for event in happened if isinstance(event, Break)]
        self.recompiles = [event for event in happened if isinstance(event, Recompile)]
        self.entries = [event for event in happened if isinstance(event, Entry)]
        self.runners = [event for event in happened if isinstance(event, Runner)]
        self._compiled = [event for event in happened if isinstance(event, Compiled)]
        self.result = result

    # Named as in the result of torch._dynamo.explain.
    @property
    def graph_count(self) -> int:
        return sum(entry.operations > 0 for entry in self.entries)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    @property
    def op_count(self) -> int:
        return sum(entry.operations for entry in self.entries)

    @property
    def guards(self) -> list[Guard]:
        """The guards of all entries."""
        return [guard for entry in self.entries for guard in entry.guards or ()]

    @property
    def seconds(self) -> dict[str, float]:
        """How long each phase took: tracing; exporting the torch.fx graph; the backend; building the residual program and the
        guards."""
        total = Counter(dict.fromkeys(PHASES, 0.0))
        for kind in (self.entries, self.graphs, self._compiled):
            for event in kind:
                total.update(event.seconds)
        return dict(total)

    def to_dict(self) -> dict[str, Any]:
        return {
            "graphs": [_plain(graph) for graph in self.graphs],
            "runners": [{**_plain(event), "text": event.text} for event in self.runners],
            "breaks": [{**_plain(event), "count": count, "anchor": event.anchor} for event, count in self._counted()],
            "recompiles": [_plain(event) for event in self.recompiles],
            "entries": [_plain(event) for event in self.entries],
            "graph_count": self.graph_count,
            "graph_break_count": self.graph_break_count,
            "op_count": self.op_count,
            "seconds": self.seconds,
        }

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    def _counted(self) -> list[tuple[Break, int]]:
        counts = Counter(event.key for event in self.breaks)
        first = {event.key: event for event in reversed(self.breaks)}
        return [(first[key], count) for key, count in counts.items()]

    def census(self, counts: dict[str, Any]) -> str:
        """A summary of a whole program; `counts` are counters()."""
        functions: dict[str, list[Entry]] = {}
        for entry in self.entries:
            functions.setdefault(entry.function, []).append(entry)
        total = f"{_number(len(functions), 'function')} in {_number(self.graph_count, 'graph')}"
        rows = [
            f"{total} with {_number(self.op_count, 'operation')}, {_number(self.graph_break_count, 'break')},"
            f" {_number(len(self.recompiles), 'recompile')}",
            f"{_number(counts['calls'], 'call')}, {counts['eager']} of them not captured to their end;"
            f" {_number(counts['hits'], 'hit')} of compiled parts",
        ]
        if functions:
            rows += ["", "graphs  ops  breaks  recompiles  function"]
        for function, entries in functions.items():
            graphs, operations = (
                sum(entry.operations > 0 for entry in entries),
                sum(entry.operations for entry in entries),
            )
            breaks = sum(event.function == function for event in self.breaks)
            recompiles = sum(event.function == function for event in self.recompiles)
            rows.append(f"{graphs:6} {operations:4} {breaks:7} {recompiles:11}  {function}")
        return "\n".join(rows + self._breaks_and_recompiles())

    def __repr__(self) -> str:
        return (
            f"<Explanation: {_number(self.graph_count, 'graph')} with {_number(self.op_count, 'operation')},"
            f" {_number(self.graph_break_count, 'break')}, {_number(len(self.recompiles), 'recompile')},"
            f" {sum(self.seconds.values()) * 1e3:.1f} ms>"
        )

    def __str__(self) -> str:
        rows = [
            f"{_number(self.graph_count, 'graph')} with {_number(self.op_count, 'operation')},"
            f" {_number(self.graph_break_count, 'break')}, {_number(len(self.recompiles), 'recompile')}"
        ]
        rows += _entry_rows(self.entries, self.runners)
        return "\n".join(rows + self._breaks_and_recompiles())

    def _breaks_and_recompiles(self) -> list[str]:
        rows: list[str] = []
        for event, count in self._counted():
            what = event.outcome[0].upper() + event.outcome[1:] if event.whole else "Break"
            times = f" ({count} times)" if count > 1 else ""
            rows += ["", f"{what} [{event.reason}]{times}, see {event.anchor}", event.text]
        for recompile in self.recompiles:
            rows += ["", f"Recompile of {recompile.function}{_resumed(recompile.resumed_at)}: what failed"]
            rows += [f"  {guard}" for guard in recompile.failures]
        rows += ["", "Time: " + ", ".join(f"{name} {took * 1e3:.1f} ms" for name, took in self.seconds.items())]
        return rows


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _resumed(lines: tuple[Line, ...]) -> str:
    return f", resumed at {lines[-1]}" if lines else ""


def _entry_rows(entries: list[Entry], runners: list[Runner]) -> list[str]:
    rows: list[str] = []
    function = None
    for entry in entries:
        if entry.function != function:
            function = entry.function
            rows += ["", function]
        begins = f"from {entry.resumed_at[-1]}" if entry.resumed_at else "from the start"
        if entry.eager:
            ends = f"not captured [{entry.reason}]"
        elif entry.stops_at:
            ends = f"to the break at {entry.stops_at[-1]} [{entry.reason}]"
        else:
            ends = "to the end"
        named = f" {entry.graph}" if entry.graph else ""
        work = f"graph{named} of {_number(entry.operations, 'operation')}" if entry.operations else "no graph"
        guards = f", {_number(len(entry.guards), 'guard')}" if entry.guards is not None else ""
        rows.append(f"  {begins}, {ends}: {work}{guards}")
        for runner in runners:
            if entry.graph is not None and runner.graph == entry.graph:
                rows.append(f"    {runner.segment or 'it'} {runner.text}")
    return rows


def _plain(event: Any) -> Any:
    if dataclasses.is_dataclass(event) and not isinstance(event, type):
        fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
        if isinstance(event, Graph):
            del fields["module"], fields["code"]
            fields |= {"operations": event.operations, "nodes": event.nodes}
            if event.module is not None:
                fields |= {"sizes": event.sizes, "code": event.readable}
        return {name: _plain(value) for name, value in fields.items()}
    if isinstance(event, (list, tuple)):
        return [_plain(value) for value in event]
    if isinstance(event, dict):
        return {str(name): _plain(value) for name, value in event.items()}
    return event if isinstance(event, (str, int, float, bool, type(None))) else str(event)


class Collector(events.Subscriber):
    """Collects all events of one thread, or of all. Without `detailed`, compilation is not affected, and no graph modules are kept;
    with `graphs` it also gets the graphs that no backend compiles."""

    def __init__(self, thread: int | None, detailed: bool = True, graphs: bool = False) -> None:
        self.thread = thread
        self.detailed = detailed
        self.graphs = graphs or detailed
        self.happened: list[Event] = []

    def wants_graphs(self) -> bool:
        return self.graphs

    def wants_details(self) -> bool:
        return self.detailed

    def report(self, event: Event) -> None:
        if self.thread is not None and self.thread != threading.get_ident():
            return
        if isinstance(event, Graph):
            event = event.settled(self.detailed)
        elif isinstance(event, Compiled):
            event = dataclasses.replace(event, graph=event.graph.settled(False))
        self.happened.append(event)

    def explanation(self, result: Any = None) -> Explanation:
        return Explanation(list(self.happened), result)


@contextlib.contextmanager
def collecting(thread: int | None = None) -> Iterator[Collector]:
    collector = Collector(thread)
    events.subscribe(collector)
    try:
        yield collector
    finally:
        events.unsubscribe(collector)


def explain(
    fn: Any, *, backend: str | Compiler | None = "eager", dynamic: bool | None = None
) -> Callable[..., Explanation]:
    """`explain(fn)(*args, **kwargs)` calls fn compiled, and returns an Explanation of what happened; `.result` is what fn returned.

    fn may be compiled already: then its own entries are used, and a call that is a hit has nothing to explain. Each call has its own
    Explanation; entries are kept from call to call.
    """
    compiled = (
        fn
        if compiler.is_compiled(fn)
        else compiler._compile(fn, backend=backend, dynamic=dynamic, isolate_recompiles=True)
    )

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        with collecting(threading.get_ident()) as collector:
            result = compiled(*args, **kwargs)
        return collector.explanation(result)

    return explained

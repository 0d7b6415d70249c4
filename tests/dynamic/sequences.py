"""Programs that are called with a sequence of sizes and numbers, and how they are judged.

    @sequence(shapes((4, 3), (5, 3), (6, 3)), marks=[(0, 0)])
    def rows(x):
        return x.view(x.shape[0], -1)

    @sequence(over(lambda n: (T(n, 3), n), 4, 5, 6), made=True)
    def counter():
        seen = []
        ...
        return fn

A row is a function, or (`made`) a function that makes one, anew for each run: with state, cells, attributes or globals of its own. A
list of thunks makes the arguments of the calls. Every row runs in three modes: as it is, with dynamic=True, and (where dimensions are
named in `marks`: number of the argument, dimension) with `torch._dynamo.mark_dynamic` on the arguments of each call.

What is compared with eager is what the harness compares: results, strides, aliasing, arguments, state, errors, gradients, output,
random generators. Four times: each call looked at; the same calls again from the entries of the first run; in the reverse order, with
these entries; (in the first mode) with a spy as backend. The number of graphs is that of the first run. TorchDynamo's numbers are
in graphs.json, which measure.py makes. Where it has none, a row says in `graphs` how many are allowed, or nothing is asserted.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from frontends import FrontEnd, ThroughAOTAutograd
from harness import Crashed, Program, Record, Run, T, compare, forked, the_frontend
from torch.fx.experimental.symbolic_shapes import ShapeEnv

HERE = Path(__file__).resolve().parent
GRAPHS = HERE / "graphs.json"
RECOMPILING = HERE / "recompiling.txt"
MODES = ("default", "dynamic=True", "mark_dynamic")
ROWS: dict[str, Row] = {}

Arguments = Callable[[], tuple[Any, ...]]


def over(make: Callable[..., tuple[Any, ...]], *values: Any) -> list[Arguments]:
    """The arguments of one call for each of these values; a tuple is several."""
    return [functools.partial(make, *(one if isinstance(one, tuple) else (one,))) for one in values]


def shapes(*wanted: tuple[int, ...], **how: Any) -> list[Arguments]:
    """One tensor for each call, each with other values."""
    return [functools.partial(one_tensor, shape, number, how) for number, shape in enumerate(wanted)]


def one_tensor(shape: tuple[int, ...], number: int, how: dict[str, Any]) -> tuple[torch.Tensor]:
    return (T(*shape, s=number, **how),)


@dataclass
class Row:
    """A program of a table."""

    function: Callable[..., Any]
    calls: list[Arguments]
    made: bool = False
    marks: Sequence[tuple[int, int]] = ()
    backward: bool = False  # through the sum of what a call returns
    aot: bool = True  # also judged through AOTAutograd
    inductor: bool = False  # one of the sample for Inductor
    graphs: int | None = None  # allowed where TorchDynamo gives up and runs eagerly
    watch: Callable[[], Any] | None = None  # state that cannot be reached from the function
    modes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.function.__name__
        self.modes = [mode for mode in MODES if mode != "mark_dynamic" or self.marks]

    def script(self, mode: str, backwards: bool = False) -> Callable[[Run], None]:
        def script(t: Run) -> None:
            f = t.compile(
                self.function() if self.made else self.function, **({"dynamic": True} if mode == "dynamic=True" else {})
            )
            if self.watch:
                t.watch(self.watch)
            for make in reversed(self.calls) if backwards else self.calls:
                arguments = make()
                for position, dimension in self.marks if mode == "mark_dynamic" else ():
                    torch._dynamo.mark_dynamic(arguments[position], dimension)
                result = f(*arguments)
                if self.backward:
                    differentiate(result)

        script.__module__ = self.function.__module__
        return script


def sequence(calls: list[Arguments], **how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Puts a function, or with `made` a maker of functions, into the table."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        row = Row(function, calls, **how)
        assert row.name not in ROWS, row.name
        ROWS[row.name] = row
        return function

    return decorate


def differentiate(result: Any) -> None:
    """Gradients of the sum of everything in a result that can be differentiated."""
    leaves = torch.utils._pytree.tree_leaves(result)
    found = [one.sum() for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad]
    if found:
        torch.stack(found).sum().backward()


@dataclass
class Outcome:
    """What became of a row: where it differs from eager, and how often the backend was called."""

    wrong: list[str] = field(default_factory=list)
    graphs: int = 0
    broken: str = ""  # the program itself is


class ThroughInductor(ThroughAOTAutograd):
    """Inductor's code, as the hand-off asks for it."""

    name = "inductor"

    def __init__(self) -> None:
        super().__init__()
        sys.setrecursionlimit(
            max(sys.getrecursionlimit(), 2000)
        )  # Inductor does so for a graph with symbols, and for good

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Any:
        return self.module.compile(fn, backend="inductor", fullgraph=fullgraph, **options)


def frontend_of(backend: str) -> FrontEnd:
    """Made in the child: those that go through AOTAutograd change what the harness compares."""
    if backend == "eager":
        return the_frontend("alternator")
    return ThroughAOTAutograd() if backend == "aot_eager" else ThroughInductor()


def judge(row: Row, mode: str, frontend: FrontEnd, spied: bool = True) -> Outcome:
    """All the runs, in this process."""
    ROWS.clear()  # the sanitizer looks at all that can be reached from a program
    ahead, back = (Program(row.script(mode, order), row.name, one_graph=False) for order in (False, True))
    wanted = ahead.run(None)
    if wanted.ended:
        return Outcome(broken=wanted.ended)
    frontend.reset()
    before = frontend.counters()["graphs"]
    first = ahead.run(frontend)
    counted = first.counters["graphs"] - before
    found = Outcome(differences("compiled", wanted, first) + ahead.bugs(first), max(counted, first.graphs))
    for how, program in (("entries used again", ahead), ("in reverse order", back)):
        late = program.run(frontend, late=True)
        found.wrong += differences(f"compiled, {how}", program.run(None, late=True), late)
    if spied:
        frontend.reset()
        seen = ahead.run(frontend, spying=True)
        found.wrong += differences("with a spy", wanted, seen)
        found.wrong += [f"written while tracing: {line}" for line in seen.written]
    return found


def differences(how: str, wanted: Record, got: Record) -> list[str]:
    return [f"{how}: {line}" for line in compare(wanted, got)]


@functools.cache
def warm_up() -> None:
    """What every child would import and set up by itself."""
    with torch._subclasses.FakeTensorMode(shape_env=ShapeEnv()) as mode:
        (mode.from_tensor(T(2, 3)) * 2).sum()


def outcome(name: str, mode: str, backend: str) -> Outcome:
    """A row is judged once, in a child, for the tests of its results and of its graphs."""
    return judged(name, tuple(ROWS[name].modes) if backend == "eager" else (mode,), backend)[mode]


@functools.cache
def judged(name: str, modes: tuple[str, ...], backend: str) -> dict[str, Outcome]:
    """A child for all these modes; if it dies, one for each."""
    row = ROWS[name]
    warm_up()

    def work() -> dict[str, Outcome]:
        frontend = frontend_of(backend)
        return {mode: judge(row, mode, frontend, backend == "eager" and mode == "default") for mode in modes}

    try:
        return forked(work)
    except Crashed as error:
        if len(modes) == 1:
            return {modes[0]: Outcome([f"crashed: {error}"])}
    return {mode: judged(name, (mode,), backend)[mode] for mode in modes}


# ------------------------------------------------------------------------------------------------------------ graphs


@functools.cache
def torchdynamos_graphs() -> dict[str, dict[str, int | None]]:
    """name -> mode -> backend calls; None where TorchDynamo raises and eager does not."""
    return json.loads(GRAPHS.read_text())


def most_graphs(name: str, mode: str) -> int | None:
    """How many graphs a row may be compiled to; None where nobody knows. TorchDynamo makes none where it gives up on a frame."""
    return ROWS[name].graphs or torchdynamos_graphs()[name][mode] or None


@functools.cache
def recompiling() -> dict[str, dict[str, str]]:
    """mode -> rows that are known to be compiled more often than by TorchDynamo, with the reason."""
    found: dict[str, dict[str, str]] = {mode: {} for mode in MODES}
    section = ""
    for line in RECOMPILING.read_text().splitlines():
        text = line.strip()
        if text.startswith("["):
            section = text.strip("[]")
        elif text and not text.startswith("#"):
            name, _, reason = text.partition(" ")
            found[section][name] = reason.strip()
    return found


def write_recompiling(found: dict[str, set[str]]) -> None:
    """The reasons that the file has stay."""
    head = [line for line in RECOMPILING.read_text().splitlines() if line.startswith("#")]
    known = recompiling()
    lines = [*head]
    for mode in MODES:
        rows = [f"{name:26}{known[mode].get(name, '')}".rstrip() for name in sorted(found[mode])]
        lines += ["", f"[{mode}]", *rows]
    RECOMPILING.write_text("\n".join(lines) + "\n")

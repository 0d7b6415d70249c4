"""TORCH_LOGS, TORCH_TRACE and the terminal."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import alternator

PROGRAM = """
import torch, alternator
torch._C._dynamo  # TorchDynamo's Python part stays out of this
@alternator.compile(backend="eager")
def f(x, by):
    return x * by
@alternator.compile(backend=lambda gm, inputs: gm.forward)
def g(x):
    return x + 1 if x.sum() > 0 else x - 1
f(torch.ones(2), 2.0)
f(torch.ones(2), 3.0)
g(torch.ones(2))
@alternator.compile(backend=lambda gm, inputs: gm.forward)
def h(x):
    return x - 1
h(torch.ones(2))
"""


def test_torch_logs(run_python: Callable[..., str]) -> None:
    said = run_python(PROGRAM, TORCH_LOGS="graph_code,guards,recompiles,graph_breaks,graph")
    assert "TRACED GRAPH" in said
    assert "class GraphModule(torch.nn.Module)" in said
    assert "def forward(self" in said
    assert "placeholder" in said
    assert "GUARDS of f in" in said
    assert "by: it equals 2.0" in said
    assert "Recompiling function f in" in said
    assert "it equals 2.0 (type and bits), not 3.0" in said
    assert "Graph break in g in" in said
    assert "data_dependent" in said
    assert "[__graph_code]" in said
    assert re.search(r"\[\d/1\] \[__recompiles\] Recompiling function f in", said)
    assert said.count("  Cause: ") == 1  # the one break


REFUSED = """
import torch, alternator
def branch(x):
    return x if x.sum() > 0 else -x
for allowed in (False, True):
    try: alternator.compile(branch, backend="eager", fullgraph=not allowed)(torch.ones(2))
    except alternator.Unsupported: print("refused", flush=True)
"""


def test_what_is_refused_is_not_said_to_run(run_python: Callable[..., str]) -> None:
    said = run_python(REFUSED.replace("(False, True)", "(False,)"))
    assert said == "refused\n"
    said = run_python(REFUSED)
    assert said.count("Cause: ") == 1
    assert said.count("graph break [data_dependent]") == 1


def test_silence(run_python: Callable[..., str]) -> None:
    said = run_python(PROGRAM.replace("\ng(torch.ones(2))", ""))
    assert said == ""


def test_structured_trace(run_python: Callable[..., str], tmp_path: Path) -> None:
    run_python(PROGRAM, TORCH_TRACE=str(tmp_path / "trace"))
    (file,) = (tmp_path / "trace").iterdir()
    records = [
        json.loads(line[line.index("{") :])
        for line in file.read_text().splitlines()
        if line.startswith("V") and "{" in line
    ]
    kinds = {kind for record in records for kind in record}
    assert {"dynamo_start", "dynamo_output_graph", "compilation_metrics", "dynamo_cpp_guards_str", "artifact"} <= kinds
    names = {record["artifact"]["name"] for record in records if "artifact" in record}
    assert {"recompile_reasons", "dynamo_graph_break_reason"} <= names
    metrics = next(record["compilation_metrics"] for record in records if "compilation_metrics" in record)
    assert metrics["co_name"] in ("g", "h")
    for record in records:
        if "dynamo_output_graph" in record:
            assert isinstance(record["frame_id"], int)
            assert record["has_payload"]
    of_compilations = [record for record in records if "frame_id" in record]
    assert {kind for record in of_compilations for kind in record} >= {"dynamo_cpp_guards_str", "artifact"}
    assert {record["attempt"] for record in of_compilations} == {0}


def test_artifact_loggers_can_be_switched_on_later(caplog: pytest.LogCaptureFixture) -> None:
    torch._logging.set_logs(graph_code=True)
    try:
        with caplog.at_level(logging.DEBUG, logger="torch"):
            alternator.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    finally:
        torch._logging.set_logs()
    assert not logging.getLogger("torch.alternator.__graph_code").isEnabledFor(logging.DEBUG)


class Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        self.said = ""

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> None:
        self.said += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    def slow(gm: Any, inputs: list[Any]) -> Any:
        time.sleep(0.3)
        return gm.forward

    terminal = Terminal(is_terminal)
    monkeypatch.setattr(alternator.config, "progress_after", 0.05)
    monkeypatch.setattr(sys, "stderr", terminal)
    alternator.compile(lambda x: x + 1, backend=slow)(torch.ones(2))
    if is_terminal:
        assert "slow compiles __compiled_fn_" in terminal.said
        assert terminal.said.endswith("\x1b[K")
    else:
        assert terminal.said == ""


# --- ALTERNATOR_LOGS ----------------------------------------------------------------------------------------

SECOND = """
import time, torch, alternator
class Box: pass
box = Box()
box.seen = []
def helper(y):
    time.sleep(0)
    return y * 2
def f(x, by):
    y = x * by
    box.seen.append(y)
    z = helper(y)
    return [z + 1, by]
for _ in range(3):
    c = alternator.compile(f, backend="eager", isolate_recompiles=True)
    c(torch.ones(2), 2.0)
    c(torch.ones(2), 3.0)
"""


def said_under(run_python: Callable[..., str], names: str, program: str = SECOND) -> str:
    quiet = program.replace(
        "import time", 'import logging; logging.getLogger("alternator").setLevel("ERROR"); import time'
    )
    return run_python(quiet, ALTERNATOR_LOGS=names)


def test_own_logs_have_the_names_of_torchs(run_python: Callable[..., str]) -> None:
    said = said_under(run_python, "graph_breaks")
    assert {line.split("]")[0] + "]" for line in said.splitlines() if line.startswith("[")} == {"[graph_breaks]"}
    assert said.count("[graph_breaks] Graph break in f in ") == 1
    assert "    z = helper(y)\n" in said
    assert "    time.sleep(0)\n" in said
    assert "See: docs/breaks.md#native_call" in said


def test_repeated_breaks_and_recompiles_are_counted(run_python: Callable[..., str]) -> None:
    said = said_under(run_python, "graph_breaks,recompiles")
    assert said.count("  Cause: ") == 1
    # Each of the three compilations breaks there twice.
    assert "[graph_breaks] Graph break [native_call] at " in said
    assert ", in helper: 6 times in all" in said
    # At the start. Behind the break it is only returned.
    assert said.count("triggered by the following guard failure(s)") == 1
    assert said.count("by: it equals 2.0 (type and bits), not 3.0") == 1
    assert "Recompiling function f in " in said
    assert said.count(": 3 times in all") == 1


def test_repeated_ones_are_said_again_after_a_reset(run_python: Callable[..., str]) -> None:
    said = said_under(run_python, "graph_breaks", SECOND + "alternator.reset()\nc(torch.ones(2), 2.0)\n")
    assert said.count("  Cause: ") == 2


def test_guards_graphs_and_sizes(run_python: Callable[..., str]) -> None:
    program = SECOND.replace("import time, torch", "import time, torch, torch._dynamo")
    said = said_under(run_python, "guards, graph_code,graph_sizes", program)
    assert "[guards] GUARDS of f in " in said
    assert "| by: it equals 2.0 (type and bits) (" in said
    assert "[graph_code] TRACED GRAPH" in said
    assert "def forward(self" in said
    assert "[graph_sizes] TRACED GRAPH TENSOR SIZES" in said
    assert ": (2,)" in said


def test_dynamo(run_python: Callable[..., str]) -> None:
    for said in (said_under(run_python, "dynamo"), run_python(SECOND, TORCH_LOGS="dynamo")):
        assert "captured, 1 operations in " in said
        assert "Graph break [native_call] at " in said


BYTECODE = [
    "def f(x, by):  # ",
    "    graph = graph_of_1(x)",
    "    list.extend(__main__.box.seen, [graph[0]])",
    "    # break [native_call]: the frames as they stand before ",
    "    f.by = by",
    "    helper.y = graph[0]",
    "    execute('time.sleep(0)')  # concretely; resumes at the next instruction",
    "def resume_helper_7(f.x, f.by, f.y, helper.y):  # ",
    "    graph = graph_of_2(y)",
    "    return t0",
]


@pytest.mark.parametrize("variable", ["ALTERNATOR_LOGS", "TORCH_LOGS"])
def test_bytecode(run_python: Callable[..., str], variable: str) -> None:
    said = run_python(SECOND, **{variable: "bytecode"})
    at = 0
    for text in BYTECODE:
        found = said.find(text, at)
        assert found >= 0, f"{text!r} is not in\n{said[at:]}"
        at = found


def test_unknown_names_are_refused(run_python: Callable[..., str]) -> None:
    said = run_python("import alternator", fails=True, ALTERNATOR_LOGS="graph_brakes")
    assert "there is no log 'graph_brakes'; there are graph, graph_code," in said
    assert run_python("import alternator", ALTERNATOR_LOGS="all") == ""


def test_torchs_counters(run_python: Callable[..., str]) -> None:
    """Where torch._dynamo.utils is loaded; nothing loads it for them."""
    program = """
import sys, torch, alternator
def f(x):
    x = x.sin().cos()
    alternator.graph_break()
    return x + 1
compiled = alternator.compile(f, backend="eager")
compiled(torch.ones(2))
assert "torch._dynamo.utils" not in sys.modules
from torch._dynamo.utils import counters
compiled(torch.ones(2))
print("known", dict(counters["stats"]), dict(counters["frames"]))
compiled(torch.ones(3))
print(dict(counters["stats"]), dict(counters["frames"]), dict(counters["graph_break"]))
"""
    said = run_python(program)
    assert "known {} {}" in said
    assert "{'unique_graphs': 2, 'calls_captured': 3} {'total': 2, 'ok': 2}" in said
    assert "{'the program calls graph_break() (graph_break())': 1}" in said

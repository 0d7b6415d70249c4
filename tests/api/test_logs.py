"""TORCH_LOGS, TORCH_TRACE and the terminal."""

from __future__ import annotations

import json
import logging
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

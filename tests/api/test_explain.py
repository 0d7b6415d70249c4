"""explain(fn)(*args), and python -m alternator explain."""

from __future__ import annotations

import itertools
import json
import operator
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import alternator
from alternator.explain import collecting

ROOT = Path(__file__).parents[2]


def x() -> torch.Tensor:
    return torch.arange(3.0)


def helper(y: Any) -> Any:
    time.sleep(0)
    return y * 2


def with_breaks(x: Any, by: float) -> Any:
    z = helper(x * by) + 1
    if z.sum() > 0:
        return z - 1
    return z


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_one_graph() -> None:
    def f(x: Any) -> Any:
        return (x * 2).sin() + 1

    explained = alternator.explain(f)(x())
    assert torch.equal(explained.result, f(x()))
    assert (explained.graph_count, explained.graph_break_count, explained.op_count) == (1, 0, 3)
    (graph,) = explained.graphs
    assert (graph.operations, graph.backend, graph.inputs) == (3, "eager", ("x",))
    assert [node.target for node in graph.module.graph.nodes if node.op.startswith("call_")] == [
        operator.mul,
        "sin",
        operator.add,
    ]
    assert "def forward(self" in graph.readable
    (entry,) = explained.entries
    assert (entry.resumed_at, entry.stops_at, entry.eager, entry.graph) == ((), (), False, graph.name)
    (guard,) = (guard for guard in explained.guards if guard.source == "x")
    assert guard.sentence == "the tensor is a Tensor, of dtype float, of size [3], on cpu"
    assert guard.at is not None
    assert guard.at.file == __file__
    assert guard.at.line == line_of("return (x * 2).sin() + 1")
    assert set(explained.seconds) == {"trace", "export", "backend", "install"}
    assert all(explained.seconds[phase] > 0 for phase in ("trace", "export", "install"))
    assert repr(explained).startswith("<Explanation: 1 graph with 3 operations, 0 breaks, 0 recompiles, ")


def test_breaks() -> None:
    explained = alternator.explain(with_breaks)(x(), 2.0)
    assert torch.equal(explained.result, with_breaks(x(), 2.0))
    assert explained.graph_count == 3
    first, second = explained.breaks
    assert (first.reason, first.context, first.whole) == ("native_call", "time.sleep", False)
    assert first.cause == "a native function that is not known to be safe while tracing is called"
    assert "Move the call out" in first.hint
    assert first.at is not None
    assert (first.at.file, first.at.line, first.at.function) == (__file__, line_of("    time.sleep(0)"), "helper")
    assert (first.at.text, first.at.mark) == ("time.sleep(0)", "time.sleep(0)")
    (caller,) = first.callers
    assert (caller.line, caller.function, caller.mark) == (
        line_of("helper(x * by) + 1"),
        "with_breaks",
        "helper(x * by)",
    )
    assert (second.reason, second.callers) == ("data_dependent", ())
    assert second.at is not None
    assert (second.at.text, second.at.mark) == ("if z.sum() > 0:", "z.sum() > 0")
    assert "torch.where" in second.hint
    begin, middle, end = explained.entries
    assert [line.function for line in begin.stops_at] == ["with_breaks", "helper"]
    assert [line.function for line in middle.resumed_at] == ["with_breaks", "helper"]
    assert (end.stops_at, end.operations) == ((), 1)
    assert alternator.counters()["breaks"] == {"native_call": 1, "data_dependent": 1}
    text = str(explained)
    assert "3 graphs with 6 operations, 2 breaks, 0 recompiles" in text
    assert "Break [native_call], see docs/breaks.md#native_call" in text
    assert '  File "' + __file__ + '"' in text
    assert "       ^^^^^^^^^^^\n" in text


def test_who_runs_each_graph() -> None:
    def makes_a_leaf(x: Any) -> Any:
        w = torch.ones(3, requires_grad=True)
        return x * w, w

    rows = str(alternator.explain(with_breaks)(x(), 2.0)).splitlines()
    said = [after for row, after in itertools.pairwise(rows) if ": graph __compiled_fn_" in row]
    assert said == ["    it runs the recorded program: the backend compiles nothing"] * 3
    explained = alternator.explain(with_breaks, backend="aot_eager")(x(), 2.0)
    assert str(explained).count("\n    it runs what aot_eager compiled\n") == 3
    assert [event.graph for event in explained.runners] == [graph.name for graph in explained.graphs]
    explained = alternator.explain(makes_a_leaf, backend="aot_eager")(x())
    why = "runs the recorded program, not through aot_eager: it makes a leaf that requires grad"
    assert f"\n    it {why}\n" in str(explained)
    (plain,) = json.loads(explained.to_json())["runners"]
    assert (plain["runner"], plain["reason"], plain["text"]) == ("recorded", "it makes a leaf that requires grad", why)


def test_what_is_refused_says_by_which_option() -> None:
    def switched(x: Any) -> Any:
        with alternator.error_on_graph_break(True):
            return x + 1 if x.sum() > 0 else x - 1

    def broken_off(fn: Any, **options: Any) -> Any:
        with collecting() as collector, pytest.raises(alternator.Unsupported):
            alternator.compile(fn, backend="eager", **options)(x(), *(() if fn is switched else (2.0,)))
        (event,) = collector.explanation().breaks
        return event.refused_by, event.outcome

    assert broken_off(with_breaks, fullgraph=True) == ("fullgraph=True", "refused by fullgraph=True")
    assert broken_off(switched) == ("error_on_graph_break(True)", "refused by error_on_graph_break(True)")
    assert [event.refused_by for event in alternator.explain(with_breaks)(x(), 2.0).breaks] == [None, None]


def test_recompiles() -> None:
    explain = alternator.explain(with_breaks)
    explain(x(), 2.0)
    explained = explain(x(), 3.0)
    assert torch.equal(explained.result, with_breaks(x(), 3.0))
    (recompile,) = explained.recompiles
    assert recompile.function.startswith("with_breaks in ")
    (guard,) = recompile.failures
    assert (guard.source, guard.wanted, guard.got) == ("by", "2.0", "3.0")
    assert guard.at is not None
    assert (guard.at.file, guard.at.line) == (__file__, line_of("helper(x * by) + 1"))
    assert f"by: it equals 2.0 (type and bits), not 3.0 ({__file__}:{guard.at.line}, in with_breaks)" in str(explained)
    again = explain(x(), 3.0)
    assert (again.graph_count, again.breaks, again.recompiles) == (0, [], [])
    assert again.entries == []


def test_a_compiled_function_is_explained_as_it_is() -> None:
    compiled = alternator.compile(with_breaks, backend="eager")
    compiled(x(), 2.0)
    assert alternator.explain(compiled)(x(), 2.0).entries == []
    assert len(alternator.explain(compiled)(x(), 3.0).recompiles) == 1


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())

    def forward(self, x: Any) -> Any:
        return self.layers(x) + 1


def test_modules() -> None:
    net = Net()
    explained = alternator.explain(net)(x())
    torch.testing.assert_close(explained.result, net(x()))
    assert explained.graph_count == 1
    (weight,) = (guard for guard in explained.guards if guard.source == "self.layers[0].weight")
    # Not the line of torch.nn that reads it.
    assert weight.at is not None
    assert (weight.at.file, weight.at.line) == (__file__, line_of("return self.layers(x) + 1"))
    assert alternator.explain(alternator.compile(net, backend="eager"))(x()).graph_count == 1


def test_what_is_not_captured() -> None:
    def f(x: Any) -> Any:
        return iter(x.tolist())

    explained = alternator.explain(f)(x())
    assert list(explained.result) == [0.0, 1.0, 2.0]
    assert explained.breaks
    assert all(event.reason in {row[0]: row for row in alternator._C.break_reasons()} for event in explained.breaks)


def test_backends_take_time() -> None:
    def slow(gm: Any, inputs: Any) -> Any:
        time.sleep(0.05)
        for node in list(gm.graph.nodes):
            node.meta.clear()
        return gm.forward

    explained = alternator.explain(lambda x: x + 1, backend=slow)(x())
    assert explained.seconds["backend"] > 0.04
    assert explained.graphs[0].backend == "slow"


def test_an_exception_is_the_callers() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    subscribers = len(alternator.events._subscribers)
    with pytest.raises(KeyError, match="mine"):
        alternator.explain(f)(x())
    assert len(alternator.events._subscribers) == subscribers


def test_other_threads_are_not_meant() -> None:
    other = alternator.compile(lambda x: x - 1, backend="eager")

    @alternator.disable
    def elsewhere() -> None:
        thread = threading.Thread(target=lambda: other(x()))
        thread.start()
        thread.join()

    def f(x: Any) -> Any:
        elsewhere()
        return x + 1

    explained = alternator.explain(f)(x())
    assert alternator.counters()["graphs"] == 2
    assert explained.graph_count == 1


def test_json() -> None:
    explain = alternator.explain(with_breaks)
    explain(x(), 2.0)
    read = json.loads(explain(x(), 3.0).to_json())
    assert read["graph_count"] == 1
    assert read["recompiles"][0]["failures"][0]["got"] == "3.0"
    assert read["breaks"][0]["reason"] == "native_call"
    assert read["breaks"][0]["count"] == 1
    assert read["breaks"][0]["at"]["text"] == "time.sleep(0)"
    assert "def forward" in read["graphs"][0]["code"]
    assert {"trace", "export", "backend", "install"} == set(read["seconds"])


def test_repeated_breaks_are_counted() -> None:
    def f(x: Any, n: int) -> Any:
        for _ in range(n):
            x = helper(x)
        return x

    explain = alternator.explain(f)
    collected = [explain(x(), n) for n in (1, 2)]
    assert len({event.key for one in collected for event in one.breaks}) <= 2

    def g(x: Any) -> Any:
        return [alternator.compile(helper, backend="eager", isolate_recompiles=True)(x) for _ in range(3)]

    g_explained = alternator.explain(alternator.disable(g), backend="eager")(x())
    assert len(g_explained.breaks) == 3
    assert "Break [native_call] (3 times)" in str(g_explained)
    assert json.loads(g_explained.to_json())["breaks"][0]["count"] == 3


def test_every_reason_has_its_place_in_the_documentation() -> None:
    page = (ROOT / "docs/breaks.md").read_text()
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")[1:]}
    reasons = alternator._C.break_reasons()
    assert sorted(sections) == sorted(reason for reason, _, _ in reasons)
    for reason, cause, hint in reasons:
        assert cause.lower() in sections[reason].lower()
        assert hint in sections[reason]


# --- the command line ---------------------------------------------------------------------------------------

SCRIPT = """
import sys, time, torch

@torch.compile(backend="eager")
def f(x, by):
    time.sleep(0)
    return x * by

f(torch.ones(2), 2.0)
f(torch.ones(2), 3.0)
print("args", sys.argv[1:], __name__, __file__.endswith("program.py"))
"""


def command(tmp_path: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "program.py"
    file.write_text(script)
    return subprocess.run(
        [sys.executable, "-m", "alternator", "explain", str(file), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )


def check_census(said: str) -> None:
    assert "alternator: 1 function in 2 graphs with 2 operations, 1 break, 1 recompile" in said
    assert "2 calls, 0 of them not captured to their end" in said
    assert "Break [native_call]" in said
    assert "by: it equals 2.0 (type and bits), not 3.0" in said


def test_script(tmp_path: Path) -> None:
    done = command(tmp_path, SCRIPT, "a", "--b")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "args ['a', '--b'] __main__ True\n"
    check_census(done.stderr)


@pytest.mark.parametrize(("ending", "status"), [("sys.exit(7)", 7), ("sys.exit('no')", 1), ("raise SystemExit", 0)])
def test_script_that_exits(tmp_path: Path, ending: str, status: int) -> None:
    done = command(tmp_path, SCRIPT + ending)
    assert done.returncode == status
    check_census(done.stderr)
    assert "Traceback" not in done.stderr


def test_script_that_raises(tmp_path: Path) -> None:
    script = SCRIPT + "def g():\n    raise ValueError('mine')\ng()\n"
    done = command(tmp_path, script)
    assert done.returncode == 1
    check_census(done.stderr)
    plain = subprocess.run([sys.executable, str(tmp_path / "program.py")], text=True, capture_output=True, check=False)
    traceback = plain.stderr[plain.stderr.index("Traceback") :]
    assert traceback.endswith("ValueError: mine\n")
    assert traceback in done.stderr


def test_script_that_is_not_there(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "alternator", "explain", str(tmp_path / "nothing.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
    assert "nothing.py" in done.stderr


def test_script_as_json(tmp_path: Path) -> None:
    file, out = tmp_path / "program.py", tmp_path / "census.json"
    file.write_text(SCRIPT)
    subprocess.run(
        [sys.executable, "-m", "alternator", "explain", "--json", str(out), str(file)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    read = json.loads(out.read_text())
    assert read["graph_count"] == 2
    assert [graph["operations"] for graph in read["graphs"]] == [1, 2]  # the second one takes the value of `by`
    assert {graph["backend"] for graph in read["graphs"]} == {"eager"}
    assert len(read["recompiles"]) == 1

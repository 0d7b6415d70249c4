"""error_on_graph_break, skip, run, disallow_in_graph, nonstrict_trace, marks on tensors, export."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch._dynamo

import alternator


def x() -> torch.Tensor:
    return torch.arange(4.0)


def breaks() -> dict[str, int]:
    return dict(alternator.counters()["breaks"])


SWITCHES = {"alternator": alternator.error_on_graph_break, "torch": torch._dynamo.error_on_graph_break}
every_switch = pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)


# --- error_on_graph_break -----------------------------------------------------------------------------------


@every_switch
def test_a_break_is_an_error_inside(switch: Any) -> None:
    def f(x: Any, forbid: bool) -> Any:
        y = x + 1
        with switch(forbid):
            time.sleep(0)
            y = y * 2
        return y - 1

    compiled = alternator.compile(f, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x(), False), f(x(), False))
    assert breaks() == {"native_call": 1}
    for _ in range(2):
        with pytest.raises(alternator.Unsupported, match=r"error_on_graph_break\(True\)") as caught:
            compiled(x(), True)
        assert isinstance(caught.value, torch._dynamo.exc.Unsupported)
        assert caught.value.reason == "native_call"
    assert torch.equal(compiled(x(), False), f(x(), False))
    assert alternator.breaks._error_on_graph_break is False
    assert torch._dynamo.utils._error_on_graph_break is False


@every_switch
def test_the_innermost_counts(switch: Any) -> None:
    def f(x: Any) -> Any:
        with switch(True):
            y = x + 1
            with switch(False):
                time.sleep(0)
            y = y * 2
        return y - 1

    compiled = alternator.compile(f, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x()), f(x()))
    assert alternator.counters()["graphs"] == 2
    assert alternator.breaks._error_on_graph_break is False
    assert torch._dynamo.utils._error_on_graph_break is False


@every_switch
def test_as_a_decorator(switch: Any) -> None:
    def part(x: Any) -> Any:
        if x.sum() > 0:
            return x + 1
        return x - 1

    strict, lenient = switch(True)(part), switch(False)(part)
    assert torch.equal(strict(x()), part(x()))
    assert torch.equal(alternator.compile(lambda x: lenient(x) * 2, backend="eager")(x()), part(x()) * 2)
    with pytest.raises(alternator.Unsupported):
        alternator.compile(lambda x: strict(x) * 2, backend="eager")(x())
    whole = switch(True)(alternator.compile(part, backend="eager"))
    with pytest.raises(alternator.Unsupported):
        whole(x())


@every_switch
def test_around_a_compiled_call(switch: Any) -> None:
    def f(x: Any) -> Any:
        time.sleep(0)
        return x + 1

    compiled = alternator.compile(f, backend="eager")
    with switch(True), pytest.raises(alternator.Unsupported):
        compiled(x())
    # What was refused inside is not refused outside.
    assert torch.equal(compiled(x()), f(x()))


def test_fullgraph_is_stronger() -> None:
    def f(x: Any) -> Any:
        with alternator.error_on_graph_break(False):
            time.sleep(0)
        return x + 1

    with pytest.raises(
        alternator.Unsupported, match="fullgraph=True, but the function cannot be captured whole: a native function"
    ):
        alternator.compile(f, backend="eager", fullgraph=True)(x())


def test_an_exception_of_the_program_is_no_break() -> None:
    def f(x: Any) -> Any:
        with alternator.error_on_graph_break(True):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        alternator.compile(f, backend="eager")(x())
    with pytest.raises(TypeError, match="True or False"):
        alternator.error_on_graph_break(1)  # type: ignore[arg-type]


# --- skip ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "skip", [alternator.skip, alternator.skip(), torch._dynamo.decorators.skip], ids=["ours", "ours()", "torch"]
)
def test_skip(skip: Any) -> None:
    calls: list[bool] = []

    def inner(x: Any) -> Any:
        calls.append(alternator.is_compiling())
        return x * 3

    assert skip(inner) is inner
    compiled = alternator.compile(lambda x: inner(x + 1) - 1, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x()), (x() + 1) * 3 - 1)
    assert calls == [False, False]
    assert breaks() == {"disabled": 1}
    assert alternator.counters()["graphs"] == 2


def test_skip_frame() -> None:
    compiling: list[bool] = []

    def inner(x: Any) -> Any:
        y = x * 2
        torch._dynamo.decorators.skip_frame("not this one")
        compiling.append(alternator.is_compiling())
        return y + 1

    def f(x: Any) -> Any:
        return inner(x + 1) - 1

    compiled = alternator.compile(f, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x()), (x() + 1) * 2)
    assert compiling == [False, False]
    assert breaks() == {"skipped": 2}  # as part of `f`, and by itself when `f` calls it concretely
    assert alternator.counters()["graphs"] == 2
    # The compiled function itself.
    alternator.reset()
    whole = alternator.compile(inner, backend="eager")
    assert torch.equal(whole(x()), x() * 2 + 1)
    assert alternator.counters()["graphs"] == 0
    assert compiling == [False] * 3


def test_step_unsupported() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        torch._dynamo.decorators.step_unsupported()
        return y * 2

    assert torch.equal(alternator.compile(f, backend="eager")(x()), (x() + 1) * 2)
    assert breaks() == {"graph_break_call": 1}


# --- run ----------------------------------------------------------------------------------------------------


def test_run_uses_what_is_compiled_and_compiles_nothing() -> None:
    seen: list[bool] = []

    def f(x: Any) -> Any:
        seen.append(alternator.is_compiling())
        return x.sin() + 1

    compiled = alternator.compile(f, backend="eager")
    for run in (alternator.run(compiled), alternator.run(f), alternator.run()(f)):
        alternator.reset()
        seen.clear()
        assert torch.equal(run(x()), x().sin() + 1)
        assert (seen, alternator.counters()["graphs"]) == ([False], 0)
        compiled(x())
        assert torch.equal(run(x()), x().sin() + 1)
        assert seen == [False, True, True]
        assert torch.equal(run(x()[:2]), x()[:2].sin() + 1)
        assert seen == [False, True, True, False]
        assert (alternator.counters()["graphs"], alternator.counters()["hits"]) == (1, 1)


def test_run_after_a_break() -> None:
    def f(x: Any, by: float) -> Any:
        y = x + 1
        time.sleep(0)
        return y * by

    compiled = alternator.compile(f, backend="eager")
    run = alternator.run(compiled)
    compiled(x(), 2.0)
    assert alternator.counters()["graphs"] == 2
    for by in (2.0, 3.0):
        assert torch.equal(run(x(), by), f(x(), by))
    assert alternator.counters()["graphs"] == 2


def test_run_of_modules_and_of_several_compilations() -> None:
    net = torch.nn.Linear(4, 4)
    compiled = alternator.compile(net, backend="eager")
    run = alternator.run(compiled)
    assert isinstance(run, torch.nn.Linear)
    compiled(x())
    hits = alternator.counters()["hits"]
    torch.testing.assert_close(run(x()), net(x()))
    assert alternator.counters()["hits"] == hits + 1

    def f(x: Any) -> Any:
        return x + 1

    first, second = alternator.compile(f, backend="eager"), alternator.compile(f, backend="eager")
    first(x())
    second(x()[:2])
    hits = alternator.counters()["hits"]
    for size in (4, 2, 3):
        assert torch.equal(alternator.run(f)(x()[:size]), x()[:size] + 1)
    assert alternator.counters()["hits"] == hits + 2


def test_run_never_refuses() -> None:
    def f(x: Any) -> Any:
        time.sleep(0)
        return x + 1

    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    with pytest.raises(alternator.Unsupported):
        compiled(x())
    assert torch.equal(alternator.run(compiled)(x()), x() + 1)


def test_run_inside_of_a_compiled_function() -> None:
    inner = alternator.run(lambda x: x.sin() * 10)
    compiled = alternator.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x()), x().sin() * 10 + 1)
    assert alternator.counters()["graphs"] == 1


# --- what is in graphs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "disallow", [alternator.disallow_in_graph, torch._dynamo.disallow_in_graph], ids=["ours", "torch"]
)
def test_disallow_in_graph(seen: Any, disallow: Any) -> None:
    def f(x: Any) -> Any:
        return torch.sub(x + 1, 2) * 3

    disallow(torch.sub)
    try:
        compiled = alternator.compile(f, backend=seen)
        for _ in range(2):
            assert torch.equal(compiled(x()), f(x()))
        assert breaks() == {"disallowed": 1}
        assert [len(gm.graph.find_nodes(op="call_function", target=torch.sub)) for gm in seen.graphs] == [0, 0]
        with pytest.raises(alternator.Unsupported, match="torch.sub"):
            alternator.compile(f, backend="eager", fullgraph=True)(x())
    finally:
        alternator.allow_in_graph(torch.sub)
    assert torch.equal(alternator.compile(f, backend="eager", fullgraph=True)(x()), f(x()))


@pytest.mark.parametrize("mark", [alternator.nonstrict_trace, torch._dynamo.nonstrict_trace], ids=["ours", "torch"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_nonstrict_trace(mark: Any, backend: str) -> None:
    def inner(x: Any, options: dict[str, float]) -> Any:
        torch._dynamo.graph_break()
        return {"y": x * options["by"], "z": (x + 1, [x - 1])}

    marked = mark(inner)

    def f(x: Any) -> Any:
        made = marked(x + 1, {"by": 3.0})
        return made["y"] + made["z"][0] * made["z"][1][0]

    compiled = alternator.compile(f, backend=backend, fullgraph=True)
    for _ in range(2):
        leaf, other = x().requires_grad_(), x().requires_grad_()
        torch.testing.assert_close(compiled(leaf), f(other))
        compiled(leaf).sum().backward()
        f(other).sum().backward()
        torch.testing.assert_close(leaf.grad, other.grad)
    assert alternator.counters()["graphs"] == 1


def test_nonstrict_trace_of_a_module() -> None:
    net = torch.nn.Linear(4, 4)
    marked = alternator.nonstrict_trace(lambda model, x: model(x) + 1)
    compiled = alternator.compile(lambda x: marked(net, x) * 2, backend="eager")
    torch.testing.assert_close(compiled(x()), (net(x()) + 1) * 2)
    compiled(x()).sum().backward()
    assert net.weight.grad is not None


# --- marks on tensors ---------------------------------------------------------------------------------------


MARKS = {
    "mark_static_address": lambda t: torch._dynamo.mark_static_address(t),
    "mark_dynamic": lambda t: torch._dynamo.mark_dynamic(t, 0),
    "maybe_mark_dynamic": lambda t: torch._dynamo.maybe_mark_dynamic(t, 0),
    "mark_static": lambda t: torch._dynamo.mark_static(t, 0),
    "mark_unbacked": lambda t: torch._dynamo.decorators.mark_unbacked(t, 0),
}


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_marks_on_tensors_do_not_disturb(mark: Any) -> None:
    def f(x: Any) -> Any:
        return x * 2 + 1

    for backend in ("eager", "aot_eager"):
        compiled = alternator.compile(f, backend=backend, fullgraph=True)
        for size in (4, 3):
            marked = x()[:size].clone()
            mark(marked)
            assert torch.equal(compiled(marked), f(marked))


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_marks_inside_of_compiled_functions(mark: Any) -> None:
    def f(x: Any) -> Any:
        y = x + 1
        mark(y)
        return y * 2

    compiled = alternator.compile(f, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x()), (x() + 1) * 2)


# --- export -------------------------------------------------------------------------------------------------


def test_export() -> None:
    net = torch.nn.Linear(4, 4)

    def f(pair: Any, *, by: float) -> Any:
        first, second = pair
        return {"sum": net(first) * by + second, "same": first, "name": "f", "weight": net.weight}

    graph, guards = alternator.export(f, (x(), x() + 1), by=2.0)
    assert isinstance(graph, torch.fx.GraphModule)
    other = torch.randn(4), torch.randn(4)
    made, wanted = graph(*other, 2.0), f(other, by=2.0)
    torch.testing.assert_close(made["sum"], wanted["sum"])
    assert made["same"] is other[0]
    assert made["name"] == "f"
    assert made["weight"] is net.weight
    assert sum(parameter is net.weight for parameter in graph.parameters()) == 1
    assert any(guard.source == "by" and guard.wanted == "2.0" for guard in guards)
    assert all(node.stack_trace for node in graph.graph.nodes if node.op in ("call_function", "call_method"))
    made["sum"].sum().backward()
    assert net.weight.grad is not None


def test_export_to_aten() -> None:
    graph, _ = alternator.export(lambda x: torch.nn.functional.softmax(x, 0) + 1, x(), aten_graph=True)
    names = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    assert any(name.startswith("aten.") for name in names)
    torch.testing.assert_close(graph(x() * 3), torch.softmax(x() * 3, 0) + 1)
    with pytest.raises(AssertionError, match="aten_graph=True"):
        alternator.export(lambda x: x, x(), decomposition_table={})


def test_export_without_a_graph() -> None:
    graph, _ = alternator.export(lambda x, y: (y, 3, [x]), x(), x() + 1)
    one, two = x(), x()
    made = graph(one, two)
    assert made[0] is two
    assert made[1:] == (3, [one])


def test_numbers_that_only_a_run_knows_are_exported() -> None:
    def f(x: Any) -> Any:
        return x * 2, x.sum().item() + 1.0, 3, 2.5

    module, _ = alternator.export(f, x())
    for given in (x(), x() * 7):
        found, expected = module(given), f(given)
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]

    def counts(x: Any) -> Any:
        return x * 2, (x > -1).sum().item(), 3

    with pytest.raises(alternator.Unsupported, match="unbacked symbol"):
        alternator.export(counts, x())


def test_what_cannot_be_exported() -> None:
    kept: list[Any] = []

    def leaves_something(x: Any) -> Any:
        kept.append(3)
        return x + 1

    def breaks_off(x: Any) -> Any:
        time.sleep(0)
        return x + 1

    with pytest.raises(alternator.Unsupported, match="outlive"):
        alternator.export(leaves_something, x())
    with pytest.raises(alternator.Unsupported, match=r"time\.sleep"):
        alternator.export(breaks_off, x())

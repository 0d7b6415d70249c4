"""The grad mode in graphs: a node for each time that the program sets it, and each graph complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import alternator


class Graphs:
    """A backend that runs the generated code and keeps each graph as a text: `T` and `F` are the modes that it sets."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        words = []
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            mode = node.target is torch._C._set_grad_enabled
            words.append(str(node.args[0])[0] if mode else node.name.split("_")[0])
        self.texts.append(" ".join(words))
        return lambda *given: gm(*given)


def compare(fn: Callable[..., Any], *args: Any, outer: bool = True) -> list[str]:
    graphs = Graphs()
    compiled = alternator.compile(fn, backend=graphs)
    with torch.set_grad_enabled(outer):
        expected = fn(*args)
        for _ in range(2):
            result = compiled(*args)
            assert torch.is_grad_enabled() is outer
            assert torch.equal(result, expected)
            assert result.requires_grad is expected.requires_grad
    return graphs.texts


def no_grad(a: Any, b: Any) -> Any:
    x = a * 1
    with torch.no_grad():
        x = x + b
    return x - 2


def set_grad_enabled(a: Any, b: Any) -> Any:
    x = a * 1
    with torch.set_grad_enabled(False):
        x = x + b
    return x - 2


def enable_grad(a: Any, b: Any) -> Any:
    x = a * 1
    with torch.enable_grad():
        x = x + b
    return x - 2


def by_calls(a: Any, b: Any) -> Any:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    torch.set_grad_enabled(True)
    torch.set_grad_enabled(False)
    x = a * b
    torch.set_grad_enabled(before)
    return x


@torch.no_grad()
def inner(x: Any) -> Any:
    return x + 1


def decorated(a: Any, b: Any) -> Any:
    return inner(a * b) - 2


def made_before(a: Any, b: Any) -> Any:
    manager = torch.set_grad_enabled(False)
    x = a * b
    with manager:
        return x + 1


def around_nothing(a: Any, b: Any) -> Any:
    with torch.no_grad():
        pass
    return a * b


def one_break(a: Any, b: Any) -> Any:
    x = a * b
    with torch.no_grad():
        x = x + 1
        x.sum().tolist()
        x = x - 2
    return x / 3


def two_breaks(a: Any, b: Any) -> Any:
    x = a * b
    with torch.no_grad():
        x = x + 1
        x.sum().tolist()
        x = x - 2
        x.sum().tolist()
        x = x / 3
    return x + 4


def nested_break(a: Any, b: Any) -> Any:
    x = a * b
    with torch.no_grad():  # noqa: SIM117
        with torch.no_grad():
            x = x + 1
            with torch.enable_grad():
                x.sum().tolist()
                x = x - b
            x = x / 3
    return x + 4


def break_in_a_call(a: Any, b: Any) -> Any:
    def called(x: Any) -> Any:
        with torch.enable_grad():
            x.sum().tolist()
            return x - b

    with torch.no_grad():
        return called(a * b) + 1


def used_behind_a_break(a: Any, b: Any) -> Any:
    with torch.no_grad():
        (a * b).sum().tolist()
    return a / b


def used_behind_a_break_and_a_call(a: Any, b: Any) -> Any:
    torch.set_grad_enabled(False)
    x = a * b
    x.sum().tolist()
    x = x + 1
    torch.set_grad_enabled(True)
    return x / b


# Where the function is called without gradients, but computes some, its graphs are compiled and run with gradients.
WITHOUT = {
    enable_grad: ["F mul T add F sub T"],
    nested_break: ["F mul F F add T sum F F F T", "F F T sub F truediv F F add T"],
    break_in_a_call: ["F mul T sum F F T", "F T sub F add F T"],
}


@pytest.mark.parametrize(
    ("fn", "texts"),
    [
        (no_grad, ["mul F add ? sub"]),
        (set_grad_enabled, ["mul F add ? sub"]),
        (enable_grad, ["mul T add ? sub"]),
        (by_calls, ["F T F mul ?"]),
        (decorated, ["mul F add ? sub"]),
        (made_before, None),
        (around_nothing, ["F ? mul"]),
        (one_break, ["mul F add sum ?", "F sub ? truediv"]),
        (two_breaks, ["mul F add sum ?", "F sub sum ?", "F truediv ? add"]),
        (nested_break, ["mul F F add T sum F F ?", "F F T sub F truediv F ? add"]),
        (break_in_a_call, ["F mul T sum F ?", "F T sub F add ?"]),
        (used_behind_a_break, ["F mul sum ?", "F ? truediv"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("outer", [True, False], ids=["with_gradients", "without"])
def test_each_set_is_a_node(fn, texts, outer):
    """The mode around the function stands where a block is left."""
    found = compare(fn, torch.ones(3), torch.ones(3, requires_grad=True), outer=outer)
    if not outer and fn in WITHOUT:
        assert found == WITHOUT[fn]
    elif texts is not None:
        assert found == [text.replace("?", str(outer)[0]) for text in texts]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "fn",
    [
        *(no_grad, enable_grad, one_break, two_breaks, nested_break, break_in_a_call, by_calls),
        *(used_behind_a_break, used_behind_a_break_and_a_call),
    ],
)
def test_gradients_behind_such_blocks(fn, backend):
    def run(call: Callable[..., Any]) -> list[Any]:
        a, b = torch.arange(3.0, requires_grad=True), torch.ones(3, requires_grad=True)
        result = call(a, b)
        found = [result.detach(), torch.tensor(result.requires_grad), torch.tensor(torch.is_grad_enabled())]
        if result.requires_grad:
            found += torch.autograd.grad(result.sum(), [a, b], allow_unused=True, materialize_grads=True)
        return found

    compiled = alternator.compile(fn, backend=backend)
    for outer in (True, False, True):
        with torch.set_grad_enabled(outer):
            for found, expected in zip(run(compiled), run(fn), strict=True):
                torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients_in_a_function_that_is_called_without(backend):
    def fn(a: Any, b: Any) -> Any:
        x = a * b
        with torch.enable_grad():
            y = a + b
            y.sum().tolist()
            z = y * b
        return x, y, z, z - 1

    compiled = alternator.compile(fn, backend=backend)
    for grad in (True, False, True):
        a, b = torch.arange(3.0, requires_grad=grad), torch.ones(3)
        with torch.no_grad():
            results, expected = compiled(a, b), fn(a, b)
            assert not torch.is_grad_enabled()
        assert [one.requires_grad for one in results] == [one.requires_grad for one in expected]
        torch.testing.assert_close(results, expected)
        if grad:
            torch.testing.assert_close(
                torch.autograd.grad(results[2].sum(), a), torch.autograd.grad(expected[2].sum(), a)
            )


def test_a_graph_that_fails_leaves_the_mode():
    def fn(x: Any, index: Any) -> Any:
        with torch.no_grad():
            return x[index] * 2

    graphs = Graphs()
    compiled = alternator.compile(fn, backend=graphs)
    compiled(torch.ones(3), torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
    assert torch.is_grad_enabled()
    assert graphs.texts == ["F getitem mul T"]


def test_blocks_of_another_call():
    """Which mode is restored in the end is not a guard of the graph in between."""

    def fn(x: Any) -> Any:
        with torch.no_grad():
            x = x + 1
            x.sum().tolist()
            x = x - 2
            x.sum().tolist()
            x = x / 3
        return x, torch.is_grad_enabled()

    graphs = Graphs()
    compiled = alternator.compile(fn, backend=graphs)
    for outer in (True, False, True):
        with torch.set_grad_enabled(outer):
            result, mode = compiled(torch.ones(3))
            assert mode is outer and torch.is_grad_enabled() is outer
            assert torch.equal(result, fn(torch.ones(3))[0])


def test_inference_mode_and_segments_show_changes_only():
    def inference(x: Any) -> Any:
        with torch.inference_mode(), torch.no_grad():
            return x + 1

    def segments(x: Any, generator: Any) -> Any:
        with torch.no_grad():
            x = x + 1
            with torch.no_grad():
                x = x * 2
            return x + torch.rand(3, generator=generator)

    kept: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        kept.append(gm)
        return gm.forward

    alternator.compile(inference, backend=backend)(torch.ones(3))
    assert not kept[-1].graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
    alternator.compile(segments, backend=backend)(torch.ones(3), torch.Generator())
    assert len(kept) == 3, "the first two operations are one segment, the last one is another"

"""Marks that users set on functions, torch's and ours."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import alternator


def x() -> torch.Tensor:
    return torch.arange(4.0)


def breaks() -> dict[str, int]:
    return dict(alternator.counters()["breaks"])


MARKS = {
    "alternator.disable": alternator.disable,
    "alternator.disable()": lambda f: alternator.disable(reason="my reason")(f),
    "not recursive": lambda f: alternator.disable(f, recursive=False),
    "torch.compiler.disable": torch.compiler.disable,
    "torch.compiler.disable()": lambda f: torch.compiler.disable(reason="my reason")(f),
    "torch._dynamo.disable": lambda f: torch._dynamo.disable(f),
    "torch._dynamo.disable, not recursive": lambda f: torch._dynamo.disable(f, recursive=False),
}


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_disabled(mark: Any) -> None:
    calls: list[bool] = []

    def inner(x: Any) -> Any:
        calls.append(alternator.is_compiling())
        return x + 1

    marked = mark(inner)

    def f(x: Any) -> Any:
        return marked(x * 2) * 3

    compiled = alternator.compile(f, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x()), (x() * 2 + 1) * 3)
    assert calls == [False, False]
    assert breaks().get("disabled", 0) >= 1
    with pytest.raises(RuntimeError, match="marked to run without compilation"):
        alternator.compile(f, backend="eager", fullgraph=True)(x())


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_a_disabled_function_itself_is_not_compiled(mark: Any) -> None:
    marked = mark(lambda x: x + 1)
    assert alternator.compile(marked, backend="eager") is marked


def test_the_mark_is_the_marked_functions_alone() -> None:
    marked = alternator.disable(lambda x: x + 1)

    @functools.wraps(marked)
    def wrapper(x: Any) -> Any:
        return x + 2

    compiled = alternator.compile(lambda x: wrapper(x), backend="eager", fullgraph=True)
    assert torch.equal(compiled(x()), x() + 2)
    assert torch.equal(alternator.compile(wrapper, backend="eager", fullgraph=True)(x()), x() + 2)


def test_disabled_modules_and_classes() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + (1 if alternator.is_compiling() else 2)

    net = alternator.disable(Net())
    assert isinstance(net, Net)
    compiled = alternator.compile(lambda x: net(x), backend="eager")
    assert torch.equal(compiled(x()), x() + 2)

    @alternator.disable
    class Other(Net):
        pass

    other = Other()
    assert torch.equal(alternator.compile(lambda x: other(x), backend="eager")(x()), x() + 2)


@pytest.mark.parametrize("disable", [alternator.disable, torch.compiler.disable], ids=["alternator", "torch"])
def test_what_is_compiled_can_be_disabled(seen: Any, disable: Any) -> None:
    def f(x: Any) -> Any:
        return x + 1

    class Holder:
        def method(self, x: Any) -> Any:
            return x + 1

    for model in (f, torch.nn.ReLU(), Holder().method):
        compiled = alternator.compile(model, backend=seen)
        assert torch.equal(disable(compiled)(x()), model(x()))
        assert seen.graphs == []
        compiled(x())
        assert len(seen.graphs) == 1
        seen.graphs.clear()


def test_torch_finds_the_function_behind() -> None:
    def f(x: Any) -> Any:
        return x + 1

    from torch._dynamo.eval_frame import innermost_fn

    compiled: Any = alternator.compile(f, backend="eager")
    assert compiled._torchdynamo_orig_callable is f
    assert innermost_fn(compiled) is f
    assert "_torchdynamo_orig_callable" not in vars(functools.wraps(compiled)(lambda x: x))


def test_disable_wants_a_callable() -> None:
    with pytest.raises(TypeError, match="can be called"):
        alternator.disable(3)


def test_dynamo_honours_our_mark() -> None:
    calls: list[int] = []

    @alternator.disable
    def inner(x: Any) -> Any:
        calls.append(1)
        return x + 1

    compiled = torch.compile(lambda x: inner(x) * 2, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(x()), (x() + 1) * 2)
    assert len(calls) == 3
    torch._dynamo.reset()


def test_allow_in_graph_without_tensors() -> None:
    """What a function does that has nothing to do with tensors is done in every run, in order."""
    seen: list[Any] = []

    @torch.compiler.allow_in_graph
    def note() -> None:
        if not isinstance(torch.ones(1).add(1), torch._subclasses.FakeTensor):
            seen.append(torch.is_grad_enabled())

    def f(x: Any) -> Any:
        note()
        with torch.no_grad():
            note()
            return x + 1

    compiled = alternator.compile(f, backend=lambda gm, inputs: gm, fullgraph=True)
    compiled(x())
    seen.clear()
    compiled(x())
    assert seen == [True, False]
    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    compiled(x())
    seen.clear()
    compiled(x())
    assert seen == [True, False]


def test_is_compiling() -> None:
    def f(x: Any) -> Any:
        return (
            x + 1,
            alternator.is_compiling(),
            torch.compiler.is_compiling(),
            torch.compiler.is_dynamo_compiling(),
            torch._utils.is_compiling(),
            torch._dynamo.is_compiling(),
        )

    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    assert compiled(x())[1:] == (True,) * 5
    assert compiled(x())[1:] == (True,) * 5
    assert f(x())[1:] == (False,) * 5


def test_graph_break() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    assert torch.equal(alternator.compile(f, backend="eager")(x()), (x() + 1) * 2)
    assert "graph_break_call" in breaks()
    with pytest.raises(RuntimeError, match=r"calls graph_break\(\)"):
        alternator.compile(f, backend="eager", fullgraph=True)(x())


@torch.compiler.allow_in_graph
def opaque(x: Any, by: int) -> Any:
    return x * by + 1


def test_allow_in_graph(seen: Any) -> None:
    compiled = alternator.compile(lambda x: opaque(x + 1, 3) * 2, backend=seen, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x()), ((x() + 1) * 3 + 1) * 2)
    targets = [node.target for node in seen.graphs[0].graph.nodes if node.op.startswith("call_")]
    assert opaque in targets
    assert len(targets) == 3
    aot = alternator.compile(lambda x: opaque(x + 1, 3) * 2, backend="aot_eager", fullgraph=True)
    leaf = x().requires_grad_()
    aot(leaf).sum().backward()
    assert torch.equal(leaf.grad, torch.full((4,), 6.0))


def test_assume_constant_result() -> None:
    calls: list[Any] = []

    @torch.compiler.assume_constant_result
    def settings(name: str) -> Any:
        calls.append(name)
        return {"by": 3.0, "offset": torch.ones(4)}

    def f(x: Any) -> Any:
        found = settings("a")
        return x * found["by"] + found["offset"]

    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x()), x() * 3 + 1)
    assert calls == ["a"]


class Reading(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.seen: list[Any] = []

    @torch.compiler.assume_constant_result
    def positions(self, x: Any) -> Any:
        self.seen.append(x.detach().clone())
        return torch.nonzero(x > 0)

    def forward(self, x: Any) -> Any:
        return self.positions(self.inner(x) * 2).sum() + x


def test_a_constant_function_of_a_computed_value() -> None:
    torch.manual_seed(0)
    net, twin = Reading(), Reading()
    twin.load_state_dict(net.state_dict())
    compiled = alternator.compile(net, backend="eager", fullgraph=True)
    expected = twin(x())
    for _ in range(3):
        assert torch.equal(compiled(x()), expected)
    assert len(net.seen) == 1
    assert torch.equal(net.seen[0], twin.seen[0])  # it saw the real value
    # As in the first call, whatever it would say now.
    assert torch.equal(compiled(x() - 20), expected - 20)
    # Another call, another constant.
    other = torch.arange(8.0).reshape(2, 4) - 3
    assert torch.equal(compiled(other), twin(other))
    assert len(net.seen) == 2


def test_a_constant_function_of_a_value_under_no_grad() -> None:
    seen: list[Any] = []

    @torch.compiler.assume_constant_result
    def look(x: Any) -> Any:
        seen.append((x.requires_grad, torch.is_grad_enabled()))
        return float(x.detach().sum())

    def f(x: Any) -> Any:
        with torch.no_grad():
            first = x * 2
            by = look(first)
        return first * by + look(x + 1)

    leaf = x().requires_grad_()
    expected = f(leaf)
    wanted, seen[:] = list(seen), []
    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    assert torch.equal(compiled(leaf), expected)
    assert seen == wanted
    assert torch.is_grad_enabled()


def test_a_constant_function_that_gives_its_argument_back() -> None:
    @torch.compiler.assume_constant_result
    def look(x: Any) -> Any:
        return {"x": x, "both": (x, [x * x])}

    def f(x: Any, y: Any) -> Any:
        found = look(x)
        return y * found["x"] + found["both"][0] + found["both"][1][0]

    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    first = f(x(), x() + 1)
    given = x()
    assert torch.equal(compiled(given, x() + 1), first)
    given.zero_()
    assert torch.equal(compiled(x() * 5, x() + 1), first)


def test_a_constant_function_after_a_write_or_a_random_number_breaks() -> None:
    @torch.compiler.assume_constant_result
    def look(x: Any) -> Any:
        return float(x.detach().sum())

    def writes(x: Any) -> Any:
        x.add_(1)
        return x * look(x)

    def draws(x: Any) -> Any:
        return x * look(torch.nn.functional.dropout(x, 0.5))

    for f in (writes, draws):
        alternator.reset()
        compiled = alternator.compile(f, backend="eager")
        torch.manual_seed(1)
        expected = f(x())
        torch.manual_seed(1)
        assert torch.equal(compiled(x()), expected)
        assert "native_call" in breaks()


def test_substitute_in_graph() -> None:
    import zlib

    def f(x: Any) -> Any:
        return x * (zlib.adler32(b"ab") % 7)

    compiled = alternator.compile(f, backend="eager")
    assert torch.equal(compiled(x()), f(x()))
    assert "native_call" in breaks()

    @torch.compiler.substitute_in_graph(zlib.adler32, skip_signature_check=True)
    def adler32(data: bytes, value: int = 1) -> int:
        low, high = value & 0xFFFF, value >> 16
        for byte in data:
            low = (low + byte) % 65521
            high = (high + low) % 65521
        return high << 16 | low

    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x()), f(x()))


def test_compiled_functions_inside_of_compiled_functions() -> None:
    inner = alternator.compile(lambda x: x + 1, backend="eager")

    class Scaler:
        by = 3.0

        def scale(self, x: Any) -> Any:
            return x * self.by

        @alternator.compile(backend="eager")
        def decorated(self, x: Any) -> Any:
            return x - self.by

    scaler = Scaler()
    bound = alternator.compile(scaler.scale, backend="eager")

    def f(x: Any) -> Any:
        return bound(inner(x)) + scaler.decorated(x)

    compiled = alternator.compile(f, backend="eager", fullgraph=True)
    for by in (3.0, 4.0):
        scaler.by = by
        assert torch.equal(compiled(x()), (x() + 1) * by + x() - by)
    assert alternator.counters()["graphs"] == 2


def test_the_first_use_of_an_operator() -> None:
    """torch.ops makes its operators when they are asked for."""
    with torch.library._scoped_library("alternator_first_use", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
        compiled = alternator.compile(
            lambda x: torch.ops.alternator_first_use.twice(x) + 1, backend="eager", fullgraph=True
        )
        for _ in range(2):
            assert torch.equal(compiled(x()), x() * 2 + 1)
        packet = alternator.compile(
            lambda x: torch.ops.alternator_first_use.twice.default(x), backend="eager", fullgraph=True
        )
        assert torch.equal(packet(x()), x() * 2)


def test_nested_compile_region() -> None:
    """A region is a part of the program."""
    seen: list[int] = []

    @torch.compiler.nested_compile_region
    def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        seen.append(x.dim())
        return (x @ weight).sin()

    weights = [torch.ones(2, 2) * i for i in range(3)]

    def fn(x: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = x + block(x, weight)
        return x

    fast = alternator.compile(fn, backend="eager", fullgraph=True)
    for size in (2, 2, 3):
        x = torch.ones(size, 2)
        assert torch.equal(fast(x), fn(x))
    assert len(seen) == 18
    assert alternator.counters()["graphs"] == 2

"""The way of a graph to its backend."""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import alternator


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("offset", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return self.linear(x) + self.offset


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def placeholders(gm: Any) -> list[Any]:
    return list(gm.graph.find_nodes(op="placeholder"))


# ----------------------------------------------------------------------------------------------------- what they get


def test_the_recursion_limit_is_the_programs() -> None:
    """A function that reads it is traced once, though the backend raises it."""

    def greedy(gm: Any, inputs: list[Any]) -> Any:
        sys.setrecursionlimit(sys.getrecursionlimit() + 1000)
        return gm.forward

    before = sys.getrecursionlimit()
    compiled = alternator.compile(lambda x: (x + 1, sys.getrecursionlimit()), backend=greedy)
    assert [compiled(torch.ones(2))[1] for _ in range(2)] == [before, before]
    assert sys.getrecursionlimit() == before
    assert alternator.counters()["traces"] == 1


def test_a_callable_gets_a_graph_and_real_inputs(seen: Any) -> None:
    net = Net()
    compiled = alternator.compile(net, backend=seen, fullgraph=True)
    assert torch.equal(compiled(x()), net(x()))
    (gm,), (inputs,) = seen.graphs, seen.inputs
    assert isinstance(gm, torch.fx.GraphModule)
    assert {id(t) for t in inputs} >= {id(net.linear.weight), id(net.linear.bias), id(net.offset)}
    assert not any(type(t).__name__ == "FakeTensor" for t in inputs)


def test_nodes_carry_examples_of_one_fake_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "example_values", True)
    from torch._guards import CompileContext, TracingContext, detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensor

    modes = []

    def backend(gm: Any, inputs: list[Any]) -> Any:
        context = TracingContext.get()
        assert context.fake_mode is not None
        assert context.fake_mode.shape_env is not None
        assert detect_fake_mode(inputs) is context.fake_mode
        assert CompileContext.current_compile_id() == gm.meta["dynamo_compile_id"]
        for node in gm.graph.nodes:
            if node.op != "output":
                assert isinstance(node.meta["example_value"], FakeTensor)
                modes.append(node.meta["example_value"].fake_mode)
        assert all(mode is context.fake_mode for mode in modes)
        for node, value in zip(placeholders(gm), inputs, strict=True):
            assert node.meta["example_value"].shape == value.shape
        return gm.forward

    alternator.compile(Net(), backend=backend, fullgraph=True)(x())
    assert modes
    assert TracingContext.try_get() is None


def test_examples_are_not_worth_loading_torch_dynamo(run_python: Callable[..., str]) -> None:
    said = run_python(
        """
import sys, torch, alternator
def show(gm, inputs):
    print("dynamo" if "torch._dynamo" in sys.modules else "alone", "example_value" in next(iter(gm.graph.nodes)).meta)
    return gm.forward
alternator.compile(lambda x: x + 1, backend=show)(torch.ones(2))
alternator.config.example_values = True
alternator.compile(lambda x: x + 2, backend=show)(torch.ones(2))
"""
    )
    assert said.splitlines() == ["alone False", "dynamo True"]


def test_parameters_and_buffers_are_static(seen: Any) -> None:
    alternator.compile(Net(), backend=seen)(x())
    kinds = {
        str(node._dynamo_source.name): node.meta["tensor_dict"].get("_dynamo_static_input_type")
        for node in placeholders(seen.graphs[0])
    }
    assert sorted(map(str, kinds.values())) == ["None", "unguarded", "unguarded", "unguarded"]
    (dynamic,) = (name for name, kind in kinds.items() if kind is None)
    assert "args" in dynamic or "x" in dynamic


def test_a_backend_may_return_the_module_or_anything_callable() -> None:
    for make in (lambda gm: gm, lambda gm: gm.forward, lambda gm: lambda *args: gm(*args), lambda gm: Boxed(gm)):
        compiled = alternator.compile(lambda x: (x + 1, x * 2), backend=lambda gm, inputs, make=make: make(gm))
        for _ in range(2):
            plus, times = compiled(x())
            assert torch.equal(plus, x() + 1)
            assert torch.equal(times, x() * 2)


def _is_generated(gm: Any) -> bool:
    return not gm._needs_recompile()


def test_a_graph_that_comes_back_as_it_was_needs_no_code(seen: Any) -> None:
    for give in (lambda gm: gm, lambda gm: gm.forward):
        kept: list[Any] = []

        def backend(gm: Any, inputs: list[Any], give: Any = give, kept: Any = kept) -> Any:
            kept.append(gm)
            return give(gm)

        compiled = alternator.compile(Net(), backend=backend, fullgraph=True)
        compiled(x()).sum().backward()
        assert not _is_generated(kept[0])
        assert kept[0].code.startswith("\n\n\ndef forward")


def test_a_graph_that_was_changed_runs_as_changed() -> None:
    """Whatever way a backend changes the module, with or without recompile()."""
    import operator

    def function(x: Any) -> Any:
        return (torch.sin(x) * 2 + x,)

    def another_target(gm: Any) -> None:
        for node in gm.graph.find_nodes(op="call_function", target=torch.sin):
            node.target = torch.cos

    def another_argument(gm: Any) -> None:
        (node,) = gm.graph.find_nodes(op="output")
        node.args = ((next(iter(gm.graph.nodes)),),)

    def a_new_node(gm: Any) -> None:
        (output,) = gm.graph.find_nodes(op="output")
        with gm.graph.inserting_before(output):
            output.args = ((gm.graph.call_function(operator.neg, output.args[0]),),)

    def another_graph(gm: Any) -> None:
        graph = torch.fx.Graph()
        graph.output((graph.call_function(torch.neg, (graph.placeholder("x"),)),))
        gm.graph = graph

    def another_forward(gm: Any) -> None:
        gm.forward = lambda x: (x - 1,)

    def other_code(gm: Any) -> None:
        gm.graph.on_generate_code(lambda before: lambda lines: [line.replace("sin", "cos") for line in lines])

    def a_hook(gm: Any) -> None:
        gm.register_forward_hook(lambda module, args, result: (result[0] + 100,))

    def module_itself(gm: Any) -> Any:
        return gm

    def its_forward(gm: Any) -> Any:
        return gm.forward

    value = torch.arange(3.0)
    changes = {
        another_target: torch.cos(value) * 2 + value,
        another_argument: value,
        a_new_node: -(torch.sin(value) * 2 + value),
        another_graph: -value,
        another_forward: value - 1,
        other_code: torch.cos(value) * 2 + value,
        a_hook: torch.sin(value) * 2 + value + 100,
    }
    for change, expected in changes.items():
        for recompile in (False, True):
            for give in (module_itself, its_forward):
                if change is a_hook and give is not module_itself:
                    continue

                def backend(
                    gm: Any, inputs: list[Any], change: Any = change, recompile: bool = recompile, give: Any = give
                ) -> Any:
                    change(gm)
                    if recompile:
                        gm.recompile()
                    return give(gm)

                alternator.reset()
                compiled = alternator.compile(function, backend=backend, fullgraph=True)
                for _ in range(2):
                    torch.testing.assert_close(compiled(value)[0], expected, msg=change.__name__)


def test_a_method_of_the_backends_own_is_called() -> None:
    import types

    def forward(self: Any, *args: Any) -> Any:
        return (args[0] - 7,)

    compiled = alternator.compile(lambda x: (x + 1,), backend=lambda gm, inputs: types.MethodType(forward, gm))
    assert torch.equal(compiled(x())[0], x() - 7)


def test_operators_are_written_as_such(seen: Any) -> None:
    import operator

    def function(x: Any) -> Any:
        y = x + 1
        y += x
        return 3 - y, -y, y < 2, y.add(1)

    alternator.compile(function, backend=seen, fullgraph=True)(x())
    nodes = [node for node in seen.graphs[0].graph.nodes if node.op.startswith("call")]
    assert [node.target for node in nodes] == [
        operator.add,
        operator.iadd,
        operator.sub,
        operator.neg,
        operator.lt,
        "add",
    ]
    assert [node.name for node in nodes] == ["add", "iadd", "sub", "neg", "lt", "add_1"]


def test_nodes_name_their_modules(seen: Any) -> None:
    net = nn.Sequential(Net(), nn.ModuleDict({"last": nn.ReLU()})["last"])
    alternator.compile(net, backend=seen, fullgraph=True)(x())
    stacks = {
        node.name: list(node.meta["nn_module_stack"].values())
        for node in seen.graphs[0].graph.nodes
        if node.op.startswith("call")
    }
    outer = ("L['self']", nn.Sequential)
    assert stacks == {
        "linear": [outer, ("L['self'].0", Net), ("L['self'].0.linear", nn.Linear)],
        "add": [outer, ("L['self'].0", Net)],
        "relu": [outer, ("L['self'].1", nn.ReLU)],
    }


def test_an_entry_keeps_no_module_alive(seen: Any) -> None:
    import gc
    import weakref

    def call(net: Any, x: Any) -> Any:
        return net(x)

    compiled = alternator.compile(call, backend=lambda gm, inputs: gm, fullgraph=True)
    net = Net()
    compiled(net, x())
    reference = weakref.ref(net)
    del net
    gc.collect()
    assert reference() is None


class Boxed:
    _boxed_call = True

    def __init__(self, gm: Any) -> None:
        self.gm = gm

    def __call__(self, inputs: list[Any]) -> Any:
        assert isinstance(inputs, list)
        taken = list(inputs)
        inputs.clear()
        return self.gm(*taken)


def test_a_compiler_may_draw_random_numbers() -> None:
    def backend(gm: Any, inputs: list[Any]) -> Any:
        random.random()
        torch.rand(3)
        torch.set_grad_enabled(False)
        return gm.forward

    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(2), random.random()
    torch.manual_seed(3)
    random.seed(3)
    alternator.compile(lambda x: x + 1, backend=backend)(x())
    assert torch.is_grad_enabled()
    assert torch.equal(torch.rand(2), expected[0])
    assert random.random() == expected[1]


def test_keywords_go_to_other_backends() -> None:
    got: list[Any] = []

    def backend(gm: Any, inputs: list[Any], **keywords: Any) -> Any:
        got.append(keywords)
        return gm.forward

    alternator.compile(lambda x: x + 1, backend=backend, mode="fast")(x())
    alternator.compile(lambda x: x + 1, backend=backend, options={"a": 1})(x())
    alternator.compile(lambda x: x + 1, backend=backend, mode="default")(x())
    assert got == [{"mode": "fast"}, {"options": {"a": 1}}, {}]


# -------------------------------------------------------------------------------------------------------- when they fail


def test_an_error_names_graph_backend_and_what_to_do() -> None:
    def broken(gm: Any, inputs: list[Any]) -> Any:
        raise ValueError("no such luck")

    def f(x: Any) -> Any:
        return x + 1

    with pytest.raises(alternator.BackendFailed) as caught:
        alternator.compile(f, backend=broken)(x())
    text = str(caught.value)
    for words in ("backend='broken'", "__compiled_fn_", "f (", __file__, "no such luck", "suppress_errors", "'eager'"):
        assert words in text, words
    assert isinstance(caught.value.inner_exception, ValueError)
    assert caught.traceback[-1].name == "broken"


def test_torchs_name_for_it_catches_it_too() -> None:
    import torch._dynamo.exc

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        alternator.compile(lambda x: torch.relu(x), backend="relu_compile_error_TESTING_ONLY")(x())


def test_errors_can_be_suppressed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(gm: Any, inputs: list[Any]) -> Any:
        raise ValueError("no such luck")

    monkeypatch.setattr(alternator.config, "suppress_errors", True)
    compiled = alternator.compile(lambda x: x + 1, backend=broken)
    assert torch.equal(compiled(x()), x() + 1)
    assert torch.equal(compiled(x()), x() + 1)
    assert "no such luck" in caplog.text
    assert alternator.counters()["hits"] == 1


def test_what_is_no_callable_or_returns_no_tuple_is_said() -> None:
    with pytest.raises(alternator.BackendFailed, match="must return a callable, not 3"):
        alternator.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(x())  # type: ignore[arg-type, return-value]
    with pytest.raises(RuntimeError, match="tuple or list of 1 results"):
        alternator.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda *a: a[0])(x())


@pytest.fixture(params=["alternator", "torch._dynamo"])
def verifying(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    import torch._dynamo.config

    if request.param == "alternator":
        yield lambda: monkeypatch.setattr(alternator.config, "verify_correctness", True)
        return
    with contextlib.ExitStack() as stack:
        patch: Any = torch._dynamo.config.patch(verify_correctness=True)
        yield lambda: stack.enter_context(patch)


def test_results_can_be_verified(verifying: Any) -> None:
    def wrong(gm: Any, inputs: list[Any]) -> Any:
        for node in gm.graph.nodes:
            if node.op in ("call_function", "call_method") and "mul" in str(node.target):
                node.op, node.target = "call_function", torch.sub
        gm.recompile()
        return gm.forward

    def f(x: Any) -> Any:
        x.add_(1)
        return torch.nn.functional.dropout(x, 0.5) * x

    def right(gm: Any, inputs: list[Any]) -> Any:
        return lambda *given: gm.forward(*given)

    assert alternator.compile(f, backend=wrong)(x()).shape == x().shape
    verifying()
    with pytest.raises(alternator.BackendFailed, match="not close"):
        alternator.compile(f, backend=wrong, isolate_recompiles=True)(x())
    for backend in (right, "aot_eager"):
        compiled = alternator.compile(f, backend=backend)
        for _ in range(2):
            ours, theirs = x(), x()
            torch.manual_seed(4)
            expected = f(theirs)
            torch.manual_seed(4)
            assert torch.equal(compiled(ours), expected)
            assert torch.equal(ours, theirs)


def test_a_backend_may_ask_to_skip() -> None:
    from torch._dynamo.exc import SkipFrame

    def skips(gm: Any, inputs: list[Any]) -> Any:
        raise SkipFrame("not this one")

    assert torch.equal(alternator.compile(lambda x: x + 1, backend=skips)(x()), x() + 1)


# ------------------------------------------------------------------------------------------------- AOTAutograd and others


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition", "eager", "eager_noexcept", "ts"])
def test_training(backend: str) -> None:
    net = Net()
    compiled = alternator.compile(net, backend=backend, fullgraph=True)
    for _ in range(2):
        net.zero_grad()
        expected = net(x()).tanh()
        expected.sum().backward()
        gradients = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        result = compiled(x()).tanh()
        result.sum().backward()
        torch.testing.assert_close(result, expected)
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
    assert alternator.counters()["graphs"] == 1


def test_inputs_that_are_one_object_and_inputs_that_are_not() -> None:
    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return a * b

    compiled = alternator.compile(f, backend="aot_eager", fullgraph=True)
    for same in (True, False, True):
        ours, theirs = torch.ones(3), torch.ones(3)
        other, others = (ours, theirs) if same else (torch.ones(3), torch.ones(3))
        assert torch.equal(compiled(ours, other), f(theirs, others))
        assert torch.equal(ours, theirs)


def test_inputs_that_share_memory() -> None:
    """AOTAutograd turns writes into values: it must not do so for two inputs that overlap when it saw two that did not."""

    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    compiled = alternator.compile(f, backend="aot_eager", fullgraph=True)

    def apart() -> Any:
        return torch.zeros(3), torch.zeros(3)

    def views() -> Any:
        whole = torch.zeros(6)
        return whole[:3], whole[3:]

    def overlapping() -> Any:
        whole = torch.zeros(4)
        return whole[:3], whole[1:]

    def one() -> Any:
        whole = torch.zeros(3)
        return whole[:], whole[:]

    for make in (apart, overlapping, views, one, apart, views, overlapping, one):
        assert torch.equal(compiled(*make()), f(*make())), make.__name__
    assert alternator.counters()["graphs"] == 4


def test_results_that_are_views_and_inputs() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        return x.t(), y, y[0], x

    compiled = alternator.compile(f, backend="aot_eager", fullgraph=True)
    given = x()
    for _ in range(2):
        turned, y, row, same = compiled(given)
        assert turned._base is given or turned.data_ptr() == given.data_ptr()
        assert same is given
        row.add_(100)
        assert torch.equal(y[0], row)


def test_without_gradients() -> None:
    net = Net()
    compiled = alternator.compile(net, backend="aot_eager")
    with torch.no_grad():
        assert not compiled(x()).requires_grad
    assert compiled(x()).requires_grad
    with torch.inference_mode():
        assert torch.equal(compiled(x()), net(x()))


def test_every_name_that_torch_knows_is_known() -> None:
    for name in torch._dynamo.list_backends():
        alternator.compile(lambda x: x + 1, backend=name)


def test_one_that_was_registered_by_hand(seen: Any) -> None:
    from torch._dynamo.backends.registry import register_backend

    if "alternator_test" not in torch._dynamo.list_backends():
        register_backend(lambda gm, inputs: CURRENT[-1](gm, inputs), name="alternator_test")
    CURRENT.append(seen)
    assert torch.equal(alternator.compile(lambda x: x + 1, backend="alternator_test")(x()), x() + 1)
    assert len(seen.graphs) == 1


CURRENT: list[Any] = []


@pytest.mark.skipif(not hasattr(torch.compiler, "set_default_backend"), reason="an older torch has none")
def test_torchs_default_backend(seen: Any) -> None:
    torch.compiler.set_default_backend(seen)
    try:
        assert torch.equal(alternator.compile(lambda x: x + 1, backend=None)(x()), x() + 1)
    finally:
        torch.compiler.set_default_backend(None)
    assert len(seen.graphs) == 1


def test_backends_are_reset(seen: Any) -> None:
    calls = []
    seen.reset = lambda: calls.append(1)
    compiled = alternator.compile(lambda x: x + 1, backend=seen)
    compiled(x())
    alternator.reset()
    assert calls == [1]
    compiled(x())
    assert len(seen.graphs) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_leaves_that_the_function_makes(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """AOTAutograd would give results without a gradient."""

    def made(x: torch.Tensor) -> Any:
        w = torch.ones(3, requires_grad=True)
        return x * w, w

    def marked(x: torch.Tensor) -> Any:
        w = (x * 0 + 1).detach().requires_grad_()
        return x * w, w

    for fn in (made, marked):
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        for n in (1.0, 2.0):
            x = torch.full((3,), n)
            result, w = compiled(x)
            wanted, _ = fn(x)
            assert torch.equal(result, wanted) and result.requires_grad and w.is_leaf
            assert torch.autograd.grad(result.sum(), w)[0].tolist() == [n, n, n]
    assert ("runs the recorded program" in caplog.text) == (backend != "eager")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_default_dtype_set_inside(backend: str) -> None:
    """A factory asks for it when it runs, which a compiler does only once."""

    def fn(x: torch.Tensor) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        a = torch.ones(3) * 2
        torch.set_default_dtype(before)
        return x + 1, a, torch.ones(3)

    compiled = alternator.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)), rtol=0, atol=0)


def test_graphs_that_aot_autograd_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """They run as they were recorded: eager has no trouble with them, or only in a backward pass."""

    def shared(p: torch.Tensor, alias: torch.Tensor) -> Any:
        alias.mul_(2)
        return p * 3

    p = torch.nn.Parameter(torch.ones(3))
    compiled = alternator.compile(shared, backend="aot_eager", fullgraph=True)
    result = compiled(p, p.detach())
    assert result.tolist() == [6, 6, 6] and result.requires_grad and p.tolist() == [2, 2, 2]

    def bits(x: torch.Tensor, same: torch.Tensor) -> Any:
        x.add_(1)
        return same * 2

    x = torch.zeros(2)
    assert alternator.compile(bits, backend="aot_eager")(x, x.view(torch.int32)).tolist() == [2 * 0x3F800000] * 2

    def needed(x: torch.Tensor) -> Any:
        y = x.exp()
        y.add_(1)
        return y

    result = alternator.compile(needed, backend="aot_eager", fullgraph=True)(torch.zeros(3, requires_grad=True))
    assert result.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()

    net = torch.nn.Linear(3, 2)
    compiled = alternator.compile(net, backend="aot_eager", fullgraph=True)
    compiled(torch.ones(1, 3)).sum().backward()
    net.weight.data, net.bias.data = torch.ones(4, 3), torch.zeros(4)  # the gradients are of another size now
    assert compiled(torch.ones(1, 3)).tolist() == [[3, 3, 3, 3]]
    assert caplog.text.count("runs the recorded program") == 4


def _is_close(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.allclose(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_is_close, a, b))
    return bool(a == b)


def _seen_of(fn: Any, make: Any) -> list[Any]:
    """What a program sees of each result and argument, in a call of its own, and of its gradients, or what its backward() says."""
    seen: list[Any] = []
    for place in itertools.count():
        torch.manual_seed(3)
        leaf, weight = torch.rand(4).add_(0.1).requires_grad_(), torch.rand(4, requires_grad=True)
        given = make(leaf, weight)
        results = fn(*given)
        tensors = (*(results if isinstance(results, tuple) else (results,)), *given)
        if place == len(tensors):
            return seen
        seen.append((tensors[place].detach().clone(), tensors[place].requires_grad))
        try:
            tensors[place].pow(2).sum().backward()
            # A compiled graph has one node for its backward pass, which gives zeros to who has no part in a result.
            seen.append([tensor.new_zeros(4) if tensor.grad is None else tensor.grad for tensor in (leaf, weight)])
        except RuntimeError as error:
            seen.append(str(error)[:40])
    raise AssertionError


def _agrees(fn: Any, make: Any, backend: str = "aot_eager") -> None:
    alternator.reset()
    expected, got = _seen_of(fn, make), _seen_of(alternator.compile(fn, backend=backend, fullgraph=True), make)
    assert _is_close(got, expected), (fn.__name__, got, expected)


def _computed(leaf: Any, weight: Any) -> Any:
    return leaf * 3, weight


def test_results_whose_history_is_used_up(caplog: pytest.LogCaptureFixture) -> None:
    """A backward pass through them raises, as in eager."""

    def loss(x: Any) -> Any:
        l = (x**4).sum()  # noqa: E741
        return l, *torch.autograd.grad(l, x)

    def part(x: Any) -> Any:
        y, z = x.sin(), x.cos()
        return y, z, *torch.autograd.grad((y * y).sum(), x)

    def twice(x: Any) -> Any:
        l = (x**4).sum()  # noqa: E741
        (g,) = torch.autograd.grad(l, x, create_graph=True)
        return l, g, *torch.autograd.grad(g.sum(), x)

    for fn in (loss, part, twice):
        _agrees(fn, lambda leaf, weight: (leaf,))
    assert caplog.text.count("runs the recorded program") == 3
    _agrees(lambda x: torch.autograd.grad((x**4).sum(), x), lambda leaf, weight: (leaf,))
    assert caplog.text.count("runs the recorded program") == 3


def test_writes_to_views_of_each_other_with_gradients(caplog: pytest.LogCaptureFixture) -> None:
    """AOTAutograd fails, or loses the history of one of them."""

    def both(b: Any, v: Any, w: Any) -> Any:
        v.add_(w)
        b.mul_(2)
        return b + 1, v

    def one(b: Any, v: Any, w: Any) -> Any:
        v.mul_(w)
        return b + 1

    def views(leaf: Any, weight: Any) -> Any:
        b = leaf * 1
        return b, b[1:3], weight[:2]

    def views_without_a_gradient(leaf: Any, weight: Any) -> Any:
        b = leaf.detach().clone()
        return b, b[1:3], weight[:2]

    for fn in (both, one):
        for make in (views, views_without_a_gradient):
            _agrees(fn, make)
    assert caplog.text.count("runs the recorded program") == 4


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_default_partitioner", "inductor"])
def test_old_values_of_what_is_written(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """A backward pass that needs what was in an input gets that, and the graph is compiled."""

    def scaled(y: Any, w: Any) -> Any:
        return y.mul_(w)

    def activated(y: Any, w: Any) -> Any:
        torch.nn.functional.silu(y, inplace=True)
        return y + 1

    def sliced(y: Any, w: Any) -> Any:
        y[1:3].mul_(w[1:3])
        return y * 1

    def turned(y: Any, w: Any) -> Any:
        y.view(2, 2).t().mul_(w.view(2, 2))
        return y * 1

    def quiet(y: Any, w: Any) -> Any:
        t = y * 2
        with torch.no_grad():
            y.mul_(3)
        return t * w

    def averaged(buffer: Any, w: Any) -> Any:
        t = buffer * 2
        buffer.add_(w.detach())
        return w * t

    for fn in (scaled, activated, sliced, turned, quiet):
        _agrees(fn, _computed, backend)
    _agrees(averaged, lambda leaf, weight: (torch.ones(4), weight), backend)
    assert "runs the recorded program" not in caplog.text


def test_old_values_of_a_part_that_is_written(caplog: pytest.LogCaptureFixture) -> None:
    def scaled(v: Any, w: Any) -> Any:
        v.mul_(w)
        return v + 1

    _agrees(scaled, lambda leaf, weight: ((leaf * 1)[1:3], weight[:2]))
    assert "runs the recorded program, not through aot_eager: it writes to a part of a tensor" in caplog.text


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_writes_through_data(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """No version counts them, so that a backward pass that waits for the tensor takes it as it is."""

    def used(y: Any, w: Any) -> Any:
        y.data.mul_(2)
        return y * w

    def alone(y: Any, w: Any) -> Any:
        y.data[1:].mul_(2)
        return w * 2

    def counted(y: Any, w: Any) -> Any:
        y.data.mul_(2)
        y.detach().mul_(2)
        return y * w

    for fn in (used, alone, counted):
        _agrees(fn, lambda leaf, weight: (leaf.exp(), weight), backend)
    assert "runs the recorded program" not in caplog.text


def test_batch_norm_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    nets = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    compiled = alternator.compile(nets[1], backend="aot_eager", fullgraph=True)
    for _ in range(2):
        for call in (nets[0], compiled):
            call(x()).pow(2).sum().backward()
    for ours, theirs in zip(nets[1].parameters(), nets[0].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(nets[1].state_dict(), nets[0].state_dict())
    assert "runs the recorded program" not in caplog.text


def test_warnings_while_a_graph_is_compiled() -> None:
    """They are given when that is done; of a graph that torch refuses, they are not for the user."""
    from torch._dynamo.backends.registry import register_backend

    def warns(gm: Any, inputs: list[Any]) -> Any:
        with warnings.catch_warnings(record=True) as own:
            warnings.simplefilter("always")
            warnings.warn("its own", stacklevel=1)
        warnings.warn("from the compiler", stacklevel=1)
        assert [str(warning.message) for warning in own] == ["its own"]
        assert not shown
        return gm.forward

    def fails(gm: Any, inputs: list[Any]) -> Any:
        warnings.warn("from the compiler", stacklevel=1)
        raise ValueError("no such luck")

    def refused(x: Any) -> Any:
        y = x.exp()
        z = y * 2
        y.add_(1)
        return z, y

    if "alternator_test" not in torch._dynamo.list_backends():
        register_backend(lambda gm, inputs: CURRENT[-1](gm, inputs), name="alternator_test")
    for compiler in (warns, fails):
        CURRENT.append(compiler)
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            compiled = alternator.compile(lambda x: x + 1, backend="alternator_test", isolate_recompiles=True)
            with pytest.raises(alternator.BackendFailed) if compiler is fails else contextlib.nullcontext():
                compiled(x())
        assert [str(warning.message) for warning in shown] == ["from the compiler"]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        showwarning = warnings.showwarning
        result, _ = alternator.compile(refused, backend="aot_eager", fullgraph=True)(torch.zeros(3, requires_grad=True))
        assert warnings.showwarning is showwarning
    assert result.tolist() == [2, 2, 2]
    assert not shown


@pytest.mark.parametrize("backend", [lambda gm, examples: gm.forward, "aot_eager"])
def test_tensors_that_torch_makes_no_example_of(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view whose memory was replaced by some of another type than its base's."""
    monkeypatch.setattr(alternator.config, "example_values", True)
    compiled = alternator.compile(lambda x: x * 2, backend=backend, fullgraph=True)
    for dtype in (torch.float32, torch.float64, torch.float64):
        x = torch.zeros(6)[:3]
        x.data = torch.arange(3, dtype=dtype)
        result = compiled(x)
        assert result.tolist() == [0, 2, 4]
        assert result.dtype == dtype


def test_one_row_of_those_that_are_gone_through() -> None:
    """A node for the row that is used; where somebody could tell the two apart, all rows and the item."""

    def alone(x: Any) -> Any:
        return torch.cat([*x], dim=-1)

    def middle(x: Any) -> Any:
        _, row, _ = x.expand(3, *x.shape[1:])
        return row * 2

    def leaves(x: Any) -> Any:
        (row,) = x
        return row

    def leaves_as_a_view(x: Any) -> Any:
        (row,) = x
        return row[1:], row * 2

    def is_written(x: Any) -> Any:
        (row,) = x * 2
        x.detach().add_(1)
        return row * 2

    def two(x: Any) -> Any:
        a, b, _ = x.expand(3, *x.shape[1:])
        return a * b

    methods = {alone: [], middle: ["expand"], two: ["expand", "unbind"], is_written: ["unbind", "detach", "add_"]}
    methods |= {leaves: ["unbind"], leaves_as_a_view: ["unbind"]}
    for fn, wanted in methods.items():
        seen: list[Any] = []

        def spy(module: Any, inputs: Any, seen: list[Any] = seen) -> Any:
            seen.append([node.target for node in module.graph.nodes if node.op == "call_method"])
            module.real_recompile()
            return lambda *given: module.forward(*given)

        for backend in (spy, "aot_eager"):
            compiled = alternator.compile(fn, backend=backend, fullgraph=True)
            for scale in (1.0, -0.0):
                ours = (torch.ones(1, 4, 3) * scale).requires_grad_()
                theirs = ours.detach().clone().requires_grad_()
                got, expected = compiled(ours), fn(theirs)
                got = got if isinstance(got, tuple) else (got,)
                expected = expected if isinstance(expected, tuple) else (expected,)
                for a, b in zip(got, expected, strict=True):
                    assert torch.equal(a, b) and a.shape == b.shape
                sum(a.sum() for a in got).backward()
                sum(b.sum() for b in expected).backward()
                assert ours.grad is not None and torch.equal(ours.grad, theirs.grad)
                assert torch.equal(ours.grad.signbit(), theirs.grad.signbit())
        assert seen == [wanted], (fn.__name__, seen)


@pytest.mark.parametrize("transform", [torch.func.jacfwd, torch.func.hessian, torch.func.jacrev])
def test_graphs_of_transforms_are_compiled_again(transform: Any) -> None:
    """Each node is something that generated code can name: also what torch.Tensor hides (`unflatten`)."""
    seen: list[Any] = []

    def spy(module: Any, inputs: Any) -> Any:
        seen.append(module)
        return module.forward

    def cubes(x: Any) -> Any:
        return (x.sin() ** 3).sum()

    def fn(x: Any) -> Any:
        return transform(cubes)(x)

    expected = fn(x())
    torch.testing.assert_close(alternator.compile(fn, backend=spy, fullgraph=True)(x()), expected)
    (module,) = seen
    module.real_recompile()
    compilers = [alternator.compile]
    if torch.__version__ >= "2.13":  # before, TorchDynamo does not know functions that are made with pybind11
        compilers.append(torch.compile)
    for again in compilers:
        (result,) = again(module, backend="eager", fullgraph=True)(x())
        torch.testing.assert_close(result, expected)


def test_a_method_that_is_hidden_is_a_function() -> None:
    seen: list[Any] = []

    def spy(module: Any, inputs: Any) -> Any:
        seen.append(module)
        return module.forward

    compiled = alternator.compile(lambda x: x.unflatten(1, (3, -1)), backend=spy, fullgraph=True)
    assert compiled(x()).shape == (2, 3, 1)
    assert seen[0].graph.find_nodes(op="call_function", target=torch.unflatten)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_writes_to_inputs_that_share_memory(backend: str) -> None:
    """The results, their memory and their histories are eager's."""

    def part_of_another(a: Any, b: Any) -> Any:
        y = a.view(-1)[:2]
        y.add_(1)
        return b[:1]

    def with_a_view(a: Any, b: Any) -> Any:
        c = a.view(-1)
        c[0] = 5
        return c, b * 2

    def each(a: Any, b: Any) -> Any:
        torch._foreach_add_([a, b], 1)
        return a * 1

    def chunks(a: Any, _: Any) -> Any:
        return torch.chunk(a.add_(1), 2)

    def without_gradient(a: Any, b: Any) -> Any:
        with torch.no_grad():
            a.add_(1)
        return (a * b).sum()

    def unfolded(a: Any, _: Any) -> Any:
        a.unfold(0, 2, 1)[0].add_(1)
        return a * 2

    def shared() -> Any:
        t = torch.arange(8.0)
        return [t], t[:4], t[2:6]

    def twice() -> Any:
        t = torch.arange(4.0)
        return [t], t, t

    def of_a_parameter() -> Any:
        p = torch.ones(4, requires_grad=True)
        return [p], p.detach(), p

    def computed() -> Any:
        p = torch.ones(4, requires_grad=True)
        a = p * 1
        return [p], a, a[:]

    def outcome(fn: Any, make: Any) -> Any:
        leaves, a, b = make()
        try:
            results = fn(a, b)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        places = [
            r.storage_offset() if r.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() else None
            for r in results
        ]
        found = [[r.tolist() for r in results], places, [r.requires_grad for r in results], a.tolist(), b.tolist()]
        if any(r.requires_grad for r in results):
            sum(r.sum() for r in results if r.requires_grad).backward()
            found.append([leaf.grad.tolist() for leaf in leaves])
        return found

    for fn in (part_of_another, with_a_view, each, chunks, without_gradient, unfolded):
        for make in (shared, twice, of_a_parameter, computed):
            alternator.reset()
            compiled = alternator.compile(fn, backend=backend)
            for _ in range(2):
                assert outcome(compiled, make) == outcome(fn, make), (fn.__name__, make.__name__)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_writes_to_matrices_that_cross(backend: str) -> None:
    """They have rows of the same pitch, and an element or a column in common, or none."""

    def fn(one: torch.Tensor, other: torch.Tensor) -> Any:
        one.mul_(3)
        seen = other.clone()
        other.add_(one.sum())
        return seen

    compiled = alternator.compile(fn, backend=backend, fullgraph=True)
    for one, other in (
        ((0, 2, 0, 2), (1, 3, 1, 3)),
        ((1, 3, 1, 3), (0, 2, 0, 2)),
        ((0, 3, 0, 2), (1, 3, 2, 4)),
        ((0, 2, 0, 2), (1, 3, 0, 1)),
    ):
        results = []
        for run in (fn, compiled):
            memory = torch.arange(12.0).reshape(3, 4)
            parts = [memory[top:bottom, left:right] for top, bottom, left, right in (one, other)]
            results.append((run(*parts), memory))
        for wanted, got in zip(*results, strict=True):
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_arguments_that_are_turned(backend: str) -> None:
    """In place, and written to as well: they stay where they are in memory."""

    def turned(x: torch.Tensor) -> Any:
        x.t_()
        x.mul_(2)
        return x[0]

    def longer(x: torch.Tensor) -> Any:
        x.add_(1).unsqueeze_(0)
        return x.sum()

    def both_ways(x: torch.Tensor) -> Any:
        x.t_()
        y = x[0] + 1
        x.mul_(2).t_()
        return y

    for fn in (turned, longer, both_ways):
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        for _ in range(2):
            (wanted, x), (got, y) = (
                (run(part := torch.arange(12.0).reshape(3, 4)[:2, 1:3]), part) for run in (fn, compiled)
            )
            assert torch.equal(got, wanted) and torch.equal(x, y)
            assert x._base is not None and y._base is not None and torch.equal(x._base, y._base)
            assert (x.shape, x.stride(), x.storage_offset()) == (y.shape, y.stride(), y.storage_offset())
            assert got.stride() == wanted.stride() and got.storage_offset() == wanted.storage_offset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_elements_that_are_written_under_many_names(backend: str) -> None:
    def of_an_argument(x: torch.Tensor) -> Any:
        x.expand(2, 3).zero_()
        return x + 1

    def of_a_result(x: torch.Tensor) -> Any:
        y = x * 2
        y.expand(2, 3).fill_(3)
        return y

    def of_a_row(x: torch.Tensor) -> Any:
        x.expand(2, 3)[0].mul_(2)
        return x + 1

    for fn in (of_an_argument, of_a_result, of_a_row):
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        for start in (1.0, 4.0):
            x, y = torch.arange(start, start + 3), torch.arange(start, start + 3)
            assert torch.equal(compiled(x), fn(y)) and torch.equal(x, y)


def test_a_write_to_one_element_under_many_names() -> None:
    def fn(x: torch.Tensor) -> Any:
        x.expand(2, 2).copy_(x.sum().expand(2, 2))
        return x

    for run in (fn, alternator.compile(fn, backend="aot_eager")):
        with pytest.raises(RuntimeError, match="^unsupported operation: more than one element of the written-to"):
            run(torch.ones(2))


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_fused_steps(make: Any) -> None:
    """What AOTAutograd refuses runs the recorded program, uncompiled."""

    def run(wrap: Any) -> Any:
        p = torch.nn.Parameter(torch.ones(2))
        optimizer = make([p], lr=0.1, fused=True)
        step = wrap(lambda: optimizer.step())
        for i in range(3):
            p.grad = torch.full((2,), 1.0 + i)
            step()
        return p.detach()

    torch.testing.assert_close(run(lambda f: alternator.compile(f, backend="aot_eager")), run(lambda f: f))
    assert torch.is_grad_enabled()


def test_no_weak_reference_stays_on_parameters() -> None:
    layer, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    compiled = alternator.compile(layer, backend="aot_eager")
    x = torch.ones(2)
    for _ in range(2):
        assert torch.equal(compiled(x), layer(x))
    torch.utils.swap_tensors(layer.weight, other.weight)
    assert torch.equal(compiled(x), layer(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_variables_of_one_name_in_several_frames(backend: str) -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        alternator.graph_break()
        return x + 1

    def fn(x: torch.Tensor, depth: int) -> torch.Tensor:
        return x * (fn(x + 1, depth - 1) if depth else inner(x * 2)) + x

    compiled = alternator.compile(fn, backend=backend)
    for start in (1.0, 2.0):
        x, y = torch.arange(start, start + 3, requires_grad=True), torch.arange(start, start + 3, requires_grad=True)
        result, expected = compiled(x, 2), fn(y, 2)
        torch.testing.assert_close(result, expected)
        result.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


# --- torch.compile's own options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("compile", [torch.compile, alternator.compile], ids=["torch", "alternator"])
def test_options_of_torch_compile_itself_reach_no_backend(compile: Any) -> None:
    given: list[Any] = []

    def backend(gm: Any, inputs: Any, **keywords: Any) -> Any:
        given.append(keywords)
        return gm.forward

    own = {"guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe}
    compile(lambda x: x + 1, backend=backend, options={**own})(torch.ones(2))
    compile(lambda x: x + 2, backend=backend, options={**own, "level": 3})(torch.ones(2))
    assert given[1] == {"options": {"level": 3}}
    assert not given[0].get("options")


class NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise NotImplementedError("no backward")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_backward_that_raises_is_nobodys_concern_before_it_runs(backend: str) -> None:
    """AOTAutograd runs it while it compiles."""
    compiled = alternator.compile(lambda x: NoBackward.apply(x) + 1, backend=backend)
    for _ in range(2):
        result = compiled(torch.ones(2, requires_grad=True))
        assert result.tolist() == [3.0, 3.0]
        with pytest.raises(NotImplementedError, match="no backward"):
            result.sum().backward()


def _through_aot() -> list[Any]:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import aot_module_simplified

    def compile_inner(gm: Any, inputs: list[Any]) -> Any:
        return make_boxed_func(gm.forward)

    def simplified(gm: Any, inputs: list[Any]) -> Any:
        return aot_module_simplified(gm, inputs, fw_compiler=compile_inner)

    return [aot_autograd(fw_compiler=compile_inner), simplified]


@pytest.mark.parametrize("which", [0, 1])
def test_a_callable_that_goes_through_aot_autograd(which: int) -> None:
    """What is not for AOTAutograd runs the recorded program, uncompiled, whoever calls it."""
    backend = _through_aot()[which]

    def leaf(x: Any) -> Any:
        x.requires_grad_(True)
        return x * 2

    def hook(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: grad * 10)
        return y

    def data(x: Any) -> Any:
        x.data = torch.full_like(x, 5)
        return x + 1

    def plain(x: Any) -> Any:
        return x.sin() * 2

    for fn, wants_grad in ((leaf, False), (hook, True), (plain, True)):
        compiled = alternator.compile(fn, backend=backend)
        for _ in range(2):
            given, wanted = (torch.arange(2.0, requires_grad=wants_grad) for _ in range(2))
            result, expected = compiled(given), fn(wanted)
            assert (result.requires_grad, given.requires_grad) == (expected.requires_grad, wanted.requires_grad)
            result.sum().backward()
            expected.sum().backward()
            assert torch.equal(result, expected) and torch.equal(given.grad, wanted.grad)
    given = torch.ones(2)
    assert alternator.compile(data, backend=backend)(given).tolist() == [6.0, 6.0]
    assert given.tolist() == [5.0, 5.0]


def test_views_of_parameters_without_gradients_are_compiled(caplog: pytest.LogCaptureFixture) -> None:
    """Torch calls them leaves that require a gradient: `token.expand(...)` in inference."""
    token, weight = torch.nn.Parameter(torch.ones(1, 3)), torch.nn.Parameter(torch.ones(3, 3))

    def fn(x: Any) -> Any:
        return torch.cat([token.expand(2, -1), x]) @ weight.t()

    compiled = alternator.compile(fn, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(compiled(x := torch.arange(6.0).reshape(2, 3)), fn(x))
    assert "runs the recorded program" not in caplog.text


def test_a_view_of_a_parameter_without_gradients_is_given_back() -> None:
    parameter = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))

    def fn(x: Any) -> Any:
        return parameter[0], x + parameter.t()[0, 0]

    compiled = alternator.compile(fn, backend="aot_eager")
    with torch.no_grad():
        for _ in range(2):
            view, result = compiled(torch.ones(2))
            wanted = fn(torch.ones(2))
            assert (view.requires_grad, result.requires_grad) == tuple(one.requires_grad for one in wanted)
            assert view.data_ptr() == parameter.data_ptr() and torch.equal(result, wanted[1])

"""Programs as torch.fx graphs: names, metadata, and that torch.fx itself agrees with how they were built."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="the recorder needs torch")

import torch.nn.functional as F  # noqa: E402
from recording import graph, record, same  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402

import alternator  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.normLayer = nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.relu(layer(x))
        values, indices = x.max(dim=0)
        return self.normLayer(x.sum(0) + values.T[None]) - 3 - (3 - x), indices


def test_names_read_well() -> None:
    module = record(Net(), torch.randn(2, 4)).to_fx()
    names = [node.name for node in module.graph.nodes]
    assert names == [
        "l_x_", "l_self_modules_layers_modules_0_parameters_weight_", "l_self_modules_layers_modules_0_parameters_bias_",
        "l_self_modules_layers_modules_1_parameters_weight_", "l_self_modules_layers_modules_1_parameters_bias_",
        "l_self_modules_layers_modules_2_parameters_weight_", "l_self_modules_layers_modules_2_parameters_bias_",
        "l_self_modules_norm_layer_parameters_weight_", "l_self_modules_norm_layer_parameters_bias_",
        "linear", "relu", "linear_1", "relu_1", "linear_2", "relu_2", "max_1", "getitem", "getitem_1", "sum_1", "getattr_1",
        "getitem_2", "add", "layer_norm", "sub", "sub_1", "sub_2", "output",
    ]  # fmt: skip
    assert next(iter(module.graph.nodes)).target == "L_x_"
    assert "layer_norm = torch.nn.functional.layer_norm(add, (4,), " in module.code
    assert "sub_1 = 3 - relu_2" in module.code
    assert "getattr_1 = getitem.T" in module.code


def test_the_fast_and_the_slow_way_build_the_same_graph() -> None:
    recorded = record(Net(), torch.randn(2, 4))
    fast = recorded.to_fx()
    graph.use_slow_fx(True)
    try:
        slow = recorded.to_fx()
    finally:
        graph.use_slow_fx(False)
    assert fast.code == slow.code
    assert str(fast.graph) == str(slow.graph)
    for a, b in zip(fast.graph.nodes, slow.graph.nodes, strict=True):
        assert (a.name, a.op, a.target, a._sort_key) == (b.name, b.op, b.target, b._sort_key)
        assert [u.name for u in a.users] == [u.name for u in b.users]
        assert [u.name for u in a.all_input_nodes] == [u.name for u in b.all_input_nodes]
        assert type(a.args) is type(b.args)
        assert type(a.kwargs) is type(b.kwargs)
        assert a.meta.keys() == b.meta.keys()
    names = ("_used_names", "_base_count")
    for name in names:
        assert getattr(fast.graph._graph_namespace, name) == getattr(slow.graph._graph_namespace, name)
    assert len(fast.graph.nodes) == len(slow.graph.nodes)
    assert [n.name for n in fast.graph.find_nodes(op="call_function", target=F.relu)] == ["relu", "relu_1", "relu_2"]
    assert fast.graph._find_nodes_lookup_table.table.keys() == slow.graph._find_nodes_lookup_table.table.keys()


def test_torch_fx_can_go_on_with_the_graph() -> None:
    net = Net()
    x = torch.randn(2, 4)
    recorded = record(net, x)
    module = recorded.to_fx()
    module.graph.lint()
    expected = net(x)
    for other in (copy.deepcopy(module), torch.fx.symbolic_trace(module), pickle.loads(pickle.dumps(module))):
        same(recorded.run_fx(other), expected)
    interpreter = torch.fx.Interpreter(module)
    same(recorded.run_fx(interpreter.run), expected)
    with module.graph.inserting_before(module.graph.output_node()):
        added = module.graph.call_function(operator.add, (next(iter(module.graph.nodes)), 1))
    assert added.name == "add_1"
    module.graph.erase_node(added)
    linear = module.graph.find_nodes(op="call_function", target=F.relu)[0]
    linear.replace_all_uses_with(linear.args[0])
    module.graph.erase_node(linear)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    recorded.run_fx(module)


def test_code_is_generated_only_on_demand() -> None:
    module = record(Net(), torch.randn(2, 4)).to_fx()
    assert module._needs_recompile()
    assert "def forward" in module.code
    assert not module._needs_recompile()


def test_metadata() -> None:
    net = Net()
    module = record(net, torch.randn(2, 4)).to_fx()
    linear = next(n for n in module.graph.nodes if n.name == "linear_1")
    assert list(linear.meta["nn_module_stack"].values()) == [("L['self']", Net), ("L['self'].layers.1", nn.Linear)]
    lines = [line.strip() for line in linear.meta["stack_trace"].splitlines()]
    frames = [frame for frame in zip(lines[::2], lines[1::2], strict=True) if "recording.py" not in frame[0]]
    assert [source for _, source in frames] == ["x = F.relu(layer(x))"]
    assert frames[0][0].endswith("in forward")
    assert "torch" not in frames[0][0].rsplit(",", 1)[0].split("tests")[-1]
    assert linear.meta["source_fn_stack"] == [("linear_1", F.linear)]
    assert "example_value" not in linear.meta
    relu = next(n for n in module.graph.nodes if n.name == "relu_1")
    assert list(relu.meta["nn_module_stack"].values()) == [("L['self']", Net)]


@pytest.mark.parametrize("with_inputs", [False, True])
def test_example_values_are_torchs_own_fakes(with_inputs: bool) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Any) -> Any:
            y = (x @ self.weight).t()
            a, b = y.split(2)
            return y.view(torch.int32), a[0], b.double()

    mode = FakeTensorMode(shape_env=ShapeEnv())
    net, x = Shared(), torch.randn(2, 4, 3)[..., 0].t().t()
    recorded = record(net, x)
    module = recorded.to_fx(fake_mode=mode, example_inputs=recorded.inputs if with_inputs else None)
    values = {}

    class Compare(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            value = super().run_node(node)
            example = node.meta.get("example_value")
            if isinstance(value, torch.Tensor) and node.op != "output":
                assert type(example) is FakeTensor
                assert example.fake_mode is mode
                assert (example.shape, example.stride(), example.storage_offset(), example.dtype, example.device) == (
                    value.shape, value.stride(), value.storage_offset(), value.dtype, value.device)  # fmt: skip
                assert isinstance(example, nn.Parameter) == isinstance(value, nn.Parameter)
                assert example.requires_grad == value.requires_grad
                values[node.name] = (example, value)
            return value

    Compare(module).run(*recorded.inputs)
    examples = list(values.values())
    for a, real_a in examples:
        for b, real_b in examples:
            shared = real_a.untyped_storage().data_ptr() == real_b.untyped_storage().data_ptr()
            assert (a.untyped_storage()._cdata == b.untyped_storage()._cdata) == shared
    placeholder = next(iter(module.graph.nodes))
    assert placeholder.meta["tensor_dict"] == {}


def test_our_fakes_never_reach_a_backend() -> None:
    recorded = record(Net(), torch.randn(2, 4))
    module = recorded.to_fx(fake_mode=FakeTensorMode())
    fake = __import__("alternator")._C.fake
    seen: set[int] = set()

    def look(value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        assert not (isinstance(value, torch.Tensor) and fake.is_fake(value))
        if isinstance(value, (list, tuple)):
            for item in value:
                look(item)
        elif isinstance(value, dict):
            for item in value.values():
                look(item)

    for node in module.graph.nodes:
        look([node.args, node.kwargs, node.meta, node.target])
    look(module.__dict__)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_take_the_graph(backend: str) -> None:
    from torch._dynamo.backends.registry import lookup_backend

    net, x = Net(), torch.randn(2, 4, requires_grad=True)
    recorded = record(net, x)
    compiled = lookup_backend(backend)(recorded.to_fx(), recorded.inputs)
    result = recorded.run_fx(lambda *inputs: compiled(*inputs))
    expected = net(x)
    torch.testing.assert_close(result, expected)
    result[0].sum().backward()
    gradients = [x.grad.clone(), *[p.grad.clone() for p in net.parameters()]]
    x.grad = None
    net.zero_grad()
    expected[0].sum().backward()
    torch.testing.assert_close(gradients, [x.grad, *[p.grad for p in net.parameters()]])


class Sizes(NamedTuple):
    rows: int
    columns: int


class Two(NamedTuple):
    left: Any
    right: Any


def test_named_tuples_as_arguments() -> None:
    def f(x: Any) -> Any:
        return torch.zeros(Sizes(2, 3)), torch.cat(Two(x, x + 1))

    x = torch.ones(2)
    for backend in ("eager", lambda gm, inputs: gm, "aot_eager"):
        found = alternator.compile(f, backend=backend, fullgraph=True)(x)
        assert all(torch.equal(one, other) for one, other in zip(found, f(x)))


def test_functions_without_a_module() -> None:
    def f(x: Any) -> Any:
        y = torch.Tensor._make_subclass(torch.Tensor, x)
        x += 1
        return y * 2

    found = alternator.compile(f, backend=lambda gm, inputs: gm, fullgraph=True)(torch.ones(2))
    assert torch.equal(found, f(torch.ones(2)))

"""Operators on tensors with unbacked sizes: what a trace says of their results is what torch's FakeTensorMode says, and a run gives what
eager gives, whatever the sizes turn out to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy  # type: ignore[import-untyped]
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils import _pytree as pytree

import alternator

Program = Callable[[Any, Any, Any], Any]

# Of x (u0, 8), y (u1, 8), both float, and rows (u0), integers below 6.
POINTWISE: dict[str, Program] = {
    "unary": lambda x, y, rows: (x.relu(), -x, x.exp(), x.sigmoid(), rows + 1),
    "binary": lambda x, y, rows: (x + x, x * 2, x - 1.5, x / x.abs().add(1), x**2),
    "broadcast": lambda x, y, rows: (x + torch.ones(8), x * torch.ones(1, 8), x.unsqueeze(1) + y.unsqueeze(0)),
    "broadcast of a column": lambda x, y, rows: x * rows.unsqueeze(-1),
    "mixed types": lambda x, y, rows: (x + rows.unsqueeze(1), x.double() + x, rows.float(), x > 0),
    "where": lambda x, y, rows: (torch.where(x > 0, x, -x), x.masked_fill(x > 0, 0.0), x.clamp(-1, 1)),
    "in place": lambda x, y, rows: (x.clone().mul_(2).add_(x), x.clone().fill_(3)),
    "transposed": lambda x, y, rows: (x.t().contiguous(), x.t() + 1, (x.t() + 1).contiguous(), x.t().clone()),
    "like": lambda x, y, rows: (
        torch.zeros_like(x),
        torch.ones_like(x.t()),
        x.new_zeros(x.shape),
        x.new_empty(2).shape,
    ),
    "out of x and y": lambda x, y, rows: (x.sum(0) + y.sum(0), torch.outer(x[:, 0], y[:, 0])),
    "addcmul and lerp": lambda x, y, rows: (torch.addcmul(x, x, x), torch.lerp(x, x * 2, 0.5)),
    "complex": lambda x, y, rows: torch.view_as_real(torch.complex(x, x)),
}
REDUCTIONS: dict[str, Program] = {
    "sum": lambda x, y, rows: (x.sum(), x.sum(0), x.sum(1), x.sum(1, keepdim=True), x.sum((0, 1))),
    "mean": lambda x, y, rows: (x.mean(), x.mean(0), x.mean(1), x.var(1), x.std(1)),
    "any": lambda x, y, rows: ((x > 0).any(), (x > 0).all(1), x.prod(1), x.count_nonzero()),
    "max": lambda x, y, rows: (x.max(1), x.amax(1), x.argmax(1), x.amin(-1, keepdim=True)),
    "logsumexp": lambda x, y, rows: (x.logsumexp(1), x.norm(dim=1), torch.linalg.vector_norm(x, dim=0)),
    "cumsum": lambda x, y, rows: (x.cumsum(0), x.cumsum(1), x.cumprod(1)),
    "softmax": lambda x, y, rows: (x.softmax(1), x.log_softmax(-1), x.softmax(0)),
    "norms": lambda x, y, rows: (F.layer_norm(x, (8,)), F.group_norm(x, 2), F.normalize(x, dim=1), F.rms_norm(x, (8,))),
    "sort": lambda x, y, rows: (x.sort(1), x.argsort(1), x.sort(0), x.topk(3, 1)),
    "losses": lambda x, y, rows: (F.mse_loss(x, x * 2), F.cross_entropy(x, rows, reduction="sum"), F.l1_loss(x, -x)),
}
MATRICES: dict[str, Program] = {
    "matmul": lambda x, y, rows: (x @ torch.ones(8, 3), x @ torch.ones(8), x @ y.t(), x.t() @ x),
    "linear": lambda x, y, rows: (F.linear(x, torch.ones(3, 8)), F.linear(x, torch.ones(3, 8), torch.ones(3))),
    "batched": lambda x, y, rows: (
        torch.bmm(x.unsqueeze(1), x.unsqueeze(2)),
        x.unsqueeze(1) @ torch.ones(8, 2),
        torch.einsum("ij,kj->ik", x, y),
    ),
    "embedding": lambda x, y, rows: (F.embedding(rows, torch.ones(6, 4)), F.one_hot(rows, 6), torch.ones(6, 4)[rows]),
    "attention": lambda x, y, rows: F.scaled_dot_product_attention(x[None], x[None], x[None]),
}
VIEWS: dict[str, Program] = {
    "view": lambda x, y, rows: (x.view(-1), x.view(-1, 2, 4), x.view(x.shape[0], 4, 2), x.reshape(-1, 4), x.flatten()),
    "flattened": lambda x, y, rows: (x.t().reshape(-1), x.unflatten(1, (2, 4)).transpose(0, 1).flatten(1)),
    "transposed": lambda x, y, rows: (x.t(), x.view(-1, 2, 4).permute(2, 0, 1), x.unsqueeze(0), x.unsqueeze(-1), x.mT),
    "parts": lambda x, y, rows: (x[:, 0], x[:, 1:3], x[..., None], x[:, ::2], x.narrow(1, 2, 3), x.select(1, 2)),
    "split": lambda x, y, rows: (x.chunk(2, 1), x.split(3, 1), x.unbind(1)),
    "squeezed": lambda x, y, rows: (
        x.unsqueeze(0).squeeze(0),
        x.unsqueeze(1).squeeze(1),
        x.mean(1, keepdim=True).squeeze(1),
    ),
    "expanded": lambda x, y, rows: (x.unsqueeze(1).expand(-1, 3, -1), rows.unsqueeze(1).expand_as(x), x.repeat(2, 1)),
    "joined": lambda x, y, rows: (torch.cat([x, y]), torch.cat([x, torch.ones(3, 8)]), torch.cat([x, x], 1)),
    "stacked": lambda x, y, rows: (
        torch.stack([x, x]),
        torch.stack([x, x], -1),
        torch.vstack([x, y]),
        torch.hstack([x, x]),
    ),
    "joined and used": lambda x, y, rows: (torch.cat([x, y]) + 1, torch.cat([x, y]).t().contiguous(), F.pad(x, (1, 2))),
    "flipped": lambda x, y, rows: (x.flip(1), x.flip(0), x.tril(), x.diagonal_scatter(x[:, 0], 0, 0, 1).shape[1]),
    "chained": lambda x, y, rows: (
        (x.view(-1, 2, 4).sum(-1) * 2).reshape(-1, 1, 2).transpose(1, 2).contiguous().view(-1)
    ),
}
INDEXING: dict[str, Program] = {
    "index_select": lambda x, y, rows: (
        torch.ones(6, 3).index_select(0, rows),
        x.index_select(1, torch.tensor([1, 2])),
    ),
    "index": lambda x, y, rows: (
        torch.ones(6, 3)[rows],
        torch.ones(6, 3)[rows, 1:],
        torch.ones(2, 6)[:, rows],
        x[:, [0, 1]],
    ),
    "gather": lambda x, y, rows: (x.gather(1, rows.unsqueeze(1)), torch.ones(6).gather(0, rows)),
    "scatter": lambda x, y, rows: (
        torch.zeros(6).scatter_add(0, rows, x[:, 0]),
        torch.zeros(6, 8).scatter_add(0, rows.unsqueeze(1).expand(-1, 8), x),
        torch.zeros(6, 8).index_add(0, rows, x),
    ),
    "reduced": lambda x, y, rows: torch.zeros(6).scatter_reduce(0, rows, x[:, 0], "sum"),
    "written": lambda x, y, rows: (
        torch.zeros(6, 8).index_put((rows,), x),
        torch.zeros(6, 8).index_copy(0, rows, x).shape,
    ),
    "masked twice": lambda x, y, rows: (x[x[:, 0] > 0], x[rows > 2] * 2, rows[rows > 2].unsqueeze(1) + x[rows > 2]),
    "positions": lambda x, y, rows: (
        (rows > 2).nonzero(),
        (x > 0).nonzero(as_tuple=True),
        x[x > 0],
        x[:, :4][x[:, :4] > 0],
    ),
}
PROGRAMS = {
    f"{group}: {name}": program
    for group, programs in (
        ("pointwise", POINTWISE),
        ("reductions", REDUCTIONS),
        ("matrices", MATRICES),
        ("views", VIEWS),
        ("indexing", INDEXING),
    )
    for name, program in programs.items()
}
COUNTS = ((4, 3), (0, 5), (1, 1), (2, 0), (6, 6), (1, 2))


def whole(program: Program) -> Callable[..., Any]:
    def fn(x: Any, first: Any, second: Any) -> Any:
        return program(x[first], x[second], torch.arange(6)[first])

    return fn


def arguments(first: int, second: int) -> tuple[Any, ...]:
    x = torch.linspace(-1, 1, 48).view(6, 8).sin()
    return x, torch.arange(6) < first, torch.arange(6) >= 6 - second


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except (RuntimeError, IndexError) as error:
        return type(error)


def compare(found: Any, expected: Any) -> None:
    if isinstance(expected, type) or isinstance(found, type):
        assert found is expected, (found, expected)
        return
    torch.testing.assert_close(found, expected, check_stride=False, equal_nan=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    fn = whole(PROGRAMS[name])
    compiled = {backend: alternator.compile(fn, backend=backend, fullgraph=True) for backend in ("eager", "aot_eager")}
    for counts in COUNTS:
        expected = outcome(fn, *arguments(*counts))
        for one in compiled.values():
            compare(outcome(one, *arguments(*counts)), expected)


class Twin(torch.fx.Interpreter):
    """Runs a graph in a FakeTensorMode of its own, and compares each value with the example value of its node."""

    compared = 0

    def run_node(self, node: torch.fx.Node) -> Any:
        found = super().run_node(node)
        example = node.meta.get("example_value")
        if isinstance(found, torch.Tensor) and isinstance(example, torch.Tensor):
            assert description(example) == description(found), (node, description(example), description(found))
            self.compared += 1
        return found


def description(tensor: torch.Tensor) -> tuple[Any, ...]:
    # A stride that nothing has to skip over: torch writes it in several ways.
    sizes = [str(size) for size in tensor.shape]
    strides = [str(stride).replace("Max(1, u0)", "u0").replace("Max(1, u1)", "u1") for stride in tensor.stride()]
    return sizes, strides, tensor.dtype, tensor.device, str(tensor.storage_offset()), tensor.requires_grad


def asserts_of(env: ShapeEnv) -> set[str]:
    return {str(each.expr) for found in env.deferred_runtime_asserts.values() for each in found}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_torch(name: str) -> None:
    fn, args = whole(PROGRAMS[name]), arguments(4, 3)
    graphs: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    alternator.compile(fn, backend=keep, fullgraph=True)(*args)
    (gm,) = graphs
    env = ShapeEnv()
    with FakeTensorMode(shape_env=env) as mode:
        inputs = [mode.from_tensor(each, static_shapes=True) for each in args]
        names = {"x": inputs[0], "first": inputs[1], "second": inputs[2]}
        given = [names[node.target.lower().strip("l_")] for node in gm.graph.nodes if node.op == "placeholder"]
        twin = Twin(gm)
        try:
            twin.run(*given)
        except GuardOnDataDependentSymNode:
            return  # torch cannot say; test_as_eager tells whether ours is right
    assert twin.compared > 2
    ours = next(
        node.meta["example_value"].fake_mode.shape_env
        for node in gm.graph.nodes
        if isinstance(node.meta.get("example_value"), torch.Tensor) and node.op != "placeholder"
    )
    assert asserts_of(ours) <= asserts_of(env)


MIXED: dict[str, Program] = {
    "sum of two": lambda x, y, rows: x + y,
    "sum with a constant size": lambda x, y, rows: x + torch.ones(3, 8),
    "joined beside": lambda x, y, rows: torch.cat([x, y], 1),
    "product": lambda x, y, rows: x.t() @ y,
    "first row": lambda x, y, rows: x[0] + 1,
    "some rows": lambda x, y, rows: (x[:2], x[1:], x[-2:]),
    "largest": lambda x, y, rows: x.max(0).values,
    "an unused row": lambda x, y, rows: (x[0], y + 1)[1],
    "gathered": lambda x, y, rows: torch.ones(2, 8).gather(0, rows[:, None].clamp(max=1).expand(-1, 8)) + x,
    "shorter index": lambda x, y, rows: x.gather(0, torch.zeros(2, 3, dtype=torch.int64)),
    "squeezed": lambda x, y, rows: x.squeeze(0) + 1,
    "best": lambda x, y, rows: x.topk(2, 0).values,
    "viewed": lambda x, y, rows: x.view(2, -1) + 1,
    "grouped": lambda x, y, rows: x.view(-1, 16).sum(1),
    "windows": lambda x, y, rows: F.max_pool1d(x.t()[None], 2),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_that_differ(name: str, backend: str) -> None:
    """Where eager broadcasts or raises for some sizes, so does the compiled function, captured or not."""
    fn = whole(MIXED[name])
    alternator.config.capture_dynamic_output_shape_ops = True
    compiled = alternator.compile(fn, backend=backend)
    for counts in ((4, 4), (1, 4), (3, 3), (0, 0), (2, 2), (4, 1), (5, 2), (3, 1)):
        expected, found = outcome(fn, *arguments(*counts)), outcome(compiled, *arguments(*counts))
        assert isinstance(found, type) == isinstance(expected, type), (counts, found, expected)
        if not isinstance(expected, type):
            compare(found, expected)


def network(x: Any, first: Any, second: Any) -> Any:
    kept = x[first]
    hidden = torch.tanh(F.layer_norm(kept @ torch.ones(8, 8), (8,)))
    scores = (hidden @ x[second].t()).softmax(-1)
    joined = torch.cat([scores @ x[second], hidden]).view(-1, 2, 4)
    rows = torch.arange(6)[first]
    return torch.zeros(6, 8).index_add(0, rows, joined[: rows.shape[0]].flatten(1)), joined.pow(2).sum(-1).mean(0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients(backend: str) -> None:
    compiled = alternator.compile(network, backend=backend, fullgraph=True)
    for counts in ((4, 3), (6, 6), (1, 1), (2, 5)):
        gradients = []
        for fn in (network, compiled):
            x, first, second = arguments(*counts)
            x.requires_grad_()
            sum(each.sum() for each in fn(x, first, second)).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)


def test_scalars_as_sizes() -> None:
    def fn(x: Any, lengths: Any) -> Any:
        n = lengths.sum().item()
        torch._check(n >= 0)  # type: ignore[no-untyped-call]
        torch._check(n <= 6)  # type: ignore[no-untyped-call]
        zeros = torch.zeros(n, 4)
        parts = x.split(lengths.tolist())
        return (zeros + 1) * n, torch.cat([part.softmax(1) for part in parts]) + 1, torch.arange(n).unsqueeze(1) * zeros

    for backend in ("eager", "aot_eager"):
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        for lengths in ([3, 2, 1], [0, 6, 0], [1, 1, 4], [6, 0, 0]):
            given = torch.ones(6, 2), torch.tensor(lengths)
            compare(compiled(*given), fn(*given))


def test_ordinary_operators_need_no_fake_tensor_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    dispatch = FakeTensorMode.__torch_dispatch__

    def counted(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.append(str(func))
        return dispatch(self, func, types, args, kwargs or {})

    monkeypatch.setattr(FakeTensorMode, "__torch_dispatch__", counted)
    compiled = alternator.compile(network, backend=lambda gm, inputs: gm, fullgraph=True)
    compiled(*arguments(4, 3))
    # A slice up to a size that is not known.
    assert set(seen) <= {"aten.slice.Tensor"}, seen


class Measured(torch.fx.Interpreter):
    """Runs a graph with real tensors: the sizes and strides that the trace gave each value, with this run's numbers in them, are its own."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm)
        self.known: dict[Any, Any] = {}
        self.compared = 0

    def value(self, number: Any) -> int | None:
        if not isinstance(number, torch.SymInt):
            return int(number)
        found = number.node.expr.xreplace(self.known)
        return int(found) if found.is_number else None

    def run_node(self, node: torch.fx.Node) -> Any:
        real = super().run_node(node)
        for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
            self.known[symbol] = sympy.Integer(int(pytree.key_get(real, path)))
        example = node.meta.get("example_value")
        if isinstance(example, torch.Tensor) and isinstance(real, torch.Tensor):
            sizes = [self.value(size) for size in example.shape]
            assert sizes == list(real.shape), (node, example.shape, real.shape)
            strides = [self.value(stride) for stride in example.stride()]
            if real.numel() != 0:  # of no elements, and along a dimension of one, any stride is right
                for size, wanted, found in zip(sizes, real.stride(), strides, strict=True):
                    assert size == 1 or wanted == found, (node, example.stride(), real.stride())
            self.compared += 1
        return real


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_in_a_run(name: str) -> None:
    compared = 0

    def measured(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        def run(*args: Any) -> Any:
            nonlocal compared
            interpreter = Measured(gm)
            result = interpreter.run(*args)
            compared += interpreter.compared
            return result

        return run

    fn = whole(PROGRAMS[name])
    compiled = alternator.compile(fn, backend=measured, fullgraph=True)
    for counts in COUNTS:
        compare(outcome(compiled, *arguments(*counts)), outcome(fn, *arguments(*counts)))
    assert compared > 10


def test_a_scalar_that_is_read_twice_is_one_symbol() -> None:
    """What the kernels write to on the way is no write of the program."""

    def fn(x: Any, n: Any) -> Any:
        a, b = n
        return torch.zeros(a, 2), torch.arange(a), torch.full((a, b), 2.0), x[a:, 1], torch.ones(a) * torch.zeros(a)

    compiled = alternator.compile(fn, backend="eager", fullgraph=True)
    for numbers in ([3, 4], [2, 5]):
        given = torch.arange(16.0).view(8, 2), torch.tensor(numbers)
        compare(compiled(*given), fn(*given))

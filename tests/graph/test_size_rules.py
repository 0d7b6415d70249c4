"""The sizes of results: a function that returns what an operator computes and its shape, under dynamic=True.

Each row is an expression over x, y, z (tensors) and n, m (sizes of x), and the sizes of the tensors in each call. All
calls are to be answered by one graph, and to agree with eager in values, shapes, types and strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import alternator


def rows(text: str) -> list[str]:
    return [row.strip() for row in text.replace("\n", " ").split(";")]


def tensors_of(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in tensors_of(item)]
    return []


def compiled(text: str, sizes: tuple[str, ...] = ("n", "m")) -> tuple[Callable, Callable, list]:
    """The function, what it compiles to, and a list that grows with each graph."""
    lines = ["def function(x, y=None, z=None):"]
    lines += [
        *(f"    {name} = x.shape[{d}] if x.dim() > {d} else 0" for d, name in enumerate(sizes)),
        f"    result = {text}",
        "    if isinstance(result, torch.Tensor):",
        "        return result, result.shape, result.shape[-1] * 2 if result.dim() else 0",
        "    return result, [r.shape for r in result], len(result)",
    ]
    namespace: dict[str, Any] = {"torch": torch, "F": F}
    exec("\n".join(lines), namespace)
    function = namespace["function"]
    graphs: list[object] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        graphs.append(module)
        return module.forward

    return function, alternator.compile(function, backend=backend, dynamic=True, isolate_recompiles=True), graphs


def compare(function: Callable, fast: Callable, arguments: list[torch.Tensor]) -> None:
    torch.manual_seed(0)
    wanted = function(*[a.clone() for a in arguments])
    torch.manual_seed(0)
    found = fast(*[a.clone() for a in arguments])
    assert type(wanted[0]) is type(found[0])
    assert wanted[1] == found[1]
    assert wanted[2] == found[2]
    assert type(found[2]) is int
    for shape in found[1] if isinstance(found[1], list) else [found[1]]:
        assert type(shape) is torch.Size
        assert all(type(size) is int for size in shape)
    for one, other in zip(tensors_of(wanted[0]), tensors_of(found[0]), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, equal_nan=True)


def example(size: tuple[int, ...], integers: int | None) -> torch.Tensor:
    torch.manual_seed(len(size))
    return torch.randint(0, integers, size) if integers else torch.randn(size)


def check(text: str, calls: list[Any], graphs: int = 1, integers: tuple[str, int] | None = None) -> None:
    """`calls`: in each the sizes of x, or of x, y, z. `integers`: the argument that is of ints below a bound."""
    function, fast, made = compiled(text)
    for sizes in calls:
        all_sizes = sizes if isinstance(sizes, list) else [sizes]
        bounds = [integers[1] if integers and integers[0] == name else None for name in "xyz"]
        compare(function, fast, [example(size, bound) for size, bound in zip(all_sizes, bounds, strict=False)])
    alternator.reset()
    assert len(made) == graphs, text


TWO = [(4, 6), (7, 12), (2, 8), (9, 2)]
THREE = [(4, 6, 8), (7, 12, 16), (2, 8, 4), (9, 2, 12)]
FOUR = [(4, 6, 8, 10), (3, 8, 12, 16), (2, 4, 20, 8)]
PAIRS = [[(4, 6), (4, 6)], [(7, 12), (7, 12)], [(3, 5), (3, 5)]]
ONES = [[(4, 6), (1, 6)], [(7, 12), (1, 12)], [(3, 5), (1, 5)]]

POINTWISE = rows("""
    x + 1; 1 - x; -x; abs(x); x ** 2; 2 ** x; x // 2; x % 3; x > 0; ~(x > 0); (x > 0) & (x < 1); x.relu();
    torch.sigmoid(x); F.gelu(x); F.silu(x); F.softmax(x, -1); x.softmax(dim=0); x.exp().log1p();
    F.dropout(x, 0.5, False) * 2; F.layer_norm(x, (m,)); F.rms_norm(x, (m,)); F.normalize(x); x.cumsum(1); x.flip(0);
    x.roll(1, 0); torch.sort(x)[0]; x.argsort(-1); x.tril(); torch.triu(x, 1); x.double(); x.to(torch.float64);
    x.clone(); x.detach(); x.contiguous() * 2; torch.zeros_like(x); torch.full_like(x, 2); torch.clamp(x, 0, 1);
    x.masked_fill(x > 0, 0.0); torch.where(x > 0, x, 0.0); torch.lerp(x, x + 1, 0.5); torch.maximum(x, x.t().t());
    x.add(1, alpha=2); torch.addcmul(x, x, x); x.data + 1; F.leaky_relu(x, 0.1);
    x.scatter(1, torch.zeros_like(x, dtype=torch.long), 1.0); x.index_fill(0, torch.tensor([1]), 2.0);
    F.mse_loss(x, x + 1, reduction='none'); x.bernoulli(0.5); torch.bernoulli(x.sigmoid())
""")
VIEWS = rows("""
    x.view(-1); x.view(n, m, 1); x.reshape(n * m); x.reshape(-1, 2); x.flatten(); x.view(n, 2, -1);
    torch.unflatten(x, 1, (2, -1)); x.transpose(0, 1); x.t(); x.T; x.mT; x.permute(1, 0); x.permute((1, 0));
    torch.permute(x, (1, 0)); x.movedim(0, 1); x.unsqueeze(0); x[None]; x.unsqueeze(-1); x.swapaxes(0, 1);
    x.squeeze(); x.unsqueeze(0).squeeze(0); x.unsqueeze(1).squeeze(); x.squeeze(0); x.expand(3, n, m);
    x.expand(3, -1, -1); x[:, :1].expand(n, m); x[:1].expand_as(x); x.diagonal(); x.diagonal(1); x.diagonal(-1);
    x.repeat(2, 3); x.repeat(2, 1, 3); x.tile(2); x.tile((2, 1, 1)); x.repeat_interleave(3, 1); x.rot90();
    x.repeat_interleave(2); x.repeat_interleave(m, dim=0); x.ravel(); x.unfold(1, 2, 1); x.unfold(1, 2, 2);
    torch.diag_embed(x); torch.diag_embed(x, 1, 0, 2); x.as_strided((n, 2), (m, 1)); torch.atleast_3d(x);
    x.unflatten(1, (2, -1)); torch.atleast_3d(x[0]); torch.squeeze_copy(x[None]); x.view_as(x + 1);
    torch.broadcast_to(x, (2, n, m)); torch.view_as_real(torch.complex(x, x)); x.flatten(-2)
""")
INDEXING = rows("""
    x[0]; x[-1]; x[:, 0]; x[..., 1]; x[1:]; x[:-1]; x[:, 1:-1]; x[::2]; x[:, ::3]; x[-2:]; x[:2]; x[:100]; x[1:n];
    x[: n // 2]; x[n // 2 :]; x[-100:]; x[100:]; x[None, ..., None]; x[:, None]; x[n - 1]; x[torch.tensor([0, 1])];
    x[:, torch.tensor([0, 1, 0])]; x[torch.tensor([[0, 1], [1, 0]])]; x[[0, 1, 0]];
    x[torch.arange(n), torch.zeros(n, dtype=torch.long)]; x[torch.arange(2)[:, None], torch.arange(2)];
    x[None, torch.tensor([0, 1]), :, None]; x.select(0, 1); x.narrow(1, 1, m - 1); x.narrow(0, 0, 2);
    x.gather(1, torch.zeros(n, 3, dtype=torch.long)); x.index_select(0, torch.tensor([0, 1, 1]));
    x.take(torch.arange(m)); torch.take_along_dim(x, torch.zeros(n, 1, dtype=torch.long), 1); x[(slice(1, None), 0)];
    x[:, 1:m:2]
""")
PARTS = rows("""
    x.chunk(2, 1); x.tensor_split(3); x.tensor_split((1, 2)); x.split((1, n - 1)); x.split([2, m - 2], 1);
    torch.chunk(x, 2, dim=1); x.split(m // 2, dim=1); torch.split(x, n); x.split(n)[0]; x.hsplit(2); torch.max(x, 1);
    x.sort(1); x.topk(2); torch.std_mean(x, 1); torch.var_mean(x, 0, keepdim=True); x.mode(1);
    torch.broadcast_tensors(x, x[:1]); torch.meshgrid(x[0], x[:, 0], indexing='ij'); x.cummax(0); x.kthvalue(1, 1);
    torch.meshgrid(x[0], x[:, 0], indexing='xy'); torch.median(x, 1); torch.aminmax(x, dim=1); x.min(0, True)
""")
REDUCTIONS = rows("""
    x.sum(); x.sum(0); x.sum(1, keepdim=True); x.mean((0, 1)); x.mean(-1); x.amax(1); torch.amin(x, dim=0);
    (x > 0).all(1); (x > 0).any(0); x.argmax(); x.argmax(1); x.argmin(dim=0, keepdim=True); x.std(1); x.prod(0);
    x.var(0, False); x.var(1, correction=0); x.norm(dim=1); torch.norm(x, 2, 1, True); x.logsumexp(0); x.norm();
    torch.linalg.norm(x, dim=1); torch.linalg.vector_norm(x, dim=0); x.nansum(1); x.count_nonzero(0); x.diff();
    torch.fft.fft(x); torch.fft.rfft(x); torch.fft.irfft(x); torch.fft.rfft(x, n=5, dim=0); torch.fft.fft2(x);
    F.pairwise_distance(x, x + 1); F.pairwise_distance(x, x + 1, keepdim=True); torch.polygamma(1, x.abs());
    torch.histc(x, bins=m, max=9); x.histc();
    x.sum(axis=1); x.diff(dim=0); x.sum((0,), dtype=torch.float64); F.cross_entropy(x, torch.arange(n) % 2);
    F.cross_entropy(x, torch.arange(n) % 2, reduction='none'); F.cosine_similarity(x, x); x.std(dim=1, keepdim=True)
""")
PRODUCTS = rows("""
    x @ x.t(); x.mm(x.t()); torch.matmul(x, x[0]); x[:, 0] @ x; x.mv(x[0]); torch.outer(x[0], x[:, 0]);
    x[None].bmm(x.t()[None]); torch.addmm(x @ x.t(), x, x.t()); F.linear(x, x); F.linear(x, x, x[:, 0]);
    torch.einsum('ij,kj->ik', x, x); torch.einsum('ij->ji', x); torch.inner(x, x); x.unsqueeze(0) @ x.t();
    torch.einsum('...i,...i->...', x, x); torch.einsum('i...,ij->...j', x, x); torch.tensordot(x, x, dims=([1], [1]));
    torch.tensordot(x, x.t(), 1); torch.addr(x, x[:, 0], x[0]); torch.addmv(x[:, 0], x, x[0]); F.hardswish(x);
    torch.addbmm(x @ x.t(), x[None], x.t()[None]); torch.linalg.inv(x @ x.t() + torch.eye(n)); x.logcumsumexp(1);
    torch.cdist(x, x[:2]); torch.baddbmm(x[None] @ x.t(), x[None], x.t()[None]); F.glu(x); x.matmul(x.mT);
    F.scaled_dot_product_attention(x[None], x[None], x[None]); torch.bmm(x.t()[None], x[None]); x[0].dot(x[0])
""")
JOINS = rows("""
    torch.cat([x, x]); torch.cat((x, x, x + 1), dim=1); torch.stack([x, x], 1); torch.stack((x, x), dim=-1);
    torch.hstack([x, x]); torch.vstack([x, x]); torch.cat([x, x[:, :1]], -1); torch.cat([x[0], x[:, 0]]);
    torch.column_stack([x[0], x[1]]); torch.dstack([x, x]); torch.column_stack([x, x[:, 0]]);
    torch.cat([x[:1], x[1:]]); torch.hstack([x[0], x[1]]); torch.vstack([x[0], x]); torch.concat([x, x])
""")
FACTORIES = rows("""
    torch.zeros(n, 3); torch.ones((n, m)); torch.empty(m).fill_(0); torch.full((n, 2), 1.5); torch.arange(n);
    torch.arange(1, n); torch.arange(0, m, 2); torch.arange(n, 0, -1); torch.arange(end=n); torch.rand(n, m);
    torch.randn(n); torch.eye(n); torch.eye(n, m); torch.linspace(0, 1, n); torch.linspace(0, 1, steps=m);
    x.new_zeros(n); x.new_ones((m, 2)); x.new_full((n, m), 1.0); torch.randint(0, 5, (n,)); torch.randperm(n);
    torch.randint(5, (n, m)); torch.rand_like(x); torch.arange(n, m + n); F.one_hot(torch.arange(n), 12);
    torch.arange(n)[:, None] < torch.arange(m); F.one_hot(torch.arange(n), n); torch.ones(n, m).tril()
""")
WITH_TWO = [*POINTWISE, *VIEWS, *INDEXING, *PARTS, *REDUCTIONS, *PRODUCTS, *JOINS, *FACTORIES]


@pytest.mark.parametrize("text", WITH_TWO)
def test_of_a_matrix(text: str) -> None:
    check(text, TWO)


@pytest.mark.parametrize(
    "text",
    rows("""
        x.transpose(1, 2); x.flatten(1); x.flatten(0, 1); x.view(n * m, -1); x.movedim((0, 1), (2, 0)); x.mT;
        x[:, 1:, ::2]; x[0, ..., 1:]; x[:, torch.tensor([0, 1])]; x[torch.tensor([0, 1]), :, torch.tensor([1, 0])];
        x.sum((0, 2)); x.mean((-1, -2), keepdim=True); x.permute(2, 0, 1); x.squeeze((0, 1)); x.sum(-1); x @ x.mT;
        x @ x[0].t(); x.bmm(x.mT); torch.einsum('bij,bkj->bik', x, x); x.chunk(2, -1); x.diagonal(0, 1, 2);
        F.group_norm(x.transpose(0, 1)[:2].transpose(0, 1), 2); F.pad(x, (1, 2)); F.pad(x, (1, 0, 2, 3), value=1.0);
        F.pad(x, (-1, 1)); F.max_pool1d(x, 2); F.avg_pool1d(x, 2, 1); F.interpolate(x, scale_factor=2);
        F.adaptive_avg_pool1d(x, 1); F.interpolate(x, size=7);
        F.max_pool1d(x, 2, ceil_mode=False, return_indices=True); x.split([1, m - 1], 1);
        x.reshape(n, m, 2, -1).transpose(1, 2); x.cumsum(-1); x[..., None, :]; x.adjoint();
        F.conv1d(x.transpose(0, 1)[:2].transpose(0, 1), torch.ones(5, 2, 3), padding=1); x.repeat(1, 2, 1);
        F.conv_transpose1d(x.transpose(0, 1)[:2].transpose(0, 1), torch.ones(2, 5, 3), stride=2);
        torch.cat([x, x], 2); F.scaled_dot_product_attention(x, x, x);
        F.scaled_dot_product_attention(x, x[:, :2], x[:, :2]); x.amax((0, 1)); torch.nn.functional.softmax(x, dim=1);
        x.expand(2, -1, -1, -1); F.dropout(x, 0.5, False) + x; x.rot90(1, (1, 2))
    """),
)
def test_of_three_dimensions(text: str) -> None:
    check(text, THREE)


@pytest.mark.parametrize(
    "text",
    rows("""
        F.max_pool2d(x, 2); F.avg_pool2d(x, 3, 2, 1); F.max_pool2d(x, 3, stride=2, padding=1);
        F.avg_pool2d(x, (2, 3)); F.adaptive_avg_pool2d(x, (1, 1)); F.adaptive_avg_pool2d(x, (None, 2));
        F.interpolate(x, scale_factor=2.0); F.interpolate(x, scale_factor=0.5); F.interpolate(x, size=(5, 7));
        F.pixel_shuffle(x[:, :4], 2); F.pixel_unshuffle(x, 2); F.unfold(x, 2);
        F.conv2d(x[:, :2], torch.ones(3, 2, 3, 3), padding=1); F.conv2d(x[:, :2], torch.ones(3, 2, 3, 3), stride=2);
        F.conv2d(x[:, :2], torch.ones(3, 2, 3, 3), padding='same');
        F.conv2d(x[:, :2], torch.ones(4, 1, 3, 3), dilation=2, padding=(2, 1), groups=2);
        F.batch_norm(x[:, :2], None, None, training=True);
        F.conv_transpose2d(x[:, :2], torch.ones(2, 3, 2, 2), stride=2, output_padding=1);
        x.flatten(2).transpose(1, 2); x.permute(0, 2, 3, 1).reshape(n, -1);
        F.conv2d(x[:, :2], torch.ones(3, 2, 3, 3), padding='valid'); x.mean((2, 3));
        F.max_pool2d(x, 2, return_indices=True); F.cross_entropy(x, x.argmax(1), reduction='none')
    """),
)
def test_of_images(text: str) -> None:
    check(text, FOUR)


@pytest.mark.parametrize(
    "text",
    rows("""
    x + y; x * y.t().t(); torch.cat([x, y]); torch.where(x > 0, x, y); x.view_as(y)
"""),
)
def test_of_two_alike(text: str) -> None:
    check(text, PAIRS)


@pytest.mark.parametrize(
    "text",
    rows("""
    x + y; y - x; torch.maximum(x, y); y.expand_as(x); torch.broadcast_tensors(x, y)
"""),
)
def test_broadcasting(text: str) -> None:
    check(text, ONES)


@pytest.mark.parametrize(
    "text",
    rows("""
        torch.linalg.svdvals(x); torch.linalg.svd(x)[0].abs(); torch.linalg.svd(x)[2].abs();
        torch.linalg.svd(x, full_matrices=False)[1]; torch.linalg.svd(x, False)[0].abs(); torch.linalg.matrix_rank(x);
        torch.linalg.qr(x)[0].abs(); torch.linalg.qr(x)[1].abs(); torch.linalg.qr(x, 'complete')[0].abs();
        torch.linalg.qr(x, mode='complete')[1].abs(); torch.linalg.eigvalsh(x @ x.t()); torch.linalg.cond(x);
        torch.linalg.slogdet(x @ x.t() + torch.eye(n)); torch.linalg.inv_ex(x @ x.t() + torch.eye(n))[0];
        torch.linalg.eigh(x @ x.t())[0]; torch.linalg.eigh(x @ x.t(), 'U')[1].abs(); torch.eye(n) + torch.eye(n);
        torch.linalg.cholesky_ex(x @ x.t() + torch.eye(n)); torch.linalg.cholesky_ex(torch.eye(n).expand(2, n, n))[1];
        torch.linalg.solve(x @ x.t() + torch.eye(n), x[:, 0]); torch.linalg.solve(x @ x.t() + torch.eye(n), x);
        torch.linalg.solve(torch.eye(n).expand(2, n, n), x); torch.linalg.solve_triangular(torch.eye(n), x, upper=True);
        torch.linalg.solve_triangular(torch.eye(m), x, upper=False, left=False)
    """),
)
def test_of_matrices(text: str) -> None:
    check(text, [(4, 6), (7, 12), (3, 8)])


def test_one_vector_for_each_matrix() -> None:
    """solve(A, B): whether B is vectors or a matrix is decided by its sizes."""
    text = "torch.linalg.solve(x[:, :1, None] * torch.eye(m) + torch.eye(m), x)"
    check(text, [(4, 6), (7, 12)])
    function, fast, made = compiled("torch.linalg.solve(y, x)")
    for sizes in [(3, 4), (5, 6), (2, 7), (4, 4), (6, 6)]:
        y = torch.eye(sizes[0]).expand(sizes[0], *([sizes[0]] * 2)) if sizes[0] == sizes[1] else torch.eye(sizes[0])
        compare(function, fast, [torch.randn(sizes), y + 0])
    assert len(made) == 2


def test_tensors_of_the_same_size() -> None:
    """x.is_same_size(y) is a condition for each dimension."""
    function, fast, made = compiled("x + 1 if x.is_same_size(y) else x - (2 if torch.is_same_size(y, x) else 3)")
    for one, other in [((4, 6), (4, 6)), ((5, 3), (5, 3)), ((4, 6), (4, 5)), ((7, 2), (7, 3)), ((3, 4), (3, 4))]:
        compare(function, fast, [torch.randn(one), torch.randn(other)])
    assert len(made) == 2
    compare(function, fast, [torch.randn(4, 6), torch.randn(6)])
    assert len(made) == 3


def test_shapes_that_are_compared() -> None:
    """A torch.Size and a tuple, element by element."""
    function, fast, made = compiled("x * (2 if x.shape == (4, 6) else 3 if x.shape[1:] != y.shape[1:] else 4)")
    for one, other in [((4, 6), (4, 6)), ((5, 3), (5, 3)), ((4, 6), (4, 5)), ((7, 2), (8, 3)), ((3, 4), (5, 4))]:
        compare(function, fast, [torch.randn(one), torch.randn(other)])
    assert len(made) == 3
    compare(*compiled("x * (x.shape == [4, 6]) + (x.shape > (3, 9))")[:2], [torch.randn(4, 6)])


def test_dimensions_that_are_arguments() -> None:
    def function(x: torch.Tensor, d: int, k: int) -> Any:
        results = [x.sum(d), x.transpose(d, 0), x.unsqueeze(d), x.chunk(2, d)[0], x.softmax(d), x.narrow(d, 0, k)]
        return results, [r.shape for r in results]

    made: list[object] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        made.append(module)
        return module.forward

    fast = alternator.compile(function, backend=backend, dynamic=True, isolate_recompiles=True)
    for sizes, d, k in (((4, 6), 1, 2), ((6, 8), 1, 3), ((7, 4), 1, 2), ((7, 4), 0, 2), ((8, 6), -1, 4)):
        x = torch.randn(sizes)
        assert function(x, d, k)[1] == fast(x, d, k)[1]
    alternator.reset()
    assert len(made) == 3


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_recurrent_layers(name: str) -> None:
    layer = getattr(torch.nn, name.upper())(3, 5, 2, bidirectional=True)
    weights = [weight.detach() for weight in layer._flat_weights]
    made: list[object] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        made.append(module)
        return module.forward

    def function(x: torch.Tensor) -> Any:
        h = torch.zeros(4, x.shape[1], 5)
        state = (h, h) if name == "lstm" else h
        results = getattr(torch, name)(x, state, weights, True, 2, 0.0, False, True, False)
        return results, [r.shape for r in results]

    fast = alternator.compile(function, backend=backend, dynamic=True, isolate_recompiles=True)
    for sizes in ((4, 6, 3), (7, 2, 3), (3, 9, 3)):
        x = torch.randn(sizes)
        wanted, found = function(x), fast(x)
        assert wanted[1] == found[1]
        torch.testing.assert_close(wanted[0], found[0])
    alternator.reset()
    assert len(made) == 1


@pytest.mark.parametrize("text", rows("x; x + 1; (x * x).relu().view(-1); x[:, :k]; x.t(); x[:, :k] + 1; x[::2]"))
def test_contiguous(text: str) -> None:
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, k):\n    y = {text}\n    z = y.contiguous()\n    return z, y.is_contiguous(), z is y", namespace)
    f = namespace["f"]
    made: list[object] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        made.append(module)
        return module.forward

    fast = alternator.compile(f, backend=backend, dynamic=True, isolate_recompiles=True)
    for rows, columns, k in ((4, 6, 6), (7, 5, 4), (7, 5, 5), (3, 8, 1), (2, 2, 2)):
        x = torch.randn(rows, columns)
        wanted, found = f(x, k), fast(x, k)
        assert wanted[1:] == found[1:]
        assert wanted[0].stride() == found[0].stride()
        torch.testing.assert_close(wanted[0], found[0])
    alternator.reset()
    if text in ("x + 1", "(x * x).relu().view(-1)"):
        assert len(made) == 1


@pytest.mark.parametrize(
    ("text", "graphs"),
    [
        ("F.scaled_dot_product_attention(q, k, v).transpose(1, 2)", 1),
        ("(q @ k.mT).softmax(-1).matmul(v).transpose(1, 2) * 2", 1),
        ("F.scaled_dot_product_attention(q.mT.contiguous().mT, k, v).transpose(1, 2)", 1),
        ("k[:, :, :2]", 4),
        ("k[:, :, :1].transpose(1, 2)", 4),
    ],
)
def test_layouts_that_do_not_vary(text: str, graphs: int) -> None:
    """A result of constant sizes is contiguous for all sizes of what it was computed from, unless it is a part of that."""
    namespace: dict[str, Any] = {"torch": torch, "F": F}
    exec(f"def f(q, k, v):\n    y = {text}\n    z = y.contiguous()\n    return z, y.is_contiguous(), z is y", namespace)
    f = namespace["f"]
    made: list[object] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        made.append(module)
        return module.forward

    fast = alternator.compile(f, backend=backend, isolate_recompiles=True)
    q = torch.randn(2, 4, 1, 8)
    for rows in (7, 8, 9, 12):
        k, v = torch.randn(2, 4, rows, 8), torch.randn(2, 4, rows, 8)
        wanted, found = f(q, k, v), fast(q, k, v)
        assert wanted[1:] == found[1:]
        assert wanted[0].stride() == found[0].stride()
        torch.testing.assert_close(wanted[0], found[0])
    alternator.reset()
    assert len(made) <= graphs + 1  # the first is for constant sizes


def test_views_or_copies() -> None:
    """Whether a reshape copies follows from the layout, not from the sizes."""

    def unwritten(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x.reshape(-1)
        y.add_(1)
        return z * 2, z.shape

    def written(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x.t().reshape(-1)
        z.add_(1)
        return z * 2, x * 1

    for function, graphs in ((unwritten, 1), (written, 1)):
        made: list[object] = []

        def backend(module: torch.fx.GraphModule, inputs: list[Any], made: list[object] = made) -> Callable:
            made.append(module)
            return module.forward

        fast = alternator.compile(function, backend=backend, dynamic=True, isolate_recompiles=True)
        for rows in (4, 6, 7):
            x, y = torch.randn(rows, 3), torch.randn(2)
            wanted, found = function(x.clone(), y.clone()), fast(x.clone(), y.clone())
            torch.testing.assert_close(wanted[0], found[0])
        alternator.reset()
        assert len(made) == graphs


def test_of_ints() -> None:
    check("F.embedding(x, torch.ones(5, 3))", [(4, 6), (3, 7), (2, 9)], integers=("x", 5))
    check("F.embedding(x, y)", [[(4, 6), (5, 3)], [(3, 7), (6, 2)], [(2, 9), (8, 4)]], integers=("x", 5))
    check("F.one_hot(x, 5)", [(4, 6), (3, 7), (2, 9)], integers=("x", 5))
    check("torch.ones(5, 3)[x]", [(4, 6), (3, 7), (2, 9)], integers=("x", 5))


def test_sizes_that_are_equal_in_one_call_only() -> None:
    check("x + y", [[(4, 5), (4, 5)], [(4, 5), (1, 5)], [(6, 5), (6, 1)], [(7, 5), (1, 5)], [(8, 2), (8, 2)]], graphs=3)
    check("x.t() + 0", [(4, 4), (4, 5), (6, 6), (3, 7)], graphs=2)


def test_slices_with_bounds_of_any_sign() -> None:
    # One graph for each sign.
    function = "def f(x, k):\n    y = x[k:]\n    return y, y.shape, len(y)"
    namespace: dict[str, Any] = {}
    exec(function, namespace)
    f = namespace["f"]
    fast = alternator.compile(f, backend="eager", dynamic=True, isolate_recompiles=True)
    for n in (4, 7):
        for k in (2, 3, 20, -1, -2, -20, 0, 1):
            x = torch.randn(n, 3)
            assert [str(r) for r in f(x, k)] == [str(r) for r in fast(x, k)]
    alternator.reset()


def test_minus_one_that_is_an_argument() -> None:
    # x.view(k, 3) is another function for k == -1.
    def view(x: torch.Tensor, k: int) -> Any:
        y = x.view(k, 3)
        return y, y.shape

    def expand(x: torch.Tensor, k: int) -> Any:
        y = x.expand(k, 3)
        return y, y.shape

    for function in (view, expand):
        fast = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
        for n, k in ((4, 4), (5, -1), (6, 6), (3, -1)):
            x = torch.randn(n, 3)
            assert function(x, k)[1] == fast(x, k)[1]
    alternator.reset()


SQUEEZED = rows("""
    x[:, k:].squeeze(); x[:, k:].squeeze(1); torch.squeeze(x[:, k:], 1); torch.squeeze(dim=1, input=x[:, k:]);
    torch.squeeze(x[:, k:], (0, 1))
""")


@pytest.mark.parametrize("text", SQUEEZED)
def test_a_size_that_becomes_one(text: str) -> None:
    """The rank of the result is part of the trace, though nothing reads its shape."""
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, k):\n    y = {text}\n    return y * 2 if y.dim() == 2 else y + 100", namespace)
    f = namespace["f"]
    fast = alternator.compile(f, backend="eager", dynamic=True, isolate_recompiles=True)
    for width, k in ((6, 2), (6, 5), (7, 3), (5, 4), (4, 2), (2, 1)):
        x = torch.randn(3, width)
        torch.testing.assert_close(f(x, k), fast(x, k))
    alternator.reset()


@pytest.mark.parametrize(
    "text",
    rows("""
    x.split(2); x.chunk(3); torch.chunk(x, 4); x.unbind(); x.tensor_split(2); torch.split(x, k); list(x)
"""),
)
def test_the_number_of_parts(text: str) -> None:
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, k):\n    parts = {text}\n    return len(parts), parts[-1].shape, [p * 2 for p in parts]", namespace)
    f = namespace["f"]
    fast = alternator.compile(f, backend="eager", dynamic=True, isolate_recompiles=True)
    for rows in (4, 5, 6, 7, 9, 2, 3, 8):
        x = torch.randn(rows, 3)
        wanted, found = f(x, 3), fast(x, 3)
        assert wanted[:2] == found[:2]
        torch.testing.assert_close(wanted[2], found[2])
    alternator.reset()


def test_ranks_that_depend_on_sizes() -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> Any:
        x = torch.linalg.solve(a, b)
        return x, x.dim()

    def cov(a: torch.Tensor, k: int) -> Any:
        c = torch.cov(a[k:])
        return c + 1, c.dim()

    fast = alternator.compile(solve, backend="eager", dynamic=True, isolate_recompiles=True)
    for batch, rows, columns in ((3, 3, 3), (4, 3, 3), (5, 5, 5), (2, 4, 4), (4, 4, 4)):
        a, b = torch.eye(rows).expand(batch, rows, rows).contiguous() * 2, torch.randn(rows, columns)
        wanted, found = solve(a, b), fast(a, b)
        assert wanted[1] == found[1]
        torch.testing.assert_close(wanted[0], found[0])
    fast = alternator.compile(cov, backend="eager", dynamic=True, isolate_recompiles=True)
    for rows, k in ((5, 2), (5, 4), (6, 2), (3, 2)):
        a = torch.randn(rows, 7)
        assert cov(a, k)[1] == fast(a, k)[1]
    alternator.reset()


def test_operators_by_name() -> None:
    def function(x: torch.Tensor, k: int) -> Any:
        y = torch.ops.aten.squeeze.default(x[k:])
        z = torch.ops.aten.relu(x)
        return y + 1, y.dim(), z

    fast = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
    for rows, k in ((5, 2), (5, 4), (6, 2), (3, 2)):
        x = torch.randn(rows, 3)
        wanted, found = function(x, k), fast(x, k)
        assert wanted[1] == found[1]
        torch.testing.assert_close(wanted[0], found[0])
    alternator.reset()


def test_metadata_that_is_replaced() -> None:
    def replaced(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x + 1
        z.data = y
        return z.shape, z * 2

    def transposed(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x + 1
        z.t_()
        return z.shape, z * 2

    def resized(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = torch.empty(0)
        torch.add(x, 1, out=z)
        return z.shape, z * 2

    for function in (replaced, transposed, resized):
        fast = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
        for n, m in ((4, 4), (3, 5), (5, 3), (6, 6)):
            x, y = torch.randn(n, m), torch.randn(m, n)
            wanted, found = function(x, y), fast(x, y)
            assert wanted[0] == found[0]
            torch.testing.assert_close(wanted[1], found[1])
        alternator.reset()


def test_in_place_methods_keep_sizes() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        y += 1
        y.mul_(2).clamp_(0)
        y[0] = 5
        return y, y.shape[0] + y.shape[1]

    made: list[object] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        made.append(module)
        return module.forward

    fast = alternator.compile(function, backend=backend, dynamic=True, isolate_recompiles=True)
    for sizes in TWO:
        x = torch.randn(sizes)
        wanted, found = function(x), fast(x)
        assert wanted[1] == found[1]
        torch.testing.assert_close(wanted[0], found[0])
    alternator.reset()
    assert len(made) == 1


def test_a_long_chain_of_calls() -> None:
    def function(x: torch.Tensor) -> Any:
        for _ in range(4000):
            x = x + 1
        return x, x.shape

    fast = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
    for rows in (4, 5):
        x = torch.zeros(rows, 2)
        wanted, found = function(x), fast(x)
        assert wanted[1] == found[1]
        torch.testing.assert_close(wanted[0], found[0])
    alternator.reset()

"""Strides, storage offsets, and what depends on them, of inputs whose sizes and strides differ from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import alternator

SIZES = (4, 5, 7, 2, 6, 1, 4, 8)


def numbered(*sizes: int) -> torch.Tensor:
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


LAYOUTS: dict[str, Callable[[int], torch.Tensor]] = {
    "dense": lambda n: numbered(n, 3),
    "transposed": lambda n: numbered(3, n).t(),
    "both sizes": lambda n: numbered(n, n + 1),
    "some columns": lambda n: numbered(n, 6)[:, 1:4],
    "all but a column": lambda n: numbered(4, n + 1)[:, 1:],
    "columns of wider rows": lambda n: numbered(4, n + 3)[:, :3],
    "at an offset": lambda n: numbered(12, 3)[n:],
    "every second row": lambda n: numbered(2 * n, 3)[::2],
    "a row for all": lambda n: numbered(1, 3).expand(n, 3),
    "a column for all": lambda n: numbered(n, 1).expand(n, 3),
    "windows": lambda n: numbered(n + 3).unfold(0, 3, 1),
    "three dimensions": lambda n: numbered(2, n, 3).transpose(0, 1),
    "a part of three": lambda n: numbered(3, n, 4)[:, :, 1:],
    "with a one": lambda n: numbered(n, 1, 3),
    "channels last": lambda n: numbered(2, n, 4, 4).to(memory_format=torch.channels_last),
    "empty": lambda n: numbered(n, 0),
}
OVERLAP = {"a row for all", "a column for all", "windows"}


def strides(x: torch.Tensor) -> Any:
    last = x.transpose(0, -1)
    return (
        x.stride(),
        x.stride(0),
        x.stride(-1),
        last.stride(),
        x[1:].stride(),
        x[:, ::2].stride(),
        x.unsqueeze(1).stride(),
    )


def offsets(x: torch.Tensor) -> Any:
    return x.storage_offset(), x[1:].storage_offset(), x[..., -1].storage_offset(), x * x.storage_offset()


def contiguity(x: torch.Tensor) -> Any:
    same = x.contiguous()
    last = x.is_contiguous(memory_format=torch.channels_last)
    return x.is_contiguous(), x.transpose(0, -1).is_contiguous(), last, same is x, same.stride(), same + 1


def orders(x: torch.Tensor) -> Any:
    return x.dim_order(), x.transpose(0, -1).dim_order(), x + 1


def parts(x: torch.Tensor) -> Any:
    first, *_ = x.split(2, -1)
    return (
        first.stride(),
        x.unbind(-1)[0].stride() if x.shape[-1] else 0,
        x.detach().stride(),
        x[None].stride(),
        x.mT.stride(),
    )


def reshaped(x: torch.Tensor) -> Any:
    y = x.reshape(-1)
    z = x.reshape(x.shape[0], -1) if x.numel() else x
    return y.stride(), z.stride(), y.is_contiguous(), y * 2


def expanded(x: torch.Tensor) -> Any:
    y = x.expand(2, *x.shape)
    return y.stride(), y.sum(0).stride(), y.is_contiguous(), x[:, None].expand(-1, 2, *x.shape[1:]).stride()


READERS = [strides, offsets, contiguity, orders, parts, reshaped, expanded]


def reshape_and_write(x: torch.Tensor) -> Any:
    y = x.reshape(-1)
    y.add_(1)
    return y


def flatten_and_write(x: torch.Tensor) -> Any:
    y = x.flatten()
    x.mul_(2)
    return y


def rows_and_write(x: torch.Tensor) -> Any:
    y = x.transpose(0, 1).reshape(x.shape[1], -1)
    y.add_(1)
    return y.sum(), x * 1


def contiguous_and_write(x: torch.Tensor) -> Any:
    y = x.transpose(0, -1).contiguous()
    y.add_(1)
    return y.sum()


WRITERS = [reshape_and_write, flatten_and_write, rows_and_write, contiguous_and_write]


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.storage_offset(), value.tolist()
    if isinstance(value, (tuple, list)):
        return [shown(item) for item in value]
    return type(value), value


def same_as_eager(function: Callable, make: Callable[[int], torch.Tensor], **options: Any) -> int:
    """The number of graphs for all calls."""
    alternator.reset()
    compiled = alternator.compile(function, isolate_recompiles=True, **options)
    for size in SIZES:
        outcomes = []
        for run in (function, compiled):
            x = make(size)
            try:
                result = run(x)
            except (RuntimeError, IndexError) as error:
                outcomes.append(type(error))
                continue
            outcomes.append((shown(result), shown(x), shown(x._base) if x._base is not None else None))
        assert outcomes[0] == outcomes[1], f"{size}: {outcomes[0]}\n{outcomes[1]}"
    return alternator.counters()["graphs"]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", READERS)
def test_what_is_read(function: Callable, layout: str, dynamic: bool | None) -> None:
    graphs = same_as_eager(function, LAYOUTS[layout], backend="eager", dynamic=dynamic)
    if function in (strides, contiguity) and layout not in ("empty", "three dimensions", "channels last"):
        assert graphs <= 4


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one not in OVERLAP])
@pytest.mark.parametrize("function", WRITERS)
def test_what_is_written(function: Callable, layout: str, dynamic: bool | None) -> None:
    same_as_eager(function, LAYOUTS[layout], backend="eager", dynamic=dynamic)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [strides, contiguity, reshaped])
def test_through_aot_autograd(function: Callable, layout: str) -> None:
    same_as_eager(function, LAYOUTS[layout], backend="aot_eager")


@pytest.mark.parametrize("function", [reshape_and_write, rows_and_write])
@pytest.mark.parametrize("layout", ["dense", "transposed", "columns of wider rows", "three dimensions"])
def test_written_through_aot_autograd(function: Callable, layout: str) -> None:
    same_as_eager(function, LAYOUTS[layout], backend="aot_eager")


def test_layouts_that_take_turns() -> None:
    """One entry for each class of layouts, whatever the sizes."""

    def function(x: torch.Tensor) -> Any:
        y = x.reshape(-1)
        y.add_(1)
        return x.stride(), x.is_contiguous(), y.shape

    alternator.reset()
    compiled = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
    for size in (4, 5, 6, 7):
        for layout in ("dense", "transposed", "columns of wider rows"):
            one, other = LAYOUTS[layout](size), LAYOUTS[layout](size)
            assert compiled(one) == function(other)
            assert torch.equal(one, other)
    assert alternator.counters()["graphs"] <= 4


def test_a_stride_becomes_that_of_a_dense_tensor() -> None:
    """A symbol for a stride says nothing of other strides."""

    def function(x: torch.Tensor) -> Any:
        y = x.reshape(-1)
        y.add_(1)
        return x.is_contiguous(), y * 1

    alternator.reset()
    compiled = alternator.compile(function, backend="eager", isolate_recompiles=True)
    for width in (6, 7, 8, 3, 9, 3):
        one, other = numbered(4, width)[:, :3], numbered(4, width)[:, :3]
        assert shown(compiled(one)) == shown(function(other))
        assert torch.equal(one, other)
    assert alternator.counters()["graphs"] <= 3


@pytest.mark.parametrize("name", ["t_", "transpose_", "squeeze_", "unsqueeze_"])
def test_in_place(name: str) -> None:
    """What was computed before keeps its sizes, also where all sizes are equal in the traced call."""

    def function(x: torch.Tensor) -> Any:
        before, rows = x.sum(0), x * 2
        getattr(x, name)(*{"t_": (), "transpose_": (0, -1), "squeeze_": (), "unsqueeze_": (1,)}[name])
        return before.shape, rows.shape, x.shape, x.stride(), (x * 2).shape, rows.stride()

    alternator.reset()
    compiled = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
    for sizes in ((5, 5), (5, 6), (7, 4), (6, 6), (1, 4), (4, 1)):
        one, other = numbered(*sizes), numbered(*sizes)
        assert shown(compiled(one)) == shown(function(other))
        assert shown(one) == shown(other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("writes", [False, True])
def test_inputs_that_share_memory(writes: bool, backend: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        if writes:
            x.mul_(2)
        return x + y, x.sum() * x.shape[0]

    alternator.reset()
    compiled = alternator.compile(function, backend=backend, isolate_recompiles=True)
    for size, offset in ((4, 1), (5, 1), (6, 2), (7, 7), (8, 0), (9, 1)):
        pairs = []
        for _ in range(2):
            base = numbered(2 * size)
            pairs.append((base, base[:size], base[offset : offset + size]))
        assert shown(compiled(*pairs[0][1:])) == shown(function(*pairs[1][1:]))
        assert torch.equal(pairs[0][0], pairs[1][0])
        apart = [numbered(size), numbered(size)], [numbered(size), numbered(size)]
        assert shown(compiled(*apart[0])) == shown(function(*apart[1]))
    if backend == "eager":
        assert alternator.counters()["graphs"] <= 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_leaves_that_are_views(backend: str) -> None:
    def function(x: torch.Tensor) -> Any:
        y = x.reshape(-1)[1:]
        return (y * x.shape[0]).sin().sum(), x.t()[0]

    alternator.reset()
    compiled = alternator.compile(function, backend=backend, isolate_recompiles=True)
    for size in (4, 5, 7, 1, 2):
        leaves = [numbered(size + 1, 3)[1:].requires_grad_() for _ in range(2)]
        for run, x in zip((function, compiled), leaves, strict=True):
            one, other = run(x)
            (one + other.sum()).backward()
        assert torch.allclose(leaves[0].grad, leaves[1].grad)
        assert leaves[0].grad.stride() == leaves[1].grad.stride()
    assert alternator.counters()["graphs"] <= 3


def test_writes_to_leaves_that_are_views() -> None:
    def function(x: torch.Tensor) -> Any:
        with torch.no_grad():
            x.mul_(2)
        return (x * 2).sum()

    alternator.reset()
    compiled = alternator.compile(function, backend="eager", isolate_recompiles=True)
    for size in (4, 5, 7):
        bases = [numbered(size + 1, 3) for _ in range(2)]
        for run, base in zip((function, compiled), bases, strict=True):
            run(base[1:].requires_grad_()).backward()
        assert torch.equal(*bases)
    assert alternator.counters()["graphs"] == 2


def test_ranks_that_differ() -> None:
    alternator.reset()
    compiled = alternator.compile(lambda x: x.sum(-1), backend="eager", isolate_recompiles=True)
    for sizes in ((4,), (4, 3), (5, 3), (6, 2), (2, 5, 3), (3, 5, 4)):
        x = numbered(*sizes)
        assert torch.equal(compiled(x), x.sum(-1))
    assert alternator.counters()["graphs"] == 3


def test_views_of_other_types() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.view(torch.int32) + 1, x.view(torch.int16).shape, x.view(dtype=torch.float64).shape

    alternator.reset()
    compiled = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
    for sizes in ((4, 6), (5, 8), (6, 2), (3, 4)):
        x = numbered(*sizes)
        assert shown(compiled(x)) == shown(function(x))
    assert alternator.counters()["graphs"] == 1


# ---- parts whose sizes are numbers of the call: 0 and 1 among them, where strides and contiguity mean something else ----

CUT = """
    x[..., :n]; x[:n]; x[n:]; x[::n] if n else x; x.narrow(-1, 0, n); x[:n].mT; x.transpose(0, -1)[:n]; x.mT[..., :n];
    x[..., :n].contiguous(); x[:n] + 1; x.mT[..., :n] + 1; x[..., :n] + x[..., :1]; x.mT[..., :n].clone();
    x[..., :n].reshape(-1); x[..., :n].unsqueeze(1); x[..., :n].squeeze(); x[:1].expand(n, *x.shape[1:]);
    x[..., :n] @ x[..., :n].mT; torch.zeros(3, n); torch.arange(n)[:, None].expand(n, n); torch.full((n, 2), 1.0).t();
    torch.cat([x[..., :n], x[..., :n]], -1); torch.nn.functional.pad(x, (0, n)); x[..., :n].sort(0).values;
    x.mT[..., :n].max(0).values; x[..., :n].masked_fill(x[..., :n] > 1, 0.0); x[..., :n].roll(1, 0);
    x[..., :n].to(memory_format=torch.channels_last) if x.ndim == 4 else x[..., :n]; x.unfold(-1, n, 1);
    x[..., :n].chunk(2, -1)[0]; x[..., :n].unbind(0)[0]; x[..., torch.arange(n)]; x[..., :n].view(*x.shape[:-1], n, 1)
"""
ASKED = {
    "is_contiguous": lambda y: (y.is_contiguous(), (y * 1).is_contiguous()),
    "is_channels_last": lambda y: y.is_contiguous(memory_format=torch.channels_last),
    "strides": lambda y: tuple(stride for stride, size in zip(y.stride(), y.shape, strict=True) if size > 1),
    "identity": lambda y: y.contiguous() is y,
    "id": lambda y: id(y.contiguous()) == id(y),
    "format": lambda y: (
        y.to(memory_format=torch.channels_last) is y if y.ndim == 4 else None,
        y.contiguous(memory_format=torch.channels_last) is y if y.ndim == 4 else None,
    ),
}
BASES: dict[str, Callable[[], torch.Tensor]] = {
    "dense": lambda: numbered(4, 6),
    "transposed": lambda: numbered(6, 4).t(),
    "channels last": lambda: numbered(2, 3, 4, 6).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("order", [(4, 3, 0, 1, 6), (1, 3, 0, 4)])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("base", BASES)
def test_parts_of_a_given_size(base: str, asked: str, order: tuple[int, ...]) -> None:
    for text in CUT.split(";"):
        part = eval(f"lambda x, n: {text.strip()}")

        def function(x: torch.Tensor, n: int, part: Callable = part) -> Any:
            return ASKED[asked](part(x, n))

        alternator.reset()
        compiled = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
        for n in order:
            try:
                wanted = function(BASES[base](), n)
            except RuntimeError as error:
                with pytest.raises(type(error)):
                    compiled(BASES[base](), n)
            else:
                assert compiled(BASES[base](), n) == wanted, (text.strip(), n)


def test_writes_to_what_may_be_the_argument() -> None:
    def function(x: torch.Tensor, n: int) -> Any:
        y = x[..., :n].to(memory_format=torch.channels_last)
        y.add_(1)
        return y * 2, x * 1

    def images() -> torch.Tensor:
        return numbered(2, 3, 4, 6).to(memory_format=torch.channels_last)

    for backend in ("eager", "aot_eager"):
        for order in ((4, 6, 5, 1), (6, 4, 1)):
            alternator.reset()
            compiled = alternator.compile(function, backend=backend, dynamic=True, isolate_recompiles=True)
            for n in order:
                x, y = images(), images()
                wanted, found = function(x, n), compiled(y, n)
                assert shown((wanted, x)) == shown((found, y)), (backend, n)

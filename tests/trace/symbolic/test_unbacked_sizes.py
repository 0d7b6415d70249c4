"""Tensors whose size only their data gives, as a part of the graph: x[mask], nonzero, unique."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import REGISTRY, Run, T, add_row, check, program
from trace_support import in_child

import alternator


def V(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def masked(x: torch.Tensor) -> Any:
    return x[x > 0], x[x > 0].sum(), x[x > 5] * 2


# Nothing is assumed of two masks; of one mask that is used twice, that it selects as many.
def one_mask(x: torch.Tensor) -> Any:
    mask = x > 0
    return x[mask] * x.cos()[mask], (x[mask] - 1).pow(2).sum() / mask.sum()


def a_mask_that_is_written(x: torch.Tensor) -> Any:
    mask = x > 0
    before = x[mask]
    mask[0] = True
    return before, x[mask], before.shape[0] + x[mask].shape[0]


def selected(x: torch.Tensor) -> Any:
    rows = torch.nonzero(x > 0)
    return rows, torch.where(x > 0)[0], torch.masked_select(x, x < 0), x.nonzero(as_tuple=True)[0] + 1


def unique(x: torch.Tensor) -> Any:
    values, counts = torch.unique(x.round(), return_counts=True)
    return values, counts, values * 2


def sizes(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y.shape, y.shape[0] * 2, y.numel(), len(y), y.new_zeros(y.shape) + y.size(0), y.dim(), y.unsqueeze(0).shape


def written(x: torch.Tensor) -> Any:
    y = x[x > 0]
    y.mul_(2)
    x[x > 0] = 0.0
    return y, y + 1


def as_indices(x: torch.Tensor) -> Any:
    rows = torch.stack([x, x + 1], 1)
    edges = torch.nonzero(x > 0).t()
    chosen = edges[0, :]
    return rows[chosen, :], rows[chosen, 1:]


def joined(x: torch.Tensor) -> Any:
    return torch.cat([x[x > 0], x[x < 0]]), torch.stack([x[x > 0], x[x > 0]]).sum(0)


ROWS = {
    row.__name__: row
    for row in (masked, one_mask, a_mask_that_is_written, selected, unique, sizes, written, joined, as_indices)
}  # fmt: skip
VALUES = (
    (1.0, -2.0, 3.0, 0.5),
    (1.0, 2.0, 3.0, 4.0),
    (-1.0, 6.0, -3.0, -4.0),
    (0.0, 0.0, 5.0, 5.0),
    (-1.0, -2.0, -3.0, -4.0),
)


def script_of(function: Callable[..., Any]) -> Callable[[Run], None]:
    def script(t: Run) -> None:
        alternator.config.capture_dynamic_output_shape_ops = True
        f = t.compile(function)
        f(V(*VALUES[0]))
        for values in VALUES[1:]:
            f.hit(V(*values))
        f(T(3))

    return script


@pytest.mark.parametrize(
    "name", [add_row(__name__, "test_captured", row, script_of(f), graphs=2) for row, f in ROWS.items()]
)
def test_captured(name: str) -> None:
    check(REGISTRY[name])


@pytest.mark.parametrize(
    ("backend", "row"), [*(("aot_eager", row) for row in ROWS), ("inductor", "one_mask"), ("inductor", "selected")]
)
def test_backends(backend: str, row: str) -> None:
    compiled = alternator.compile(ROWS[row], backend=backend, fullgraph=True)
    for values in VALUES[:4]:
        torch.testing.assert_close(compiled(V(*values)), ROWS[row](V(*values)), check_stride=False)


@in_child
def test_gradients(front: Any) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        mask = x > 0
        return (x[mask] * x.sin()[mask]).sum()

    for backend in ("eager", "aot_eager"):
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        for values in VALUES[:3]:
            x, y = V(*values).requires_grad_(), V(*values).requires_grad_()
            fn(x).backward()
            compiled(y).backward()
            torch.testing.assert_close(x.grad, y.grad)


@program(one_graph=False)
def test_without_the_setting(t: Run) -> None:
    f = t.compile(lambda x: (x + 1)[x > 0] * 2)
    f(V(1.0, -1.0))
    f(V(1.0, 1.0))


def test_a_size_decides() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x[x > 0]
        return y + 1 if len(y) > 2 else y - 1

    with pytest.raises(alternator.exc.Unsupported, match="an unbacked symbol"):
        alternator.compile(fn, backend="eager", fullgraph=True)(V(*VALUES[0]))
    compiled = alternator.compile(fn, backend="eager")
    for values in VALUES:
        assert torch.equal(compiled(V(*values)), fn(V(*values)))


def test_a_list_of_unknown_length() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x[x > 0].tolist(), x * 2

    with pytest.raises(alternator.exc.Unsupported, match="the result is the data of a tensor"):
        alternator.compile(fn, backend="eager", fullgraph=True)(V(*VALUES[0]))


def checked(x: torch.Tensor, n: torch.Tensor) -> Any:
    k, m = n.tolist()
    torch._check(k > 0)
    torch._check(k * 2 <= 8, lambda: "too many")
    known = 1 if k > 0 else 2
    return x[:k] * known, isinstance(k > 2, bool), type(k > 2) is bool, k > m, [k == m, k < m]


def check_script(t: Run) -> None:
    alternator.config.capture_scalar_outputs = True
    f = t.compile(checked)
    f(T(8), torch.tensor([3, 5]))
    f.hit(T(8), torch.tensor([1, 1]))
    f.hit(T(8), torch.tensor([4, 2]))


@pytest.mark.parametrize("name", [add_row(__name__, "test_checks", "checked", check_script, graphs=1)])
def test_checks(name: str) -> None:
    check(REGISTRY[name])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_checks_are_made_by_every_run(backend: str) -> None:
    compiled = alternator.compile(checked, backend=backend, fullgraph=True)
    for value in ([3, 5], [4, 4]):
        torch.testing.assert_close(compiled(T(8), torch.tensor(value)), checked(T(8), torch.tensor(value)))
    for value in ([0, 1], [5, 1]):
        with pytest.raises(RuntimeError):
            compiled(T(8), torch.tensor(value))


@program(one_graph=False)
def test_a_truth_value_that_is_looked_at(t: Run) -> None:
    alternator.config.capture_scalar_outputs = True

    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        large = k > 2
        y = x * 2
        if large:
            y = y + 1
        return y, large, not large, [large], large and k, int(large) + 1, large & True, f"{large}"

    f = t.compile(fn)
    for value in (1, 3, 2, 7):
        f(T(2), torch.tensor(value))


def written_past_the_version(x: torch.Tensor, n: torch.Tensor) -> Any:
    mask = x > 0
    a, first = x[mask], n.item()
    mask.data[0] = True
    n.data.add_(1)
    b, second = x[mask], n.item()
    return a.shape[0] - b.shape[0], second - first, a, b


def other_writes_between(x: torch.Tensor, n: torch.Tensor) -> Any:
    mask, y = x > 0, x.clone()
    a, first = x[mask], n.item()
    y.add_(1)
    return a * y[mask], first + n.item(), y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [written_past_the_version, other_writes_between])
def test_read_again_after_a_write(backend: str, fn: Callable[..., Any]) -> None:
    compiled = alternator.compile(fn, backend=backend, fullgraph=True)
    for values in ((-1.0, 2.0, 3.0), (-1.0, -2.0, 3.0)):
        torch.testing.assert_close(compiled(V(*values), torch.tensor(3)), fn(V(*values), torch.tensor(3)))

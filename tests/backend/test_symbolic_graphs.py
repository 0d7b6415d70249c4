"""Compiled functions with symbolic sizes and numbers: compiled code is used at other sizes only where its compiler's guards hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from symbolic_requests import all_events

import alternator

backends = pytest.mark.parametrize("backend", ["aot_eager", "inductor"])


def double(*size: int, requires_grad: bool = False) -> torch.Tensor:
    made = torch.arange(1, 1 + torch.Size(size).numel(), dtype=torch.float64).reshape(size) / 7
    return made.requires_grad_(requires_grad)


def compiles(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], backend: Any, **options: Any) -> int:
    """How many graphs were compiled. Each call does what eager does."""
    compiled = alternator.compile(function, backend=backend, **options)
    with all_events() as seen:
        for arguments in calls:
            found, expected = outcome(compiled, arguments), outcome(function, arguments)
            if isinstance(expected, str):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected, equal_nan=True)
    return sum(event.kind == "compiled" for event in seen)


def outcome(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Results, gradients and strides; the type of an error."""
    given = [
        value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value in arguments
    ]
    try:
        results = call(*given)
    except Exception as error:
        return type(error).__name__
    results = results if isinstance(results, tuple) else (results,)
    wanted = [value for value in given if isinstance(value, torch.Tensor) and value.requires_grad]
    outputs = [value.sum() for value in results if isinstance(value, torch.Tensor) and value.requires_grad]
    gradients = torch.autograd.grad(sum(outputs), wanted) if wanted and outputs else ()
    strides = [value.stride() for value in results if isinstance(value, torch.Tensor)]
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in results], gradients, strides


def affine(x: Any, w: Any) -> Any:
    return torch.tanh(x @ w) * 2


@backends
@pytest.mark.parametrize("learns", [False, True])
def test_one_graph_for_all_sizes(backend: str, learns: bool) -> None:
    calls = [(double(n, 3, requires_grad=learns), double(3, 4, requires_grad=learns)) for n in (5, 7, 9, 33, 2)]
    assert compiles(affine, calls, backend) == 2
    assert compiles(affine, calls, backend, dynamic=True) == 1


def test_a_guard_of_the_compiler_is_checked() -> None:
    """The graph has the view as it is; AOTAutograd asks whether the size can be divided."""

    def function(x: Any) -> Any:
        return x.view(-1, 4) * 2

    calls = [(double(n),) for n in (8, 12, 16, 40, 10, 7)]
    assert compiles(function, calls, "aot_eager") <= 2


def test_a_bound_of_the_compiler_is_checked() -> None:
    def function(x: Any) -> Any:
        return torch.narrow(x, 0, 0, 7) + 1

    calls = [(double(n),) for n in (8, 12, 16, 7, 6, 2)]
    assert compiles(function, calls, "aot_eager") <= 2


def test_equal_sizes_may_differ_later() -> None:
    def function(x: Any, y: Any) -> Any:
        return x + y

    calls = [(double(n), double(m)) for n, m in ((8, 8), (9, 9), (10, 10), (1, 10), (10, 1), (8, 9), (11, 11))]
    assert compiles(function, calls, "aot_eager") <= 4


@backends
def test_numbers(backend: str) -> None:
    def function(x: Any, n: int) -> Any:
        return x * n + (n + 1)

    assert compiles(function, [(double(3), n) for n in (3, 4, 5, 100, -7, 0, 1)], backend) <= 4


def test_numbers_computed_from_sizes() -> None:
    def function(x: Any) -> Any:
        rows = x.shape[0]
        return x.expand(3, rows).reshape(3 * rows), torch.ones(2 * rows + 1, dtype=x.dtype) / rows

    assert compiles(function, [(double(n),) for n in (5, 7, 9, 33)], "aot_eager") == 2


def test_writes_to_memory_that_inputs_share() -> None:
    """Whether they overlap depends on the sizes."""

    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    compiled = alternator.compile(function, backend="aot_eager")
    for size in (4, 5, 6, 9, 12):
        found, expected = double(20), double(20)
        torch.testing.assert_close(compiled(found[:size], found[8:12]), function(expected[:size], expected[8:12]))
        torch.testing.assert_close(found, expected)


def test_a_compiler_that_fails_with_symbols_gets_constants() -> None:
    """It is not called with symbols again."""
    seen = []

    def compiler(gm: Any, inputs: Any) -> Any:
        from functorch.compile import make_boxed_func

        seen.append([list(value.shape) for value in inputs if isinstance(value, torch.Tensor)])
        if any(isinstance(value, torch.SymInt) for value in inputs):
            raise NotImplementedError
        return make_boxed_func(gm.forward)

    from torch._dynamo import register_backend
    from torch._dynamo.backends.common import aot_autograd

    register_backend(aot_autograd(fw_compiler=compiler), name="without_symbols")
    assert compiles(lambda x: x.sin(), [(double(n),) for n in (4, 5, 6)], "without_symbols") >= 3
    assert len(seen) == 4


def masked(x: Any, mask: Any) -> Any:
    return x.masked_fill(mask, 0.0) + 1


@backends
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_an_inner_size(backend: str, learns: bool, layout: str) -> None:
    """Strides follow from sizes: the code is that of all of them."""

    def call(size: int) -> tuple[Any, ...]:
        x, mask = double(4, size, requires_grad=learns), torch.arange(4 * size).reshape(4, size) % 3 == 0
        return (x if layout == "contiguous" else double(size, 4).t().requires_grad_(learns), mask)

    assert compiles(masked, [call(size) for size in (5, 6, 9, 2, 31)], backend) == 2

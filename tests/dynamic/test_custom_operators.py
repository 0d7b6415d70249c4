"""Operators that a program defines: the function that they bring for fake tensors tells their sizes over symbols."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import alternator

SPACE = "alternator_sizes"


@torch.library.custom_op(f"{SPACE}::halves", mutates_args=())
def halves(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x.repeat(n, 1), x[: x.shape[0] // 2].clone()


@halves.register_fake
def _(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape[0] * n, x.shape[1]), x.new_empty(x.shape[0] // 2, x.shape[1])


@torch.library.custom_op(f"{SPACE}::joined", mutates_args=())
def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y if x.shape[0] > 6 else torch.cat([x, y])


@joined.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 6:
        return x.new_empty(x.shape)
    return x.new_empty(x.shape[0] + y.shape[0], x.shape[1])


@torch.library.custom_op(f"{SPACE}::rows", mutates_args=())
def rows(x: torch.Tensor) -> list[torch.Tensor]:
    return [row.clone() for row in x]


@rows.register_fake
def _(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.new_empty(x.shape[1]) for _ in range(x.shape[0])]


@torch.library.custom_op(f"{SPACE}::across", mutates_args=())
def across(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() * 2


@across.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[1], x.shape[0]).t()


@torch.library.custom_op(f"{SPACE}::chosen", mutates_args=())
def chosen(x: torch.Tensor) -> torch.Tensor:
    return x.clone() if int(x.shape[0]) % 2 else x.t().contiguous()


@chosen.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape) if int(x.shape[0]) % 2 else x.new_empty(x.shape[1], x.shape[0])


@torch.library.custom_op(f"{SPACE}::squared", mutates_args=())
def squared(x: torch.Tensor) -> torch.Tensor:
    return x * x


@squared.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


squared.register_autograd(
    lambda ctx, gradient: gradient * 2 * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


@torch.library.custom_op(f"{SPACE}::bumped", mutates_args={"x"})
def bumped(x: torch.Tensor) -> torch.Tensor:
    x += 1
    return x * 2


@bumped.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


OPERATORS = getattr(torch.ops, SPACE)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    alternator.reset()
    yield
    alternator.reset()


def check(fn: Callable[..., Any], calls: list[tuple[Any, ...]], backend: str, **options: Any) -> list[int]:
    """As eager; the number of graphs after each call."""
    compiled, counts = alternator.compile(fn, backend=backend, **options), []
    for arguments in calls:
        own = [one.clone() if isinstance(one, torch.Tensor) else one for one in arguments]
        torch.testing.assert_close(compiled(*arguments), fn(*own), rtol=0, atol=0)
        torch.testing.assert_close(list(arguments), own, rtol=0, atol=0)
        counts.append(alternator.counters()["graphs"])
    assert not alternator.counters()["breaks"]
    return counts


def wide(*sizes: int) -> list[tuple[torch.Tensor]]:
    return [(torch.randn(size, 3),) for size in sizes]


BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


@BACKENDS
def test_sizes_that_are_computed(backend: str) -> None:
    def fn(x: Any, n: int) -> Any:
        many, few = OPERATORS.halves(x, n)
        return many.view(-1).sum() * many.shape[0], few * few.shape[0], many.reshape(n, x.shape[0], -1)

    calls = [(torch.randn(size, 3), n) for size, n in ((4, 2), (5, 2), (6, 3), (9, 4), (12, 2), (30, 5))]
    assert check(fn, calls, backend)[-1] == 3


@BACKENDS
def test_conditions_are_guards(backend: str) -> None:
    def fn(x: Any) -> Any:
        made = OPERATORS.joined(x * 2, x + 1)
        return made * made.shape[0], made.flatten()

    assert check(fn, wide(4, 5, 6, 7, 8, 20, 3, 6), backend)[-1] == 3
    alternator.reset()
    assert check(fn, wide(8, 7, 6, 5, 20, 3), backend, dynamic=True)[-1] == 2
    check(fn, wide(0, 1, 2), backend)


@BACKENDS
def test_arguments_by_keyword_and_of_unknown_strides(backend: str) -> None:
    def fn(x: Any) -> Any:
        order = x[:, 0].argsort()
        made = OPERATORS.halves(n=2, x=x[order])[0]
        return made.shape[0] * made

    assert check(fn, wide(4, 5, 6, 9), backend)[-1] == 2


@pytest.mark.parametrize("operator", [rows, across, chosen], ids=lambda operator: operator._name)
def test_what_has_no_counterpart_is_constant(operator: Any) -> None:
    """The number of results, strides that are not those of a contiguous tensor, an int that is made of a size."""

    def fn(x: Any) -> Any:
        made = operator(x)
        made = made[-1] if isinstance(made, list) else made
        return made.shape[0] * x, made.reshape(-1), made.stride(0)

    check(fn, wide(4, 5, 6, 7, 3, 4), "eager")
    check(fn, wide(3, 2), "eager", dynamic=True)


@BACKENDS
def test_gradients(backend: str) -> None:
    def fn(x: Any) -> Any:
        made = OPERATORS.squared(x)
        return (made.view(-1, made.shape[0]) * made.shape[0]).sum()

    compiled = alternator.compile(fn, backend=backend)
    for size in (4, 5, 6, 7):
        ours = torch.randn(size, 3, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        compiled(ours).backward()
        fn(theirs).backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)
    assert alternator.counters()["graphs"] <= 3  # AOTAutograd's view() assumes more


def test_writes() -> None:
    check(lambda x: OPERATORS.bumped(x).shape[0] * x, wide(4, 5, 6, 7), "eager")


def test_the_first_one_of_a_process() -> None:
    """What is imported for it is imported outside of the trace: a guard on what an import changes would not hold."""
    source = f"""
import abc, torch, alternator
@torch.library.custom_op("{SPACE}::first", mutates_args=())
def first(x: torch.Tensor) -> torch.Tensor:
    return x.repeat(2, 1)
@first.register_fake
def _(x):
    return x.new_empty(2 * x.shape[0], x.shape[1])
def fn(x):
    made = torch.ops.{SPACE}.first(x)
    return made * made.shape[0] * (abc.get_cache_token() > 0)
compiled = alternator.compile(fn, backend="eager")
for size in (3, 4, 5, 6):
    x = torch.ones(size, 2)
    assert torch.equal(compiled(x), fn(x))
print(alternator.counters()["graphs"])
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 3


def test_written_results_of_topk() -> None:
    """Their strides are known, so that a reshape of them is a view for all sizes."""

    def fn(x: Any) -> Any:
        values, _ = torch.topk(x, 2, dim=-1)
        values /= values.sum(dim=-1, keepdim=True)
        flat = values.reshape(-1)
        values.mul_(2)
        return flat * flat.shape[0]

    assert check(fn, wide(7, 8, 9, 10), "eager")[-1] == 2

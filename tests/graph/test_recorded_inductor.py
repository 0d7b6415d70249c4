"""Recorded graphs go through Inductor, for inference and for training."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the recorder needs torch")

from recording import record  # noqa: E402
from test_recorded_models import CASES, CausalAttention  # noqa: E402
from torch import nn  # noqa: E402

from alternator.compile_scopes import differentiable_lstm  # noqa: E402

# Some ten seconds each: CI compiles the first two, `make test-inductor` all that draw no random numbers (Inductor's are
# not eager's).
QUICK = ("mlp", "gpt")
MORE = [name for name in CASES if name not in QUICK and name != "dropout"]
long = pytest.mark.skipif(not os.environ.get("ALTERNATOR_LONG_TESTS"), reason="ten seconds each: make test-inductor")
NAMES = [*QUICK, *[pytest.param(name, marks=long) for name in MORE]]


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4, equal_nan=True)


def compiled(recorded: Any) -> Any:
    from torch._inductor.compile_fx import compile_fx

    with differentiable_lstm():
        return compile_fx(recorded.to_fx(), recorded.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_inference(name: str) -> None:
    torch.manual_seed(1)
    module, *args = CASES[name]()
    module.eval()
    with torch.no_grad():
        # What is written in place is written again by each run: compare from the same start.
        recorded = record(module, *args)
        start = [t.clone() for t in recorded.inputs]
        expected = module(*args)
        expected_inputs = [t.clone() for t in recorded.inputs]
        for tensor, value in zip(recorded.inputs, start, strict=True):
            tensor.copy_(value)
        result = recorded.run_fx(compiled(recorded))
    close(result, expected)
    close(recorded.inputs, expected_inputs)


@pytest.mark.parametrize("name", NAMES)
def test_training(name: str) -> None:
    torch.manual_seed(1)
    module, *args = CASES[name]()
    for part in module.modules():
        if isinstance(part, (nn.Dropout, nn.MultiheadAttention, nn.GRU, CausalAttention)):
            part.p = part.dropout = 0.0  # Inductor draws other numbers

    def gradients(result: Any) -> list[torch.Tensor | None]:
        outputs = [
            t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad
        ]
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
        found = [None if t.grad is None else t.grad.clone() for t in recorded.inputs]
        for tensor in recorded.inputs:
            tensor.grad = None
        return found

    recorded = record(module, *args)
    start = [t.detach().clone() for t in recorded.inputs]
    result = recorded.run_fx(compiled(recorded))
    ours = gradients(result)
    with torch.no_grad():
        for tensor, value in zip(recorded.inputs, start, strict=True):
            tensor.copy_(value)
    expected = module(*args)
    close(result, expected)
    close(ours, gradients(expected))

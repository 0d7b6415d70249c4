"""A few small models through Inductor, with its modes and options."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import alternator


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        q, k, v = self.attention(self.norm(x)).chunk(3, -1)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.down(nn.functional.gelu(self.up(x)))


def test_inference_and_training() -> None:
    block = Block()
    data = torch.randn(2, 5, 8)
    compiled = alternator.compile(block, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(data), block(data), rtol=1e-4, atol=1e-4)
    for _ in range(2):
        block.zero_grad()
        expected = block(data)
        expected.square().sum().backward()
        gradients = [p.grad.clone() for p in block.parameters()]
        block.zero_grad()
        result = compiled(data)
        result.square().sum().backward()
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        for parameter, gradient in zip(block.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-3)
    assert alternator.counters()["graphs"] == 2
    assert alternator.counters()["eager"] == 0


def test_an_lstm_learns() -> None:
    lstm = nn.LSTM(3, 4, batch_first=True)
    data = torch.randn(2, 5, 3)
    compiled = alternator.compile(lstm, fullgraph=True)
    for _ in range(2):
        lstm.zero_grad()
        expected, _ = lstm(data)
        expected.square().sum().backward()
        gradients = [p.grad.clone() for p in lstm.parameters()]
        lstm.zero_grad()
        result, _ = compiled(data)
        result.square().sum().backward()
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        for parameter, gradient in zip(lstm.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-3)
    assert alternator.counters()["graphs"] == 1


@pytest.mark.parametrize(
    "arguments",
    [{"mode": "default"}, {"mode": "reduce-overhead"}, {"options": {"fallback_random": True}}],
    ids=str,
)
def test_modes_and_options(arguments: dict[str, Any]) -> None:
    compiled = alternator.compile(lambda x: (x.sin() + 1).relu().sum(), fullgraph=True, **arguments)
    data = torch.randn(16)
    for _ in range(2):
        torch.testing.assert_close(compiled(data), (data.sin() + 1).relu().sum())


def test_sources_of_inputs_can_be_kept_in_a_cache() -> None:
    from alternator.graph_metadata import InputSource

    source = InputSource("self.weight")
    assert pickle.loads(pickle.dumps(source)) == source
    assert copy.deepcopy(source).name == "self.weight"


def test_inputs_that_are_written() -> None:
    def f(cache: Any, x: Any) -> Any:
        cache[:, 1].copy_(x)
        return cache.sum()

    compiled = alternator.compile(f, fullgraph=True)
    ours, theirs = torch.zeros(3, 4), torch.zeros(3, 4)
    for step in range(3):
        x = torch.full((3,), float(step))
        torch.testing.assert_close(compiled(ours, x), f(theirs, x))
        torch.testing.assert_close(ours, theirs)
    assert alternator.counters()["graphs"] == 1

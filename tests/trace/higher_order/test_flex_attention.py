"""flex_attention inside of a compiled function: one node over the graphs of its functions."""

from __future__ import annotations

import math

import torch
from harness import T
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from trace_support import in_child

import alternator


def qkv(s: int = 0) -> list[torch.Tensor]:
    return [T(1, 2, 16, 16, s=s + i) for i in range(3)]


def sine(score, b, h, m, n):
    return torch.tanh(score) + (m - n)


@in_child
def test_against_eager(_):
    scale = T(1, s=9)[0]
    weights = {"power": 2.0}

    def plain(q, k, v):
        return flex_attention(q, k, v)

    def scored(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, m, n: score * scale + weights["power"] * (m - n))

    def masked(q, k, v):
        return flex_attention(q * 2, k, v, block_mask=mask, scale=0.5)

    def strided(q, k, v):
        out = flex_attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, score_mod=sine)
        return out, torch.tensor(out.stride())

    def with_sums(q, k, v):
        return tuple(flex_attention(q, k, v, return_aux=AuxRequest(lse=True))[1])[0]

    mask = create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 16, 16, device="cpu")
    for fn in (plain, scored, masked, strided, with_sums):
        alternator.reset()
        compiled = alternator.compile(fn, backend="eager", fullgraph=True)
        for s in range(3):
            with torch.no_grad():
                torch.testing.assert_close(compiled(*qkv(s)), fn(*qkv(s)), msg=lambda text: f"{fn.__name__}: {text}")
        assert alternator.counters()["traces"] == 1, (fn.__name__, alternator.counters())
    alternator.reset()
    compiled = alternator.compile(scored, backend="eager", fullgraph=True)
    for change in (lambda: None, lambda: scale.add_(1), lambda: weights.update(power=3.0)):
        with torch.no_grad():
            change()
            torch.testing.assert_close(compiled(*qkv()), scored(*qkv()))
    assert alternator.counters()["traces"] == 2


@in_child
def test_backends(_):
    def fn(q, k, v):
        return flex_attention(q * math.pi, k, v, score_mod=sine)

    for backend in ("aot_eager", "inductor"):
        alternator.reset()
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        with torch.no_grad():
            for s in range(2):
                torch.testing.assert_close(compiled(*qkv(s)), fn(*qkv(s)))


@in_child
def test_what_no_graph_can_hold(_):
    seen = []

    def notes(score, b, h, m, n):
        seen.append(1)
        return score

    def fn(q, k, v):
        return flex_attention(q, k, v, score_mod=notes)

    for call in (fn, alternator.compile(fn, backend="eager")):
        for _ in range(2):
            try:
                call(*qkv())
            except Exception as error:
                kind = type(error).__name__
            else:
                kind = "none"
            seen.append(kind)
    assert len(set(seen)) == 1, seen

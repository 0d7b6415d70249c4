"""Compiled functions under hooks of the caller's on saved tensors: checkpoint() around one, save_on_cpu(), hooks that raise."""

from __future__ import annotations

import copy

import pytest
import torch
from harness import T, program
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from trace_support import alone

import alternator


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.calls = 0
        with torch.no_grad():
            self.linear.weight.copy_(T(4, 4, s=7))

    def forward(self, x):
        self.calls += 1
        return x + self.drop(self.norm(self.linear(x)).relu())


@program()
def test_hooks_see_what_eager_saves(t):
    packed = []
    t.watch(lambda: packed)
    f = t.compile(lambda x, w: (x @ w).relu().softmax(-1).sum())

    def pack(x):
        packed.append(tuple(x.shape))
        return x * 2

    for s in range(3):
        x, w = T(3, 3, s=s, rg=True), T(3, 3, s=s + 5, rg=True)
        with saved_tensors_hooks(pack, lambda x: x + 1):
            y = f(x, w)
        y.backward()
        t.note((x.grad, w.grad))
    f(T(3, 3, rg=True), T(3, 3))


@program(one_graph=False)
def test_a_hook_that_raises_where_it_is_caught(t):
    seen, state = [0], {"steps": 0}
    t.watch(lambda: (seen, state))

    def pack(x):
        seen[0] += 1
        if seen[0] % 3 == 0:
            raise KeyError(seen[0])
        return x

    def fn(x):
        state["steps"] += 1
        y = x.sin()
        try:
            z = y.exp()
        except KeyError:
            z = y * 7
        state["steps"] += 10
        return z.tanh() * x

    f = t.compile(fn)
    for s in range(6):
        with saved_tensors_hooks(pack, lambda x: x):
            f(T(3, s=s, rg=True))


@program(one_graph=False)
def test_a_call_that_fails_under_hooks(t):
    steps = []
    t.watch(lambda: steps)

    def fn(x, i):
        steps.append("before")
        y = x.sin()[i]
        steps.append("after")
        return y * 2

    f = t.compile(fn)
    for i in (0, 1, 9, 2):
        with save_on_cpu():
            f(T(3, s=i, rg=True), torch.tensor([i]))


def same_with(backend, run, states):
    """`run` with eager blocks and with compiled ones: what it gives, and what it leaves of the blocks."""
    for early in (True, False):
        outcomes = []
        for compiled in (False, True):
            torch.manual_seed(3)
            blocks = [Block(), Block()]
            layers = [alternator.compile(b, backend=backend) for b in blocks] if compiled else blocks
            with set_checkpoint_early_stop(early):
                outcome = run(layers)
            state = [v for b in blocks for v in (*b.state_dict().values(), *(p.grad for p in b.parameters()))]
            outcomes.append(outcome + state + [torch.tensor(b.calls) for b in blocks])
        for wanted, found in zip(*outcomes, strict=True):
            torch.testing.assert_close(
                found, wanted, rtol=0 if backend == "eager" else 1e-5, atol=0 if backend == "eager" else 1e-5
            )
    assert alternator.counters()["graphs"] >= states
    assert "callbacks" not in alternator.counters()["breaks"]


def train(layers, **options):
    outcome = []
    for s in range(3):
        x = T(5, 4, s=s, rg=True)
        y = x
        for layer in layers:
            y = checkpoint(layer, y, use_reentrant=False, **options)
        y.square().sum().backward()
        outcome += [y.detach(), x.grad]
    return outcome


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@alone
def test_checkpoints_around_compiled_blocks(backend):
    same_with(backend, train, 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@alone
def test_a_break_inside(backend):
    def fn(x):
        y = x.sin()
        if y.sum() > 0:
            y = y * 2
        return y.exp().tanh()

    breaks_before = dict(alternator.counters()["breaks"])
    compiled = alternator.compile(fn, backend=backend)
    for s in range(5):
        x = T(4, s=s, rg=True)
        twin = copy.deepcopy(x)
        found, wanted = checkpoint(compiled, x, use_reentrant=False), fn(twin)
        found.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(x.grad, twin.grad)
    found_breaks = alternator.counters()["breaks"]
    assert {why for why, count in found_breaks.items() if count > breaks_before.get(why, 0)} == {"data_dependent"}


@alone
def test_one_graph_is_one_graph():
    before = alternator.counters()["graphs"]
    compiled = alternator.compile(lambda x: (x.sin() * x).sum(), backend="eager", fullgraph=True)
    for s in range(3):
        x = T(4, s=s, rg=True)
        with save_on_cpu():
            compiled(x).backward()
        torch.testing.assert_close(x.grad, x.detach().cos() * x.detach() + x.detach().sin())
    assert alternator.counters()["graphs"] == before + 1

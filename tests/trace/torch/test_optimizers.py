"""Steps of torch's optimizers: what they leave is eager's, also where they take another way while compiling."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo  # torch's optimizers import it: here once, not in every forked child
from harness import T, program
from torch import nn
from trace_support import eager_backend, in_child

import alternator


def steps(t, make):
    net = nn.Linear(3, 3)
    with torch.no_grad():
        net.weight.copy_(T(3, 3))
        net.bias.copy_(T(3))
    scale = nn.Parameter(torch.tensor(1.5))  # a parameter without dimensions
    parameters = [*net.parameters(), scale]
    optimizer = make(parameters)
    t.watch(lambda: [(p, list(optimizer.state.get(p, {}).values())) for p in parameters])

    def fn(x):
        optimizer.step()
        return x + 1

    f = t.compile(fn)
    for i in range(5):
        for p in parameters:
            p.grad = T(*p.shape, s=i)
        f(T(2))
        if i == 3:
            optimizer.param_groups[0]["lr"] *= 0.5


@program(one_graph=False)
def test_sgd(t):
    steps(t, lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1))


@program(one_graph=False)
def test_adam(t):
    """Bias corrections are computed with the precision of Python's numbers: `1 - 0.999 ** step` loses much otherwise."""
    steps(t, lambda ps: torch.optim.Adam(ps, 0.1, amsgrad=True))


@program(one_graph=False)
def test_adamw(t):
    steps(t, lambda ps: torch.optim.AdamW(ps, 0.1))


@program(one_graph=False)
def test_adagrad(t):
    steps(t, lambda ps: torch.optim.Adagrad(ps, 0.1, lr_decay=0.1))


@program(one_graph=False)
def test_adamax(t):
    steps(t, lambda ps: torch.optim.Adamax(ps, 0.1))


@program(one_graph=False)
def test_radam(t):
    steps(t, lambda ps: torch.optim.RAdam(ps, 0.1))


@program(one_graph=False)
def test_adam_behind_a_backward_pass(t):
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    t.watch(lambda: [(p, list(optimizer.state.get(p, {}).values())) for p in net.parameters()])

    def fn(x):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    f = t.compile(fn)
    for _ in range(4):
        f(T(2, 3))


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "NAdam", "Adamax", "Adagrad", "RMSprop"])
def test_a_step_is_one_graph(kind):
    """The breaks that torch asks for around a step spare Inductor copies: they are no reason to fail."""

    def run(compiled):
        parameters = [nn.Parameter(T(3, 3)), nn.Parameter(T(3))]
        optimizer = getattr(torch.optim, kind)(parameters, 0.1)

        def step(x):
            optimizer.step()
            return x + 1

        f = alternator.compile(step, backend="eager", fullgraph=True) if compiled else step
        for i in range(4):
            for p in parameters:
                p.grad = T(*p.shape, s=i)
            f(T(2))
        return parameters

    for wanted, found in zip(run(False), run(True), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)


@in_child
def test_rates_that_change_with_every_step(front):
    """Frames that run eagerly ask whether they are compiled; so do those that they call, which may be: both are told no."""

    def train(compile_):
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 1)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2, foreach=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)

        def step(x):
            optimizer.zero_grad()
            loss = layer(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach()

        step = compile_(step)
        losses = [step(torch.full((4, 3), float(i % 3))) for i in range(25)]
        return torch.stack(losses), layer.weight.detach()

    before = alternator.config.recompile_limit
    alternator.config.recompile_limit = 3
    try:
        wanted, found = train(lambda fn: fn), train(lambda fn: front.compile(fn, eager_backend))
    finally:
        alternator.config.recompile_limit = before
    for a, b in zip(wanted, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)

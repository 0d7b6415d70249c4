"""backward() inside of the function: whole steps of training."""

from __future__ import annotations

from typing import Any

import torch
from harness import Run, T, program
from torch import nn
from trace_support import in_child, small_net

import alternator


def captures(t: Run) -> None:
    """Scripts run in a process of their own."""
    alternator.config.capture_scalar_outputs = True


def gradients(net: nn.Module) -> list[Any]:
    return [parameter.grad for parameter in net.parameters()]


@program()
def test_a_step_of_training(t):
    captures(t)
    net = small_net()

    def step(x):
        for parameter in net.parameters():
            parameter.grad = None
        loss = net(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1 * parameter.grad
        return loss.detach()

    f = t.compile(step)
    for s in (0, 1, 2):
        f(T(2, 3, s=s))
        t.note([list(net.parameters()), gradients(net)])
    f.hit(T(2, 3, s=3))
    t.note([list(net.parameters()), gradients(net)])


@program()
def test_gradients_add_up(t):
    captures(t)
    net = small_net()

    def step(x):
        loss = net(x).sum()
        loss.backward()
        return loss.detach()

    f = t.compile(step)
    f(T(2, 3))
    first = gradients(net)
    f(T(2, 3, s=1))
    t.note([a is b for a, b in zip(first, gradients(net), strict=True)])
    f.hit(T(2, 3, s=2))
    t.note(gradients(net))
    net[0].weight.grad = None
    f.miss(T(2, 3, s=3))
    t.note(gradients(net))


@program()
def test_a_gradient_is_read(t):
    captures(t)

    def fn(x):
        (x * x).sum().backward()
        return x.grad * 2, x.grad

    f = t.compile(fn)
    for s in (0, 1):
        x = T(3, s=s, rg=True)
        f(x)
        t.note(x.grad)
    f.hit(T(3, s=2, rg=True))


@program()
def test_a_leaf_of_the_functions_own(t):
    captures(t)

    def fn(x):
        y = x.detach().clone().requires_grad_(True)
        (y * y).sum().backward()
        return y.grad, x + y.grad.sign()

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program()
def test_one_gradient_for_two_and_layouts(t):
    captures(t)

    def fn(x, y, z):
        (x + y).sum().backward(retain_graph=True)
        (z.t().matmul(x)).sum().backward()
        return x.grad is y.grad

    f = t.compile(fn)
    for s in (0, 1):
        x, y = T(3, 2, s=s, rg=True), T(3, 2, s=s + 1, rg=True)
        z = T(4, 3, s=s).t().detach().requires_grad_(True)
        f(x, y, z)
        t.note([x.grad, y.grad, z.grad, z.grad.stride()])
        x.grad.add_(1)
        t.note([x.grad, y.grad])


@program()
def test_a_gradient_is_given(t):
    captures(t)

    def fn(x, v):
        torch.autograd.backward(x * 2, v)
        torch.autograd.backward([x * 3, x.exp()], [v, v])

    f = t.compile(fn)
    for s in (0, 1):
        x = T(3, s=s, rg=True)
        f(x, T(3, s=s + 1))
        t.note(x.grad)


@program(one_graph=False)
def test_hooks_see_the_gradient(t):
    captures(t)
    seen = []
    net = small_net()

    def step(x):
        net(x).sum().backward()

    f = t.compile(step)
    t.watch(lambda: seen)
    f(T(2, 3))
    handle = net[0].weight.register_hook(lambda g: seen.append(g.clone()))
    f(T(2, 3, s=1))
    handle.remove()
    handle = net[0].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    f(T(2, 3, s=2))
    handle.remove()
    node = net[0].weight.view_as(net[0].weight).grad_fn.next_functions[0][0]
    handle = node.register_hook(lambda *_: seen.append(1))
    f(T(2, 3, s=3))
    handle.remove()
    f(T(2, 3, s=4))
    t.note([len(seen), gradients(net)])


@program(one_graph=False)
def test_errors_are_those_of_eager(t):
    captures(t)

    def twice(x):
        y = (x * x).sum()
        y.backward()
        y.backward()

    def of_many(x):
        (x * x).backward()

    def of_none(x):
        x.detach().sum().backward()

    for fn in (twice, of_many, of_none):
        f = t.compile(fn)
        x = T(3, rg=True)
        f(x)
        t.note(x.grad)


@program(one_graph=False)
def test_what_is_not_captured_is_right(t):
    captures(t)

    def with_graph(x):
        (x * x * x).sum().backward(create_graph=True)
        return x.grad.sum()

    def with_inputs(x, y):
        (x * y).sum().backward(inputs=[x])
        return y.grad

    def of_a_view(x, v):
        x.view(-1).backward(v)
        return x.grad

    def with_a_kept_gradient(x):
        y = x * 2
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad, y

    def with_a_hook_of_its_own(x):
        y = x * 2
        y.register_hook(lambda g: g * 3)
        (y * y).sum().backward()
        return x.grad

    for fn in (with_a_kept_gradient, with_a_hook_of_its_own):
        f = t.compile(fn)
        f(T(3, rg=True))
        f(T(3, s=1, rg=True))
    f = t.compile(with_graph)
    x = T(3, rg=True)
    f(x).backward()
    t.note(x.grad)
    f = t.compile(with_inputs)
    f(T(3, rg=True), T(3, s=1, rg=True))
    f = t.compile(of_a_view)
    f(T(3, rg=True), T(3, s=1))


@program(one_graph=False)
def test_in_segments_where_breaks_are_allowed(t):
    net = small_net()

    def step(x):
        loss = net(x).sum()
        loss.backward()
        return loss * 2

    f = t.compile(step)
    for s in (0, 1, 2):
        f(T(2, 3, s=s))
        t.note(gradients(net))


@in_child
def test_a_graph_with_a_pass_runs_as_recorded(front: Any) -> None:
    def step(net: Any, x: Any) -> Any:
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss

    net, other = small_net(), small_net()
    for fullgraph in (True, False):
        f = alternator.compile(step, backend="aot_eager", fullgraph=fullgraph)
        for s in (0, 1, 2):
            assert torch.allclose(f(net, T(2, 3, s=s)), step(other, T(2, 3, s=s)))
            for mine, theirs in zip(gradients(net), gradients(other), strict=True):
                assert torch.allclose(mine, theirs)

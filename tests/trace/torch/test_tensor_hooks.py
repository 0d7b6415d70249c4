"""Hooks on tensors: registered when the graph has run, on what it computed, with functions made for that call."""

from __future__ import annotations

import torch
from harness import T, program
from torch import nn
from trace_support import in_child

import alternator


def doubled(grad):
    return grad * 2


@program()
def test_on_what_is_computed(t):
    seen = []

    def doubled(grad):
        seen.append(grad.sum().item())
        return grad * 2

    def fn(x):
        y = x * 3
        y.register_hook(doubled)
        z = y.sin() + y
        return z

    f = t.compile(fn)
    t.watch(lambda: seen)
    for s in range(3):
        x = T(3, s=s, rg=True)
        f(x).sum().backward()
        t.note(x.grad)
    f.hit(T(3, rg=True))


@program()
def test_a_closure(t):
    def fn(x, scale):
        k = x.detach().sum() * scale
        log = []

        def hook(grad):
            log.append(grad)
            return grad * k

        y = x.sin()
        y.register_hook(hook)
        y.register_hook(lambda grad: grad + 1)
        return y.cos() * y, log

    f = t.compile(fn)
    for s in (1.0, 2.0, 1.0):
        x = T(3, s=s, rg=True)
        y, log = f(x, s)
        y.sum().backward()
        t.note((x.grad, log))


@program()
def test_on_inputs_and_parameters(t):
    net = nn.Linear(3, 3)

    def fn(x):
        x.register_hook(lambda grad: grad * 2)
        net.weight.register_hook(lambda grad: grad + 1)
        return net(x)

    f = t.compile(fn)
    for s in range(2):
        x = T(2, 3, s=s, rg=True)
        f(x).sum().backward()
        t.note((x.grad, net.weight.grad, len(net.weight._backward_hooks)))


@program()
def test_after_accumulation(t):
    w = nn.Parameter(T(3))

    def step(p):
        with torch.no_grad():
            p.sub_(p.grad)
        p.grad = None

    def fn(x):
        if not w._post_accumulate_grad_hooks:
            w.register_post_accumulate_grad_hook(step)
        return x * w

    f = t.compile(fn)
    for s in range(2):
        f.free(T(3, s=s)).sum().backward()
        t.note((w.detach().clone(), w.grad))


@program()
def test_after_accumulation_of_an_input(t):
    seen = []

    def fn(x, w):
        w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        return x * w

    f = t.compile(fn)
    t.watch(lambda: seen)
    for s in range(2):
        f(T(3, s=s), T(3, rg=True)).sum().backward()


@program()
def test_kept_gradients(t):
    def fn(x):
        y = x * 2
        y.retain_grad()
        return y, (y * y).sum(), y.retains_grad

    f = t.compile(fn)
    for s in range(2):
        x = T(3, s=s, rg=True)
        y, z, _ = f(x)
        z.backward()
        t.note((y.grad, x.grad, y.retains_grad))
    f.hit(T(3, rg=True))


@program(one_graph=False)
def test_handles(t):
    def fn(x, which):
        y = x * 2
        handle = y.register_hook(doubled)
        if which == 0:
            handle.remove()
        if which == 1:
            return y, handle
        if which == 2:
            return y, isinstance(handle, torch.utils.hooks.RemovableHandle), type(handle).__name__
        if which == 3:
            return y, handle.id
        if which == 4:
            torch._dynamo.graph_break()
            handle.remove()
        return y, bool(handle)

    f = t.compile(fn)
    for which in range(6):
        for _ in range(2):
            x = T(3, rg=True)
            y, other, *_ = f(x, which)
            if which == 1:
                other.remove()
            y.sum().backward()
            t.note(x.grad)


@program(one_graph=False)
def test_where_none_can_be(t):
    def fn(x, which):
        y = x * 2
        try:
            if which == 0:
                y.register_hook(doubled)
            if which == 1:
                y.register_post_accumulate_grad_hook(doubled)
            if which == 2:
                y.retain_grad()
        except RuntimeError as error:
            return y, str(error)[:40]
        return y, None

    f = t.compile(fn)
    for which in range(3):
        for rg in (False, True):
            f(T(3, rg=rg), which)


@program(one_graph=False)
def test_written_after_the_hook(t):
    def fn(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        y.mul_(5)
        y[0] = 1
        return y.sin()

    f = t.compile(fn)
    for _ in range(2):
        x = T(3, rg=True)
        f(x).sum().backward()
        t.note(x.grad)


@program()
def test_written_before_the_hook(t):
    def fn(x):
        y = x * 2
        y.mul_(5)
        y.register_hook(lambda grad: grad * 3)
        return y.sin()

    f = t.compile(fn)
    for _ in range(2):
        x = T(3, rg=True)
        f(x).sum().backward()
        t.note(x.grad)


@program(one_graph=False)
def test_a_break_behind_a_hook(t):
    def fn(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        torch._dynamo.graph_break()
        z = y.sin()
        z.register_hook(doubled)
        return z

    f = t.compile(fn)
    for _ in range(2):
        x = T(3, rg=True)
        f(x).sum().backward()
        t.note(x.grad)


@program(one_graph=False)
def test_inside_of_other_things(t):
    from torch.utils.checkpoint import checkpoint

    def hooked(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        return y.sin()

    def fn(x, which):
        if which == 0:
            return checkpoint(hooked, x, use_reentrant=False)
        if which == 1:
            return torch.func.grad(lambda y: hooked(y).sum())(x)
        with torch.no_grad():
            x.register_hook(doubled)
        return x * 2

    f = t.compile(fn)
    for which in range(3):
        for _ in range(2):
            x = T(3, rg=True)
            f(x, which).sum().backward()
            t.note(x.grad)


@in_child
def test_with_aot_autograd(front):
    w = torch.nn.Parameter(torch.ones(3))

    def fn(x, k):
        w.register_hook(lambda grad: grad * k)
        y = x * w
        y.register_hook(lambda grad: grad * 2)
        y.retain_grad()
        return y.sin(), y

    wanted = None
    for call in (fn, alternator.compile(fn, backend="aot_eager", fullgraph=True)):
        found = []
        for k in (1.0, 2.0):
            w.grad = None
            x = T(3, rg=True)
            z, y = call(x, k)
            z.sum().backward()
            found += [x.grad, w.grad, y.grad]
            w._backward_hooks.clear()
        wanted = wanted or found
        for a, b in zip(wanted, found, strict=True):
            assert torch.equal(a, b), (a, b)


@in_child
def test_full_backward_hooks_with_every_backend(front):
    def learn(compile):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
        seen = []
        net[0].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].clone()))
        x = torch.ones(2, 3, requires_grad=True)
        compiled = compile(net)
        for _ in range(2):
            compiled(x).sum().backward()
        return [*seen, x.grad]

    expected = learn(lambda net: net)
    for backend in ("eager", "aot_eager"):
        alternator.reset()
        torch.testing.assert_close(learn(lambda net, of=backend: alternator.compile(net, backend=of)), expected)

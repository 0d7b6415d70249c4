"""torch.autograd.grad inside of the function: forces, penalties, inner steps."""

from __future__ import annotations

from typing import Any

import torch
from harness import T, program
from torch import nn
from trace_support import in_child, small_net

import alternator


def force(net: Any, x: Any) -> Any:
    x = x.detach().requires_grad_(True)
    energy = net(x).sum()
    (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
    return energy, -gradient


def penalty(net: Any, x: Any) -> Any:
    y = net(x)
    gradient = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
    return ((gradient.norm(dim=1) - 1) ** 2).mean() + y.mean()


def inner_step(net: Any, x: Any) -> Any:
    parameters = dict(net.named_parameters())
    gradients = torch.autograd.grad(net(x).pow(2).mean(), list(parameters.values()), create_graph=True)
    moved = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), gradients, strict=True)}
    return torch.func.functional_call(net, moved, (x,)).mean()


@program()
def test_a_force(t):
    f = t.compile(force)
    net = small_net()
    for s in (0, 1):
        _, gradient = f(net, T(2, 3, s=s))
        gradient.sum().backward()
        t.note([parameter.grad for parameter in net.parameters()])


@program()
def test_a_penalty(t):
    f = t.compile(penalty)
    net = small_net()
    x = T(2, 3, rg=True)
    f(net, x).backward()
    t.note([x.grad, *(parameter.grad for parameter in net.parameters())])
    f.hit(net, x).backward()
    t.note([x.grad, *(parameter.grad for parameter in net.parameters())])


@program()
def test_an_inner_step(t):
    f = t.compile(inner_step)
    net = small_net()
    f(net, T(2, 3)).backward()
    t.note([parameter.grad for parameter in net.parameters()])
    f.hit(net, T(2, 3, s=1)).backward()
    t.note([parameter.grad for parameter in net.parameters()])


@program()
def test_what_is_not_used_has_no_gradient(t):
    def fn(x, z):
        first, second = torch.autograd.grad((x * x).sum(), [x, z], allow_unused=True)
        return first, second is None

    f = t.compile(fn)
    f(T(3, rg=True), T(3, rg=True))
    f.hit(T(3, s=1, rg=True), T(3, rg=True))


@program(one_graph=False)
def test_errors_are_those_of_eager(t):
    def fn(x, z):
        return torch.autograd.grad((x * x).sum(), [x, z])

    f = t.compile(fn)
    f(T(3, rg=True), T(3, rg=True))  # z is not used
    f(T(3), T(3))  # nothing requires a gradient
    outside = (T(3, rg=True) * 2).sin()

    def through(y, x):
        return torch.autograd.grad(y.sum(), x, allow_unused=True, retain_graph=True)

    t.compile(through)(outside, T(3, rg=True))


@program(one_graph=False)
def test_hooks_on_what_is_differentiated(t):
    def fn(w, x):
        return torch.autograd.grad((w * x).sum(), [w])[0]

    f = t.compile(fn)
    w = T(3, rg=True)
    f(w, T(3, s=1))
    handle = w.register_hook(lambda g: g * 10)
    f(w, T(3, s=1))
    handle.remove()
    f(w, T(3, s=1))


@program(one_graph=False)
def test_unused_calls_are_made(t):
    """What nobody uses may still raise because of its data."""

    def fn(x, i, n):
        x[i]
        n // i
        return x * 2

    f = t.compile(fn)
    f(T(3), torch.tensor([1]), torch.tensor([6]))
    f(T(3), torch.tensor([5]), torch.tensor([6]))  # out of range
    f(T(3), torch.tensor([0]), torch.tensor([6]))  # a division by zero
    f.hit(T(3), torch.tensor([2]), torch.tensor([6]))


@in_child
def test_through_aot_autograd(front):
    for fn in (force, penalty, inner_step):
        net, x = small_net(), T(2, 3, rg=fn is penalty)
        compiled = alternator.compile(fn, backend="aot_eager", fullgraph=True)
        for _ in range(2):
            for wanted, found in zip(outcome(fn, net, x), outcome(compiled, net, x), strict=True):
                assert (wanted is None) == (found is None)
                torch.testing.assert_close(found, wanted)


def outcome(call: Any, net: Any, x: Any) -> list[Any]:
    net.zero_grad()
    x.grad = None
    result = call(net, x)
    last = result[1].sum() if isinstance(result, tuple) else result
    last.backward()
    return [last.detach(), *(p.grad for p in net.parameters()), x.grad]


@in_child
def test_hooks_with_aot_autograd(front):
    def fn(w, x):
        return torch.autograd.grad((w * x).sum(), [w])[0]

    compiled = alternator.compile(fn, backend="aot_eager")
    w, x = T(3, rg=True), T(3, s=1)
    assert torch.equal(compiled(w, x), x)
    handle = w.register_hook(lambda g: g * 10)
    assert torch.equal(compiled(w, x), x * 10)
    handle.remove()
    assert torch.equal(compiled(w, x), x)


@in_child
def test_leaves_made_in_place_with_aot_autograd(front):
    """AOTAutograd would lose that an argument requires gradients from now on, or no longer does."""

    def asked_for(x):
        x.requires_grad_()
        return (x * x).sum()

    def only_inside(x):
        x.requires_grad_()
        y = x * 2
        x.requires_grad_(False)
        return y

    def cut_off(x):
        y = x * 3
        x.detach_()
        return y, x * x

    def given_up(x):
        x.requires_grad_(False)
        return x * 2

    for fn in (asked_for, only_inside, cut_off, given_up):
        compiled = alternator.compile(fn, backend="aot_eager", fullgraph=True)
        for s in (0, 1, 2):
            leaves = [T(3, s=s, rg=fn in (cut_off, given_up)) for _ in "ab"]
            arguments = [leaf * 2 if fn is cut_off else leaf for leaf in leaves]
            wanted, found = fn(arguments[0]), compiled(arguments[1])
            for one, other in zip((wanted, arguments[0]), (found, arguments[1]), strict=True):
                for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (one, other)), strict=True):
                    assert torch.equal(a, b)
                    assert (a.requires_grad, a.is_leaf) == (b.requires_grad, b.is_leaf), (fn, s)
            for result in (wanted, found):
                first = result[0] if isinstance(result, tuple) else result
                if first.requires_grad:
                    first.sum().backward()
            assert (leaves[0].grad is None) == (leaves[1].grad is None)
            if leaves[0].grad is not None:
                assert torch.equal(leaves[0].grad, leaves[1].grad)


@program(one_graph=False)
def test_what_was_computed_before_has_a_history_too(t):
    """Where a break lies between, or the caller has computed it, the gradient goes through what the trace has not seen."""

    def broken(x, z):
        y = (x * x).sum()
        alternator.graph_break()
        return torch.autograd.grad(y, [x, z], allow_unused=True)

    def given(y, x):
        return torch.autograd.grad((y * 2).sum(), [x], allow_unused=True)

    t.compile(broken)(T(3, rg=True), T(3, rg=True))
    x = T(3, rg=True)
    t.compile(given)(x * x, x)


@program(one_graph=False)
def test_hooks_of_the_function_itself(t):
    def fn(x):
        y = x * 2
        y.register_hook(lambda g: g * 3)
        return torch.autograd.grad(y.sum(), [x])[0]

    def on_the_input(x):
        x.register_hook(lambda g: g * 5)
        return torch.autograd.grad((x * 2).sum(), [x])[0]

    for function in (fn, on_the_input):
        f = t.compile(function)
        f(T(3, rg=True))
        f(T(3, rg=True))


@program()
def test_iterators_of_what_is_differentiated(t):
    def fn(net, x):
        y = net(x)
        gradients = torch.autograd.grad((part.sum() for part in (y, y * 2)), net.parameters(), create_graph=True)
        named = torch.autograd.grad(
            outputs=[y], inputs=iter([*net.parameters()]), grad_outputs=(one for one in [y.detach() * 3])
        )
        tensors = dict(net.named_parameters())
        third = torch.autograd.grad(net(x).sum(), tensors.values())
        return [a + b + c for a, b, c in zip(gradients, named, third, strict=True)]

    f = t.compile(fn)
    net = small_net()
    f(net, T(2, 3))
    f.hit(net, T(2, 3, s=1))
    net[0].weight.requires_grad_(False)
    f.free(net, T(2, 3))


@program(one_graph=False)
def test_iterators_that_fail(t):
    def parameters(net, log):
        for parameter in net.parameters():
            log.append(len(log))
            if len(log) == 3:
                raise ValueError("no more")
            yield parameter

    def fn(net, x, log):
        y = net(x).sum()
        try:
            return torch.autograd.grad(y, parameters(net, log))
        except ValueError as error:
            return y * 2, str(error), error.__traceback__ is not None

    def uncaught(net, x, log):
        return torch.autograd.grad(net(x).sum(), parameters(net, log))

    net = small_net()
    for one in (fn, uncaught):
        f = t.compile(one)
        f(net, T(2, 3), [])
        f(net, T(2, 3), [1, 2, 3])
        f(net, T(2, 3), [])


@program(one_graph=False)
def test_hooks_on_what_is_differentiated_by(t):
    """They run where the gradient is computed, and what they write is seen."""

    def removed(p, log):
        handle = p.register_hook(lambda g: log.append("removed"))
        handle.remove()
        return torch.autograd.grad(p.sum(), p), len(log)

    def behind_a_break(p, log):
        p.register_hook(lambda g: log.append("behind"))
        alternator.graph_break()
        log.append("before")
        result = torch.autograd.grad((p * 2).sum(), [p])
        return result, list(log)

    def of_the_caller(p, log):
        log.append("before")
        result = torch.autograd.grad(outputs=(p * 2).sum(), inputs=p)
        return result, list(log)

    for fn in (removed, behind_a_break, of_the_caller):
        f = t.compile(fn)
        for hooked in (False, True, False):
            p, log = T(2, rg=True), []
            if hooked:
                p.register_hook(lambda g, log=log: log.append("outer"))
            f(p, log)

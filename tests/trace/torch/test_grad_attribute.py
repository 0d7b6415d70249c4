"""`.grad` of tensors from outside, written by the program."""

from __future__ import annotations

import torch
from harness import T, program
from torch import nn


def linear() -> nn.Linear:
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(T(*parameter.shape))
    return layer


@program()
def test_gradients_are_dropped(t):
    def fn(layer, x):
        for parameter in layer.parameters():
            parameter.grad = None
        return layer(x)

    f = t.compile(fn)
    layer = linear()
    for _ in range(3):
        f(layer, T(2, 3)).sum().backward()
        t.note([parameter.grad for parameter in layer.parameters()])
    f(layer, T(2, 3))
    t.note([parameter.grad for parameter in layer.parameters()])


@program()
def test_gradients_are_set_and_read(t):
    def fn(layer, x):
        before = layer.weight.grad
        layer.weight.grad = torch.full_like(layer.weight, 2.0) if before is None else before * 2
        layer.bias.grad = x
        return layer.weight.grad.sum(), layer.weight.grad, layer.bias.grad is x

    f = t.compile(fn)
    layer = linear()
    f(layer, T(3))
    f(layer, T(3))
    f.hit(layer, T(3))
    layer.weight.grad = None
    f(layer, T(3))


@program()
def test_a_gradient_is_written_in_place(t):
    def fn(layer):
        layer.weight.grad.mul_(2)
        layer.bias.grad = layer.weight.grad[0]
        layer.weight.grad.add_(1)
        del layer.weight.grad
        return layer.weight.grad is None, layer.bias.grad + 1

    f = t.compile(fn)
    for _ in range(2):
        layer = linear()
        gradient = layer.weight.grad = torch.ones(3, 3)
        f(layer)
        t.note(gradient)


@program()
def test_one_gradient_of_two_tensors(t):
    def fn(first, second, x):
        shared = x * 2
        first.grad = shared
        second.grad = shared
        return first.grad is second.grad

    f = t.compile(fn)
    for _ in range(2):
        first, second = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        f(first, second, T(3))
        t.note(first.grad is second.grad)
    both = torch.zeros(3, requires_grad=True)
    f(both, both, T(3))


@program(one_graph=False)
def test_a_gradient_that_does_not_fit(t):
    def fn(layer, x):
        try:
            layer.weight.grad = x
        except RuntimeError as error:
            return x + len(str(error))
        return layer.weight.grad + 1

    f = t.compile(fn)
    f(linear(), T(7))
    f(linear(), T(3, 3))
    f(linear(), T(3, 3, dtype=torch.float64))


@program()
def test_gradients_are_clipped(t):
    def fn(layer, limit):
        norm = torch.nn.utils.clip_grad_norm_(layer.parameters(), limit)
        return norm, layer.weight.grad * 1

    f = t.compile(fn)
    for limit in (0.1, 100.0):
        layer = linear()
        layer(T(2, 3)).sum().backward()
        f(layer, limit)
        t.note([parameter.grad for parameter in layer.parameters()])


# Each segment of such a graph is compiled when it first runs, with the default dtype that is set there: a spy in the backend sees that.
@program(spied=False)
def test_the_default_dtype_is_set(t):
    def fn(x, dtype):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            y = torch.ones(3)
        finally:
            torch.set_default_dtype(before)
        return y, torch.zeros(2), x + y

    f = t.compile(fn)
    for dtype in (torch.float64, torch.float32, torch.float64):
        f(T(3), dtype)
        t.note(torch.get_default_dtype())
    t.undo(lambda: torch.set_default_dtype(torch.float32))
    torch.set_default_dtype(torch.float64)
    f(T(3), torch.float32)


# Each segment of such a graph is compiled when it first runs, with the default dtype that is set there: a spy in the backend sees that.
@program(one_graph=False, spied=False)
def test_the_default_dtype_stays_set(t):
    def fn(x, dtype):
        torch.set_default_dtype(dtype)
        return torch.ones(2), x + 1

    f = t.compile(fn)
    t.undo(lambda: torch.set_default_dtype(torch.float32))
    for dtype in (torch.float64, torch.float32, torch.float64):
        f(T(3), dtype)
        t.note(torch.get_default_dtype())

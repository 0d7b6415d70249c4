"""Parameters and modules that the program makes itself."""

from __future__ import annotations

import copy

import torch
from harness import T, program
from torch import nn
from trace_support import in_child

import alternator


@program()
def test_a_parameter(t):
    def fn(x):
        weight = nn.Parameter(x.detach() * 2)
        fixed = nn.Parameter(x.detach(), requires_grad=False)
        facts = weight.requires_grad, weight.is_leaf, weight.grad_fn, fixed.requires_grad, type(weight) is nn.Parameter
        return weight * x, isinstance(weight, nn.Parameter), facts

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))
    x = T(3, rg=True)
    f(x)[0].sum().backward()
    t.note(x.grad)


@program(graphs=1)
def test_a_parameter_shares_memory(t):
    def fn(x):
        data = x + 1
        weight = nn.Parameter(data)
        with torch.no_grad():
            weight.mul_(3)
        data.add_(1)
        return weight, data

    f = t.compile(fn)
    for s in range(2):
        weight, data = f(T(3, s=s))
        data.zero_()
        t.note((weight, weight.grad))
        (weight * 2).sum().backward()
        t.note(weight.grad)


@program()
def test_a_parameter_of_what_was_there(t):
    def fn(x):
        weight = nn.Parameter(x)
        return weight, (weight * 2).sum()

    f = t.compile(fn)
    x = T(3)
    weight, loss = f(x)
    loss.backward()
    t.note(weight.grad)
    x.add_(1)
    t.note(weight)


@program()
def test_a_layer(t):
    def fn(x):
        torch.manual_seed(0)
        layer = nn.Linear(3, 4)
        return layer(x), sum(parameter.numel() for parameter in layer.parameters())

    f = t.compile(fn)
    f(T(2, 3))
    f.hit(T(2, 3, s=1))
    x = T(2, 3, rg=True)
    f(x)[0].sum().backward()
    t.note(x.grad)


@program()
def test_a_layer_is_given_out(t):
    def fn(x):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        return model, model(x)

    f = t.compile(fn)
    for s in range(2):
        model, y = f(T(2, 3, s=s))
        y.sum().backward()
        t.note([parameter.grad for parameter in model.parameters()])
        t.note((model(T(2, 3)), list(model.state_dict())))


@program()
def test_lists_of_parameters(t):
    def fn(x):
        parameters = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(x.detach())])
        named = nn.ParameterDict({"a": nn.Parameter(torch.zeros(3))})
        return x * parameters[0] + parameters[1] + named["a"], len(parameters)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program()
def test_a_copy_of_a_module(t):
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.copy_(T(3, 3))
        layer.bias.copy_(T(3))

    def fn(x):
        twin = copy.deepcopy(layer)
        with torch.no_grad():
            twin.weight.mul_(2)
        return twin(x), twin.weight is layer.weight, twin

    f = t.compile(fn)
    f(T(2, 3))
    with torch.no_grad():
        layer.weight.add_(1)
    y, _, twin = f(T(2, 3))
    y.sum().backward()
    t.note((twin.weight.grad, layer.weight.grad, layer.weight))
    layer.bias.requires_grad_(False)
    f(T(2, 3))


@program(one_graph=False)
def test_what_is_no_tensor(t):
    def fn(x, good):
        try:
            weight = nn.Parameter(x if good else 3)
        except (AttributeError, TypeError) as error:
            return type(error).__name__
        return weight * 2

    f = t.compile(fn)
    f(T(3), True)
    f(T(3), False)


@in_child
def test_backends(_):
    def fn(x):
        torch.manual_seed(0)
        return nn.Linear(3, 4)(x)

    for backend in ("aot_eager", "inductor"):
        alternator.reset()
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        for s in range(2):
            wanted, got = T(2, 3, s=s, rg=True), T(2, 3, s=s, rg=True)
            fn(wanted).sum().backward()
            result = compiled(got)
            torch.testing.assert_close(result, fn(wanted))
            result.sum().backward()
            torch.testing.assert_close(got.grad, wanted.grad)

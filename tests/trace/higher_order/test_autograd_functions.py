"""torch.autograd.Function: its forward where no gradient is wanted, one node where one is."""

from __future__ import annotations

import torch
from harness import T, program
from trace_support import in_child

import alternator


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        ctx.save_for_backward(x)
        return x * by

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.by + x * 0, None


class Through(torch.autograd.Function):
    """Gives its input back, and says what it knows."""

    @staticmethod
    def forward(ctx, x, layers, seen):
        seen.append((ctx.needs_input_grad[0], torch.is_grad_enabled()))
        y = x
        for layer in layers:
            y = layer(y)
        return x, y, "text"

    @staticmethod
    def backward(ctx, g, h, text):
        return g + h, None, None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, g):
        return g


class TwoSteps(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x + y, x - y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx, g, h):
        return g + h, g - h


@program()
def test_with_and_without_a_gradient(t):
    def fn(x, by):
        y = Scale.apply(x, by) + 1
        return y, y.requires_grad

    f = t.compile(fn)
    f(T(3), 2.0)
    f.hit(T(3, s=1), 2.0)
    f(T(3), 3.0)
    with torch.no_grad():
        f(T(3, rg=True), 2.0)
        f.hit(T(3, s=2, rg=True), 2.0)
    x = T(3, rg=True)
    y, _ = f(x, 2.0)
    y.sum().backward()
    t.note(x.grad)
    f.hit(T(3, rg=True), 2.0)


@program()
def test_modules_and_lists_among_the_arguments(t):
    layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
    with torch.no_grad():
        layers[0].weight.copy_(T(3, 3))
        layers[0].bias.copy_(T(3))

    def fn(x):
        seen = []
        same, y, text = Through.apply(x, layers, seen)
        return same is x, same, y, y.requires_grad, text, seen

    f = t.compile(fn)
    x = T(2, 3)
    f(x)
    f.hit(T(2, 3, s=1))
    with torch.no_grad():
        f(x)
        f(T(2, 3, rg=True))
        layers[0].weight.mul_(2)
        f.hit(T(2, 3, rg=True))


@program()
def test_an_input_that_comes_back_is_another_tensor(t):
    def fn(x):
        y, _, _ = Through.apply(x, [], [])
        y.mul_(2)
        return x, y

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))
    with torch.no_grad():
        f(T(3))


@program(one_graph=False)
def test_one_that_writes_to_its_input(t):
    def fn(x):
        y = InPlace.apply(x)
        return y is x, y * 2

    f = t.compile(fn)
    x = T(3)
    f(x)
    f(x)
    f(x)


def after_a_write():
    box = {"n": 1.0}

    def fn(x):
        box["n"] += 1
        y, z = TwoSteps.apply(x, x * box["n"])
        return y * z

    return fn


@program()
def test_after_a_write(t):
    f = t.compile(after_a_write())
    f(T(3))
    f(T(3))
    with torch.no_grad():
        f(T(3, rg=True))


@program(one_graph=False)
def test_after_a_write_with_a_gradient(t):
    f = t.compile(after_a_write())
    for _ in range(3):
        x = T(3, rg=True)
        f(x).sum().backward()
        t.note(x.grad)


@program(one_graph=False)
def test_a_parameter_that_is_given_out(t):
    weight = torch.nn.Parameter(T(3))

    class Gives(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return weight.view(3), x + 1

        @staticmethod
        def backward(ctx, g, h):
            return h

    def fn(x):
        y, z = Gives.apply(x)
        return y, y.requires_grad, z

    f = t.compile(fn)
    f(T(3))
    f(T(3))


SCALE = [2.0]


class ScaledByAGlobal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * SCALE[0]


class ScaledByAnAttribute(torch.autograd.Function):
    scale = 1.0

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ScaledByAnAttribute.scale * g


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.runs = 0
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.runs += 1
        return g * ctx.runs


def halved(g):
    return torch.stack([part / 2 for part in g.unbind()])


class Closed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        ctx.power = power
        return x**power

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return halved(g) * ctx.power * x ** (ctx.power - 1) if ctx.needs_input_grad[0] else None, None


@in_child
def test_what_backward_reads_from_outside_with_aot_autograd(front):
    """AOTAutograd runs backward() while it compiles, and never again: no guard would notice what that reads."""

    def by_attribute(x):
        return ScaledByAnAttribute.apply(x) * 2

    def edit(value):
        SCALE[0] = value
        ScaledByAnAttribute.scale = value

    for fn in (lambda x: ScaledByAGlobal.apply(x) + 1, by_attribute, lambda x: Counting.apply(x)):
        compiled = alternator.compile(fn, backend="aot_eager", fullgraph=True)
        for value in (2.0, 2.0, 5.0, 7.0):
            gradients = []
            for call in (fn, compiled):
                edit(2.0)
                x = T(3, rg=True)
                y = call(x).sum()
                edit(value)
                y.backward(retain_graph=True)
                y.backward()
                gradients.append(x.grad)
            assert torch.equal(*gradients), (value, gradients)


def tripled(g):
    return g * 3


class Patched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return tripled(g)


@in_child
def test_code_that_is_patched_with_aot_autograd(front):
    """What backward() is, and what it calls by name, is guarded."""
    first, other, third = Patched.__dict__["backward"], staticmethod(lambda ctx, g: g * 7), tripled

    def fn(x):
        return Patched.apply(x) + 1

    compiled = alternator.compile(fn, backend="aot_eager", fullgraph=True)
    graphs = []
    for backward, helper in ((first, third), (other, third), (first, third), (first, lambda g: g * 5), (other, third)):
        Patched.backward = backward
        globals()["tripled"] = helper
        gradients = []
        for call in (fn, compiled):
            x = T(3, rg=True)
            y = call(x)
            y.sum().backward()
            gradients.append(x.grad)
        assert torch.equal(*gradients), gradients
        assert type(y.grad_fn).__name__ == "CompiledFunctionBackward"
        graphs.append(front.counters()["graphs"])
    assert graphs == [1, 2, 2, 3, 3]


OUTSIDE = {"runs": 0.0}
WEIGHT = torch.ones(3)


class KeepsADict(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.outside = OUTSIDE
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.outside["runs"] += 1
        return g * ctx.outside["runs"]


class KeepsATensor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.weights = (1, WEIGHT)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.weights[1]


class KeepsAList(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.runs = [0]
        return x * 2

    @staticmethod
    def backward(ctx, g):
        runs = ctx.runs
        runs += [1]
        return g * len(runs)


class KeepsADefault(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g, runs=[]):  # noqa: B006
        runs.append(1)
        return g * (len(runs) % 3)


class AsksForTheGradMode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * (5 if torch.is_grad_enabled() else 3)


class AsksForAutocast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def vjp(ctx, g):
        return g * (5 if torch.is_autocast_enabled("cpu") else 3)


class AsksForAFlag(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * (5 if torch.backends.cudnn.enabled else 3)


@in_child
def test_what_backward_finds_on_ctx_and_around_it_with_aot_autograd(front):
    def restart():
        OUTSIDE["runs"] = 0.0
        WEIGHT.fill_(1)
        KeepsADefault.backward.__defaults__[0].clear()

    for cls in (KeepsADict, KeepsATensor, KeepsAList, KeepsADefault, AsksForTheGradMode, AsksForAutocast, AsksForAFlag):

        def fn(x, cls=cls):
            return cls.apply(x) + 1

        compiled = alternator.compile(fn, backend="aot_eager", fullgraph=True)
        found = []
        for call in (fn, compiled):
            restart()
            for i in range(3):
                x = T(3, rg=True)
                y = call(x).sum()
                WEIGHT.add_(1)
                with torch.autocast("cpu", enabled=i == 1), torch.backends.cudnn.flags(enabled=i != 1):
                    (first,) = torch.autograd.grad(y, x, retain_graph=True, create_graph=i == 1)
                    (second,) = torch.autograd.grad(y, x)
                found.append((first.tolist(), second.tolist(), OUTSIDE["runs"]))
        assert found[:3] == found[3:], (cls, found)


class KeepsShapes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.sizes = list(x.shape)
        ctx.options = {"dim": 0, "pair": (1, [2, 3])}
        return x.sum(0)

    @staticmethod
    def backward(ctx, g):
        scale = ctx.options["pair"][1][0] * torch.pi
        return g.expand(ctx.sizes).to(torch.float32) * scale


@in_child
def test_containers_that_nobody_changes_go_through_aot_autograd(front):
    def fn(x):
        return KeepsShapes.apply(x) + 1

    compiled = alternator.compile(fn, backend="aot_eager", fullgraph=True)
    gradients = []
    for call in (fn, compiled):
        x = T(3, rg=True)
        y = call(x)
        y.backward()
        gradients.append(x.grad)
    assert type(y.grad_fn).__name__ == "CompiledFunctionBackward"
    assert torch.equal(*gradients)


@in_child
def test_a_backward_of_its_arguments_alone_goes_through_aot_autograd(front):
    from alternator.backward_purity import is_closed

    assert is_closed(Closed.backward, set())
    assert not any(is_closed(cls.backward, set()) for cls in (ScaledByAGlobal, ScaledByAnAttribute, Counting))
    compiled = alternator.compile(lambda x, power: Closed.apply(x, power), backend="aot_eager", fullgraph=True)
    for power in (2, 3, 2):
        x = T(3, rg=True)
        y = compiled(x, power)
        assert type(y.grad_fn).__name__ == "CompiledFunctionBackward"
        y.sum().backward()
        assert torch.allclose(x.grad, power * x.detach() ** (power - 1) / 2)

"""Modes that the program itself enters (torch.overrides.TorchFunctionMode): their `__torch_function__` is traced for each call."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from harness import T, program
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode


class Named(TorchFunctionMode):
    """Writes down what it sees."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class SubForAdd(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.add, torch.Tensor.add, torch.Tensor.__add__):
            return torch.sub(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class Scaled(TorchFunctionMode):
    def __init__(self, scale):
        super().__init__()
        self.scale, self.calls = scale, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        result = func(*args, **(kwargs or {}))
        return result * self.scale if func is torch.relu else result


@program()
def test_calls_are_changed(t):
    def fn(x):
        with SubForAdd():
            y = torch.add(x, 1) + 2
        return y, torch.add(x, 1)

    f = t.compile(fn)
    f(T(3))
    f(T(3, rg=True))[0].sum().backward()
    f.hit(T(3))


@program()
def test_what_a_mode_sees(t):
    def fn(x, m):
        seen = []
        with Named(seen):
            y = (x * 2).relu().T.reshape(-1)[0]
            y = y + x.shape[0] + x.size(1)
            z = F.softmax(F.linear(x, x), dim=-1) @ x
            z[0] = 1.0
            w = torch.zeros(3) + torch.ones(3, dtype=torch.float64)
            v = m(x)
            z.add_(1)
        return y, z, w, v, seen, x.sum()

    f = t.compile(fn)
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.LayerNorm(2))
    f(T(2, 2), m)
    f.hit(T(2, 2), m)


@program()
def test_state_of_a_mode(t):
    def fn(x, mode):
        with mode as m:
            y = torch.relu(x)
            y = torch.relu(y)
        return y, m is mode, m.calls

    f = t.compile(fn)
    mode = Scaled(2.0)
    f(T(3), mode)
    f(T(3), mode)
    mode.scale = 3.0
    f(T(3), mode)
    fresh = Scaled(2.0)
    f(T(3), fresh)
    t.note((mode.calls, fresh.calls))


@program()
def test_modes_in_modes(t):
    def fn(x):
        outer, inner = [], []
        with Named(outer), Scaled(2.0), Named(inner):
            y = torch.relu(x)
            mode = _get_current_function_mode()
            depth = torch._C._len_torch_function_stack()
        return y, outer, inner, type(mode).__name__, depth

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))


@program()
def test_an_error_leaves_a_mode(t):
    def fn(x, k):
        try:
            with SubForAdd():
                y = torch.add(x, 1)
                if k:
                    raise KeyError(k)
        except KeyError:
            y = x
        return torch.add(y, 1)

    f = t.compile(fn)
    f(T(3), 0)
    f(T(3), 1)


@program(one_graph=False)
def test_a_break_under_a_mode(t):
    def fn(x):
        seen = []
        y = x * 2
        with Named(seen):
            y = torch.relu(y) + 1
            torch._dynamo.graph_break()
            y = F.softmax(y, dim=-1)
        return y * 2, seen

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_a_mode_that_breaks(t):
    class Breaking(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            torch._dynamo.graph_break()
            return func(*args, **(kwargs or {}))

    def fn(x):
        y = x * 2
        with Breaking():
            y = torch.relu(y) + 1
            y = F.softmax(y, dim=-1)
        return y * 2

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_a_mode_that_raises(t):
    class Raising(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.relu:
                raise ValueError("no relu")
            return func(*args, **(kwargs or {}))

    def fn(x):
        try:
            with Raising():
                x = torch.sin(x)
                x = torch.relu(x)
        except ValueError as error:
            return x, str(error)

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_a_mode_that_stays(t):
    def fn(x, mode):
        mode.__enter__()
        return torch.add(x, 1)

    f = t.compile(fn)
    mode = SubForAdd()
    f(T(3), mode)
    t.note(torch.add(T(3), 1))
    mode.__exit__(None, None, None)


@program(one_graph=False)
def test_a_mode_of_the_callers(t):
    def fn(x):
        with SubForAdd():
            return torch.add(x, 1) * 2

    f = t.compile(fn)
    seen = []
    with Named(seen):
        f(T(3))
    f(T(3))
    t.note(sorted(set(seen)))


@program()
def test_device(t):
    def fn(x):
        with torch.device("cpu"):
            y = torch.zeros(3) + x
            default = torch.get_default_device()
        return y, default, torch.ones(2)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))


@program()
def test_device_meta(t):
    def fn(x):
        with torch.device("meta"):
            y = torch.zeros(3)
            z = torch.empty(2, device="cpu").fill_(1)
        return y.device, z, torch.ones(2), y.shape

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))


@program(one_graph=False)
def test_default_device(t):
    def fn(x):
        torch.set_default_device("meta")
        y = torch.zeros(3)
        torch.set_default_device("cpu")
        z = torch.zeros(3)
        torch.set_default_device(None)
        return y.device, z.device, x + 1

    f = t.compile(fn)
    f(T(3))
    f(T(3))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.add(x, x)

    @staticmethod
    def backward(ctx, g):
        return 2 * g


@program(one_graph=False)
def test_other_things_under_a_mode(t):
    from torch.utils.checkpoint import checkpoint

    def fn(x, which):
        with SubForAdd():
            if which == 0:
                return Square.apply(x)
            if which == 1:
                return checkpoint(lambda y: torch.add(y, 1) * 2, x, use_reentrant=False)
            if which == 2:
                return torch.vmap(lambda y: torch.add(y, 1))(x)
            if which == 3:
                return torch.cond(x.sum() > 0, lambda y: torch.add(y, 1), lambda y: y * 2, (x,))
            if which == 4:
                print(torch.add(x.detach(), 1))
                return x
            return torch.add(x, float(x.sum()))

    f = t.compile(fn)
    for which in range(6):
        for _ in range(2):
            x = T(3, rg=which < 2)
            y = f(x, which)
            if which < 2:
                y.sum().backward()
                t.note(x.grad)


@program()
def test_a_class_that_changes(t):
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) * 2

    def other(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) * 3

    def fn(x):
        with Mode():
            return torch.relu(x)

    f = t.compile(fn)
    f(T(3))
    t.patch(Mode, "__torch_function__", other)
    f.miss(T(3))

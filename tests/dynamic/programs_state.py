"""State that grows, modules, training steps, breaks, and what must fail when a channel is removed."""

import time
import types

import numpy as np
import torch
import torch.nn.functional as F
from harness import T
from programs_operators import filled
from sequences import over, sequence, shapes
from torch import nn

ROWS3 = shapes((4, 3), (5, 3), (7, 3))
FIRST = [(0, 0)]
TOKENS = [*[lambda: (T(1, 2, 4),)] * 6]


# ------------------------------------------------------------------------------------------------------------ caches


@sequence(TOKENS, made=True, inductor=True)
def cache_by_cat():
    cache = types.SimpleNamespace(keys=torch.zeros(1, 0, 4))

    def fn(x):
        cache.keys = torch.cat([cache.keys, x], 1)
        return F.scaled_dot_product_attention(x, cache.keys, cache.keys)

    return fn


@sequence(TOKENS, made=True)
def cache_in_a_dict():
    cache = {}

    def fn(x):
        cache["k"] = torch.cat([cache["k"], x], 1) if "k" in cache else x
        return cache["k"].sum(1), cache["k"].shape[1]

    return fn


@sequence(TOKENS, made=True)
def cache_by_index():
    cache = types.SimpleNamespace(keys=torch.zeros(1, 16, 4), length=0)

    def fn(x):
        n = x.shape[1]
        cache.keys[:, cache.length : cache.length + n] = x
        cache.length += n
        return cache.keys[:, : cache.length].mean(1)

    return fn


@sequence(over(lambda n: (T(1, 1, 4), torch.tensor([n])), 0, 1, 2, 3), made=True)
def cache_by_index_copy():
    cache = torch.zeros(1, 8, 4)

    def fn(x, position):
        cache.index_copy_(1, position, x)
        return (torch.arange(8) <= position)[None, :, None] * cache

    return fn


@sequence(over(lambda n: (T(1, 1, 4), n), 0, 1, 2, 3, 4), made=True)
def cache_by_position():
    cache = torch.zeros(1, 8, 4)

    def fn(x, position):
        cache[:, position] = x[:, 0]
        mask = torch.arange(8) <= position
        return cache * mask[None, :, None]

    return fn


@sequence(over(lambda n: (T(1, n, 4), T(1, 1, 4)), 3, 4, 5, 6), marks=[(0, 1)])
def cache_handed_over(cache, x):
    cache = torch.cat([cache, x], dim=1)
    return cache, x @ cache.transpose(1, 2)


@sequence(over(lambda n: ([(T(1, n, 4), T(1, n, 4, s=1)) for _ in range(2)], T(1, 1, 4)), 3, 4, 5))
def caches_of_layers(caches, x):
    made = []
    for keys, values in caches:
        keys, values = torch.cat([keys, x], 1), torch.cat([values, x], 1)
        x = torch.softmax(x @ keys.transpose(1, 2), -1) @ values
        made.append((keys, values))
    return x, tuple(made)


@sequence([*[lambda: (T(3),)] * 5], made=True)
def history_of_tensors():
    history = []

    def fn(x):
        history.append(x)
        return torch.stack(history[-3:]).mean(0)

    return fn


@sequence(shapes((4, 3), (5, 3), (6, 3)), made=True)
def shape_kept_on_self():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.shape, self.most, self.seen = None, 0, {}

        def forward(self, x):
            self.shape, self.n = x.shape, x.shape[0]
            self.most = max(self.most, self.n)
            self.seen[self.n] = self.seen.get(self.n, 0) + 1
            return x * self.n

    return Keeping()


@sequence(shapes((4, 3), (5, 3), (5, 3), (6, 3), (4, 3)), made=True)
def mask_made_when_longer():
    class Masking(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(1, 1))

        def forward(self, x):
            n = x.shape[0]
            if self.mask.shape[0] < n:
                self.mask = torch.tril(torch.ones(n, n))
            return self.mask[:n, :n] @ x

    return Masking()


@sequence(shapes((4,), (5,), (6,), (4,)), made=True)
def memo_by_size():
    tables = {}

    def fn(x):
        n = x.shape[0]
        if n not in tables:
            tables[n] = torch.arange(n) * 2.0
        return x + tables[n]

    return fn


@sequence(shapes((4,), (5,), (4,), (6,)), made=True)
def last_size_remembered():
    last = types.SimpleNamespace(n=None)

    def fn(x):
        same = last.n == x.shape[0]
        last.n = x.shape[0]
        return x * 2 if same else x

    return fn


@sequence(over(lambda n: (T(n, 3),), 4, 5, 7), made=True)
def module_of_modules():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.inner = nn.LayerNorm(3), nn.Linear(3, 3)

        def forward(self, x):
            return x + self.inner(self.norm(x)) / x.shape[0]

    return filled(nn.Sequential(*[Residual() for _ in range(3)]))


@sequence(over(lambda n: (T(n, 3),), 4, 5, 7), made=True)
def list_of_experts():
    experts = nn.ModuleList([filled(nn.Linear(3, 3)) for _ in range(3)])

    def fn(x):
        return torch.cat([expert(part) for expert, part in zip(experts, x.chunk(3), strict=False)])

    return fn


# ---------------------------------------------------------------------------------------------------------- training


@sequence(over(lambda n: (T(n, 3, rg=True), T(3, 2, rg=True)), 4, 5, 7), backward=True, marks=FIRST, inductor=True)
def product_with_gradient(x, w):
    return torch.tanh(x @ w) / x.shape[0]


@sequence(over(lambda n, m: (T(n, 3, rg=True), T(m, 3, rg=True)), (4, 1), (5, 1), (5, 5), (1, 6)), backward=True)
def broadcast_with_gradient(x, y):
    return x * y


@sequence(over(lambda n: (T(n, 3, rg=True),), 4, 5, 7), backward=True, marks=FIRST)
def views_with_gradient(x):
    y = x.reshape(-1)[1:]
    return torch.cat([y, y * 2]).view(2, -1), x.t()[0]


@sequence(over(lambda n: (T(n, 3, rg=True),), 4, 5, 7))
def backward_inside(x):
    (x * x.shape[0]).sin().sum().backward()
    return x.grad * 2


@sequence(over(lambda n: (T(n, 3, rg=True),), 4, 5, 7))
def gradient_inside(x):
    (g,) = torch.autograd.grad((x**3).mean(), x)
    return g, g.shape[0]


@sequence(over(lambda n: (T(n, 3),), 4, 5, 7, 2), made=True)
def training_step():
    net = filled(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@sequence([*[lambda: (T(4, 3),)] * 5], made=True)
def schedule_with_sgd():
    net = filled(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step


@sequence([*[lambda: (T(4, 3),)] * 5], made=True)
def schedule_with_adamw():
    net = filled(nn.Linear(3, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)

    def step(x):
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * 0.5
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@sequence([*[lambda: (T(3),)] * 5], made=True)
def step_by_hand():
    weight = T(3, rg=True)
    state = types.SimpleNamespace(lr=0.1)

    def step(x):
        loss = (weight * x).square().sum()
        (grad,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight.sub_(state.lr * grad)
        state.lr *= 0.5
        return loss.detach()

    return step


@sequence(over(lambda lr: (T(3), lr), 0.1, 0.05, 0.025, 0.0125))
def rate_as_argument(w, lr):
    w.add_(torch.ones(3), alpha=-lr)
    return w * (1 - lr)


@sequence(over(lambda n: (T(n, 3),), 8, 8, 3), made=True)
def last_batch_smaller():
    net = filled(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    return lambda x: net(x).mean() * x.shape[0]


# ------------------------------------------------------------------------------------------------------------ breaks


@sequence(ROWS3)
def break_between(x):
    y = x * 2
    time.sleep(0)
    return y.view(y.shape[0], -1) + 1


@sequence(ROWS3)
def size_across_a_break(x):
    n = x.shape[0]
    half = n // 2
    time.sleep(0)
    return x[:half] * n, n, half


@sequence(shapes((3,), (4,), (6,)))
def loop_behind_a_break(x):
    time.sleep(0)
    for i in range(x.shape[0]):
        x = x + i
    return x


@sequence([*[lambda: (T(3),)] * 2])
def break_in_a_loop(x):
    for i in range(5):
        x = x * 2 + i
        time.sleep(0)
    return x


@sequence(shapes((2,), (3,), (5,)))
def break_in_a_loop_over_a_size(x):
    y = x
    for i in range(len(x)):
        time.sleep(0)
        y = torch.cat([y, x[i : i + 1]])
    return y, y.shape[0]


@sequence(over(lambda n: (T(3), n), 1, 2, 3, 4))
def number_across_a_break(x, n):
    m = n * 2
    time.sleep(0)
    return x * m + n, m


@sequence(over(lambda f: (T(3), f), 0.1, 0.2, 0.3))
def float_across_a_break(x, f):
    y = x * f
    time.sleep(0)
    return y + f / 2


@sequence(ROWS3)
def break_on_data(x):
    if x.sum() > 100:
        return x
    return x[: x.shape[0] - 1] * len(x)


@sequence(ROWS3)
def printed_between(x):
    y = x.sin()
    print(y.shape[0], "rows")
    return y.sum(0) / y.shape[0]


@sequence(ROWS3, made=True)
def break_in_a_callee():
    def inner(y, n):
        z = y * n
        time.sleep(0)
        return z[: n // 2]

    def fn(x):
        return inner(x + 1, x.shape[0]).sum(0)

    return fn


@sequence([*[lambda: (T(3),)] * 4], made=True)
def counter_across_a_break():
    state = types.SimpleNamespace(n=0)

    def fn(x):
        state.n += 1
        y = x * state.n
        time.sleep(0)
        return y + state.n

    return fn


# ---------------------------------------------------------------------------------------- what a removed channel breaks


@sequence(shapes((4,), (5,)))
def zeros_of_bytes(x):
    return torch.zeros(x.nbytes), x.sum() / x.numel()


@sequence(shapes((4, 3), (5, 3), (1, 3), (7, 3)))
def known_tensor_returned(x):
    y = x.t().contiguous()
    y.add_(1)
    return x, y


@sequence(shapes((4,), (5,)))
def known_values(x):
    return torch.tensor(x.shape[0]) * x, torch.tensor(x.shape).sum(), torch.tensor(x.shape[0]).item()


@sequence(over(lambda n, p: (torch.tensor(p), T(n)), (4, True), (5, True), (5, False), (6, False)))
def cond_of_views(p, x):
    return torch.cond(p, lambda x: x.view(x.shape[0], 1) * 2, lambda x: x.view(x.shape[0], 1) + 1, (x,))


@sequence(shapes((4,), (5,), (6,)))
def numpy_of_size(x):
    return torch.from_numpy(x.numpy().reshape(x.shape[0], 1)) * 2, x.numpy().shape


@sequence(shapes((4,), (5,), (6,)))
def numpy_made(x):
    return torch.from_numpy(np.arange(x.shape[0])) + x, np.zeros(len(x)).shape


@sequence(over(lambda n: views_that_overlap(n), 4, 5, 6))
def writes_to_overlapping(x, y):
    y.add_(x[1:])
    return x


def views_that_overlap(n):
    x = T(n)
    return x, x[1:]


@sequence(over(lambda n: (T(n + 2)[2:],), 4, 5))
def storage_offset_asked(x):
    return x * x.storage_offset(), x[1:].storage_offset()


@sequence(over(lambda n: (T(n, 3, rg=True),), 4, 5))
def backward_on_a_leaf(x):
    loss = (x * 2).sum()
    loss.backward()
    return loss.detach()


@sequence(shapes((4, 4), (4, 5), (4, 6), (4, 3)))
def fails_for_four_only(x):
    return x[:, 4] * 2


@sequence(shapes((4,), (1,), (0,), (2,), (5,)))
def one_and_zero_after_four(x):
    return x.view(x.shape[0], 1) * torch.ones(1, 3), x.sum()


@sequence(over(lambda n, marked: marked_or_not(n, marked), (4, False), (5, True), (6, True), (7, False)))
def marked_in_the_second_call(x):
    return x * 2


def marked_or_not(n, marked):
    x = T(n, 3)
    if marked:
        torch._dynamo.mark_dynamic(x, 0)
    return (x,)


@sequence(over(lambda n: maybe_marked(n), 4, 5, 6))
def maybe_marked_and_specialized(x):
    return x * [0, 1, 2, 3, 4, 5, 6, 7][x.shape[0]]


def maybe_marked(n):
    x = T(n, 3)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return (x,)


@sequence(over(lambda n: static_marked(n), 4, 5, 4, 5))
def marked_static(x):
    return x + x.shape[0]


def static_marked(n):
    x = T(n, 3)
    torch._dynamo.mark_static(x, 0)
    return (x,)

"""After warm-up, calls and compile/reset cycles leave the number of objects, tensors and storages where it was."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import torch
from harness import T
from torch import nn
from trace_support import Held, eager_backend, in_child


class Box:
    def __init__(self, n):
        self.n, self.items = n, [n]


def steady(work: Any, times: int, warm_up: int = 50) -> None:
    """Does something many times; the process must not hold more afterwards."""
    logging.getLogger("alternator").setLevel(logging.CRITICAL)  # pytest keeps every record
    for _ in range(warm_up):
        work()
    before = Held()
    for _ in range(times):
        work()
    after = Held()
    grown = after.grown(before)
    if grown:
        # Once more: what was grown for good is not grown again, a leak is.
        for _ in range(times):
            work()
        grown = Held().grown(after)
    assert not grown, grown


@in_child
def test_100_000_calls(front):
    f = front.compile(lambda x, n: [x + n, {"k": n}], eager_backend)
    x = T(2)
    steady(lambda: f(x, 2), 100_000)


@in_child
def test_100_000_calls_with_effects(front):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.latest = None

        def forward(self, x, out):
            self.latest = x.shape[0]
            out.clear()
            out.append(self.linear(x))
            return out

    net, x, out = Net(), T(2, 2), []
    f = front.compile(net, eager_backend)
    with torch.no_grad():
        steady(lambda: f(x, out), 20_000)


@in_child
def test_calls_that_miss_and_hit_in_turn(front):
    f = front.compile(lambda x, n: x + n, eager_backend)
    x = T(2)

    def work():
        for n in range(4):
            f(x, n)

    steady(work, 5_000)


@in_child
def test_calls_that_raise(front):
    def fn(x, n):
        y = x + n
        if n > 1:
            raise ValueError(f"big {n}")
        return y

    f = front.compile(fn, eager_backend)
    x = T(2)

    def work():
        for n in (1, 2):
            try:
                f(x, n)
            except ValueError:
                pass

    steady(work, 5_000)


@in_child
def test_calls_that_cannot_be_captured(front):
    f = front.compile(lambda x: (x.sum().item() > 0, x + 1), eager_backend)
    x = T(2)
    steady(lambda: f(x), 1_000)


@in_child
def test_calls_with_training(front):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    f = front.compile(net, eager_backend)
    x = T(3, 4)

    def work():
        f(x).sum().backward()
        net.zero_grad()

    steady(work, 5_000)


@in_child
def test_calls_that_make_classes_functions_and_cycles(front):
    def fn(x):
        class Made:
            k = 1

        def inner():
            return inner, Made

        loop = [inner]
        loop.append(loop)
        return loop, Made(), x + 1

    f = front.compile(fn, eager_backend)
    x = T(2)
    steady(lambda: f(x), 2_000)


@in_child
def test_1000_compile_and_reset_cycles(front):
    def fn(o, x):
        o.seen = [o.n, {"k": x * o.n}]
        return x + o.n

    box, x = Box(2), T(2)

    def work():
        front.reset()
        front.compile(fn, eager_backend)(box, x)

    steady(work, 1_000)
    front.reset()


@in_child
def test_compile_and_reset_cycles_of_a_model(front):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    x = T(3, 4)

    def work():
        front.reset()
        f = front.compile(net, eager_backend)
        f(x).sum().backward()
        f(x)

    steady(work, 200)


@in_child
def test_compile_and_drop_without_reset(front):
    def work():
        def fn(x):
            return x + 1

        front.compile(fn, eager_backend)(T(2))

    steady(work, 500)


@in_child
def test_compile_and_drop_of_other_code_each_time(front):
    def work():
        made = {}
        exec("def fn(x): return x + 1", made)
        front.compile(made["fn"], eager_backend)(T(2))

    steady(work, 300, warm_up=100)


@in_child
def test_compile_and_drop_with_other_arguments_each_time(front):
    def fn(x, text):
        return x + len(text)

    texts = iter(str(n) * (n % 40) for n in range(10**6))
    # What the first thousand leave behind converges.
    steady(lambda: front.compile(fn, eager_backend)(T(2), next(texts)), 300, warm_up=1200)


@in_child
def test_traces_that_are_given_up(front):
    def fn(o, x):
        o.items.append(x + 1)
        y = x * 2
        return float(y.sum()), o

    def work():
        front.reset()
        front.compile(fn, eager_backend)(Box(1), T(2))

    steady(work, 300)


@in_child
def test_inputs_of_the_first_call_are_collectable(front):
    def fn(x, o, items, d, net):
        items.append(1)
        return net(x) * o.n + len(items) + d["k"][0].n

    f = front.compile(fn, eager_backend)
    x, box, inner, net = T(2, 2), Box(2), Box(3), nn.Linear(2, 2)

    class Items(list):
        pass

    items = Items([1])
    refs = [weakref.ref(one) for one in (x, box, inner, net, net.weight, items)]
    result = f(x, box, items, {"k": [inner]}, net)
    refs.append(weakref.ref(result))
    del x, box, items, inner, net, result
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)
    assert f(T(2, 2), Box(2), Items([1]), {"k": [Box(3)]}, nn.Linear(2, 2)).shape == (2, 2)


@in_child
def test_inputs_are_released_at_once(front):
    """By reference count, as in eager: no collection is needed."""
    gc.disable()
    f = front.compile(lambda x, o: x * o.n, eager_backend)
    for _ in range(3):
        x, box = T(2), Box(2)
        refs = weakref.ref(x), weakref.ref(box)
        f(x, box)
        del x, box
        assert [ref() for ref in refs] == [None, None]


@in_child
def test_results_belong_to_the_caller(front):
    gc.disable()

    def fn(x):
        box = Box(1)
        box.y = x + 1
        return box

    f = front.compile(fn, eager_backend)
    for _ in range(3):
        result = f(T(2))
        refs = weakref.ref(result), weakref.ref(result.y)
        del result
        assert [ref() for ref in refs] == [None, None]


@in_child
def test_a_compiled_closure_is_collectable(front):
    def make():
        big = Box(1)

        def fn(x):
            return x + big.n

        return front.compile(fn, eager_backend), weakref.ref(big), weakref.ref(fn)

    f, big, fn = make()
    f(T(2))
    f(T(2))
    del f
    gc.collect()
    assert big() is None and fn() is None


@in_child
def test_a_model_is_collectable_after_reset(front):
    net = nn.Linear(2, 2)
    ref, weight = weakref.ref(net), weakref.ref(net.weight)
    f = front.compile(net, eager_backend)
    f(T(2, 2))
    front.reset()
    del f, net
    gc.collect()
    assert ref() is None and weight() is None


@in_child
def test_stored_objects_die_when_they_are_replaced(front):
    gc.disable()
    keeper = Box(0)

    def fn(x):
        keeper.latest = [x + 1]
        return x

    f = front.compile(fn, eager_backend)
    for _ in range(4):
        f(T(2))
        ref = weakref.ref(keeper.latest[0])
        f(T(2))
        assert ref() is None


@in_child
def test_an_exception_keeps_only_what_it_holds(front):
    gc.disable()

    def fn(o, x):
        raise ValueError("v")

    f = front.compile(fn, eager_backend)
    for _ in range(3):
        box = Box(1)
        ref = weakref.ref(box)
        try:
            f(box, T(2))
        except ValueError as error:
            error.__traceback__ = None
        del box
        assert ref() is None

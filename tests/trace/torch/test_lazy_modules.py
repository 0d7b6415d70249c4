"""torch.nn.LazyLinear and its like: the call that makes their parameters falls back to eager, those behind it are compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness import T, program
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter
from trace_support import in_child

import alternator
from alternator import exc


class Materialized(nn.Module):
    param: Any

    def forward(self, x: Any) -> Any:
        return x * self.param


class Lazy(LazyModuleMixin, Materialized):
    cls_to_become = Materialized

    def __init__(self) -> None:
        super().__init__()
        self.param = UninitializedParameter()
        self.seen = 0

    def initialize_parameters(self, x: Any) -> None:
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.param.materialize(x.shape[-1:])
                self.param.fill_(2.0)
            self.seen += 1


class Picky(Lazy):
    def initialize_parameters(self, x: Any) -> None:
        if x.dim() != 2:
            raise ValueError("not two dimensions")
        super().initialize_parameters(x)


def lazy_net() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))


@program()
def test_first_call_and_the_others(t):
    net = lazy_net()
    t.watch(lambda: net)
    f = t.compile(lambda x: net(x) * 2)
    f.free(T(3, 5))
    f(T(3, 5))
    f.hit(T(3, 5, s=1))
    f.free(T(3, 6))  # an error of eager's: the sizes are known now


@program()
def test_compiled_itself_and_trained(t):
    net = lazy_net()
    t.watch(lambda: net)
    f = t.compile(net)
    f.free(T(3, 5)).sum().backward()
    for _ in range(2):
        f.free(T(3, 5)).sum().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1 * parameter.grad


@program()
def test_random_numbers_before_it(t):
    net = nn.LazyLinear(3)
    t.watch(lambda: net)
    f = t.compile(lambda x: net(x + torch.rand(2, 4)))
    f.free(T(2, 4))
    f(T(2, 4))
    f.hit(T(2, 4))


@program()
def test_another_module_after_it(t):
    def fn(net, x):
        return net(x + 1)

    f = t.compile(fn)
    for _ in range(2):
        net = Lazy()
        t.watch(lambda net=net: net)
        f.free(net, T(2, 3))
        f(net, T(2, 3))
        f.hit(net, T(2, 3, s=1))


@program(one_graph=False)
def test_what_goes_wrong_in_it(t):
    net = Picky()
    t.watch(lambda: net)
    f = t.compile(lambda x: net(x.sin()))
    f(T(2))
    f(T(2, 3))
    f(T(2, 3))
    f(T(2))


@program(one_graph=False)
def test_made_in_the_call(t):
    def fn(x):
        net = Lazy()
        return net(x.sin()).cos(), net

    f = t.compile(fn)
    for _ in range(3):
        f(T(2, 3))


@program(one_graph=False)
def test_behind_a_break(t):
    net = Lazy()
    t.watch(lambda: net)

    def fn(x):
        x = x.sin()
        alternator.graph_break()
        return net(x).cos()

    f = t.compile(fn)
    for _ in range(3):
        f(T(2, 3))


@program()
def test_no_parameters_are_missing(t):
    net = nn.LazyBatchNorm3d(affine=False, track_running_stats=False)
    t.watch(lambda: net)
    f = t.compile(lambda: net(torch.ones(2, 3, 2, 2, 2)))
    f.free()
    f()
    f.hit()


@in_child
def test_counts(front: Any) -> None:
    net = lazy_net()
    f = front.compile(net, "eager", fullgraph=True)
    x = T(3, 5)
    f(x)
    counts = alternator.counters()
    assert (counts["eager"], counts["graphs"], counts["breaks"]) == (1, 0, {"uninitialized_parameter": 1})
    f(x)
    f(x)
    counts = alternator.counters()
    assert (counts["eager"], counts["graphs"], counts["hits"]) == (1, 1, 1)


@in_child
def test_export(front: Any) -> None:
    net = Lazy()
    with pytest.raises(exc.Unsupported, match="call the module once before"):
        alternator.export(net, T(2, 3))
    exported = alternator.export(net, T(2, 3))
    assert torch.equal(exported.graph_module(T(2, 3, s=1)), net(T(2, 3, s=1)))

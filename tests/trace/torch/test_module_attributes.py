"""What torch.nn.Module.__getattr__ finds, read without its frame: the same answers and the same guards."""

from __future__ import annotations

import types

import torch
from harness import T, program
from torch import nn

import alternator


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_parameter("bias", None)
        self.register_buffer("offset", torch.full((3,), 2.0))
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        x = x * self.weight + self.offset
        return self.inner(x if self.bias is None else x + self.bias)


@program()
def test_each_kind_of_entry_and_its_changes(t):
    net = Holder()
    f = t.compile(net)
    f(T(3))
    f.hit(T(3))
    net.weight = nn.Parameter(torch.full((3,), 5.0))
    f(T(3))
    net.bias = nn.Parameter(torch.ones(3))
    f(T(3))
    net.offset = torch.zeros(3)
    f(T(3))
    net.inner = nn.Identity()
    f(T(3))
    del net.bias
    net.bias = None
    f(T(3))


@program()
def test_what_stands_in_front(t):
    """An attribute of the instance or the class is found before a parameter of that name."""
    net = Holder()
    f = t.compile(net)
    f(T(3))
    net.__dict__["weight"] = torch.zeros(3)
    f(T(3))
    del net.__dict__["weight"]
    f(T(3))
    # A parameter stands before a buffer of the same name.
    net._parameters["offset"] = nn.Parameter(torch.full((3,), 9.0))
    f(T(3))
    del net._parameters["offset"]
    f(T(3))


@program()
def test_a_getattr_of_ones_own_over_it(t):
    class Named(Holder):
        def __getattr__(self, name):
            if name == "scale":
                return super().__getattr__("offset")
            return super().__getattr__(name)

        def forward(self, x):
            return super().forward(x) * self.scale

    net = Named()
    f = t.compile(net)
    f(T(3))
    f.hit(T(3))
    net.offset = torch.zeros(3)
    f(T(3))


@program()
def test_a_name_that_is_not_there(t):
    class Asking(Holder):
        def forward(self, x):
            found = getattr(self, "extra", None)
            try:
                self.missing  # noqa: B018
            except AttributeError as error:
                text = str(error)
            return x if found is None else x + found, text, hasattr(self, "weight")

    net = Asking()
    f = t.compile(net)
    f(T(3))
    f.hit(T(3))
    net.extra = nn.Parameter(torch.ones(3))
    f(T(3))
    del net.extra
    f(T(3))


@program()
def test_writes_in_the_call_are_seen(t):
    class Writing(Holder):
        def forward(self, x):
            before = self.offset
            self.offset = before + 1
            self._buffers["late"] = x
            return self.late + self.offset

    net = Writing()
    f = t.compile(net)
    f(T(3))
    f(T(3))


@program()
def test_another_getattribute(t):
    class Odd(Holder):
        def __getattribute__(self, name):
            return super().__getattribute__("inner_scale" if name == "scale" else name)

        def forward(self, x):
            return super().forward(x) * self.scale

    net = Odd()
    net.inner_scale = 3
    f = t.compile(net)
    f(T(3))
    f(T(3))


@program()
def test_attention_is_one_graph(t):
    torch.manual_seed(0)
    net = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def attend(x):
        return net(x, x, x, need_weights=False)[0]

    f = t.compile(attend)
    x = torch.randn(2, 4, 8)
    with torch.no_grad():
        f(x)
        f.hit(x)
    f(x)


@program(one_graph=False)
def test_breaks_in_a_modules_getattr(t):
    module = types.ModuleType("of_a_test")

    def missing(name):
        alternator.graph_break()
        if name == "absent":
            raise AttributeError("nothing of that name")
        return lambda x: x * 2

    module.__getattr__ = missing

    def fn(x):
        y = module.double(x)
        try:
            module.absent  # noqa: B018
        except AttributeError as error:
            return y, module.other(y), error.name, error.obj is module
        return y

    f = t.compile(fn)
    f(T(2))
    f(T(2, s=1))

"""Edits to a live model, its classes and the process between calls: the next call sees them, and an undone edit is a hit again."""

from __future__ import annotations

import abc
import collections.abc
import os
import types

import torch
from harness import T, program
from torch import nn


class Scale(nn.Module):
    def __init__(self, n=2.0):
        super().__init__()
        self.n = n

    def forward(self, x):
        return x * self.n


def make_net():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


# ------------------------------------------------------------------------------------------- parameters and tensors


@program(graphs=1)
def test_weights_changed_in_place(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    with torch.no_grad():
        net[0].weight.add_(1)
        net[2].bias.zero_()
    f.hit(T(2, 4))


@program(graphs=1)
def test_parameter_replaced(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4)).sum().backward()
    net[2].weight = nn.Parameter(T(4, 4, s=3))
    f.hit(T(2, 4)).sum().backward()


@program()
def test_parameter_replaced_by_another_shape(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    net[2].weight = nn.Parameter(T(3, 4))
    net[2].bias = nn.Parameter(T(3))
    f(T(2, 4))
    net[2].weight = nn.Parameter(T(4, 4).t().contiguous().t())
    net[2].bias = nn.Parameter(T(4))
    f(T(2, 4))


@program()
def test_data_assigned(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    net[0].weight.data = torch.ones(4, 4)
    f(T(2, 4)).sum().backward()
    net[0].weight.data = torch.ones(8, 4)
    net[0].bias.data = torch.ones(8)
    net[2].weight.data = torch.ones(4, 8)
    net.zero_grad()
    f(T(2, 4))
    net[0].weight.data = net[0].weight.data.t().contiguous().t()
    f(T(2, 4))


@program()
def test_data_assigned_to_an_alias(t):
    """Two parameters become views of one storage: writing to one shows in the other."""

    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", T(4))
            self.register_buffer("b", T(4))

        def forward(self, x):
            self.a.add_(1)
            return x + self.b

    net = Writing()
    f = t.compile(net)
    f(T(4))
    net.b.data = net.a.data
    f(T(4))
    f(T(4))


@program()
def test_requires_grad(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4)).sum().backward()
    net[0].weight.requires_grad_(False)
    net[0].bias.requires_grad_(False)
    f(T(2, 4)).sum().backward()
    net.requires_grad_(False)
    f(T(2, 4))
    net.requires_grad_(True)
    f.hit(T(2, 4)).sum().backward()


@program()
def test_bias_becomes_none(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    net[0].bias = None
    f(T(2, 4))
    net[0].bias = nn.Parameter(T(4))
    f.hit(T(2, 4))


@program()
def test_weights_tied_and_untied(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4)).sum().backward()
    own = net[2].weight
    net[2].weight = net[0].weight
    f(T(2, 4)).sum().backward()
    net[2].weight = own
    f(T(2, 4)).sum().backward()


@program()
def test_modules_tied(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4)).sum().backward()
    net[2] = net[0]
    f(T(2, 4)).sum().backward()
    net[2] = nn.Linear(4, 4)
    f(T(2, 4)).sum().backward()


@program()
def test_dtype_and_layout_of_the_model(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    net.double()
    f(T(2, 4, dtype=torch.float64))
    net.float()
    f(T(2, 4))


@program()
def test_state_dict_loaded(t):
    net, other = make_net(), make_net()
    f = t.compile(net)
    f(T(2, 4))
    net.load_state_dict(other.state_dict())
    f.hit(T(2, 4))


@program()
def test_gradients_present_or_not(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4)).sum().backward()
    f.hit(T(2, 4)).sum().backward()
    net.zero_grad()
    f.hit(T(2, 4)).sum().backward()


@program()
def test_buffer_becomes_parameter(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", T(2))

        def forward(self, x):
            return x * self.w

    net = Net()
    f = t.compile(net)
    f(T(2))
    del net.w
    net.w = nn.Parameter(T(2, s=1))
    f(T(2)).sum().backward()
    del net.w
    net.w = T(2, s=2)
    f(T(2))


# ----------------------------------------------------------------------------------------------------------- hooks


@program()
def test_forward_hook_added_and_removed(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    handle = net[2].register_forward_hook(lambda module, args, result: result * 2)
    f(T(2, 4))
    handle.remove()
    f(T(2, 4))


@program()
def test_pre_hook_added_and_removed(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    handle = net[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    f(T(2, 4))
    handle.remove()
    f(T(2, 4))


@program()
def test_hook_on_the_compiled_module_itself(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    handle = net.register_forward_hook(lambda module, args, result: result - 1)
    f(T(2, 4))
    handle.remove()
    f(T(2, 4))


@program()
def test_hook_replaced_by_another(t):
    net = make_net()
    net.calls = []
    f = t.compile(net)
    handle = net[0].register_forward_hook(lambda module, args, result: net.calls.append(1))
    f(T(2, 4))
    handle.remove()
    handle = net[0].register_forward_hook(lambda module, args, result: net.calls.append(2) or result * 3)
    f(T(2, 4))


@program()
def test_hooks_with_kwargs_and_state(t):
    net = Scale()
    log = []

    def hook(module, args, kwargs, result):
        log.append(sorted(kwargs))
        module.seen = len(log)
        return result + len(log)

    net.register_forward_hook(hook, with_kwargs=True)
    f = t.compile(net)
    f(T(2))
    f(T(2))
    f(x=T(2))


@program(one_graph=False)
def test_global_hook(t):
    net = make_net()
    names = []
    f = t.compile(net)
    f(T(2, 4))
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, result: names.append(type(module).__name__)
    )
    t.undo(handle.remove)
    t.watch(lambda: names)
    f(T(2, 4))
    handle.remove()
    f(T(2, 4))


@program(one_graph=False)
def test_backward_hook(t):
    net = make_net()
    seen = []
    f = t.compile(net)
    f(T(2, 4)).sum().backward()
    handle = net[0].register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(len(grad_output)))
    t.watch(lambda: seen)
    f(T(2, 4)).sum().backward()
    handle.remove()
    f(T(2, 4)).sum().backward()


@program()
def test_tensor_hook_on_a_parameter(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4)).sum().backward()
    net.zero_grad()
    handle = net[0].weight.register_hook(lambda grad: grad * 2)
    f(T(2, 4)).sum().backward()
    handle.remove()
    f(T(2, 4)).sum().backward()


@program(one_graph=False)
def test_hook_that_raises(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))

    def hook(module, args, result):
        raise RuntimeError("from a hook")

    handle = net[1].register_forward_hook(hook)
    f(T(2, 4))
    handle.remove()
    f(T(2, 4))


@program()
def test_hook_that_always_runs(t):
    """Also when forward raises, whether or not the function catches it."""
    net = make_net()
    log = []
    t.watch(lambda: log)

    def fn(x, caught):
        if not caught:
            return net(x)
        try:
            return net(x)
        except ValueError:
            return x + 1

    f = t.compile(fn)
    net.register_forward_hook(lambda module, args, result: log.append(type(result).__name__), always_call=True)

    def refuse(module, args):
        raise ValueError("no")

    f(T(2, 4), False)
    handle = net[1].register_forward_pre_hook(refuse)
    f(T(2, 4), True)
    f.hit(T(2, 4), True)
    f(T(2, 4), False)
    handle.remove()
    f(T(2, 4), True)


# --------------------------------------------------------------------------------------------- methods and classes


@program()
def test_forward_patched_on_the_instance(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    net[1].forward = lambda x: x * 5
    f(T(2, 4))
    del net[1].forward
    f.hit(T(2, 4))


@program()
def test_forward_of_the_root_patched(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    net.forward = lambda x: x * 5
    f(T(2, 4))
    del net.forward
    f(T(2, 4))


@program()
def test_forward_patched_on_the_class(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    old = nn.Linear.forward
    t.patch(nn.Linear, "forward", lambda self, x: old(self, x) + 1)
    f(T(2, 4))
    nn.Linear.forward = old
    f.hit(T(2, 4))


@program()
def test_method_patched_on_a_base_class(t):
    class Base(nn.Module):
        def helper(self, x):
            return x * 2

    class Net(Base):
        def forward(self, x):
            return self.helper(x)

    net = Net()
    f = t.compile(net)
    f(T(2))
    Base.helper = lambda self, x: x * 3
    f(T(2))
    Net.helper = lambda self, x: x * 4
    f(T(2))
    del Net.helper
    f(T(2))


@program()
def test_call_patched_on_the_class(t):
    class Net(Scale):
        pass

    inner = Net()
    f = t.compile(lambda x: inner(x))
    f(T(2))
    Net.__call__ = lambda self, x: x - 1
    f(T(2))
    del Net.__call__
    f(T(2))


@program()
def test_special_method_patched(t):
    class Number:
        def __init__(self, n):
            self.n = n

        def __mul__(self, x):
            return x * self.n

    number = Number(2)
    f = t.compile(lambda x: number * x)
    f(T(2))
    Number.__mul__ = lambda self, x: x * 10
    f(T(2))
    Number.__rmul__ = lambda self, x: "not asked"
    f(T(2))
    del Number.__mul__
    f.free(T(2))


@program()
def test_getattr_patched_on_module_class(t):
    class Net(nn.Module):
        def forward(self, x):
            return x * self.scale

    net = Net()
    net.scale = 2
    f = t.compile(net)
    f(T(2))
    del net.scale
    Net.scale = 3
    f(T(2))
    del Net.scale
    Net.__getattr__ = lambda self, name: 4 if name == "scale" else nn.Module.__getattr__(self, name)
    f(T(2))


@program()
def test_base_class_changed(t):
    class A:
        def scale(self):
            return 2

    class B:
        def scale(self):
            return 3

    class C(A):
        pass

    one = C()
    f = t.compile(lambda x: x * one.scale())
    f(T(2))
    C.__bases__ = (B,)
    f(T(2))
    C.__bases__ = (A,)
    f(T(2))


@program()
def test_base_class_changed_above(t):
    class Root1:
        k = 2

    class Root2:
        k = 3

    class Middle(Root1):
        pass

    class Leaf(Middle):
        pass

    one = Leaf()
    f = t.compile(lambda x: x * one.k)
    f(T(2))
    Middle.__bases__ = (Root2,)
    f(T(2))


@program()
def test_class_assigned(t):
    class A(nn.Module):
        def forward(self, x):
            return x * 2

    class B(nn.Module):
        def forward(self, x):
            return x * 3

    net = nn.Sequential(A(), A())
    f = t.compile(net)
    f(T(2))
    net[1].__class__ = B
    f(T(2))
    net[1].__class__ = A
    f.hit(T(2))
    net[0].__class__ = nn.Identity
    f(T(2))


@program()
def test_class_of_the_root_assigned(t):
    class A(nn.Module):
        def forward(self, x):
            return x * 2

    class B(nn.Module):
        def forward(self, x):
            return x * 3

    net = A()
    f = t.compile(net)
    f(T(2))
    net.__class__ = B
    f(T(2))


@program()
def test_unrelated_class_attribute_is_no_reason_to_trace_again(t):
    class Net(Scale):
        unrelated = 1

    net = Net()
    f = t.compile(net)
    f(T(2))
    Net.unrelated = 2
    f.hit(T(2))
    Net.another = 3
    f.hit(T(2))
    net.unused = 5
    f.hit(T(2))


@program()
def test_property_replaced(t):
    class Net(nn.Module):
        @property
        def scale(self):
            return 2

        def forward(self, x):
            return x * self.scale

    net = Net()
    f = t.compile(net)
    f(T(2))
    Net.scale = property(lambda self: 3)
    f(T(2))
    Net.scale = 4
    f(T(2))


@program()
def test_helper_function_replaced(t):
    global helper

    def helper(x):
        return x * 2

    f = t.compile(lambda x: helper(x))
    f(T(2))

    def helper(x):
        return x * 3

    f(T(2))
    del globals()["helper"]
    f(T(2))


@program()
def test_method_of_another_module_patched(t):
    f = t.compile(lambda x: torch.nn.functional.gelu(x))
    f(T(2))
    t.patch(torch.nn.functional, "gelu", lambda x: x * 7)
    f(T(2))


# ------------------------------------------------------------------------------------------------------- structure


@program()
def test_train_and_eval(t):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    f = t.compile(net)
    f(T(3, 4))
    f.hit(T(3, 4))
    net.eval()
    f(T(3, 4))
    f.hit(T(3, 4))
    net.train()
    f.hit(T(3, 4))
    net[1].eval()
    f(T(3, 4))


@program()
def test_modules_replaced_added_removed(t):
    net = make_net()
    f = t.compile(net)
    f(T(2, 4))
    net[0] = nn.Linear(4, 4)
    f.hit(T(2, 4))
    net.append(nn.Tanh())
    f(T(2, 4))
    del net[0]
    f(T(2, 4))
    net.insert(0, nn.Linear(4, 4))
    f(T(2, 4))
    net.add_module("last", Scale(3.0))
    f(T(2, 4))


@program()
def test_plain_attributes_of_modules(t):
    net = nn.Sequential(Scale(2.0), nn.Dropout(0.0))
    f = t.compile(net)
    f(T(2))
    net[0].n = 3.0
    f(T(2))
    net[1].p = 1.0
    f(T(2))
    net[0].n = 2.0
    net[1].p = 0.0
    f.hit(T(2))


@program()
def test_module_dict_order(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"a": Scale(2.0), "b": nn.Sigmoid()})

        def forward(self, x):
            for part in self.parts.values():
                x = part(x)
            return x

    net = Net()
    f = t.compile(net)
    f(T(2))
    net.parts = nn.ModuleDict({"b": net.parts["b"], "a": net.parts["a"]})
    f(T(2))


@program()
def test_two_instances_of_one_class(t):
    """Entries belong to the code: what holds for one instance must not be believed of the other."""
    a, b = Scale(2.0), Scale(3.0)
    f, g = t.compile(a), t.compile(b)
    f(T(2))
    g(T(2))
    f(T(2))
    g(T(2))
    a.n = 3.0
    f(T(2))


@program()
def test_copies_of_a_model(t):
    import copy

    net = make_net()
    f = t.compile(lambda m, x: m(x))
    f(net, T(2, 4))
    f.hit(copy.deepcopy(net), T(2, 4))
    f(copy.deepcopy(net).eval(), T(2, 4))


# --------------------------------------------------------------------------------------------------- the process


@program()
def test_environment_variable(t):
    t.undo(lambda: os.environ.pop("ALTERNATOR_TEST_SCALE", None))

    def fn(x):
        return x * int(os.environ.get("ALTERNATOR_TEST_SCALE", "2"))

    f = t.compile(fn)
    f(T(2))
    os.environ["ALTERNATOR_TEST_SCALE"] = "5"
    f(T(2))
    os.environ["ALTERNATOR_TEST_SCALE"] = "6"
    f(T(2))
    del os.environ["ALTERNATOR_TEST_SCALE"]
    f(T(2))


@program()
def test_getenv(t):
    t.undo(lambda: os.environ.pop("ALTERNATOR_TEST_SCALE", None))
    f = t.compile(lambda x: x * 3 if os.getenv("ALTERNATOR_TEST_SCALE") else x * 2)
    f(T(2))
    os.environ["ALTERNATOR_TEST_SCALE"] = "1"
    f(T(2))


@program()
def test_abc_registered_later(t):
    class Countable(abc.ABC):
        pass

    class Mine:
        pass

    f = t.compile(lambda o, x: x + 1 if isinstance(o, Countable) else x - 1)
    one = Mine()
    f(one, T(2))
    Countable.register(Mine)
    f(one, T(2))


@program()
def test_standard_abc_registered_later(t):
    class Mine:
        def __len__(self):
            return 1

    f = t.compile(lambda o, x: x + 1 if isinstance(o, collections.abc.Sequence) else x - 1)
    one = Mine()
    f(one, T(2))
    collections.abc.Sequence.register(Mine)
    f(one, T(2))


@program()
def test_subclasshook_answer_changes(t):
    class Walking(abc.ABC):
        @classmethod
        def __subclasshook__(cls, other):
            return any("walk" in vars(c) for c in other.__mro__)

    class Duck:
        pass

    f = t.compile(lambda o, x: x + 1 if isinstance(o, Walking) else x - 1)
    f(Duck(), T(2))

    class Goose:
        walk = 1

    f(Goose(), T(2))


@program()
def test_instancecheck_replaced(t):
    class Meta(type):
        def __instancecheck__(cls, other):
            return True

    class Any_(metaclass=Meta):
        pass

    f = t.compile(lambda o, x: x + 1 if isinstance(o, Any_) else x - 1)
    f(3, T(2))
    Meta.__instancecheck__ = lambda cls, other: False
    f(3, T(2))


@program()
def test_module_attribute_of_the_process(t):
    settings = types.ModuleType("settings")
    settings.scale = 2
    f = t.compile(lambda x: x * settings.scale)
    f(T(2))
    settings.scale = 3
    f(T(2))
    settings.__dict__["scale"] = 4
    f(T(2))
    del settings.scale
    settings.__getattr__ = lambda name: 5
    f.free(T(2))


@program()
def test_torch_settings(t):
    def fn(x):
        return x * 2 if torch.backends.mkldnn.enabled else x * 3

    f = t.compile(fn)
    f.free(T(2))
    old = torch.backends.mkldnn.enabled
    t.undo(lambda: torch._C._set_mkldnn_enabled(old))
    torch._C._set_mkldnn_enabled(not old)
    f.free(T(2))


@program()
def test_number_of_threads(t):
    f = t.compile(lambda x: (torch.get_num_threads(), x + 1))
    f.free(T(2))
    old = torch.get_num_threads()
    t.undo(lambda: torch.set_num_threads(old))
    torch.set_num_threads(old + 1)
    f.free(T(2))


@program(one_graph=False)
def test_number_of_threads_set_inside(t):
    old = torch.get_num_threads()
    t.undo(lambda: torch.set_num_threads(old))

    def fn(x, n):
        torch.set_num_threads(n)
        return x + 1

    f = t.compile(fn)
    for n in (2, 3, 2):
        torch.set_num_threads(1)
        f(T(2), n)
        t.note(torch.get_num_threads())


@program()
def test_recursion_limit_changes(t):
    import sys

    old = sys.getrecursionlimit()
    t.undo(lambda: sys.setrecursionlimit(old))
    f = t.compile(lambda x: x + sys.getrecursionlimit())
    f.free(T(2))
    sys.setrecursionlimit(old + 7)
    f.free(T(2))


# ------------------------------------------------------------------------------------------- what classes say of others


@program()
def test_a_descriptor_comes_before_the_instance(t):
    class Descriptor:
        def __get__(self, instance, owner=None):
            return 5

    class Other(Descriptor):
        def __set__(self, instance, value):
            raise AssertionError

    class Holder:
        v = Descriptor()

    holder = Holder()
    holder.__dict__["v"] = 6
    f = t.compile(lambda x: x * holder.v)
    f(T(2))
    Descriptor.__set__ = Other.__set__
    f(T(2))
    del Descriptor.__set__
    f(T(2))
    vars(Holder)["v"].__class__ = Other
    f(T(2))


@program()
def test_a_descriptor_that_deletes(t):
    class Value:
        pass

    class Holder:
        a = Value()

    holder = Holder()

    def fn(x):
        try:
            del holder.a
        except AttributeError:
            return x + 1
        return x + 2

    f = t.compile(fn)
    f(T(2))
    Value.__delete__ = lambda self, instance: None
    f(T(2))


@program()
def test_a_mapping_by_its_methods(t):
    class Pairs:
        def __iter__(self):
            return iter([("a", 1)])

        def __getitem__(self, key):
            return 7

    class Mapping(dict):
        pass

    pairs, mapping = Pairs(), Mapping(a=1, b=2)

    def matched(x):
        match mapping:
            case {"a": 1, **rest}:
                return x + 1, rest
            case _:
                return x + 2, None

    f, g, h = t.compile(lambda x: (x + 1, dict(pairs))), t.compile(matched), t.compile(lambda x: (x, dict(mapping)))
    for one in (f, g, h):
        one(T(2))
    Pairs.keys = lambda self: ["k"]
    Mapping.get = lambda self, key, default=None: "g"
    Mapping.keys = lambda self: ["a"]
    for one in (f, g, h):
        one(T(2))


@program(one_graph=False)
def test_metaclasses(t):
    class Meta(type):
        pass

    class A(metaclass=Meta):
        k = 1

    class B(A):
        pass

    f, g = t.compile(lambda x: x * A.k), t.compile(lambda x: (x + 1, len(B.__mro__), B.__mro__[1] is A))
    f(T(2))
    g(T(2))
    Meta.__getattribute__ = lambda cls, name: 5 if name == "k" else type.__getattribute__(cls, name)
    f(T(2))
    del Meta.__getattribute__
    B.__bases__ = (Meta("Between", (A,), {}),)
    g(T(2))


@program(one_graph=False)
def test_the_class_of_a_module(t):
    module = types.ModuleType("module_of_a_test")
    module.k = 1

    class Lazy(types.ModuleType):
        k = property(lambda self: 5)
        absent = 7

    f = t.compile(lambda x: x * module.k)
    g = t.compile(lambda x: x * getattr(module, "absent", 0))
    f(T(2))
    g(T(2))
    module.__class__ = Lazy
    f(T(2))
    g(T(2))


@program(spied=False)
def test_bases_of_an_exception_class(t):
    """Which `except` takes it is asked again."""

    class A(Exception):
        pass

    class B(Exception):
        pass

    class E(A):
        pass

    def plain(x):
        try:
            raise E("a")
        except A:
            return x + 1, "A"
        except (KeyError, B):
            return x + 2, "B"

    def in_a_group(x):
        try:
            raise ExceptionGroup("g", [E("a"), ValueError()])
        except* A:
            x = x + 1
        except* (B, KeyError):
            x = x + 2
        except* ValueError:
            x = x * 3
        return x

    functions = [t.compile(plain), t.compile(in_a_group)]
    for bases in ((A,), (B,), (A,), (B,)):
        E.__bases__ = bases
        for f in functions:
            f(T(2))
            f.hit(T(2))


@program(spied=False)
def test_the_metaclass_of_a_class(t):
    class First(type):
        k = 1

        def __call__(cls):
            return "first"

        def __len__(cls):
            return 1

    class Second(First):
        k = 2

        def __call__(cls):
            return "second"

        def __len__(cls):
            return 2

    class C(metaclass=First):
        pass

    f = t.compile(lambda x: (x + len(C), C(), C.k, type(C).__name__, isinstance(C, Second)))
    for metaclass in (First, Second, First):
        C.__class__ = metaclass
        f(T(2))
        f.hit(T(2))

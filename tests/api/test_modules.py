"""A compiled module is still the user's module."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import pickle
import sys
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import alternator


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        return self.norm(self.first(x)).relu() * self.scale

    def helper(self) -> float:
        return self.scale


def data() -> torch.Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(3))


def pair() -> tuple[Net, Any]:
    torch.manual_seed(1)
    net = Net()
    return net, alternator.compile(net, backend="eager", fullgraph=True)


def test_the_same_results_in_training_and_evaluation() -> None:
    net, compiled = pair()
    twin = copy.deepcopy(net)
    for training in (True, False, True):
        compiled.train(training)
        twin.train(training)
        assert net.training is training
        result, expected = compiled(data()), twin(data())
        assert torch.equal(result, expected)
        assert torch.equal(net.norm.running_mean, twin.norm.running_mean)
        compiled.zero_grad()
        twin.zero_grad()
        result.sum().backward()
        expected.sum().backward()
        for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
            assert torch.equal(ours.grad, theirs.grad)
    assert alternator.counters()["eager"] == 0


def test_names_and_types() -> None:
    net, compiled = pair()
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert not any("_orig_mod" in name for name in compiled.state_dict())
    assert [name for name, _ in compiled.named_modules()] == [name for name, _ in net.named_modules()]
    assert isinstance(compiled, Net)
    assert compiled.__class__ is Net
    assert type(compiled).__name__ == "Net"
    assert repr(compiled) == repr(net)
    assert callable(compiled)


def test_the_original_stays_eager() -> None:
    net, compiled = pair()
    net(data())
    assert alternator.counters()["calls"] == 0
    compiled(data())
    assert alternator.counters()["calls"] == 1


def test_attributes_are_shared() -> None:
    net, compiled = pair()
    compiled(data())
    compiled.scale = 5.0
    assert net.scale == 5.0
    assert compiled.helper() == 5.0
    assert torch.equal(compiled(data()), net(data()))
    net.extra = nn.Linear(4, 4)
    assert compiled.extra is net.extra
    assert "extra.weight" in compiled.state_dict()
    del compiled.extra
    assert not hasattr(net, "extra")
    with pytest.raises(AttributeError):
        compiled.absent  # noqa: B018


def test_parameters_are_shared_and_can_be_loaded() -> None:
    net, compiled = pair()
    compiled.eval()
    before = compiled(data())
    other = Net()
    compiled.load_state_dict(other.state_dict())
    assert torch.equal(net.first.weight, other.first.weight)
    assert torch.equal(compiled(data()), other.eval()(data()))
    assert not torch.equal(compiled(data()), before)
    compiled.double()
    assert net.first.weight.dtype is torch.float64
    assert compiled(data().double()).dtype is torch.float64


def test_hooks_run() -> None:
    net, compiled = pair()
    compiled.eval()
    said: list[str] = []
    handle = compiled.register_forward_hook(lambda module, args, result: result + 1)
    pre = net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    inner = net.first.register_forward_hook(lambda module, args, result: said.append("first"))
    expected = net(data())
    assert torch.equal(compiled(data()), expected)
    assert said == ["first", "first"]
    handle.remove()
    pre.remove()
    inner.remove()
    assert torch.equal(compiled(data()), net(data()))


def test_deepcopy_is_compiled_and_on_its_own() -> None:
    net, compiled = pair()
    clone = copy.deepcopy(compiled)
    assert isinstance(clone, Net)
    assert clone.first.weight is not net.first.weight
    with torch.no_grad():
        clone.first.weight.zero_()
    calls = alternator.counters()["calls"]
    clone(data())
    assert alternator.counters()["calls"] == calls + 1
    assert not torch.equal(compiled(data()), clone(data()))
    both = copy.deepcopy([net, compiled])
    assert both[1].first is both[0].first
    shallow = copy.copy(compiled)
    assert shallow.first is net.first


def test_a_pickle_holds_the_users_module() -> None:
    net, compiled = pair()
    compiled.eval()
    text = pickle.dumps(compiled)
    assert b"alternator" not in text
    loaded = pickle.loads(text)
    assert type(loaded) is Net
    assert torch.equal(loaded(data()), net(data()))
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(data()), net(data()))


def test_inside_of_another_module() -> None:
    net, compiled = pair()
    outer = nn.Sequential(OrderedDict(inner=compiled, last=nn.Linear(4, 2)))
    plain = nn.Sequential(OrderedDict(inner=net, last=outer.last))
    assert list(outer.state_dict()) == list(plain.state_dict())
    outer.eval()
    assert torch.equal(outer(data()), plain(data()))
    assert alternator.counters()["graphs"] == 1
    whole = alternator.compile(outer, backend="eager", fullgraph=True)
    assert torch.equal(whole(data()), plain(data()))
    assert alternator.counters()["eager"] == 0


def test_compile_in_place() -> None:
    net = Net().eval()
    expected = net(data())
    with alternator.install():
        net.compile(backend="eager", fullgraph=True)
    assert torch.equal(net(data()), expected)
    assert alternator.counters()["graphs"] == 1
    outer = alternator.compile(nn.Sequential(net), backend="eager", fullgraph=True)
    assert torch.equal(outer(data()), expected)
    assert type(pickle.loads(pickle.dumps(net))) is Net
    assert torch.equal(copy.deepcopy(net)(data()), expected)


def test_compiled_twice() -> None:
    net, compiled = pair()
    again: Any = alternator.compile(compiled, backend="eager")
    net.eval()
    assert torch.equal(again(data()), net(data()))
    assert list(again.state_dict()) == list(net.state_dict())


def test_classes_with_a_hook_for_subclasses() -> None:
    registered: list[type] = []

    class Base(nn.Module):
        def __init_subclass__(cls, *, tag: str) -> None:
            registered.append(cls)

    class Tagged(Base, tag="one"):
        def forward(self, x: Any) -> Any:
            return x + 1

    compiled: Any = alternator.compile(Tagged(), backend="eager", fullgraph=True)
    assert torch.equal(compiled(data()), data() + 1)
    assert registered == [Tagged]
    assert isinstance(compiled, Tagged)


def test_parametrized_after_compile() -> None:
    class Double(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    net = nn.Linear(4, 4)
    compiled: Any = alternator.compile(net, backend="eager")
    expected = torch.nn.functional.linear(data(), net.weight * 2, net.bias)
    nn.utils.parametrize.register_parametrization(compiled, "weight", Double())
    assert torch.equal(compiled(data()), expected)
    assert torch.equal(net(data()), expected)
    assert torch.equal(compiled.weight, net.weight)


def test_graph_modules() -> None:
    traced = torch.fx.symbolic_trace(Net().eval())
    compiled: Any = alternator.compile(traced, backend="eager")
    assert torch.equal(compiled(data()), traced(data()))
    node = next(node for node in compiled.graph.nodes if node.op == "call_method" and node.target == "relu")
    node.target = "tanh"
    compiled.recompile()
    assert torch.equal(compiled(data()), traced(data()))


def test_nothing_keeps_a_compiled_module_alive() -> None:
    import gc
    import weakref

    net, compiled = pair()
    compiled(data())
    alive = weakref.ref(net)
    seen = weakref.ref(compiled)
    del net, compiled
    gc.collect()
    assert alive() is None
    assert seen() is None


def test_no_python_code_runs_when_a_compiled_module_dies() -> None:
    # An interrupt that came during `compile(m)(x)` would be raised in it, and lost.
    _, compiled = pair()
    compiled(data())
    ran: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            ran.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        del compiled
    finally:
        sys.setprofile(None)
    assert ran == []


def test_what_is_gone_is_not_remembered() -> None:
    from alternator import compiler

    alive = [alternator.compile(nn.ReLU(), backend="eager") for _ in range(3)]
    gc.collect()
    before = sum(held() is not None for held in compiler._handoffs)
    for _ in range(500):
        alternator.compile(nn.ReLU(), backend="eager")
    assert len(alive) <= before <= len(compiler._handoffs) <= 2 * before + 2


def test_forward_is_compiled_too() -> None:
    net, compiled = pair()
    compiled.eval()
    net.register_forward_hook(lambda module, args, result: result + 100)
    x = data()
    for scale in (2.0, 3.0, 2.0):
        net.scale = scale
        assert torch.equal(compiled.forward(x), net.forward(x))
        assert torch.equal(compiled(x), net(x))
    counts = alternator.counters()
    assert (counts["graphs"], counts["eager"]) == (4, 0)  # two of forward, two of the call with its hook
    compiled.forward(x)
    assert alternator.counters()["graphs"] == 4
    assert type(compiled).forward is Net.forward
    around = alternator.compile(lambda x: compiled.forward(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(around(x), net.forward(x) + 1)


def test_a_forward_of_the_users_own_stays_as_it_is() -> None:
    net, compiled = pair()
    compiled.forward = lambda x: x + 5
    assert torch.equal(compiled.forward(data()), data() + 5)
    del compiled.forward
    net.eval()
    assert torch.equal(compiled.forward(data()), net.forward(data()))

    class Other(Net):
        def forward(self, x: Any) -> Any:
            return x * 7

    compiled.__class__ = Other
    assert torch.equal(compiled.forward(data()), data() * 7)


def test_signatures() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any, by: int = 2) -> Any:
            return x * by

    module = Scaled()
    compiled = alternator.compile(module, backend="eager")
    assert inspect.signature(compiled) == inspect.signature(module)
    assert inspect.signature(compiled.forward) == inspect.signature(module.forward)
    assert inspect.signature(type(compiled)) == inspect.signature(Scaled)
    assert inspect.signature(alternator.compile(module.forward, backend="eager")) == inspect.signature(module.forward)
    assert str(inspect.signature(alternator.compile(lambda a, b=1: a, backend="eager"))) == "(a, b=1)"
    exported = torch.export.export(compiled, (torch.ones(2),))
    assert exported.module()(torch.ones(2)).tolist() == [2, 2]


class Counted(torch.nn.Module):
    made = 0

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.width, self.closed = width, False
        self.layer = torch.nn.Linear(width, width)
        self.parts = [self]

    def forward(self, x: Any) -> Any:
        return self.layer(x) * type(self).made

    @classmethod
    def count(cls) -> None:
        cls.made += 1

    def count_too(self) -> None:
        type(self).made += 1

    def owns(self) -> bool:
        return self.parts[0] is self

    def twin(self) -> Any:
        other = type(self)(self.width)
        other.load_state_dict(self.state_dict())
        return other

    def double(self) -> Any:
        self.width *= 2
        return super().double()

    def __len__(self) -> int:
        return 0

    def __iadd__(self, n: int) -> Any:
        self.width += n
        return self

    @property
    def half_width(self) -> float:
        return self.width / 2

    @half_width.setter
    def half_width(self, value: float) -> None:
        self.width = int(2 * value)

    def __del__(self) -> None:
        self.closed = True


def test_methods_see_the_original() -> None:
    """What is written to the class, or known by identity, is that of the user's."""
    Counted.made = 0
    module = Counted()
    compiled = alternator.compile(module, backend="eager")
    compiled.count()
    compiled.count_too()
    assert Counted.made == compiled.made == 2 and Counted.__subclasses__() == []
    x = torch.ones(2)
    assert compiled.owns() and torch.equal(compiled(x), module(x)) and torch.equal(compiled.twin()(x), module(x))
    assert type(compiled)(3).width == 3 and type(type(compiled)(3)) is Counted
    assert len(compiled) == 0 and compiled.half_width == 1.0
    compiled.half_width = 3.0
    assert module.width == 6
    assert compiled.double() is compiled and module.width == 12 and module.layer.weight.dtype == torch.float64
    before = compiled
    compiled += 1
    assert compiled is before and module.width == 13
    Counted.later = 5  # type: ignore[attr-defined]
    assert compiled.later == 5
    del Counted.later  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'Counted' object has no attribute 'later'"):
        _ = compiled.later
    del before, compiled
    gc.collect()
    assert not module.closed


def test_classes_of_any_kind() -> None:
    registry: dict[str, type] = {}

    class Meta(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], *, kind: int) -> Any:
            registry[name] = made = super().__new__(cls, name, bases, body)
            return made

        def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], *, kind: int) -> None:
            super().__init__(name, bases, body)

    class Kinded(torch.nn.Module, metaclass=Meta, kind=1):
        def forward(self, x: Any) -> Any:
            return x + 1

    class Slotted(torch.nn.Module):
        __slots__ = ("extra",)

        def forward(self, x: Any) -> Any:
            return x + self.extra

    x = torch.ones(2)
    kinded = alternator.compile(Kinded(), backend="eager")
    assert isinstance(kinded, Kinded) and registry == {"Kinded": Kinded} and torch.equal(kinded(x), x + 1)
    slotted = Slotted()
    compiled = alternator.compile(slotted, backend="eager")
    for extra in (1, 2):
        compiled.extra = extra
        assert slotted.extra == extra and isinstance(compiled, Slotted) and torch.equal(compiled(x), x + extra)
    for module in (torch.nn.Sequential(), torch.nn.ModuleList([torch.nn.ReLU()]), torch.compile(torch.nn.Linear(2, 2))):
        assert isinstance(alternator.disable(module), torch.nn.Module)
    assert torch.equal(alternator.compile(torch.compile(torch.nn.ReLU()), backend="eager")(x), x)


def test_the_original_gets_another_class() -> None:
    module = torch.nn.Linear(2, 2)
    compiled = alternator.compile(module, backend="eager")
    x = torch.ones(2)
    wanted = module(x)
    torch.nn.utils.parametrizations.weight_norm(module)
    assert compiled.weight.shape == (2, 2) and torch.allclose(compiled(x), wanted)
    torch.nn.utils.parametrize.remove_parametrizations(compiled, "weight")
    assert type(module) is torch.nn.Linear and torch.allclose(compiled(x), wanted)
    lazy = torch.nn.LazyLinear(3)
    compiled = alternator.compile(lazy, backend="eager")
    assert isinstance(compiled, torch.nn.LazyLinear)
    assert torch.equal(compiled(x), lazy(x)) and not isinstance(compiled, torch.nn.LazyLinear)


def test_another_object_of_its_type() -> None:
    class Sized(torch.nn.Module):
        made = 0

        def __init__(self, size: int) -> None:
            super().__init__()
            Sized.made += 1
            self.linear = torch.nn.Linear(size, size)

        def forward(self, x: Any) -> Any:
            return self.linear(x)

    compiled = alternator.compile(Sized(2), backend="eager")
    kind: Any = type(compiled)
    other = kind(3)
    assert type(other) is Sized and other.linear.in_features == 3 and Sized.made == 2
    bare = kind.__new__(kind)
    assert type(bare) is Sized and "linear" not in vars(bare) and Sized.made == 2
    replica = compiled._replicate_for_data_parallel()  # as torch.nn.DataParallel makes one for each device
    replica._modules = dict(compiled._modules)
    assert isinstance(replica, Sized) and torch.equal(replica(torch.ones(2)), compiled(torch.ones(2)))


def test_its_state_is_given_anew() -> None:
    module, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    compiled: Any = alternator.compile(module, backend="eager")
    x = torch.ones(2)
    compiled(x)
    compiled.__dict__ = dict(vars(other))
    assert vars(compiled) is vars(module) and module.weight is other.weight
    assert torch.equal(compiled(x), other(x)) and torch.equal(module(x), other(x))
    compiled.extra = 1
    assert module.extra == 1


# --- the module behind it -------------------------------------------------------------------------------------------


def test_the_original_can_be_had_and_is_no_part_of_the_state() -> None:
    net, compiled = pair()
    assert compiled._orig_mod is net
    assert compiled._torchdynamo_orig_callable is net
    assert not hasattr(net, "_orig_mod")
    assert "_orig_mod" not in [*dir(compiled), *vars(compiled), *compiled._modules, *compiled.state_dict()]
    assert [name for name, _ in compiled.named_modules()] == [name for name, _ in net.named_modules()]
    twin = copy.deepcopy(compiled)
    assert type(twin._orig_mod) is Net
    assert twin._orig_mod is not net
    plain = pickle.loads(pickle.dumps(compiled))
    assert type(plain) is Net
    assert not hasattr(plain, "_orig_mod")
    assert copy.copy(compiled)._orig_mod is not net
    # Of one that torch has compiled before: torch's.
    assert alternator.compile(torch.compile(net, backend="eager"), backend="eager")._orig_mod is net  # type: ignore[attr-defined]


def test_functions_that_get_the_module_get_the_users() -> None:
    got: list[Any] = []

    def note(module: Any, *_: Any) -> None:
        got.append(module)

    linear = nn.Linear(2, 2)
    compiled: Any = alternator.compile(linear, backend="eager")
    assert compiled.apply(note) is compiled
    linear.register_state_dict_post_hook(note)
    linear.register_state_dict_pre_hook(note)
    linear.register_load_state_dict_post_hook(note)
    compiled.register_load_state_dict_pre_hook(note)  # torch refers to the module weakly
    del compiled
    compiled = alternator.compile(linear, backend="eager")
    compiled.load_state_dict(compiled.state_dict())
    with torch.nn.modules.module.register_module_buffer_registration_hook(note):
        compiled.register_buffer("more", torch.ones(2))
    assert len(got) == 6
    assert all(module is linear for module in got)
    assert "more" in linear._buffers


class Own(nn.Module):
    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def __getstate__(self) -> Any:
        return {"mine": self.by}

    def __setstate__(self, state: Any) -> None:
        self.by = state["mine"]

    def __reduce__(self) -> Any:
        return Own, (self.by,)

    def __getnewargs__(self) -> Any:
        return (self.by,)

    def forward(self, x: Any) -> Any:
        return x * self.by


def test_special_methods_called_by_name_are_the_users() -> None:
    own = Own(3)
    compiled: Any = alternator.compile(own, backend="eager")
    assert compiled.__getstate__() == {"mine": 3}
    assert compiled.__reduce__() == (Own, (3,))
    assert compiled.__getnewargs__() == (3,)
    compiled.__setstate__({"mine": 4})
    assert own.by == 4
    compiled.__init__(by=5)
    assert own.by == 5
    net, fast = pair()
    assert fast.__getstate__().keys() == net.__getstate__().keys()  # type: ignore[operator, union-attr]
    assert type(copy.deepcopy(compiled)._orig_mod) is Own
    assert type(pickle.loads(pickle.dumps(compiled))) is Own

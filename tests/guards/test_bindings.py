"""The short cut for objects that come again: as sound as the walk, and taken."""

from __future__ import annotations

import collections
import copy
import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guard_models import Block, Net, module_program, module_tree
from guard_trees import ABSENT, Program, Tree, guards
from torch import nn


class Thing:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)  # so that it has a dict


def bound(program: Program, *slots: Any, function: Any = None) -> Program:
    """Checks until the bindings are made."""
    assert program.check(*slots, function=function) is not None
    assert program.is_bound(*slots, function=function)
    return program


@pytest.fixture(autouse=True)
def _plain_classes() -> Iterator[None]:
    """Edits of classes are undone."""
    saved = [(cls, dict(vars(cls))) for cls in (Net, Block, nn.Linear, Thing)]
    yield
    for cls, attributes in saved:
        for name in [name for name in vars(cls) if name not in attributes]:
            delattr(cls, name)
        for name, value in attributes.items():
            if vars(cls).get(name) is not value:
                setattr(cls, name, value)


X = torch.ones(2, 4)


def test_the_third_check_of_the_same_model_is_bound() -> None:
    net = Net()
    program = module_program(net, X)
    assert program.once(net, X) is not None
    assert program.counts["bindings"] == 0
    assert program.once(net, X) is not None
    assert program.counts["bindings"] == 2  # the model; the constants
    before = program.counts["walked"]
    values = program.once(net, X)
    assert program.counts["walked"] == before + 1  # x
    wanted = [*net.parameters(), *net.buffers(), X]
    assert {id(v) for v in values} == {id(v) for v in wanted} and len(values) == len(wanted)


def test_values_are_those_of_now() -> None:
    net = Net()
    program = bound(module_program(net, X), net, X)
    y = torch.zeros(2, 4)
    values = program.once(net, y)
    assert any(v is y for v in values) and not any(v is X for v in values)


class OtherNet(Net):
    pass


def tie(net: Net) -> None:
    net.layers[1].linear.weight = net.layers[0].linear.weight


def swap_layers(net: Net) -> None:
    layers = net.layers._modules
    layers["0"], layers["1"] = layers["1"], layers["0"]


EDITS: dict[str, tuple[Callable[[Net], Any], bool]] = {
    # what is done to the model, and whether the guards still hold
    "nothing": (lambda net: None, True),
    "an unrelated attribute": (lambda net: setattr(net, "note", 1), True),
    "in-place arithmetic": (lambda net: net.scale.data.mul_(2), True),
    "a gradient": (lambda net: setattr(net.scale, "grad", torch.ones(())), True),
    "data of the same kind": (lambda net: setattr(net.scale, "data", torch.zeros(())), True),
    "a parameter of the same kind": (lambda net: setattr(net, "scale", nn.Parameter(torch.zeros(()))), True),
    "a dict of the same contents": (lambda net: setattr(net, "__dict__", dict(net.__dict__)), True),
    "a copied table": (lambda net: net.__dict__.update(_modules=dict(net._modules)), True),
    "layers swapped": (swap_layers, True),
    "a layer of the same kind": (lambda net: net.layers.__setitem__(1, Block()), True),
    "an unrelated class attribute": (lambda net: setattr(Net, "note", 1), True),
    "a base's class attribute": (lambda net: setattr(Block, "note", 1), True),
    "eval and train": (lambda net: net.eval().train(), True),
    "eval": (lambda net: net.eval(), False),
    "a layer in eval": (lambda net: net.layers[2].norm.eval(), False),
    "data of another dtype": (lambda net: setattr(net.scale, "data", torch.zeros((), dtype=torch.float64)), False),
    "data of another size": (lambda net: setattr(net.layers[2].linear.bias, "data", torch.zeros(5)), False),
    "half": (lambda net: net.half(), False),
    "frozen": (lambda net: net.layers[1].norm.weight.requires_grad_(False), False),
    "a parameter of another kind": (lambda net: setattr(net, "scale", nn.Parameter(torch.zeros(2))), False),
    "a parameter removed": (lambda net: delattr(net, "scale"), False),
    "a parameter set to None": (lambda net: setattr(net, "scale", None), False),
    "a parameter that is another type": (
        lambda net: net._parameters.__setitem__("scale", torch.ones((), requires_grad=True)), False
    ),
    "a layer removed": (lambda net: net.layers._modules.pop("2"), False),
    "a layer of another class": (lambda net: net.layers.__setitem__(1, nn.Identity()), False),
    "a hook": (lambda net: net.layers[0].register_forward_hook(lambda *args: None), False),
    "forward on an instance": (lambda net: setattr(net.layers[0], "forward", lambda x: x), False),
    "forward of a class": (lambda net: setattr(Block, "forward", lambda self, x: x), False),
    "the code of forward": (lambda net: setattr(Block.forward, "__code__", (lambda self, x: x).__code__), False),
    "a special method of a class": (lambda net: setattr(Block, "__call__", lambda self, x: x), False),
    "an attribute that must not be": (lambda net: setattr(Block, "no_such_attribute", 1), False),
    "another class": (lambda net: setattr(net, "__class__", OtherNet), False),
    "another class of a layer": (lambda net: setattr(net.layers[1].linear, "__class__", nn.Identity), False),
    "weights tied": (tie, False),
    "one layer twice": (lambda net: net.layers._modules.__setitem__("1", net.layers[0]), False),
    "an empty dict": (lambda net: setattr(net.layers[1], "__dict__", {}), False),
    "a table that is no dict": (lambda net: net.__dict__.__setitem__("_modules", []), False),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_a_bound_model(name: str) -> None:
    edit, holds = EDITS[name]
    if name == "the code of forward":
        Block.forward = types.FunctionType(Block.forward.__code__, Block.forward.__globals__, "forward")  # type: ignore[method-assign]
    net = Net()
    program = bound(module_program(net, X), net, X)
    edit(net)
    assert program.holds(net, X) == holds, program.program.explain(None, (net, X))["text"]
    if holds:
        assert program.is_bound(net, X)  # bound anew
    else:
        assert program.why(net, X)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_one_model_does_not_change_another(name: str) -> None:
    edit, holds = EDITS[name]
    if name == "the code of forward":
        Block.forward = types.FunctionType(Block.forward.__code__, Block.forward.__globals__, "forward")  # type: ignore[method-assign]
    net, other = Net(), Net()
    program = bound(bound(module_program(net, X), net, X), other, X)
    edit(net)
    assert program.holds(net, X) == holds
    if "class" not in name and "forward" not in name and "must not be" not in name:
        assert program.is_bound(other, X)


def test_instances_share_a_program() -> None:
    blocks = [Block() for _ in range(12)]
    program = module_program(blocks[0], X)
    for _ in range(2):
        for block in blocks:
            assert program.check(block, X) is not None
    assert program.counts["bindings"] == 13
    assert all(program.is_bound(block, X) for block in blocks)
    blocks[7].eval()
    assert not program.holds(blocks[7], X)
    assert all(program.is_bound(block, X) for block in blocks if block is not blocks[7])


def test_instances_that_come_in_turn_are_bound() -> None:
    blocks = [Block() for _ in range(24)]
    program = module_program(blocks[0], X)
    for _ in range(2):
        for block in blocks:
            assert program.once(block, X) is not None
    assert program.counts["bindings"] == 25
    before = program.counts
    for _ in range(3):
        for block in blocks:
            assert program.once(block, X) is not None
    after = program.counts
    assert after["walked"] - before["walked"] == 3 * 24  # x
    assert after["bindings_made"] == before["bindings_made"]
    blocks[5].linear.bias = blocks[5].norm.bias
    assert not program.holds(blocks[5], X)
    assert program.is_bound(blocks[6], X)


def test_an_object_made_anew_at_the_same_address_is_not_bound_forever() -> None:
    tree = Tree()
    tree.slot().guard("kType", Thing).attr("x").guard("kEquals", 1)
    tree.slot().attr("y").guard("kEquals", 2)
    program = tree.program()
    for _ in range(300):
        assert program.once(Thing(x=1, y=2)) is not None
    assert program.counts["bindings_made"] < 15


def test_nothing_of_the_user_is_kept() -> None:
    net = Net()
    program = bound(module_program(net, X), net, X)
    watched = [net, *net.modules(), *net.parameters(), *net.buffers()]
    references = [weakref.ref(o) for o in watched]
    before = sys.getrefcount(watched[3])
    for _ in range(100):
        program.once(net, X)
    after = sys.getrefcount(watched[3])
    assert after == before
    del net, watched
    gc.collect()
    assert [r() for r in references] == [None] * len(references)
    other = Net()
    assert program.holds(other, X)
    assert program.counts["bindings"] == 2  # the dead one is gone


def test_a_new_model_at_the_same_address() -> None:
    net = Net()
    program = bound(module_program(net, X), net, X)
    address = id(net)
    del net
    gc.collect()
    for _ in range(200):
        other = Net()
        if id(other) == address:
            break
        gc.collect()
    other.eval()
    assert not program.holds(other, X)
    other.train()
    assert program.holds(other, X)


# ---- dicts that change though nothing of ours does


def test_a_counter_on_the_model_does_not_unbind_it_for_long() -> None:
    net = Net()
    program = bound(module_program(net, X), net, X)
    for layer in net.layers:
        layer.calls = 0  # type: ignore[assignment]
    net.calls = 0  # type: ignore[assignment]
    for _ in range(20):
        for module in (net, *net.layers):
            module.calls += 1  # type: ignore[operator]
        assert program.once(net, X) is not None
    assert program.counts["bindings_stale"] <= 3
    net.calls += 1  # type: ignore[operator]
    assert program.is_bound(net, X)
    net.layers[1].norm.eval()
    assert not program.holds(net, X)
    net.layers[1].norm.train()
    net.calls += 1  # type: ignore[operator]
    assert program.holds(net, X)
    net.layers[1].forward = print  # type: ignore[assignment]
    assert not program.holds(net, X)


def test_a_dict_that_settles_is_bound_by_its_version_again() -> None:
    net = Net()
    program = bound(module_program(net, X), net, X)
    shortest = program.counts["operations"]
    for i in range(10):
        for module in net.modules():
            module.calls = i  # type: ignore[assignment]
        assert program.once(net, X) is not None
    assert program.counts["operations"] > shortest
    for _ in range(100):
        assert program.once(net, X) is not None
    assert program.counts["operations"] == shortest
    assert program.is_bound(net, X)
    net.layers[1].linear.bias = nn.Parameter(torch.ones(5))
    assert not program.holds(net, X)


def test_globals_that_change_with_every_call() -> None:
    namespace: dict[str, Any] = {"scale": 2, "helper": lambda: 1, "config": {"a": 1}, "loss": 0, "net": Thing(x=1)}
    tree = Tree()
    space = tree.constant(namespace)
    space.item("scale").guard("kEquals", 2)
    space.item("helper").guard("kIs", namespace["helper"])
    space.item("config").item("a").guard("kEquals", 1)
    space.item("net").attr("x").guard("kEquals", 1)
    space.item("missing").guard("kAbsent")
    space.guard("kLacksKey", "len")
    program = tree.program()
    for i in range(20):
        namespace["loss"] = i
        assert program.once() is not None
    assert program.counts["bindings_stale"] <= 3
    namespace["loss"] = "again"
    assert program.is_bound()
    for name, value in [
        ("scale", 3),
        ("helper", print),
        ("config", {"a": 2}),
        ("net", Thing(x=2)),
        ("missing", 1),
        ("len", 1),
    ]:
        old = namespace.get(name)
        namespace[name] = value
        assert not program.holds(), name
        if old is None:
            del namespace[name]
        else:
            namespace[name] = old
        namespace["loss"] = name
        assert program.holds(), name
    namespace["net"].x = 5
    assert not program.holds()


def test_a_global_replaced_by_an_equal_one() -> None:
    namespace: dict[str, Any] = {"n": 10**20, "table": {"a": 10**20}, "seen": 0}
    tree = Tree()
    tree.constant(namespace).item("n").guard("kEquals", 10**20)
    tree.constant(namespace).item("table").item("a").guard("kEquals", 10**20)
    program = tree.program()
    for i in range(12):
        namespace.update(n=10**20, table={"a": 10**20}, seen=i)
        assert program.holds()
    namespace["table"] = {"a": 10**20 + 1}
    assert not program.holds()


def test_objects_made_anew_for_each_call_get_no_bindings() -> None:
    tree = Tree()
    tree.slot().guard("kType", Thing).attr("x").guard("kEquals", 1)
    tree.slot().attr("y").guard("kEquals", 2)
    program = tree.program()
    keep = [Thing(x=1, y=2) for _ in range(100)]
    for thing in keep:
        assert program.once(thing) is not None
    assert program.counts["bindings_made"] == 0


def test_bindings_that_never_hold_are_given_up() -> None:
    tree = Tree()
    for i in range(10):
        tree.slot().at(i).attr("x").guard("kEquals", 1)
    program = tree.program()
    container: list[Any] = [None] * 10
    for _ in range(300):
        container[:] = [Thing(x=1) for _ in range(10)]
        assert program.once(container) is not None
    assert program.counts["bindings_made"] < 15


# ---- what has no version


def test_lists() -> None:
    a, b = Thing(x=1), Thing(x=1)
    model = Thing(layers=[a, b], sizes=[1, 2.5], nested=[[a], (b, [3])])
    tree = Tree()
    layers = tree.slot().attr("layers").guard("kType", list).guard("kLength", number=2)
    for i in range(2):
        layers.at(i).guard("kType", Thing).attr("x").guard("kEquals", 1)
    tree.slot().attr("sizes").at(0).guard("kEquals", 1)
    tree.slot().attr("sizes").at(1).guard("kEquals", 2.5)
    nested = tree.slot().attr("nested")
    nested.at(0).at(0).guard("kSame", other=layers.at(0))
    nested.at(1).at(1).at(0).guard("kEquals", 3)
    program = bound(tree.program(), model)
    edits: list[Callable[[], Any]] = [
        lambda: model.layers.append(a),
        lambda: model.layers.pop(),
        lambda: model.layers.__setitem__(1, Thing(x=2)),
        lambda: model.layers.__setitem__(0, Thing(x=1)),  # not the same as nested[0][0] any more
        lambda: model.layers.clear(),
        lambda: model.sizes.__setitem__(0, True),
        lambda: model.sizes.insert(0, 1),
        lambda: model.nested[0].__setitem__(0, b),
        lambda: model.nested[1][1].__setitem__(0, 4),
        lambda: setattr(a, "x", 2),
    ]
    for edit in edits:
        saved = (list(model.layers), list(model.sizes), a.x)
        edit()
        assert not program.holds(model), program.texts
        model.layers[:], model.sizes[:], a.x = saved
        model.nested[0][0], model.nested[1][1][0] = a, 3
        assert program.holds(model)
    model.layers[1] = Thing(x=1)
    assert program.holds(model)
    assert program.is_bound(model)


def at_address(address: int, make: Callable[[int], Any], value: int) -> Any:
    """A new object where an old one was."""
    kept = []
    for _ in range(10_000):
        made = make(value)
        if id(made) == address:
            return made
        kept.append(made)
    pytest.skip("the allocator gave another address each time")
    return None


@pytest.mark.parametrize("place", ["list", "cell", "dict", "tuple", "default"])
def test_an_address_that_is_used_again_proves_nothing(place: str) -> None:
    code = (lambda: place).__code__

    def make_function(value: Any) -> Any:
        return types.FunctionType(code, globals(), "made", None, (types.CellType(value),))

    holder: Any
    if place == "list":
        holder = Thing(x=[make_function(1)])
        reach = lambda tree: tree.slot().attr("x").at(0)  # noqa: E731
        get, put = lambda: holder.x[0], lambda v: holder.x.__setitem__(0, v)
    elif place == "cell":
        cell = types.CellType(make_function(1))
        holder = types.FunctionType((lambda: cell).__code__, globals(), "holder", None, (cell,))
        reach = lambda tree: tree.slot().step("kCell").step("kContents")  # noqa: E731
        get, put = lambda: cell.cell_contents, lambda v: setattr(cell, "cell_contents", v)
    elif place == "dict":
        holder = Thing(x=make_function(1), calls=0)
        reach = lambda tree: tree.slot().attr("x")  # noqa: E731
        get, put = lambda: holder.x, lambda v: setattr(holder, "x", v)
    elif place == "tuple":
        holder = Thing(x=(make_function(1), []))
        reach = lambda tree: tree.slot().attr("x").at(0)  # noqa: E731
        get, put = lambda: holder.x[0], lambda v: setattr(holder, "x", (v, []))
    else:
        holder = types.FunctionType((lambda a: a).__code__, globals(), "holder", (make_function(1),))
        reach = lambda tree: tree.slot().step("kDefaults").at(0)  # noqa: E731
        get, put = lambda: holder.__defaults__[0], lambda v: setattr(holder, "__defaults__", (v,))
    tree = Tree()
    function = reach(tree)
    function.guard("kCode", get().__code__, second=globals())
    function.step("kCell").step("kContents").guard("kEquals", 1)
    program = bound(tree.program(), holder)
    if place == "dict":  # one that changes: its version proves nothing any more
        for i in range(5):
            holder.calls = i
            assert program.holds(holder)
        assert program.is_bound(holder)
    for round_ in range(20):
        address = id(get())
        put(None)
        again = at_address(address, make_function, round_ % 2 + 1)
        put(again)
        del again
        assert program.holds(holder) == (round_ % 2 == 0)


def test_cells_and_functions() -> None:
    def outer(value: Any) -> Any:
        def inner(a: Any = Thing(x=1), *, b: Any = 2) -> Any:  # noqa: B008
            return value, a, b

        return inner

    f = outer(Thing(x=1))
    tree = Tree()
    function = tree.function()
    function.guard("kCode", f.__code__, second=f.__globals__)
    function.step("kCell").step("kContents").guard("kType", Thing).attr("x").guard("kEquals", 1)
    function.step("kDefaults").guard("kLength", number=1).at(0).attr("x").guard("kEquals", 1)
    function.step("kKeywordDefaults").item("b").guard("kEquals", 2)
    function.step("kGlobals").item("Thing").guard("kIs", Thing)
    function.attr("note").guard("kAbsent")
    program = bound(tree.program(), function=f)
    cell = f.__closure__[0]
    edits: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: setattr(cell, "cell_contents", Thing(x=2)), lambda: setattr(cell, "cell_contents", Thing(x=1))),
        (lambda: setattr(cell.cell_contents, "x", 2), lambda: setattr(cell.cell_contents, "x", 1)),
        (lambda: setattr(f, "__defaults__", (Thing(x=3),)), lambda: setattr(f, "__defaults__", (Thing(x=1),))),
        (lambda: setattr(f.__defaults__[0], "x", 9), lambda: setattr(f.__defaults__[0], "x", 1)),
        (lambda: setattr(f, "__defaults__", None), lambda: setattr(f, "__defaults__", (Thing(x=1),))),
        (lambda: f.__kwdefaults__.update(b=3), lambda: f.__kwdefaults__.update(b=2)),
        (lambda: setattr(f, "__kwdefaults__", {"b": 3}), lambda: setattr(f, "__kwdefaults__", {"b": 2})),
        (lambda: setattr(f, "note", 1), lambda: delattr(f, "note")),
        (lambda: globals().update(Thing=Net), lambda: globals().update(Thing=thing)),
    ]
    thing = Thing
    for edit, undo in edits:
        edit()
        assert not program.holds(function=f)
        undo()
        assert program.holds(function=f)
        assert program.is_bound(function=f)
    assert program.holds(function=outer(Thing(x=1)))
    assert not program.holds(function=outer(Thing(x=2)))


def test_ordered_dicts_sets_and_deques() -> None:
    model = Thing(
        od=collections.OrderedDict(a=Thing(x=1), b=2), s={1, 2}, fs=frozenset({3}), q=collections.deque([Thing(x=1)])
    )
    tree = Tree()
    od = tree.slot().attr("od").guard("kKeys", ("a", "b"))
    od.item("a").attr("x").guard("kEquals", 1)
    od.step("kKey", index=1).guard("kEquals", "b")
    tree.slot().attr("s").guard("kLength", number=2)
    tree.slot().attr("s").step("kElement", index=1).guard("kEquals", 2)
    tree.slot().attr("fs").step("kElement", index=0).guard("kEquals", 3)
    tree.slot().attr("q").guard("kLength", number=1).at(0).attr("x").guard("kEquals", 1)
    program = bound(tree.program(), model)
    edits: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: model.od.move_to_end("a"), lambda: model.od.move_to_end("b")),
        (lambda: model.od.update(b=3, c=4), lambda: model.od.pop("c")),
        (lambda: model.s.add(3), lambda: model.s.discard(3)),
        (lambda: model.s.symmetric_difference_update({2, 5}), lambda: model.s.symmetric_difference_update({2, 5})),
        (lambda: model.q.append(1), lambda: model.q.pop()),
        (lambda: setattr(model.q[0], "x", 2), lambda: setattr(model.q[0], "x", 1)),
        (lambda: setattr(model, "fs", frozenset({4})), lambda: setattr(model, "fs", frozenset({3}))),
    ]
    for edit, undo in edits:
        edit()
        assert not program.holds(model)
        undo()
        assert program.holds(model)


def test_a_dict_as_an_argument() -> None:
    parameters = {f"p{i}": torch.ones(i + 1) for i in range(10)}
    tree = Tree()
    tree.slot().guard("kType", dict).guard("kKeys", tuple(parameters)).identity()
    for name, tensor in parameters.items():
        tree.slot().item(name).guard("kTensor", tensor).identity().need()
    program = bound(tree.program(), parameters)
    assert sys.getrefcount(parameters) == 2
    again = dict(parameters)
    assert program.holds(again)
    again["p3"] = torch.ones(5)
    assert not program.holds(again)
    parameters["p3"] = parameters["p2"]
    assert not program.holds(parameters)
    assert not program.holds([1])


def test_instances_without_a_dict_and_with_one_later() -> None:
    class Inline:
        def __init__(self) -> None:
            self.x, self.y = 1, 2

    o = Inline()
    tree = Tree()
    tree.slot().guard("kType", Inline).attr("x").guard("kEquals", 1)
    tree.slot().step("kDict").guard("kLacksKey", "z")
    program = bound(tree.program(), o)
    o.x = 2
    assert not program.holds(o)
    o.x = 1
    assert vars(o)
    assert program.holds(o)
    o.z = 1  # type: ignore[attr-defined]
    assert not program.holds(o)
    o.__dict__ = {"x": 1}  # type: ignore[assignment]
    assert program.holds(o)


# ---- classes


def test_a_class_that_changes_keeps_its_guards() -> None:
    class Model:
        used = Thing(x=1)

        def forward(self) -> int:
            return 1

    tree = Tree()
    cls = tree.slot().step("kType").guard("kIs", Model)
    cls.step("kTypeAttribute", "forward").guard("kCode", Model.forward.__code__)
    cls.step("kTypeAttribute", "used").attr("x").guard("kEquals", 1)
    cls.step("kTypeAttribute", "absent").guard("kAbsent")
    cls.step("kMro").guard("kLength", number=2)
    cls.step("kDict").guard("kHasKey", "forward")
    model = Model()
    program = bound(tree.program(), model)
    for i in range(5):
        Model.other = i  # type: ignore[attr-defined]
        assert program.holds(model)
        assert program.is_bound(model)
    Model.used.x = 2
    assert not program.holds(model)
    Model.used.x = 1
    Model.absent = 1  # type: ignore[attr-defined]
    assert not program.holds(model)
    del Model.absent  # type: ignore[attr-defined]
    assert program.holds(model)
    Model.forward = lambda self: 2  # type: ignore[method-assign]
    assert not program.holds(model)


def test_special_methods_of_a_bound_class() -> None:
    from test_guard_kinds import special

    class Number:
        def __add__(self, other: Any) -> Any:
            return other

    tree = Tree()
    tree.constant(Number).guard("kSpecialMethods", special(Number))
    program = bound(tree.program())
    Number.note = 1  # type: ignore[attr-defined]
    assert program.holds()
    Number.__bool__ = lambda self: True  # type: ignore[attr-defined]
    assert not program.holds()
    del Number.__bool__  # type: ignore[attr-defined]
    assert program.holds()
    Number.__add__ = print  # type: ignore[method-assign,assignment]
    assert not program.holds()


# ---- identity


def test_an_argument_that_is_a_parameter() -> None:
    net = Net()
    weight = net.layers[0].linear.weight
    y = nn.Parameter(torch.ones(4, 4))
    program = module_tree(net, y).program()
    bound(program, net, y)
    assert "it is another object than" in program.why(net, weight)
    assert program.holds(net, nn.Parameter(torch.ones(4, 4)))


def test_two_arguments_that_are_one() -> None:
    net = Net()
    program = bound(module_program(net, X, X.clone()), net, X, X.clone())
    assert not program.holds(net, X, X)
    assert program.holds(net, X.clone(), X)


def test_relations_between_bound_and_unbound() -> None:
    net = Net()
    tree = module_tree(net, X)
    tree.slot(2, "w").guard("kSame", other=tree.slot(0, "self").attr("_parameters").item("scale"))
    tree.slot(3, "v").guard("kDistinct", other=tree.slot(1, "x0"))
    program = bound(tree.program(), net, X, net.scale, 1)
    assert not program.holds(net, X, nn.Parameter(torch.ones(())), 1)
    assert not program.holds(net, X, net.scale, X)
    net.scale = nn.Parameter(torch.ones(()))
    assert program.holds(net, X, net.scale, 1)


def test_two_models_that_share_a_layer() -> None:
    a, b = Block(), Block()
    tree = Tree()
    from guard_models import guard_module

    guard_module(tree.slot(0, "a"), a, set())
    guard_module(tree.slot(1, "b"), b, set())
    program = bound(tree.program(), a, b)
    b.linear = a.linear
    assert "another object" in program.why(a, b)
    b.linear = copy.deepcopy(a.linear)
    assert program.holds(a, b)
    assert program.is_bound(a, b)


def test_switches() -> None:
    net = Net()
    program = module_program(net, X)
    guards.set_bindings(False)
    try:
        for _ in range(5):
            assert program.once(net, X) is not None
        assert program.counts["bindings_made"] == 0
        net.eval()
        assert program.once(net, X) is None
        net.train()
    finally:
        guards.set_bindings(True)
    bound(program, net, X)


def test_an_absent_slot() -> None:
    tree = Tree()
    tree.slot(0).guard("kAbsent")
    tree.slot(1).attr("x").guard("kEquals", 1)
    thing = Thing(x=1)
    program = bound(tree.program(), ABSENT, thing)
    assert not program.holds(1, thing)

"""Every accessor: what it finds, and that it notices when that changes."""

from __future__ import annotations

import collections
import functools
import gc
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from guard_trees import ABSENT, Path, Tree, guards


class Plain:
    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


class Slotted:
    __slots__ = ("x", "y")


def with_dict(**attributes: Any) -> Plain:
    """One whose __dict__ was asked for."""
    made = Plain(**attributes)
    assert vars(made) is made.__dict__
    return made


def function(a: Any, b: Any = 1, *, c: Any = 2) -> Any:
    return a


def closure(value: Any) -> Callable[[], Any]:
    def inner() -> Any:
        return value

    return inner


def set_cell(f: Any, value: Any) -> None:
    f.__closure__[0].cell_contents = value


def copy_function() -> Any:
    return types.FunctionType(function.__code__, {}, "copy", (1,))


def set_attribute(name: str, value: Any) -> Callable[[Any], None]:
    return lambda owner: setattr(owner, name, value)


def replace_key(d: dict[Any, Any]) -> None:
    d["b"] = d.pop("a")


def set_grad(t: torch.Tensor) -> None:
    t.grad = torch.zeros(2)


@dataclass
class Case:
    make: Callable[[], Any]  # the object in the slot
    path: Callable[[Path], Path]
    find: Callable[[Any], Any]  # what the path must find in it
    change: Callable[[Any], Any] | None  # makes it find something else; may return another object for the slot
    name: str = field(default="")


def item(key: Any) -> Callable[[Path], Path]:
    return lambda path: path.step("kItem", key)


def step(access: str, key: Any = ABSENT, index: int = 0) -> Callable[[Path], Path]:
    return lambda path: path.step(access, key, index)


def grad_tensor() -> torch.Tensor:
    t = torch.ones(2, requires_grad=True)
    t.sum().backward()
    return t


def filled_cache(limit: int | None, value: int = 7) -> Callable[..., Any]:
    """A maker of functions with a cache that holds f(3) and f(3, "a"); it may be given what it replaces."""

    def make(*_: Any) -> Any:
        found = functools.lru_cache(limit)(lambda *args: [value, *args])
        found(3), found(3, "a")
        return found

    return make


KEY = object()

PROXIED = {"k": 1}
CASES = {
    "kType": Case(lambda: Plain(), step("kType"), type, lambda o: setattr(o, "__class__", Other)),
    "kMro": Case(lambda: Plain, step("kMro"), lambda c: c.__mro__, lambda c: Slotted),
    "kDict": Case(lambda: with_dict(x=1), step("kDict"), vars, set_attribute("__dict__", {})),
    "kDict of a class": Case(
        lambda: Plain,
        lambda path: path.step("kDict").item("__init__"),
        lambda c: c.__dict__["__init__"],
        lambda c: types.new_class("Fresh", (), {}, lambda ns: ns.update(__init__=Slotted)),
    ),
    "kDict of a function": Case(
        lambda: with_attribute(copy_function(), "x", KEY),
        lambda p: p.attr("x"),
        lambda f: f.x,
        lambda f: delattr(f, "x"),
    ),
    "kDict of a module": Case(
        lambda: with_attribute(types.ModuleType("m"), "x", KEY),
        lambda p: p.attr("x"),
        lambda m: m.x,
        set_attribute("x", 1),
    ),
    "kDict of an exception": Case(
        lambda: with_attribute(ValueError(), "x", KEY), lambda p: p.attr("x"), lambda e: e.x, set_attribute("x", 1)
    ),
    "inline attribute": Case(lambda: Plain(y=1, x=KEY), lambda p: p.attr("x"), lambda o: o.x, set_attribute("x", 3)),
    "attribute in a dict": Case(lambda: with_dict(x=KEY), lambda p: p.attr("x"), lambda o: o.x, set_attribute("x", 3)),
    "kItem str": Case(lambda: {"a": KEY}, item("a"), lambda d: d["a"], replace_key),
    "kItem int": Case(lambda: {7: KEY, "x": 1}, item(7), lambda d: d[7], lambda d: d.update({7: 0})),
    "kItem tuple": Case(lambda: {(1, "a"): KEY}, item((1, "a")), lambda d: d[(1, "a")], lambda d: d.clear()),
    "kItem None": Case(lambda: {None: KEY}, item(None), lambda d: d[None], lambda d: d.clear()),
    "kItem by identity": Case(lambda: {KEY: "v"}, item(KEY), lambda d: d[KEY], lambda d: d.update({KEY: "w"})),
    "kItem of a subclass": Case(
        lambda: collections.Counter(a=10**9), item("a"), lambda d: d["a"], lambda d: d.update("a")
    ),
    "kKey": Case(lambda: {"a": 1, KEY: 2}, step("kKey", index=1), lambda d: list(d)[1], lambda d: d.pop("a")),
    "kKey of an OrderedDict": Case(
        lambda: collections.OrderedDict([(KEY, 1), ("b", 2)]),
        step("kKey", index=0),
        lambda d: next(iter(d)),
        lambda d: d.move_to_end(KEY),
    ),
    "kValue": Case(lambda: {"a": 1, KEY: KEY}, step("kValue", index=1), lambda d: d[KEY], lambda d: d.pop("a")),
    "kIndex list": Case(lambda: [1, KEY], step("kIndex", index=1), lambda x: x[1], lambda x: x.pop()),
    "kIndex tuple": Case(lambda: (1, KEY), step("kIndex", index=1), lambda x: x[1], lambda x: (1, 2)),
    "kIndex deque": Case(
        lambda: collections.deque([1, KEY]), step("kIndex", index=1), lambda x: x[1], lambda x: x.rotate(1)
    ),
    "kIndex Size": Case(
        lambda: torch.Size([10**9, 2]), step("kIndex", index=0), lambda x: x[0], lambda x: torch.Size([1])
    ),
    "kNext": Case(lambda: iter([1, KEY]), step("kNext", index=1), lambda it: KEY, lambda it: next(it)),
    "kElement": Case(lambda: {KEY}, step("kElement"), lambda x: next(iter(x)), lambda x: x.clear()),
    "kElement frozenset": Case(
        lambda: frozenset({KEY}), step("kElement"), lambda x: next(iter(x)), lambda x: frozenset()
    ),
    "kTypeAttribute": Case(
        lambda: types.new_class("C", (Plain,), {}, lambda ns: ns.update(x=KEY)),
        step("kTypeAttribute", "x"),
        lambda c: c.x,
        set_attribute("x", 1),
    ),
    "kTypeAttribute inherited": Case(
        lambda: types.new_class("C", (Plain,)),
        step("kTypeAttribute", "__init__"),
        lambda c: Plain.__init__,
        set_attribute("__init__", None),
    ),
    "kField slot": Case(
        lambda: with_attribute(Slotted(), "x", KEY), step("kField", "x"), lambda o: o.x, lambda o: delattr(o, "x")
    ),
    "kField member": Case(
        lambda: functools.partial(print, KEY),
        step("kField", "func"),
        lambda o: o.func,
        lambda o: functools.partial(len),
    ),
    "kCell": Case(lambda: closure(KEY), step("kCell"), lambda f: f.__closure__[0], lambda f: closure(1)),
    "kContents": Case(
        lambda: closure(KEY), lambda p: p.step("kCell").step("kContents"), lambda f: KEY, lambda f: set_cell(f, 1)
    ),
    "kDefaults": Case(copy_function, step("kDefaults"), lambda f: f.__defaults__, set_attribute("__defaults__", None)),
    "kKeywordDefaults": Case(
        lambda: with_attribute(copy_function(), "__kwdefaults__", {"c": 1}),
        step("kKeywordDefaults"),
        lambda f: f.__kwdefaults__,
        set_attribute("__kwdefaults__", None),
    ),
    "kCode": Case(copy_function, step("kCode"), lambda f: f.__code__, set_attribute("__code__", closure.__code__)),
    "kGlobals": Case(copy_function, step("kGlobals"), lambda f: f.__globals__, lambda f: function),
    "kMethodSelf": Case(
        lambda: Plain(f=1).__init__, step("kMethodSelf"), lambda m: m.__self__, lambda m: Plain().__init__
    ),
    "kMethodSelf builtin": Case(lambda: [KEY].append, step("kMethodSelf"), lambda m: m.__self__, lambda m: [].append),
    "kMethodSelf wrapper": Case(
        lambda: (10**30).__add__, step("kMethodSelf"), lambda m: m.__self__, lambda m: (1).__add__
    ),
    "kMethodFunction": Case(
        lambda: Plain().__init__, step("kMethodFunction"), lambda m: m.__func__, lambda m: types.MethodType(print, 1)
    ),
    "kMethodFunction classmethod": Case(
        lambda: classmethod(function), step("kMethodFunction"), lambda m: function, lambda m: classmethod(print)
    ),
    "kDefaultFactory": Case(
        lambda: collections.defaultdict(list),
        step("kDefaultFactory"),
        lambda d: list,
        set_attribute("default_factory", None),
    ),
    "kGrad": Case(grad_tensor, step("kGrad"), lambda t: t.grad, set_grad),
    "kGrad None": Case(lambda: torch.ones(2), step("kGrad"), lambda t: None, set_grad),
    "kCached": Case(filled_cache(None), step("kCached", 3), lambda f: f(3), filled_cache(None, 8)),
    "kCached with a limit": Case(filled_cache(2), step("kCached", (3, "a")), lambda f: f(3, "a"), filled_cache(2, 8)),
    "kProxied": Case(
        lambda: types.MappingProxyType(PROXIED),
        step("kProxied"),
        lambda p: PROXIED,
        lambda p: types.MappingProxyType({}),
    ),
    "kReferent": Case(lambda: weakref.ref(Plain), step("kReferent"), lambda r: r(), lambda r: weakref.ref(Slotted)),
}


class Other:
    pass


def with_attribute(owner: Any, name: str, value: Any) -> Any:
    setattr(owner, name, value)
    return owner


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_accessor_finds_its_value_and_notices_a_change(case: Case) -> None:
    value = case.make()
    wanted = case.find(value)
    path = case.path(Tree().slot()).guard("kIs", wanted).need()
    assert path.text
    program = path.program()
    found = program.check(value)
    assert found is not None, program.why(value)
    assert found[0] is wanted
    assert case.change is not None
    changed = case.change(value)
    text = program.why(value if changed is None else changed)
    assert "it is the very object" in text or "it is not there" in text


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize(
    "other",
    [None, 7, "text", (), [], {}, set(), Plain(), with_dict(), Slotted(), Plain, function, print, torch.ones(2),
     types.CellType(), weakref.ref(Plain), collections.deque(), collections.OrderedDict(), object(), ValueError(), types,
     ABSENT],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_an_accessor_is_safe_on_any_object(case: Case, other: Any) -> None:
    wanted = object()
    program = case.path(Tree().slot()).guard("kIs", wanted).program()
    assert not program.holds(other)
    assert program.why(other)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_follow_finds_the_same(case: Case) -> None:
    value = case.make()
    path = case.path(Tree().slot())
    steps = [path.source]
    while steps[-1].parent.parent is not None:
        steps.append(steps[-1].parent)
    found = value
    for source in reversed(steps):
        found = guards.follow(source, found)
    assert found is case.find(value)


# ---- roots


def test_roots() -> None:
    tree = Tree()
    tree.function().guard("kIs", function).need()
    tree.slot(0, "x").guard("kEquals", 1).need()
    tree.slot(2, "z").guard("kAbsent").need()
    tree.constant(Plain).need()
    program = tree.program()
    assert program.check(1, 5, ABSENT, function=function) == [function, 1, ABSENT, Plain]
    assert "the function" in program.why(1, 5, ABSENT, function=print)
    assert program.why(2, 5, ABSENT, function=function) == "x: it equals 1 (type and bits), not 2"
    assert program.why(1, 5, 9, function=function) == "z: there is no such attribute"


def test_a_constant_that_is_the_users_is_held_weakly() -> None:
    def made() -> None: ...

    reference = weakref.ref(made)
    tree = Tree()
    tree.constant(made).guard("kCode", made.__code__, second=made.__globals__)
    program = tree.program()
    assert program.holds()
    del made
    gc.collect()
    assert reference() is None
    assert "it is not there" in program.why()


# ---- instance dicts


def test_reading_an_instance_does_not_make_its_dict() -> None:
    import sys

    o = Plain(x=1, y=2)
    size = sys.getsizeof(o)
    program = (
        Tree().slot().step("kDict").guard("kType", dict).guard("kLength", number=2).guard("kKeys", ("x", "y"))
        .guard("kHasKey", "x").guard("kLacksKey", "z").guard("kTruth", number=1)
    ).program()  # fmt: skip
    assert program.holds(o)
    assert sys.getsizeof(o) == size
    assert has_no_dict(o)
    vars(o)
    assert not has_no_dict(o)
    assert program.holds(o)  # in both states


def has_no_dict(o: Any) -> bool:
    return not any(isinstance(r, dict) for r in gc.get_referents(o))


def test_keys_of_inline_attributes_are_in_the_order_of_assignment() -> None:
    program = Tree().slot().step("kDict").guard("kKeys", ("x", "y")).program()
    assert program.holds(Plain(x=1, y=2))
    text = program.why(Plain(y=2, x=1))
    assert "its keys are, in this order, ('x', 'y'), not ('y', 'x')" in text
    again = Plain(x=1, y=2)
    del again.x
    again.x = 1
    assert not program.holds(again)
    assert has_no_dict(again)


def test_an_object_without_a_dict_yet_has_an_empty_one() -> None:
    tree = Tree()
    attributes = tree.slot().step("kDict").guard("kTruth", number=0).guard("kLength", number=0).guard("kKeys", ())
    attributes.guard("kLacksKey", "x")
    attributes.item("x").guard("kAbsent")
    program = tree.program()
    for empty in (Plain(), copy_function(), ValueError(), with_dict()):
        assert program.holds(empty)
        empty.x = 1
        assert not program.holds(empty)
    assert not program.holds(7)  # can have none


def test_a_dict_that_is_needed_is_made() -> None:
    o = Plain(x=1)
    program = Tree().slot().step("kDict").need().program()
    (found,) = program.check(o)
    assert found is o.__dict__
    found["y"] = 2
    assert o.y == 2


def test_a_dict_of_somebodys_class_is_not_read() -> None:
    class Strange(dict):  # type: ignore[type-arg]
        pass

    o = Plain()
    o.__dict__ = Strange(x=1)
    program = Tree().slot().attr("x").guard("kEquals", 1).program()
    assert "it is not there" in program.why(o)


def test_a_dict_subclass_with_attributes_of_its_own() -> None:
    class Both(dict):  # type: ignore[type-arg]
        pass

    b = Both(x="item")
    b.x = "attribute"
    tree = Tree()
    tree.slot().item("x").guard("kEquals", "item")
    tree.slot().attr("x").guard("kEquals", "attribute")
    tree.slot().step("kDict").identity()
    tree.slot().identity()
    program = tree.program()
    assert program.holds(b)
    vars(b)
    assert program.holds(b)


def test_many_attributes() -> None:
    for count in (29, 30, 31, 40):
        o = Plain(**{f"a{i}": i for i in range(count)})
        tree = Tree()
        for i in range(count):
            tree.slot().attr(f"a{i}").guard("kEquals", i)
        tree.slot().step("kDict").guard("kLength", number=count)
        program = tree.program()
        assert program.holds(o)
        setattr(o, f"a{count - 1}", -1)
        assert not program.holds(o)


# ---- dict keys


class SameHash:
    """Equal to an int, says its own __eq__."""

    def __init__(self, value: int) -> None:
        self.value, self.asked = value, 0

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        return other == self.value


def test_no_eq_of_a_users_key_is_called() -> None:
    key = SameHash(7)
    d = {key: 1, 8: 2, "x": 3}
    tree = Tree()
    tree.slot().item(8).guard("kEquals", 2)
    tree.slot().item("x").guard("kEquals", 3)
    tree.slot().guard("kLacksKey", 9)
    tree.slot().item(key).guard("kEquals", 1)
    program = tree.program()
    key.asked = 0
    assert program.holds(d)
    assert key.asked == 0
    # Whether 7 is a key, only its __eq__ could tell: no guard on it holds, neither way.
    for kind in ("kHasKey", "kLacksKey"):
        unknown = Tree().slot().guard(kind, 7).program()
        key.asked = 0
        assert not unknown.holds(d)
        assert key.asked == 0
    absent = Tree().slot()
    absent.item(7).guard("kAbsent")
    program = absent.program()
    assert "cannot be told" in program.why(d)
    assert key.asked == 0
    assert program.holds({8: 1})


def test_keys_that_compare_in_c_are_found_by_value() -> None:
    import enum

    class Level(enum.IntEnum):
        LOW = 1

    class Name(str):
        __slots__ = ()

    d = {True: "one", Name("a"): "b", (1, (2.0, "x")): 3, frozenset({1, 2}): 4, torch.float32: 5, int: 6}
    tree = Tree()
    for key, value in [(1, "one"), (Level.LOW, "one"), ("a", "b"), ((1.0, (2, "x")), 3), (frozenset({2, 1}), 4),
                       (torch.float32, 5), (int, 6)]:  # fmt: skip
        tree.slot().item(key).guard("kEquals", value)
    tree.slot().guard("kLacksKey", 2).guard("kLacksKey", "c").guard("kLacksKey", float)
    program = tree.program()
    assert program.holds(d)
    d["c"] = 1
    assert not program.holds(d)


def test_an_enum_key_is_found_by_identity() -> None:
    import enum

    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    d = {Color.RED: 1}
    tree = Tree()
    tree.slot().item(Color.RED).guard("kEquals", 1)
    tree.slot().item(Color.BLUE).guard("kAbsent")
    program = tree.program()
    assert program.holds(d)
    d[Color.BLUE] = 1
    assert not program.holds(d)


def test_parts_in_any_order() -> None:
    values = list(range(100, 140))
    d, s = dict.fromkeys(values), set(values)
    order = list(s)
    tree = Tree()
    for i in (5, 39, 0, 7, 8):
        tree.slot(0).step("kKey", index=i).guard("kEquals", values[i])
        tree.slot(1).step("kElement", index=i).guard("kEquals", order[i])
    program = tree.program()
    assert program.holds(d, s)
    s.remove(order[7])
    assert not program.holds(d, s)


def test_many_parts_are_read_in_one_pass() -> None:
    n = 20_000
    d, s = {i: i for i in range(n)}, set(range(n))
    tree = Tree()
    for i in range(n):
        tree.slot(0).item(i).guard("kEquals", i)
        tree.slot(0).step("kKey", index=i).guard("kEquals", i)
        tree.slot(1).step("kElement", index=i).guard("kEquals", i)
    program = tree.program()
    assert program.holds(d, s)  # seconds, were it quadratic
    d[n - 1] = 0
    assert not program.holds(d, s)


def test_a_long_chain() -> None:
    n = 50_000
    node: Any = None
    for _ in range(n):
        node = [node]
    tree = Tree()
    path = tree.slot()
    for _ in range(n):
        path = path.at(0)
    path.guard("kIs", None)
    assert len(path.text) < 10_000
    program = tree.program()
    assert program.holds(node)
    assert "..." in program.why([node])
    while node:  # a long chain may not be freed by recursion
        node = node.pop()


def test_a_getter_that_fails_leaves_no_error() -> None:
    program = Tree().slot().step("kField", "cell_contents").guard("kAbsent").program()
    assert program.holds(types.CellType())
    assert not program.holds(types.CellType(1))


def test_getters_of_tensors_are_not_called() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("__torch_function__ was called")

    t = torch.ones(2).as_subclass(Loud)
    tree = Tree()
    tree.slot().step("kField", "requires_grad").guard("kEquals", True)
    program = tree.program()
    assert not program.holds(t)
    assert Tree().slot().step("kGrad").guard("kIs", None).program().holds(t)


def test_grad_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    t = torch.ones(2, requires_grad=True) * 2
    assert Tree().slot().step("kGrad").guard("kIs", None).program().holds(t)
    assert not recwarn.list


# ---- how sources are written


def test_texts() -> None:
    tree = Tree()
    self = tree.slot(0, "self")
    layers = self.attr("_modules").item("layers")
    weight = layers.attr("_modules").item("3").attr("_parameters").item("weight")
    assert weight.text == "self.layers[3].weight"
    assert self.attr("_buffers").item("mean").text == "self.mean"
    assert self.attr("_modules").text == "self._modules"
    assert self.step("kType").step("kTypeAttribute", "forward").text == "type(self).forward"
    assert self.attr("config").item("lr").text == "self.config['lr']"
    assert self.attr("config").item(3).text == "self.config[3]"
    assert self.attr("names").at(2).text == "self.names[2]"
    assert tree.function().step("kGlobals").item("scale").text == "scale"
    assert tree.constant(globals()).item("Plain").text == f"{__name__}.Plain"
    assert tree.constant(Plain).step("kTypeAttribute", "x").text == "Plain.x"
    assert tree.constant(types).attr("x").text == "types.x"
    assert tree.function().step("kCell", "scale", 0).step("kContents").text == "scale"
    assert tree.function().step("kCell", index=1).step("kContents").text == "the cell 1 of the function.cell_contents"
    assert self.step("kGrad").text == "self.grad"
    assert self.attr("r").step("kReferent").text == "self.r()"


def test_a_key_that_is_the_users_is_held_weakly() -> None:
    key = Plain()
    reference = weakref.ref(key)
    d = {key: 1}
    path = Tree().slot(0, "d").item(key).guard("kEquals", 1)
    assert path.text == "d[<Plain object>]"
    program = path.program()
    assert program.holds(d)
    del key
    d.clear()
    gc.collect()
    assert reference() is None
    assert program.why(d) == "d[<Plain object>]: it is not there"


def test_sources_are_shared() -> None:
    tree = Tree()
    assert tree.slot().attr("x").source == tree.slot().attr("".join(["x"])).source
    assert tree.slot().item((1, 2)).source != tree.slot().item(tuple([1, 2])).source  # by identity
    assert tree.slot().at(0).source != tree.slot().at(1).source
    tree.slot().guard("kLength", number=3).guard("kLength", number=3).guard("kEquals", 1.5).guard("kEquals", 1.5)
    assert tree.slot().source.guards == 2

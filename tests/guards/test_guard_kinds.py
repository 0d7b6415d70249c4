"""Every kind of guard: when it holds, when it does not, and what it says."""

from __future__ import annotations

import collections
import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guard_trees import ABSENT, Tree, guards, only


class Thing:
    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


class Sub(dict):  # type: ignore[type-arg]
    pass


def test_every_kind_has_a_test_here() -> None:
    kinds = {name for name in guards.mutant_names() if name.startswith("k")}
    tested = {"kType", "kIs", "kEquals", "kTensor", "kLength", "kTruth", "kKeys", "kHasKey", "kLacksKey", "kCode", "kAbsent",
              "kSame", "kDistinct", "kSpecialMethods", "kSetLayout", "kUnobserved", "kYields", "kEnds"}  # fmt: skip
    assert kinds == tested


# ---- kType


def test_type() -> None:
    program = only("kType", dict)
    assert program.holds({})
    assert program.why(Sub()) == "a0: its type is dict, not Sub"
    assert not only("kType", int).holds(True)


def test_type_after_class_was_assigned() -> None:
    class Other:
        pass

    o = Thing()
    program = only("kType", Thing)
    assert program.holds(o)
    o.__class__ = Other
    assert program.why(o).endswith("its type is Thing, not test_type_after_class_was_assigned.<locals>.Other")


# ---- kIs


def test_is() -> None:
    wanted = [1]
    program = only("kIs", wanted)
    assert program.holds(wanted)
    assert program.why([1]) == "a0: it is the very object [1], not [1]"


def test_is_does_not_keep_an_instance_alive_and_is_not_fooled_by_its_address() -> None:
    o = Thing()
    address = id(o)
    program = only("kIs", o)
    assert program.holds(o)
    reference = weakref.ref(o)
    del o
    assert reference() is None
    for _ in range(1000):
        again = Thing()
        if id(again) == address:
            break
    assert id(again) == address, "the allocator gave another address each time"
    assert not program.holds(again)
    assert "(which is gone)" in program.why(again)


@pytest.mark.parametrize("make", [lambda: Thing, lambda: 10**30, lambda: torch.float32, object, lambda: [1]])
def test_is_holds_what_it_may_or_must_hold(make: Callable[[], Any]) -> None:
    wanted = make()
    before = sys.getrefcount(wanted)
    program = only("kIs", wanted)
    assert sys.getrefcount(wanted) > before
    assert program.holds(wanted)


# ---- kEquals


def test_equals() -> None:
    program = only("kEquals", 1)
    assert program.holds(1)
    assert program.why(True) == "a0: it equals 1 (type and bits), not True"
    assert only("kEquals", 0.0).why(-0.0) == "a0: it equals 0.0 (type and bits), not -0.0"
    assert only("kEquals", (1, ("a", None))).holds((1, ("a", None)))
    assert not only("kEquals", None).holds(0)


CONTAINERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [1, 2.5, "x", (1, 2)], lambda x: x.append(1)),
    "list, one bit": (lambda: [0.0], lambda x: x.__setitem__(0, -0.0)),
    "dict": (lambda: {"a": 1, 2: (3,)}, lambda x: x.__setitem__("a", True)),
    "dict order": (lambda: {"a": 1, "b": 2}, lambda x: x.__setitem__("a", x.pop("a"))),
    "set": (lambda: {1, 2, 3}, lambda x: x.discard(3)),
    "deque": (lambda: collections.deque([1, 2]), lambda x: x.rotate(1)),
    "OrderedDict": (lambda: collections.OrderedDict(a=1, b=2), lambda x: x.move_to_end("a")),
    "defaultdict": (lambda: collections.defaultdict(int, a=1), lambda x: x["b"]),
    "empty list": (list, lambda x: x.append(None)),
    "empty dict": (dict, lambda x: x.update(a=1)),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_equals_of_a_container_compares_with_what_it_held(name: str) -> None:
    make, change = CONTAINERS[name]
    container = make()
    program = only("kEquals", container)
    assert program.holds(container)
    assert program.holds(make())
    change(container)
    assert not program.holds(container)  # though it is the object that the guard was made from
    assert program.holds(make())
    assert f"{type(container).__name__} of (" in program.why(container)


def test_equals_does_not_keep_the_container() -> None:
    class Kept(list):  # type: ignore[type-arg]
        pass

    container = [1, 2]
    program = only("kEquals", container)
    assert sys.getrefcount(container) == 2
    assert not program.holds(Kept([1, 2]))


def test_equals_refuses_containers_in_containers() -> None:
    for bad in ([[1]], {"a": {}}, ([],), [(1, {2})], [collections.deque()]):
        with pytest.raises(SystemError, match="a container inside of a container"):
            Tree().slot().guard("kEquals", bad)


# ---- kLength, kTruth


@pytest.mark.parametrize("make", [list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, Sub])
def test_length_and_truth(make: Any) -> None:
    zero, two = make(), make([1, 2]) if not issubclass(make, dict) else make({1: 1, 2: 2})
    assert only("kLength", number=0).holds(zero)
    assert only("kLength", number=2).holds(two)
    assert only("kLength", number=0).why(two) == "a0: its length is 0, not 2"
    assert only("kTruth", number=0).holds(zero)
    assert only("kTruth", number=1).holds(two)
    assert only("kTruth", number=0).why(two) == "a0: it is empty, not not empty"
    assert only("kTruth", number=1).why(zero) == "a0: it is not empty, not empty"


def test_length_of_something_else() -> None:
    for other in (7, "text", Thing(), None):
        assert not only("kLength", number=4).holds(other)
        assert not only("kTruth", number=0).holds(other)


def test_len_of_a_subclass_is_not_called() -> None:
    class Liar(list):  # type: ignore[type-arg]
        def __len__(self) -> int:
            raise AssertionError

        def __bool__(self) -> bool:
            raise AssertionError

    assert only("kLength", number=1).holds(Liar([1]))
    assert only("kTruth", number=1).holds(Liar([1]))


# ---- kSetLayout


def layout(slots: list[int], finger: int = 0) -> int:
    """0: an empty place in the table, 1: of a deleted element, 2: of an element."""
    digest = 0xCBF29CE484222325
    for number in [len(slots) - 1, finger, *slots]:
        digest = (digest ^ number) * 0x100000001B3 % 2**64
    return digest - 2**64 if digest >= 2**63 else digest


def test_layout_of_a_set() -> None:
    fresh = only("kSetLayout", number=layout([0, 2, 2, 0, 0, 0, 0, 0]))
    assert fresh.holds({1, 2})
    assert fresh.holds({9, 10})  # equal places
    assert fresh.holds(frozenset({1, 2}))
    used = {1, 2, 3}
    used.discard(3)
    assert only("kSetLayout", number=layout([0, 2, 2, 1, 0, 0, 0, 0])).holds(used)
    assert fresh.why(used) == "a0: the layout of its hash table is the same"
    popped = {1, 2}
    popped.add(popped.pop())
    assert not fresh.holds(popped)  # pop() goes on behind the place of the first
    large = set(range(100)) - set(range(3, 100)) - {0}
    assert list(large) == [1, 2]
    for other in (large, [1, 2], 3, None):
        if other is not large:
            assert not fresh.holds(other)
    changing = {1, 2}
    program = only("kSetLayout", number=layout([0, 2, 2, 0, 0, 0, 0, 0]))
    assert program.holds(changing)
    changing.add(3)
    assert not program.holds(changing)


# ---- kUnobserved


class Noticed:
    def __del__(self) -> None:
        pass


def opened() -> Any:
    def steps() -> Any:
        try:
            yield 1
        finally:
            pass

    generator = steps()
    next(generator)
    return generator


def bound(value: Any) -> Any:
    return lambda: value


def test_unobserved() -> None:
    program = only("kUnobserved")
    for quiet in (
        1,
        None,
        "s",
        Thing(),
        [Thing(a=[1])],
        {"k": (1, 2)},
        torch.ones(2),
        len,
        Thing,
        iter([1]),
        (i for i in "ab"),
    ):
        assert program.holds(quiet), quiet
    assert program.why(Noticed()) == "a0: its finalization is not observable"
    for loud in (
        [Noticed()],
        {"k": (Noticed(),)},
        Thing(a=Noticed()),
        opened(),
        [opened()],
        collections.deque([Noticed()]),
    ):
        assert not program.holds(loud), loud
    kept = Thing()
    reference = weakref.ref(kept)
    assert program.holds(kept)
    watching = weakref.ref(kept, lambda _: None)
    assert not program.holds(kept)
    assert not program.holds([kept])
    del watching
    assert program.holds(kept)
    table = weakref.WeakKeyDictionary({kept: reference})
    assert not program.holds(kept), table  # its length tells
    tensor = torch.ones(2)
    finalizer = weakref.finalize(tensor, print)
    assert not program.holds(tensor)
    finalizer.detach()
    assert program.holds(tensor)


def test_unobserved_deep_down() -> None:
    """As deep as nobody else holds what leads there."""
    tree = Tree()
    tree.slot().at(0).guard("kUnobserved")
    program = tree.program()
    assert not program.holds([[[[[[Noticed()]]]]]])
    assert not program.holds([Thing(a=[Thing(b={"k": [Noticed()]})])])
    held = [[[[Noticed()]]]]
    assert program.holds([held])
    assert not program.holds([bound(Noticed())])
    assert program.holds([bound(held)])


# ---- kKeys, kHasKey, kLacksKey


def test_keys() -> None:
    key = Thing()
    program = only("kKeys", ("a", 1, key))
    assert program.holds({"a": 0, 1: 0, key: 0})
    assert "not ('a', <Thing object>, 1)" in program.why({"a": 0, key: 0, 1: 0})
    assert not program.holds({"a": 0, 1: 0})
    assert not program.holds({"a": 0, 1: 0, key: 0, 2: 0})
    assert not program.holds({"a": 0, True: 0, key: 0})
    assert not program.holds({"a": 0, 1: 0, Thing(): 0})
    assert not program.holds(["a", 1, key])
    reference = weakref.ref(key)
    del key
    gc.collect()
    assert reference() is None


def test_keys_of_an_ordered_dict_are_in_its_order() -> None:
    d = collections.OrderedDict(a=1, b=2, c=3)
    program = only("kKeys", ("a", "b", "c"))
    assert program.holds(d)
    d.move_to_end("a")
    assert "not ('b', 'c', 'a')" in program.why(d)
    d.move_to_end("a", last=False)
    assert program.holds(d)


def test_has_and_lacks_key() -> None:
    has, lacks = only("kHasKey", "a"), only("kLacksKey", "a")
    assert has.holds({"a": None})
    assert has.why({}) == "a0: it has the key 'a'"
    assert lacks.holds({})
    assert lacks.why({"a": None}) == "a0: it has no key 'a'"
    assert not has.holds("a")
    assert not lacks.holds("a")


def test_a_global_that_shadows_a_builtin_later() -> None:
    namespace: dict[str, Any] = {"x": 1}
    tree = Tree()
    tree.function().step("kGlobals").guard("kLacksKey", "len")
    program = tree.program()
    f = types.FunctionType((lambda: len).__code__, namespace)
    assert program.holds(function=f)
    namespace["len"] = print
    assert program.why(function=f) == "the function.__globals__: it has no key 'len'"


# ---- kCode


def test_code() -> None:
    def made(value: int) -> Callable[[], int]:
        return lambda: value

    first = made(1)
    program = only("kCode", first.__code__, second=first.__globals__)
    assert program.holds(first)
    assert program.holds(made(2))
    other = types.FunctionType(first.__code__, {}, "other", None, first.__closure__)
    assert not program.holds(other)
    assert only("kCode", first.__code__).holds(other)  # where the globals were not asked for
    assert "it runs the code" in program.why(made)
    assert "with the same globals, not test_code.<locals>.made" in program.why(made)
    assert not program.holds(print)
    first.__code__ = (lambda: value).__code__ if (value := 0) else made(0).__code__.replace(co_name="renamed")
    assert not program.holds(first)


# ---- kAbsent


def test_absent() -> None:
    class Slotted:
        __slots__ = ("x",)

    class Empty:
        pass

    cell = types.CellType()
    slotted = Slotted()
    tree = Tree()
    tree.slot(0).step("kContents").guard("kAbsent")
    tree.slot(1).step("kField", "x").guard("kAbsent")
    tree.slot(2).step("kTypeAttribute", "x").guard("kAbsent")
    tree.slot(3).item("x").guard("kAbsent")
    program = tree.program()
    d: dict[str, int] = {}
    assert program.holds(cell, slotted, Empty, d)
    cell.cell_contents = 1
    assert program.why(cell, slotted, Empty, d) == "a0.cell_contents: there is no such attribute"
    del cell.cell_contents
    slotted.x = 1
    assert program.why(cell, slotted, Empty, d) == "a1.x: there is no such attribute"
    del slotted.x
    Empty.x = 1  # type: ignore[attr-defined]
    assert program.why(cell, slotted, Empty, d) == "a2.x: there is no such attribute"
    del Empty.x  # type: ignore[attr-defined]
    d["x"] = 1
    assert program.why(cell, slotted, Empty, d) == "a3['x']: there is no such attribute"


def test_what_is_below_an_absent_source_is_absent() -> None:
    tree = Tree()
    tree.slot().item("x").guard("kAbsent").need()
    tree.slot().item("x").at(0).need()
    program = tree.program()
    assert program.check({}) == [ABSENT, ABSENT]


# ---- kSame, kDistinct, identity


def test_same_and_distinct() -> None:
    tree = Tree()
    tree.slot(1).guard("kSame", other=tree.slot(0))
    tree.slot(2).guard("kDistinct", other=tree.slot(0))
    program = tree.program()
    a: list[int] = []
    b: list[int] = []
    assert program.holds(a, a, b)
    assert program.why(a, b, b) == "a1: it is the same object as a0"
    assert program.why(a, a, a) == "a2: it is another object than a0"


def identities(count: int, joined: tuple[tuple[int, int], ...] = ()) -> Any:
    tree = Tree()
    for i in range(count):
        tree.slot(i).identity()
    for a, b in joined:
        tree.slot(a).guard("kSame", other=tree.slot(b))
    return tree.program()


def test_two_objects_stay_two() -> None:
    program = identities(3)
    x, y, z = [], [], []  # type: ignore[var-annotated]
    assert program.holds(x, y, z)
    assert program.why(x, y, x) == "a0: it is another object than a2"
    assert "different objects: a0, a1, a2" in program.texts


def test_one_object_stays_one() -> None:
    program = identities(4, joined=((1, 0), (3, 1)))
    x, y = [], []  # type: ignore[var-annotated]
    assert program.holds(x, x, y, x)
    assert not program.holds(x, x, x, x)
    assert not program.holds(x, x, y, y)
    assert not program.holds(y, x, y, y)


def test_identity_of_nested_objects() -> None:
    tree = Tree()
    tree.slot(0).at(0).identity()
    tree.slot(0).at(1).identity()
    tree.slot(1).identity()
    program = tree.program()
    x, y, z = Thing(), Thing(), Thing()
    assert program.holds([x, y], z)
    assert not program.holds([x, x], z)
    assert not program.holds([x, y], x)


def test_shared_instance_dicts_are_noticed() -> None:
    tree = Tree()
    tree.slot(0).step("kDict").identity()
    tree.slot(1).step("kDict").identity()
    tree.slot(0).identity()
    tree.slot(1).identity()
    program = tree.program()
    a, b = Thing(x=1), Thing(x=1)
    assert program.holds(a, b)  # neither has a dict yet
    vars(a)
    assert program.holds(a, b)
    b.__dict__ = a.__dict__
    assert "another object" in program.why(a, b)


def test_many_identities() -> None:
    n = 5000
    tree = Tree()
    for i in range(n):
        tree.slot().at(i).identity()
    program = tree.program()
    values = [Thing() for _ in range(n)]
    assert program.holds(values)
    values[4000] = values[17]
    assert program.why(values) == "a0[17]: it is another object than a0[4000]"


# ---- kSpecialMethods


def special(cls: type) -> dict[str, Any]:
    """Every dunder attribute that a class has, bases included."""
    names = [name for base in cls.__mro__ for name in vars(base) if name.startswith("__") and name.endswith("__")]
    data = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__"}
    found: dict[str, Any] = {}
    for name in names:
        for base in cls.__mro__:
            if name in vars(base) and name not in data:
                found.setdefault(name, vars(base)[name])
    return found


def test_special_methods() -> None:
    class Base:
        def __len__(self) -> int:
            return 1

    class Number(Base):
        def __add__(self, other: Any) -> Any:
            return self

    tree = Tree()
    tree.constant(Number).guard("kSpecialMethods", special(Number))
    program = tree.program()
    assert program.holds()
    Number.unrelated = 1  # type: ignore[attr-defined]
    assert program.holds()
    Number.__doc__ = "changed"
    assert program.holds()
    add = Number.__add__
    Number.__add__ = lambda self, other: other  # type: ignore[method-assign]
    text = program.why()
    assert "the special methods of" in text and "Number are as they were" in text
    Number.__add__ = add  # type: ignore[method-assign]
    assert program.holds()
    Number.__bool__ = lambda self: False  # type: ignore[attr-defined]  # a new one
    assert not program.holds()
    del Number.__bool__  # type: ignore[attr-defined]
    assert program.holds()
    Base.__len__ = lambda self: 2  # type: ignore[method-assign]  # of a base
    assert not program.holds()


def test_special_methods_after_the_bases_changed() -> None:
    class First:
        pass

    class Second:
        def __len__(self) -> int:
            return 0

    class Derived(First):
        pass

    tree = Tree()
    tree.constant(Derived).guard("kSpecialMethods", special(Derived))
    program = tree.program()
    assert program.holds()
    Derived.__bases__ = (Second,)
    assert not program.holds()


# ---- class attributes


def test_only_the_attributes_used_matter() -> None:
    class Model:
        used = 1

        def forward(self) -> int:
            return 1

    forward = Model.forward
    tree = Tree()
    tree.slot().step("kType").step("kTypeAttribute", "forward").guard("kIs", forward)
    tree.slot().step("kType").step("kTypeAttribute", "used").guard("kEquals", 1)
    program = tree.program()
    model = Model()
    assert program.holds(model)
    for i in range(3):
        Model.other = i  # type: ignore[attr-defined]
        assert program.holds(model)
    Model.used = True
    assert not program.holds(model)
    Model.used = 1
    assert program.holds(model)
    Model.forward = lambda self: 2  # type: ignore[method-assign]
    assert not program.holds(model)


# ---- kTensor


def test_tensor() -> None:
    program = only("kTensor", torch.ones(2, 3))
    assert program.holds(torch.zeros(2, 3))
    mismatch = "tensor 'a0' size mismatch at index 0. expected 2, actual 4"  # as TorchDynamo says it
    assert program.why(torch.ones(4, 3)) == f"a0: the tensor is of size [2, 3], not of size [4, 3]; {mismatch}"
    assert program.why(7).endswith("not 7; expected type of 'a0' to be a tensor type, ' but found <class 'int'>")
    assert program.why(torch.nn.Parameter(torch.ones(2, 3))).startswith(
        "a0: the tensor is a Tensor, not requiring grad"
    )


def test_a_tensor_that_matched_is_not_kept() -> None:
    t = torch.ones(2)
    program = only("kTensor", t)
    assert program.holds(t)
    reference = weakref.ref(t)
    del t
    gc.collect()
    assert reference() is None


# ---- programs


def test_dead_sources_are_dropped() -> None:
    tree = Tree()
    root = tree.slot(0, "self")
    root.attr("unused").at(3)
    root.attr("used").guard("kEquals", 1)
    tree.slot(5).attr("x")
    program = tree.program()
    assert program.program.node_count == 3  # self, its dict, used
    assert program.holds(Thing(used=1))  # slot 5 is not even there


def test_values_come_in_order_and_twice_if_asked_twice() -> None:
    tree = Tree()
    a = tree.slot().at(0).need()
    tree.slot().at(1).need()
    a.need()
    tree.slot().need()
    program = tree.program()
    x, y = Thing(), Thing()
    values = [x, y]
    assert program.check(values) == [x, y, x, values]
    before = sys.getrefcount(x)
    found = program.check(values)
    assert sys.getrefcount(x) == before + 2
    del found
    assert sys.getrefcount(x) == before


def test_the_users_line() -> None:
    code = test_the_users_line.__code__
    tree = Tree()
    tree.tree.set_site(code, 0)
    tree.slot(0).guard("kEquals", 1)
    index = max(i for i, _ in enumerate(code.co_code[::2]) if i * 2 < len(code.co_code))
    tree.tree.set_site(code, index)
    tree.slot(1).guard("kEquals", 2)
    tree.tree.set_site(None, 0)
    tree.slot(2).guard("kEquals", 3)
    program = tree.program()
    first, last = code.co_firstlineno, max(line for _, _, line in code.co_lines() if line)
    why = program.program.explain(None, (0, 2, 3))
    assert (why["file"], why["line"], why["function"]) == (__file__, first, "test_the_users_line")
    assert why["text"] == f"a0: it equals 1 (type and bits), not 0 ({__file__}:{first}, in test_the_users_line)"
    assert program.program.explain(None, (1, 0, 3))["line"] <= last
    assert program.program.explain(None, (1, 0, 3))["line"] > first
    assert program.program.explain(None, (1, 2, 0))["file"] == ""
    assert program.program.explain(None, (1, 2, 3))["text"] == ""
    assert any(f"({__file__}:{first}, in test_the_users_line)" in text for text in program.texts)


def test_a_failed_check_says_what_it_wanted_without_looking_again() -> None:
    program = Tree().slot(0, "x").guard("kLength", number=3).program()
    assert not program.holds([])
    assert program.program.failure == "x: its length is 3"


def test_an_empty_program_always_holds() -> None:
    assert Tree().program().check() == []


def test_a_tree_is_closed_once_it_is_a_program() -> None:
    tree = Tree()
    tree.slot()
    tree.program()
    with pytest.raises(ValueError, match="has become a program"):
        tree.slot()


def test_no_reference_is_lost_or_kept() -> None:
    class Model:
        def __init__(self) -> None:
            self.items = [torch.ones(2), torch.ones(3)]
            self.table = {"a": Thing(), Thing: 1}
            self.queue = collections.deque([Thing()])

    model = Model()
    tree = Tree()
    tree.slot().guard("kType", Model).identity()
    for i in range(2):
        tree.slot().attr("items").at(i).guard("kTensor", model.items[i]).identity().need()
    tree.slot().attr("table").item("a").guard("kIs", model.table["a"]).need()
    tree.slot().attr("table").guard("kKeys", tuple(model.table))
    tree.slot().attr("queue").at(0).guard("kIs", model.queue[0]).need()
    program = tree.program()
    watched = [model, *model.items, model.table["a"], model.queue[0], Model, Thing]
    for _ in range(3):
        assert program.holds(model)
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(1000):
        assert program.holds(model)
        assert not program.holds([])
    assert [sys.getrefcount(o) for o in watched] == before
    references = [weakref.ref(o) for o in watched[:5]]
    del model, watched
    gc.collect()
    assert [r() for r in references] == [None] * 5


# ---- switches


@pytest.mark.skipif(not guards.has_mutants, reason="this build has no switches (ALTERNATOR_MUTANTS)")
def test_a_kind_can_be_switched_off() -> None:
    guards.set_mutant("kLength", True)
    try:
        program = Tree().slot().guard("kLength", number=3).guard("kType", list).program()
        assert program.holds([])
        assert not program.holds(())
        assert program.program.check_count == 1
    finally:
        guards.set_mutant("kLength", False)
    assert not only("kLength", number=3).holds([])
    with pytest.raises(ValueError, match="no such switch"):
        guards.set_mutant("kNothing", True)


@pytest.mark.skipif(not guards.has_mutants, reason="this build has no switches (ALTERNATOR_MUTANTS)")
def test_identity_can_be_switched_off() -> None:
    guards.set_mutant("identity", True)
    try:
        program = identities(2)
    finally:
        guards.set_mutant("identity", False)
    x: list[int] = []
    assert program.holds(x, x)


# ---- kYields, kEnds


def test_yields() -> None:
    program = only("kYields", number=2)
    rows = [1, 2, 3]
    it = iter(rows)
    assert program.holds(it)
    next(it)
    assert program.holds(it)
    assert program.why(iter([1])) == "a0: it yields 2 values at least"
    rows.pop()
    assert not program.holds(it)
    assert program.holds(enumerate("ab"))
    assert not program.holds(zip("ab", "c", strict=False))
    assert not program.holds(map(abs, [1, 2]))  # calls what may do anything
    assert not program.holds([1, 2])


def test_ends() -> None:
    program = only("kEnds", number=1)
    assert program.holds(iter((5,)))
    assert program.why(iter(())) == "a0: it ends after 1 values"
    assert not program.holds(iter((5, 6)))
    assert not program.holds(map(abs, [5]))
    over = iter([5])
    list(over)
    assert only("kEnds", number=0).holds(over)
    table = {"a": 1, "b": 2}
    it = iter(table)
    next(it)
    assert program.holds(it)
    table["c"] = 3
    assert not program.holds(it)  # it would raise

"""Every kind of write-back: what the program did to a private copy is done to the real thing."""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="replay needs torch")

from hand import made_here, replay  # noqa: E402


class Items(list):
    def append(self, item: Any) -> None:
        raise AssertionError("an overridden method must not run")

    extend = __setitem__ = __delitem__ = append


class Mapping(dict):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("an overridden method must not run")

    __delitem__ = __setitem__  # type: ignore[assignment]


class Ordered(collections.OrderedDict):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("an overridden method must not run")


class Thing:
    shown = "class"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("__setattr__ must not run")

    @property
    def guarded(self) -> Any:
        raise AssertionError("a getter must not run")

    @guarded.setter
    def guarded(self, value: Any) -> None:
        raise AssertionError("a setter must not run")


class Slotted:
    __slots__ = ("first", "second")


SNAPSHOTS: dict[str, Callable[[Any], Any]] = {"list": list, "dict": dict, "set": list, "deque": list}


def private_copy(kind: str, value: Any) -> Any:
    if kind == "dict" and isinstance(value, collections.OrderedDict):
        copy = type(value)()
        for key, item in value.items():
            collections.OrderedDict.__setitem__(copy, key, item)
        return copy
    if kind == "dict":
        copy = type(value)(*[value.default_factory] if isinstance(value, collections.defaultdict) else [])
        dict.update(copy, value)
        return copy
    if kind == "list":
        copy = type(value)()
        list.extend(copy, value)
        return copy
    return type(value)(value, value.maxlen) if kind == "deque" else type(value)(value)


def check_write(kind: str, start: Callable[[], Any], program: Callable[[Any], Any]) -> replay.World:
    """`program` on a container: on a private copy of one, replayed on two others, against itself."""
    copy = private_copy(kind, start())
    world = replay.World(made_here)
    world.preexisting(copy, "c")
    world.shadow(kind, copy, SNAPSHOTS[kind](copy), start())
    result = program(copy)
    residual = world.build(result)
    for _ in range(2):
        target, expected = start(), start()
        expected_result = program(expected)
        given = residual.run({"c": target} if "c" in residual.needed else {}, [])
        assert list_of(target) == list_of(expected), residual.text()
        assert type(target) is type(expected)
        if expected_result is expected:
            assert given is target
    return world


def list_of(container: Any) -> list[Any]:
    if isinstance(container, collections.OrderedDict):
        return list(collections.OrderedDict.items(container))
    return list(container.items()) if isinstance(container, dict) else list(container)


def act(statement: str) -> Callable[[Any], Any]:
    def program(c: Any) -> Any:
        exec(statement, {"c": c, "list": list, "dict": dict, "OrderedDict": collections.OrderedDict})
        return c

    return program


# ---- lists


@pytest.mark.parametrize(
    ("statement", "needs_length"),
    [
        ("pass", False),
        ("list.append(c, 9)", False),
        ("list.extend(c, [9, 8])", False),
        ("list.pop(c); list.append(c, 3)", False),
        ("list.pop(c)", True),
        ("list.__setitem__(c, 1, 9)", True),
        ("list.__setitem__(c, -1, 9)", True),
        ("list.insert(c, 0, 9)", True),
        ("list.insert(c, 2, 9)", True),
        ("list.clear(c)", True),
        ("list.reverse(c)", True),
        ("list.sort(c, key=lambda v: -v)", True),
        ("list.__delitem__(c, 1)", True),
        ("list.__setitem__(c, slice(None), [c, 1])", True),
        ("list.remove(c, 1); list.append(c, 5)", True),
    ],
)
def test_lists(statement: str, needs_length: bool) -> None:
    for cls in (list, Items):
        if "[c," in statement:
            continue
        world = check_write("list", lambda: cls([1, 2, 3]), act(statement))  # noqa: B023
        assert world.lengths == (["c"] if needs_length else [])
        assert world.identities == ([] if statement == "pass" or "3)" in statement and "pop" in statement else ["c"])


def test_a_list_that_comes_to_hold_itself() -> None:
    copy: list[Any] = [1, 2]
    world = replay.World()
    world.preexisting(copy, "c")
    world.shadow("list", copy, list(copy), [1, 2])
    copy[0] = copy
    target = [1, 2]
    assert world.build(copy).run({"c": target}) is target
    assert target[0] is target and target[1] == 2


def test_appending_needs_no_length() -> None:
    copy = [1, 2]
    world = replay.World()
    world.preexisting(copy, "c")
    world.shadow("list", copy, [1, 2], [1, 2])
    copy.append(7)
    residual = world.build(None)
    target: list[Any] = ["any", "length", "will", "do"]
    residual.run({"c": target})
    assert target == ["any", "length", "will", "do", 7]


def test_a_place_that_was_not_read_is_not_moved() -> None:
    unread = object()
    copy = [unread, 2]
    world = replay.World()
    world.preexisting(copy, "c")
    world.shadow("list", copy, [unread, 2], [unread, 2], lifted_slots=[False, True])
    copy.reverse()
    with pytest.raises(replay.CannotRebuild, match="had not been read"):
        world.build(None)
    # In front of the change it may stay as it is.
    copy[:] = [unread, 3]
    target: list[Any] = ["kept", 2]
    world.build(None).run({"c": target})
    assert target == ["kept", 3]


# ---- dicts


@pytest.mark.parametrize(
    "statement",
    [
        "pass",
        "{0}.__setitem__(c, 'new', 1)",
        "{0}.__setitem__(c, 'a', 9)",
        "{0}.__delitem__(c, 'b')",
        "{0}.__delitem__(c, 'a'); {0}.__setitem__(c, 'a', 9)",
        "{0}.__delitem__(c, 'a'); {0}.__setitem__(c, 'a', 1)",
        "{0}.__delitem__(c, 'c'); {0}.__setitem__(c, 'c', 5)",
        "{0}.__delitem__(c, 'b'); {0}.__setitem__(c, 'x', 5); {0}.__setitem__(c, 'b', 7)",
        "{0}.clear(c)",
        "{0}.clear(c); {0}.__setitem__(c, 'c', 3); {0}.__setitem__(c, 'a', 1)",
        "{0}.pop(c, 'a'); {0}.setdefault(c, 'z', 2)",
        "{0}.popitem(c)",
        "dict.update(c, a=5, q=6) if {0} is dict else OrderedDict.update(c)",
    ],
)
def test_dicts(statement: str) -> None:
    for cls, base in (
        (dict, "dict"),
        (Mapping, "dict"),
        (collections.OrderedDict, "OrderedDict"),
        (Ordered, "OrderedDict"),
    ):

        def start(cls: Any = cls) -> Any:
            made = cls()
            for key, value in (("a", 1), ("b", 2), ("c", 3)):
                (collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict).__setitem__(
                    made, key, value
                )
            return made

        if "setdefault" in statement and cls is Ordered:
            continue
        world = check_write("dict", start, act(statement.format(base)))
        assert world.lengths == []


def test_move_to_end() -> None:
    for statement in ("c.move_to_end('a')", "c.move_to_end('c', last=False)", "c.move_to_end('b'); c['a'] = 8"):
        check_write("dict", lambda: collections.OrderedDict(a=1, b=2, c=3), act(statement))


def test_a_key_that_was_deleted_and_set_again_goes_to_the_end() -> None:
    copy = {"a": 1}
    world = replay.World()
    world.preexisting(copy, "c")
    world.shadow("dict", copy, dict(copy), {"a": 1}, lifted_slots=[], deleted_keys=["a"])
    copy["a"] = 2
    target = {"a": 0, "behind": 0}
    world.build(None).run({"c": target})
    assert list(target.items()) == [("behind", 0), ("a", 2)]


def test_dicts_with_keys_of_their_own_hash() -> None:
    class Key:
        def __init__(self, name: str) -> None:
            self.name = name

        def __hash__(self) -> int:
            return hash(self.name)

        def __eq__(self, other: Any) -> bool:
            return self.name == other.name

    key, made = Key("a"), Key("b")
    copy = {key: 1}
    world = replay.World()
    world.preexisting(copy, "c")
    world.preexisting(key, "k")
    world.shadow("dict", copy, dict(copy), {key: 1})
    copy[key] = 2
    copy[made] = 3
    target = {key: 1}
    world.build(None).run({"c": target, "k": key})
    assert [k.name for k in target] == ["a", "b"] and list(target.values()) == [2, 3]
    assert list(target)[0] is key and list(target)[1] is not made


def test_defaultdict() -> None:
    check_write("dict", lambda: collections.defaultdict(list, a=1), act("c['x']; c['a'] = 5"))


def test_globals() -> None:
    copy = {"a": 1, "b": 2, "__name__": "m"}
    world = replay.World()
    world.preexisting(copy, "globals")
    world.shadow("dict", copy, dict(copy), dict(copy), is_namespace=True)
    copy["a"] = [copy]
    del copy["b"]
    copy["c"] = 3
    module = types.ModuleType("m")
    module.__dict__.update(a=1, b=2)
    residual = world.build(None)
    assert "KeyError" not in residual.text()
    residual.run({"globals": module.__dict__})
    assert module.a[0] is module.__dict__ and module.c == 3 and not hasattr(module, "b")


# ---- sets and deques


@pytest.mark.parametrize(
    "statement",
    [
        "pass",
        "c.add(9)",
        "c.discard(1)",
        "c.clear()",
        "c.remove(2); c.update({7, 8, 15})",
        "c.pop(); c.add(100)",
        "c ^= {1, 2, 8}",
    ],
)
def test_sets(statement: str) -> None:
    check_write("set", lambda: {1, 2, 3}, act(statement))
    check_write("set", lambda: {16, 8, 0, 1, 2}, act(statement))


@pytest.mark.parametrize(
    ("statement", "needs_length"),
    [
        ("pass", False),
        ("c.append(9)", False),
        ("c.extend([9, 8])", False),
        ("c.popleft()", True),
        ("c.popleft(); c.append(9)", True),
        ("c.pop()", True),
        ("c.appendleft(9)", True),
        ("c.rotate(1)", True),
        ("c.clear()", True),
        ("c[1] = 9", True),
    ],
)
def test_deques(statement: str, needs_length: bool) -> None:
    world = check_write("deque", lambda: collections.deque([1, 2, 3]), act(statement))
    assert world.lengths == (["c"] if needs_length else [])
    check_write("deque", lambda: collections.deque([1, 2, 3], maxlen=3), act(statement))
    check_write("deque", lambda: collections.deque([1, 2, 3], maxlen=4), act(statement))


# ---- attributes


def attribute_world(before: dict[str, Any], after: dict[str, Any]) -> Any:
    owner = Thing()
    owner.__dict__.update(before)
    copy = dict(before)
    world = replay.World()
    world.preexisting(owner, "o")
    world.shadow("dict", copy, dict(before), owner.__dict__, owner=owner)
    copy.clear()
    copy.update(after)
    return world.build(owner)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": 2, "b": [3]}),
        ({"guarded": 1}, {"guarded": 2}),
        ({"guarded": 1}, {}),
        ({}, {"guarded": 1, "shown": 3}),
        ({"shown": 1}, {}),
        ({}, {3: 4}),
    ],
)
def test_attributes(before: dict[Any, Any], after: dict[Any, Any]) -> None:
    residual = attribute_world(before, after)
    for _ in range(2):
        target = Thing()
        for name, value in before.items():
            if name == "guarded":
                target.__dict__[name] = value
            else:
                object.__setattr__(target, name, value)  # no dict yet
        assert residual.run({"o": target}) is target
        assert list(target.__dict__.items()) == list(after.items())


def test_attributes_of_functions_and_tensors() -> None:
    def function() -> None: ...

    for owner in (function, torch.zeros(1)):
        copy: dict[str, Any] = {}
        world = replay.World()
        world.preexisting(owner, "o")
        world.shadow("dict", copy, {}, {}, owner=owner)
        copy["note"] = [owner]
        target = torch.ones(1) if isinstance(owner, torch.Tensor) else types.FunctionType(function.__code__, {})
        world.build(None).run({"o": target})
        assert target.note[0] is target


# ---- places


def test_cells() -> None:
    cell = types.CellType(1)
    for value in (2, [cell]):
        world = replay.World()
        world.preexisting(cell, "cell")
        world.place("cell", cell, value=value)
        target = types.CellType(1)
        world.build(None).run({"cell": target})
        assert target.cell_contents == 2 or target.cell_contents[0] is target
    world = replay.World()
    world.preexisting(cell, "cell")
    world.place("cell", cell, remove=True)
    target = types.CellType(1)
    world.build(None).run({"cell": target})
    with pytest.raises(ValueError, match="empty"):
        target.cell_contents  # noqa: B018


def test_fields() -> None:
    owner = Slotted()
    for name in ("first", Slotted.first):
        world = replay.World()
        world.preexisting(owner, "o")
        world.place("field", owner, name, [owner])
        world.place("field", owner, "second", remove=True)
        target = Slotted()
        target.second = 1
        world.build(None).run({"o": target})
        assert target.first == [target] and not hasattr(target, "second")


def test_fields_of_functions() -> None:
    def function(a: int = 1) -> int:
        return a

    world = replay.World()
    world.preexisting(function, "f")
    world.place("field", function, "__defaults__", (5,))
    target = types.FunctionType(function.__code__, {})
    world.build(None).run({"f": target})
    assert target() == 5


def test_class_attributes() -> None:
    class Meta(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise AssertionError("must not run")

    def make() -> Any:
        return Meta("C", (), {"a": 1, "gone": 2, "__len__": lambda self: 3})

    outside = make()
    world = replay.World()
    world.preexisting(outside, "C")
    world.place("type", outside, "a", [outside])
    world.place("type", outside, "gone", remove=True)
    world.place("type", outside, "__len__", None)
    target = make()
    world.build(None).run({"C": target})
    assert target.a == [target] and not hasattr(target, "gone") and target.__len__ is None
    with pytest.raises(TypeError):
        len(target())


# ---- calls made for their effect


def test_effect_calls_come_before_the_writes() -> None:
    seen: list[Any] = []
    copy: list[Any] = []
    world = replay.World()
    world.preexisting(copy, "c")
    world.shadow("list", copy, [], [])
    tensor = torch.zeros(1)

    def show(*values: Any, **named: Any) -> None:
        seen.append((values, named, len(target)))

    world.call(show, ("a", tensor), {"end": [tensor]})
    world.call(show, ("b",))
    copy.append(1)
    target: list[Any] = []
    real = torch.ones(1)
    world.build(None).run({"c": target}, [real])
    assert seen[0][0] == ("a", real) and seen[0][1]["end"][0] is real and seen[0][2] == 0
    assert seen[1] == (("b",), {}, 0) and target == [1]


# ---- order, identity, failure


class Watcher:
    """Looks at the world when it dies."""

    seen: list[Any] = []

    def __init__(self, look: Callable[[], Any]) -> None:
        self.look = look

    def __del__(self) -> None:
        Watcher.seen.append(self.look())


def test_old_values_die_after_the_last_write() -> None:
    Watcher.seen.clear()
    targets: dict[str, Any] = {
        "l": [1],
        "d": {"k": 1},
        "o": Thing(),
        "cell": types.CellType(1),
        "s": Slotted(),
        "q": collections.deque([1, 2]),
        "C": type("C", (), {"a": 1}),
    }

    def state() -> Any:
        return (
            targets["l"][0],
            targets["d"]["k"],
            targets["o"].__dict__.get("a"),
            targets["cell"].cell_contents,
            targets["s"].first,
            targets["q"][0],
            targets["C"].a,
        )

    world = replay.World()
    copies: dict[str, Any] = {"l": [1], "d": {"k": 1}, "o": Thing(), "cell": types.CellType(1), "s": Slotted()}
    copies |= {"q": collections.deque([1, 2]), "C": type("C", (), {})}
    for name, copy in copies.items():
        world.preexisting(copy, name)
    attributes = {"a": 1}
    world.shadow("list", copies["l"], [1], [1])
    world.shadow("dict", copies["d"], {"k": 1}, {"k": 1})
    world.shadow("dict", attributes, {"a": 1}, {"a": 1}, owner=copies["o"])
    world.shadow("deque", copies["q"], [1, 2], collections.deque([1, 2]))
    copies["l"][0] = copies["d"]["k"] = attributes["a"] = copies["q"][0] = "new"
    world.place("cell", copies["cell"], value="new")
    world.place("field", copies["s"], "first", "new")
    world.place("type", copies["C"], "a", "new")
    residual = world.build(None)

    targets["l"][0] = Watcher(state)
    targets["d"]["k"] = Watcher(state)
    targets["o"].__dict__["a"] = Watcher(state)
    targets["cell"].cell_contents = Watcher(state)
    targets["s"].first = Watcher(state)
    targets["q"][0] = Watcher(state)
    targets["C"].a = Watcher(state)
    residual.run(targets)
    assert Watcher.seen == [("new",) * 7] * 7


def test_containers_of_a_written_kind_bear_identity() -> None:
    a, b, d = [1], [2], {"k": 1}
    world = replay.World()
    for value, name in ((a, "a"), (b, "b"), (d, "d")):
        world.preexisting(value, name)
    world.shadow("list", a, [1], [1])
    world.shadow("list", b, [2], [2])
    world.shadow("dict", d, {"k": 1}, {"k": 1})
    a.append(1)
    world.build(None)
    assert world.identities == ["a", "b"]


def test_writes_follow_the_order_of_lifting() -> None:
    a, b = {"k": 1}, [1]
    world = replay.World()
    world.preexisting(a, "a")
    world.preexisting(b, "b")
    world.shadow("dict", a, {"k": 1}, {"k": 1})
    world.shadow("list", b, [1], [1])
    b.append(2)
    a["k"] = 2
    made = []
    a["made"] = made
    b.append(made)
    lines = world.build(None).text().splitlines()
    assert lines == [
        "t0 = []",
        "dict.__setitem__(a, 'k', 2)",
        "dict.__setitem__(a, 'made', t0)",
        "list.extend(b, [2, t0])",
        "return None",
    ]


class Asked:
    """Nobody knows what a `__hash__` that is no function goes by: it is asked on every run."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __get__(self, key: Any, owner: Any) -> Any:
        return lambda: self.function(key)


class Exploding:
    def __init__(self, armed: bool = False) -> None:
        self.armed = armed

    @Asked
    def __hash__(self) -> int:
        if self.armed:
            raise RuntimeError("hash")
        return 1


def test_a_failure_in_the_middle_passes_on_and_leaks_nothing() -> None:
    key, copy, other = Exploding(), {}, [1]
    world = replay.World()
    world.preexisting(other, "l")
    world.preexisting(copy, "d")
    world.preexisting(key, "k")
    world.shadow("list", other, [1], [1])
    world.shadow("dict", copy, {}, {})
    other.append([3])
    copy[key] = [other]
    residual = world.build([other])
    gc.collect()
    before = None
    for step in range(30):
        target: list[Any] = [1]
        with pytest.raises(RuntimeError, match="hash"):
            residual.run({"l": target, "d": {}, "k": Exploding(armed=True)})
        assert target == [1, [3]]
        del target
        if step == 5:
            gc.collect()
            before = len(gc.get_objects())
    gc.collect()
    assert before is not None and len(gc.get_objects()) <= before + 3


def test_a_program_may_run_inside_itself() -> None:
    class Nosy:
        runs = 0

        @Asked
        def __hash__(self) -> int:
            if Nosy.runs == 0:
                Nosy.runs += 1
                inner = {}
                residual.run({"d": inner, "k": self})
                Nosy.inner = inner
            return 1

    key: Any = Exploding()
    copy: dict[Any, Any] = {}
    world = replay.World()
    world.preexisting(copy, "d")
    world.preexisting(key, "k")
    world.shadow("dict", copy, {}, {})
    copy[key] = [1]
    residual = world.build(copy)
    outer: dict[Any, Any] = {}
    assert residual.run({"d": outer, "k": Nosy()}) is outer
    assert list(outer.values()) == [[1]] == list(Nosy.inner.values())
    assert list(outer.values())[0] is not list(Nosy.inner.values())[0]


def test_inputs_die_with_their_call() -> None:
    import weakref

    class Input(list):
        pass

    copy = Input([1])
    world = replay.World()
    world.preexisting(copy, "c")
    world.shadow("list", copy, [1], [1])
    copy[0] = 2
    residual = world.build(None)
    target = Input([1])
    watch = weakref.ref(target)
    residual.run({"c": target})
    del target
    assert watch() is None

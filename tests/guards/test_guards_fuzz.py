"""Random objects, random guards, random edits: the program says what plain Python says, bound or walked."""

from __future__ import annotations

import collections
import os
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guard_trees import ABSENT, Path, Tree

SEEDS = int(os.environ.get("ALTERNATOR_FUZZ_GUARDS", "60"))


class Missing(Exception):
    pass


class WithDict:
    shared: Any = 1

    def __init__(self) -> None:
        self.__dict__["made"] = True

    def method(self) -> int:
        return 1


class Inline:
    shared: Any = 2


class Derived(WithDict):
    pass


def function_over(value: Any) -> Any:
    return types.FunctionType((lambda: value).__code__, globals(), "made", None, (types.CellType(value),))


NAMES = ["a", "b", "c", "d"]


class World:
    """Some objects that refer to each other."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.classes = [types.new_class(f"C{i}", (base,)) for i, base in enumerate((WithDict, Inline, Derived))]
        self.objects: list[Any] = []
        for _ in range(rng.randint(5, 25)):
            self.objects.append(self.make())
        for owner in self.objects:
            for _ in range(3):
                self.put(owner)

    def make(self) -> Any:
        rng = self.rng
        kind = rng.randrange(8)
        if kind <= 2:
            return rng.choice([WithDict, Inline, Derived, *self.classes])()
        if kind == 3:
            return dict.fromkeys(rng.sample(NAMES, rng.randint(0, 3)), 0)
        if kind == 4:
            return collections.OrderedDict.fromkeys(rng.sample(NAMES, rng.randint(0, 3)), 0)
        if kind == 5:
            return [0] * rng.randint(0, 3)
        if kind == 6:
            return function_over(self.value(new=False))
        return tuple(self.value(new=False) for _ in range(rng.randint(0, 3)))

    def value(self, new: bool = True) -> Any:
        rng = self.rng
        choice = rng.randrange(10)
        if choice < 4 and self.objects:
            return rng.choice(self.objects)
        if choice == 4 and new:
            return self.make()
        if choice == 5:
            return torch.ones(rng.randint(1, 2), requires_grad=rng.random() < 0.3)
        if choice == 6:
            return rng.choice(self.classes)
        return rng.choice([None, True, 0, 1, 10**20, 1.5, -0.0, 0.0, "x", "y", (1, "x")])

    def put(self, owner: Any) -> None:
        """Writes something somewhere."""
        rng = self.rng
        name, value = rng.choice(NAMES), self.value()
        if isinstance(owner, (WithDict, Inline)):
            choice = rng.random()
            if choice < 0.6:
                setattr(owner, name, value)
            elif choice < 0.7 and name in vars(owner):
                delattr(owner, name)
            elif choice < 0.75:
                owner.__dict__ = dict(vars(owner))
            elif choice < 0.8:
                same_layout = [c for c in self.classes if issubclass(c, Inline) == isinstance(owner, Inline)]
                owner.__class__ = rng.choice(same_layout)
            elif choice < 0.9:
                owner.noise = rng.random()  # type: ignore[union-attr]
        elif isinstance(owner, dict):
            if rng.random() < 0.7:
                owner[name] = value
            elif owner and rng.random() < 0.5:
                key = next(iter(owner))
                owner[key] = owner.pop(key)  # to the end
            else:
                owner.pop(name, None)
        elif isinstance(owner, list):
            choice = rng.random()
            if choice < 0.6 and owner:
                owner[rng.randrange(len(owner))] = value
            elif choice < 0.8:
                owner.append(value)
            elif owner:
                owner.pop()
        elif isinstance(owner, types.FunctionType):
            if rng.random() < 0.7:
                owner.__closure__[0].cell_contents = value  # type: ignore[index]
            else:
                owner.__dict__[name] = value
        elif isinstance(owner, type):
            setattr(owner, rng.choice(["shared", "method", "noise"]), value)
        elif isinstance(owner, torch.Tensor):
            owner.requires_grad_(rng.random() < 0.3)

    def edit(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([0, 1, 1, 2, 5])):
            self.put(rng.choice([*self.objects, *self.classes]))


Get = Callable[[], Any]


def getter(parent: Get, read: Callable[[Any], Any]) -> Get:
    def get() -> Any:
        try:
            return read(parent())
        except (KeyError, IndexError, AttributeError, TypeError, ValueError):
            raise Missing from None

    return get


def wants(test: bool, value: Any) -> Any:
    if not test:
        raise TypeError
    return value


def class_attribute(cls: Any, name: str) -> Any:
    for base in wants(isinstance(cls, type), cls).__mro__:
        if name in vars(base):
            return vars(base)[name]
    raise KeyError(name)


def index(owner: Any, i: int) -> Any:
    return wants(isinstance(owner, (list, tuple)), owner)[i]


def steps(value: Any, rng: random.Random) -> list[tuple[str, Any, int, Callable[[Any], Any]]]:
    """Accessors that make sense on a value: (access, key, index, the same in Python)."""
    name = rng.choice(NAMES)
    found: list[tuple[str, Any, int, Callable[[Any], Any]]] = [("kType", ABSENT, 0, type)]
    if isinstance(value, (WithDict, Inline)):
        found += [
            ("kDict", ABSENT, 0, lambda o: wants(isinstance(o, (WithDict, Inline, types.FunctionType)), o).__dict__)
        ] * 6
    if isinstance(value, dict):
        found += [("kItem", name, 0, lambda o: wants(isinstance(o, dict), o)[name])] * 4
        i = rng.randrange(3)
        found.append(("kKey", ABSENT, i, lambda o: list(wants(isinstance(o, dict), o))[i]))
    if isinstance(value, (list, tuple)):
        j = rng.randrange(3)
        found += [("kIndex", ABSENT, j, lambda o: index(o, j))] * 3
    if isinstance(value, type):
        attribute = rng.choice(["shared", "method", "nothing"])
        found += [("kTypeAttribute", attribute, 0, lambda o: class_attribute(o, attribute))] * 2
    if isinstance(value, types.FunctionType):
        found.append(("kCell", ABSENT, 0, lambda o: wants(isinstance(o, types.FunctionType), o).__closure__[0]))
        found.append(
            ("kDefaults", ABSENT, 0, lambda o: present(wants(isinstance(o, types.FunctionType), o).__defaults__))
        )
        found.append(("kGlobals", ABSENT, 0, lambda o: wants(isinstance(o, types.FunctionType), o).__globals__))
    if isinstance(value, types.CellType):
        found.append(("kContents", ABSENT, 0, lambda o: wants(isinstance(o, types.CellType), o).cell_contents))
    return found


def present(value: Any) -> Any:
    if value is None:
        raise KeyError
    return value


PLAIN = (type(None), bool, int, float, str)


def bits(value: Any) -> Any:
    return (type(value), value.hex() if isinstance(value, float) else value)


def plain_equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(plain_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, PLAIN):
        return bits(a) == bits(b)
    return a is b


def length(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple, dict)) else -1


def guard(path: Path, get: Get, value: Any, rng: random.Random) -> Callable[[], bool]:
    """Adds a guard that holds now; returns the same question in Python."""

    def ask(test: Callable[[Any], bool]) -> Callable[[], bool]:
        def holds() -> bool:
            try:
                return test(get())
            except Missing:
                return False

        return holds

    choices = ["kType", "kIs"]
    if isinstance(value, PLAIN) or (isinstance(value, tuple) and all(isinstance(v, PLAIN) for v in value)):
        choices = ["kEquals"] * 3 + ["kType"]
    if isinstance(value, (list, tuple, dict)):
        choices += ["kLength", "kTruth"]
    if isinstance(value, dict) and len(value) < 10:
        choices += ["kKeys", "kHasKey"]
    if isinstance(value, torch.Tensor):
        choices = ["kTensor"]
    if isinstance(value, types.FunctionType):
        choices += ["kCode"]
    kind = rng.choice(choices)
    if kind == "kType":
        cls = type(value)
        path.guard(kind, cls)
        return ask(lambda v: type(v) is cls)
    if kind == "kIs":
        path.guard(kind, value)
        return ask(lambda v: v is value)
    if kind == "kEquals":
        path.guard(kind, value)
        return ask(lambda v: plain_equal(value, v))
    if kind == "kLength":
        count = len(value)
        path.guard(kind, number=count)
        return ask(lambda v: length(v) == count)
    if kind == "kTruth":
        truth = len(value) > 0
        path.guard(kind, number=int(truth))
        return ask(lambda v: length(v) >= 0 and (length(v) > 0) == truth)
    if kind == "kKeys":
        keys = tuple(value)
        path.guard(kind, keys)
        return ask(lambda v: isinstance(v, dict) and tuple(v) == keys)
    if kind == "kHasKey":
        key = rng.choice(NAMES)
        has = key in value
        path.guard("kHasKey" if has else "kLacksKey", key)
        return ask(lambda v: isinstance(v, dict) and (key in v) == has)
    if kind == "kTensor":
        size, grad = value.shape, value.requires_grad
        path.guard(kind, value)
        return ask(lambda v: isinstance(v, torch.Tensor) and v.shape == size and v.requires_grad == grad)
    code = value.__code__
    path.guard("kCode", code)
    return ask(lambda v: isinstance(v, types.FunctionType) and v.__code__ is code)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs(seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng)
    roots = [rng.choice(world.objects) for _ in range(rng.randint(1, 3))]
    tree = Tree()
    reached: list[tuple[Path, Get]] = [(tree.slot(i), (lambda value=root: value)) for i, root in enumerate(roots)]
    if rng.random() < 0.5:
        constant = rng.choice(world.classes)
        reached.append((tree.constant(constant), lambda: constant))
    questions: list[Callable[[], bool]] = []
    identities: dict[int, Get] = {}
    seen: dict[int, Path] = {}
    for _ in range(rng.randint(5, 60)):
        path, get = rng.choice(reached[-8:] if rng.random() < 0.7 else reached)
        value = get()
        access, key, i, read = rng.choice(steps(value, rng))
        child, child_get = path.step(access, key, i), getter(get, read)
        try:
            found = child_get()
        except Missing:
            child.guard("kAbsent")
            questions.append(lambda get=child_get, parent=get: is_missing(get, parent))
            continue
        reached.append((child, child_get))
        questions.append(lambda get=child_get: not is_missing(get))  # its guards need it
        questions.append(guard(child, child_get, found, rng))
        if not isinstance(found, PLAIN) and access != "kType" and rng.random() < 0.5:
            if id(found) in seen and seen[id(found)].source != child.source:
                child.guard("kSame", other=seen[id(found)])
                first = identities[seen[id(found)].source.id]
                questions.append(lambda a=child_get, b=first: a() is b())
            elif id(found) not in seen:
                child.identity()
                seen[id(found)] = child
                identities[child.source.id] = child_get
    program = tree.program()

    def expected() -> bool:
        if not all(question() for question in questions):
            return False
        objects = [get() for get in identities.values()]
        return len({id(o) for o in objects}) == len(objects)

    assert expected()
    outcomes = set()
    for _ in range(60):
        wanted = expected()
        outcomes.add(wanted)
        holds = program.once(*roots) is not None
        assert holds == wanted, program.program.explain(None, roots)["text"] or [q() for q in questions]
        if not wanted:
            assert program.program.explain(None, roots)["text"]
        world.edit()


def is_missing(get: Get, parent: Get | None = None) -> bool:
    if parent is not None and is_missing(parent):
        return False  # an absent value of something that is not there is not what was guarded
    try:
        get()
    except Missing:
        return True
    return False

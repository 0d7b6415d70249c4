"""Objects from outside that are a view of something else, or something more: views of dicts, tuples with attributes, functions with a
cache, memory that is shared."""

from __future__ import annotations

import collections
import functools
import operator
import weakref

import torch
from harness import T, program


@program()
def test_views_of_a_dict(t):
    table = {"a": 1, "b": 2}

    def fn(x, keys, values, items):
        for name, number in items:
            x = x + number if name in keys else x
        return x * len(values), sorted(keys), list(items)

    f = t.compile(fn)
    f(T(3), table.keys(), table.values(), table.items())
    f.hit(T(3), table.keys(), table.values(), table.items())
    table["b"] = 3
    f.miss(T(3), table.keys(), table.values(), table.items())
    table["c"] = 4
    f.miss(T(3), table.keys(), table.values(), table.items())
    f({"a": 1}.keys() and T(3), {"z": 1}.keys(), {"a": 1}.values(), {"a": 1}.items())


@program()
def test_views_of_tensors_that_are_kept(t):
    class Holder:
        pass

    holder = Holder()
    holder.table = {"a": T(3), "b": T(3, s=1)}
    holder.view = holder.table.values()

    def fn(x):
        holder.table["c"] = x * 2
        for value in holder.view:
            x = x + value
        return x, holder.view

    f = t.compile(fn)
    f(T(3))
    f(T(3, s=2))
    f.hit(T(3, s=3))
    holder.view = {"a": T(3), "b": T(3), "c": T(3)}.values()
    f.miss(T(3))


@program()
def test_views_of_other_dicts(t):
    ordered = collections.OrderedDict(a=1, b=2)

    def fn(x, keys, other):
        return x + len(keys), list(keys), keys & other, other.isdisjoint(keys)

    f = t.compile(fn)
    f(T(2), ordered.keys(), {"b": 1, "c": 2}.keys())
    ordered.move_to_end("a")
    f(T(2), ordered.keys(), {"b": 1, "c": 2}.keys())
    f.hit(T(2), ordered.keys(), {"b": 1, "c": 2}.keys())
    f(T(2), {"b": 1, "a": 2}.keys(), {"b": 1, "c": 2}.keys())


class Pair(collections.namedtuple("Pair", "first second")):
    pass


class Path(tuple):
    pass


@program()
def test_tuples_with_attributes(t):
    def fn(x, pair):
        pair.uses = getattr(pair, "uses", 0) + 1
        return x * pair.scale + pair.first + pair[1], pair, vars(pair), len(pair)

    f = t.compile(fn)
    pair = Pair(T(3), 2)
    pair.scale = 3
    f(T(3), pair)
    f(T(3), pair)
    other = Pair(T(3, s=1), 2)
    other.scale, other.uses = 3, 1
    f.hit(T(3), other)
    other.scale = 4
    f.miss(T(3), other)


@program()
def test_tuples_with_nothing_in_them(t):
    def fn(x, path, other):
        return x + len(path), path == other, path is other, path + other, hasattr(path, "name")

    f = t.compile(fn)
    path = Path((1, 2))
    f(T(3), path, Path((1, 2)))
    f.hit(T(3), path, Path((1, 2)))
    f.miss(T(3), path, path)
    f(T(3), Path(), Path())
    path.name = "x"
    f.miss(T(3), path, Path((1, 2)))


@functools.lru_cache(maxsize=8)
def doubled(number):
    """Twice."""
    return number * 2


@program()
def test_attributes_of_a_function_with_a_cache(t):
    def fn(x):
        return x + doubled.__wrapped__(3), doubled.__name__, doubled.__doc__, doubled.__module__

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))
    t.undo(lambda: doubled.__dict__.update(__doc__="Twice."))
    doubled.__doc__ = "Two times."
    f.miss(T(3))


@program()
def test_method_callers_with_keywords(t):
    total = operator.methodcaller("sum", dim=0, keepdim=True)
    described = operator.methodcaller("split", ",", maxsplit=1)

    def fn(x, text):
        return total(x), described(text), [total(y) for y in (x, x * 2)]

    f = t.compile(fn)
    f(T(3, 2), "a,b,c")
    f.hit(T(3, 2), "a,b,c")
    total = operator.methodcaller("sum", dim=1)
    f.miss(T(3, 2), "a,b,c")


class Thing:
    pass


@program(one_graph=False)
def test_dead_weak_references(t):
    """Whether one has a hash depends on its past."""
    thing = Thing()
    known, dead = weakref.ref(thing), weakref.ref(Thing())
    hash(known)
    del thing

    def fn(x, reference):
        return x + 1, reference() is None, len({reference})

    f = t.compile(fn)
    f(T(3), dead)
    f(T(3), known)


@program()
def test_weak_references_that_say_nothing(t):
    thing = Thing()
    alive, dead, another = weakref.ref(thing), weakref.ref(Thing()), weakref.ref(Thing())

    def fn(x, reference, other):
        return x + (1 if reference() is None else 2), reference is other, reference == other

    f = t.compile(fn)
    f(T(3), alive, alive)
    f.miss(T(3), dead, alive)
    f.hit(T(3), dead, alive)
    f.miss(T(3), dead, dead)
    f.miss(T(3), dead, another)
    f.hit(T(3), dead, another)
    f.hit(T(3), alive, alive)


@program()
def test_where_a_tensor_begins(t):
    def fn(x):
        return x + x.storage_offset(), x[1:].storage_offset(), x.clone().storage_offset()

    f = t.compile(fn)
    memory = torch.arange(12.0)
    f(memory[2:6])
    f.hit(memory[2:6])
    f.miss(memory[3:7])
    f(memory[:4])


@program(one_graph=False)
def test_facts_about_shared_memory(t):
    def fn(x):
        y = x + 1
        y.add_(1)
        return x[1:]._version, x.detach()._version, y._version, x.view(-1)._base is x, y._base, y.view(-1).is_shared()

    f = t.compile(fn)
    x = T(4)
    f(x)
    x.add_(1)
    f(x)
    f(T(8)[2:6])

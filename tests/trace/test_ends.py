"""When objects die: finalisers, callbacks of weak references and open generators run where they do in eager."""

from __future__ import annotations

import weakref

from harness import T, program


class Thing:
    """Says when it dies."""

    log: list = []  # noqa: RUF012

    def __init__(self, name):
        self.name = name

    def __del__(self):
        Thing.log.append(self.name)


class Holder:
    def __init__(self, value=None):
        self.value = value


class Slotted:
    __slots__ = ("value",)


def repeat(t, fn, fill, *arguments):
    Thing.log = []
    f = t.compile(fn)
    for name in ("first", "second", "third"):
        fill(name)
        f(*arguments, T(2))
        t.note(list(Thing.log))


@program(one_graph=False, spied=False)
def test_variables(t):
    def helper(x):
        thing = Thing("helper")
        return x + len(thing.name)

    def fn(x):
        thing = Thing(1)
        thing = Thing(2)
        Thing.log.append("set anew")
        thing = None  # noqa: F841
        Thing.log.append("gone")
        x = helper(x) + len(Thing.log)
        Thing(3).name  # noqa: B018
        return x + len(Thing.log)

    repeat(t, fn, lambda name: None)


@program(one_graph=False, spied=False)
def test_attributes(t):
    one, slotted = Holder(), Slotted()

    def fill(name):
        one.value, one.other, slotted.value = Thing(name), Holder(Thing(name)), Thing(name)

    def fn(one, x):
        one.value = None
        a = len(Thing.log)
        del one.other
        b = len(Thing.log)
        slotted.value = 1
        return x + a, b, len(Thing.log)

    repeat(t, fn, fill, one)


@program(one_graph=False, spied=False)
def test_containers(t):
    items, table, chosen = [], {}, set()

    def fill(name):
        items[:] = [Thing(name), [Thing(name)], 3]
        table.update(a=Thing(name), b=Thing(name))
        chosen.add(Thing(name))

    def fn(items, table, chosen, x):
        items.pop()
        seen = [len(Thing.log)]
        items.pop()
        seen.append(len(Thing.log))
        items[0] = 1
        seen.append(len(Thing.log))
        del table["a"]
        seen.append(len(Thing.log))
        table.clear()
        seen.append(len(Thing.log))
        chosen.clear()
        return x + len(Thing.log), seen

    repeat(t, fn, fill, items, table, chosen)


@program(one_graph=False, spied=False)
def test_globals_and_cells(t):
    global KEPT
    cell = None

    def fill(name):
        nonlocal cell
        global KEPT
        KEPT, cell = Thing(name), Thing(name)

    def fn(x):
        global KEPT
        nonlocal cell
        KEPT = None
        a = len(Thing.log)
        cell = None
        return x + a, len(Thing.log)

    repeat(t, fn, fill)


@program(one_graph=False, spied=False)
def test_exceptions_keep_variables(t):
    def helper():
        thing = Thing("raises")  # noqa: F841
        raise ValueError("v")

    def fn(x):
        try:
            helper()
        except ValueError as error:
            Thing.log.append(str(error))
        Thing.log.append("behind")
        return x + len(Thing.log)

    repeat(t, fn, lambda name: None)


@program(one_graph=False, spied=False)
def test_weak_references_with_callbacks(t):
    table = {}

    def fill(name):
        table["object"] = Holder(1)
        table["watch"] = weakref.ref(table["object"], lambda _: Thing.log.append(name))

    def fn(table, x):
        del table["object"]
        return x + len(Thing.log), table["watch"]() is None

    repeat(t, fn, fill, table)


@program(one_graph=False, spied=False)
def test_open_generators(t):
    kept = []

    def steps(name):
        try:
            yield 1
            yield 2
        finally:
            Thing.log.append(name)

    def fill(name):
        kept.append(steps(name))
        next(kept[0])

    def fn(kept, x):
        kept.pop()
        return x + len(Thing.log)

    repeat(t, fn, fill, kept)


@program(graphs=1)
def test_things_that_stay_are_no_reason_to_stop(t):
    class Quiet:
        name = "kept"

        def __del__(self):
            pass

    one = Holder(Quiet())
    one.other = None
    items = [Quiet(), 2]

    def fn(one, items, x):
        items.append(len(one.value.name))
        items.pop()
        one.other = x
        return x + len(one.value.name)

    f = t.compile(fn)
    f(one, items, T(2))
    f.hit(one, items, T(2))

"""When objects die: finalizers, callbacks of weak references and open generators run where they do in eager."""

from __future__ import annotations

import collections
import functools
import random
import sys
import weakref

import torch
from harness import T, program

import alternator


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


class Plain:
    pass


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


# --- what the first call did not see: each is let go by a later one ---


def watched(name):
    one = Holder(name)
    Thing.watch = weakref.ref(one, lambda _: Thing.log.append(name))
    return one


def opened(name):
    def steps():
        try:
            yield 1
        finally:
            Thing.log.append(name)

    one = steps()
    next(one)
    return one


def bound(name):
    thing = Thing(name)
    return lambda: thing


OLD = {
    "a number": lambda: 1,
    "another": lambda: 2,
    "a finalizer": lambda: Thing("del"),
    "nothing": lambda: None,
    "a callback": lambda: watched("watch"),
    "a generator": lambda: opened("open"),
    "a list": lambda: [1, [2]],
    "deep": lambda: [[[[Thing("deep")]]]],
    "deep in objects": lambda: Holder({"k": (Holder([Thing("deeper")]),)}),
    "in a closure": lambda: bound("closure"),
    "a tensor": lambda: T(3),
    "twice": lambda: [Thing("twice")] * 2,
}


def later(t, fn, put, *arguments):
    """Calls the function with each of them at the place that it writes to."""
    Thing.log = []
    f = t.compile(fn)
    for name, make in OLD.items():
        put(make())
        (f.hit if name == "another" else f)(*arguments, T(2))
        t.note(list(Thing.log))


@program(one_graph=False, spied=False)
def test_attributes_in_later_calls(t):
    one = Holder()

    def fn(one, x):
        one.value = 3
        return x + len(Thing.log)

    later(t, fn, lambda old: setattr(one, "value", old), one)


@program(one_graph=False, spied=False)
def test_deleted_attributes_in_later_calls(t):
    one = Holder()

    def fn(one, x):
        vars(one).pop("value", None)
        return x + len(Thing.log)

    def other(one, x):
        if hasattr(one, "value"):
            del one.value
        return x + len(Thing.log)

    later(t, fn, lambda old: setattr(one, "value", old), one)
    later(t, other, lambda old: setattr(one, "value", old), one)


@program(one_graph=False, spied=False)
def test_slots_in_later_calls(t):
    slotted = Slotted()

    def fn(slotted, x):
        slotted.value = 3
        return x + len(Thing.log)

    later(t, fn, lambda old: setattr(slotted, "value", old), slotted)


@program(one_graph=False, spied=False)
def test_items_in_later_calls(t):
    items, table = [1, 2, 3], {"a": 1, "b": 2}

    def fn(items, x):
        items[1] = 3
        return x + len(Thing.log)

    def in_dict(table, x):
        table["b"] = 3
        return x + len(Thing.log)

    def cleared(table, x):
        table.clear()
        return x + len(Thing.log)

    later(t, fn, lambda old: items.__setitem__(1, old), items)
    later(t, in_dict, lambda old: table.__setitem__("b", old), table)
    later(t, cleared, lambda old: table.__setitem__("b", old), table)


@program(one_graph=False, spied=False)
def test_queues_in_later_calls(t):
    queue, bounded = collections.deque(), collections.deque(maxlen=2)

    def fn(queue, x):
        queue.popleft()
        return x + len(Thing.log)

    def pushed(queue, x):
        queue.append(4)
        return x + len(Thing.log)

    later(t, fn, queue.append, queue)
    later(t, pushed, lambda old: bounded.extend([old, 2]), bounded)


@program(one_graph=False, spied=False)
def test_globals_and_cells_in_later_calls(t):
    global KEPT
    cell = None

    def put(old):
        nonlocal cell
        cell = old

    def fn(x):
        nonlocal cell
        cell = 3
        return x + len(Thing.log)

    def in_globals(x):
        global KEPT
        KEPT = 3
        return x + len(Thing.log)

    later(t, fn, put)
    later(t, in_globals, lambda old: globals().__setitem__("KEPT", old))


@program(one_graph=False, spied=False)
def test_classes_in_later_calls(t):
    class Base:
        value = None

    class Derived(Base):
        pass

    def fn(x):
        Base.value = 3
        return x + len(Thing.log)

    def derived(x):
        Derived.value = 3
        return x + len(Thing.log)

    later(t, fn, lambda old: setattr(Base, "value", old))
    later(t, derived, lambda old: setattr(Derived, "value", old))


@program(one_graph=False, spied=False)
def test_one_object_at_two_places(t):
    one = Holder()

    def fn(one, x):
        one.value = None
        a = len(Thing.log)
        one.other = None
        return x + a, len(Thing.log)

    f = t.compile(fn)
    for make in (lambda: 1, lambda: Thing("two places"), lambda: [[Thing("deep")]], lambda: 2):
        one.value = one.other = make()
        Thing.log = []
        f(one, T(2))
        t.note(list(Thing.log))


@program(one_graph=False, spied=False)
def test_a_tensor_that_is_watched(t):
    one = Holder()

    def fn(one, x):
        one.value = x
        return x + len(Thing.log)

    f = t.compile(fn)
    for name in ("first", "second", "third"):
        one.value = T(3)
        watch = weakref.finalize(one.value, Thing.log.append, name) if name != "first" else None
        Thing.log = []
        f(one, T(2))
        t.note([list(Thing.log), watch is None or watch.alive])


@program(one_graph=False, spied=False)
def test_outside_weak_references_are_asked_afterwards(t):
    one, items = Holder(), []

    def fill(where):
        kept = Holder(3)
        if where == "attribute":
            one.value = kept
        items[:] = [kept] if where == "list" else []
        return weakref.ref(kept)

    def fn(one, items, reference, x):
        one.value = None
        a = reference() is None
        items.clear()
        return x + 1, a, reference() is None

    f = t.compile(fn)
    kept = Holder(4)
    one.value = 1
    f(one, items, weakref.ref(kept), T(2))
    for where in ("attribute", "attribute", "list", "attribute", "list"):
        one.value = 1
        f(one, items, fill(where), T(2))
    one.value = kept
    f(one, items, weakref.ref(kept), T(2))
    one.value = 2
    f(one, items, weakref.ref(kept), T(2))


# --- variables of a function that a break falls into ---


def again(t, fn, *makers):
    Thing.log = []
    f = t.compile(fn)
    for make in makers or OLD.values():
        f(make, T(2))
        t.note(list(Thing.log))


@program(one_graph=False, spied=False)
def test_variables_behind_a_break(t):
    def written(make, x):
        old = make()
        alternator.graph_break()
        old = None  # noqa: F841
        return x + len(Thing.log)

    def deleted(make, x):
        one = other = make()
        alternator.graph_break()
        del one
        seen = len(Thing.log)
        del other
        return x + len(Thing.log), seen

    again(t, written)
    again(
        t,
        deleted,
        *(OLD[name] for name in ("a number", "a finalizer", "nothing", "a callback", "a list", "a generator")),
    )


@program(one_graph=False, spied=False)
def test_functions_that_return_behind_a_break(t):
    def inner(make, x):
        old = make()  # noqa: F841
        alternator.graph_break()
        return x * 2

    def returned(make, x):
        x = inner(make, x)
        return x + len(Thing.log)

    def operand(make, x):
        number = min([make(), 1], [alternator.graph_break(), 2], key=len)
        return x + len(Thing.log) + len(number)

    def left(make, x):
        for number in opened_by(make):
            alternator.graph_break()
            return x + number

    def opened_by(make):
        kept = make()  # noqa: F841
        try:
            yield 2
            yield 3
        finally:
            Thing.log.append("closed")

    def loop(make, x):
        x = left(make, x)
        return x + len(Thing.log)

    again(t, returned)
    again(t, operand)
    again(t, loop)


@program(one_graph=False, spied=False)
def test_exceptions_behind_a_break(t):
    def inner(make):
        old = make()  # noqa: F841
        raise ValueError("v")

    def named(make, x):
        try:
            inner(make)
        except ValueError as error:
            alternator.graph_break()
            seen = len(Thing.log), str(error)
        return x + len(Thing.log), seen

    again(t, named, *(OLD[name] for name in ("a number", "a finalizer", "nothing", "a list", "deep", "another")))


class Told:
    """A callback that a trace cannot follow: it asks for a random number of the system's."""

    def method(self, reference):
        Thing.log.append((type(self).__name__, random.SystemRandom().random() < 0))

    __call__ = method


@program(one_graph=False, spied=False)
def test_a_break_in_a_callback_is_not_shown(t):
    """What a callback of a weak reference raises is printed by CPython; that a trace ends there is nobody's business."""

    def told(make, x):
        old = make()
        reference = weakref.ref(old, Told().method)
        old = None  # noqa: F841
        return x + len(Thing.log), reference() is None

    def told_object(make, x):
        old = make()
        reference = weakref.ref(old, Told())
        old = None  # noqa: F841
        return x + len(Thing.log), reference() is None

    def told_function(make, x):
        old = make()
        reference = weakref.ref(old, lambda *given: Thing.log.append(random.SystemRandom().random() < 0))
        old = None  # noqa: F841
        return x + len(Thing.log), reference() is None

    def table(make, x):
        values = weakref.WeakValueDictionary()
        old = make()
        values["a"] = old
        count = len(values)
        old = None  # noqa: F841
        return x + count, len(values)

    shown = collections.deque()
    hook, sys.unraisablehook = sys.unraisablehook, shown.append  # no Python: a trace that ends runs none
    try:
        for fn in (told, told_object, told_function, table):
            Thing.log = []
            f = t.compile(fn)
            for _ in range(2):
                f(Holder, T(2))
                t.note([*Thing.log, len(shown)])
    finally:
        sys.unraisablehook = hook


@program(one_graph=False)
def test_weak_references_to_what_only_the_trace_keeps(t):
    """Functions that the call makes, and objects whose address was asked."""
    log = []
    t.watch(lambda: list(log))

    def of_a_function(x):
        def made():
            return 1

        reference = weakref.ref(made)
        alive = reference() is made
        made()
        del made
        return x + 1, alive, reference() is None

    def of_a_method(x):
        class Made:
            def method(self):
                return 1

        made = Made()
        reference = weakref.WeakMethod(made.method)
        value = reference()()
        Made.method = None
        return x + 1, value, reference() is None

    def of_an_address(x):
        made = Plain()
        reference, named = weakref.ref(made), id(made) == id(made)
        alive = reference() is made
        del made
        return x + 1, alive, named, reference() is None

    def with_a_callback(x):
        one, other = Plain(), Plain()
        number = hash(one)
        references = [weakref.ref(one, lambda _: log.append("one")), weakref.ref(other, lambda _: log.append("other"))]
        same = number == hash(one) and hash(other) != number
        del one
        log.append("after one")
        del other
        log.append("after the other")
        return x + 1, same, len(references)

    for fn in (of_a_function, of_a_method, of_an_address, with_a_callback):
        f = t.compile(fn)
        f(T(2))
        f(T(2))


@program(one_graph=False, spied=False)
def test_callbacks_and_weak_containers_behind_a_break(t):
    """Who watches what only a variable of the stopped frame holds is told of its end in time."""
    log = []
    t.watch(lambda: list(log))

    def a_callback(x):
        made = Plain()
        alternator.graph_break()
        reference = weakref.ref(made, lambda _: log.append("gone"))
        del made
        return x + len(log), reference() is None

    def a_finalizer(x):
        made = Plain()
        alternator.graph_break()
        weakref.finalize(made, log.append, "ended")
        del made
        return x + len(log)

    def a_container(x):
        values, made = weakref.WeakValueDictionary(), Plain()
        values["a"] = made
        alternator.graph_break()
        count = len(values)
        made = None
        return x + count, len(values), made

    def an_outside_object(x, d):
        reference = weakref.ref(d["a"], lambda _: log.append("out"))
        del d["a"]
        return x + len(log), reference() is None

    for fn in (a_callback, a_finalizer, a_container):
        f = t.compile(fn)
        f(T(2))
        f(T(2))
    f = t.compile(an_outside_object)
    f(T(2), {"a": Plain()})
    f(T(2), {"a": Plain()})


@program(one_graph=False)
def test_weak_references_behind_a_break(t):
    """What the variables and operands of a stopped frame held dies where they let go of it."""

    def of_a_variable(x):
        made = Plain()
        reference = weakref.ref(made)
        alternator.graph_break()
        made = 1
        return x + 1, made, reference() is None

    def that_is_made_there(x):
        made = Plain()
        alternator.graph_break()
        reference = weakref.ref(made)
        alive = reference() is made
        del made
        return x + 1, alive, reference() is None

    def of_a_list(x):
        held = [Plain()]
        reference = weakref.ref(held[0])
        alternator.graph_break()
        alive = reference() is held[0]
        del held
        return x + 1, alive, reference() is None

    def of_a_tensor(x):
        made = x * 2
        reference = weakref.ref(made)
        alternator.graph_break()
        made = made + 1
        return x + 1, made, reference() is None

    def of_an_argument(x):
        made = Plain()
        reference = weakref.ref(made)

        def step(_):
            alternator.graph_break()

        step(made)
        alive = reference() is made
        del made
        return x + 1, alive, reference() is None

    def of_a_frame(x):
        def inner():
            made = Plain()
            alternator.graph_break()
            return weakref.ref(made)

        reference = inner()
        return x + 1, reference() is None

    def of_a_loop(x):
        references, seen = [], []
        for made in [Plain(), Plain()]:
            references.append(weakref.ref(made))
            alternator.graph_break()
            seen.append([reference() is None for reference in references])
        del made
        return x + 1, seen, [reference() is None for reference in references]

    for fn in (
        of_a_variable,
        that_is_made_there,
        of_a_list,
        of_a_tensor,
        of_an_argument,
        of_a_frame,
        of_a_loop,
    ):
        f = t.compile(fn)
        f(T(2))
        f(T(2))


@program(one_graph=False, spied=False)  # a spy holds what it has seen
def test_other_holders_behind_a_break(t):
    """Who holds what the reference is to is not the same in each call, and no part of the program reads it."""

    def fn(x, box):
        held, reference = box.pop(), box.pop()
        alternator.graph_break()
        held = None
        return x + 1, held, reference() is None

    def alone():
        made = Plain()
        return [weakref.ref(made), made]

    def in_a_list():
        made = Plain()
        return [weakref.ref(made), [made]]

    kept = Plain()
    f = t.compile(fn)
    for box in ([weakref.ref(kept), [Plain()]], in_a_list(), alone(), [weakref.ref(kept), Plain()], alone()):
        f(T(2), box)
    for box in ([weakref.ref(kept), None], alone(), in_a_list()):
        f(T(2), box)


def _forgets_nothing(log, word):
    log.append(word)


@program(one_graph=False, spied=False)
def test_finalizers_of_objects_that_the_program_drops(t):
    """weakref.finalize() through a partial or a bound method is noticed like any callback."""
    log = []
    t.watch(lambda: list(log))

    def drop(x, holder):
        holder.pop("a")
        return x + len(log)

    for register in (
        lambda thing: weakref.finalize(thing, functools.partial(_forgets_nothing, log, "partial")),
        lambda thing: weakref.finalize(thing, log.append, "method"),
        lambda thing: weakref.finalize(thing, torch.manual_seed, 1),
    ):
        f = t.compile(drop)
        for _ in range(2):
            thing = Plain()
            register(thing)
            holder = {"a": thing}
            del thing
            f(T(2), holder)


def test_what_torch_forgets_by_itself_is_no_break():
    """TorchDynamo leaves finalizers on modules that it has guarded; they only drop its own entries."""

    class Entries:
        def drop(self, which):
            pass

    Entries.drop.__module__ = "torch._dynamo.guards"
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    weakref.finalize(net, functools.partial(Entries().drop, which="net"))
    held = {"net": net}

    def drop(x, held):
        net = held.pop("net")
        return net(x)

    with torch.no_grad():
        expected = net(torch.ones(1, 2))
        del net
        found = alternator.compile(drop, backend="eager", fullgraph=True)(torch.ones(1, 2), held)
    assert torch.equal(found, expected) and not held


@program(one_graph=False, spied=False)
def test_callbacks_of_weak_references_to_tensors(t):
    """A tensor that the call made lives on in the recording: who is told of its end is told in time."""
    log = []
    t.watch(lambda: list(log))

    def watch(tensor):
        return weakref.ref(tensor, lambda _: log.append("dead"))

    def deleted(x):
        y = x + 1
        reference = watch(y)
        count = len(log)
        del y
        return x * 2, count, len(log), reference() is None

    def overwritten(x):
        y = x + 1
        reference = watch(y)
        y = None
        return x, len(log), reference, y

    def in_a_list(x):
        held = [x + 1, x + 2]
        references = [watch(tensor) for tensor in held]
        held.clear()
        return x + len(log), len(references)

    for fn in (deleted, overwritten, in_a_list):
        f = t.compile(fn)
        f(T(2))
        f(T(2))

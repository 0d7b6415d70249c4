"""threading.local: each thread has its own attributes; guards and writes go to those of the thread that calls."""

from __future__ import annotations

import threading

import torch
from harness import T, program

import alternator


def in_thread(work):
    """What `work` returns or raises, in a thread of its own."""
    found = []

    def run():
        try:
            found.append(work())
        except Exception as error:
            found.append((type(error).__name__, str(error)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@program(graphs=3)
def test_reads_and_writes(t):
    local = threading.local()
    local.n = 1

    def fn(x):
        local.n += 1
        return x * local.n

    t.watch(lambda: vars(local))
    f = t.compile(fn, dynamic=False)
    f(T(2))
    f.miss(T(2))
    local.n = 1
    f.hit(T(2))
    local.n = 10
    f.miss(T(2))


@program(graphs=1)
def test_hasattr_getattr_setattr_delattr(t):
    local = threading.local()
    local.kept = "kept"

    def fn(x):
        if hasattr(local, "scale"):
            x = x * local.scale
            del local.scale
        else:
            local.scale = 3
        setattr(local, "seen", getattr(local, "seen", 0) + 1)
        delattr(local, "seen")
        return x, getattr(local, "scale", None), sorted(vars(local)), "kept" in local.__dict__

    t.watch(lambda: vars(local))
    f = t.compile(fn, dynamic=False)
    f(T(2))
    f.miss(T(2))
    f.hit(T(2))
    f.hit(T(2))
    local.seen = 7
    f.miss(T(2))


@program(graphs=2)
def test_tensors_and_containers(t):
    local = threading.local()
    local.cache, local.order = {"a": T(2)}, [1]

    def fn(x):
        local.cache["b"] = x + local.cache["a"]
        local.order.append(len(local.order))
        local.last = x * 2
        return local.cache["b"].sum()

    t.watch(lambda: vars(local))
    f = t.compile(fn)
    f(T(2))
    f.miss(T(2))
    local.cache, local.order = {"a": T(2, s=1)}, [5]
    del local.last
    f.hit(T(2))


@program(graphs=1)
def test_not_looked_at_yet(t):
    """The dict of a thread is made by the first look at it."""

    def fn(local, x):
        if not hasattr(local, "n"):
            local.n = 1
        local.n += 1
        return x * 2

    f = t.compile(fn)
    local, other = threading.local(), threading.local()
    f(local, T(2))
    t.note(vars(local))
    f.hit(other, T(2))
    t.note(vars(other))


@program(graphs=2)
def test_only_asked(t):
    def fn(local, x):
        return x * 2, hasattr(local, "n"), getattr(local, "m", 3), vars(local)

    f = t.compile(fn)
    f(threading.local(), T(2))
    looked_at = threading.local()
    vars(looked_at)["k"] = 1
    f.hit(looked_at, T(2))  # what else is in it is only handed back
    vars(looked_at)["n"] = 1
    f.miss(looked_at, T(2))


@program(graphs=1)
def test_which_error(t):
    local = threading.local()

    def fn(x, k):
        messages = []
        for act in (lambda: local.missing, lambda: delattr(local, "missing")):
            try:
                act()
            except AttributeError as error:
                messages.append((str(error), error.args, getattr(error, "name", 1)))
        return x + 1, messages

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)


@program(graphs=2)
def test_an_error_that_leaves(t):
    local = threading.local()

    def fn(x):
        local.before = x + 1
        return local.missing

    t.watch(lambda: vars(local))
    f = t.compile(fn)
    f(T(2))
    f.miss(T(2))
    f.hit(T(2))


class Slotted:
    __slots__ = ("a",)


class Plain:
    pass


@program(graphs=1)
def test_which_error_of_other_objects(t):
    def fn(x, *objects):
        messages = []
        for one in objects:
            for act in (
                lambda: one.a,
                lambda: delattr(one, "a"),
                lambda: setattr(one, "b", 1),
                lambda: delattr(one, "c"),
            ):
                try:
                    act()
                except AttributeError as error:
                    messages.append((str(error), error.args, error.name, error.obj is one))
        return x + 1, messages

    f = t.compile(fn)
    f(T(2), Slotted(), Plain())
    f.hit(T(2), Slotted(), Plain())


class Counter(threading.local):
    kind = "counter"
    __slots__ = ("shared", "__dict__")

    def __init__(self, start=0):
        self.n = start
        self.seen = []

    def step(self, by=1):
        self.n += by
        self.seen.append(self.n)
        return self.n

    @property
    def twice(self):
        return self.n * 2


@program(graphs=3)
def test_a_class_with_init(t):
    counter = Counter(3)
    counter.shared = 1

    def fn(x):
        y = x * counter.step()
        counter.shared += 1
        return y + counter.twice, counter.kind, counter.shared, isinstance(counter, threading.local)

    t.watch(lambda: (vars(counter), counter.shared))
    f = t.compile(fn, dynamic=False)
    f(T(2))
    f.miss(T(2))
    counter.n, counter.seen, counter.shared = 3, [], 1
    f.hit(T(2))
    counter.kind = "own"
    f.miss(T(2))


class Fallback(threading.local):
    def __getattr__(self, name):
        return f"no {name}"


@program(graphs=2)
def test_a_class_with_getattr(t):
    local = Fallback()

    def fn(x):
        name = local.name
        local.name = "set"
        return x + len(name), name, local.other

    t.watch(lambda: vars(local))
    f = t.compile(fn, dynamic=False)
    f(T(2))
    f.miss(T(2))
    f.hit(T(2))


class Bare(threading.local):
    pass


@program(one_graph=False)
def test_other_methods_of_objects(t):
    local = Bare()
    local.n = 1

    def fn(x, act):
        try:
            return x + 1, act(local)
        except (AttributeError, TypeError) as error:
            return x, str(error)

    t.watch(lambda: vars(local))
    f = t.compile(fn)
    for act in (
        lambda one: object.__getattribute__(one, "n"),
        lambda one: object.__setattr__(one, "hidden", 1),
        lambda one: setattr(one, "__dict__", {}),
        lambda one: one.__reduce_ex__(2),
        lambda one: sorted(name for name in dir(one) if not name.startswith("_")),
    ):
        f(T(2), act)
        f(T(2), act)


@program(one_graph=False)
def test_threads(t):
    """Each thread has its own guards' answers, and its own writes."""
    local = threading.local()
    local.n = 1

    def fn(x):
        local.n = getattr(local, "n", 100) + 1
        return x * local.n

    f = t.compile(fn, dynamic=False)
    f(T(2))

    def work():
        first = f.call(T(2))
        after = dict(vars(local))
        local.n = 1
        return first, after, f.call(T(2)), dict(vars(local))

    t.note(in_thread(work))
    t.note(vars(local))
    t.note(in_thread(work))
    f(T(2))
    t.note(vars(local))


@program(one_graph=False)
def test_init_runs_once_in_a_thread(t):
    made = []

    class Noted(threading.local):
        def __init__(self):
            made.append(len(made))
            self.n = len(made)

    local = Noted()

    def fn(x):
        local.n += 1
        return x * local.n

    t.watch(lambda: (list(made), vars(local)))
    f = t.compile(fn, dynamic=False)
    f(T(2))
    t.note(in_thread(lambda: (f.call(T(2)), vars(local)["n"], f.call(T(2)), vars(local)["n"])))
    t.note(in_thread(lambda: (f.call(T(2)), vars(local)["n"])))
    f(T(2))


@program(one_graph=False)
def test_init_that_raises(t):
    main = threading.get_ident()

    class Refusing(threading.local):
        def __init__(self):
            if threading.get_ident() != main:
                raise ValueError("not here")
            self.n = 1

    local = Refusing()

    def fn(x):
        return x * local.n

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    t.note(in_thread(lambda: f.call(T(2))))
    f(T(2))


@program(one_graph=False)
def test_a_break_between(t):
    local = threading.local()
    local.n = 1

    def fn(x):
        local.n += 1
        y = x * local.n
        alternator.graph_break()
        local.m = y
        del local.n
        return y + len(vars(local))

    t.watch(lambda: vars(local))
    f = t.compile(fn, dynamic=False)
    f(T(2))
    local.n = 1
    f(T(2))
    t.note(in_thread(lambda: (setattr(local, "n", 1), f.call(T(2)), vars(local))[1:]))


@program(graphs=1)
def test_the_dict_is_one_object(t):
    local = threading.local()
    local.n = 1

    def fn(x, given):
        given["m"] = 2
        return x + local.m, given is vars(local), local

    f = t.compile(fn)
    f(T(2), vars(local))
    del local.m
    f.hit(T(2), vars(local))


@program(graphs=3)
def test_grad_flags_in_a_local(t):
    """As libraries keep switches."""

    class State(threading.local):
        enabled = True

    state = State()

    def fn(x):
        if state.enabled:
            x = torch.sin(x)
        return x * 2

    f = t.compile(fn)
    f(T(2))
    state.enabled = False
    f.miss(T(2))
    del state.enabled
    f.hit(T(2))
    State.enabled = False
    f(T(2))

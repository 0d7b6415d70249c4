"""contextvars.ContextVar: what is set in the thread's context is guarded, what the call sets is set there at its end."""

from __future__ import annotations

import contextlib
import contextvars
import threading

import torch
import torch.utils.checkpoint
from harness import T, program

import alternator

MISSING = object()


@program(graphs=2)
def test_get(t):
    variable = contextvars.ContextVar("variable", default=2)

    def fn(x):
        return x * variable.get(), variable.get(5)

    f = t.compile(fn, dynamic=False)
    f(T(2))
    f.hit(T(2))
    variable.set(3)
    f.miss(T(2))
    f.hit(T(2))


@program()
def test_get_without_a_value(t):
    variable = contextvars.ContextVar("variable")

    def fn(x):
        try:
            found = variable.get()
        except LookupError as error:
            found = type(error).__name__, error.args[0] is variable
        return x + 1, found, variable.get("otherwise")

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    variable.set(4)
    f.miss(T(2))


@program()
def test_tensors_and_objects(t):
    variable = contextvars.ContextVar("variable")
    variable.set({"w": T(2), "seen": []})

    def fn(x):
        state = variable.get()
        state["seen"].append(len(state["seen"]))
        return x * state["w"], state

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    variable.set({"w": T(2, s=1), "seen": []})
    f.hit(T(2))


@program(graphs=2)
def test_set(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x):
        variable.set(x * 2)
        variable.set(variable.get() + 1)
        return variable.get() + 1

    t.watch(lambda: variable.get())
    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    f.miss(T(3))


@program()
def test_set_and_reset(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x):
        token = variable.set(7)
        y = x * variable.get()
        variable.reset(token)
        return y + variable.get()

    t.watch(lambda: variable.get(MISSING) is MISSING)
    f = t.compile(fn, dynamic=False)
    f(T(2))
    f.hit(T(2))
    variable.set(2)
    f.miss(T(2))


@program()
def test_tokens_in_any_order(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x, k):
        first = variable.set(2)
        second = variable.set(3)
        messages = [variable.get()]
        for token in (first, second, first) if k else (second, first, second):
            try:
                variable.reset(token)
            except RuntimeError:
                messages.append("used")
            messages.append(variable.get())
        return x + 1, messages

    t.watch(lambda: (variable.get(), variable.get(MISSING) is MISSING))
    f = t.compile(fn)
    f.free(T(2), 0)
    f.free(T(2), 1)
    f.free(T(2), 0)


@program()
def test_a_context_manager(t):
    variable = contextvars.ContextVar("variable", default=1.0)

    @contextlib.contextmanager
    def scaled(by):
        token = variable.set(variable.get() * by)
        try:
            yield
        finally:
            variable.reset(token)

    def fn(x):
        with scaled(2.0):
            with scaled(3.0):
                y = x * variable.get()
            z = x * variable.get()
        return y, z, variable.get()

    t.watch(variable.get)
    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    variable.set(5.0)
    f.miss(T(2))


@program()
def test_an_error_leaves(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x):
        variable.set("set")
        y = x + 1
        raise ValueError(variable.get(), y.shape[0])

    t.watch(variable.get)
    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_a_token_that_stays(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x):
        return x + 1, variable.set(2)

    def back(x, token):
        variable.reset(token)
        return x + variable.get()

    t.watch(variable.get)
    f, g = t.compile(fn), t.compile(back)
    token = f(T(2))[1]
    t.note((token.var is variable, token.old_value is contextvars.Token.MISSING))
    g(T(2), token)
    g(T(2), f(T(2))[1])


@program(one_graph=False)
def test_a_break_while_it_is_set(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x):
        token = variable.set(variable.get() + 1)
        try:
            y = x * variable.get()
            alternator.graph_break()
            y = y + variable.get()
        finally:
            variable.reset(token)
        alternator.graph_break()
        return y * variable.get()

    t.watch(variable.get)
    f = t.compile(fn)
    f(T(2))
    f(T(2))
    variable.set(5)
    f(T(2))


@program(one_graph=False)
def test_a_break_after_a_set(t):
    variable = contextvars.ContextVar("variable")

    def fn(x):
        variable.set([x + 1])
        alternator.graph_break()
        variable.get().append(x)
        return len(variable.get())

    t.watch(lambda: variable.get(None))
    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_other_uses(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x, act):
        variable.set(2)
        return x + 1, act()

    t.watch(lambda: variable.get())
    f = t.compile(fn)
    for act in (
        lambda: variable.name,
        lambda: contextvars.copy_context()[variable],
        lambda: contextvars.copy_context().run(lambda: (variable.set(9), variable.get())[1]),
        lambda: variable.set(3).old_value,
        lambda: contextvars.ContextVar("made", default=4).get(),
        lambda: contextvars.ContextVar.get(variable, 5),
        lambda: contextvars.ContextVar.set(variable, 5) and None,
        lambda: variable == variable,
    ):
        f(T(2), act)
        f(T(2), act)


@program(one_graph=False)
def test_wrong_calls(t):
    one, other = contextvars.ContextVar("one"), contextvars.ContextVar("other")

    def fn(x, act):
        try:
            act()
        except (TypeError, ValueError, RuntimeError) as error:
            return x + 1, type(error).__name__
        return x

    t.watch(lambda: (one.get(None), other.get(None)))
    f = t.compile(fn)
    for act in (
        lambda: one.reset(other.set(1)),
        lambda: one.reset(1),
        lambda: one.set(),
        lambda: one.get(1, 2),
        lambda: one.get(default=2),
    ):
        f(T(2), act)
        f(T(2), act)


@program(one_graph=False)
def test_contexts_and_threads(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x):
        variable.set(variable.get() + 1)
        return x * variable.get()

    f = t.compile(fn, dynamic=False)
    f(T(2))
    t.note(contextvars.copy_context().run(lambda: (f.call(T(2)), variable.get())))
    t.note(variable.get())
    t.note(contextvars.Context().run(lambda: (f.call(T(2)), variable.get())))
    found = []
    thread = threading.Thread(target=lambda: found.append((f.call(T(2)), variable.get())))
    thread.start()
    thread.join()
    t.note((found, variable.get()))
    f(T(2))


@program(one_graph=False)
def test_in_a_checkpoint(t):
    variable = contextvars.ContextVar("variable", default=1)

    def part(x):
        variable.set(variable.get() + 1)
        return x * variable.get()

    def fn(x):
        y = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)
        return y + variable.get()

    t.watch(variable.get)
    f = t.compile(fn)
    f(T(2, rg=True))
    f(T(2, rg=True)).sum().backward()


@program(one_graph=False)
def test_a_handed_over_method(t):
    variable = contextvars.ContextVar("variable", default=1)

    def fn(x, get, set_):
        set_(get() + 1)
        return x * get()

    t.watch(variable.get)
    f = t.compile(fn, dynamic=False)
    f(T(2), variable.get, variable.set)
    f(T(2), variable.get, variable.set)

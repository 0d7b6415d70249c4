"""Exceptions that leave a compiled function: rebuilt on every call, with context, notes, tensors and lines as in eager."""

from __future__ import annotations

import contextlib
import sys

import torch
from harness import T, program
from torch import nn

import alternator


@program()
def test_a_call_that_raises_is_a_hit_the_second_time(t):
    def fn(x, n):
        y = x * 2
        if n:
            raise ValueError("no", n)
        return y

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 0)
    f.hit(T(2), 0)
    f.hit(T(2), 1)


@program()
def test_tensors_in_the_exception(t):
    class Carrying(Exception):
        pass

    def fn(x, w):
        y = x * w
        error = Carrying(y, x, [y])
        error.w = w
        error.again = y
        raise error

    f = t.compile(fn)
    f(T(2), T(2, rg=True))
    f.hit(T(2, s=3), T(2, rg=True))


@program()
def test_gradients_flow_through_what_an_exception_carries(t):
    def fn(x):
        raise ValueError((x * x).sum())

    f = t.compile(fn)
    x = T(2, rg=True)
    t.watch(lambda: x.grad)
    for _ in range(2):
        f(x)
        f.error.args[0].backward()


@program()
def test_writes_before_and_none_after(t):
    class Box:
        def __init__(self):
            self.log = []

    state = {"n": 0}

    def fn(box, d, x, n):
        box.log.append("before")
        d["x"] = x + 1
        state["n"] += 1
        x.add_(1)
        if n > 1:
            raise LookupError(n)
        box.log.append("after")
        x.mul_(2)
        return x

    f = t.compile(fn)
    box, d, x = Box(), {}, T(2)
    t.watch(lambda: (box, d, x, state))
    for n in (1, 2, 2, 1):
        f(box, d, x, n)


@program()
def test_an_exception_from_finally_and_with(t):
    class Manager:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("enter")

        def __exit__(self, kind, error, traceback):
            self.log.append((kind, str(error), traceback is None))
            return False

    def fn(log, x, n):
        with Manager(log):
            try:
                if n:
                    raise KeyError(n)
            finally:
                x = x + 1
                if n > 1:
                    raise ValueError("from finally")
        return x

    f = t.compile(fn)
    for n in (0, 1, 2, 1):
        f([], T(2), n)


@program()
def test_context_is_what_the_caller_handles(t):
    def fn(x, how):
        try:
            if how != "plain":
                raise KeyError("inner")
        except KeyError as error:
            if how == "from":
                raise ValueError("outer") from error
            if how == "keep":
                return error
            raise ValueError("outer")  # noqa: B904
        raise IndexError("plain")

    f = t.compile(fn)
    for how in ("plain", "from", "keep", "implicit"):
        f(T(2), how)
    for how in ("plain", "from", "keep", "implicit", "plain"):
        try:
            raise TypeError("of the caller")
        except TypeError:
            f(T(2), how)
    for how in ("plain", "from", "keep", "implicit"):
        f.hit(T(2), how)


@program(one_graph=False)
def test_the_callers_exception_is_handled_after_a_break(t):
    def fn(x, how):
        try:
            raise KeyError("inner")
        except KeyError as error:
            alternator.graph_break()
            if how == "from":
                raise ValueError("outer") from error
            raise

    f = t.compile(fn)
    for how in ("from", "again"):
        f(T(2), how)
        try:
            raise TypeError("of the caller")
        except TypeError:
            f(T(2), how)
            f(T(2), how)
        f(T(2), how)


@program()
def test_a_raised_and_caught_exception_remembers_the_callers(t):
    def fn(x):
        try:
            raise KeyError("k")
        except KeyError as error:
            kept = error
        return kept, ValueError("never raised"), x + 1

    f = t.compile(fn)
    f(T(2))
    try:
        raise TypeError("of the caller")
    except TypeError:
        f(T(2))
        f.hit(T(2))


@program(one_graph=False)
def test_reraise_what_the_caller_handles(t):
    def fn(x):
        raise  # noqa: PLE0704

    f = t.compile(fn)
    f(T(2))
    try:
        raise TypeError("of the caller")
    except TypeError:
        f(T(2))
        f(T(2))
    f(T(2))


@program(one_graph=False)
def test_exception_objects_from_outside_are_not_written(t):
    stored = ValueError("stored")
    t.watch(lambda: stored)

    class Box:
        error = KeyError("of the class")

    def fn(box, x, how):
        if how == "global":
            raise stored
        if how == "class":
            raise box.error
        if how == "from":
            raise RuntimeError("new") from stored
        if how == "note":
            stored.add_note("a note")
        if how == "caught":
            try:
                raise stored
            except ValueError:
                x = x * 2
        if how == "traceback":
            raise stored.with_traceback(None)
        return x + 1

    f = t.compile(fn)
    for how in ("from", "global", "class", "caught", "note", "traceback", "from", ""):
        f(Box(), T(2), how)


@program(one_graph=False)
def test_thrown_into_a_generator(t):
    stored = ValueError("stored")
    t.watch(lambda: stored)

    def steps(log):
        try:
            yield 1
        except ValueError as error:
            log.append(str(error))
            yield 2

    def fn(log, x, error):
        generator = steps(log)
        next(generator)
        return generator.throw(error), x + 1

    f = t.compile(fn)
    f([], T(2), ValueError("new"))
    f([], T(2), stored)
    f([], T(2), stored)


@program()
def test_out_of_a_generator_and_a_comprehension(t):
    def numbers(x, n):
        for i in range(3):
            if i == n:
                raise LookupError(i)
            yield x + i

    def fn(x, n):
        return [y * 2 for y in numbers(x, n)], sum(i // (i - n) for i in range(1))

    f = t.compile(fn)
    f(T(2), 2)
    f.hit(T(2), 2)
    f(T(2), 0)
    f(T(2), 5)


@program()
def test_stop_iteration_becomes_a_runtime_error(t):
    def numbers():
        yield 1
        raise StopIteration

    def fn(x):
        return [x + n for n in numbers()]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_attributes_of_builtin_exceptions(t):
    class Box:
        pass

    def fn(box, x, how):
        if how == "attribute":
            return box.missing
        if how == "name":
            return undefined  # noqa: F821
        if how == "exit":
            raise SystemExit(3)
        if how == "stop":
            raise StopIteration(x)
        if how == "unicode":
            return "é".encode("ascii")
        if how == "os":
            raise OSError(2, "none", "a file")
        if how == "group":
            raise ExceptionGroup("g", [ValueError(1), KeyError("k")])
        if how == "unbound":
            del x
            return x
        return x

    f = t.compile(fn)
    box = Box()
    for how in ("attribute", "name", "exit", "stop", "unicode", "os", "group", "unbound", "attribute"):
        f(box, T(2), how)


@program()
def test_one_exception_is_one_object(t):
    kept = []
    t.watch(lambda: kept)

    class Pair(Exception):
        pass

    def fn(x):
        first = Pair("first")
        second = Pair("second", first)
        first.other = second
        kept.append(first)
        raise second from first

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_a_class_is_raised(t):
    class Mine(Exception):
        count = 3

        def __init__(self, text="nothing"):
            super().__init__(text)
            self.n = self.count

    def fn(x):
        x.add_(1)
        raise Mine

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    t.patch(Mine, "count", 4)
    f(T(2))
    t.patch(Mine, "__init__", lambda self, text="patched": Exception.__init__(self, text))
    f(T(2))


@program()
def test_out_of_modules_and_modes(t):
    class Inner(nn.Module):
        def forward(self, x, n):
            with torch.no_grad():
                if n:
                    raise ValueError(torch.is_grad_enabled())
            return x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.lin, self.calls = Inner(), nn.Linear(2, 2), 0

        def forward(self, x, n):
            self.calls += 1
            return self.inner(self.lin(x), n)

    f = t.compile(Net())
    f(T(1, 2), 1)
    f(T(1, 2), 1)
    f(T(1, 2), 0)


@program()
def test_callers_with_blocks_see_it(t):
    def fn(x, n):
        if n:
            raise KeyError(n)
        return x + 1

    f = t.compile(fn)
    seen = []
    t.watch(lambda: seen)
    with contextlib.suppress(KeyError):
        f(T(2), 1)
    try:
        f.call(T(2), 1)
    except KeyError as error:
        seen.append((error.args, sys.exc_info()[1] is error, error.__context__))
    f.hit(T(2), 1)


@program(one_graph=False)
def test_what_depends_on_the_machine(t):
    def deep(x):
        return deep(x) + 1

    def fn(x, how):
        if how == "memory":
            raise MemoryError("mine")
        if how == "recursion":
            raise RecursionError("mine")
        if how == "caught":
            try:
                deep(x)
            except RecursionError:
                return x
        return x + 1

    f = t.compile(fn)
    for how in ("memory", "recursion", "caught", "", "caught"):
        f(T(2), how)


@program()
def test_deep_tracebacks(t):
    def down(x, n):
        if n == 0:
            raise ValueError("bottom")
        return down(x, n - 1)

    f = t.compile(lambda x, n: down(x, n))
    f(T(2), 30)
    f.hit(T(2), 30)


@program()
def test_locals_that_hold_the_exception(t):
    def fn(x):
        error = ValueError("kept")
        holder = [error, x]
        error.holder = holder
        raise error

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_vars_of_what_has_none(t):
    class Tight:
        __slots__ = ("a",)

    tight = Tight()

    def fn(x, owner):
        try:
            return x + len(vars(owner))
        except TypeError as error:
            return x + 1, str(error)

    f = t.compile(fn)
    f(T(2), tight)
    f.hit(T(2), tight)
    f(T(2), 3)


@program()
def test_frames_of_a_traceback_are_looked_at(t):
    """By debuggers, by pytest: also those of functions with free variables and cells."""

    def fn(x, n):
        def inner(y):
            if n:
                raise ValueError(n)
            return y + n

        return inner(x)

    f = t.compile(fn)

    def look(x, n):
        try:
            return f.call(x, n)
        except ValueError as error:
            traceback, seen = error.__traceback__, []
            while traceback is not None:
                frame = traceback.tb_frame
                seen.append(
                    (frame.f_code.co_name, isinstance(frame.f_locals.get("x"), int), frame.f_globals["__name__"])
                )
                traceback = traceback.tb_next
            return seen

    look(T(2), 0)
    t.note(str(look(T(2), 1)[-2:]))
    t.note(str(look(T(2), 1)[-2:]))

"""Exceptions that the program keeps, or handles where a break comes: the variables of their frames live as long as in eager."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref

from harness import T, program

import alternator


class Thing:
    """Says when it dies, in the log of those days."""

    log: list = []  # noqa: RUF012

    def __init__(self, name):
        self.name, self.log = name, Thing.log

    def __del__(self):
        self.log.append(self.name)

    @classmethod
    def begin(cls):
        """From now on things die by their reference counts, and where a program collects: at no other moment."""
        gc.disable()
        cls.log = []


class Failure(ValueError):
    pass


def stepping(log):
    try:
        yield 1
        yield 2
    finally:
        log.append("closed")


def started(log):
    steps = stepping(log)
    next(steps)
    return steps


@program(one_graph=False)
def test_callers_of_the_frame_that_raised(t):
    log, errors = [], []

    def helper(x, breaks):
        try:
            int({1})
        except TypeError as error:
            errors.append(error)
            if breaks:
                alternator.graph_break()
        return x + 1

    def between(x, breaks):
        return helper(x * 2, breaks)

    def fn(x, breaks):
        steps = started(log)  # noqa: F841
        return between(x, breaks)

    f = t.compile(fn)
    for breaks in (False, True, True, False):
        f(T(2), breaks)
        t.note((list(log), len(errors)))
    while errors:
        errors.pop()
        gc.collect()
        t.note(list(log))


@program(one_graph=False)
def test_who_called(t):
    errors = []

    def helper(x, breaks):
        try:
            raise Failure
        except Failure as error:
            errors.append(error)
            if breaks:
                alternator.graph_break()
        return x + 1

    def fn(x, n, breaks):
        return helper(x * 2, breaks) + n

    def outer(n, breaks):
        note = "of the caller"  # noqa: F841
        return f(T(2), n, breaks)

    f = t.compile(fn)
    for n, breaks in ((1, False), (2, True), (1, False), (3, True), (2, True)):
        outer(n, breaks)
        frame = errors[-1].__traceback__.tb_frame
        t.note([line.split(", line")[0] for line in traceback.format_tb(errors[-1].__traceback__)])
        t.note((frame.f_code.co_name, frame.f_back.f_code.co_name, frame.f_back.f_locals["n"]))
        while frame.f_code.co_name != "outer":
            frame = frame.f_back
        t.note(sorted(frame.f_locals.items()))


@program(one_graph=False)
def test_variables_of_a_frame_that_ends_behind_the_break(t):
    """Whoever holds the frame sees what its variables became, and the line in which it ended."""
    errors = []

    def helper(x, n):
        note = "before"
        try:
            raise Failure
        except Failure as error:
            errors.append(error)
            alternator.graph_break()
        note = "after" if n > 1 else "soon after"
        if n == 3:
            return x
        return x + len(note)

    def fn(x, n):
        return helper(x * 2, n) + n

    f = t.compile(fn)
    for n in (1, 1, 2, 3, 1):
        f(T(2), n)
        frame = errors[-1].__traceback__.tb_frame
        t.note((frame.f_locals["note"], frame.f_locals["n"], frame.f_lineno - frame.f_code.co_firstlineno))


@program(one_graph=False, spied=False)
def test_variables_of_the_caller(t):
    errors = []
    Thing.begin()

    def fn(x, breaks):
        try:
            raise Failure
        except Failure as error:
            errors.append(error)
            if breaks:
                alternator.graph_break()
        return x + 1

    def outer(name, breaks):
        thing = Thing(name)  # noqa: F841
        return f(T(2), breaks)

    f = t.compile(fn)
    for breaks in (False, True, False, True):
        outer(len(errors), breaks)
        t.note(list(Thing.log))


def test_variables_of_the_caller_die_with_the_exception():
    def fn(x, errors, breaks):
        try:
            raise Failure
        except Failure as error:
            errors.append(error)
            if breaks:
                alternator.graph_break()
        return x + 1

    def outer(f, name, errors, breaks):
        thing = Thing(name)  # noqa: F841
        return f(T(2), errors, breaks)

    for f in (fn, alternator.compile(fn, backend="eager")):
        Thing.log, errors = [], []
        for breaks in (False, True, False, True):
            outer(f, len(errors), errors, breaks)
            assert Thing.log == []
        while errors:
            errors.pop(0)
            assert Thing.log == list(range(4 - len(errors)))


@program(one_graph=False, spied=False)
def test_a_variable_that_is_set_anew(t):
    errors = []
    Thing.begin()

    def fn(x, thing, keep):
        try:
            x = x * 2
            raise Failure
        except Failure as error:
            if keep:
                errors.append(error)
            alternator.graph_break()
        del thing[:]
        Thing.log.append("emptied")
        return x + len(Thing.log)

    def other(x, keep):
        thing = Thing("other")
        try:
            x = x * 2
            raise Failure
        except Failure as error:
            if keep:
                errors.append(error)
            alternator.graph_break()
        thing = None  # noqa: F841
        Thing.log.append("set anew")
        return x + len(Thing.log)

    f, g = t.compile(fn), t.compile(other)
    for keep in (True, False, True, True):
        f(T(2), [Thing("first")], keep)
        t.note(list(Thing.log))
        g(T(2), keep)
        t.note(list(Thing.log))
    errors.clear()
    t.note(list(Thing.log))


@program(one_graph=False, spied=False)
def test_frames_that_were_left(t):
    Thing.begin()

    def helper(x):
        thing = Thing("helper")  # noqa: F841
        steps = started(Thing.log)  # noqa: F841
        if x.dim() == 1:
            raise Failure("v")
        return x

    def fn(x):
        try:
            x = helper(x)
        except Failure as error:
            alternator.graph_break()
            Thing.log.append(str(error))
            x = x * 2
        Thing.log.append("behind")
        return x + len(Thing.log)

    def nested(x):
        try:
            return fn(x)
        finally:
            Thing.log.append("left")

    f, g = t.compile(fn), t.compile(nested)
    for _ in range(3):
        f(T(2))
        t.note(list(Thing.log))
        g(T(2))
        t.note(list(Thing.log))
        g(T(2, 2))
        t.note(list(Thing.log))


@program(one_graph=False, spied=False)
def test_handlers_inside_of_handlers(t):
    Thing.begin()

    def helper(name, x):
        thing = Thing(name)  # noqa: F841
        raise Failure(name)

    def fn(x):
        try:
            helper("a", x)
        except Failure as outer:
            try:
                helper("b", x)
            except Failure as inner:
                alternator.graph_break()
                Thing.log.append((str(outer), str(inner), str(inner.__context__)))
            alternator.graph_break()
            Thing.log.append("inner is gone")
            x = x + 1
        Thing.log.append("outer is gone")
        alternator.graph_break()
        return x + len(Thing.log)

    f = t.compile(fn)
    for _ in range(3):
        f(T(2))
        t.note(list(Thing.log))


@program(one_graph=False, spied=False)
def test_an_exception_that_is_raised_again(t):
    Thing.begin()

    def helper(x):
        thing = Thing("helper")  # noqa: F841
        try:
            raise Failure("v")
        except Failure:
            alternator.graph_break()
            x = x + 1
            raise

    def fn(x, catches):
        try:
            helper(x)
        except Failure:
            Thing.log.append("caught")
            if not catches:
                raise
        Thing.log.append("behind")
        return x * 2

    f = t.compile(fn)
    for catches in (True, False, True, False):
        f(T(2), catches)
        t.note(list(Thing.log))


@program(one_graph=False)
def test_generators_of_frames_that_go_on(t):
    log, errors = [], []

    def fn(x, keep):
        try:
            raise Failure
        except Failure as error:
            if keep:
                errors.append(error)
            alternator.graph_break()
        x = x * 2
        steps = started(log)
        return x + next(steps)

    def through(x, keep):
        try:
            return fn(x, keep)
        finally:
            log.append("through")

    f, g = t.compile(fn), t.compile(through)
    for keep in (True, False, True, False):
        f(T(2), keep)
        t.note(list(log))
        g(T(2), keep)
        t.note(list(log))
    while errors:
        errors.pop()
        t.note(list(log))


@program(one_graph=False)
def test_two_exceptions_of_one_frame(t):
    errors = []

    def fn(x):
        for name in ("a", "b"):
            try:
                raise Failure(name)
            except Failure as error:
                errors.append(error)
                alternator.graph_break()
            x = x + 1
        return x

    f = t.compile(fn)
    for _ in range(3):
        f(T(2))
        first, second = errors[-2:]
        t.note(first.__traceback__.tb_frame is second.__traceback__.tb_frame)
        t.note(
            (
                first.__traceback__.tb_frame.f_back is sys._getframe(),
                first.__traceback__.tb_frame.f_lineno - fn.__code__.co_firstlineno,
            )
        )


@program(one_graph=False)
def test_an_exception_dies_behind_its_handler(t):
    def fn(x, seen):
        try:
            raise Failure
        except Failure as error:
            seen.append(weakref.ref(error))
            alternator.graph_break()
            x = x + 1
        alternator.graph_break()
        return x + 1, [one() is None for one in seen]

    f, seen = t.compile(fn), []
    for _ in range(3):
        f(T(2), seen)
        t.note([one() is None for one in seen])


@program(one_graph=False, spied=False)
def test_exceptions_that_hold_others(t):
    Thing.begin()

    def helper(name, x):
        thing = Thing(name)  # noqa: F841
        x = x + 1
        raise Failure(name)

    def group(x):
        try:
            try:
                helper("a", x)
            except Failure as error:
                raise ExceptionGroup("several", [error]) from None
        except* Failure as found:
            Thing.log.append(len(found.exceptions))
            x = x + 1
        Thing.log.append("behind")
        return x

    def context(x):
        try:
            try:
                helper("a", x)
            except Failure:
                helper("b", x)
        except Failure as error:
            kept = error.__context__
            x = x + 1
        Thing.log.append(str(kept))
        alternator.graph_break()
        kept = None
        Thing.log.append("behind")
        return x

    def kept_in_a_list(x):
        kept = []

        def inner(x):
            steps = started(Thing.log)  # noqa: F841
            try:
                helper("a", x)
            except Failure as error:
                kept.append(error)
            return x + 1

        x = inner(x)
        Thing.log.append("inner has ended")
        x = x * 2
        kept.clear()
        Thing.log.append("cleared")
        return x

    for fn in (group, context, kept_in_a_list):
        f = t.compile(fn)
        for _ in range(3):
            f(T(2))
            t.note(list(Thing.log))

"""Breaks while an exception is handled: the code between two of them is compiled there too."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
import torch
from harness import REGISTRY, T, add_row, check, program
from test_breaks import CAUSES, build, counts_of, script_of
from trace_support import in_child

import alternator

# As in test_breaks: BREAK stands for the cause.
PLACES = {
    "except": """
        def fn(x, log):
            x = x + 1
            try:
                time.sleep(-1)
            except ValueError as caught:
                x = x * 2
                BREAK
                x = x * 3
                BREAK
                log.append(len(caught.args))
                x = x + len(caught.args)
            log.append(x)
            return x - 1
        """,
    "finally": """
        def fn(x, log):
            try:
                time.sleep(-1)
            finally:
                x = x * 2
                BREAK
                x = x * 3
                BREAK
                log.append(x + 1)
        """,
    "a finally that returns": """
        def fn(x, log):
            try:
                time.sleep(-1)
            finally:
                x = x * 2
                BREAK
                x = x * 3
                return x
        """,
    "a helper that is called in a handler": """
        def helper(x, log):
            x = x + 1
            BREAK
            x = x * 2
            BREAK
            log.append(str(sys.exc_info()[1]))
            return x * 3

        def fn(x, log):
            try:
                time.sleep(-1)
            except ValueError:
                return helper(x + 1, log) - 1
        """,
    "a handler in a helper that is called in a handler": """
        def helper(x, log):
            try:
                {}["missing"]
            except KeyError as caught:
                x = x + 1
                BREAK
                x = x * 2
                log.append((str(caught), str(caught.__context__)))
            BREAK
            log.append(str(sys.exc_info()[1]))
            return x * 3

        def fn(x, log):
            try:
                time.sleep(-1)
            except ValueError:
                x = helper(x + 1, log) - 1
                BREAK
                log.append(str(sys.exc_info()[1]))
            log.append(sys.exc_info())
            return x + 1
        """,
    "a loop of handlers": """
        def fn(x, log):
            for i in range(4):
                try:
                    x = x + 1
                    time.sleep(-1)
                except ValueError:
                    x = x * 2
                    BREAK
                    x = x + 3
                    BREAK
                    x = x - 1
                    continue
            return x
        """,
    "a handler that is left by return": """
        def fn(x, log):
            try:
                time.sleep(-1)
            except ValueError as caught:
                x = x * 2
                BREAK
                x = x * 3
                return x, caught.args
        """,
    "a handler that raises": """
        def fn(x, log):
            try:
                try:
                    time.sleep(-1)
                except ValueError as caught:
                    x = x * 2
                    BREAK
                    x = x * 3
                    raise KeyError("next") from caught
            except KeyError as caught:
                x = x + 1
                BREAK
                log.append((caught.__cause__ is caught.__context__, str(caught.__cause__)))
                x = x * 2
            return x, sys.exc_info()
        """,
    "a handler that raises it again": """
        def fn(x, log):
            try:
                time.sleep(-1)
            except ValueError:
                x = x * 2
                BREAK
                x = x * 3
                log.append(x)
                raise
        """,
    "a handler that raises another": """
        def fn(x, log):
            try:
                time.sleep(-1)
            except ValueError:
                x = x * 2
                BREAK
                x = x * 3
                log.append(x)
                raise LookupError("another")
        """,
    "nested handlers": """
        def fn(x, log):
            try:
                time.sleep(-1)
            except ValueError as outer:
                x = x * 2
                BREAK
                try:
                    x = x + 1
                    raise KeyError("inner")
                except KeyError as inner:
                    x = x * 3
                    BREAK
                    x = x - 1
                    log.append((str(inner), str(inner.__context__), inner.__context__ is outer))
                x = x + 2
                BREAK
                log.append(str(outer))
                x = x * 2
            return x
        """,
    "with a manager that swallows": """
        class Manager:
            def __init__(self, log):
                self.log = log

            def __enter__(self):
                return self

            def __exit__(self, kind, caught, traceback):
                self.log.append((kind, str(caught), traceback is None))
                x = torch.ones(2)
                BREAK
                self.log.append(x * 2)
                return kind is ValueError

        def fn(x, log):
            with Manager(log):
                x = x * 2
                time.sleep(-1)
            BREAK
            return x + 1
        """,
    "with a manager that does not": """
        class Manager:
            def __init__(self, log):
                self.log = log

            def __enter__(self):
                return self

            def __exit__(self, kind, caught, traceback):
                x = torch.ones(2)
                BREAK
                self.log.append((kind, str(caught), x * 2))

        def fn(x, log):
            with Manager(log), torch.no_grad():
                x = x * 2
                time.sleep(-1)
            return x + 1
        """,
    "contextlib.contextmanager": """
        @contextlib.contextmanager
        def manager(x, log):
            try:
                yield x * 2
            except ValueError as caught:
                x = x + 1
                BREAK
                log.append((x * 2, caught.args))
            finally:
                log.append(x * 3)

        def fn(x, log):
            with manager(x, log) as y:
                x = y + 1
                time.sleep(-1)
            BREAK
            return x * 2
        """,
    "except*": """
        def fn(x, log):
            try:
                raise ExceptionGroup("group", [ValueError(1), TypeError(2), KeyError(3)])
            except* ValueError as group:
                x = x + 1
                BREAK
                x = x * 2
                BREAK
                x = x + len(group.exceptions)
            except* TypeError as group:
                x = x + 1
                BREAK
                x = x * 2
            except* KeyError:
                x = x - 1
            return x
        """,
}

NAMES = [
    add_row(__name__, "test_handler", f"{place}, {cause}", script_of(place, cause, PLACES), one_graph=False)
    for place in PLACES
    for cause in CAUSES
]


@pytest.mark.parametrize("name", NAMES)
def test_handler(name: str) -> None:
    check(REGISTRY[name])


LEAVING = ("finally", "a handler that raises it again", "a handler that raises another", "with a manager that does not")


@pytest.mark.parametrize("place", [place for place in PLACES if place not in LEAVING])
def test_a_call_like_the_last_one_traces_nothing(place: str) -> None:
    @in_child
    def body(front: Any) -> None:
        for cause in CAUSES:
            changes = counts_of(build(place, cause, PLACES)["fn"], *[(T(2, 3), []) for _ in range(4)])
            assert changes[3]["traces"] == 0 and changes[3]["eager"] == 0, (cause, changes)

    body()


@in_child
def test_how_many_graphs(front: Any) -> None:
    # One before the exception, one for each part of the handler. Behind a break a group is one from outside: splitting it is a break too.
    for place, graphs in {"except": 4, "a loop of handlers": 5, "nested handlers": 5, "except*": 6}.items():
        first, second = counts_of(build(place, "graph_break", PLACES)["fn"], (T(3), []), (T(3), []))
        assert first["graphs"] == graphs and first["eager"] == 0, (place, first)
        assert second["traces"] == 0 and second["eager"] == 0, (place, second)


@program(one_graph=False)
def test_what_the_caller_handles_is_handled_on(t: Any) -> None:
    def fn(x: Any, log: list[Any]) -> Any:
        try:
            time.sleep(-1)
        except ValueError as error:
            x = x + 1
            time.sleep(0)
            log.append((str(error.__context__), str(sys.exc_info()[1])))
            x = x * 2
        time.sleep(0)
        log.append(str(sys.exc_info()[1]))
        return x * 3

    f = t.compile(fn)
    log: list[Any] = []
    f(T(3), log)
    try:
        {}["missing"]
    except KeyError:
        f(T(3), log)
    f(T(3), log)
    t.note(log)


@program(one_graph=False)
def test_the_message_is_not_a_constant(t: Any) -> None:
    def fn(x: Any, n: int) -> Any:
        try:
            int("a" * n)
        except ValueError as error:
            x = x + 1
            time.sleep(0)
            x = x * len(error.args[0])
            time.sleep(0)
            return x + len(str(error)), str(error)

    f = t.compile(fn)
    for n in (1, 2, 1, 3):
        f(T(3), n)


@in_child
def test_exceptions_die(front: Any) -> None:
    import gc
    import weakref

    class Held(Exception):
        pass

    dead: list[bool] = []

    def fn(x: Any) -> Any:
        try:
            raising()
        except Held as error:
            x = x + 1
            time.sleep(0)
            look = weakref.ref(error)
            x = x * 2
        time.sleep(0)
        dead.append(look() is None)
        return x * 3

    @alternator.disable
    def raising() -> Any:
        raise Held

    gc.disable()
    compiled = alternator.compile(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(T(3)), (T(3) + 1) * 6)
    assert dead == [True] * 3


@program(one_graph=False)
def test_what_the_frames_of_a_traceback_keep_alive(t):
    log: list[str] = []

    def stepping():
        try:
            yield 1
        finally:
            log.append("closed")

    def fn(x, how):
        steps = stepping()
        x = x + next(steps)
        alternator.graph_break()
        try:
            if how:
                missing.anything  # noqa: B018, F821
        except NameError:
            x = x * 2
            alternator.graph_break()
            raise
        return x

    t.watch(lambda: log)
    f = t.compile(fn)
    for how in (True, False, True):
        f(T(3), how)


def test_locals_of_a_rebuilt_traceback():
    def fn(x, n):
        kept = x
        y = x + 1
        raise ValueError(n, y)

    for _ in range(2):
        x = T(3)
        with pytest.raises(ValueError, match="7") as caught:
            alternator.compile(fn, backend="eager")(x, 7)
        entry = caught.value.__traceback__
        while entry.tb_next is not None:
            entry = entry.tb_next
        assert entry.tb_frame.f_code is fn.__code__
        found = entry.tb_frame.f_locals
        assert found["x"] is x
        assert found["kept"] is x
        assert found["n"] == 7


@program(one_graph=False)
def test_breaks_in_what_a_handler_calls(t):
    def broken(x):
        alternator.graph_break()
        return x * 2

    def fn(x, items):
        try:
            items[9]
        except IndexError:
            x = x + sum([broken(y) for y in [x, x]])
        return x + 1

    f = t.compile(fn)
    for _ in range(3):
        f(T(3), [1])
        t.note(sys.exc_info()[0])


@program(one_graph=False)
def test_groups_behind_a_break(t):
    @alternator.disable
    def fail(kinds):
        raise ExceptionGroup("eg", [kind(str(i)) for i, kind in enumerate(kinds)])

    def fn(x, kinds):
        log = []
        try:
            try:
                fail(kinds)
            except* ValueError as error:
                log.append(("value", len(error.exceptions)))
                alternator.graph_break()
                x = x + 1
            except* (TypeError, KeyError) as error:
                log.append(("type", len(error.exceptions)))
                x = x * 2
        except ExceptionGroup as error:
            log.append(("rest", error.message))
        return x, log

    f = t.compile(fn)
    for kinds in ([ValueError], [ValueError, TypeError, KeyError], [OSError, ValueError], [KeyError], [ValueError]):
        f(T(2), kinds)


@program(one_graph=False)
def test_interrupts_that_the_program_raises(t):
    """What is done behind a break while one is on its way is done."""
    done = []
    t.watch(lambda: list(done))

    def cleans_up(x, error):
        try:
            raise error
        finally:
            alternator.graph_break()
            x.add_(1)
            done.append(1)

    def raises_again(x, error):
        try:
            raise error
        except BaseException:
            alternator.graph_break()
            x.add_(1)
            done.append(2)
            raise

    for fn in (cleans_up, raises_again):
        f = t.compile(fn)
        for error in (KeyboardInterrupt, SystemExit, GeneratorExit, ValueError, KeyboardInterrupt):
            try:
                f(T(2), error)
            except BaseException as raised:
                t.note(type(raised).__name__)

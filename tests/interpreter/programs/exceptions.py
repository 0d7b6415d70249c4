"""try, finally, with, except*, chaining."""
from __future__ import annotations

import sys
from typing import Any

from programs import describe, handled, program, trace, where


class Manager:
    def __init__(self, log: list[Any], suppress: bool) -> None:
        self.log, self.suppress = log, suppress

    def __enter__(self) -> Manager:
        self.log.append(("enter", where()))
        return self

    def __exit__(self, kind: Any, error: Any, entry: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__, entry and entry.tb_lineno, handled(), where()))
        return self.suppress


@program
def handlers() -> Any:
    out: list[Any] = []
    for step in range(3):
        try:
            try:
                if step == 0:
                    {}["k"]
                elif step == 1:
                    raise ValueError(step)
            except KeyError as error:
                out.append((describe(error), trace(error), handled()))
                try:
                    raise TypeError("x") from error
                except TypeError as second:
                    out.append((describe(second), handled()))
                out.append(handled())
            finally:
                out.append(f"finally {step} {handled()}")
        except ValueError as error:
            out.append((describe(error), trace(error), handled()))
    out.append(handled())
    return out


@program
def finally_returns() -> Any:
    def early(out: list[Any]) -> str:
        for step in range(3):
            try:
                if step == 1:
                    return "from try"
            finally:
                out.append(("finally", step))
                if step == 0:
                    continue
        return "end"

    def swallow() -> str:
        try:
            raise KeyError("lost")
        finally:
            return "swallowed " + handled()  # noqa: B012

    out: list[Any] = []
    return early(out), swallow(), out, handled()


@program
def reraised() -> Any:
    def bare(kind: type[BaseException]) -> None:
        try:
            raise kind("first")
        except LookupError:
            try:
                raise
            finally:
                out.append(handled())

    out: list[Any] = []
    for kind in (KeyError, ValueError):
        try:
            bare(kind)
        except Exception as error:
            out.append((describe(error), trace(error)))
    try:
        raise
    except RuntimeError as error:
        out.append(describe(error))
    return out


@program
def withs() -> Any:
    log: list[Any] = []
    with Manager(log, False) as first, Manager(log, True) as second:
        log.append(first is not second)
        log[99]
    with Manager(log, True):
        with Manager(log, False):
            raise KeyError("z")
    for step in range(2):
        with Manager(log, False):
            if step == 0:
                continue
            break
    with Manager(log, False):
        return log


@program
def groups() -> Any:
    out: list[Any] = []
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
        except* ValueError as error:
            out.append((repr(error.exceptions), handled()))
        except* TypeError as error:
            out.append(repr(error.exceptions))
            raise OSError("new") from error
    except ExceptionGroup as error:
        out += [repr(error), describe(error), trace(error)]
    try:
        raise KeyError("plain")
    except* KeyError as error:
        out.append(repr(error))
    try:
        pass
    except* OSError:
        out.append("never")
    return out, handled()


@program
def uncaught() -> Any:
    def deeper(value: int) -> int:
        if value == 2:
            raise ValueError("two", where())
        return value

    total = 0
    for value in range(4):
        total += deeper(value)
    return total


@program
def uncaught_in_handler() -> Any:
    try:
        [][1]
    except IndexError as error:
        saved = error
        try:
            saved.nothing  # type: ignore[attr-defined]
        finally:
            assert sys.exc_info()[0] is AttributeError
            missing_name  # type: ignore[name-defined]  # noqa: B018, F821


@program(cannot="RAISE_VARARGS")
def raised_in_many_ways() -> Any:
    class Custom(Exception):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.place = where()

    def run(kind: Any, cause: Any) -> None:
        if cause is Ellipsis:
            raise kind
        raise kind from cause

    out: list[Any] = []
    for kind, cause in [(Custom, ...), (Custom("i"), ...), (Custom, KeyError), (Custom, None), (Custom, ValueError("v")), (3, ...), (Custom, 4)]:
        try:
            run(kind, cause)
        except Exception as error:
            out.append((describe(error), error.__suppress_context__, trace(error), getattr(error, "place", None)))
    try:
        assert out == [], "message"
    except AssertionError as error:
        out.append(str(error))
    return out

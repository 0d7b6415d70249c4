"""Small programs that are captured, left and continued at every instruction.

Each is a function without arguments that builds its own state and returns something whose repr says what happened; many also record
where they are (`where`), which exception is being handled (`handled`) and how a traceback looks (`trace`). No program keeps state between
calls: an abandoned run must not show in the next one.
"""
from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any

PROGRAMS: dict[str, Program] = {}
# Frames of these codes belong to the tests, not to the program: where() and trace() stop or skip there.
HARNESS: set[CodeType] = set()


class Program:
    """A function, and a pattern that fits every reason why some of its points cannot be continued (None: all of them can).

    The pattern names the instructions, or the native functions called, that may lie between two of its frames."""

    def __init__(self, function: Callable[[], Any], cannot: str | None) -> None:
        self.function = function
        self.name = function.__name__
        self.cannot = cannot

    def __repr__(self) -> str:
        return self.name


def program(function: Callable[[], Any] | None = None, *, cannot: str | None = None) -> Any:
    def register(chosen: Callable[[], Any]) -> Callable[[], Any]:
        assert chosen.__name__ not in PROGRAMS, chosen.__name__
        PROGRAMS[chosen.__name__] = Program(chosen, cannot)
        return chosen

    return register(function) if function is not None else register


def harness(function: Callable[..., Any]) -> Callable[..., Any]:
    HARNESS.add(function.__code__)
    return function


def where() -> list[tuple[str, int]]:
    """The frames from the caller out to the harness, and how many lie below that."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None and frame.f_code not in HARNESS:
        found.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    depth = 0
    while frame is not None:
        depth += 1
        frame = frame.f_back
    return [*found, ("below", depth)]


def handled() -> str:
    """The exception being handled, with its context chain."""
    return describe(sys.exc_info()[1])


def describe(error: BaseException | None, depth: int = 4) -> str:
    if error is None or depth == 0:
        return repr(error) if error is None else "..."
    cause = f" from {describe(error.__cause__, depth - 1)}" if error.__cause__ is not None else ""
    context = f" in {describe(error.__context__, depth - 1)}" if error.__context__ is not None else ""
    return f"{error!r}{cause}{context}"


def trace(error: BaseException) -> list[tuple[Any, ...]]:
    """Name, line and columns of every traceback entry."""
    entry: TracebackType | None = error.__traceback__
    found = []
    while entry is not None:
        code = entry.tb_frame.f_code
        if code not in HARNESS:
            # Not tb_lasti itself: on 3.11 it says PRECALL or CALL depending on what was quickened. Their positions are the same.
            positions = next(itertools.islice(code.co_positions(), entry.tb_lasti // 2, None))
            found.append((code.co_name, entry.tb_lineno, *positions))
        entry = entry.tb_next
    return found


def load() -> dict[str, Program]:
    from programs import asynchronous, calls, classes, control, exceptions, generators, indirect, modules  # noqa: F401

    return PROGRAMS

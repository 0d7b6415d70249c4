"""Leave the loop, or capture and continue, at every instruction of a program, and compare with the plain run."""

from __future__ import annotations

import collections
import dataclasses
import sys
import warnings
from types import CodeType
from typing import Any

from programs import Program, harness
from support import attempt, codes_of, core, direct


@dataclasses.dataclass
class Tally:
    """Points tried, wrong ones, and those that could not be continued, by the reason given."""

    points: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)
    cannot: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.points + other.points, self.wrong + other.wrong, self.cannot + other.cannot)


class Run:
    """One attempt to capture at a point and to continue; `reached` and `frames` say how far it came."""

    def __init__(self, code: CodeType, number: int, program: Program, loop: bool) -> None:
        self.code, self.number, self.program, self.loop = code, number, program, loop
        self.reached = False
        self.cannot = ""
        self.frames: list[Any] = []


@harness
def capture_and_continue(run: Run) -> Any:
    # Called where direct() is called, so that both see the same depth.
    captured = core.capture(run.code, run.number, run.program.function)
    if isinstance(captured, tuple):
        return captured[0]
    run.reached = True
    run.frames = [(code.co_name, *rest) for code, *rest in captured.frames]
    try:
        return captured.resume(loop=run.loop)
    except NotImplementedError as error:
        run.cannot = str(error)
        return None


def continue_everywhere(program: Program, loop: bool, wrap: Any = None) -> Tally:
    """Capture at every instruction that the program executes and continue there, in our loop or in the default one.

    `wrap` calls its argument in some surroundings, for example while an exception is being handled."""
    around = wrap or (lambda function, *args: function(*args))
    tally = Tally()
    with warnings.catch_warnings():
        # An abandoned coroutine that is never continued says that it was never awaited.
        warnings.simplefilter("ignore")
        # Nor may an abandoned run show up among the errors that nobody could catch.
        stray: list[Any] = []
        # A native function: a Python one would be a frame to abandon.
        hook, sys.unraisablehook = sys.unraisablehook, stray.append
        expected = around(attempt, direct, program.function)
        for code in codes_of(program):
            number = 0
            while True:
                number += 1
                run = Run(code, number, program, loop)
                found = around(attempt, capture_and_continue, run)
                if run.cannot:
                    tally.cannot[run.cannot] += 1
                    continue
                if found != expected:
                    what = f"{program} at instruction {number} of {code.co_name}, frames {run.frames}, "
                    what += f"continued in {'our' if loop else 'the default'} loop\n  got      {found}\n  expected {expected}"
                    tally.wrong.append(what)
                if not run.reached:
                    break
                tally.points += 1
        sys.unraisablehook = hook
        if stray:
            tally.wrong.append(
                f"{program}: {len(stray)} errors reached sys.unraisablehook, the first: {stray[0].exc_value!r}"
            )
            stray.clear()  # the collector does not see into what the hook was given
    return tally


def leave_everywhere(program: Program) -> Tally:
    """Leave to the default loop at every instruction that the program executes."""
    tally = Tally()
    expected = attempt(program.function)
    for code in codes_of(program):
        number = 0
        while True:
            number += 1
            hit, total, found = core.run_exit(code, number, attempt, program.function)
            if found != expected:
                tally.wrong.append(
                    f"{program}: left at instruction {number} of {code.co_name}\n  got      {found}\n  expected {expected}"
                )
            if not hit:
                # Instructions that form one unit with the next (KW_NAMES and CALL) are left after the unit.
                if number > total:
                    break
                continue
            tally.points += 1
    return tally

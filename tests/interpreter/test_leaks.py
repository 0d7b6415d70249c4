"""Repeating what was done before leaves the number of allocated blocks and of tracked objects where it was."""

from __future__ import annotations

import array
import functools
import gc
import itertools
import sys
import warnings
from collections.abc import Callable
from typing import Any

from programs import Program
from support import PROGRAMS, attempt, blocks_and_objects, cases, codes_of, core, raised
from switching import continue_everywhere, leave_everywhere

ROUNDS = 3


def growth(action: Callable[[], Any], warm_up: int = 2) -> tuple[int, int]:
    """The smallest growth of a round in blocks and in objects: a leak shows in every round, a cache that fills does not."""
    # Two flat arrays, made before: the measurement must not count itself.
    blocks, objects = array.array("q", [0] * (ROUNDS + 1)), array.array("q", [0] * (ROUNDS + 1))
    for _ in range(warm_up):
        action()
    gc.collect()
    # What is there already is not looked at in every collection, and not counted.
    gc.freeze()
    try:
        for turn in range(ROUNDS + 1):
            if turn:
                action()
            blocks[turn], objects[turn] = blocks_and_objects()
    finally:
        gc.unfreeze()
    return min(b - a for a, b in itertools.pairwise(blocks)), min(b - a for a, b in itertools.pairwise(objects))


def stays(action: Callable[[], Any], warm_up: int = 2) -> None:
    """CPython's own tables waver by a few blocks when they grow; a leak is still there when it is measured again."""
    measured = []
    for _ in range(4):
        measured.append(growth(action, warm_up))
        if max(measured[-1]) <= 0:
            return
        warm_up = 0
    raise AssertionError(f"blocks and objects grow with every round by at least {measured}")


def test_growth_notices_a_leak() -> None:
    kept: list[Any] = []
    # Under PYTHONMALLOC=malloc, as with the sanitizers, CPython counts no blocks: only objects are looked at then.
    assert growth(lambda: kept.append([len(kept)]))[0] > 0 or sys.getallocatedblocks() == 0
    assert growth(lambda: kept.append([len(kept)]))[1] > 0
    stays(lambda: [len(kept)])
    raised(AssertionError, lambda: stays(lambda: kept.append([len(kept)])))


def in_the_loop(program: Program) -> None:
    for _ in range(10):
        core.run(attempt, program.function)


def left(program: Program) -> None:
    leave_everywhere(program)


def continued_in_our_loop(program: Program) -> None:
    continue_everywhere(program, loop=True)


def continued_in_the_default_loop(program: Program) -> None:
    continue_everywhere(program, loop=False)


def captured_and_dropped(program: Program) -> None:
    for code in codes_of(program):
        for number in itertools.count(1):
            try:
                captured = core.capture(code, number, program.function)
            except Exception:
                break
            if isinstance(captured, tuple):
                break
            del captured


def all_programs_stay(action: Callable[[Program], None], programs: list[Program] = PROGRAMS) -> None:
    """All together, so that what one program leaves for the next is seen too; one by one only to say which of them grows."""

    def everything() -> None:
        for program in programs:
            action(program)

    try:
        stays(everything, warm_up=1)
    except AssertionError as error:
        growing = {program.name: growth(functools.partial(action, program)) for program in programs}
        names = {name: found for name, found in growing.items() if max(found) > 0}
        raise AssertionError(f"{error}; alone, these grow by (blocks, objects): {names}") from None


def test_a_leak_is_named() -> None:
    kept: list[Any] = []
    some = PROGRAMS[:5]

    def action(program: Program) -> None:
        if program is some[3]:
            kept.append([len(kept)])

    message = raised(AssertionError, lambda: all_programs_stay(action, some))
    assert [program for program in some if repr(program.name) in message] == [some[3]]


@cases(in_the_loop, left, continued_in_our_loop, continued_in_the_default_loop)
def test_programs_do_not_leak(case: Callable[[Program], None]) -> None:
    all_programs_stay(case)


def test_dropping_captures_does_not_leak() -> None:
    """The objects of a run that is never continued die as in CPython: with their finalizers, whose errors nobody can catch."""
    errors: set[str] = set()

    def note(unraisable: Any) -> None:
        errors.add(f"{unraisable.exc_type.__name__}: {unraisable.exc_value}")

    hook, sys.unraisablehook = sys.unraisablehook, note
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            all_programs_stay(captured_and_dropped)
    finally:
        sys.unraisablehook = hook
    # Some programs await in a finally clause; where nobody is left to drive that, CPython says this and nothing else.
    assert errors <= {f"RuntimeError: {kind} ignored GeneratorExit" for kind in ("async generator", "coroutine")}


def test_shared_objects_keep_their_counts() -> None:
    """A reference too many to None or to a type shows in no block count."""
    shared: list[Any] = [
        None,
        True,
        False,
        (),
        0,
        1,
        2,
        "",
        int,
        str,
        list,
        tuple,
        dict,
        KeyError,
        ValueError,
        StopIteration,
        type,
        object,
    ]
    shared += [program.function for program in PROGRAMS] + [program.function.__code__ for program in PROGRAMS]
    # Immortal objects (from 3.12 on) have a fixed count; the others must come back to theirs. None stands in every unused
    # entry of CPython's type cache (4096 of them), so its count wavers; one reference too many per point would show still.
    for program in PROGRAMS:
        continue_everywhere(program, loop=True)
        leave_everywhere(program)
    points = 0
    gc.collect()
    before = [sys.getrefcount(item) for item in shared]
    for program in PROGRAMS:
        points += continue_everywhere(program, loop=True).points + leave_everywhere(program).points
    gc.collect()
    after = [sys.getrefcount(item) for item in shared]
    assert points > 20_000
    for item, old, new in zip(shared, before, after, strict=True):
        assert abs(new - old) <= (5000 if item is None else 20), (
            f"the count of {item!r} went from {old} to {new} over {points} points"
        )

"""Capture at every instruction, continue on fresh frames: result, tracebacks, handled exception and depth are those of the plain run."""

from __future__ import annotations

import functools
import re

from programs import Program
from support import PROGRAMS, attempt, cases, core, free_depth, in_handler, in_process, on_thread, raised
from switching import Tally, continue_everywhere, leave_everywhere


def judge(program: Program, tally: Tally, at_least: int = 1) -> None:
    assert not tally.wrong, f"{len(tally.wrong)} of {tally.points} points wrong; the first:\n" + "\n".join(
        tally.wrong[:3]
    )
    assert tally.points >= at_least, f"only {tally.points} points"
    for reason, count in tally.cannot.items():
        assert reason.startswith("cannot be continued: "), f"not a sentence that says why: {reason!r}"
        assert program.cannot is not None, (
            f"every point of {program} can be continued, but {count} were refused: {reason}"
        )
        assert re.search(program.cannot, reason), (
            f"only {program.cannot} may refuse in {program}, but {count} points were: {reason}"
        )


def test_enough_programs() -> None:
    assert len(PROGRAMS) >= 20
    assert sum(program.cannot is None for program in PROGRAMS) >= 20, "at least twenty that can be continued everywhere"


@cases(*PROGRAMS)
def test_same_in_the_loop(case: Program) -> None:
    expected = attempt(case.function)
    assert expected[0] == ("raised" if case.name.startswith("uncaught") else "returned"), expected
    core.reset_stats()
    assert core.run(attempt, case.function) == expected
    assert core.stats()["instructions"] > 10


@cases(*PROGRAMS)
def test_leave_at_every_instruction(case: Program) -> None:
    tally = leave_everywhere(case)
    assert not tally.wrong, f"{len(tally.wrong)} of {tally.points} points wrong; the first:\n" + "\n".join(
        tally.wrong[:3]
    )
    assert tally.points > 10


@cases(*PROGRAMS)
def test_continue_in_our_loop(case: Program) -> None:
    judge(case, continue_everywhere(case, loop=True))


@cases(*PROGRAMS)
def test_continue_in_default_loop(case: Program) -> None:
    judge(case, continue_everywhere(case, loop=False))


@cases(*PROGRAMS)
def test_continue_while_an_exception_is_handled(case: Program) -> None:
    """The exception handled outside is thread state that the continued frames must hand back."""
    judge(
        case,
        continue_everywhere(case, loop=True, wrap=in_handler) + continue_everywhere(case, loop=False, wrap=in_handler),
    )


def test_recursion_count_is_kept() -> None:
    before = free_depth()
    for program in PROGRAMS[:12]:
        leave_everywhere(program)
        continue_everywhere(program, loop=True)
        continue_everywhere(program, loop=False)
    assert free_depth() == before


def test_capture_names_its_frames() -> None:
    def inner() -> int:
        value = 1
        return value + 1

    def outer() -> int:
        return inner() * 10

    # Where monitoring has changed since a code last ran (3.12+), it runs once in the default loop, which brings it up to date.
    assert outer() == 20
    captured = core.capture(inner.__code__, 3, outer)
    assert not isinstance(captured, tuple)
    frames = captured.frames
    assert [code for code, *_ in frames] == [outer.__code__, inner.__code__]
    for code, offset, *_ in frames:
        assert 0 <= offset < len(code.co_code) and offset % 2 == 0
    assert captured.resume() == 20


def test_capture_not_reached_gives_the_result() -> None:
    def plain() -> int:
        return 5

    assert core.capture(plain.__code__, 10**9, plain) == (5,)


def test_captured_state_is_dropped_without_running_it() -> None:
    """A capture that nobody continues runs neither the rest of the program nor its finally blocks."""
    done = in_process(
        """
        log = []
        def program():
            try:
                log.append("try")
                value = [object() for _ in range(3)]
                len(value)
            finally:
                log.append("finally")
        for number in range(1, 200):
            log.clear()
            captured = core.capture(program.__code__, number, program)
            if isinstance(captured, tuple):
                break
            seen = list(log)
            del captured
            assert log == seen, (number, log, seen)
        else:
            raise SystemExit("never reached the end")
        print("ok", number > 10)
        """
    )
    assert done.out.strip() == "ok True", done


def test_continue_on_another_thread() -> None:
    def program() -> int:
        total = 0
        for value in range(5):
            total += value
        return total

    number = 0
    while True:
        number += 1
        captured = core.capture(program.__code__, number, program)
        if isinstance(captured, tuple):
            break
        assert on_thread(captured.resume) == 10
    assert number > 20


def test_a_capture_is_continued_once() -> None:
    """Its values move into the frames: there is nothing left to continue a second time."""

    def program() -> list[int]:
        items = []
        for value in range(3):
            items.append(value)
        return items

    number = 0
    while True:
        number += 1
        captured = core.capture(program.__code__, number, program)
        if isinstance(captured, tuple):
            break
        assert captured.cannot is None
        assert captured.resume() == [0, 1, 2]
        for loop in (True, False):
            assert "has been continued" in raised(RuntimeError, lambda: captured.resume(loop=loop))  # noqa: B023
    assert number > 20


def test_values_die_when_they_would_have_died() -> None:
    """Neither the capture nor the abandoned frames keep what the program drops."""
    done = in_process(
        """
        import gc
        gc.disable()
        class Noisy:
            def __init__(self, name): self.name = name
            def __del__(self): log.append(self.name)
        def inner(given):
            local = Noisy("local")
            log.append("inner")
            given = None
            return len(log)
        def generator():
            held = Noisy("held")
            try:
                yield 1
                yield 2
            finally:
                log.append("closed")
        def program():
            first = Noisy("first")
            inner(Noisy("given"))
            first = None
            steps = generator()
            next(steps)
            log.append("before")
            del steps
            log.append("after")
        log = []
        # Not the default loop's own order: under any frame hook a caller's stack holds the arguments until the call returns.
        core.run(program)
        expected = list(log)
        points = 0
        for code in (program.__code__, inner.__code__, generator.__code__):
            for number in range(1, 100):
                for loop in (True, False):
                    log.clear()
                    captured = core.capture(code, number, program)
                    if isinstance(captured, tuple):
                        break
                    if captured.cannot is not None:
                        continue
                    captured.resume(loop=loop)
                    assert log == expected, (code.co_name, number, loop, log, expected)
                    points += 1
        print(points > 100)
        """
    )
    assert done.out.strip() == "True", done


def test_a_chain_must_reach_the_function_that_was_called() -> None:
    """A callback's value is not the value of the native function that called it back."""

    def key(value: int) -> int:
        return -value

    captured = core.capture(key.__code__, 2, functools.partial(sorted, [1, 2, 3], key=key))
    assert "native code" in captured.cannot
    assert "cannot be continued" in raised(NotImplementedError, captured.resume)
    assert [code for code, *_ in captured.frames] == [key.__code__], "what was captured can still be looked at"


def test_errors_of_the_call_itself() -> None:
    def takes_one(value: int) -> int:
        return value

    for wrong in (
        lambda: core.run(takes_one),
        lambda: core.run_exit(takes_one.__code__, 1, takes_one),
        lambda: core.capture(takes_one.__code__, 1, takes_one),
    ):
        assert "takes_one() missing 1 required positional argument" in raised(TypeError, wrong)
    for misuse in (
        lambda: core.run_exit("code", 1, takes_one),
        lambda: core.capture(None, 1, takes_one),
        lambda: core.run_exit(takes_one.__code__, "n", takes_one),
    ):
        assert raised(TypeError, misuse)


def test_run_passes_arguments() -> None:
    def take(*args: object, **kwargs: object) -> object:
        return args, kwargs

    assert core.run(take, 1, 2, key=3) == ((1, 2), {"key": 3})
    before = core.stats()["frames"]
    take()
    assert core.stats()["frames"] == before, "run() leaves the loop off"

"""Generators in every state, driven by for, next, send, throw, close and yield from."""
from __future__ import annotations

import sys
from typing import Any

from programs import handled, program, trace, where
from programs.calls import innermost


def counting(limit: int, log: list[Any]) -> Any:
    try:
        for index in range(limit):
            received = yield index
            if received:
                yield ("got", received)
    finally:
        log.append(("finally", handled(), sys._getframe().f_code.co_name))
    return "returned"


@program(cannot="a generator being closed")
def generator_in_for() -> Any:
    def pairs(limit: int) -> Any:
        for index in range(limit):
            inner = innermost(index)
            yield inner[0], where()
        return "ignored"

    out: list[Any] = []
    for pair in pairs(3):
        out.append((pair, where()))
    for pair in pairs(3):
        if pair[0] == 3:
            break
    return out


@program
def generator_by_hand() -> Any:
    log: list[Any] = []
    steps = counting(3, log)
    out = [next(steps), steps.send("s"), next(steps), next(steps)]
    try:
        next(steps)
    except StopIteration as stop:
        out.append((stop.value, trace(stop)))
    out.append(next(steps, "default"))
    return out, log, where()


@program
def delegation() -> Any:
    def relay(limit: int) -> Any:
        result = yield from counting(limit, log)
        yield result
        yield from (10, 20)

    log: list[Any] = []
    chain = relay(2)
    out = [next(chain), chain.send("s")]
    for value in chain:
        out.append(value)
    return out, log


@program
def delegation_deep() -> Any:
    def leaf(depth: int) -> Any:
        received = yield where()
        return depth, received

    def branch(depth: int) -> Any:
        if depth == 0:
            return (yield from leaf(depth))
        result = yield from branch(depth - 1)
        yield ("at", depth, where())
        return result

    out: list[Any] = []
    for value in branch(3):
        out.append(value)
    return out


@program(cannot="a generator being closed|CALL.* of throw|throw\\(\\) into")
def thrown_into() -> Any:
    def relay() -> Any:
        try:
            yield from counting(4, log)
        except KeyError as error:
            yield ("relayed", trace(error), handled())

    log: list[Any] = []
    out: list[Any] = []
    closed = counting(5, log)
    out.append(next(closed))
    closed.close()
    thrown = counting(2, log)
    next(thrown)
    try:
        thrown.throw(KeyError("t"))
    except KeyError as error:
        out.append((trace(error), handled()))
    through = relay()
    next(through)
    out.append(through.throw(KeyError("u")))
    out.append(next(through, "over"))
    return out, log


@program
def generator_with_handler() -> Any:
    """A generator owns the exception it handles; its caller owns another."""

    def steps() -> Any:
        yield handled()
        try:
            raise KeyError("inside")
        except KeyError:
            yield handled()
            yield handled()
        yield handled()

    out: list[Any] = []
    try:
        raise ValueError("outside")
    except ValueError:
        running = steps()
        out.append((next(running), handled()))
        out.append((next(running), handled()))
    out.append((next(running), handled()))
    for value in running:
        out.append((value, handled()))
    return out


@program
def generator_failing() -> Any:
    def failing(kind: Any) -> Any:
        yield 1
        raise kind

    out: list[Any] = []
    for kind in (KeyError("k"), StopIteration("s")):
        try:
            for value in failing(kind):
                out.append(value)
        except Exception as error:
            out.append((repr(error), repr(error.__cause__), trace(error)))
    return out


@program(cannot="CALL.* of (<class 'type'>|sum|join)|UNPACK_SEQUENCE|LIST_EXTEND")
def generator_expressions() -> Any:
    squares = (value * value for value in range(4) if value != 1)
    first = next(squares)
    rest = list(squares)
    total = sum(value for value in rest)
    one, two = (value for value in (1, 2))
    text = ",".join(str(value) for value in rest)
    return first, rest, total, one, two, text, [*(value for value in "ab")]


class Countdown:
    def __init__(self, start: int) -> None:
        self.start = start

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        if self.start == 0:
            raise StopIteration
        self.start -= 1
        return self.start


@program
def python_iterator() -> Any:
    out: list[Any] = []
    for value in Countdown(3):
        out.append(value)
    else:
        out.append("else")
    for value in Countdown(2):
        for other in Countdown(2):
            out.append((value, other, where()))
    return out


@program(cannot="FOR_ITER")
def getitem_iterator() -> Any:
    class Old:
        def __getitem__(self, index: int) -> int:
            return [5, 6][index]

    return [value for value in Old()]


@program(cannot="a generator being closed")
def generator_kept() -> Any:
    """A suspended generator that outlives the capture keeps its identity and its state."""

    def ticking() -> Any:
        tick = 0
        while True:
            tick += 1
            yield tick

    ticks = ticking()
    held = {"ticks": ticks}
    out = [next(ticks)]
    for step in range(2):
        out.append(step)
        out.append(next(held["ticks"]))
    out.append(held["ticks"] is ticks)
    out.append(ticks.gi_frame.f_locals["tick"])
    return out

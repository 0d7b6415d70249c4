"""Coroutines, async with, async for, async generators and comprehensions, driven by hand."""
from __future__ import annotations

from typing import Any

from programs import handled, program, trace, where


class Pause:
    """Awaiting it suspends the whole chain once; what is sent back is the result."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        received = yield self.value
        return received, where()


def drive(coroutine: Any) -> Any:
    """Answer every suspension with what it asked for."""
    asked: list[Any] = []
    answer = None
    while True:
        try:
            request = coroutine.send(answer)
        except StopIteration as stop:
            return stop.value, asked
        asked.append(request)
        answer = ("answer", request)


async def double(value: int) -> int:
    return value * 2


@program(cannot="GET_AWAITABLE")
def coroutine() -> Any:
    async def outer(value: int) -> Any:
        first = await double(value)
        second = await Pause(first)
        return first, second, where()

    running = outer(4)
    try:
        request = running.send(None)
        running.send(("back", request))
    except StopIteration as stop:
        return stop.value


@program(cannot="GET_AWAITABLE")
def coroutine_chain() -> Any:
    async def level(depth: int) -> Any:
        if depth == 0:
            return [await Pause("bottom")]
        below = await level(depth - 1)
        below.append((depth, where()))
        return below

    return drive(level(3))


class Resource:
    def __init__(self, log: list[Any], suppress: bool) -> None:
        self.log, self.suppress = log, suppress

    async def __aenter__(self) -> Any:
        self.log.append(await double(4))
        return self

    async def __aexit__(self, kind: Any, error: Any, entry: Any) -> bool:
        self.log.append((await Pause("leaving"), kind and kind.__name__, handled()))
        return self.suppress


@program(cannot="BEFORE_ASYNC_WITH|GET_AWAITABLE")
def async_with() -> Any:
    async def body() -> Any:
        log: list[Any] = []
        async with Resource(log, True) as first:
            log.append(first is not None)
            raise KeyError("in body")
        async with Resource(log, False), Resource(log, False):
            log.append(where())
        try:
            async with Resource(log, False):
                [][0]
        except IndexError as error:
            log.append((trace(error), handled()))
        return log

    return drive(body())


async def numbers(limit: int) -> Any:
    for value in range(limit):
        await double(value)
        yield value


class Ticker:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> int:
        if self.limit == 0:
            raise StopAsyncIteration
        self.limit -= 1
        return (await Pause(self.limit))[0][1]


@program(cannot="GET_AITER|GET_ANEXT|GET_AWAITABLE")
def async_for() -> Any:
    async def body() -> Any:
        out: list[Any] = []
        async for value in Ticker(2):
            out.append((value, where()))
        else:
            out.append("else")
        async for value in Ticker(3):
            if value == 1:
                break
        return out, handled()

    return drive(body())


@program
def async_generator() -> Any:
    async def body() -> Any:
        out: list[Any] = []
        async for value in numbers(3):
            out.append(await double(value))
        return out

    return drive(body())


@program(cannot="GET_AWAITABLE")
def async_generator_suspending() -> Any:
    async def steps() -> Any:
        try:
            received = yield 1
            answer = await Pause(("asked", received))
            yield answer
        finally:
            log.append(handled())
            await Pause("closing")

    async def body() -> Any:
        running = steps()
        out = [await anext(running), await running.asend("sent")]
        async for value in running:
            out.append(value)
        return out

    log: list[Any] = []
    return drive(body()), log


@program(cannot="SEND|a generator being closed")
def async_generator_closed() -> Any:
    async def steps() -> Any:
        try:
            yield 1
            yield 2
        except KeyError as error:
            yield ("caught", repr(error))
        finally:
            log.append("finally")

    async def body() -> Any:
        first, second = steps(), steps()
        out = [await first.asend(None), await second.__anext__()]
        out.append(await first.athrow(KeyError("k")))
        await first.aclose()
        await second.aclose()
        return out

    log: list[Any] = []
    return drive(body()), log


@program
def async_comprehensions() -> Any:
    async def body() -> Any:
        listed = [value async for value in numbers(3)]
        chosen = {value: await double(value) async for value in numbers(3) if value}
        members = {await double(value) for value in (1, 2)}
        later = (value async for value in numbers(2))
        return listed, chosen, sorted(members), [value async for value in later]

    return drive(body())


@program(cannot="GET_AWAITABLE")
def coroutine_failing() -> Any:
    async def failing(value: int) -> Any:
        await Pause(value)
        raise LookupError(value)

    async def body() -> Any:
        try:
            await failing(1)
        except LookupError as error:
            caught = trace(error), handled()
        try:
            await caught  # type: ignore[misc]
        except TypeError as error:
            return caught, str(error)

    return drive(body())


@program(cannot="GET_AWAITABLE|throw\\(\\) into")
def coroutine_thrown_into() -> Any:
    async def body() -> Any:
        try:
            await Pause("wait")
        except KeyError as error:
            return trace(error), handled()

    running = body()
    running.send(None)
    try:
        running.throw(KeyError("in"))
    except StopIteration as stop:
        return stop.value

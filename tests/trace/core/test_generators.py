"""Generators, iterators, unpacking and coroutines."""

from __future__ import annotations

import contextlib
import gc
import types

from harness import T, program

import alternator

# --------------------------------------------------------------------------------------------------- generators


@program(graphs=1)
def test_generator_expression(t):
    f = t.compile(lambda xs: sum(a * i for i, a in enumerate(xs)))
    f([T(2), T(2)])
    f.hit([T(2), T(2)])


@program()
def test_generator_send_throw_close(t):
    def counting(log, x):
        total = 0
        try:
            while True:
                try:
                    got = yield x * total
                    total += got
                except ValueError as error:
                    log.append(str(error))
                    yield "thrown"
        finally:
            log.append("closed")

    def fn(log, x):
        g = counting(log, x)
        first = next(g)
        second = g.send(3)
        third = g.throw(ValueError("v"))
        next(g)
        g.close()
        return first, second, third

    f = t.compile(fn)
    f([], T(2))
    f.hit([], T(2))


@program()
def test_yield_from_and_return_value(t):
    def inner(x):
        got = yield x + 1
        return got * 2

    def outer(x):
        value = yield from inner(x)
        yield value
        more = yield from [1, 2]
        yield more

    def fn(x):
        g = outer(x)
        out = [next(g), g.send(x)]
        out += list(g)
        return out

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_generator_that_writes_outside(t):
    def walk(items, seen):
        for item in items:
            seen.append(item)
            yield item * 2

    def fn(items, seen, x):
        return x + sum(walk(items, seen))

    f = t.compile(fn)
    f([1, 2], [], T(2))
    f.hit([1, 2], [], T(2))
    f([1, 3], [], T(2))


@program()
def test_generator_left_suspended(t):
    def fn(log, x):
        def g():
            try:
                yield x
                yield x + 1
            finally:
                log.append("closed")

        it = g()
        first = next(it)
        return first

    f = t.compile(fn)
    f.free([], T(2))
    f.free([], T(2))


@program(one_graph=False)
def test_generator_that_breaks_where_it_dies(t):
    def fn(log, x):
        def g():
            try:
                yield x * 2
            finally:
                alternator.graph_break()
                log.append("closed")

        return next(g()) + 1

    f = t.compile(fn)
    log = []
    f(log, T(2))
    f(log, T(2))
    f([3], T(3))


@program()
def test_generator_argument_consumed_before(t):
    def make(n):
        for i in range(n):
            yield i

    f = t.compile(lambda g, x: x + sum(g))
    f.free(make(3), T(2))
    used = make(3)
    next(used)
    f.free(used, T(2))


@program()
def test_iterator_protocol_of_the_users(t):
    class Count:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            self.n -= 1
            if self.n < 0:
                raise StopIteration
            return self.n

    f = t.compile(lambda c, x: (x + sum(c), list(c)))
    f(Count(3), T(2))
    f.hit(Count(3), T(2))
    f(Count(4), T(2))


@program()
def test_getitem_protocol(t):
    class Old:
        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return i * 2

    f = t.compile(lambda o, x: (x + sum(o), 4 in o, list(o)))
    f(Old(), T(2))
    f.hit(Old(), T(2))


@program()
def test_unpacking(t):
    def fn(d, x):
        a, *b, c = d["l"]
        (p, q), r = (1, [2]), 3
        return x + a + c, b, [*d["l"], 9], {**d, "z": 1}, max(*d["l"]), (p, q, r)

    f = t.compile(fn)
    f({"l": [1, 2, 3]}, T(2))
    f.hit({"l": [1, 2, 3]}, T(2))
    f({"l": [1, 5, 3]}, T(2))
    f({"l": [1, 2]}, T(2))


@program()
def test_comprehensions(t):
    def fn(items, x):
        n = 2
        return (
            [x * i * n for i in items if i],
            {i: x + i for i in items},
            {i % 2 for i in items},
            [[i + j for j in items] for i in items],
        )

    f = t.compile(fn)
    f([1, 2], T(2))
    f.hit([1, 2], T(2))
    f([1, 0], T(2))


# ---------------------------------------------------------------------------------------------------- coroutines


@program()
def test_coroutine_stepped_by_hand(t):
    @types.coroutine
    def pause(value):
        got = yield value
        return got

    async def work(x):
        a = await pause(x + 1)
        b = await pause(a * 2)
        return a + b

    def fn(x):
        c = work(x)
        out = [c.send(None), c.send(x), None]
        try:
            c.send(x)
        except StopIteration as stop:
            out[2] = stop.value
        return out

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_async_for_and_with(t):
    class Source:
        def __init__(self, n):
            self.n = n

        def __aiter__(self):
            return self

        async def __anext__(self):
            self.n -= 1
            if self.n < 0:
                raise StopAsyncIteration
            return self.n

        async def __aenter__(self):
            self.entered = True
            return self

        async def __aexit__(self, *exc):
            self.left = True

    async def work(source, x):
        async with source as s:
            async for i in s:
                x = x + i
        return x, [i async for i in Source(2)]

    def fn(source, x):
        try:
            work(source, x).send(None)
        except StopIteration as stop:
            return stop.value

    f = t.compile(fn)
    f(Source(3), T(2))
    f.hit(Source(3), T(2))


def test_open_generators_in_cycles_end_once(capsys):
    """Those that a trace has made are not run when they are collected."""
    log = []

    @contextlib.contextmanager
    def noted():
        try:
            yield
        finally:
            print("left")

    def stepping(x):
        with noted():
            yield x + 1
            yield x + 2

    def fn(x):
        stepped = stepping(x)
        y = next(stepped)
        log.append([log, stepped])
        return y * 2

    f = alternator.compile(fn, backend="eager")
    for i in range(3):
        f(T(2, s=i))
        gc.collect()
    assert capsys.readouterr().out == ""
    log.clear()
    gc.collect()
    assert capsys.readouterr().out == "left\n" * 3

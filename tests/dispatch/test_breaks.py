"""Graph breaks: every kind of place, with every kind of cause."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime
import functools
import os
import random
import sys
import textwrap
import time
from typing import Any

import pytest
import torch
from harness import REGISTRY, T, add_row, check, program
from torch import nn
from trace_support import in_child

import alternator

# What cannot be traced. It sees a tensor `x`, and may change it.
CAUSES = {
    "a branch on a tensor": """
        if x.sum() > 0:
            x = x * 2
        else:
            x = x - 1
        """,
    "an unknown native call": "time.sleep(0)",
    "graph_break": "graph_break('asked for')",
    "an exception": """
        try:
            time.sleep(-1)
        except ValueError as error:
            x = x + len(str(error))
        """,
}

# Where it happens: BREAK stands for the cause. Each text defines fn(x, log).
PLACES = {
    "a function": """
        def fn(x, log):
            x = x + 1
            BREAK
            log.append(x)
            return x * 2
        """,
    "a function without torch calls before": """
        def fn(x, log):
            log.append(1)
            BREAK
            return x * 2
        """,
    "three calls deep": """
        def one(x, log):
            x = x + 1
            BREAK
            log.append("one")
            return x * 3

        def two(x, log):
            y = one(x * 2, log) - 1
            return y, x

        def fn(x, log):
            z = torch.sin(x)
            y, x = two(z, log)
            return y + x + z
        """,
    "a method of a module": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(3, 3)
                torch.nn.init.ones_(self.linear.weight)
                torch.nn.init.ones_(self.linear.bias)
                self.calls = 0

            def forward(self, x):
                self.calls += 1
                x = self.linear(x[..., :2].sum() + torch.ones(3))
                BREAK
                self.calls += 1
                return x * self.calls

        net = Net()

        def fn(x, log):
            y = net(x) + 1
            log.append(net.calls)
            return y
        """,
    "a for loop over a range": """
        def fn(x, log):
            for i in range(4):
                x = x + 1
                BREAK
                x = x * 2
            log.append(i)
            return x
        """,
    "a for loop over a list that it changes": """
        def fn(x, log):
            items = [1, 2, 3]
            for item in items:
                x = x + item
                BREAK
                if len(items) < 5:
                    items.append(item + 3)
            log.append(items)
            return x
        """,
    "a while loop": """
        def fn(x, log):
            n = 0
            while n < 3:
                x = x + n
                BREAK
                n += 1
            else:
                log.append("done")
            return x
        """,
    "a loop with break and continue": """
        def fn(x, log):
            for i in range(10):
                if i == 1:
                    continue
                x = x + i
                BREAK
                if i == 3:
                    break
            return x, i
        """,
    "nested loops": """
        def fn(x, log):
            for i, a in enumerate([1.0, 2.0]):
                for b, c in zip("ab", (3, 4)):
                    x = x * a + c
                    BREAK
                    log.append((i, b))
            return x
        """,
    "a loop over a dict": """
        def fn(x, log):
            table = {"a": 1, "b": 2}
            for key, value in table.items():
                x = x + value
                BREAK
                log.append(key)
            return x, table
        """,
    "with no_grad": """
        def fn(x, log):
            with torch.no_grad():
                y = x + 1
                BREAK
                y = y * x
            log.append(torch.is_grad_enabled())
            return y * x
        """,
    "with autocast": """
        def fn(x, log):
            with torch.autocast("cpu", torch.bfloat16):
                y = torch.ones(3, 3) @ torch.ones(3, 3)
                BREAK
                z = torch.ones(3, 3) @ y
            log.append(str(z.dtype))
            return z.float().sum() + x, torch.ones(2, 2) @ torch.ones(2, 2)
        """,
    "with a user's context manager": """
        class Manager:
            def __init__(self, log):
                self.log = log

            def __enter__(self):
                self.log.append("in")
                return 5

            def __exit__(self, *error):
                self.log.append(error[0])

        def fn(x, log):
            with Manager(log) as five:
                x = x + five
                BREAK
                x = x * five
            return x
        """,
    "with a manager that swallows": """
        class Swallow:
            def __enter__(self):
                return self

            def __exit__(self, kind, error, traceback):
                self.error = error
                return kind is KeyError

        def fn(x, log):
            with Swallow() as manager:
                x = x + 1
                BREAK
                log.append("before")
                raise KeyError("gone")
            log.append(repr(manager.error))
            return x * 2
        """,
    "with contextlib.contextmanager": """
        @contextlib.contextmanager
        def scope(log, n):
            log.append("in")
            try:
                yield n + 1
            finally:
                log.append("out")

        def fn(x, log):
            with scope(log, 2) as n:
                x = x * n
                BREAK
                x = x + n
            return x
        """,
    "inside the generator of a contextmanager": """
        @contextlib.contextmanager
        def scope(x, log):
            x = x + 1
            BREAK
            yield x
            log.append("out")

        def fn(x, log):
            with scope(x, log) as y:
                z = y * 2
            return z + x
        """,
    "__enter__": """
        class Manager:
            def __enter__(self):
                x = torch.ones(2)
                BREAK
                return x * 3

            def __exit__(self, *error):
                return None

        def fn(x, log):
            with Manager() as three:
                y = three.sum() + x
            return y * 2
        """,
    "__exit__": """
        class Manager:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                x = torch.ones(2)
                BREAK
                self.x = x

        def fn(x, log):
            with Manager() as manager:
                y = x + 1
            return y * manager.x.sum()
        """,
    "try": """
        def fn(x, log):
            try:
                x = x + 1
                BREAK
                x = x * 2
            except ValueError:
                log.append("never")
            else:
                log.append("else")
            finally:
                log.append("finally")
            return x
        """,
    "except": """
        def fn(x, log):
            try:
                x = x + 1
                raise KeyError("first")
            except KeyError as caught:
                x = x * 3
                BREAK
                log.append(str(caught))
                x = x + 1
            return x * 2
        """,
    "finally": """
        def fn(x, log):
            try:
                x = x + 1
            finally:
                x = x * 3
                BREAK
                log.append("finally")
            return x * 2
        """,
    "finally while an exception leaves": """
        def inner(x, log):
            try:
                x = x + 1
                raise LookupError("out")
            finally:
                x = x * 3
                BREAK
                log.append(x)

        def fn(x, log):
            try:
                inner(x, log)
            except LookupError as caught:
                log.append(caught.args)
            return x * 2
        """,
    "except*": """
        def fn(x, log):
            try:
                x = x + 1
                raise ExceptionGroup("some", [KeyError(1), ValueError(2)])
            except* KeyError as group:
                x = x * 3
                BREAK
                log.append(len(group.exceptions))
            except* ValueError as group:
                x = x - 1
            return x * 2
        """,
    "a list comprehension": """
        def step(x, n):
            x = x + n
            BREAK
            return x * 2

        def fn(x, log):
            return [step(x, n) for n in range(3)], {n: step(x, n) for n in (1, 2)}
        """,
    "a generator that is looped over": """
        def steps(x):
            for n in range(3):
                x = x + n
                BREAK
                yield x * 2

        def fn(x, log):
            for y in steps(x):
                x = x + y
                log.append(1)
            return x
        """,
    "a loop over a generator": """
        def steps(x, log):
            try:
                for n in range(3):
                    yield x + n
            finally:
                log.append("closed")

        def fn(x, log):
            total = x
            for y in steps(x, log):
                total = total + y
                x = total
                BREAK
                total = x
            return total
        """,
    "beside a suspended generator": """
        def counting(log):
            n = 0
            while True:
                got = yield n
                log.append(got)
                n += 1

        def fn(x, log):
            counter = counting(log)
            next(counter)
            x = x + counter.send("first")
            BREAK
            x = x + counter.send("second")
            counter.close()
            return x, next(counter, "ended")
        """,
    "yield from": """
        def inner(x):
            x = x + 1
            BREAK
            got = yield x
            return got

        def outer(x):
            y = yield from inner(x)
            yield y * 2

        def fn(x, log):
            steps = outer(x)
            a = next(steps)
            b = steps.send(a + 1)
            return a, b
        """,
    "a closure": """
        def fn(x, log):
            n = 1

            def more(y):
                nonlocal n
                n += 1
                x = y * n
                BREAK
                n += 1
                return x

            a = more(x)
            b = more(a)
            log.append(n)
            return b + n
        """,
    "beside a closure that is alive": """
        def fn(x, log):
            box = [x]
            n = 1

            def get():
                return box[0] * n

            x = get() + 1
            BREAK
            n = 5
            box.append(x)
            log.append(get)
            return get() + x
        """,
    "a class body": """
        def fn(x, log):
            class Made:
                scale = 3
                BREAK
                other = scale + 1

                def apply(self, y):
                    return y * self.scale + self.other

            return Made().apply(x)
        """,
    "a property": """
        class Holder:
            def __init__(self, x):
                self.held = x

            @property
            def doubled(self):
                x = self.held + 1
                BREAK
                return x * 2

        def fn(x, log):
            return Holder(x).doubled + 1
        """,
    "a setter": """
        class Holder:
            @property
            def value(self):
                return self.held

            @value.setter
            def value(self, x):
                x = x + 1
                BREAK
                self.held = x

        def fn(x, log):
            holder = Holder()
            holder.value = x * 2
            return holder.value + 1
        """,
    "__getattr__": """
        class Holder:
            def __init__(self, x):
                self.held = x

            def __getattr__(self, name):
                x = self.held * len(name)
                BREAK
                return x

        def fn(x, log):
            return Holder(x).longer + 1
        """,
    "an operator": """
        class Number:
            def __init__(self, x):
                self.x = x

            def __add__(self, other):
                x = self.x + other.x
                BREAK
                return Number(x)

            def __getitem__(self, n):
                x = self.x * n
                BREAK
                return x

        def fn(x, log):
            return (Number(x) + Number(x * 2))[3] - 1
        """,
    "a comparison": """
        class Number:
            def __init__(self, x):
                self.x = x

            def __lt__(self, other):
                x = self.x + other.x
                BREAK
                self.x = x
                return True

        def fn(x, log):
            a = Number(x)
            if a < Number(x * 2):
                log.append("less")
            return a.x
        """,
    "__init__": """
        class Made:
            def __init__(self, x, n=2):
                self.before = x + n
                BREAK
                self.after = x * n

        def fn(x, log):
            made = Made(x, n=3)
            return made.before + made.after
        """,
    "__init__ after __new__": """
        class Made:
            def __new__(cls, x):
                made = super().__new__(cls)
                made.first = x
                return made

            def __init__(self, x):
                x = x + 1
                BREAK
                self.x = x

        def fn(x, log):
            made = Made(x)
            return made.x + made.first
        """,
    "__call__": """
        class Layer:
            def __init__(self, n):
                self.n = n

            def __call__(self, x, *, by):
                x = x * self.n
                BREAK
                return x + by

        layer = Layer(3)

        def fn(x, log):
            return layer(x, by=2) + layer(x + 1, by=3)
        """,
    "a callback of native code": """
        def key(pair, log):
            x = torch.ones(2) * pair[0]
            BREAK
            log.append(pair)
            return -pair[0]

        def fn(x, log):
            pairs = sorted([(1, x), (2, x * 2)], key=lambda pair: key(pair, log))
            return pairs[0][1] + 1
        """,
    "arguments on the stack": """
        def some(x):
            x = x + 1
            BREAK
            return x

        def add(a, b, c=0, *rest, **named):
            return a + b + c + sum(rest) + named["d"]

        def fn(x, log):
            return add(x * 2, some(x), 3, some(x - 1), 4, d=some(x + 2)) + some(x)
        """,
    "a decorated function": """
        def twice(function):
            @functools.wraps(function)
            def wrapped(*args, **kwargs):
                return function(*args, **kwargs) + function(*args, **kwargs)

            return wrapped

        @twice
        def some(x, n):
            x = x * n
            BREAK
            return x - 1

        def fn(x, log):
            return some(x, n=3)
        """,
    "recursion": """
        def down(x, n):
            if n == 0:
                return x
            x = down(x + n, n - 1)
            BREAK
            return x * 2

        def fn(x, log):
            return down(x, 3)
        """,
    "a coroutine": """
        class Ready:
            def __await__(self):
                yield 7
                return 8

        async def work(x):
            x = x + 1
            BREAK
            return x * await Ready()

        def fn(x, log):
            steps = work(x)
            log.append(steps.send(None))
            try:
                steps.send(None)
            except StopIteration as done:
                return done.value + 1
        """,
    "in-place changes before and after": """
        def fn(x, log):
            y = x * 1
            view = y[0]
            view.add_(1)
            x = y
            BREAK
            view.mul_(3)
            log.append(view)
            return x + y
        """,
    "a global that is written": """
        COUNT = 0

        def fn(x, log):
            global COUNT
            COUNT += 1
            x = x + COUNT
            BREAK
            COUNT += 1
            log.append(COUNT)
            return x * COUNT
        """,
    "an exception that leaves": """
        def inner(x, log):
            x = x + 1
            BREAK
            log.append(x)
            raise LookupError("leaves", x.shape)

        def fn(x, log):
            x = x * 2
            inner(x, log)
        """,
    "pytrees": """
        def fn(x, log):
            def some(x):
                x = x + 1
                BREAK
                return x

            return torch.utils._pytree.tree_map(some, {"a": [x, (x * 2,)], "b": x - 1})
        """,
    "an rng draw": """
        def fn(x, log):
            torch.manual_seed(3)
            x = x + torch.rand(2).sum()
            BREAK
            return x * torch.rand(2).sum()
        """,
}


def build(place: str, cause: str, places: dict[str, str] = PLACES) -> dict[str, Any]:
    """The namespace of a place's text."""
    lines = []
    for line in textwrap.dedent(places[place]).splitlines():
        if line.strip() == "BREAK":
            lines.append(textwrap.indent(textwrap.dedent(CAUSES[cause]).strip("\n"), line[: line.index("BREAK")]))
        else:
            lines.append(line)
    source = "\n".join(lines)
    if place == "a class body":  # no tensor there to branch on
        source = source.replace("x.sum() > 0", "torch.ones(2).sum() > 0").replace("x = x ", "x = 1 ")
    import alternator

    space: dict[str, Any] = {
        "asyncio": asyncio, "contextlib": contextlib, "functools": functools, "nn": nn, "time": time, "torch": torch,
        "graph_break": alternator.graph_break, "sys": sys, "__name__": f"place_{place}",
    }  # fmt: skip
    exec(compile(source, f"<{place}>", "exec"), space)
    return space


def script_of(place: str, cause: str, places: dict[str, str] = PLACES) -> Any:
    def script(t: Any) -> None:
        f = t.compile(build(place, cause, places)["fn"])
        log: list[Any] = []
        f(T(2, 3), log)
        f(T(2, 3), log)
        f(T(2, 3) - 5, [])
        f(T(4), ["other"])
        f(T(2, 3, rg=True), log)

    return script


NAMES = [
    add_row(__name__, "test_break", f"{place}, {cause}", script_of(place, cause), one_graph=False)
    for place in PLACES
    for cause in CAUSES
]


@pytest.mark.parametrize("name", NAMES)
def test_break(name: str) -> None:
    check(REGISTRY[name])


def counts_of(fn: Any, *calls: Any) -> list[dict[str, Any]]:
    """What each call adds to the counters."""
    import alternator

    alternator.reset()
    compiled = alternator.compile(fn, backend="eager")
    found = []
    for args in calls:
        before = alternator.counters()
        compiled(*args)
        after = alternator.counters()
        found.append({key: after[key] - before[key] for key in ("traces", "graphs", "eager", "hits")})
    return found


@pytest.mark.parametrize("place", [place for place in PLACES if "leaves" not in place])
def test_a_call_like_the_last_one_traces_nothing(place: str) -> None:
    @in_child
    def body(front: Any) -> None:
        for cause in CAUSES:
            fn = build(place, cause)["fn"]
            changes = counts_of(fn, *[(T(2, 3), []) for _ in range(4)])
            # State that a place keeps is another one in every call; so is a class that it makes.
            if place not in ("a method of a module", "a global that is written", "a class body"):
                assert changes[3]["traces"] == 0, (cause, changes)

    body()


# ---------------------------------------------------------------------------------------------------- how many graphs


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def helper(self, x: Any) -> Any:
        return self.deeper(torch.relu(x)) + 1

    def deeper(self, x: Any) -> Any:
        x = x * 2
        time.sleep(0)
        return x - 1

    def forward(self, x: Any) -> Any:
        return self.helper(self.linear(x)) + x


@in_child
def test_layers_that_break_in_a_helper(front: Any) -> None:
    net = nn.Sequential(*[Block() for _ in range(12)])
    first, second = counts_of(net, (T(2, 4),), (T(2, 4),))
    assert first["graphs"] <= 13 and first["eager"] == 0
    assert second == {"traces": 0, "graphs": 0, "eager": 0, "hits": second["hits"]}


@in_child
def test_a_break_in_the_last_of_several_layers(front: Any) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU(), Block()])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    first, second = counts_of(Layers(), (T(2, 4),), (T(2, 4),))
    assert first["graphs"] <= 3 and first["eager"] == 0
    assert second == {"traces": 0, "graphs": 0, "eager": 0, "hits": 2}


@in_child
def test_nested_blocks_with_a_break_in_each(front: Any) -> None:
    def inner(x: Any) -> Any:
        x = torch.sin(x)
        time.sleep(0)
        return torch.cos(x)

    def middle(x: Any) -> Any:
        x = inner(x * 2)
        time.sleep(0)
        return x + 1

    def outer(x: Any) -> Any:
        x = middle(x + 1)
        time.sleep(0)
        return x * 3

    first, second = counts_of(outer, (T(3),), (T(3),))
    assert first == {"traces": 4, "graphs": 4, "eager": 0, "hits": 0}
    assert second == {"traces": 0, "graphs": 0, "eager": 0, "hits": 4}


@in_child
def test_a_method_of_the_library_on_an_opaque_object_breaks_once(front: Any) -> None:
    """`random.randint` is four functions of the standard library: none of them is looked into."""

    def fn(x):
        x = x + 1
        number = random.randint(3, 3)
        return x * number

    random.seed(0)
    told = alternator.explain(fn, backend="eager")(T(2))
    assert torch.equal(told.result, (T(2) + 1) * 3)
    assert [event.at.text.strip() for event in told.breaks] == ["number = random.randint(3, 3)"]
    assert told.graph_count == 2
    state = random.getstate()
    random.seed(0)
    fn(T(2))
    assert random.getstate() == state


@in_child
def test_a_number_that_keeps_changing_is_named(front: Any) -> None:
    numbers = iter(range(20))

    def fn(x):
        time.sleep(0)
        number = next(numbers)
        return x * number

    compiled = alternator.compile(fn, backend="eager")
    for i in range(12):
        assert torch.equal(compiled(T(2)), T(2) * i)
    assert set(alternator.counters()["breaks"]) <= {"native_call", "opaque_object", "unbacked_value"}


@in_child
def test_k_breaks_make_k_plus_one_graphs(front: Any) -> None:
    for k in (1, 2, 5, 20):
        lines = [f"    x = x + {i}\n    time.sleep(0)\n" for i in range(k)]
        space: dict[str, Any] = {"time": time}
        exec("def fn(x):\n" + "".join(lines) + "    return x * 2\n", space)
        first, second = counts_of(space["fn"], (T(3),), (T(3),))
        assert first == {"traces": k + 1, "graphs": k + 1, "eager": 0, "hits": 0}
        assert second == {"traces": 0, "graphs": 0, "eager": 0, "hits": k + 1}


@in_child
def test_a_long_loop_makes_few_graphs(front: Any) -> None:
    def fn(x: Any) -> Any:
        for _ in range(100):
            x = torch.sin(x)
            time.sleep(0)
            x = torch.cos(x)
        return x

    first, second = counts_of(fn, (T(3),), (T(3),))
    assert first["graphs"] <= 3 and first["eager"] == 0
    assert second["traces"] == 0 and second["eager"] == 0


@in_child
def test_a_model_with_breaks_in_callbacks(front: Any) -> None:
    def message(x: Any, weight: float) -> Any:
        x = x * weight
        time.sleep(0)
        return x + 1

    def fn(x: Any) -> Any:
        for layer in range(3):
            sent = list(map(lambda weight: message(x, weight), (0.5, 2.0)))  # noqa: B023, C417
            x = torch.tanh(sent[0] + sent[1]) + layer
        return x

    import alternator

    assert torch.equal(alternator.compile(fn, backend="eager")(T(3)), fn(T(3)))
    _, second = counts_of(fn, (T(3),), (T(3),))
    assert second["traces"] == 0 and second["eager"] == 0


@in_child
def test_a_break_in_a_callback_moves_out_no_further_than_it_must(front: Any) -> None:
    def key(value: float) -> float:
        time.sleep(0)
        return -value

    def helper(x: Any) -> Any:
        return torch.sin(x) * sorted((1.0, 2.0), key=key)[0] + 1

    def middle(x: Any) -> Any:
        return helper(x + 1) * 2

    def outer(x: Any) -> Any:
        return middle(torch.cos(x)) - 1

    first, second = counts_of(outer, (T(3),), (T(3),))
    assert first == {"traces": 2, "graphs": 2, "eager": 0, "hits": 0}
    assert second == {"traces": 0, "graphs": 0, "eager": 0, "hits": 2}


@in_child
def test_a_place_that_keeps_missing_is_given_up_once(front: Any) -> None:
    import alternator

    said = []

    def fn(x: Any, data: bytes) -> Any:
        x = x + 1
        time.sleep(0)
        return x * len(data)

    alternator.reset()
    alternator.config.recompile_limit = 4
    compiled = alternator.compile(fn, backend="eager")
    import logging

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Keeping()
    logging.getLogger("alternator").addHandler(handler)
    for n in range(30):
        assert torch.equal(compiled(T(3), n * b"-"), fn(T(3), n * b"-"))
    logging.getLogger("alternator").removeHandler(handler)
    assert sum("recompile_limit" in one for one in said) == 1
    assert alternator.counters()["breaks"]["recompile_limit"] == 1
    assert alternator.counters()["traces"] == 5


@program(one_graph=False)
def test_comprehensions_over_variables_of_closures(t):
    """From 3.12 on they run in the frame itself, and put the cell of the outer variable aside on its stack."""

    def fn(x, items):
        def inner():
            return x

        found = [broken(x) for x in [x, *items]]
        return x + 1, found, inner()

    def broken(x):
        alternator.graph_break()
        return x * 2

    f = t.compile(fn)
    f(T(3), [])
    f(T(3), [torch.ones(3)])
    f(T(3), [torch.ones(3)])


@program(one_graph=False)
def test_iterators_of_what_was_changed_since_the_last_break(t):
    """An iterator notes the size of its container, which is changed concretely after it was reconstructed."""

    def of_a_dict(x, n):
        table = {"b": 1}
        alternator.graph_break()
        table["c"] = n
        steps = iter(table)
        alternator.graph_break()
        return x + 1, next(steps), list(steps)

    def of_a_list(x, n):
        items = [1]
        alternator.graph_break()
        items.append(n)
        items.append(3)
        steps = iter(items)
        first = next(steps), next(steps)
        alternator.graph_break()
        return x + 1, first, list(steps)

    def of_a_deque(x, n):
        items = collections.deque([1])
        alternator.graph_break()
        items.append(n)
        steps = iter(items)
        first = next(steps)
        alternator.graph_break()
        return x + 1, first, list(steps)

    for fn in (of_a_dict, of_a_list, of_a_deque):
        f = t.compile(fn)
        for n in (1, 2, 2):
            f(T(3), n)


@program(one_graph=False)
def test_iterators_that_have_given_all(t):
    """They were not asked again yet: then they say that it was the last, or that their dict has changed."""

    def fn(x, change):
        table = {"a": 1, "b": 2}
        steps = iter(table.values())
        given = [next(steps), next(steps)]
        change(table)
        alternator.graph_break()
        try:
            given.extend(steps)
        except RuntimeError as error:
            given.append(str(error))
        return x + 1, given, table

    f = t.compile(fn)
    for change in (len, len, dict.popitem, dict.clear, lambda table: table.update(c=table.pop("a"))):
        f(T(3), change)
        f(T(3, s=1), change)


@program(one_graph=False)
def test_iterators_of_what_was_changed_under_them(t):
    """Of the size that it was: only the iterator knows."""

    def rest(steps):
        try:
            return list(steps)
        except RuntimeError as error:
            return str(error)

    def of_a_dict(x, show):
        table = {"a": 1, "b": 2, "c": 3}
        steps = iter(show(table))
        first = next(steps)
        table["d"] = table.pop("a")
        alternator.graph_break()
        return x + 1, first, rest(steps), table

    def of_a_deque(x, most):
        items = collections.deque([1, 2, 3], most)
        steps = iter(items)
        first = next(steps)
        items.append(items.pop() if most is None else 3)
        alternator.graph_break()
        return x + 1, first, rest(steps), items

    def behind_the_break(x, most):
        items = collections.deque([1, 2, 3], most)
        steps = iter(items)
        first = next(steps)
        alternator.graph_break()
        y = x + 1
        items.append(items.pop())
        alternator.graph_break()
        return y, first, rest(steps), items

    f = t.compile(of_a_dict)
    for show in (dict.keys, dict.values, dict.items, dict.items):
        f(T(3), show)
    for fn in (of_a_deque, behind_the_break):
        f = t.compile(fn)
        for most in (None, 3, 3):
            f(T(3), most)


@program(one_graph=False)
def test_a_coroutine_that_is_waiting_to_begin(t):
    async def work(x):
        return x * 2

    def fn(x):
        made = work(x)
        alternator.graph_break()
        try:
            made.send(None)
        except StopIteration as done:
            return done.value

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_a_nan_is_made_anew(t):
    def fn(x, n, held):
        made = abs(n)
        alternator.graph_break()
        return x + 1, made, n in held, made in held

    f = t.compile(fn)
    number, held = float("nan"), []
    for _ in range(3):
        number = f(T(3), number, held)[1]
        held.append(number)


class MadeInTwoSteps(list):
    def __new__(cls, *_):
        alternator.graph_break()
        return super().__new__(cls)


class Configured:
    def __new__(cls, *_, **__):
        alternator.graph_break()
        return super().__new__(cls)

    def __init__(self, a, b=2):
        self.values = a, b


class Undecided(set):
    __hash__ = None

    def __eq__(self, other):
        alternator.graph_break()
        return NotImplemented


class Unmerged(dict):
    def __or__(self, other):
        alternator.graph_break()
        return NotImplemented


class Long:
    def __len__(self):
        alternator.graph_break()
        return self.n


@program(one_graph=False)
def test_the_rest_of_an_instruction_is_traced(t):
    """What an instruction does behind a break in it reads the outside world as every other does."""
    found, table = {1, 2}, {1: 2}

    def takes_from(x, items):
        steps = map(str, items)
        made = MadeInTwoSteps(steps)
        return x + 1, made, list(steps)

    f = t.compile(lambda x, items: (x + 1, MadeInTwoSteps(iter(items)), MadeInTwoSteps([items])[0] is items))
    f(T(2), [1])
    f(T(2), [2])
    f = t.compile(takes_from)
    f(T(2), [1, 2])
    f(T(2), [3])
    f = t.compile(lambda x, n: (x + 1, Configured(n).values, Configured(1, b=n).values))
    f(T(2), 1)
    f(T(2), 2)
    f = t.compile(lambda x: (x + 1, Undecided([1, 2]) == found, Unmerged() | table))
    f(T(2))
    found.add(3)
    f(T(2))
    table[3] = 4
    f(T(2))


@program(one_graph=False)
def test_lengths_that_change_as_truth_values(t):
    f = t.compile(lambda x, a: (x + 1, 1 if a else 2))
    a = Long()
    for n in (0, 1, 2, 3, 4, 5, 0, -1, -(10**30), 10**30):
        a.n = n
        f(T(2), a)


@program(one_graph=False, graphs=3)
def test_a_loop_that_sets_a_variable_with_what_breaks(t):
    """It is unbound in the first round, which makes no other place."""

    def fn(x):
        for _ in range(20):
            x = x.sin()
            value = x.sum().item()
            x = x.cos()
        return x, value

    t.compile(fn)(T(3))


@program(one_graph=False, graphs=3)
def test_a_loop_with_a_break_in_a_helper(t):
    """What the helper is called with is the caller's argument in the first round only."""

    def helper(x):
        x = x.sin()
        time.sleep(0)
        return x.cos()

    def fn(x):
        for _ in range(20):
            x = helper(x)
        return x

    t.compile(fn)(T(3))


@program(one_graph=False, graphs=2)
def test_values_of_native_types_from_behind_a_break(t):
    """Compared as values: another object each time."""

    def fn(x):
        y = x * 2
        day, found, moment = datetime.date.fromordinal(700000 + n), os.stat("/"), datetime.datetime.fromtimestamp(n)
        return y + day.year, found.st_mode, moment

    n = 1
    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))


@program(one_graph=False)
def test_other_values_of_native_types(t):
    def fn(x, n, fold):
        time.sleep(0)
        day = datetime.date.fromordinal(700000 + n)
        moment = datetime.datetime(2020, 1, n % 28 + 1, fold=fold)
        span = datetime.timedelta(days=n)
        alternator.graph_break()
        fields = time.struct_time((2020, 1, n, 0, 0, 0, 0, 0, 0, f"zone {fold}", n))
        alternator.graph_break()
        return x * day.day, moment.fold, span.days, fields.tm_mday, fields.tm_zone, fields.tm_gmtoff, day, moment

    f = t.compile(fn)
    for n in (1, 2, 1, 30):
        for fold in (0, 1):
            f(T(3), n, fold)

"""Frames that begin while an instruction is executed concretely are compiled too."""

from __future__ import annotations

import functools
import sys
import time
import traceback
from typing import Any

import torch
from harness import T, program
from test_breaks import counts_of
from torch import nn
from trace_support import in_child

import alternator


def twice(x: Any) -> Any:
    return torch.sin(x) * 2


@alternator.disable(recursive=False)
def only_itself(x: Any) -> Any:
    x = x + 1
    return twice(x) + 1


@torch.compiler.disable(recursive=False)
def only_itself_for_torch(x: Any) -> Any:
    x = x + 1
    return twice(x) + 1


@alternator.disable
def all_of_it(x: Any) -> Any:
    return twice(x) + 1


@torch.compiler.disable
def all_of_it_for_torch(x: Any) -> Any:
    return twice(x) + 1


@alternator.skip
def skipped(x: Any) -> Any:
    return twice(x) + 1


NET = nn.Sequential(nn.Linear(3, 3), nn.ReLU())


@alternator.disable(recursive=False)
def calls_modules(x: Any) -> Any:
    return NET(x) + NET[0](x)


# ------------------------------------------------------------------------------------------- as in eager mode


@program(one_graph=False)
def test_a_key_function(t: Any) -> None:
    def fn(x: Any) -> Any:
        parts = sorted([x * 2, -x, x + 1], key=lambda part: float(torch.sin(part).sum().detach()))
        return parts[0] + 1

    f = t.compile(fn)
    f(T(3))
    f(T(3))
    f(T(4))
    f(T(3, rg=True))


@program(one_graph=False)
def test_a_callback_that_writes(t: Any) -> None:
    seen: list[Any] = []
    total = {"count": 0}

    def fn(x: Any) -> Any:
        held = [x]

        def step(a: Any, b: Any) -> Any:
            seen.append(a)
            total["count"] += 1
            held[0] = held[0] + b
            time.sleep(0)
            return a * b

        return functools.reduce(step, [x + 1, x + 2, x + 3]), held

    t.watch(lambda: (seen, total))
    f = t.compile(fn)
    f(T(3))
    total["count"] = 7
    f(T(3))
    seen.clear()
    f(T(2))


@program(one_graph=False)
def test_functions_that_are_marked(t: Any) -> None:
    def fn(x: Any) -> Any:
        x = torch.cos(x)
        return only_itself(x) + only_itself_for_torch(x) + all_of_it(x) + all_of_it_for_torch(x) + skipped(x)

    f = t.compile(fn)
    for shape in (3, 3, 4):
        f(T(shape))


@program(one_graph=False)
def test_a_callback_that_raises(t: Any) -> None:
    def check(x: Any) -> Any:
        y = torch.sin(x)
        if float(y.sum()) > 1:
            raise ValueError("too much")
        return y

    def fn(x: Any, swallow: bool) -> Any:
        try:
            return list(map(check, [x, x * 0, x + 1]))
        except ValueError:
            if not swallow:
                raise
            return x - 1

    f = t.compile(fn)
    f(T(3) * 0, True)
    f(T(3) + 5, True)
    f(T(3) + 5, False)
    f(T(3) * 0, False)


@program(one_graph=False)
def test_a_callback_that_handles_what_its_caller_handles(t: Any) -> None:
    def look(x: Any) -> Any:
        y = torch.sin(x)
        time.sleep(0)
        return y + len(str(sys.exc_info()[1]))

    def fn(x: Any) -> Any:
        try:
            raise KeyError("known")
        except KeyError:
            return sorted([x, x + 1], key=lambda part: float(look(part).sum()))[0]

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_a_closure_that_is_made_anew(t: Any) -> None:
    def fn(x: Any, scale: float) -> Any:
        offset = x.mean()
        return max([x, x * 2, x - 3], key=lambda part: float((part * scale + offset).sum()))

    f = t.compile(fn)
    f(T(3), 1.0)
    f(T(3), 1.0)
    f(T(3), -1.0)
    f(T(3), 2.0)


@program(one_graph=False)
def test_recursion_through_native_code(t: Any) -> None:
    def down(x: Any, n: int) -> Any:
        x = torch.sin(x) + n
        time.sleep(0)
        return x if n == 0 else next(map(lambda y: down(y, n - 1), [x])) * 2

    f = t.compile(down)
    f(T(3), 4)
    f(T(3), 4)
    f(T(3), 2)


@program(one_graph=False)
def test_objects_die_when_they_would(t: Any) -> None:
    import weakref

    class Note:
        pass

    log: list[Any] = []

    def use(x: Any, notes: list[Any]) -> Any:
        gone = weakref.ref(notes[0])
        notes.clear()
        y = torch.sin(x)
        log.append(gone() is None)
        time.sleep(0)
        return float(y.sum())

    def fn(x: Any) -> Any:
        x = x + 1
        return sorted([x, x * 2], key=lambda part: use(part, [Note()]))[0]

    t.watch(lambda: log)
    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_arguments_of_all_kinds(t: Any) -> None:
    def some(x: Any, *rest: Any, scale: float = 2.0, **named: Any) -> Any:
        return torch.sin(x) * scale + len(rest) + sum(named.values())

    @alternator.disable(recursive=False)
    def calls(x: Any) -> Any:
        return some(x) + some(x, 1, 2) + some(x, scale=3.0) + some(x, 1, a=4, b=x) + some(*[x, x], **{"scale": 1.0})

    f = t.compile(lambda x: calls(x + 1) * 2)
    f(T(3))
    f(T(3))
    some.__kwdefaults__["scale"] = 5.0
    f(T(3))


@program(one_graph=False)
def test_special_methods_that_native_code_calls(t: Any) -> None:
    class Key:
        def __init__(self, x: Any) -> None:
            self.x = x

        def __lt__(self, other: Any) -> bool:
            return bool(torch.sin(self.x).sum() < torch.sin(other.x).sum())

    f = t.compile(lambda x: sorted([x, x + 1, x - 1], key=Key)[0] * 2)
    f(T(3))
    f(T(3))
    f(T(3) + 1)


# --------------------------------------------------------------------------------------------- what is compiled


@in_child
def test_what_marks_mean(front: Any) -> None:
    def calling(function: Any) -> Any:
        return lambda x: function(torch.cos(x)) * 3

    for function, graphs in [(only_itself, 3), (only_itself_for_torch, 3), (skipped, 3), (all_of_it, 2), (all_of_it_for_torch, 2)]:  # fmt: skip
        first, second, other = counts_of(calling(function), (T(3),), (T(3),), (T(4),))
        assert first["graphs"] == graphs and first["eager"] == 0, (function, first)
        assert second["traces"] == 0 and second["eager"] == 0, (function, second)
        assert other["graphs"] == graphs, (function, other)


@in_child
def test_modules_that_it_calls(front: Any) -> None:
    first, second = counts_of(lambda x: calls_modules(x + 1) * 2, (T(3),), (T(3),))
    assert first["graphs"] == 4 and second["traces"] == 0


@in_child
def test_one_graph_for_all_closures_of_a_code(front: Any) -> None:
    def fn(x: Any) -> Any:
        offset = x.mean()
        return max([x, x * 2, x - 3], key=lambda part: float((part + offset).sum()))

    first, second = counts_of(fn, (T(3),), (T(3),))
    assert first["graphs"] == 2 and second["traces"] == 0 and second["eager"] == 0


@in_child
def test_frames_without_tensors_are_not_traced(front: Any) -> None:
    def order(pair: Any) -> Any:
        return -pair[1]

    @alternator.disable(recursive=False)
    def calls(x: Any) -> Any:
        names = sorted([(str(i), i) for i in range(50)], key=order)
        return x + len(names)

    changes = counts_of(lambda x: calls(x + 1) * 2, *[(T(3),)] * 3)
    assert [change["traces"] for change in changes] == [2, 0, 0]


@in_child
def test_frames_that_record_nothing_are_left_alone(front: Any) -> None:
    class Item:
        def __init__(self, size: int) -> None:
            self.size = size

        def order(self) -> int:
            return -self.size

    @alternator.disable(recursive=False)
    def calls(x: Any, items: list[Item]) -> Any:
        return x + sum(item.order() for item in items)

    items = [Item(i) for i in range(100)]
    changes = counts_of(lambda x: calls(x + 1, items) * 2, *[(T(3),)] * 3)
    assert changes[0]["traces"] <= 6 and changes[1]["traces"] == changes[2]["traces"] == 0, changes


@in_child
def test_too_many_versions_of_a_callee(front: Any) -> None:
    def some(x: Any, n: str) -> Any:
        return torch.sin(x) * int(n)

    @alternator.disable(recursive=False)
    def calls(x: Any, count: int) -> Any:
        for n in range(count):
            x = some(x, str(n))
        return x

    alternator.config.recompile_limit = 4
    change, second = counts_of(lambda x, count: calls(x, count), (T(3), 20), (T(3), 20))
    assert change["graphs"] == 4 and second["traces"] == 0


@in_child
def test_what_a_function_calls_that_cannot_be_cut(front: Any) -> None:
    """The rest of such a call falls back to eager, but not what it calls."""

    def fn(x: Any, n: int) -> Any:
        x = twice(x)
        time.sleep(0)
        return twice(x) * n

    alternator.config.recompile_limit = 2
    changes = counts_of(fn, *[(T(3), n) for n in range(6)], (T(3), 50))
    assert changes[-2]["traces"] == changes[-1]["traces"] == 0
    assert changes[-1]["hits"] == 2, changes[-1]  # the start, and twice()


@in_child
def test_run_uses_what_was_compiled_of_callees(front: Any) -> None:
    def fn(x: Any) -> Any:
        return only_itself(torch.cos(x)) * 3

    alternator.reset()
    compiled = alternator.compile(fn, backend="eager")
    wanted = compiled(T(3))
    before = alternator.counters()
    assert torch.equal(alternator.run(fn)(T(3)), wanted)
    after = alternator.counters()
    assert after["traces"] == before["traces"] and after["hits"] == before["hits"] + 3
    assert torch.equal(alternator.run(fn)(T(4)), fn(T(4)))


@in_child
def test_tracers_of_torch_see_frames_as_they_are(front: Any) -> None:
    def inner(x: Any) -> Any:
        return torch.sin(x) * 2

    def fn(x: Any) -> Any:
        x = torch.cos(x)
        scripted = torch.jit.trace(inner, (x,))
        mapped = torch.func.vmap(inner)(x)
        made = torch.fx.symbolic_trace(inner)
        return scripted(x) + mapped + made(x), len(made.graph.nodes)

    alternator.reset()
    x = T(3)
    compiled = alternator.compile(fn, backend="eager")
    for _ in range(3):
        wanted, got = fn(x), compiled(x)
        assert torch.equal(wanted[0], got[0]) and wanted[1] == got[1] == 4


@in_child
def test_a_hook_below_ours(front: Any) -> None:
    """TorchDynamo's hook may be the one that ours finds, and it may hand frames back: each is offered once."""
    seen: list[bool] = []
    other = torch.compile(twice, backend="eager")

    @torch.compiler.disable(recursive=False)
    def marked(x: Any) -> Any:
        seen.append(alternator.is_compiling())
        return twice(x) + other(x)

    compiled = alternator.compile(lambda x: marked(x * 2), backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(T(3)), twice(T(3) * 2) * 2)
        assert torch.equal(other(T(3)), twice(T(3)))
    assert seen == [False] * 3


@in_child
def test_a_debugger_sees_the_frames_of_callees(front: Any) -> None:
    def some(x: Any) -> Any:
        y = torch.sin(x)
        return float(y.sum())

    def fn(x: Any) -> Any:
        return sorted([x, x + 1], key=some)[0]

    seen: list[str] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is some.__code__:
            seen.append(event)
        return tracer

    compiled = alternator.compile(fn, backend="eager")
    compiled(T(3))
    sys.settrace(tracer)
    compiled(T(3))
    sys.settrace(None)
    assert seen.count("call") == 2 and seen.count("line") == 4 and seen.count("return") == 2


@in_child
def test_tracebacks_through_callees(front: Any) -> None:
    def some(x: Any) -> Any:
        y = torch.sin(x)
        time.sleep(0)
        raise ValueError(str(y.shape))

    def fn(x: Any) -> Any:
        return sorted([x, x + 1], key=some)[0]

    def lines(call: Any) -> Any:
        try:
            call(T(3))
        except ValueError as error:
            return [(one.name, one.lineno) for one in traceback.extract_tb(error.__traceback__)][1:]

    compiled = alternator.compile(fn, backend="eager")
    wanted = lines(fn)
    for _ in range(3):
        assert lines(compiled) == wanted
    assert [name for name, _ in wanted] == ["fn", "some"]

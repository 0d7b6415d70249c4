"""Graphs that raise when they run, since data is not what it was: the call has done what eager has done until then."""

from __future__ import annotations

import gc
import sys
import traceback
from typing import Any

import pytest
import torch
from harness import T, program
from trace_support import alone

import alternator

WORDS: list[str] = []


@program(one_graph=False)
def test_an_index_out_of_bounds(t):
    def fn(x, index, seen):
        seen.append("before")
        y = x[index] * 2
        seen.append("after")
        return y

    f = t.compile(fn)
    f(T(4), torch.tensor([1]), [])
    f(T(4), torch.tensor([9]), [])
    f.hit(T(4), torch.tensor([2]), [])


@program(one_graph=False)
def test_handled_by_the_program(t):
    def fn(x, index):
        try:
            y = x[index] * 2
        except IndexError:
            WORDS.append("out of bounds")
            return x - 1
        return y + 1

    f = t.compile(fn)
    f(T(4), torch.tensor([1]))
    f(T(4), torch.tensor([9]))
    f(T(4), torch.tensor([2]))


@program(one_graph=False)
def test_behind_a_break(t):
    def fn(x, index, seen):
        seen.append(1)
        x = x + 1
        alternator.graph_break()
        seen.append(2)
        y = x[index]
        seen.append(3)
        return y

    f = t.compile(fn)
    f(T(4), torch.tensor([1]), [])
    f(T(4), torch.tensor([9]), [])
    f(T(4), torch.tensor([1]), [])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_lines(backend: str) -> None:
    @alone
    def run() -> None:
        def fn(x: Any, index: Any) -> Any:
            y = x + 1
            return y[index] * 2

        alternator.reset()
        compiled = alternator.compile(fn, backend=backend, fullgraph=True)
        compiled(torch.ones(4), torch.tensor([1]))
        frames = []
        for function in (fn, compiled):
            with pytest.raises(IndexError) as raised:
                function(torch.ones(4), torch.tensor([9]))
            frames.append(
                [(frame.name, frame.lineno) for frame in traceback.extract_tb(raised.value.__traceback__)][1:]
            )
        assert frames[0] == frames[1]
        assert alternator.counters()["traces"] == 1

    run()


@alone
def test_what_a_backend_of_ones_own_raises() -> None:
    calls = []

    def backend(gm: Any, inputs: list[Any]) -> Any:
        def run(*given: Any) -> Any:
            calls.append(1)
            raise ZeroDivisionError("of the backend's")

        return run

    compiled = alternator.compile(lambda x: x + 1, backend=backend)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="of the backend's"):
            compiled(torch.ones(2))
    assert len(calls) == 2


@program(one_graph=False)
def test_a_factorisation_that_fails(t):
    def fn(x, seen):
        seen.append("before")
        try:
            return torch.linalg.cholesky(x).sum()
        except torch.linalg.LinAlgError:
            seen.append("not positive")
            return torch.linalg.cholesky(x + 3 * torch.eye(2)).sum()

    f = t.compile(fn)
    f(torch.eye(2), [])
    f(-torch.eye(2), [])
    f.hit(torch.eye(2) * 2, [])
    f(-4 * torch.eye(2), [])


# Of a spy's code nobody knows which node has failed: it is no backend for these.


@program(one_graph=False, spied=False)
def test_after_a_write_in_place(t):
    """What the call had done until then is done, once, and the error says where."""
    state, seen, box = T(2), [], {"n": 0}

    def fn(x, index):
        box["n"] += 1
        seen.append(x * 2)
        state.add_(1)
        print("before", box["n"])
        y = x[index] * 2
        print("after")
        seen.append(y)
        return y

    f = t.compile(fn)
    t.watch(lambda: (state, len(seen), box))
    for index in (1, 9, 2, 9, 9, 0):
        f(T(4), torch.tensor([index]))


@program(one_graph=False, spied=False)
def test_after_a_write_in_a_function_that_is_called(t):
    state, seen = T(2), []

    def inner(x, index):
        seen.append("inner")
        again = x + 1
        return again * 2 + again[index]

    def outer(x, index):
        dropped = x.sum()
        state.add_(1)
        seen.append(dropped)
        return inner(x, index) + dropped

    def fn(x, index):
        unused = [x.exp()]
        with torch.no_grad():
            seen.append(torch.is_grad_enabled())
            return outer(x, index) * 2, unused

    f = t.compile(fn)
    t.watch(lambda: (state, seen))
    for index in (1, 9, 2, 9):
        f(T(4), torch.tensor([index]))


@program(one_graph=False, spied=False)
def test_after_a_write_by_a_module(t):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.table = torch.nn.Embedding(4, 3)
            self.calls = 0
            self.last = None

        def forward(self, x, index):
            self.calls += 1
            self.last = self.norm(x)
            return self.last + self.table(index)

    net = Net()
    f = t.compile(net)
    t.watch(lambda: (net.calls, net.last, net.state_dict()))
    for index in ([1, 2], [1, 9], [0, 0], [9, 9]):
        f(T(2, 3), torch.tensor(index))


@program(one_graph=False, spied=False)
def test_a_write_that_fails_itself(t):
    seen, state = [], T(4)

    def fn(index, value):
        for step in range(3):
            seen.append(step)
            state.index_add_(0, index + step, value)
        return state * 2

    f = t.compile(fn)
    t.watch(lambda: (state, seen))
    for index in (0, 2, 1, 3):
        f(torch.tensor([index]), torch.ones(1))


@program(one_graph=False, spied=False)
def test_a_write_among_random_numbers(t):
    seen, state = [], T(2)

    def fn(x, index):
        state.add_(1)
        seen.append(torch.rand(2))
        y = x[index]
        seen.append(torch.rand(2))
        return y

    f = t.compile(fn)
    t.watch(lambda: (state, seen))
    torch.manual_seed(3)
    for index in (1, 9, 2):
        f(T(4), torch.tensor([index]))


@program(one_graph=False, spied=False)
def test_a_write_while_something_is_handled(t):
    state, seen = T(2), []

    def fn(x, index):
        try:
            raise KeyError("first")
        except KeyError:
            seen.append(1)
            state.add_(1)
            y = x[index]
        return y

    f = t.compile(fn)
    t.watch(lambda: (state, seen))
    for index in (1, 9, 2):
        f(T(4), torch.tensor([index]))


@program(one_graph=False, spied=False)
def test_in_a_callback_of_native_code_and_in_a_generator(t):
    """Where the frame cannot be left as it is, the instruction that called it is executed again, if that has written nothing."""
    state, seen = T(2), []

    def by_key(x, index):
        state.add_(1)

        def key(k):
            seen.append(k)
            return (x[index + k]).dim() * k

        return sorted([2, 1, 0], key=key)

    def each(x, index):
        for k in range(2):
            seen.append(k)
            state.add_(1)
            yield x[index + k]

    def by_generator(x, index):
        return [y * 2 for y in each(x, index)]

    t.watch(lambda: (state, seen))
    for g in (by_key, by_generator):
        f = t.compile(g)
        for index in (1, 9, 0, 3):
            f(T(4), torch.tensor([index]))


@program(one_graph=False, spied=False)
def test_a_write_behind_a_break(t):
    state, seen = T(2), []

    def fn(x, index):
        y = x * 2
        seen.append(y)
        alternator.graph_break()
        state.add_(1)
        seen.append(1)
        z = y[index]
        seen.append(2)
        return z

    f = t.compile(fn)
    t.watch(lambda: (state, seen))
    for index in (1, 9, 2, 9):
        f(T(4), torch.tensor([index]))


class Wrapped:
    """A backend of one's own, whose code is not the recorded program."""

    def __call__(self, gm: Any, inputs: list[Any]) -> Any:
        return lambda *given: gm.forward(*given)


@alone
def test_the_modes_of_the_thread_behind_a_backends_error() -> None:
    state = torch.zeros(2)

    def fn(x: Any, index: Any) -> Any:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            state.add_(1)
            return x[index] @ x

    compiled = alternator.compile(fn, backend=Wrapped())
    compiled(torch.ones(4, 4), torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(torch.ones(4, 4), torch.tensor([9]))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", torch.bfloat16):  # which begins, and ends, as the outermost
        pass
    assert torch.autocast_increment_nesting() == 1
    torch.autocast_decrement_nesting()


@program(one_graph=False, spied=False)
def test_a_write_in_what_an_instruction_calls(t):
    """A function that is compiled by itself, since its caller is not to be."""
    state, seen = T(2), []

    def inner(x, index):
        seen.append(x)
        state.add_(1)
        return (x + 1)[index]

    @alternator.disable(recursive=False)
    def outer(x, index):
        return inner(x * 2, index)

    def fn(x, index):
        return outer(x + 1, index) * 2

    f = t.compile(fn)
    t.watch(lambda: (state, seen))
    for index in (1, 9, 2, 9):
        f(T(4), torch.tensor([index]))


@alone
def test_a_failure_leaves_nothing_behind() -> None:
    state, seen = torch.zeros(2), []

    def fn(x: Any, index: Any) -> Any:
        y = x * 2
        seen.append(y)
        state.add_(1)
        return (y + 1)[index]

    compiled = alternator.compile(fn, backend="eager", fullgraph=True)
    x, good, bad = torch.ones(4), torch.tensor([1]), torch.tensor([9])

    def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(IndexError):
                compiled(x, bad)
            seen.clear()

    traces = alternator.counters()["traces"]
    compiled(x, good)
    fail(5)
    gc.collect()
    before = len(gc.get_objects()), sys.getrefcount(x)
    fail(50)
    gc.collect()
    after = len(gc.get_objects()), sys.getrefcount(x)
    assert after[0] <= before[0] + 10 and after[1] == before[1]
    assert alternator.counters()["traces"] == traces + 1


@program(one_graph=False, spied=False)
def test_what_was_dropped_is_computed_again(t):
    """A tensor that an object had for a while, and that no later call of torch's uses."""
    state, seen, box = T(4), [], {}

    def fn(x, index):
        seen.append(x * 3)
        with torch.no_grad():
            seen.append((x * 4).view(2, 2))
        box["chunks"] = x.chunk(2)
        largest, where = x.max(0)
        box["where"] = where
        seen.append(largest)
        state.add_(1)
        y = x[index] + where
        seen.clear()
        box.clear()
        return y

    f = t.compile(fn)
    t.watch(lambda: (state, seen, box))
    for index in (1, 9, 2, 9):
        f(T(4), torch.tensor([index]))


@alone
def test_what_was_dropped_and_cannot_be_computed_again() -> None:
    """It was written to, was computed of what was written, or has a history: nothing is shown that is not what it was."""

    def written(x: Any, state: Any) -> Any:
        y = x * 2
        y.add_(state)
        state.add_(1)
        return y

    def of_what_was_written(x: Any, state: Any) -> Any:
        y = state * 2
        state.add_(1)
        return y

    def with_a_history(x: Any, state: Any) -> Any:
        state.add_(1)
        return x.requires_grad_() * 2

    for make in (written, of_what_was_written, with_a_history):
        seen: list[Any] = []

        def fn(x: Any, state: Any, index: Any, make: Any = make, seen: list[Any] = seen) -> Any:
            seen.append(make(x, state))
            y = state[index]
            seen.clear()
            return y

        compiled = alternator.compile(fn, backend="eager")
        state = torch.zeros(4)
        compiled(torch.ones(4), state, torch.tensor([1]))
        with pytest.raises(IndexError):
            compiled(torch.ones(4), state, torch.tensor([9]))
        found, expected = list(seen), torch.zeros(4) + 1
        assert torch.equal(state, torch.full((4,), 2.0))
        seen.clear()
        with pytest.raises(IndexError):
            fn(torch.ones(4), expected, torch.tensor([9]))
        assert not found or torch.equal(found[0], seen[0])


@alone
def test_what_an_error_leaves_to_a_debugger() -> None:
    """Variables that are still there are in the frames; one graph serves all calls."""
    state = torch.zeros(2)

    def fn(x: Any, index: Any) -> Any:
        count, used = 3, x + 1
        state.add_(1)
        return (x[index] + used) * count

    alternator.reset()
    compiled = alternator.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(4), torch.tensor([1]))
        with pytest.raises(IndexError) as raised:
            compiled(torch.ones(4), torch.tensor([9]))
        frame = raised.traceback[-1].frame
        assert frame.code.name == "fn"
        assert frame.f_locals["count"] == 3 and torch.equal(frame.f_locals["used"], torch.full((4,), 2.0))
    assert state.tolist() == [6, 6]
    assert alternator.counters()["graphs"] == 1


@alone
def test_compiled_writes_with_aot_autograd() -> None:
    """Its graphs write last: where they raise, nothing is written yet."""
    for where in ("eager", "aot_eager"):
        alternator.reset()
        state, seen = torch.zeros(2), []

        def fn(x: Any, index: Any, state: Any = state, seen: list[Any] = seen) -> Any:
            seen.append("before")
            state.add_(torch.rand(2) * 0 + 1)
            y = x[index]
            seen.append("after")
            return y

        compiled = alternator.compile(fn, backend=where)
        torch.manual_seed(0)
        for index in (1, 9, 2, 9):
            if index < 4:
                compiled(torch.ones(4), torch.tensor([index]))
                continue
            with pytest.raises(IndexError) as raised:
                compiled(torch.ones(4), torch.tensor([index]))
            assert raised.traceback[-1].frame.code.name == "fn"
        drawn = torch.rand(1)
        assert state.tolist() == [4, 4]
        assert seen == ["before", "after", "before"] * 2
        torch.manual_seed(0)
        assert torch.equal(torch.rand(9)[8:], drawn)
        assert alternator.counters()["graphs"] == 1


@alone
def test_what_was_written_before_is_not_written_twice() -> None:
    def fn(x: Any, buffer: Any, index: Any) -> Any:
        buffer.add_(1)
        return x[index]

    compiled = alternator.compile(fn, backend="eager")
    buffer = torch.zeros(2)
    compiled(torch.ones(4), buffer, torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(torch.ones(4), buffer, torch.tensor([9]))
    assert buffer.tolist() == [2, 2]


class Counting(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(T(2, 2, dtype=dtype))
        self.register_buffer("count", torch.zeros(()))
        self.sizes = []

    def forward(self, x):
        y = torch.nn.functional.linear(x, self.weight)
        self.count += 1
        self.sizes.append(x.shape[0])
        return x + y


class Counted(torch.nn.Module):
    def __init__(self, *dtypes):
        super().__init__()
        self.layers = torch.nn.ModuleList([Counting(dtype) for dtype in dtypes])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@program(one_graph=False, spied=False)
def test_in_the_last_layer(t):
    """Whose weights are of another type."""
    single, double = torch.float32, torch.float64
    for dtypes in ((single, single), (single, double), (single, double, single), (double, single)):
        net = Counted(*dtypes)
        f = t.compile(net)
        f(T(3, 2))
        f(T(3, 2, s=1))
        t.note([(layer.count, layer.sizes) for layer in net.layers])

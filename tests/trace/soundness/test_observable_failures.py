"""A torch call that fails because of its data inside of a `try`, next to writes in place and random numbers: the program sees what eager shows it."""

from __future__ import annotations

import contextlib
import functools

import torch
from harness import T, program
from torch.nn.attention import SDPBackend, sdpa_kernel
from trace_support import in_child

import alternator


@program(one_graph=False)
def test_a_write_before(t):
    def fn(x, state, index):
        state.add_(1)
        try:
            y = x[index] * 2
        except IndexError:
            return x - 1
        return y + 1

    f = t.compile(fn)
    state = T(2)
    t.watch(lambda: state)
    for index in (1, 9, 2, 9):
        f(T(4), state, torch.tensor([index]))


@program(one_graph=False)
def test_a_write_behind(t):
    def fn(x, state, index):
        try:
            y = x[index] * 2
            state.mul_(2)
            z = x[index + 1]
        except IndexError as error:
            return str(error)[:5], x - 1
        finally:
            state.sub_(1)
        return y + z

    f = t.compile(fn)
    state = T(2)
    t.watch(lambda: state)
    for index in (1, 9, 3, 2):
        f(T(4), state, torch.tensor([index]))


@program(one_graph=False)
def test_running_statistics(t):
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    table = torch.nn.Embedding(4, 3)

    def fn(x, index):
        y = net(x)
        try:
            return y + table(index)
        except (KeyError, IndexError):
            return y

    def other(x, index):
        try:
            try:
                with torch.no_grad():
                    return net(x) + table(index)
            except TypeError:
                return x
        except (IndexError, torch.linalg.LinAlgError) as error:
            return type(error)

    t.watch(lambda: net.state_dict())
    for g in (fn, other):
        f = t.compile(g)
        for index in ([1, 2], [1, 9], [0, 0]):
            f(T(2, 3), torch.tensor(index))


@program(one_graph=False)
def test_random_numbers_before(t):
    def fn(x, index):
        noise = torch.rand(4)
        try:
            y = (x + noise)[index]
        except IndexError:
            y = torch.rand(1)
        return y, torch.rand(2)

    f = t.compile(fn)
    torch.manual_seed(3)
    for index in (1, 9, 2):
        f(T(4), torch.tensor([index]))


@program(one_graph=False)
def test_in_a_function_that_is_called(t):
    seen = []

    def inner(x, index):
        seen.append("inner")
        return x[index]

    def outer(x, state, index):
        state.add_(1)
        alternator.graph_break()
        state.add_(1)
        return inner(x, index)

    def fn(x, state, index):
        try:
            return outer(x, state, index)
        except IndexError:
            seen.append("caught")
            return x

    f = t.compile(fn)
    state = T(2)
    t.watch(lambda: (seen, state))
    for index in (1, 9, 2):
        f(T(4), state, torch.tensor([index]))


@program(one_graph=False)
def test_a_context_manager_that_sees_it(t):
    class Swallows:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            self.kind = kind
            return True

    swallows = Swallows()

    def fn(x, state, index):
        state.add_(1)
        with swallows:
            return x[index]
        return x

    def suppressing(x, state, index):
        state.add_(1)
        with contextlib.suppress(IndexError):
            return x[index]
        return x

    state = T(2)
    t.watch(lambda: (swallows, state))
    for g in (fn, suppressing):
        f = t.compile(g)
        for index in (1, 9, 2):
            f(T(4), state, torch.tensor([index]))


class no_grad:  # noqa: N801
    """Not torch's, in spite of its name."""

    def __init__(self):
        self.seen = []

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.seen.append(kind)
        return kind is IndexError


@contextlib.contextmanager
def autocast(name):
    try:
        yield name
    except IndexError:
        pass


@program(one_graph=False)
def test_a_context_manager_with_a_name_of_torchs(t):
    manager = no_grad()
    seen = []

    class Settled(torch.no_grad):
        def __exit__(self, kind, error, trace):
            seen.append(kind)
            super().__exit__(kind, error, trace)
            return True

    def own_class(x, state, index):
        state.add_(1)
        with no_grad() as entered:
            return x[index], entered
        return x, entered

    def outside(x, state, index):
        state.add_(1)
        with manager:
            alternator.graph_break()
            state.add_(1)
            return x[index]
        return x

    def subclass(x, state, index):
        state.add_(1)
        with Settled():
            return x[index]
        return x

    def generator(x, state, index):
        state.add_(1)
        with autocast("cpu"):
            return x[index]
        return x

    state = T(2)
    t.watch(lambda: (manager, state, seen))
    for g in (own_class, outside, subclass, generator):
        f = t.compile(g)
        for index in (1, 9, 2):
            f(T(4), state, torch.tensor([index]))


@in_child
def test_torchs_managers_under_any_name_cost_nothing(front):
    """Neither where they are entered in the call, nor where it goes on inside of them."""
    quiet, precise = torch.no_grad, functools.partial(torch.autocast, "cpu", enabled=False)
    table = torch.nn.Embedding(4, 3)

    def fn(x, state, index):
        with quiet(), contextlib.nullcontext():
            alternator.graph_break()
            state.add_(1)
            y = table(index)
        with precise(), sdpa_kernel(SDPBackend.MATH):
            state.add_(1)
            return y + table(index)

    f = alternator.compile(fn, backend="eager")
    state = T(2)
    for _ in range(2):
        f(T(2, 3), state, torch.tensor([1, 2]))
    assert front.counters()["graphs"] == 1
    assert torch.equal(state, T(2) + 4)


@in_child
def test_with_fullgraph(front):
    """One graph; where it fails, the handler finds the variables as they are."""
    seen, state = [], T(2)

    def fn(x, index):
        y = x * 2
        try:
            state.add_(1)
            seen.append(1)
            return x[index]
        except IndexError:
            seen.append("caught")
            return y + len(seen)

    f = alternator.compile(fn, backend="eager", fullgraph=True)
    for index in (1, 9, 2, 9):
        now, then = f(T(4), torch.tensor([index])), list(seen)
        seen.clear()
        assert torch.equal(now, fn(T(4), torch.tensor([index])))
        assert then == seen
        seen.clear()
    assert torch.equal(state, T(2) + 8)
    assert front.counters()["graphs"] == 1


@in_child
def test_what_stands_apart_is_compiled(front):
    def fn(x, state, index):
        y = x * 2
        try:
            state.add_(1)
            return x[index]
        except IndexError:
            return y

    f = alternator.compile(fn, backend="eager")
    state = T(2)
    for index in (1, 9, 2):
        assert torch.equal(f(T(4), state, torch.tensor([index])), T(4)[index : index + 1] if index < 4 else T(4) * 2)
    assert torch.equal(state, T(2) + 3)
    assert front.counters()["graphs"] == 1
    assert front.counters()["breaks"].keys() == {"torch_call"}


@program(graphs=1)
def test_nobody_sees_it(t):
    """Neither a `try` for other errors, nor torch's own context managers, cost a graph."""
    net = torch.nn.BatchNorm1d(3)
    table = torch.nn.Embedding(4, 3)

    def fn(x, index):
        try:
            with torch.no_grad():
                y = net(x) + table(index)
            with torch.autocast("cpu", enabled=False):
                y = y + table(index)
        except TypeError:
            return x
        except (KeyError, AttributeError):
            return -x
        return y

    f = t.compile(fn)
    t.watch(lambda: net.state_dict())
    f(T(2, 3), torch.tensor([1, 2]))
    f.hit(T(2, 3), torch.tensor([1, 0]))


def outcome(call, seen, index):
    """What it returns or raises, what it writes, what it appends to `seen`."""
    seen.clear()
    state = T(2)
    try:
        found = call(T(4), state, torch.tensor([index])).tolist()
    except IndexError as error:
        found = str(error)
    return found, state.tolist(), list(seen)


@in_child
def test_a_finally_lets_it_pass(front):
    """What the `finally` does is seen, also where it is nested, branches, or makes an `except` outside of it see the error."""
    seen = []

    def simple(x, state, index):
        seen.append("begin")
        try:
            state.add_(1)
            y = x[index]
            state.mul_(2)
        finally:
            if len(seen) > 1:
                seen.append("end")
            state.sub_(3)
        return y

    def nested(x, state, index):
        try:
            try:
                state.add_(1)
                return x[index]
            finally:
                seen.append("inner")
        finally:
            seen.append("outer")

    def caught(x, state, index):
        try:
            try:
                state.add_(1)
                return x[index]
            finally:
                seen.append("inner")
        except IndexError:
            seen.append("caught")
        return x

    def ended(x, state, index):
        try:
            state.add_(1)
            x = x[index]
        finally:
            return x  # noqa: B012

    def handling(x, state, index):
        try:
            state.add_(1)
            x = x[index]
        finally:
            try:
                x = x[index + 1]
            except IndexError:
                seen.append("caught")
        return x

    def leaving(x, state, index):
        for _ in range(2):
            try:
                state.add_(1)
                x = x[index]
            finally:
                break  # noqa: B012
        return x

    for fn in (simple, nested, caught, ended, handling, leaving):
        for backend in ("eager", "aot_eager"):
            alternator.reset()
            f = alternator.compile(fn, backend=backend)
            assert [outcome(f, seen, index) for index in (1, 9, 2, 9)] == [
                outcome(fn, seen, index) for index in (1, 9, 2, 9)
            ]
            if fn in (simple, nested):
                assert front.counters()["graphs"] == 1 and not front.counters()["breaks"]


@program(graphs=1)
def test_what_cannot_fail(t):
    def fn(x, state):
        try:
            state.add_(1)
            y = (x @ x.T).softmax(-1) / 2
            state.mul_(y.sum())
        except RuntimeError:
            return x
        return y[0]

    f = t.compile(fn)
    state = T(2)
    t.watch(lambda: state)
    f(T(3, 3), state)
    f.hit(T(3, 3), state)

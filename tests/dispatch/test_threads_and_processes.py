"""Threads, processes, recursion, and TorchDynamo in the same process."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import alternator
from alternator.exc import BackendFailed


def x() -> torch.Tensor:
    return torch.arange(4.0)


def test_threads_that_call_for_the_first_time_together() -> None:
    gate = threading.Barrier(4)
    results: list[Any] = []

    def backend(gm: Any, inputs: list[Any]) -> Any:
        import time

        time.sleep(0.01)
        return gm.forward

    compiled = alternator.compile(lambda x, by: x * by + 1, backend=backend)

    def work(number: int) -> None:
        gate.wait()
        for i in range(20):
            by = float((number + i) % 3)
            results.append(torch.equal(compiled(x(), by), x() * by + 1))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


def test_reset_while_others_call() -> None:
    compiled = alternator.compile(lambda x: x + 1, backend="eager")
    stop = threading.Event()
    wrong: list[Any] = []

    def work() -> None:
        while not stop.is_set():
            if not torch.equal(compiled(x()), x() + 1):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        alternator.reset()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


MANY_RESETS = """
import faulthandler, sys, threading, time, torch, alternator

faulthandler.enable()
sys.setswitchinterval(1e-5)
torch.set_num_threads(1)


class Dies:
    def __del__(self):
        for _ in range(20):  # other threads run meanwhile
            pass


def by_shape(x):
    return (x * 2 if x.shape[0] > 1 else x) + 1


lasting = alternator.compile(by_shape, backend="eager")
end, wrong = time.monotonic() + 2, []


def work():
    size = 1
    while time.monotonic() < end:
        size = size % 3 + 1
        x, dies = torch.ones(size), Dies()
        own = alternator.compile(lambda x: x + (1 if dies else 2), backend="eager")
        if not torch.equal(lasting(x), by_shape(x)) or not torch.equal(own(x), x + 1):
            wrong.append(size)


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
resets = 0
while time.monotonic() < end:
    alternator.reset()
    resets += 1
for thread in threads:
    thread.join()
assert not wrong and resets > 10, (wrong, resets)
"""


def test_many_resets_while_others_compile_and_forget() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_RESETS], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]


def test_recursion_and_reentrance() -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else compiled(x * 2, n - 1)

    compiled = alternator.compile(power, backend="eager")
    assert torch.equal(compiled(x(), 3), x() * 8)

    inner = alternator.compile(lambda x: x + 1, backend="eager")

    def backend(gm: Any, inputs: list[Any]) -> Any:
        assert torch.equal(inner(x()), x() + 1)  # a compiled function while another is compiled
        return lambda *args: (inner(gm(*args)[0]),)

    outer = alternator.compile(lambda x: x * 2, backend=backend)
    for _ in range(2):
        assert torch.equal(outer(x()), x() * 2 + 1)


def test_autograd_threads() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return inner(grad)

    inner = alternator.compile(lambda g: g * 2, backend="eager")
    outer = alternator.compile(lambda x: x.sin(), backend="aot_eager")
    leaf = x().requires_grad_()
    outer(Double.apply(leaf)).sum().backward()
    torch.testing.assert_close(leaf.grad, 2 * (x() * 2).cos())


@pytest.mark.parametrize("watch", [sys.setprofile, sys.settrace])
def test_profilers_and_debuggers(watch: Any) -> None:
    """They see the program run once, not the trace of it; and what is compiled meanwhile is compiled."""
    compiled = alternator.compile(lambda x: inner_step(x) * 2, backend="eager", fullgraph=True)
    events: list[str] = []
    watch(lambda frame, event, arg: events.append(frame.f_code.co_name))
    try:
        result = compiled(x())
    finally:
        watch(None)
    assert torch.equal(result, (x() + 1) * 2)
    assert torch.equal(compiled(x()), result)
    if sys.version_info >= (3, 12):
        # There they rewrite the code that they watch: the call falls back to eager, and is seen.
        assert "inner_step" in events
        compiled(x())
        compiled(x())
        assert alternator.counters()["hits"] >= 1
    else:
        assert "inner_step" not in events
        assert alternator.counters()["hits"] == 1


def inner_step(x: Any) -> Any:
    return x + 1


def test_generators_and_coroutines_run_as_they_are() -> None:
    @alternator.compile(backend="eager")
    def numbers(x: Any) -> Any:
        yield x + 1
        yield x + 2

    assert [torch.equal(a, b) for a, b in zip(numbers(x()), (x() + 1, x() + 2), strict=True)] == [True, True]


@pytest.mark.parametrize("watch", [sys.setprofile, sys.settrace])
def test_code_that_a_profiler_never_saw(watch: Any) -> None:
    """One that was on and is off again is in nobody's way; code that it saw is compiled again too."""

    def seen(x: Any) -> Any:
        return x.sin() + 1

    def unseen(x: Any) -> Any:
        return x.cos() + 1

    # On 3.12, code that was marked is freed of its marks by the next call, which falls back to eager.
    for f, eager in ((unseen, 0), (seen, 1)):
        watch(lambda *event: None)
        seen(x())
        watch(None)
        alternator.reset()
        compiled = alternator.compile(f, backend="eager")
        for _ in range(3):
            assert torch.equal(compiled(x()), f(x()))
        counters = alternator.counters()
        assert counters["eager"] <= eager and counters["traces"] >= 1
        assert counters["hits"] == 2 - counters["eager"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_compile(run_python: Callable[..., str]) -> None:
    said = run_python(
        """
import os, torch, alternator
torch.set_num_threads(1)
net = torch.nn.Linear(4, 4)
f = alternator.compile(net, backend="eager")
g = alternator.compile(lambda x: x * 2, backend="eager")
x = torch.ones(2, 4)
f(x)
child = os.fork()
if child == 0:
    ok = torch.equal(f(x), net(x)) and torch.equal(g(x), x * 2) and alternator.counters()["hits"] == 1
    os._exit(0 if ok else 1)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert torch.equal(f(x), net(x))
"""
    )
    assert "child 0" in said


def test_dynamo_inside_of_ours() -> None:
    inner = torch.compile(lambda x: x + 1, backend="eager")
    outer = alternator.compile(lambda x: inner(x) * 2, backend="eager")
    for _ in range(2):
        assert torch.equal(outer(x()), (x() + 1) * 2)
    assert torch.equal(inner(x()), x() + 1)
    torch._dynamo.reset()


def test_dynamo_inside_of_ours_is_a_part_of_it() -> None:
    net = torch.nn.Linear(4, 4)
    net.compile(backend="eager")
    wrapped = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    inner = torch.compile(lambda x, by=2: x * by, backend="eager", fullgraph=True)
    whole = alternator.compile(lambda x: wrapped(net(inner(x))) + inner(x, by=3), backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(whole(x()), wrapped._orig_mod(net(x() * 2)) + x() * 3)
    assert alternator.counters()["graphs"] == 1 and not alternator.counters()["breaks"]

    @torch.compile(backend="eager")
    def failing(x: Any) -> Any:
        raise KeyError(x.shape[0])

    outer = alternator.compile(lambda x: failing(x + 1), backend="eager")
    for _ in range(2):
        with pytest.raises(KeyError, match="4"):
            outer(x())
    torch._dynamo.reset()


def test_ours_inside_of_dynamo() -> None:
    inner = alternator.compile(lambda x: x + 1, backend="eager")
    outer = torch.compile(lambda x: inner(x) * 2, backend="eager")
    for _ in range(2):
        assert torch.equal(outer(x()), (x() + 1) * 2)
    assert torch.equal(inner(x()), x() + 1)
    torch._dynamo.reset()


def test_one_after_the_other() -> None:
    graphs: list[Any] = []

    def backend(gm: Any, inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    def f(x: Any) -> Any:
        return x.sin() + 1

    ours = alternator.compile(f, backend=backend)
    theirs = torch.compile(f, backend=backend)
    for _ in range(3):
        assert torch.equal(ours(x()), f(x()))
        assert torch.equal(theirs(x()), f(x()))
    assert len(graphs) == 2
    assert alternator.counters()["hits"] == 2
    torch._dynamo.reset()


def test_what_is_forgotten_is_gone() -> None:
    """Also what was compiled of functions that it called."""

    def fn(x: Any) -> Any:
        return sorted([x, x + 1], key=lambda t: t.sum().item())[0]

    def use(inside: bool) -> Any:
        def backend(gm: Any, inputs: Any) -> Any:
            return gm.forward

        if inside:
            with alternator.compiling(backend=backend):
                fn(torch.ones(3))
        else:
            alternator.compile(fn, backend=backend, isolate_recompiles=True)(torch.ones(3))
        return weakref.ref(backend)

    for inside in (False, True):
        seen = use(inside)
        gc.collect()
        assert seen() is None, inside


def test_a_copy_of_a_bound_one() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.act = alternator.compile(self.act, backend="eager")  # type: ignore[method-assign]

        def act(self, x: Any) -> Any:
            return self.layer(x)

    net = Net()
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.layer.weight.zero_()
        other.layer.bias.zero_()
    x = torch.ones(2)
    assert torch.equal(other.act(x), torch.zeros(2)) and torch.equal(net.act(x), net.layer(x))
    assert other.act.__self__ is other and copy.copy(net.act) is net.act


@pytest.mark.parametrize("how", ["interrupted", "fails", "fails in a run", "refuses"])
@pytest.mark.parametrize("deep", [False, True])
def test_an_error_behind_a_break_leaves_the_frames(how: str, deep: bool) -> None:
    """Of ours, or of the backend's: locks are given back, `finally` runs, the modes are as before."""
    log: list[Any] = []
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        if len(graphs) == 1:
            return gm.forward
        if how == "interrupted":
            raise KeyboardInterrupt
        if how == "fails":
            raise RuntimeError("no")

        def run(*args: Any) -> Any:
            raise RuntimeError("at run")

        return run

    def inner(x: Any) -> Any:
        alternator.graph_break()
        log.append("behind")
        if how == "refuses":
            with alternator.error_on_graph_break(True):
                alternator.graph_break()
        return x * 2

    def fn(x: Any) -> Any:
        with lock, torch.no_grad():
            x = x + 1
            try:
                if deep:
                    return inner(x)
                alternator.graph_break()
                log.append("behind")
                if how == "refuses":
                    with alternator.error_on_graph_break(True):
                        alternator.graph_break()
                return x * 2
            finally:
                log.append("finally")

    lock = threading.Lock()
    compiled = alternator.compile(fn, backend=backend)
    alternator.reset()
    with pytest.raises((RuntimeError, KeyboardInterrupt)):
        compiled(torch.ones(2))
    assert torch.is_grad_enabled() and not lock.locked() and log[-1] == "finally"


def test_an_error_behind_a_break_can_be_caught() -> None:
    seen: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        seen.append(gm)
        if len(seen) > 1:
            raise RuntimeError("no")
        return gm.forward

    def fn(x: Any) -> Any:
        y = x + 1
        try:
            alternator.graph_break()
            return y * 2
        except BackendFailed:
            return y * 3

    assert torch.equal(alternator.compile(fn, backend=backend)(torch.ones(2)), torch.full((2,), 6.0))

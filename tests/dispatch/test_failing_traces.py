"""A trace that fails half-way leaves process and objects as they were: no memory, an interrupt, a backend that raises."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
from typing import Any

import pytest
import torch
from harness import T, modes
from torch import nn
from trace_support import eager_backend, in_child


class Box:
    def __init__(self):
        self.items, self.n = [1, 2], 3


def pure_python(o, n):
    """One effect, so that the world is either before or after."""
    total = sum(i * n for i in o.items) + len({"a": o.n})
    text = f"{total}:{[str(i) for i in o.items]}"
    o.result = (total, text)
    return total


def with_tensors(o, x):
    y = (x + o.n).relu() * len(o.items)
    o.result = y
    return y + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layers(x)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    return type(a) is type(b) and a == b


def disturbed(front: Any, fn: Any, argument: Any, disturb: Any, backend: Any = eager_backend) -> str:
    """A first call under a disturbance, then clean ones. Says how the first ended."""
    front.reset()
    box, twin = Box(), Box()
    wanted = fn(twin, argument)
    f = front.compile(fn, backend)
    before = modes()
    ended = "done"
    try:
        with disturb:
            result = f(box, argument)
    except (Exception, KeyboardInterrupt) as error:  # torch makes other errors of a MemoryError
        ended = type(error).__name__
    assert modes() == before, (modes(), before)
    assert (box.items, box.n) == ([1, 2], 3)
    if ended == "done":
        assert same(result, wanted) and same(box.result, twin.result)
    elif hasattr(box, "result"):
        assert same(box.result, twin.result)
    again = Box()
    for _ in range(2):
        assert same(f(again, argument), wanted) and same(again.result, twin.result)
    return ended


# ------------------------------------------------------------------------------------------------------- no memory


class NoMemory:
    """The allocation with this number fails, and no other."""

    def __init__(self, number: int):
        self.number = number
        self.was_reached = True

    def __enter__(self):
        import _testcapi

        _testcapi.set_nomemory(self.number, self.number + 1)

    def __exit__(self, *exc):
        import _testcapi

        # Where the call made fewer allocations, it is one of these that fails.
        try:
            [object() for _ in range(self.number + 1)]
        except MemoryError:
            self.was_reached = False
        _testcapi.remove_mem_hooks()


def sweep(front: Any, fn: Any, argument: Any, stride: int) -> None:
    """Fails each allocation of a call in turn."""
    front.reset()
    failed = number = 0
    while number < 60000:
        disturb = NoMemory(number)
        # No torch.fx: its nodes take every allocation for granted, and crash.
        ended = disturbed(front, fn, argument, disturb, "eager")
        assert ended != "SystemError", "no result, and no exception either"
        if not disturb.was_reached:
            break
        failed += ended != "done"
        number += stride if number > 200 else 1
    # What fails inside of a trace makes the call fall back to eager: only some of them raise.
    assert failed, "no allocation was hit: the test tests nothing"


@pytest.fixture
def testcapi():
    return pytest.importorskip("_testcapi", reason="this CPython was built without _testcapi")


# Plain programs that fail each allocation in turn crash there too.
survives = pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="CPython 3.12 itself does not survive failing allocations"
)


@survives
@in_child
def test_memory_error_at_every_allocation_in_python(front):
    sweep(front, pure_python, 3, 3)


@survives
@in_child
def test_memory_error_at_every_allocation_with_tensors(front):
    sweep(front, with_tensors, T(2), 3)


# --------------------------------------------------------------------------------------------------------- interrupts


class Interrupt:
    """KeyboardInterrupt after so many seconds of the call: the signal is seen at the next instruction that looks."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def __enter__(self):
        signal.signal(signal.SIGALRM, self.hit)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *exc):
        signal.setitimer(signal.ITIMER_REAL, 0)

    @staticmethod
    def hit(*_):
        raise KeyboardInterrupt


def interrupted(front: Any, fn: Any, argument: Any) -> dict[str, int]:
    import time

    started = time.perf_counter()
    for _ in range(5):
        disturbed(front, fn, argument, Interrupt(0))
    span = (time.perf_counter() - started) / 5
    counts: dict[str, int] = {}
    shots = 400
    for i in range(shots):
        try:
            ended = disturbed(front, fn, argument, Interrupt(1e-6 + span * i / shots))
        except KeyboardInterrupt:  # it came when the call was over
            signal.setitimer(signal.ITIMER_REAL, 0)
            ended = "late"
        counts[ended] = counts.get(ended, 0) + 1
    return counts


@in_child
def test_keyboard_interrupt_at_any_time_in_python(front):
    counts = interrupted(front, pure_python, 3)
    assert counts.get("KeyboardInterrupt", 0) + counts.get("late", 0) > 0, counts


@in_child
def test_keyboard_interrupt_at_any_time_with_tensors(front):
    counts = interrupted(front, with_tensors, T(2))
    assert counts.get("KeyboardInterrupt", 0) + counts.get("late", 0) > 0, counts


@in_child
def test_a_signal_handler_is_no_part_of_what_it_interrupts(front):
    """It runs concretely, once for each signal; a later call that comes from the cache does not run it again."""
    seen = []

    def fn(n, x):
        total = 0
        for i in range(n):
            total += i & 1
        return x + total + len(seen) * 0

    signal.signal(signal.SIGALRM, lambda *_: seen.append(len(seen)))
    f = front.compile(fn, eager_backend)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    n = 300_000
    wanted = torch.ones(2) + n // 2
    for _ in range(3):
        assert torch.equal(f(n, torch.ones(2)), wanted)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert seen == [0], seen


@in_child
def test_keyboard_interrupt_at_every_instruction(front):
    """With a hook in the core that interrupts a trace before its n-th instruction."""
    core = getattr(getattr(front, "module", None), "_C", None)
    interrupt_at = getattr(core, "interrupt_at", None)
    if interrupt_at is None:
        return  # the sweep over time above is what there is

    class At:
        def __init__(self, number):
            self.number = number

        def __enter__(self):
            interrupt_at(self.number)

        def __exit__(self, *exc):
            interrupt_at(-1)

    for fn, argument in ((pure_python, 3), (with_tensors, T(2))):
        number = 0
        while disturbed(front, fn, argument, At(number)) != "done":
            number += 1
        assert number > 20, number


@in_child
def test_interrupts_in_a_module(front):
    net, twin = Net(), Net()
    twin.load_state_dict(net.state_dict())
    x = T(2, 2)
    wanted = twin(x)
    for i in range(200):
        front.reset()
        f = front.compile(net, eager_backend)
        calls = net.calls
        try:
            with Interrupt(1e-6 + i * 2e-5):
                f(x)
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert net.calls in (calls, calls + 1)
        assert torch.is_grad_enabled() and torch._C._len_torch_function_stack() == 0
        assert torch.equal(f(x), wanted)


def dispatch_state() -> tuple[str, ...]:
    """What the dispatcher of torch goes by in this thread."""
    return (
        str(torch._C._dispatch_tls_local_include_set()),
        str(torch._C._dispatch_tls_local_exclude_set()),
        modes(),
    )


class Left:
    """Context managers of torch's, entered and not left: what an interrupt between entering and the body leaves behind."""

    def __init__(self):
        self.managers = [self.keys(), torch._C._EnablePythonDispatcher(), self.keys(), torch.no_grad()]
        for manager in self.managers:
            manager.__enter__()

    @staticmethod
    @contextlib.contextmanager
    def keys():
        with torch._C._PreserveDispatchKeyGuard():
            yield


def interrupt_now() -> None:
    signal.signal(signal.SIGALRM, Interrupt.hit)
    signal.raise_signal(signal.SIGALRM)


def ends_later(call: Any) -> None:
    """A call that is interrupted, and an exception that is kept for a while: neither it nor its end disturbs the thread."""
    before = dispatch_state()
    kept = None
    try:
        call()
    except KeyboardInterrupt as error:
        kept = error
    assert kept is not None, "the interrupt was lost"
    assert dispatch_state() == before, dispatch_state()
    del kept
    gc.collect()
    assert dispatch_state() == before, dispatch_state()
    assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))


@in_child
def test_what_an_interrupted_backend_left_open_does_not_end_later(front):
    def backend(module, example_inputs):
        left = Left()
        interrupt_now()
        return left

    if not front.counts:
        return
    box = Box()
    f = front.compile(with_tensors, backend)
    ends_later(lambda: f(box, T(2)))
    assert not hasattr(box, "result")


def fake_kernels(interrupted: list[bool]) -> Any:
    """An operator whose fake kernel is interrupted, in the midst of a trace."""

    def kernel(x):
        left = Left() if interrupted[0] else None
        if interrupted[0]:
            interrupt_now()
        return torch.empty_like(x), left

    schema = "(Tensor x) -> Tensor"
    op = torch.library.custom_op("alternator_tests::plain", lambda x: x + 1, mutates_args=(), schema=schema)
    op.register_fake(lambda x: kernel(x)[0])
    return op


@in_child
def test_what_an_interrupted_trace_left_open_does_not_end_later(front):
    interrupted = [True]
    op = fake_kernels(interrupted)

    def fn(o, x):
        o.n += 1
        return op(x) * o.n

    if not front.counts:
        return
    box = Box()
    f = front.compile(fn, eager_backend)
    ends_later(lambda: f(box, T(2)))
    assert box.n == 3
    interrupted[0] = False
    assert torch.equal(f(box, T(2)), (T(2) + 1) * 4) and box.n == 4


@in_child
def test_an_interrupt_is_not_taken_for_an_error_of_torchs(front):
    """It is neither a graph break, after which the call goes on, nor what the function raises from then on."""
    interrupted = [True]
    op = fake_kernels(interrupted)

    def call(x):
        return op(x) + 1

    def twice(x):
        y = x + 1
        return [op(one) for one in (x, y)]

    for fn in (call, twice):
        interrupted[0] = True
        f = front.compile(fn, eager_backend)
        if front.counts:
            ends_later(lambda f=f: f(T(2)))
        interrupted[0] = False
        result, wanted = f(T(2)), fn(T(2))
        assert all(map(torch.equal, result, wanted))


@in_child
def test_an_interrupt_that_the_program_raises_is_its_own(front):
    def fn(x, o):
        o.n += 1
        try:
            raise KeyboardInterrupt("mine")
        except KeyboardInterrupt as error:
            o.items.append(str(error))
        if o.n > 4:
            raise KeyboardInterrupt
        return x + o.n

    f = front.compile(fn, eager_backend)
    box = Box()
    assert torch.equal(f(T(2), box), T(2) + 4)
    for n in (5, 6):
        with pytest.raises(KeyboardInterrupt):
            f(T(2), box)
        assert box.n == n and box.items == [1, 2] + ["mine"] * (n - 3)


# ------------------------------------------------------------------------------------------------------------ backends


@in_child
def test_a_backend_that_raises(front):
    """The call either raises, with nothing written, or runs eagerly: never both, never half."""
    asked = []

    def backend(module, example_inputs):
        asked.append(1)
        raise ZeroDivisionError("from the backend")

    box, twin = Box(), Box()
    wanted = with_tensors(twin, T(2))
    f = front.compile(with_tensors, backend)
    for _ in range(3):
        before = modes()
        try:
            result = f(box, T(2))
        except Exception as error:
            assert "from the backend" in repr(error) + repr(error.__cause__)
            assert not hasattr(box, "result")
        else:
            assert same(result, wanted) and same(box.result, twin.result)
            del box.result
        assert modes() == before
    good = front.compile(with_tensors, eager_backend)
    assert same(good(box, T(2)), wanted)


@in_child
def test_a_backend_that_is_interrupted(front):
    def backend(module, example_inputs):
        raise KeyboardInterrupt

    box = Box()
    f = front.compile(with_tensors, backend)
    if not front.counts:
        return
    with pytest.raises(KeyboardInterrupt):
        f(box, T(2))
    assert not hasattr(box, "result") and torch._C._len_torch_function_stack() == 0


@in_child
def test_a_backend_that_changes_modes(front):
    def backend(module, example_inputs):
        torch.set_grad_enabled(False)
        return module.forward

    f = front.compile(lambda x: x * 2, backend)
    x = T(2, rg=True)
    f(x)
    torch.set_grad_enabled(True)
    assert f(x).requires_grad


@in_child
def test_a_backend_that_calls_the_compiled_function(front):
    depth = []

    def backend(module, example_inputs):
        depth.append(1)
        if len(depth) < 3:
            assert same(f(T(2)), T(2) + 1)
        return module.forward

    f = front.compile(lambda x: x + 1, backend)
    assert same(f(T(2)), T(2) + 1)
    assert same(f(T(2)), T(2) + 1)


@in_child
def test_a_backend_that_resets(front):
    def backend(module, example_inputs):
        front.reset()
        return module.forward

    f = front.compile(with_tensors, backend)
    wanted = with_tensors(Box(), T(2))
    for _ in range(3):
        assert same(f(Box(), T(2)), wanted)


@in_child
def test_a_backend_that_edits_the_world(front):
    """The entry was made for a world that is gone: its guards are asked once more before it is believed."""
    box = Box()

    def backend(module, example_inputs):
        box.n = 50
        return module.forward

    f = front.compile(lambda o, x: x * o.n, backend)
    if not front.counts:
        return
    first = f(box, T(2))
    assert same(first, T(2) * 3) or same(first, T(2) * 50)
    assert same(f(box, T(2)), T(2) * 50)


@in_child
def test_a_graph_that_raises(front):
    def backend(module, example_inputs):
        def broken(*args):
            raise ZeroDivisionError("in the graph")

        return broken

    if not front.counts:
        return
    box = Box()
    f = front.compile(with_tensors, backend)
    for _ in range(2):
        before = modes()
        with pytest.raises(ZeroDivisionError, match="in the graph"):
            f(box, T(2))
        assert modes() == before and not hasattr(box, "result")


@in_child
def test_a_graph_that_returns_the_wrong_number(front):
    if not front.counts:
        return
    for wrong in ((), (T(2), T(2), T(2), T(2)), None, 5):
        front.reset()
        box = Box()
        f = front.compile(with_tensors, lambda module, example_inputs, wrong=wrong: lambda *args: wrong)
        with pytest.raises(Exception):  # noqa: B017, PT011 - any exception, but no crash
            f(box, T(2))
        assert not hasattr(box, "result")


@in_child
def test_not_a_backend_and_not_a_function(front):
    if not front.counts:
        return
    for fn, backend in (
        (len, "eager"),
        (3, "eager"),
        (None, "eager"),
        (with_tensors, "no such backend"),
        (with_tensors, 5),
    ):
        try:
            f = front.compile(fn, backend)
            f(Box(), T(2))
        except Exception as error:
            assert str(error)
    assert same(front.compile(with_tensors, "eager")(Box(), T(2)), with_tensors(Box(), T(2)))


# --------------------------------------------------------------------------------------------------------- the stack


@in_child
def test_deep_recursion(front):
    def deep(n, x):
        return x if n == 0 else deep(n - 1, x)

    f = front.compile(deep, eager_backend)
    with pytest.raises(RecursionError):
        f(sys.getrecursionlimit() * 2, T(2))
    assert same(f(100, T(2)), T(2))
    assert same(f(100, T(2)), T(2))


@in_child
def test_called_near_the_recursion_limit(front):
    def fn(x):
        return x + 1

    def at(depth):
        return f(T(2)) if depth == 0 else at(depth - 1)

    limit = sys.getrecursionlimit()
    for room in range(2, 60):
        front.reset()
        f = front.compile(fn, eager_backend)
        here = len(__import__("inspect").stack(0))
        try:
            assert same(at(limit - here - room), T(2) + 1)
        except RecursionError:
            pass
        assert torch._C._len_torch_function_stack() == 0
        assert same(f(T(2)), T(2) + 1)

"""The user's world is never written while tracing: objects that see every write, and threads that look all the time, see nothing.

That nothing has been written when a trace is done is checked for every program (see Spy in harness.py). Here are the moments between.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch
from harness import T
from torch import nn
from trace_support import eager_backend, in_child


class Watcher:
    """A thread that looks at something as often as it can, and remembers what it saw."""

    def __init__(self, look):
        self.look, self.seen, self.errors = look, set(), []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stop.is_set():
            try:
                self.seen.add(self.look())
            except Exception as error:
                self.errors.append(repr(error))
                return

    def __enter__(self):
        self.interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.thread.join()
        sys.setswitchinterval(self.interval)
        assert not self.errors, self.errors


def retraced(front: Any, fn: Any, times: int, call: Any) -> None:
    """Calls a function that is traced again each time."""
    for _ in range(times):
        front.reset()
        call(front.compile(fn, eager_backend))


class Noting:
    """Sees every write to itself, also those that go past __setattr__: through its dict's version."""

    def __init__(self):
        self.items, self.table, self.n = [1], {"k": 1}, 0


def versions(*dicts: dict[Any, Any]) -> tuple[int, ...]:
    """The private version tags of dicts: any write, even of the same value, changes them (CPython 3.11)."""
    import ctypes

    return tuple(ctypes.c_uint64.from_address(id(d) + 24).value for d in dicts)


@in_child
def test_version_tags_are_read_right(front):
    d = {"a": 1}
    before = versions(d)
    assert versions(d) == before
    d["a"] = 2
    assert versions(d) != before


@in_child
def test_no_dict_is_written_before_the_backend_is_called(front):
    one = Noting()
    space = {"COUNT": 0, "torch": torch}
    exec(
        "def fn(o, x):\n global COUNT\n COUNT += 1\n o.n += 1\n o.table['k'] = o.n\n o.items.append(x)\n return x + o.n",
        space,
    )
    watched = [vars(one), one.table, space]
    seen = []

    def backend(module, example_inputs):
        seen.append((versions(*watched), list(one.items)))
        return module.forward

    f = front.compile(space["fn"], backend)
    for _ in range(3):
        before = versions(*watched), list(one.items)
        seen.clear()
        f(one, T(2))
        assert all(state == before for state in seen)
        assert len(one.items) == before[1].__len__() + 1
    assert one.n == 3 and space["COUNT"] == 3


@in_child
def test_the_version_of_a_tensor_is_not_moved_by_a_trace(front):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x):
            self.total.add_(x)
            x.mul_(2)
            return x + self.total

    net, x = Net(), T(2)
    seen = []

    def backend(module, example_inputs):
        seen.append((net.total._version, x._version, net.total.tolist()))
        return module.forward

    front.compile(net, backend)(x)
    assert all(state == (0, 0, [0.0, 0.0]) for state in seen)
    assert (net.total._version, x._version) == (1, 1)


@in_child
def test_a_thread_never_sees_what_is_undone_later(front):
    """In eager a watcher could see 1: the program writes it and takes it back. A replay writes the difference only."""

    class Box:
        n = 0

    box = Box()
    box.n = 0

    def fn(o, x):
        o.n = 1
        for i in range(50):
            x = x + i
        o.n = 0
        return x

    f = front.compile(fn, eager_backend)
    f(box, T(2))
    if front.counters()["eager"] or not front.counts:
        return
    with Watcher(lambda: box.n) as watcher:
        retraced(front, fn, 100, lambda f: f(box, T(2)))
    assert watcher.seen == {0}


@in_child
def test_a_thread_sees_only_states_between_calls(front):
    class Box:
        pass

    box = Box()
    box.items, box.table = [], {}

    def fn(o, x):
        o.items.append(1)
        for i in range(30):
            x = x + i
        o.items.append(2)
        o.table["n"] = len(o.items)
        return x

    front.compile(fn, eager_backend)(box, T(2))
    if front.counters()["eager"] or not front.counts:
        return
    with Watcher(lambda: len(box.items)) as watcher:
        retraced(front, fn, 50, lambda f: f(box, T(2)))
    assert box.items == [1, 2] * 51 and all(length % 2 == 0 for length in watcher.seen)


@in_child
def test_a_second_thread_uses_the_model_during_traces(front):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
            self.config = {"scale": 2.0}

        def forward(self, x):
            return self.layers(x) * self.config["scale"]

    net, x = Net(), T(2, 4)
    wanted = net(x).detach()
    with Watcher(lambda: torch.equal(net(x), wanted)) as watcher:
        retraced(front, net, 40, lambda f: torch.equal(f(x), wanted) or sys.exit("the compiled model is wrong"))
    assert watcher.seen == {True}


@in_child
def test_grad_mode_and_default_dtype_of_other_threads(front):
    def fn(x):
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x @ x
        return y, z

    def look():
        return (
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_default_dtype(),
            (torch.ones(2, 2) @ torch.ones(2, 2)).dtype,
        )

    with Watcher(look) as watcher:
        retraced(front, fn, 40, lambda f: f(T(2, 2, rg=True)))
    assert watcher.seen == {(True, False, torch.float32, torch.float32)}


@in_child
def test_torch_calls_of_other_threads_are_not_recorded(front):
    sizes = []

    def backend(module, example_inputs):
        sizes.append(sum(node.op.startswith("call") for node in module.graph.nodes))
        return module.forward

    def fn(x):
        for i in range(20):
            x = x + i
        return x

    with Watcher(lambda: torch.ones(2).mul(3).sum().item()) as watcher:
        for _ in range(40):
            front.reset()
            assert torch.equal(front.compile(fn, backend)(T(2)), fn(T(2)))
    assert watcher.seen == {6.0} and set(sizes) <= {20}


@in_child
def test_two_threads_make_the_first_call(front):
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    inputs = [T(2, 4, s=i) for i in range(8)]
    wanted = [net(x).detach() for x in inputs]
    wrong: list[Any] = []

    def work(f, barrier, i):
        barrier.wait()
        for _ in range(5):
            if not torch.equal(f(inputs[i]), wanted[i]):
                wrong.append(i)

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for _ in range(10):
        front.reset()
        f = front.compile(net, eager_backend)
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=work, args=(f, barrier, i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    sys.setswitchinterval(old)
    assert not wrong


@in_child
def test_another_thread_edits_during_a_trace(front):
    """A new entry is believed only if its guards still hold: whatever happens, a result belongs to one of the states."""

    class Box:
        scale = 2

    box = Box()
    box.scale = 2
    x = T(2)
    allowed = [x * 2, x * 3]

    def fn(o, x):
        y = x * o.scale
        for _ in range(20):
            y = y + 0
        return y

    def flip():
        box.scale = 5 - box.scale
        return box.scale

    with Watcher(flip) as watcher:
        for _ in range(60):
            front.reset()
            f = front.compile(fn, eager_backend)
            for _ in range(5):
                result = f(box, x)
                assert any(torch.equal(result, one + 0) for one in allowed), result
    assert watcher.seen == {2, 3}
    for scale in (2, 3, 2):
        box.scale = scale
        assert torch.equal(f(box, x), x * scale)


@in_child
def test_another_thread_grows_a_list_during_a_trace(front):
    items = [1]
    x = T(2)

    def fn(x):
        return x + len(items), len(items)

    def grow():
        if len(items) < 5000:
            items.append(1)
        return None

    with Watcher(grow):
        for _ in range(60):
            front.reset()
            f = front.compile(fn, eager_backend)
            for _ in range(5):
                result, length = f(x)
                assert torch.equal(result, x + length)


@in_child
def test_a_finalizer_does_not_run_in_a_trace(front):
    """Cyclic garbage with a finalizer is there while tracing: a collection in the trace would run it on the loop's stack."""
    import gc

    log = []

    class Final:
        def __init__(self):
            self.me = self

        def __del__(self):
            log.append(not torch.compiler.is_compiling())

    def fn(x):
        with torch.no_grad():
            for i in range(300):
                x = x + len([[i] for i in range(10)])
        return x

    gc.collect()
    enabled = gc.isenabled()
    for _ in range(20):
        front.reset()
        Final()
        front.compile(fn, eager_backend)(T(2))
    gc.collect()
    assert gc.isenabled() == enabled
    if front.counts and not front.counters()["eager"]:
        assert all(log)


def warning_program(x, out):
    y = torch.add(x, x, out=out)
    return x.T.sum() + y.sum()  # of three dimensions: torch warns of that once in a process


@in_child
def test_no_thread_sees_the_filters_of_warnings_change(front):
    """What torch warns of on fakes is kept back, and yet there is but one list of filters, which nobody writes to."""
    import warnings

    filters, contents = warnings.filters, list(warnings.filters)
    retraced(front, warning_program, 1, lambda f: f(T(2, 3, 3), T(5)))  # what torch loads once changes them for a while

    def look():
        return warnings.filters is filters and vars(warnings)["filters"] is filters and filters == contents

    with Watcher(look) as watcher:
        retraced(front, warning_program, 40, lambda f: f(T(2, 3, 3), T(5)))
    assert watcher.seen == {True}
    assert warnings.filters is filters and filters == contents


@in_child
def test_other_threads_catch_warnings_of_their_own(front):
    """What another thread takes over from the filters, it has with nothing of ours in it."""
    import warnings

    def fn(x, out):
        for _ in range(10):
            x = torch.add(x, 1, out=out[:0])
        return x

    def look():
        before = warnings.filters[:]
        with warnings.catch_warnings():
            inside = warnings.filters[:]
        return len(before), len(inside), {type(one[1]).__module__ for one in before} <= {"builtins", "re"}

    warnings.simplefilter("ignore")
    count = len(warnings.filters)
    retraced(front, fn, 1, lambda f: f(T(2), T(5)))
    with Watcher(look) as watcher:
        retraced(front, fn, 30, lambda f: f(T(2), T(5)))
    assert watcher.seen == {(count, count, True)}, watcher.seen


@in_child
def test_a_module_does_not_learn_what_was_warned_of_in_a_trace(front):
    """Its `__warningregistry__` is made by the first warning that is shown, and says which were: in a trace, none is."""
    space = {"torch": torch}
    exec("def fn(x, out, n):\n torch.add(x, n, out=out)\n return out * 2", space)
    seen = []

    def backend(module, example_inputs):
        seen.append("__warningregistry__" in space)
        return module.forward

    f = front.compile(space["fn"], backend)
    f(T(2), T(5), 1)
    if front.counts:
        assert seen == [False] and len(space["__warningregistry__"]) == 2


@in_child
def test_a_line_that_has_warned_does_not_warn_again_because_it_is_compiled_again(front):
    import warnings

    space = {"torch": torch, "__name__": "some_module"}
    exec("def fn(x, out, n):\n torch.add(x, n, out=out)\n return out * 2", space)
    f = front.compile(space["fn"], eager_backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter("default")
        for n in (1, 2, 3, 1, 2):
            f(T(2), T(5), n)
    assert [(one.filename, one.lineno) for one in caught] == [("<string>", 2)], [str(one) for one in caught]


@in_child
def test_torch_code_that_changes_filters_for_a_while(front):
    """A function of torch's that is called as a whole may set filters of its own: they are put back."""
    import warnings

    def quiet(x, out):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.add(x, x, out=torch.empty_like(out))
        torch.sub(x, 1, out=torch.empty_like(out))

    filters, contents = warnings.filters, list(warnings.filters)
    schema = "(Tensor x, Tensor(a!) out) -> ()"
    op = torch.library.custom_op("alternator_tests::quiet", lambda x, out: None, mutates_args=("out",), schema=schema)
    op.register_fake(lambda x, out: quiet(x, out))

    def fn(x, out):
        torch.ops.alternator_tests.quiet(x, out)
        return x + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inner, inside = warnings.filters, list(warnings.filters)
        retraced(front, fn, 3, lambda f: f(T(3), T(5)))
        assert warnings.filters is inner and inner == inside
    assert warnings.filters is filters and filters == contents
    assert not [one for one in caught if "resized" in str(one.message)], [str(one.message) for one in caught]


@in_child
def test_the_module_of_warnings_stays_a_module(front):
    import importlib
    import pickle
    import types
    import warnings

    assert isinstance(warnings, types.ModuleType) and "warnings.py" in repr(warnings)
    assert pickle.loads(pickle.dumps(warnings)) is warnings
    before = warnings.filters
    warnings.filters = [*before]
    assert vars(warnings)["filters"] is warnings.filters is not before
    warnings.filters = before
    assert importlib.reload(warnings) is warnings

    def fn(x):
        return x + len(warnings.filters), hasattr(warnings, "nothing"), warnings.__name__

    f = front.compile(fn, eager_backend)
    for _ in range(2):
        result, has, name = f(T(2))
        assert torch.equal(result, T(2) + len(warnings.filters)) and (has, name) == (False, "warnings")
        warnings.simplefilter("ignore", ResourceWarning)


@in_child
def test_a_fork_while_another_thread_traces(front):
    """The child goes on without that thread: the collector, the hook and torch's flags are as they were before the trace."""
    import gc
    import os
    import signal
    import warnings

    answers: list[int] = []

    def fork():
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                before = torch._C._get_warnAlways(), gc.isenabled(), torch.tensor([1.0]).tolist()
                compiled = front.compile(lambda x: (x + 1).relu(), eager_backend)
                right = all(torch.equal(compiled(T(2)), (T(2) + 1).relu()) for _ in range(2))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                os._exit(0 if right and before == (False, True, [1.0]) and gc.isenabled() else 3)
            finally:
                os._exit(4)
        answers.append(os.waitpid(child, 0)[1])

    def kernel(x):
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        return torch.empty_like(x)

    schema = "(Tensor x) -> Tensor"
    op = torch.library.custom_op("alternator_tests::forks", lambda x: x + 1, mutates_args=(), schema=schema)
    op.register_fake(kernel)
    f = front.compile(lambda x: op(x) * 2, eager_backend)
    assert torch.equal(f(T(2)), (T(2) + 1) * 2)
    assert set(answers) <= {0} and (answers or not front.counts), answers
    assert gc.isenabled() and not torch._C._get_warnAlways()


@in_child
def test_a_fork_while_another_thread_compiles(front):
    """Whatever lock that thread holds, it holds in the parent only."""
    import os
    import signal
    from types import ModuleType

    locks = [
        value
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and (name == "alternator" or name.startswith("alternator."))
        for value in [*vars(module).values(), getattr(vars(module).get("repeated"), "lock", None)]
        if isinstance(value, type(threading.Lock()) | type(threading.RLock()))
    ]
    ready, done = threading.Event(), threading.Event()

    def hold():
        for lock in locks:
            lock.acquire()
        ready.set()
        done.wait()
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            compiled = front.compile(lambda x: (x + 1).relu(), eager_backend)
            os._exit(0 if torch.equal(compiled(T(2)), (T(2) + 1).relu()) else 3)
        finally:
            os._exit(4)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0

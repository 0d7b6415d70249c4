"""Runs a program eagerly and compiled, over a sequence of calls with edits in between, and compares all that can be observed.

A program is a function of one argument, written as a script:

    @program(graphs=1)
    def test_scale(t):
        scale = [2.0]

        def fn(x):
            return x * scale[0]

        f = t.compile(fn)
        f(T(3))
        f.hit(T(3))      # must come from the cache
        scale[0] = 3.0   # an edit
        f(T(3))

After every call are compared: the result, the error (type, text, cause, context, traceback lines), the arguments, the function
with its cells, defaults and attributes, the globals that the program set, what `t.watch` names, everything reachable from these
(identity, aliasing, order, classes, tensors with strides, storages, versions, gradients), output, warnings, logs, the random
generators and the modes of the thread. At the end, all results and arguments are looked at once more.

The script runs in a forked child, on a fresh copy of its module's globals each time:

    eager, each call looked at          against   compiled, each call looked at
    eager, looked at only at the end    against   compiled once more with the entries of the first time

The second pair exists because looking disturbs (it makes instance dicts), and because entries must hold for other objects too.
A third compiled run has a spy as its backend: when a trace is done and nothing has been replayed yet, the world must be as it was
before the call. It asks for fullgraph=True where one graph is expected. `one_graph` is the expectation that every call is captured;
what is not captured yet is listed in gaps.txt, and a listed gap that works fails.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import io
import logging
import os
import pickle
import random
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frontends import FRONTENDS, FrontEnd, chosen, missing
from snapshot import Observer, Snapshot, difference
from torch.utils._python_dispatch import _disable_current_modes

GAPS = Path(__file__).with_name("gaps.txt")
KNOWN_WRONG = Path(__file__).with_name("known_wrong.txt")
REGISTRY: dict[str, Program] = {}
TIMEOUT = 300  # Inductor takes a minute and more where nothing of it was compiled before
# What others leave in globals: the warnings module, and TorchDynamo.
GLOBAL_MARKS = ("__warningregistry__", "__builtins_dict__", "__compiled_fn", "__resume_at", "__import_", "_torchdynamo")


def T(*shape: int, s: float = 0, dtype: torch.dtype = torch.float32, rg: bool = False) -> torch.Tensor:
    """A tensor that is always the same and draws no random numbers."""
    count = 1
    for size in shape:
        count *= size
    values = torch.arange(count, dtype=torch.float64).add(s + 1).mul(0.7).sin()
    if not dtype.is_floating_point and not dtype.is_complex:
        values = values * 9
    return values.to(dtype).reshape(shape).requires_grad_(rg)


# ---------------------------------------------------------------------------------------------------------- one run


@dataclass
class Expectation:
    """What a call said about itself: "hit", "miss", "free" or nothing."""

    call: int
    wanted: str
    change: dict[str, Any]


@dataclass
class Record:
    """Everything that one run showed. It can be pickled."""

    events: list[tuple[str, Snapshot]] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)
    graphs: int = 0
    ended: str | None = None  # the script itself raised
    written: list[str] = field(default_factory=list)  # what a spy saw written while tracing


class Compiled:
    """A compiled function, as the script calls it."""

    def __init__(self, run: Run, fn: Any, options: dict[str, Any]) -> None:
        self.run, self.original = run, fn
        self.call = run.frontend.compile(fn, run.backend, fullgraph=run.fullgraph, **options) if run.frontend else fn
        self.error: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run.step(self, args, kwargs, None)

    def hit(self, *args: Any, **kwargs: Any) -> Any:
        """A call that must come from the cache."""
        return self.run.step(self, args, kwargs, "hit")

    def miss(self, *args: Any, **kwargs: Any) -> Any:
        """A call that cannot come from the cache."""
        return self.run.step(self, args, kwargs, "miss")

    def free(self, *args: Any, **kwargs: Any) -> Any:
        """A call that may run eagerly, also where one graph is expected."""
        return self.run.step(self, args, kwargs, "free")


class Run:
    """One run of a script: `t` in programs."""

    def __init__(
        self, frontend: FrontEnd | None, module: str, late: bool = False, fullgraph: bool = False, spying: bool = False
    ) -> None:
        self.frontend, self.late, self.fullgraph = frontend, late, fullgraph
        self.record = Record()
        self.observer = Observer(lambda name: name == module)
        self.observer.blind.add(id(self))
        self.spy = Spy(self) if spying else None
        self.watched: list[Callable[[], Any]] = []
        self.cleanup = ExitStack()
        self.held: list[Any] = []
        self.compiled: list[Compiled] = []
        self.fresh: dict[str, Any] = {}
        self.base: dict[str, Any] = {}
        self.output = io.StringIO()
        self.backend = backend_for(self)

    @property
    def eager(self) -> bool:
        return self.frontend is None

    # What scripts use

    def compile(self, fn: Any, **options: Any) -> Compiled:
        compiled = Compiled(self, fn, options)
        self.observer.blind.update((id(compiled), id(compiled.call) if self.frontend else 0))
        self.compiled.append(compiled)
        return compiled

    def watch(self, look: Callable[[], Any]) -> None:
        """State outside of the function that is not reachable from it."""
        self.watched.append(look)
        self.observer.blind.add(id(look))

    def note(self, value: Any) -> None:
        """One more thing to compare, at this point of the script."""
        self.see("note", value)

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """setattr, undone at the end of the run."""
        missing_one = object()
        old = vars(owner).get(name, missing_one) if isinstance(owner, type) else getattr(owner, name, missing_one)
        self.undo(lambda: delattr(owner, name) if old is missing_one else setattr(owner, name, old))
        setattr(owner, name, value)

    def undo(self, action: Callable[[], Any]) -> None:
        self.cleanup.callback(action)

    def enter(self, manager: Any) -> Any:
        return self.cleanup.enter_context(manager)

    # What is written down

    def see(self, what: str, value: Any) -> None:
        if self.late:
            self.held.append((what, value))
        else:
            self.record.events.append((what, self.observer(value)))

    def set_globals(self) -> dict[str, Any]:
        absent = object()
        return {
            name: value
            for name, value in self.fresh.items()
            if value is not self.base.get(name, absent) and not name.startswith(GLOBAL_MARKS)
        }

    def step(self, compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], wanted: str | None) -> Any:
        number = len(self.record.expectations)
        before = self.frontend.counters() if self.frontend else {}
        before = {**before, "breaks": dict(before.get("breaks", {}))}
        result = compiled.error = None
        if self.spy:
            self.spy.before(args, kwargs)
        try:
            result = compiled.call(*args, **kwargs)
        except BaseException as error:
            compiled.error = error
        if self.spy:
            self.spy.world = None
        after = self.frontend.counters() if self.frontend else {}
        self.record.expectations.append(Expectation(number, wanted or "", change_of(before, after)))
        call = f"call {number}"
        self.record.events.append((f"{call} output", self.take_output()))
        self.record.events.append((f"{call} modes", modes()))
        self.record.events.append((f"{call} rng", rng_states()))
        if self.late:
            # Looked at afterwards; held until then, so that identity can be told.
            self.held += [
                (f"{call} result", result),
                (f"{call} error", compiled.error),
                (f"{call} args", [*args, *kwargs.values()]),
            ]
            return result
        state = self.state()
        # One snapshot: what result, arguments and outside state share is seen.
        whole = self.observer((result, compiled.error, [*args, *kwargs.values()], state))
        self.record.events += zip(
            [f"{call} {part}" for part in ("result", "error", "args", "state")], whole[2:], strict=True
        )
        self.held.append((f"{call}, at the end", (result, args, kwargs)))
        return result

    def state(self) -> Any:
        return [one.original for one in self.compiled], self.set_globals(), [look() for look in self.watched]

    def take_output(self) -> str:
        text = self.output.getvalue()
        self.output.seek(0)
        self.output.truncate()
        return text

    def finish(self) -> None:
        for what, value in self.held:
            self.record.events.append((what, self.observer(value)))
        self.record.events.append(("state at the end", self.observer(self.state())))
        self.record.events.append(("output at the end", self.take_output()))
        self.held.clear()


class Spy:
    """Looks at the world before a call, and again when a trace is done but nothing has been replayed yet."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.observer = Observer(run.observer.home)
        self.observer.blind = run.observer.blind
        self.modes: list[Any] = []  # on torch's stack then
        self.world: Any = None  # the arguments and what they looked like; None: nothing can be said
        self.traces = 0

    def look(self, args: Any, kwargs: Any) -> list[tuple[str, Snapshot]]:
        with _disable_current_modes():  # looking at tensors is no operation of the program's
            seen = self.look_without_modes(args, kwargs)
        return [("modes", modes(compiling=True)), *seen]

    def look_without_modes(self, args: Any, kwargs: Any) -> list[tuple[str, Snapshot]]:
        run = self.run
        seen = [("output", run.output.getvalue()), ("rng", rng_states())]
        originals = [one.original for one in run.compiled]
        seen += [("world", self.observer(value)) for value in (*args, *kwargs.values(), *originals)]
        seen += [(f"global {name}", self.observer(value)) for name, value in run.set_globals().items()]
        # What is watched may be made for the occasion: its own identity says nothing.
        return [*seen, *(("watched", Observer(run.observer.home)(look())) for look in run.watched)]

    def before(self, args: Any, kwargs: Any) -> None:
        self.world = args, kwargs, self.look(args, kwargs)
        self.modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
        self.traces = self.count()

    def count(self) -> int:
        counters = self.run.frontend.counters() if self.run.frontend else {}
        return sum(counters.get(what, 0) for what in ("traces", "hits", "eager"))

    @contextmanager
    def hidden_modes(self) -> Iterator[None]:
        """A graph that has in it what the caller's modes do is compiled, and run, without them."""
        hidden = [] if torch._C._len_torch_function_stack() else self.modes
        for mode in hidden:
            torch._C._push_on_torch_function_stack(mode)
        yield
        for _ in hidden:
            torch._C._pop_torch_function_stack()

    def after_trace(self) -> None:
        # Before a call's later traces, its earlier parts have run, or all of it does so in eager and this is of a function that it calls.
        if self.world is None or self.count() > self.traces + 1:
            return
        args, kwargs, wanted = self.world
        with self.hidden_modes():
            got = self.look(args, kwargs)
        if [what for what, _ in wanted] != [what for what, _ in got]:
            self.run.record.written.append(f"other globals: {set(dict(wanted)) ^ set(dict(got))}")
            return
        for (what, a), (_, b) in zip(wanted, got, strict=True):
            words = difference(a, b)
            if words:
                self.run.record.written.append(f"{what}: {words}")


def backend_for(run: Run) -> Callable[..., Any]:
    def backend(module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Any:
        run.record.graphs += 1
        if run.spy and not run.record.written:
            run.spy.after_trace()

        def forward(*args: Any) -> Any:
            if run.spy:
                run.spy.world = None  # what comes after a first replay is no longer the world before
            return module.forward(*args)

        return forward if run.spy else module.forward

    return backend


def change_of(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    change = {name: after[name] - before.get(name, 0) for name in after if isinstance(after[name], int)}
    old = before.get("breaks", {})
    change["breaks"] = {
        why: count - old.get(why, 0) for why, count in after.get("breaks", {}).items() if count != old.get(why, 0)
    }
    return change


def modes(compiling: bool = False) -> str:
    """The state of the thread that a call must leave as eager leaves it. A graph that is cut apart is compiled in the states that its
    pieces run in, and one of which a part has gradients with gradients."""
    flags = compiling or (torch.are_deterministic_algorithms_enabled(), torch.backends.cuda.flash_sdp_enabled())
    return repr((
        compiling or torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        torch.get_default_device(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(), torch.is_anomaly_enabled(), flags,
        torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(), torch._C._is_torch_function_enabled(),
        torch._C._functorch.maybe_current_level(),
        gc.isenabled(), sys.getrecursionlimit(), sys.exc_info()[0], sys.gettrace(), sys.getprofile(),
    ))  # fmt: skip


def rng_states() -> str:
    """Comparable within one process."""
    states = torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[1].tobytes()
    return repr([hash(state) for state in states])


def own_loggers() -> list[logging.Logger]:
    """Of the front end and of torch: what they say is not the program's."""
    return [logging.getLogger("alternator"), logging.getLogger("torch")]


def run_script(script: Callable[[Run], None], run: Run) -> Record:
    """Runs a script on a fresh copy of its globals, with everything that it shows caught."""
    run.base = script.__globals__
    run.fresh = dict(script.__globals__)
    fresh_script = types.FunctionType(
        script.__code__, run.fresh, script.__name__, script.__defaults__, script.__closure__
    )
    torch.set_grad_enabled(True)
    torch.default_generator.manual_seed(0)  # torch.manual_seed looks for other devices too, which is slow
    random.seed(0)
    np.random.seed(0)
    torch.utils.hooks.RemovableHandle.next_id = 0  # hooks are kept under these numbers
    handler = logging.StreamHandler(run.output)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(filename)s:%(lineno)d %(funcName)s %(message)s"))
    root = logging.getLogger()
    quiet = [(logger, logger.propagate) for logger in own_loggers()]
    silent = logging.NullHandler()
    for logger, _ in quiet:
        logger.propagate = False
        logger.addHandler(silent)
    old_handlers, root.handlers = root.handlers, [handler]
    old_streams = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = run.output
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            try:
                with run.cleanup:
                    fresh_script(run)
                    run.finish()
            except Exception:
                run.record.ended = traceback.format_exc()
    finally:
        sys.stdout, sys.stderr = old_streams
        root.handlers = old_handlers
        for logger, propagates in quiet:
            logger.propagate = propagates
            logger.removeHandler(silent)
    run.record.counters = run.frontend.counters() if run.frontend else {}
    return run.record


# ------------------------------------------------------------------------------------------------------ comparisons


@dataclass
class Verdict:
    wrong: list[str] = field(default_factory=list)  # differs from eager
    uncaptured: list[str] = field(default_factory=list)  # right, but not one graph, or not from the cache
    broken: str | None = None  # the program itself: the test is wrong

    @property
    def text(self) -> str:
        return "\n".join(self.wrong + self.uncaptured)


def compare(wanted: Record, got: Record) -> list[str]:
    """The first differences of two records."""
    if got.ended and not wanted.ended:
        return [f"the script ended: {got.ended}"]
    found = []
    for (what, a), (other, b) in zip(wanted.events, got.events, strict=False):
        if what != other:
            return [*found, f"{what} in eager, {other} compiled"]
        words = difference(a, b)
        if words:
            found.append(f"{what}: {words}")
        if len(found) >= 3:
            return found
    if len(wanted.events) != len(got.events):
        found.append(f"{len(wanted.events)} events in eager, {len(got.events)} compiled")
    return found


BUGS = ("taint", "sanitizer", "internal", "bug", "real tensor")  # words in reasons that are never excused


class Program:
    """A script with its expectations."""

    def __init__(
        self,
        script: Callable[[Run], None],
        name: str,
        one_graph: bool = True,
        graphs: int | None = None,
        spied: bool = True,
    ) -> None:
        self.script, self.name, self.one_graph, self.graphs = script, name, one_graph, graphs
        self.spied = spied
        self.module = script.__module__

    def run(self, frontend: FrontEnd | None, **how: bool) -> Record:
        return run_script(self.script, Run(frontend, self.module, **how))

    def judge(self, frontend: FrontEnd, gap: bool = False) -> Verdict:
        """All the runs, in this process."""
        verdict = Verdict()
        wanted = self.run(None)
        if wanted.ended:
            verdict.broken = wanted.ended
            return verdict
        frontend.reset()
        first = self.run(frontend)
        verdict.wrong += [f"compiled: {line}" for line in compare(wanted, first)]
        if frontend.counts:
            verdict.wrong += self.bugs(first)
            if self.one_graph:
                verdict.uncaptured += self.shortfall(first)
        second = self.run(frontend, late=True)
        verdict.wrong += [
            f"compiled, entries used again: {line}" for line in compare(self.run(None, late=True), second)
        ]
        free = any(one.wanted == "free" for one in first.expectations)
        full = self.one_graph and not gap and not free and frontend.counts and not verdict.wrong
        frontend.reset()
        if not self.spied:
            return verdict
        spied = self.run(frontend, fullgraph=full, spying=True)
        how = "fullgraph=True" if full else "with a spy"
        verdict.wrong += [f"{how}: {line}" for line in compare(wanted, spied)]
        verdict.wrong += [f"written while tracing: {line}" for line in spied.written]
        frontend.reset()
        return verdict

    def bugs(self, record: Record) -> list[str]:
        reasons = {why for one in record.expectations for why in one.change["breaks"]}
        return [f"a bug was reported: {why}" for why in reasons if any(word in why.lower() for word in BUGS)]

    def shortfall(self, record: Record) -> list[str]:
        """How it falls short of one graph for every trace, and of the hits that it asks for."""
        found = []
        for one in record.expectations:
            change = one.change
            if one.wanted == "free":
                continue
            if change.get("eager") or change["breaks"]:
                found.append(f"call {one.call} was not captured: {change}")
            elif one.wanted == "hit" and (change["traces"] or change["hits"] != 1):
                found.append(f"call {one.call} was to hit: {change}")
            elif one.wanted == "miss" and change["hits"]:
                found.append(f"call {one.call} was to miss: {change}")
        if self.graphs is not None and record.graphs != self.graphs and not found:
            found.append(f"{self.graphs} graphs wanted, the backend was called {record.graphs} times")
        return found


def program(
    one_graph: bool = True, graphs: int | None = None, spied: bool = True
) -> Callable[[Callable[[Run], None]], Callable[[], None]]:
    """Makes a script a test of pytest's, and puts it in the registry. Without a spy where it matters when things die: a spy
    holds them."""

    def decorate(script: Callable[[Run], None]) -> Callable[[], None]:
        name = f"{script.__module__}::{script.__name__}"
        made = REGISTRY[name] = Program(script, name, one_graph, graphs, spied)

        def test() -> None:
            check(made)

        test.__name__, test.__module__, test.__doc__ = script.__name__, script.__module__, script.__doc__
        return test

    return decorate


def add_row(
    module: str, test: str, row: str, script: Callable[[Run], None], one_graph: bool = True, graphs: int | None = None
) -> str:
    """A program of a table: pytest parametrizes over the names that this returns."""
    name = f"{module}::{test}[{row}]"
    assert name not in REGISTRY, name
    REGISTRY[name] = Program(script, name, one_graph, graphs)
    return name


# --------------------------------------------------------------------------------------------------------- for pytest


def gaps(listed: Path = GAPS) -> dict[str, str]:
    """Programs that are listed as not captured yet (or as wrong): name -> why."""
    lines = [line.strip() for line in listed.read_text().splitlines()]
    pairs = [line.partition("  ") for line in lines if line and not line.startswith("#")]
    return {name: why.strip() for name, _, why in pairs}


@functools.cache
def the_frontend(name: str) -> FrontEnd:
    """One for all tests: what it imports is imported once, before forking."""
    return FRONTENDS[name]()


def check(made: Program) -> None:
    """Judges a program in a forked child, with the chosen front end."""
    import pytest

    name = chosen()
    reason = missing(name)
    if reason:
        pytest.skip(reason)
    wrong = name == "alternator" and made.name in gaps(KNOWN_WRONG)
    gap = wrong or (name == "alternator" and made.name in gaps())
    frontend = the_frontend(name)
    verdict = forked(lambda: made.judge(frontend, gap))
    assert not verdict.broken, f"the program itself is broken:\n{verdict.broken}"
    if wrong:
        if not verdict.wrong:
            pytest.fail(f"{made.name} is right now: take it out of {KNOWN_WRONG.name}", pytrace=False)
        pytest.xfail(verdict.wrong[0])
    if verdict.wrong:
        pytest.fail("\n".join(verdict.wrong), pytrace=False)
    if gap:
        if not verdict.uncaptured:
            pytest.fail(f"{made.name} works: take it out of {GAPS.name}", pytrace=False)
    elif verdict.uncaptured:
        pytest.fail("not captured:\n" + "\n".join(verdict.uncaptured), pytrace=False)


class Crashed(Exception):
    """A forked child died."""


def leave_pytest() -> None:
    """In a child, nothing of pytest and of the other tests is left to be reached from the program."""
    from torch._logging._internal import trace_log

    # pytest listens to torch's structured trace too; somebody who listens makes every graph be printed.
    trace_log.handlers[:] = [one for one in trace_log.handlers if type(one).__module__ != "_pytest.logging"]
    # The sanitizer looks at all that can be reached, for every trace: through this table and through `__loader__`, pytest's
    # finder, that is every test.
    REGISTRY.clear()
    for finder in [one for one in sys.meta_path if type(one).__module__ == "_pytest.assertion.rewrite"]:
        sys.meta_path.remove(finder)
        vars(finder).clear()


def forked(work: Callable[[], Any], timeout: int = TIMEOUT) -> Any:
    """What `work` returns, done in a child process; ALTERNATOR_TEST_IN_PROCESS=1 does it here, for debuggers."""
    if os.environ.get("ALTERNATOR_TEST_IN_PROCESS"):
        return work()
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            leave_pytest()
            # torch's thread pool is made anew by whoever asks for it first after a fork, and must not be asked for by two
            # threads at once, as those of autograd would on a machine with several devices.
            torch.set_num_threads(torch.get_num_threads())
            signal.alarm(timeout)
            if timeout > 10:
                faulthandler.dump_traceback_later(timeout - 5)
            try:
                answer = (True, work())
            except BaseException as error:
                answer = (False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(answer, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if not data:
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            words = (
                f"no answer in {timeout} s" if number == signal.SIGALRM else f"died of {signal.Signals(number).name}"
            )
        else:
            words = f"ended with status {os.waitstatus_to_exitcode(status)}"
        raise Crashed(words)
    good, answer = pickle.loads(data)
    if not good:
        raise Crashed(answer)
    return answer

"""eval, exec, compile, locals, globals and frames: code that a program makes runs in the same loop."""

from __future__ import annotations

import sys
import traceback

import torch
from harness import T, program
from trace_support import in_child

import alternator

SCALE = 2


@program()
def test_eval_reads_locals_and_globals(t):
    def fn(x, k):
        j = k + 1
        return x * eval("j * SCALE"), eval("k + 1", {"k": 10}), eval("a + b", {"a": 1}, {"b": k})

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 2)
    globals()["SCALE"] = 5
    t.undo(lambda: globals().update(SCALE=2))
    f(T(2), 2)


@program()
def test_exec_defines_things(t):
    def fn(x):
        space = {"x": x}
        exec("def go(a):\n    global seen\n    seen = a\n    return a + 1\ny = go(3)\nz = x + y", space)
        return space["z"], space["seen"], sorted(k for k in space if k != "__builtins__")

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2, s=1))


@program()
def test_exec_in_an_outside_dict(t):
    space = {"k": 2}
    t.watch(lambda: {k: v for k, v in space.items() if k != "__builtins__"})

    def fn(x):
        exec("k = k + 1\nn = k * 2", space)
        return x * space["n"]

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_exec_writes_a_global(t):
    def fn(x):
        exec("made_by_exec = SCALE + 1", globals())
        return x * globals()["made_by_exec"]

    f = t.compile(fn)
    f(T(2))
    f.miss(T(2))
    f.hit(T(2))


@program()
def test_compile(t):
    def fn(x, text):
        code = compile(text, "<text>", "eval")
        return x * eval(code, {"v": 3}), code.co_names

    f = t.compile(fn)
    f(T(2), "v + 1")
    f.hit(T(2), "v + 1")
    f(T(2), "v + 2")


@program()
def test_locals_follow(t):
    def fn(x, a):
        d = locals()
        b = [a]
        before = sorted(d)
        after = sorted(locals())
        return x + locals()["a"], before, after, d is locals(), locals()["b"] is b

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 2)


@program()
def test_locals_with_cells(t):
    k = 3

    def fn(x):
        n = 1

        def inner():
            return n + k

        return x * locals()["k"] + locals()["n"] + inner()

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    k = 4
    f.miss(T(2))


@program()
def test_globals_of_the_function(t):
    def fn(x):
        return x * globals()["SCALE"], globals().get("surely_not_there", 7)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    globals()["SCALE"] = 5
    t.undo(lambda: globals().update(SCALE=2))
    f.miss(T(2))


@program()
def test_frame_of_the_function(t):
    def inner():
        frame = sys._getframe(1)
        return frame.f_code.co_name, frame.f_locals["secret"], frame.f_globals["SCALE"], frame.f_back is not None

    def outer(secret):
        return inner()

    def fn(x, k):
        return x + 1, outer(k), sys._getframe().f_code.co_name

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 2)


@program()
def test_frames_of_a_traceback_are_cleared(t):
    def fails(n):
        kept = [n]
        raise ValueError(kept[0])

    def fn(x, n):
        try:
            fails(n)
        except ValueError as error:
            traceback.clear_frames(error.__traceback__)
            text = str(error), error.__traceback__.tb_next.tb_frame.f_code.co_name
        return x + 1, text

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 2)


@program()
def test_globals_through_a_traceback_are_private(t):
    def fn(x):
        try:
            raise ValueError
        except ValueError as error:
            error.__traceback__.tb_frame.f_globals["written_there"] = 3
        return x + written_there  # noqa: F821

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_exc_info(t):
    def fn(x):
        first = sys.exc_info()[0]
        try:
            {}["k"]
        except KeyError:
            kind, value, trace = sys.exc_info()
            return x + 1, first, kind, value.args, trace is not None

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(one_graph=False)
def test_exception_that_the_caller_handles(t):
    def fn(x):
        return x + 1, str(sys.exc_info()[1])

    f = t.compile(fn)
    for text in "ab":
        try:
            raise ValueError(text)
        except ValueError:
            f.free(T(2))


@in_child
def test_somebody_listens_to_audit_events(front):
    heard = []
    sys.addaudithook(lambda event, arguments: heard.append(event))

    def fn(x):
        return (x * 2).sum(), fn.__code__.co_argcount

    compiled = alternator.compile(fn, backend="eager")
    for s in (0, 1):
        (got, count), (wanted, _) = compiled(T(3, s=s)), fn(T(3, s=s))
        assert torch.equal(got, wanted) and count == 1
    assert "object.__getattr__" in heard


class Listener:
    def __init__(self):
        self.events, self.known = [], frozenset({"os.fork", "os.forkpty"})

    def __call__(self, event, arguments):
        if event not in self.known:
            self.events.append(event)


@in_child
def test_who_listens_is_no_part_of_the_program(front):
    """The tracer's own doings are heard too: such a listener was taken for a frame of the call."""

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def fn(x):
        with Mode(), torch.no_grad():
            return torch.add(x, float(x.sum()))

    listener = Listener()
    sys.addaudithook(listener)
    sys.addaudithook(listener.__call__)
    try:
        for every in range(1, 16):
            alternator.reset()
            compiled = alternator.compile(fn, backend="eager")
            alternator._C.break_every(every)
            for s in (0, 1):
                assert torch.equal(compiled(T(3, s=s)), fn(T(3, s=s))), every
            assert "internal" not in alternator.counters()["breaks"], every
    finally:
        alternator._C.break_every(0)
    assert listener.events


@program(one_graph=False)
def test_frames_of_a_traceback_behind_a_break(t):
    """An entry for one frame is none for another."""

    def inner(x):
        raise ValueError(x.shape[0])

    def fn(x):
        try:
            inner(x)
        except ValueError as error:
            alternator.graph_break()
            at, seen = error.__traceback__, []
            while at is not None:
                frame = at.tb_frame
                seen.append((frame.f_code.co_name, at.tb_lineno, frame.f_globals is globals()))
                at = at.tb_next
            return x + 1, seen

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    f(T(3))

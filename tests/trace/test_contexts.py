"""Context managers, and the modes of torch that they set."""

from __future__ import annotations

import contextlib

import torch
from harness import T, program

# ------------------------------------------------------------------------------------------------ context managers


@program()
def test_context_manager_class(t):
    class Logged:
        def __init__(self, log, swallow=()):
            self.log, self.swallow = log, swallow

        def __enter__(self):
            self.log.append("in")
            return self

        def __exit__(self, kind, value, traceback):
            self.log.append(("out", None if kind is None else kind.__name__))
            return kind is not None and issubclass(kind, self.swallow)

    def fn(log, what, x):
        with Logged(log, (KeyError,)) as a, Logged(log):
            x = x + 1
            if what:
                raise what("w")
            a.inside = True
        return x

    f = t.compile(fn)
    f([], None, T(2))
    f.hit([], None, T(2))
    f([], KeyError, T(2))
    f([], ValueError, T(2))


@program()
def test_contextmanager_function(t):
    @contextlib.contextmanager
    def logged(log):
        log.append("in")
        try:
            yield 5
        except KeyError:
            log.append("caught")
        finally:
            log.append("out")

    def fn(log, what, x):
        with logged(log) as v:
            y = x + v
            if what:
                raise what("w")
            return y
        return x

    f = t.compile(fn)
    f([], None, T(2))
    f.hit([], None, T(2))
    f([], KeyError, T(2))
    f([], ValueError, T(2))


@program()
def test_exit_stack(t):
    def fn(log, x):
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "last")
            stack.enter_context(contextlib.suppress(KeyError))
            stack.push(lambda *e: log.append(e[0] is None))
            raise KeyError("gone")
        return x + len(log)

    f = t.compile(fn)
    f.free([], T(2))
    f.free([], T(2))


@program(graphs=2)
def test_no_grad(t):
    def fn(x):
        with torch.no_grad():
            y = x * 2
            e = torch.is_grad_enabled()
        with torch.enable_grad(), torch.set_grad_enabled(False):
            z = x * 4
        return y, x * 3, z, e

    f = t.compile(fn)
    f(T(2, rg=True))
    f.hit(T(2, rg=True))
    f(T(2))


@program()
def test_no_grad_as_decorator(t):
    @torch.no_grad()
    def inner(x):
        return x * 2

    f = t.compile(lambda x: (inner(x), x * 3))
    f(T(2, rg=True))
    f.hit(T(2, rg=True))


@program()
def test_modes_left_changed(t):
    def fn(x):
        torch.set_grad_enabled(False)
        return x * 2

    t.undo(lambda: torch.set_grad_enabled(True))
    f = t.compile(fn)
    f.free(T(2, rg=True))
    torch.set_grad_enabled(True)
    f.free(T(2, rg=True))
    f.free(T(2, rg=True))


@program()
def test_mode_left_by_an_exception(t):
    def fn(x, n):
        with torch.no_grad():
            y = x * 2
            if n:
                raise ValueError("inside no_grad")
        return y

    f = t.compile(fn)
    f(T(2, rg=True), 0)
    f(T(2, rg=True), 1)
    f(T(2, rg=True), 0)


@program()
def test_autocast_inside(t):
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
            with torch.autocast("cpu", enabled=False):
                z = x @ x.t()
        return y, z, (x @ x).dtype

    f = t.compile(fn)
    f(T(2, 2))
    f.hit(T(2, 2))


@program()
def test_inference_mode_inside(t):
    def fn(x):
        with torch.inference_mode():
            y = x * 2
        return y, x * 3

    f = t.compile(fn)
    f.free(T(2, rg=True))
    f.free(T(2, rg=True))


@program()
def test_device_context_inside(t):
    def fn(x):
        with torch.device("cpu"):
            y = torch.ones(2)
        return x + y

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))

"""Context managers, and the modes of torch that they set."""

from __future__ import annotations

import contextlib

import torch
from harness import T, program
from trace_support import eager_backend, in_child

import alternator

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


def is_inference(value):
    return [one.is_inference() for one in value if isinstance(one, torch.Tensor)]


@program()
def test_inference_mode_inside(t):
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            e = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        return y, x * 3, e, torch.is_inference_mode_enabled()

    f = t.compile(fn)
    t.note(is_inference(f(T(2, rg=True))))
    t.note(is_inference(f.hit(T(2, rg=True))))
    f(T(2))
    with torch.no_grad():
        f(T(2, rg=True))
    with torch.inference_mode():
        t.note(is_inference(f(T(2))))


@program()
def test_inference_mode_off_and_nested(t):
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            with torch.inference_mode(False):
                z = x * 3
                e = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
            with torch.enable_grad(), torch.inference_mode(mode=True):
                w = y + 1
            g = torch.is_grad_enabled()
        with torch.no_grad(), torch.inference_mode(False):
            v = x * 4
        return y, z, w, v, e, g

    f = t.compile(fn)
    t.note(is_inference(f(T(2, rg=True))))
    t.note(is_inference(f.hit(T(2, rg=True))))
    with torch.inference_mode():
        t.note(is_inference(f(T(2))))


@program()
def test_inference_mode_as_decorator(t):
    @torch.inference_mode()
    def inner(x):
        return x * 2

    @torch.inference_mode
    def other(x):
        return x * 3

    f = t.compile(lambda x: (inner(x), other(x), x * 4))
    t.note(is_inference(f(T(2, rg=True))))
    t.note(is_inference(f.hit(T(2, rg=True))))


@program()
def test_inference_mode_and_autocast(t):
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            y = x @ x
            with torch.autocast("cpu", enabled=False):
                z = x @ x
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            w = x @ x
        return y, z, w, x @ x

    f = t.compile(fn)
    f(T(2, 2))
    f.hit(T(2, 2))


@program()
def test_inference_mode_left_by_an_exception(t):
    def fn(x, n):
        try:
            with torch.inference_mode():
                y = x * 2
                if n:
                    raise ValueError("inside")
        except ValueError:
            return x * 3
        return y

    f = t.compile(fn)
    f(T(2, rg=True), 0)
    f(T(2, rg=True), 1)
    f.hit(T(2, rg=True), 0)


@program(one_graph=False)
def test_breaks_in_inference_mode(t):
    @torch.inference_mode()
    def inner(x):
        x = x + 1
        alternator.graph_break()
        return x * 2, torch.is_inference_mode_enabled()

    def fn(x):
        x = x * 3
        with torch.no_grad():
            with torch.inference_mode():
                y = x * 2
                alternator.graph_break()
                y = y + 1
                with torch.inference_mode(False):
                    alternator.graph_break()
                    z = x * 2
                alternator.graph_break()
                e = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
            g = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        alternator.graph_break()
        return y, z, x * 4, e, g, inner(x), torch.is_grad_enabled()

    f = t.compile(fn)
    t.note(is_inference(f(T(2, rg=True))))
    t.note(is_inference(f(T(2, rg=True))))
    with torch.inference_mode():
        f(T(2))


@program(one_graph=False)
def test_inference_mode_left_open(t):
    def fn(x):
        mode = torch.inference_mode()
        mode.__enter__()
        return x * 2, mode

    f = t.compile(fn)
    for _ in range(2):
        y, mode = f(T(2))
        t.note((torch.is_inference_mode_enabled(), y.is_inference()))
        mode.__exit__(None, None, None)
        t.note(torch.is_inference_mode_enabled())


@program(one_graph=False)
def test_what_inference_mode_makes_is_written_to(t):
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            y.add_(1)
            z = y[0]
            z.mul_(3)
        return y

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_hooks_on_saved_tensors(t):
    def fn(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x * 2, lambda x: x + 1):
            y = x.sin()
            alternator.graph_break()
        return y * x

    f = t.compile(fn)
    for _ in range(2):
        x = T(2, rg=True)
        f(x).sum().backward()
        t.note(x.grad)


# ------------------------------------------------------------------------------------------------------- profilers


@program()
def test_record_function(t):
    def fn(x):
        @torch.profiler.record_function("inner")
        def inner(x):
            return x.sin()

        with torch.profiler.record_function("outer"), torch.autograd.profiler.record_function("a", "b"):
            y = inner(x)
        return y * 2

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2, s=1))


@program(one_graph=False)
def test_record_function_and_breaks(t):
    def fn(x, n):
        with torch.profiler.record_function("outer") as span:
            x = x * 2
            alternator.graph_break()
            for _ in range(2):
                with torch.profiler.record_function("inner"):
                    x = x + 1
                    alternator.graph_break()
                    if n:
                        raise ValueError("inside")
        return x * 2, span.name

    f = t.compile(fn)
    f(T(2), 0)
    f(T(2), 0)
    f(T(2), 1)


@program(one_graph=False)
def test_record_function_left_open(t):
    def fn(x):
        span = torch.profiler.record_function("open")
        span.__enter__()
        return x * 2, span

    f = t.compile(fn)
    for _ in range(2):
        _, span = f(T(2))
        t.note(span.record is not None)
        span.__exit__(None, None, None)


@program(one_graph=False)
def test_record_function_while_a_profiler_runs(t):
    def fn(x):
        with torch.profiler.record_function("a label"):
            y = x.sin()
        return y * 2

    f = t.compile(fn)
    f(T(2))
    with torch.autograd.profiler.profile() as profile:
        f(T(2))
    t.note([event.name for event in profile.function_events if event.name == "a label"])
    f.hit(T(2))


def profiled(x):
    y = x * 2
    with torch.profiler.profile() as outer:
        y = y + 2
        with torch.profiler.record_function("my_function"):
            z = y * 3
            z.tolist()
            z = z + 1
    with torch.autograd.profiler.profile() as inner:
        z = z.sin()
    return z, [[event.name for event in some] for some in (outer.events(), inner.function_events)]


@program(one_graph=False)
def test_a_profiler_inside(t):
    def fn(x):
        z, names = profiled(x)
        return z, [sorted({"aten::add", "aten::mul", "aten::sin", "my_function"}.intersection(some)) for some in names]

    f = t.compile(fn)
    for _ in range(3):
        f(T(2))


@in_child
def test_a_profiler_sees_what_runs(front):
    wanted = profiled(T(2))
    for backend in ("eager", eager_backend):
        f = front.compile(profiled, backend)
        f(T(2))
        _, names = f(T(2))
        assert names == wanted[1]


class Profile(torch.profiler.profile):
    entered = 0

    def __enter__(self):
        self.entered += 1
        return super().__enter__()


@program(one_graph=False)
def test_a_class_of_the_programs_over_a_profiler(t):
    def fn(x):
        with Profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            y = x.sin()
        return y + 1, profile.entered, [event.key for event in profile.key_averages() if event.key == "aten::sin"]

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@in_child
def test_breaks_around_a_profiler(front):
    def fn(x):
        y = x * 2
        with torch.profiler.profile() as profile:
            y = y + 2
        return y, len(profile.events())

    f = front.compile(fn, "eager")
    f(T(2))
    assert alternator.counters()["breaks"] == {"native_call": 4}  # profile(), its beginning, its end, events()


@program()
def test_device_context_inside(t):
    def fn(x):
        with torch.device("cpu"):
            y = torch.ones(2)
        return x + y

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program(one_graph=False)
def test_casts_are_forgotten_behind_a_break(t):
    linear = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.ones_(linear.weight)

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            alternator.graph_break()
            return linear(x)

    f = t.compile(fn)
    for _ in range(4):
        f(T(2, 4))
        with torch.no_grad():
            linear.weight.add_(1)


@program(one_graph=False)
def test_a_weight_is_cast_once(t):
    def fn(linear, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = linear(x)
            alternator.graph_break()
            z = linear(y)
        loss = z.float().sum()
        loss.backward()
        return loss

    f = t.compile(fn)
    torch.manual_seed(0)
    linear = torch.nn.Linear(32, 32)
    t.watch(lambda: (linear.weight, linear.weight.grad))
    for _ in range(3):
        f(linear, T(16, 32))
        with torch.no_grad():
            linear.weight.add_(linear.weight.grad, alpha=0.01)
        linear.zero_grad()


@program(one_graph=False)
def test_anomaly_mode_with_a_break(t):
    def fn(x):
        with torch.autograd.detect_anomaly(check_nan=False):
            y = x * 2
            alternator.graph_break()
            z = y + 1
        return z

    f = t.compile(fn)
    for _ in range(2):
        f(T(2))
        t.note((torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()))


@program(one_graph=False)
def test_casts_that_autocast_keeps(t):
    layer = torch.nn.Linear(2, 2, bias=False)

    def cleared(x):
        torch.clear_autocast_cache()
        return layer(x)

    def in_between(x):
        first = layer(x)
        with torch.no_grad():
            layer.weight.add_(1)
        torch.clear_autocast_cache()
        return first, layer(x)

    def twice(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first = layer(x)
        with torch.no_grad():
            layer.weight.add_(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return first, layer(x)

    def left_and_entered(x):
        scope.__exit__(None, None, None)
        with torch.no_grad():
            layer.weight.add_(1)
        scope.__enter__()
        return layer(x)

    for fn in (cleared, in_between, twice, left_and_entered):
        f = t.compile(fn)
        with torch.autocast("cpu", dtype=torch.bfloat16) as scope:
            for _ in range(3):
                f(T(1, 2))
                with torch.no_grad():
                    layer.weight.add_(1)
        f(T(1, 2)) if fn is not left_and_entered else None


@program()
def test_settings_of_autocast_that_is_off(t):
    t.undo(lambda: torch.set_autocast_dtype("cpu", torch.bfloat16))
    t.undo(lambda: torch.set_autocast_cache_enabled(True))

    def set_type(x, dtype):
        torch.set_autocast_dtype("cpu", dtype)
        return x + 1

    def set_cache(x, on):
        torch.set_autocast_cache_enabled(on)
        return x + 1, torch.is_autocast_cache_enabled()

    f = t.compile(set_type)
    for dtype in (torch.float16, torch.float16, torch.bfloat16, torch.float16):
        f(T(2), dtype)
        t.note(torch.get_autocast_dtype("cpu"))
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    f(T(2), torch.float16)
    t.note(torch.get_autocast_dtype("cpu"))
    f = t.compile(set_cache)
    for on in (False, False, True, False):
        f(T(2), on)
        t.note(torch.is_autocast_cache_enabled())


@program(one_graph=False)
def test_level_of_forward_differentiation_that_is_the_callers(t):
    def tangent(dual):
        return torch.autograd.forward_ad.unpack_dual(dual * dual).tangent

    f = t.compile(tangent)
    for s in (1, 2):
        with torch.autograd.forward_ad.dual_level():
            f(torch.autograd.forward_ad.make_dual(T(2, s=s), T(2)))

"""torch.set_default_device in a function, also where it stays set, and where one was set before."""

from __future__ import annotations

import threading

import torch
from harness import program
from torch.overrides import TorchFunctionMode

import alternator


def where():
    """What eager sees of the default device now."""
    stack = [type(torch._C._get_function_stack_at(i)).__name__ for i in range(torch._C._len_torch_function_stack())]
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return (
        str(torch.get_default_device()), str(torch.zeros(1).device), str(torch.utils._device.CURRENT_DEVICE), stack,
        context and (str(context.device), str(context.old_device), context.prev_mode and str(context.prev_mode.device)),
    )  # fmt: skip


def C(count, rg=False):
    """A tensor on the CPU, whatever the default is."""
    return torch.arange(count, dtype=torch.float32, device="cpu").add(1).requires_grad_(rg)


def off(t):
    t.undo(lambda: torch.set_default_device(None))


@program(graphs=1)
def test_set_and_reset(t):
    def fn(x):
        torch.set_default_device("meta")
        y = torch.zeros(3)
        torch.set_default_device(None)
        return y.device, torch.get_default_device(), x + torch.ones(3)

    t.watch(where)
    f = t.compile(fn)
    f(C(3))
    f.hit(C(3))


@program()
def test_two_after_each_other(t):
    def fn(x):
        torch.set_default_device("meta")
        y = torch.zeros(3)
        torch.set_default_device("cpu")
        z = torch.zeros(3)
        torch.set_default_device(None)
        return y.device, z.device, z + x

    t.watch(where)
    f = t.compile(fn)
    f(C(3))
    f.hit(C(3))


@program()
def test_it_stays_set(t):
    off(t)

    def fn(x, device):
        y = x + torch.ones(3, device="cpu")
        torch.set_default_device(device)
        return y, torch.zeros(2).device

    t.watch(where)
    f = t.compile(fn)
    f(C(3), "meta")
    torch.set_default_device(None)
    f.hit(C(3), "meta")
    torch.set_default_device(None)
    f.miss(C(3), "cpu")


@program()
def test_one_is_set_already(t):
    off(t)

    def fn(x, device):
        before = torch.zeros(2).device
        torch.set_default_device(device)
        y = torch.zeros(2)
        return x * 2, before, y.device

    t.watch(where)
    f = t.compile(fn)
    torch.set_default_device("meta")
    f(C(3), "cpu")
    f(C(3), "meta")
    f(C(3), "meta")
    f.hit(C(3), "meta")
    f(C(3), None)
    f(C(3), None)


@program()
def test_set_outside_only_asked(t):
    off(t)

    def fn(x):
        return x + 1, torch.get_default_device(), torch.zeros(2).device

    t.watch(where)
    f = t.compile(fn)
    torch.set_default_device("cpu")
    f(C(3))
    f.hit(C(3))
    torch.set_default_device(None)
    f(C(3))


@program(one_graph=False)
def test_asked_while_meta_is_set(t):
    """torch.get_default_device() makes a tensor there, which cannot be recorded for this device."""
    off(t)

    def fn(x, device):
        before = torch.get_default_device()
        torch.set_default_device(device)
        y = torch.zeros(3)
        inside = torch.get_default_device()
        torch.set_default_device(None)
        return y.device, before, inside, torch.get_default_device(), x + torch.ones(3)

    t.watch(where)
    f = t.compile(fn)
    for device in ("meta", "cpu", "meta"):
        f(C(3), device)
    torch.set_default_device("meta")
    f(C(3), "meta")
    torch.set_default_device("cpu")
    f(C(3), "meta")


@program()
def test_put_aside_and_put_back(t):
    """As libraries do it: another one for a while, then what was there."""
    off(t)

    def fn(x):
        old = torch.get_default_device()
        torch.set_default_device("meta")
        y = torch.empty(4)
        torch.set_default_device(old)
        return x + torch.ones(3, device="cpu"), y.shape, y.device, old

    t.watch(where)
    f = t.compile(fn)
    torch.set_default_device("cpu")
    f(C(3))
    f.hit(C(3))
    torch.set_default_device(None)
    f(C(3))


@program()
def test_an_error_after_it(t):
    off(t)

    def fn(x):
        torch.set_default_device("meta")
        y = torch.zeros(3)
        raise ValueError(str(y.device))

    t.watch(where)
    f = t.compile(fn)
    f(C(3))
    torch.set_default_device(None)
    f(C(3))


@program()
def test_an_error_that_is_caught(t):
    def fn(x, k):
        torch.set_default_device("meta")
        try:
            if k:
                raise KeyError(k)
            y = torch.zeros(3)
        except KeyError:
            y = torch.ones(2)
        finally:
            torch.set_default_device(None)
        return x + 1, y.device, y.shape

    t.watch(where)
    f = t.compile(fn)
    f(C(3), 0)
    f(C(3), 1)


@program(one_graph=False)
def test_a_break_while_it_is_set(t):
    off(t)

    def fn(x):
        torch.set_default_device("meta")
        y = torch.zeros(3)
        alternator.graph_break()
        z = torch.ones(2)
        torch.set_default_device(None)
        return x + 1, torch.ones(3).device, y.device, z.device

    t.watch(where)
    f = t.compile(fn)
    f(C(3))
    f(C(3))
    torch.set_default_device("cpu")
    f(C(3))
    torch.set_default_device("meta")
    f(C(3))


@program(one_graph=False)
def test_a_break_and_it_stays(t):
    off(t)

    def fn(x, device):
        y = x + 1
        torch.set_default_device(device)
        alternator.graph_break()
        return y * 2, torch.zeros(2).device

    t.watch(where)
    f = t.compile(fn)
    for device in ("meta", "cpu", "meta", None, "meta"):
        f(C(3), device)


@program(one_graph=False)
def test_a_break_in_a_scope(t):
    def fn(x):
        with torch.device("meta"):
            y = torch.zeros(3)
            alternator.graph_break()
            z = torch.ones(2)
        return x + 1, torch.ones(3).device, y.device, z.device

    t.watch(where)
    f = t.compile(fn)
    f(C(3))
    f(C(3))


class Doubled(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.relu else result


@program()
def test_under_a_mode_of_the_program(t):
    def fn(x):
        with Doubled():
            torch.set_default_device("meta")
            y = torch.zeros(3)
            torch.set_default_device(None)
            z = torch.relu(x)
        return z, y.device, torch.relu(x)

    t.watch(where)
    f = t.compile(fn)
    f(C(3))
    f.hit(C(3))


@program(one_graph=False)
def test_a_mode_of_the_program_over_one_that_is_set(t):
    off(t)

    def fn(x, k):
        with Doubled():
            torch.set_default_device("meta")
            y = torch.zeros(3)
            if k:
                alternator.graph_break()
            z = torch.relu(x)
        return z, y.device

    t.watch(where)
    f = t.compile(fn)
    for k in (0, 1, 0, 1):
        f(C(3), k)
    torch.set_default_device("cpu")
    f(C(3), 1)


@program(one_graph=False)
def test_scopes_inside_of_one_that_is_set(t):
    off(t)

    def fn(x):
        with torch.device("meta"):
            y = torch.zeros(3)
        torch.set_default_device(None)
        z = torch.zeros(3)
        with torch.device("meta"):
            w = torch.zeros(3)
        return x + 1, y.device, z.device, w.device

    t.watch(where)
    f = t.compile(fn)
    for device in ("cpu", None, "cpu", "meta"):
        torch.set_default_device(device)
        f(C(3))


@program()
def test_gradients(t):
    off(t)

    def fn(x):
        torch.set_default_device("cpu")
        return (x * torch.arange(3.0)).sum()

    f = t.compile(fn)
    f(C(3, rg=True)).backward()
    x = C(3, rg=True)
    f(x).backward()
    t.note(x.grad)


@program(one_graph=False)
def test_other_threads(t):
    off(t)
    found = []

    def fn(x):
        torch.set_default_device("meta")
        return x + 1, torch.zeros(2).device

    f = t.compile(fn)
    f(C(3))

    def work():
        found.append((where(), f.call(C(3)), where()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    t.note(found)
    t.note(where())
    f(C(3))

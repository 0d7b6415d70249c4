"""For the tests that drive a front end by hand: which one, its counters, and what a process holds."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from frontends import FrontEnd, chosen, missing
from harness import Run, T, forked, the_frontend
from torch import nn


def frontend() -> FrontEnd:
    """The chosen front end, or a skip that says why there is none."""
    reason = missing(chosen())
    if reason:
        pytest.skip(reason)
    return the_frontend(chosen())


def in_child(test: Callable[[FrontEnd], Any]) -> Callable[[], None]:
    """A test whose body runs in a forked child, where nothing was counted yet: a crash there is one failure."""

    def run() -> None:
        front = frontend()

        def body() -> None:
            front.reset()
            test(front)

        forked(body)

    run.__name__, run.__module__, run.__doc__ = test.__name__, test.__module__, test.__doc__
    return run


def check_loop(fn: Callable[[torch.Tensor], Any], most_graphs: int) -> None:
    """A function with a loop in it is right in every call, compiled in few graphs, and has nothing new to compile in the fourth."""

    @in_child
    def body(_: FrontEnd) -> None:
        import alternator

        alternator.reset()
        compiled = alternator.compile(fn, backend="eager")
        before = alternator.counters()
        for s in range(3):
            wanted, found = (v if isinstance(v, tuple) else (v,) for v in (fn(T(3, s=s)), compiled(T(3, s=s))))
            assert torch.equal(wanted[0], found[0])
            assert wanted[1:] == found[1:] and [type(v) for v in wanted] == [type(v) for v in found]
        after = alternator.counters()
        assert after["graphs"] - before["graphs"] <= most_graphs
        assert after["eager"] == before["eager"]
        assert "recompile_limit" not in after["breaks"]
        compiled(T(3, s=2))
        assert alternator.counters()["traces"] == after["traces"]

    body()


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """In a child: AOTAutograd starts threads of autograd's, after which nothing can be forked."""

    @functools.wraps(test)
    def run(*arguments: Any, **keywords: Any) -> None:
        forked(lambda: test(*arguments, **keywords))

    return run


def eager_backend(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    return module.forward


class Held:
    """What a process holds, after a collection: for comparing before and after."""

    def __init__(self) -> None:
        gc.collect()
        gc.collect()
        objects = gc.get_objects()
        self.objects = len(objects)
        self.tensors = sum(1 for one in objects if isinstance(one, torch.Tensor))
        self.storages = sum(1 for one in objects if isinstance(one, torch.UntypedStorage))
        del objects
        self.blocks = sys.getallocatedblocks()
        self.bytes = heap_bytes()

    def grown(self, before: Held, objects: int = 20, blocks: int = 100, size: int = 200_000) -> list[str]:
        """Where this holds more than before. Small amounts are caches of the interpreter."""
        limits = {"objects": objects, "tensors": 0, "storages": 0, "blocks": blocks, "bytes": size}
        return [
            f"{name}: {getattr(before, name)} -> {getattr(self, name)}"
            for name, limit in limits.items()
            if getattr(self, name) > getattr(before, name) + limit
        ]


class MallocInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


@functools.cache
def libc() -> Any:
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = MallocInfo
    return library


def heap_bytes() -> int:
    """Bytes in use by malloc: tensors' storages and C++ objects are among them."""
    info = libc().mallinfo2()
    return info.uordblks + info.hblkhd


def with_two_numbers(expression: Callable[[Any, int], Any]) -> Callable[[Run], None]:
    """The script of a row: an expression of a tensor and a number, found again for other data, and for each of two numbers."""

    def script(t: Run) -> None:
        f = t.compile(lambda x, n: expression(x, n))
        for n in (2, 5):
            f(T(3), n)
            f.hit(T(3, s=1), n)
        f(T(3), 2)

    return script


def small_net() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(T(*parameter.shape))
    return net

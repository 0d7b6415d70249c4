"""Front ends that the tests can be run with. ALTERNATOR_TEST_FRONTEND chooses; the default is Alternator.

Besides the real ones there are fakes that are wrong on purpose: tests that cannot tell them from eager are worth nothing.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

Compiled = Callable[..., Any]


class FrontEnd:
    """Eager pass-through: every call is an eager call."""

    name = "eager"
    counts = False  # whether counters() can be held against what a program expects
    draws_all = True  # random numbers that nobody uses, too

    def __init__(self) -> None:
        self.eager = 0

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.eager += 1
            return fn(*args, **kwargs)

        return call

    def reset(self) -> None:
        pass

    def counters(self) -> dict[str, Any]:
        return {"traces": 0, "hits": 0, "graphs": 0, "eager": self.eager, "breaks": {}}


class Alternator(FrontEnd):
    name = "alternator"
    counts = True

    def __init__(self) -> None:
        import alternator
        from alternator import config

        config.recompile_limit = 64  # programs here call one function in many ways

        self.module: Any = alternator

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        return self.module.compile(fn, backend=backend, fullgraph=fullgraph, **options)

    def reset(self) -> None:
        self.module.reset()

    def counters(self) -> dict[str, Any]:
        return self.module.counters()


class ThroughAOTAutograd(Alternator):
    """What the hand-off and AOTAutograd make of graphs. Which backend a program asks for is not heard."""

    name = "aot_eager"
    counts = False
    draws_all = False

    def __init__(self) -> None:
        import snapshot

        super().__init__()
        snapshot.sees_histories = False

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        return super().compile(fn, "aot_eager", fullgraph, **options)


class Dynamo(FrontEnd):
    """TorchDynamo: for plausibility. It is wrong on some programs."""

    name = "dynamo"

    def __init__(self) -> None:
        import torch._dynamo

        super().__init__()
        torch._dynamo.config.recompile_limit = 64

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        return torch.compile(fn, backend=backend, fullgraph=fullgraph, **options)

    def reset(self) -> None:
        import torch._dynamo

        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

    def counters(self) -> dict[str, Any]:
        import torch._dynamo.utils as utils

        breaks = dict(utils.counters["graph_break"])
        return {
            "traces": utils.counters["frames"]["total"], "hits": 0, "graphs": utils.counters["stats"]["unique_graphs"],
            "eager": sum(breaks.values()), "breaks": breaks,
        }  # fmt: skip


# ------------------------------------------------------------------------------------------------- wrong on purpose


class Stale(FrontEnd):
    """Guards nothing: the first result for ever, with no effects after the first call."""

    name = "stale"

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        results: list[Any] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            if not results:
                results.append(fn(*args, **kwargs))
            return results[0]

        return call


class Lost(FrontEnd):
    """Writes nothing back: the arguments that the program sees are copies."""

    name = "lost"

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        def call(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                args, kwargs = copy.deepcopy((args, kwargs))
            return fn(*args, **kwargs)

        return call


class Twice(FrontEnd):
    """Traces in the real world: what a first call does is done twice."""

    name = "twice"

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        first = [True]

        def call(*args: Any, **kwargs: Any) -> Any:
            if first:
                first.clear()
                with contextlib.suppress(Exception):
                    fn(*args, **kwargs)
            return fn(*args, **kwargs)

        return call


class Anew(FrontEnd):
    """Rebuilds without identity: every result is a copy."""

    name = "anew"

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            try:
                return copy.copy(result)
            except Exception:
                return result

        return call


class Mute(FrontEnd):
    """Loses what is printed, and the causes of exceptions."""

    name = "mute"

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        def call(*args: Any, **kwargs: Any) -> Any:
            out, sys.stdout = sys.stdout, io.StringIO()
            try:
                return fn(*args, **kwargs)
            except Exception as error:
                raise type(error)(*error.args) from None
            finally:
                sys.stdout = out

        return call


class Careless(FrontEnd):
    """Right in the end, but traces in the real world: its backend sees effects before anything was replayed."""

    name = "careless"

    def compile(self, fn: Any, backend: Any, fullgraph: bool = False, **options: Any) -> Compiled:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            backend(torch.fx.symbolic_trace(torch.nn.Identity()), [])
            return result

        return call


FRONTENDS = {
    cls.name: cls
    for cls in (FrontEnd, Alternator, ThroughAOTAutograd, Dynamo, Stale, Lost, Twice, Anew, Mute, Careless)
}
WRONG = ("stale", "lost", "twice", "anew", "mute", "careless")


def chosen() -> str:
    return os.environ.get("ALTERNATOR_TEST_FRONTEND") or "alternator"


def missing(name: str) -> str | None:
    """Why this front end cannot be had here, in one sentence. A core that is there and cannot be loaded is an error."""
    if name != "alternator":
        return None
    try:
        # What the first graph with symbols loads registers abstract classes, which invalidates what traces have read of
        # others: here before all programs, and once for all their processes.
        import alternator.symbolic_examples  # noqa: F401
    except ModuleNotFoundError as error:
        return str(error)
    return None

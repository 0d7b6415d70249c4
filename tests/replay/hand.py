"""A trace by hand: a value made with stand-in tensors, reconstructed by a residual program with real ones."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from isomorphic import check_same

from alternator._C import replay


def made_here(value: Any) -> bool:
    """Functions and classes of the test's own bodies."""
    return isinstance(value, (type, types.FunctionType)) and "<locals>.make" in value.__qualname__


def rebuild(make: Callable[..., Any], tensors: int = 2) -> Any:
    """What the residual program of `make` gives, compared with what `make` itself gives."""
    stand_ins = [torch.zeros(2) for _ in range(tensors)]
    world = replay.World(made_here)
    residual = world.build(make(*stand_ins))
    position = {id(t): i for i, t in enumerate(stand_ins)}
    first = None
    for run in (1, 2):
        real = [torch.full((2,), float(10 * run + i)) for i in range(tensors)]
        result = residual.run({}, [real[position[id(t)]] for t in residual.outputs])
        check_same(result, make(*real), made_here)
        if first is None:
            first = result
    return first


def text_of(make: Callable[..., Any], tensors: int = 2) -> str:
    return replay.World(made_here).build(make(*[torch.zeros(2) for _ in range(tensors)])).text()

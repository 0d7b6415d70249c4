"""Alternator as td_suite.py (TorchDynamo's tests of 2022) calls it: compile(), and what those tests ask for beside it.

PYTHONPATH=.:tools python td_suite.py --frontend td_frontend:compile
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.utils import counters  # noqa: F401

import alternator
from alternator import (  # noqa: F401
    allow_in_graph,
    assume_constant_result,
    compile,
    disable,
    disallow_in_graph,
    exc,
    explain,
    export,
    graph_break,
    reset,
    run,
    skip,
)


def optimize(backend: Any, *, nopython: bool = False) -> alternator.compiler.Compiling:
    """`with optimize(backend):`; nopython is the business of compile()."""
    return alternator.compiling(backend=backend)


def set_config_2022(name: str, value: Any) -> None:
    if name == "cache_size_limit":
        alternator.config.recompile_limit = value
    elif name in ("verify_correctness", "capture_scalar_outputs"):
        setattr(alternator.config, name, value)

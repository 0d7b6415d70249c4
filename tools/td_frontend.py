"""The adapter for td_suite.py (TorchDynamo's tests of 2022): compile(), the other functions that those tests use, and the names that
settings, backends and loggers had in 2022.

PYTHONPATH=.:tools python td_suite.py --frontend td_frontend:compile
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend, register_backend
from torch._dynamo.utils import counters  # noqa: F401

import alternator
from alternator import (  # noqa: F401
    allow_in_graph,
    assume_constant_result,
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


def compile(model: Any, *, backend: Any, fullgraph: bool = False) -> Any:
    if getattr(backend, "__qualname__", "") == "_resolve.<locals>.eager":  # the shim's, created for each call
        backend = "eager"
    return alternator.compile(model, backend=backend, fullgraph=fullgraph)


def optimize(backend: Any, *, nopython: bool = False) -> alternator.compiler.Compiling:
    """`with optimize(backend):`; nopython is ignored, compile() handles it."""
    return alternator.compiling(backend=backend)


# Backends by their names of 2022. The first was renamed; the second was TorchScript with the NNC fuser.
register_backend(lookup_backend("aot_eager_decomp_partition"), "aot_inductor_debug")


@register_backend
def nnc(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    with torch.jit.fuser("fuser1"):
        return torch.jit.script(gm)


# Loggers: the warnings of "alternator", and what TORCH_LOGS=dynamo shows.
_logs = logging.getLogger("torch._dynamo.alternator")
_messages_of_2022 = {
    "alternator hit config.recompile_limit": "torchdynamo hit config.cache_size_limit",
    "stride mismatch at index": "strides mismatch at index",
}


class _As2022(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for today, then in _messages_of_2022.items():
            text = text.replace(today, then)
        logging.getLogger("torchdynamo").log(record.levelno, "%s", text)


for _logger in (alternator.logs.log, _logs):
    _logger.addHandler(_As2022())


def set_config_2022(name: str, value: Any) -> None:
    if name == "cache_size_limit":
        alternator.config.recompile_limit = value
    elif name == "log_level":
        _logs.setLevel(value)
    elif name == "dynamic_shapes":
        alternator.config.assume_static_by_default = not value
        alternator.config.automatic_dynamic_shapes = False
    elif name == "specialize_int_float":
        alternator.config.specialize_int = alternator.config.specialize_float = value
    elif name in ("verify_correctness", "capture_scalar_outputs"):
        setattr(alternator.config, name, value)

"""Alternator: a front end for PyTorch compilation with a C++ core."""

from __future__ import annotations

from ._load import load_core as _load_core

__version__ = "0.1.0"

_C = _load_core()

# After the core, which they use.
from . import config, exc  # noqa: E402
from .breaks import (  # noqa: E402
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    error_on_graph_break,
    graph_break,
    nonstrict_trace,
    skip,
)
from .compiler import compile, compiling, counters, disable, is_compiling, reset, run  # noqa: E402
from .exc import BackendFailed, Unsupported  # noqa: E402
from .explain import explain  # noqa: E402
from .export import export  # noqa: E402
from .install import install, uninstall  # noqa: E402

__all__ = [
    "BackendFailed",
    "Unsupported",
    "__version__",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compiling",
    "config",
    "counters",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "exc",
    "explain",
    "export",
    "graph_break",
    "install",
    "is_compiling",
    "nonstrict_trace",
    "reset",
    "run",
    "skip",
    "uninstall",
]

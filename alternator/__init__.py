"""Alternator: a front end for PyTorch compilation with a C++ core."""

from __future__ import annotations

from ._load import load_core as _load_core

__version__ = "0.1.0.dev0"

_C = _load_core()

# After the core, which they use.
from . import config, exc  # noqa: E402
from .breaks import graph_break  # noqa: E402
from .compiler import compile, counters, disable, is_compiling, reset  # noqa: E402
from .exc import BackendFailed, Unsupported  # noqa: E402
from .explain import explain  # noqa: E402
from .install import install, uninstall  # noqa: E402

__all__ = [
    "BackendFailed",
    "Unsupported",
    "__version__",
    "compile",
    "config",
    "counters",
    "disable",
    "exc",
    "explain",
    "graph_break",
    "install",
    "is_compiling",
    "reset",
    "uninstall",
]

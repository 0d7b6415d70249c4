"""Alternator: a front end for PyTorch compilation with a C++ core."""

from __future__ import annotations

from ._load import load_core as _load_core

__version__ = "0.1.0.dev0"

_C = _load_core()

# After the core, which it uses.
from .compiler import compile, counters, reset  # noqa: E402

__all__ = ["__version__", "compile", "counters", "reset"]

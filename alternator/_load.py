"""Loads the compiled core, or raises an ImportError that says in one sentence why it cannot."""

from __future__ import annotations

import importlib
from types import ModuleType


def load_core() -> ModuleType:
    try:
        # First: the core links torch's libraries, which importing torch loads.
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("alternator needs torch==2.13.0, which is not installed.") from None
    try:
        core = importlib.import_module("alternator._C")
    except ModuleNotFoundError as error:
        if error.name != "alternator._C":
            raise
        raise ImportError(
            "alternator's core is not built for this Python: run `make build` in the source tree,"
            " or `pip install --no-build-isolation .`"
        ) from None
    built_for: str = core.built_for_torch
    if torch.__version__.split("+")[0] != built_for:
        raise ImportError(
            f"alternator's core was built for torch {built_for}, but torch {torch.__version__} is installed: build it again."
        )
    return core

"""The taint sanitizer is on for every test here; it must be asked for before the core is loaded."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("ALTERNATOR_SANITIZE_TAINT", "1")
# Inductor's pool of processes and threads is nothing for forked children: waiting for it may not end.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# The tests here import each other by plain names.
sys.path.insert(0, str(Path(__file__).resolve().parent))

try:
    import torch
except ModuleNotFoundError:
    # An interpreter for the torch-free rooms only: no file here could be imported.
    collect_ignore_glob = ["test_*.py"]
else:
    # Programs run in forked children: no pool of threads may exist before.
    torch.set_num_threads(1)
    faulthandler.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These come first: a process that has run a backward pass may not fork any more."""
    here = Path(__file__).resolve().parent
    items.sort(key=lambda item: here not in item.path.parents)


def threads_of_autograd() -> list[str]:
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if name.startswith("pt_autograd")]


@pytest.fixture(autouse=True)
def no_threads_of_autograd() -> Iterator[None]:
    """Who starts some here takes the backward pass from all tests that come after: `alone` and `in_child` are for that."""
    before = threads_of_autograd()
    yield
    assert threads_of_autograd() == before, "a backward pass outside of a child"

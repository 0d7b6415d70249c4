"""Traced programs (helpers/traced.py) run first, under the taint sanitizer, which must be switched on before the core is loaded."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "helpers"))

from traced import is_traced, traced_files  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None
# An interpreter for the torch-free rooms only could not import a traced program.
collect_ignore = [] if HAS_TORCH else [str(path.relative_to(TESTS)) for path in traced_files()]


def pytest_configure(config: pytest.Config) -> None:
    asked = [Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args]
    if not HAS_TORCH or not any(traced_files(path) for path in asked):
        return
    os.environ.setdefault("ALTERNATOR_SANITIZE_TAINT", "1")
    # Inductor's pool of processes and threads is nothing for forked children: waiting for it may not end.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch

    # Programs run in forked children: no pool of threads may exist before.
    torch.set_num_threads(1)
    faulthandler.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Traced programs come first: a process that has run a backward pass may not fork any more."""
    items.sort(key=lambda item: not is_traced(item.path))


def threads_of_autograd() -> list[str]:
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if name.startswith("pt_autograd")]


@pytest.fixture(autouse=True)
def no_threads_of_autograd(request: pytest.FixtureRequest) -> Iterator[None]:
    """Who starts some in a traced file takes the backward pass from all that come after: `alone` and `in_child` are for that."""
    if not is_traced(request.path):
        yield
        return
    before = threads_of_autograd()
    yield
    assert threads_of_autograd() == before, "a backward pass outside of a child"

"""For tests of the interface (api, backend, dispatch): each begins with nothing compiled; traced programs do so by themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from traced import is_traced

torch = pytest.importorskip("torch", reason="the API needs torch")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> Iterator[None]:
    if is_traced(request.path):
        yield
        return
    import alternator

    alternator.reset()
    torch.manual_seed(0)
    yield
    alternator.reset()


class Seen:
    """A backend that remembers what it was given, and runs graphs as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.inputs: list[list[Any]] = []

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Any:
        self.graphs.append(gm)
        self.inputs.append(example_inputs)
        return gm.forward


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., str]:
    """Runs a program in a process of its own; gives what it printed, errors included."""

    def run(program: str, *, fails: bool = False, **environment: str) -> str:
        import os

        file = tmp_path / "program.py"
        file.write_text(program)
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        done = subprocess.run(
            [sys.executable, str(file)], env=variables, text=True, capture_output=True, timeout=300, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run

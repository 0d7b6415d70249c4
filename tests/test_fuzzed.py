"""A short dose of the fuzzer with a fixed seed: `make fuzz` and `python -m tests.fuzz` run longer ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from frontends import chosen, missing

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = 1000
CAPTURED = 65  # percent of the calls: a fuzzer of programs that run eagerly finds nothing


@pytest.mark.parametrize(("kind", "seconds"), [((), 40), (("--sizes",), 20)], ids=["plain", "sizes"])
def test_random_programs(kind: tuple[str, ...], seconds: int) -> None:
    if chosen() != "alternator" or missing("alternator"):
        pytest.skip(missing("alternator") or "the fuzzer is for Alternator here")
    dose = ["--seed", "1", "--programs", str(PROGRAMS), "--seconds", str(seconds), "--jobs", "1", "--no-shrink", *kind]
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *dose], cwd=ROOT, capture_output=True, text=True, timeout=seconds + 120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    numbers = re.search(r"(\d+) programs .* captured (\d+)% of the calls", run.stdout)
    assert numbers, run.stdout + run.stderr
    programs, captured = map(int, numbers.groups())
    assert programs >= 20 and captured >= CAPTURED, run.stdout

"""A sample of torch's operator database against fakes; `make test-opinfo` runs all of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="fakes need torch")

RUN = Path(__file__).parents[1] / "opinfo" / "run.py"


def test_a_sample_matches_eager() -> None:
    """Every 23rd operator, in worker processes: no surprise, no crash, no hang."""
    command = [sys.executable, str(RUN), "--every", "23", "--samples", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    checked = re.match(r"(\d+) operators: (\d+) match", done.stdout)
    assert checked is not None and int(checked[1]) >= 28 and int(checked[2]) >= 25, done.stdout

"""`make demo` shows what it claims."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_demo_finds_every_report_the_same() -> None:
    result = subprocess.run([sys.executable, ROOT / "demo/run.py"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("the report is the same, letter by letter.") == 3
    assert "DIFFERS" not in result.stdout

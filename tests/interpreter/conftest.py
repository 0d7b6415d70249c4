"""Lets pytest run the cases that support.cases() marks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# The tests here import each other by plain names, as they do under run.py on interpreters without pytest.
sys.path.insert(0, str(Path(__file__).resolve().parent))


def pytest_generate_tests(metafunc: Any) -> None:
    values = getattr(metafunc.function, "cases", None)
    if values is not None:
        metafunc.parametrize("case", values, ids=lambda value: getattr(value, "__name__", str(value)))

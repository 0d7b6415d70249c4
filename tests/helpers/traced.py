"""Which test files hold traced programs: those that import the harness, wherever in tests/ they stand.

Their programs run in forked children, so they come before any backward pass in this process, and with the taint sanitizer on.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
IMPORTS_HARNESS = re.compile(r"^(?:from|import) (?:harness|trace_support|frontends|forced)\b", re.MULTILINE)


@functools.cache
def is_traced(path: Path) -> bool:
    return path.name.startswith("test_") and bool(IMPORTS_HARNESS.search(path.read_text()))


def files_of_tests(under: Path = TESTS) -> list[Path]:
    return [under] if under.is_file() else sorted(under.rglob("test_*.py"))


def traced_files(under: Path = TESTS) -> list[Path]:
    return [path for path in files_of_tests(under) if is_traced(path)]


def make_importable(paths: list[Path]) -> None:
    """Test modules have unique base names, as pytest wants them: each is imported by its own."""
    for folder in dict.fromkeys(str(path.parent) for path in paths):
        if folder not in sys.path:
            sys.path.append(folder)

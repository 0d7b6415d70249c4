"""Every code block of the pages for users does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/quick_start.md",
    "docs/explain.md",
    "docs/breaks.md",
    "docs/reading_logs.md",
    "docs/differences.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    # A real file: what is compiled has its source, and messages show its lines.
    file = tmp_path / "page.py"
    file.write_text("\n".join(blocks))
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(file)}
    exec(compile(file.read_text(), str(file), "exec"), names)

"""Every code block of the pages for users does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
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
    "docs/backend.md",
    "docs/shapes.md",
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


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them of the headings; and those that are written out."""
    text = page.read_text()
    titles = [
        re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.*)$", text)
    ]
    return {*titles, *re.findall(r'<a (?:id|name)="([^"]+)"', text)}


def test_links_and_named_sources_exist() -> None:
    missing = []
    for page in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        text = page.read_text()
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text):
            place = page.parent / target if target else page
            if place.exists() and anchor not in anchors_of(place):
                missing.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
        for target in re.findall(r"\]\(([^)#:\s]+)", text):
            if not (page.parent / target).exists():
                missing.append(f"{page.relative_to(ROOT)}: {target}")
        # A path of a source file is said from a room, from csrc/ or from the top: `lift/sources/guards.def`, `entry.cpp`.
        for name in re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:cpp|h|def))`", text):
            if name == "torch/extension.h":  # not ours
                continue
            places = [ROOT / name, ROOT / "csrc" / name]
            if not any(place.exists() for place in places) and not any((ROOT / "csrc").rglob(name)):
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert not missing, missing


def test_pictures_are_up_to_date() -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "picture.py"), "--check"], check=True)

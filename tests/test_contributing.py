"""The patches that CONTRIBUTING.md shows apply to the tree as it is, and compile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
COMMANDS = ROOT / "build/torch/compile_commands.json"
# Heading -> patch.
PATCHES = {
    part.split("\n", 1)[0]: match[1]
    for part in re.split(r"^### ", PAGE, flags=re.M)[1:]
    if (match := re.search(r"^```diff\n(.*?)^```$", part, re.M | re.S))
}
WANTED = {
    "A native function that may run in a trace",
    "A guard kind",
    "An accessor",
    "A break reason",
    "A rebuild kind",
    "An opcode of a new CPython",
}


def apply(folder: Path, patch: str) -> None:
    command = ["git", "apply", "--verbose", "-"]
    result = subprocess.run(command, cwd=folder, input=patch, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stderr}\nCONTRIBUTING.md shows:\n{patch}"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    for name in sorted({name for patch in PATCHES.values() for name in re.findall(r"^--- a/(\S+)", patch, re.M)}):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_every_addition_has_an_example() -> None:
    assert set(PATCHES) == WANTED


def test_all_examples_apply_together(scratch: Path) -> None:
    for patch in PATCHES.values():
        apply(scratch, patch)


@pytest.mark.parametrize("heading", sorted(WANTED))
def test_an_addition_is_one_row_and_at_most_one_function(heading: str) -> None:
    added = re.findall(r"^\+(?!\+\+)(.*)$", PATCHES[heading], re.M)
    assert len([line for line in added if line.startswith("ALT_") and not line.startswith("ALT_OP(")]) == 1
    assert not re.findall(r"^-(?!--)", PATCHES[heading], re.M), "it changes what is there"
    assert len(set(re.findall(r"^--- a/(csrc/\S+)", PATCHES[heading], re.M))) <= 2


# The file that must still compile with a row more.
COMPILED = {
    "A guard kind": "csrc/guards/check_guards.cpp",
    "An accessor": "csrc/lift/sources/follow.cpp",
}


@pytest.mark.parametrize("heading", COMPILED)
def test_an_example_compiles(scratch: Path, heading: str) -> None:
    if not COMMANDS.exists():
        pytest.skip("build/torch is not configured here")
    apply(scratch, PATCHES[heading])
    name = COMPILED[heading]
    entry = next(row for row in json.loads(COMMANDS.read_text()) if row["file"] == str(ROOT / name))
    command = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx| -fpch-preprocess| -o \S+", "", entry["command"])
    command = re.sub(r"^\S*cmake -E env .*?ccache |^\S*ccache ", "", command)
    # What the patch touches is found before what is there.
    command = command.replace(f" -c {ROOT / name}", f" -fsyntax-only {scratch / name}")
    command = re.sub(r"^(\S+)", rf"\1 -I{scratch / 'csrc'}", command)
    result = subprocess.run(command, shell=True, cwd=entry["directory"], capture_output=True, text=True)
    assert result.returncode == 0, f"{command}\n{result.stderr}"

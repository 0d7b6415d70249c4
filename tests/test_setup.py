"""A machine that lacks something is told so in one sentence. Each case runs in a copy of the front door, with a faked PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ["bash", "make", "dirname", "ls", "sort", "touch", "grep", "sed", "env", "cat", "expand", "nproc"]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with the front door and a PATH (bin/) that holds the shell tools only."""
    for name in ("tools", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "csrc/cpython").mkdir(parents=True)
    (tmp_path / "csrc/cpython/v311.h").touch()
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"{tool} is needed to run this test"
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def script(machine: Path, name: str, text: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def sentence_of(machine: Path, target: str, **variables: str) -> str:
    """Runs make, which must fail; returns its one sentence."""
    environment = {"PATH": str(machine / "bin"), "HOME": str(machine / "home"), **variables}
    result = subprocess.run(["make", target], cwd=machine, env=environment, capture_output=True, text=True)
    assert result.returncode != 0, result.stdout
    output = result.stdout + result.stderr
    assert "Traceback" not in output
    sentences = [line for line in output.splitlines() if line.startswith("alternator:")]
    assert len(sentences) == 1, output
    others = [line for line in output.splitlines() if line not in sentences]
    assert all(line.startswith("make") for line in others), output
    return sentences[0]


def test_no_compiler(machine: Path) -> None:
    assert "g++ was not found" in sentence_of(machine, "test")


def test_a_compiler_that_is_too_old(machine: Path) -> None:
    script(machine, "g++", "exit 1")
    assert "install g++ 11 or newer" in sentence_of(machine, "test")


@pytest.mark.parametrize("target", ["test", "demo", "bench", "lint"])
def test_no_python(machine: Path, target: str) -> None:
    script(machine, "g++", "exit 0")
    assert "no CPython 3.11 with its C headers was found" in sentence_of(machine, target)


def test_another_python_is_not_taken(machine: Path) -> None:
    script(machine, "g++", "exit 0")
    # An interpreter of another version answers the question for its version with a failure, as this one does.
    script(machine, "python3", "exit 1")
    assert "no CPython 3.11 with its C headers was found" in sentence_of(machine, "test")


def test_the_variable_names_a_wrong_python(machine: Path) -> None:
    script(machine, "g++", "exit 0")
    script(machine, "other", "exit 1")
    said = sentence_of(machine, "test", ALTERNATOR_PYTHON311=str(machine / "bin/other"))
    assert "ALTERNATOR_PYTHON311 is set to" in said and "not a CPython 3.11" in said


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="needs the CPython 3.11 that this test runs in")
def test_no_venv_module(machine: Path) -> None:
    script(machine, "g++", "exit 0")
    (machine / "without").mkdir()
    (machine / "without/ensurepip.py").write_text("raise ImportError('not installed')\n")
    python = os.path.realpath(sys.executable)
    said = sentence_of(machine, "test", ALTERNATOR_PYTHON311=python, PYTHONPATH=str(machine / "without"))
    assert "install its venv module" in said


def test_a_broken_environment(machine: Path) -> None:
    script(machine, "g++", "exit 0")
    (machine / ".venv").mkdir()
    assert "run 'make distclean'" in sentence_of(machine, "test")


def test_a_version_that_is_not_here_is_said_loudly(machine: Path) -> None:
    command = ["bash", "tools/found_versions.sh", "3.12"]
    environment = {"PATH": str(machine / "bin"), "HOME": str(machine / "home")}
    result = subprocess.run(command, cwd=machine, env=environment, capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stdout == ""
    assert "!!! alternator: CPython 3.12 was NOT FOUND" in result.stderr

"""The package imports, or says in one sentence why it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def last_words(folder: Path, program: str) -> str:
    """The last line of a program that fails, run with `folder` as the only place of the package."""
    result = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert result.returncode != 0, result.stdout
    assert "During handling of the above exception" not in result.stderr
    return result.stderr.splitlines()[-1]


def copy_of_package(folder: Path, *, with_core: bool) -> None:
    ignored = ["__pycache__"] if with_core else ["__pycache__", "*.so"]
    shutil.copytree(ROOT / "alternator", folder / "alternator", ignore=shutil.ignore_patterns(*ignored))


def test_the_built_package_imports() -> None:
    program = "import alternator; print(alternator.__version__)"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_an_unbuilt_package_says_how_to_build_it(tmp_path: Path) -> None:
    copy_of_package(tmp_path, with_core=False)
    said = last_words(tmp_path, "import alternator")
    assert said.startswith("ImportError: alternator's core is not built for this Python: run `make build`")


def test_without_torch(tmp_path: Path) -> None:
    copy_of_package(tmp_path, with_core=True)
    program = "import sys; sys.modules['torch'] = None; import alternator"
    assert last_words(tmp_path, program) == "ImportError: alternator needs torch==2.13.0, which is not installed."


def test_another_torch_is_refused(tmp_path: Path) -> None:
    copy_of_package(tmp_path, with_core=True)
    program = "import torch; torch.__version__ = '9.9.9+cpu'; import alternator"
    said = last_words(tmp_path, program)
    assert said.startswith(
        "ImportError: alternator's core was built for torch 2.13.0, but torch 9.9.9+cpu is installed"
    )


@pytest.mark.skipif(not os.environ.get("ALTERNATOR_LONG_TESTS"), reason="builds everything: make test-install")
def test_the_wheel_in_a_fresh_environment_that_has_torch(tmp_path: Path) -> None:
    subprocess.run(["make", "-s", "wheel"], cwd=ROOT, check=True)
    wheel = max((ROOT / "dist").glob("alternator-*.whl"), key=lambda path: path.stat().st_mtime)
    fresh = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    (packages,) = fresh.glob("lib/python*/site-packages")
    # torch is there already; Alternator is not.
    (packages / "ready.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = fresh / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    installed = subprocess.run([*pip, wheel], env=environment, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "quick_start.md").read_text(), re.DOTALL)
    program = tmp_path / "quick_start.py"  # a real file: what is compiled has its source
    said = 'assert "site-packages" in alternator.__file__, alternator.__file__\nprint(alternator.__version__)\n'
    program.write_text("\n".join([*blocks, "import alternator", said]))
    ran = subprocess.run([python, program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == wheel.name.split("-")[1]

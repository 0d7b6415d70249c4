"""The C++ unit tests (tests/cpp), each as a test of pytest's, run in a worker process that may crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
VERSION = "{}.{}".format(*sys.version_info[:2])
CORE = Path(os.environ.get("ALTERNATOR_CORE_DIR") or ROOT / "build" / f"core-{VERSION}")
TORCH = Path(os.environ.get("ALTERNATOR_TORCH_DIR") or ROOT / "build" / "torch")


class Worker:
    """A process with one test extension loaded. It is started again after a crash."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder, self.module = folder, module
        self.process: subprocess.Popen[str] | None = None

    def ask(self, question: str) -> Any:
        if self.process is None:
            command = [sys.executable, str(ROOT / "tests/cpp/worker.py"), str(self.folder), self.module]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died before it read the question: the empty answer below says so
        answer = self.process.stdout.readline()
        if not answer:
            status = self.stop()
            raise RuntimeError(f"{self.module} (in {self.folder}) ended with status {status}; its words are above")
        return json.loads(answer)

    def stop(self) -> int | None:
        process, self.process = self.process, None
        if process is None:
            return None
        process.communicate()
        return process.returncode


def extensions() -> list[tuple[Path, str]]:
    """The test extensions that this interpreter must have. A torch room's tests need torch, so 3.11 only."""
    wanted = [(CORE, "_alternator_core_tests")]
    if VERSION == "3.11" and "ALTERNATOR_CORE_DIR" not in os.environ and torch_test_files():
        wanted.append((TORCH, "_alternator_torch_tests"))
    return wanted


def rooms_with_torch() -> set[str]:
    """The room of fakes, and every room that may include it."""
    lines = (ROOT / "csrc/layers.txt").read_text().splitlines()
    units = dict(line.split(":") for line in lines if line and line[0] not in "#[")
    return {unit.split("/")[0] for unit, below in units.items() if unit == "fake" or "fake" in below.split()}


def torch_test_files() -> set[str]:
    torch_rooms = rooms_with_torch()
    return {path.name for path in ROOT.glob("tests/cpp/*_test.cpp") if path.name.split("_")[0] in torch_rooms}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cpp_test" not in metafunc.fixturenames:
        return
    cases = []
    for folder, module in extensions():
        worker = Worker(folder, module)
        try:
            listed = worker.ask("")
        except RuntimeError as error:
            # Never fewer tests in silence: what cannot be loaded is a failing case.
            cases.append(pytest.param((folder, module, "", str(error)), id=module))
            continue
        finally:
            worker.stop()
        cases += [
            pytest.param((folder, module, name, Path(file).name), id=f"{Path(file).stem}-{name}")
            for name, file, _ in listed
        ]
    metafunc.parametrize("cpp_test", cases)


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Worker]]:
    started: dict[str, Worker] = {}
    yield started
    for worker in started.values():
        assert worker.stop() in (0, None)


def test_cpp(cpp_test: tuple[Path, str, str, str], workers: dict[str, Worker]) -> None:
    folder, module, name, detail = cpp_test
    if not name:
        pytest.fail(f"the C++ unit tests cannot be loaded (`make build` makes them): {detail}", pytrace=False)
    worker = workers.setdefault(module, Worker(folder, module))
    failure = worker.ask(name)
    if failure:
        pytest.fail(failure, pytrace=False)


def test_no_cpp_test_file_is_left_out() -> None:
    """Every *_test.cpp in the tree is in an extension: none was dropped by the build."""
    expected = {path.name for path in ROOT.glob("tests/cpp/*_test.cpp")}
    if len(extensions()) == 1:
        expected -= torch_test_files()
    present: set[str] = set()
    for folder, module in extensions():
        worker = Worker(folder, module)
        listed = worker.ask("")
        assert worker.stop() == 0
        present |= {Path(file).name for _, file, _ in listed}
    assert expected == present


def test_a_crash_is_one_failing_test(tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(
        "import os\ndef run(name):\n    if name == 'crash': os.kill(os.getpid(), 9)\n    return name + ' ran'\n"
    )
    worker = Worker(tmp_path, "crashing")
    with pytest.raises(RuntimeError, match="ended with status -9"):
        worker.ask("crash")
    assert worker.ask("next") == "next ran"
    assert worker.stop() == 0

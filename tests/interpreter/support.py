"""What every test here needs: the extension module, outcomes to compare, processes to crash in.

The tests run under pytest on the project's own interpreter and, because pytest may be absent there, under run.py on the others. So
they are plain functions with plain asserts; several cases are given with @cases, and a test that cannot run raises unittest.SkipTest.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import programs
from programs import Program, describe, harness, trace

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# How many times larger the loop's C frame is than in an ordinary build: tools/asan.sh says so.
FRAME_SCALE = int(os.environ.get("ALTERNATOR_FRAME_SCALE", "1"))
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def core_folder() -> Path:
    return Path(os.environ.get("ALTERNATOR_CORE_DIR") or ROOT / "build" / f"core-{VERSION}")


def load_core() -> Any:
    folder = core_folder()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        return importlib.import_module("_alternator_core")
    except ImportError as error:
        raise ImportError(
            f"No _alternator_core for CPython {VERSION} in {folder}: build it first (make build-core)."
        ) from error


core = load_core()
PROGRAMS = list(programs.load().values())


def cases(*values: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test is run once with each value."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        function.cases = values  # type: ignore[attr-defined]
        return function

    return mark


# --------------------------------------------------------------------------------------------------------------- outcomes


@harness
def attempt(function: Callable[..., Any], *args: Any) -> tuple[str, ...]:
    """What a call did, as text: the value, or the exception with its chain and traceback entries."""
    try:
        value = function(*args)
    except BaseException as error:
        return "raised", describe(error), repr(trace(error))
    return "returned", repr(value)


@harness
def direct(function: Callable[[], Any]) -> Any:
    return function()


def raised(kind: type[BaseException], function: Callable[[], Any]) -> str:
    """The text of the exception that the call must raise."""
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


class Harness(Exception):
    """Being handled by the harness while a program runs, where a test wants that."""


@harness
def in_handler(function: Callable[..., Any], *args: Any) -> Any:
    try:
        raise Harness
    except Harness:
        return function(*args)


@functools.cache
def codes_of(program: Program) -> list[CodeType]:
    """Every code of the programs' files that the program enters, in order of first entry."""
    found: dict[CodeType, None] = {}
    folder = os.path.dirname(programs.__file__)

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(folder) and code.co_filename != programs.__file__:
            found[code] = None

    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        attempt(program.function)
    finally:
        sys.setprofile(previous)
    return list(found)


def codes_inside(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_inside(constant)


def blocks_and_objects() -> tuple[int, int]:
    # A full collection empties the free lists. The type cache keeps the last names that were looked up (4096 of them at most), which
    # may be strings made for one call, as those of the import machinery.
    gc.collect()
    gc.collect()
    sys._clear_type_cache()
    objects = len(gc.get_objects())
    return sys.getallocatedblocks(), objects


def free_depth() -> int:
    """How many calls are left before a RecursionError: it must not shrink when runs are abandoned."""

    def down(level: int) -> int:
        try:
            return down(level + 1)
        except RecursionError:
            return level

    return down(0)


# -------------------------------------------------------------------------------------------------------------- processes

PRELUDE = """\
import sys
sys.path[:0] = [{here!r}]
import faulthandler; faulthandler.enable()
from support import FRAME_SCALE, core
"""


class Finished:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def __repr__(self) -> str:
        return f"status {self.status}\n--- out\n{self.out[-3000:]}\n--- err\n{self.err[-3000:]}"


def in_process(
    source: str,
    *,
    stdin: str = "",
    timeout: float = 120,
    prelude: bool = True,
    check: bool = True,
    file: Path | None = None,
) -> Finished:
    """Run source in a fresh interpreter of this version. With check, it has to end with status 0."""
    text = (PRELUDE.format(here=str(HERE)) if prelude else "") + textwrap.dedent(source)
    environment = dict(os.environ, ALTERNATOR_CORE_DIR=str(core_folder()), PYTHONHASHSEED="1")
    command = [sys.executable, "-X", "faulthandler"]
    if file is None:
        command += ["-c", text]
    else:
        file.write_text(text)
        command += [str(file)]
    child = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, err = child.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)
        try:
            out, err = child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
        raise AssertionError(f"no end after {timeout} s\n{Finished(child.returncode, out, err)}") from None
    finished = Finished(child.returncode, out, err)
    if check:
        assert finished.status == 0, finished
    return finished


def same_in_loop(source: str, *, stdin: str = "", timeout: float = 120) -> Finished:
    """Run source in the default loop and in ours: status and output must be the same. The name `loop` in it says which it is."""
    runs = []
    for loop in (False, True):
        start = f"loop = {loop}\nif loop: core.interpret(True)\n"
        runs.append(in_process(start + textwrap.dedent(source), stdin=stdin, timeout=timeout, check=False))
    plain, ours = runs
    assert ours.status == plain.status, f"default loop: {plain}\nour loop: {ours}"
    assert ours.out == plain.out, f"default loop: {plain}\nour loop: {ours}"
    return ours


def on_thread(function: Callable[[], Any], *, timeout: float = 60) -> Any:
    """The function's result, computed on a thread of its own."""
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(attempt_value(function)), daemon=True)
    thread.start()
    thread.join(timeout)
    assert not thread.is_alive(), "the thread does not end"
    kind, value = box[0]
    if kind == "raised":
        raise value
    return value


def attempt_value(function: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "returned", function()
    except BaseException as error:
        return "raised", error

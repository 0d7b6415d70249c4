"""Run one file of CPython's own test suite in one mode and write down what happened.

    python run_file.py MODE MODULE RESULT [MATCH]

MODE is plain, idle, loop or exitN. Executed by run_suite.py with the interpreter under test, in an empty directory. RESULT receives one
JSON object; RESULT.progress receives the id of every test as it starts, so that a crash or a hang can be named.
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import json
import os
import re
import signal
import sys
import time
import unittest

ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """The id of a subtest may hold addresses; the same test must have the same id in every run."""
    return ADDRESS.sub("0x", text)


class Recorder(unittest.TextTestResult):
    """Keeps every id with its outcome. The worst outcome of a test wins over those of its subtests."""

    def __init__(self, *args: object, progress: int, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.progress = progress
        self.ran: list[str] = []
        self.bad: dict[str, str] = {}
        self.skips: list[str] = []

    def startTest(self, test: unittest.TestCase) -> None:
        identity = without_addresses(test.id())
        os.write(self.progress, (identity + "\n").encode(errors="backslashreplace"))
        self.ran.append(identity)
        super().startTest(test)

    def addError(self, test: unittest.TestCase, err: object) -> None:
        super().addError(test, err)  # type: ignore[arg-type]
        self.bad[without_addresses(test.id())] = self.errors[-1][1]

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        super().addFailure(test, err)  # type: ignore[arg-type]
        self.bad[without_addresses(test.id())] = self.failures[-1][1]

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:
        before = len(self.failures), len(self.errors)
        super().addSubTest(test, subtest, err)  # type: ignore[arg-type]
        for entries, count in zip((self.failures, self.errors), before, strict=True):
            if len(entries) > count:
                self.bad[without_addresses(subtest.id())] = entries[-1][1]

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self.bad[without_addresses(test.id())] = "unexpected success"

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.skips.append(without_addresses(test.id()))


def probe() -> int:
    total = 0
    for value in range(20):
        total += value
    return total


def select(suite: unittest.TestSuite, match: str) -> unittest.TestSuite:
    chosen = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            chosen.addTest(select(test, match))
        elif match in test.id():
            chosen.addTest(test)
    return chosen


def main() -> None:
    mode, name, result_path = sys.argv[1:4]
    match = sys.argv[4] if len(sys.argv) > 4 else ""
    sys.argv = [sys.argv[0]]
    # The tests must not find this directory, whose modules are not theirs.
    sys.path[0] = os.getcwd()
    faulthandler.enable(all_threads=True)
    # A shell starts background jobs with SIGINT ignored; the tests of KeyboardInterrupt need it as a terminal would have it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    from test import support

    support.use_resources = []
    support.verbose = 0

    core = None
    if mode != "plain":
        sys.path.append(os.environ["ALTERNATOR_CORE_DIR"])
        core = importlib.import_module("_alternator_core")
        sys.path.pop()

    progress = os.open(result_path + ".progress", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.set_inheritable(progress, False)
    stream = io.StringIO()
    started = time.monotonic()
    outcome: dict[str, object] = {"skipped_file": None}
    result = Recorder(unittest.runner._WritelnDecorator(stream), False, 0, progress=progress)  # type: ignore[attr-defined]

    if core is not None:
        core.reset_stats()
        if mode.startswith("exit"):
            core.exit_every(int(mode[4:]))
        if mode == "idle":
            core.idle_hook(True)
        else:
            core.interpret(True)

    try:
        module = importlib.import_module(name)
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        if match:
            suite = select(suite, match)
        result.startTestRun()
        try:
            suite(result)
        finally:
            result.stopTestRun()
    except unittest.SkipTest as skip:
        outcome["skipped_file"] = str(skip)

    if core is not None and mode != "idle":
        # A test may take the hook away. What ran after that proves nothing, so it is reported.
        stats = dict(core.stats())
        probe()
        outcome["loop_on_at_end"] = core.stats()["instructions"] > stats["instructions"]
        outcome["stats"] = stats

    outcome.update(
        ran=result.ran,
        bad=result.bad,
        skipped=result.skips,
        seconds=round(time.monotonic() - started, 2),
    )
    with open(result_path, "w") as out:
        json.dump(outcome, out)
    # The loop stays on: the end of the interpreter (atexit, finalizers, module teardown) belongs to the test.


if __name__ == "__main__":
    main()

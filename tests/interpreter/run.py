"""Run the interpreter tests without pytest, on whichever interpreter executes this file.

    python3.12 tests/interpreter/run.py [-k WORD] [-v] [test_module ...]

Looks for _alternator_core in $ALTERNATOR_CORE_DIR or build/core-X.Y. The exit status is 0 when everything passed.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import sys
import time
import traceback
import unittest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# This one starts the others; it belongs to pytest.
NOT_HERE = {"test_versions"}


def collect(modules: list[str]) -> list[tuple[str, Any, tuple[Any, ...]]]:
    names = modules or sorted(path.stem for path in HERE.glob("test_*.py") if path.stem not in NOT_HERE)
    found = []
    for name in names:
        module = importlib.import_module(name)
        for key, value in vars(module).items():
            if not key.startswith("test_") or not callable(value) or value.__module__ != name:
                continue
            values = getattr(value, "cases", None)
            if values is None:
                found.append((f"{name}::{key}", value, ()))
            else:
                found += [(f"{name}::{key}[{getattr(case, '__name__', case)}]", value, (case,)) for case in values]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("-k", default="", help="only tests whose name contains this")
    parser.add_argument("-v", action="store_true", help="name every test")
    parser.add_argument("--durations", type=int, default=0, help="name the slowest tests")
    options = parser.parse_args()
    faulthandler.enable()
    sys.path.insert(0, str(HERE))
    passed, failed, skipped = [], [], []
    times = []
    started = time.monotonic()
    for name, function, args in collect(options.modules):
        if options.k not in name:
            continue
        if options.v:
            print(name, flush=True)
        begun = time.monotonic()
        try:
            function(*args)
        except unittest.SkipTest as reason:
            skipped.append((name, str(reason)))
        except Exception:
            failed.append(name)
            print(f"FAILED {name}", flush=True)
            traceback.print_exc()
        else:
            passed.append(name)
        times.append((time.monotonic() - begun, name))
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")
    for name in failed:
        print(f"FAILED {name}")
    for seconds, name in sorted(times, reverse=True)[: options.durations]:
        print(f"{seconds:7.2f} s {name}")
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"CPython {version}: {len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped in {time.monotonic() - started:.0f} s"
    )
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

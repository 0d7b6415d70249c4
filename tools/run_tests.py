"""Runs pytest in several processes, two at a time, and prints the output of each when it ends.

    run_tests.py [--core VERSION PYTHON]... -- [pytest arguments]

The traced programs (tests/helpers/traced.py), each of which runs in a forked child, are split into several parts; the tests that
need no torch are one part for every other CPython. Ends with a line of totals; the exit status says whether everything passed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from traced import files_of_tests, is_traced, traced_files  # noqa: E402

CORE_TESTS = ["tests/test_cpp.py", "tests/test_demo.py", "tests/interpreter"]
COUNTED = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed|deselected)\b")
NOTHING_COLLECTED = 5
TRACED_PARTS = 4


@dataclass
class Part:
    name: str
    python: str
    arguments: list[str]


def parts(core: list[list[str]]) -> list[Part]:
    traced = [str(path.relative_to(ROOT)) for path in traced_files()]
    others = [str(path.relative_to(ROOT)) for path in files_of_tests() if not is_traced(path)]
    found = [Part("CPython 3.11, with torch: all but the traced programs", sys.executable, others)]
    for i in range(TRACED_PARTS):
        name = f"CPython 3.11, with torch: traced programs, {i + 1} of {TRACED_PARTS}"
        found.append(Part(name, sys.executable, traced[i::TRACED_PARTS]))
    found += [Part(f"CPython {version}, without torch", python, CORE_TESTS) for version, python in core]
    return found


def run(part: Part, arguments: list[str]) -> tuple[int, str, float]:
    # Two processes share the machine: threads inside of them would only compete.
    # Nor does Inductor get worker processes: in a forked child, as most tests are, waiting for them may hang.
    one = {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")}
    environment = {**os.environ, **one}
    command = [part.python, "-m", "pytest", "-q", *part.arguments, *arguments]
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout, time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", nargs=2, action="append", default=[], metavar=("VERSION", "PYTHON"))
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    sums: Counter[str] = Counter()
    failed: list[str] = []
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        started = [(part, pool.submit(run, part, options.arguments)) for part in parts(options.core)]
        for part, future in started:
            status, output, seconds = future.result()
            print(f"== {part.name} ({seconds:.0f} s)\n{output}", flush=True)
            summary = output.rstrip().rsplit("\n", 1)[-1]
            for number, kind in COUNTED.findall(summary):
                sums[kind] += int(number)
            # With pytest arguments, a part may select nothing; without, a part that collects no test has failed.
            if status != 0 and not (status == NOTHING_COLLECTED and options.arguments):
                failed.append(part.name)
    print("== " + ", ".join(f"{sums[kind]} {kind}" for kind in sorted(sums, key=lambda kind: -sums[kind])))
    if failed:
        sys.exit("alternator: tests failed: " + "; ".join(failed))


if __name__ == "__main__":
    main()

"""Every program of these tests again, with a break forced at every n-th instruction: `make test-breaks`.

    python tests/helpers/forced.py [--every 1 2 3 ...] [--only WORD] [--jobs N]

A break may come anywhere: the frames are filled, one instruction is executed concretely, and the rest is looked up. Whatever n is, the
program must do what it does in eager mode. The exit status is 0 when all do.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def all_programs() -> dict[str, Any]:
    import harness
    from traced import make_importable, traced_files

    files = traced_files()
    make_importable(files)
    for path in files:
        importlib.import_module(path.stem)
    return harness.REGISTRY


def judge(program: Any, every: int) -> list[str]:
    """What is not as in eager mode, with a break at every n-th instruction."""
    import harness

    import alternator

    frontend = harness.the_frontend("alternator")

    def work() -> list[str]:
        program.run(None)  # what torch warns of but once in a process is over then
        wanted = program.run(None)
        if wanted.ended:
            return [f"the program itself is broken: {wanted.ended}"]
        frontend.reset()
        alternator._C.break_every(every)
        found = program.run(frontend)
        again = program.run(frontend, late=True)
        alternator._C.break_every(0)
        late = program.run(None, late=True)
        bugs = program.bugs(found)
        return [*bugs, *harness.compare(wanted, found), *(f"again: {line}" for line in harness.compare(late, again))]

    try:
        lines: list[str] = harness.forked(work)
    except harness.Crashed as crash:
        lines = [f"crashed: {crash}"]
    return lines


def run_part(programs: dict[str, Any], distances: list[int]) -> int:
    """Tries these programs and says what fails; how many runs did."""
    failures = 0
    for name, made in programs.items():
        for every in distances:
            lines = judge(made, every)
            if lines:
                failures += 1
                print("\n    ".join([f"{name} with a break every {every}:", *lines[:4]]), flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, nargs="+", default=[1, 2, 3, 5, 7, 11, 17, 29, 53])
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes at a time")
    options = parser.parse_args()
    os.environ.setdefault("ALTERNATOR_SANITIZE_TAINT", "1")
    sys.path[:0] = [str(HERE), str(ROOT)]
    import torch

    torch.set_num_threads(1)
    import harness

    wrong_already = harness.gaps(harness.KNOWN_WRONG)
    programs = {n: made for n, made in all_programs().items() if options.only in n and n not in wrong_already}
    started = time.monotonic()
    if options.jobs == 1:
        failures = run_part(programs, options.every)
    else:
        children = []
        for part in range(options.jobs):
            child = os.fork()
            if child == 0:
                mine = dict(list(programs.items())[part :: options.jobs])
                os._exit(min(run_part(mine, options.every), 255))
            children.append(child)
        failures = sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256 for child in children)
    runs = len(programs) * len(options.every)
    print(f"{runs} runs of {len(programs)} programs, {failures} failed ({time.monotonic() - started:.0f} s)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

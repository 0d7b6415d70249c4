"""See the package's text, or --help."""

from __future__ import annotations

import argparse
import collections
import re
import sys
import textwrap
import threading
import time
from pathlib import Path

import torch

from .programs import source_of
from .shrink import shrink
from .worker import Answer, Worker
from .world import self_contained

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = '''"""Found by the fuzzer."""

import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import random
import sys
import time
import types
import weakref

import numpy as np
import torch
from harness import T, program
from torch import nn

from alternator import graph_break

CV = contextvars.ContextVar("CV", default=0)
Point = collections.namedtuple("Point", "left right")


'''
PER_CAUSE = 2  # failures that look alike are minimized so many times


class Fuzzer:
    """Hands out program numbers to threads, one worker process each, and collects what failed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.next = options.seed
        self.end = options.seed + options.programs if options.programs else None
        self.deadline = time.monotonic() + options.seconds if options.seconds else None
        self.counts: collections.Counter[str] = collections.Counter()
        self.causes: collections.Counter[str] = collections.Counter()
        self.breaks: collections.Counter[str] = collections.Counter()
        self.started = time.monotonic()

    def take(self) -> int | None:
        with self.lock:
            if (self.end is not None and self.next >= self.end) or (self.deadline and time.monotonic() > self.deadline):
                return None
            self.next += 1
            return self.next - 1

    def work(self) -> None:
        worker = Worker(self.options.frontend, self.options.size, self.options.kind)
        while (number := self.take()) is not None:
            answer = worker.judge(number)
            self.count(answer)
            if answer.failed:
                self.failure(worker, number, answer)
        worker.stop()

    def count(self, answer: Answer) -> None:
        with self.lock:
            self.counts["programs"] += 1
            self.counts[answer.status] += 1
            for name in ("calls", "hits", "eager"):
                self.counts[name] += getattr(answer, name)
            self.counts["captured"] += answer.eager < answer.calls  # some call of it
            self.breaks.update(answer.breaks)
            if self.counts["programs"] % 500 == 0:
                print(self.summary(), flush=True)

    def failure(self, worker: Worker, number: int, answer: Answer) -> None:
        cause = cause_of(answer)
        with self.lock:
            self.causes[cause] += 1
            known = self.causes[cause] > PER_CAUSE
        print(f"program {number}: {answer.status}: {answer.lines[0] if answer.lines else ''}"[:400], flush=True)
        if known or self.options.no_shrink:
            return
        source = self_contained(source_of(number, self.options.size, self.options.kind))

        def fails(text: str) -> bool:
            got = worker.judge(number, text)
            return got.failed and kind_of(got) == kind_of(answer)

        small = shrink(source, fails, self.options.tries) if fails(source) else source
        final = worker.judge(number, small)
        path = write_case(self.options.out, number, small, final)
        print(
            f"program {number}, minimized: {path}\n{textwrap.indent(small, '    ')}\n    # {'; '.join(final.lines)[:500]}",
            flush=True,
        )

    def run(self) -> int:
        threads = [threading.Thread(target=self.work) for _ in range(self.options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(self.summary())
        if self.breaks:
            print("breaks: " + ", ".join(f"{why} {count}" for why, count in self.breaks.most_common()))
        for cause, count in self.causes.most_common():
            print(f"{count:6} {cause}")
        return 1 if self.causes or not self.counts["ok"] else 0

    def summary(self) -> str:
        c = self.counts

        def share(part: int, whole: str) -> str:
            return f"{100 * part / max(c[whole], 1):.0f}%"

        per_minute = 60 * c["programs"] / max(time.monotonic() - self.started, 1e-6)
        return (
            f"{c['programs']} programs ({per_minute:.0f} a minute): {c['ok']} right, {c['wrong']} wrong, {c['crash']} crashes, {c['hang']} hangs, "
            f"{c['invalid']} invalid; {c['calls']} calls, {c['hits']} hits, {c['eager']} eager: "
            f"captured {share(c['calls'] - c['eager'], 'calls')} of the calls, {share(c['captured'], 'programs')} of the programs"
        )


def kind_of(answer: Answer) -> str:
    """What must stay the same while shrinking: how it fails, and in which run."""
    first = answer.lines[0] if answer.lines else ""
    return f"{answer.status} " + re.sub(r"\d+", "", ":".join(first.split(":")[:2]))


def cause_of(answer: Answer) -> str:
    """Failures that look alike."""
    first = answer.lines[0] if answer.lines else ""
    return f"{answer.status}: " + re.sub(r"v?\d+|'[^']*'", "_", first)[:120]


def write_case(folder: Path, number: int, source: str, answer: Answer) -> Path:
    """A file that pytest runs as it is, once it lies in a folder of tests/."""
    folder.mkdir(parents=True, exist_ok=True)
    body = source.replace("def program(t):", f"def test_seed_{number}(t):", 1)
    note = "\n".join(f"# {line}"[:160] for line in answer.lines[:3])
    path = folder / f"test_seed_{number}.py"
    path.write_text(f"{HEADER}{note}\n@program(one_graph=False)\n{body}\n")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__import__(__package__, fromlist=["x"]).__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="number of the first program")
    parser.add_argument("--programs", type=int, default=0, help="how many")
    parser.add_argument("--seconds", type=float, default=0, help="or for how long")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--size", type=int, default=12, help="statements in the compiled function, roughly")
    parser.add_argument(
        "--wide",
        dest="kind",
        action="store_const",
        const="wide",
        default="plain",
        help="more of the language, and breaks: see wide.py",
    )
    parser.add_argument(
        "--sizes",
        dest="kind",
        action="store_const",
        const="sizes",
        help="other sizes and numbers in every call: see sizes.py",
    )
    parser.add_argument("--frontend", default="alternator")
    parser.add_argument("--tries", type=int, default=1500, help="programs tried to minimize one failure")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--show", type=int, help="print the program with this number, and stop")
    options = parser.parse_args()
    if options.show is not None:
        print(source_of(options.show, options.size, options.kind))
        return 0
    if not options.programs and not options.seconds:
        options.programs = 1000
    torch.set_num_threads(1)
    return Fuzzer(options).run()


if __name__ == "__main__":
    sys.exit(main())

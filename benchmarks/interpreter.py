"""How much slower is our loop than CPython's own, on six programs, and what does an idle hook cost?

    python benchmarks/interpreter.py [--repeat N] [--seconds S] [--json FILE]

The loops take turns within one process, and the best processor time of each counts, so that the ratios hold on a busy machine. The target
is a geometric mean of at most 3: regions without tensor work are left to CPython's loop, so the loop is not tuned further.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = 3.0


def load_core() -> Any:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = os.environ.get("ALTERNATOR_CORE_DIR") or str(ROOT / "build" / f"core-{version}")
    sys.path.append(folder)
    try:
        return importlib.import_module("_alternator_core")
    except ImportError:
        raise SystemExit(
            f"There is no _alternator_core for CPython {version} in {folder}. Build it first: make build-core"
        ) from None


# --- the programs: each takes a size and returns a value that must not depend on the loop ---------------------------------


def fib(size: int) -> int:
    return size if size < 2 else fib(size - 1) + fib(size - 2)


def integer_loops(size: int) -> int:
    total = 0
    for outer in range(size):
        for inner in range(100):
            if (outer ^ inner) & 1:
                total += outer * inner % 7
            else:
                total -= inner
    return total


def containers(size: int) -> int:
    table: dict[str, list[int]] = {}
    for index in range(size):
        table.setdefault(f"key{index % 50}", []).append(index)
    squares = {key: [value * value for value in values] for key, values in table.items()}
    merged = [value for values in squares.values() for value in values if value % 3]
    merged.sort()
    return len(merged) + sum(merged[::10]) + len({value % 97 for value in merged})


def numbers(limit: int) -> Iterator[int]:
    value = 0
    while value < limit:
        yield value
        value += 1


def odd(values: Iterator[int]) -> Iterator[int]:
    for value in values:
        if value & 1:
            yield value


def scaled(values: Iterator[int], by: int) -> Iterator[int]:
    for value in values:
        yield value * by


def delegated(values: Iterator[int]) -> Iterator[int]:
    yield from values


def generator_pipeline(size: int) -> int:
    total = 0
    for value in delegated(scaled(odd(numbers(size)), 3)):
        total += value
    return total


class Vector:
    __slots__ = ("x", "y")

    def __init__(self, x: int, y: int) -> None:
        self.x = x
        self.y = y

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.x + other.x, self.y + other.y)

    def scale(self, by: int) -> Vector:
        return Vector(self.x * by, self.y * by)

    @property
    def norm(self) -> int:
        return abs(self.x) + abs(self.y)


class Body:
    def __init__(self, place: Vector) -> None:
        self.place = place
        self.speed = Vector(1, -1)
        self.steps = 0

    def step(self) -> None:
        self.place = self.place + self.speed.scale(self.weight())
        self.steps += 1

    def weight(self) -> int:
        return 2


class Heavy(Body):
    def weight(self) -> int:
        return super().weight() + (self.steps & 1)


def methods(size: int) -> int:
    bodies = [Body(Vector(0, 0)), Heavy(Vector(1, 2))]
    for _ in range(size):
        for body in bodies:
            body.step()
    return sum(body.place.norm for body in bodies)


class Failure(Exception):
    pass


def risky(number: int) -> int:
    if number % 3 == 0:
        raise Failure(number)
    if number % 7 == 0:
        raise KeyError(number)
    return number


def exceptions(size: int) -> int:
    total = 0
    for number in range(size):
        try:
            try:
                total += risky(number)
            except KeyError as error:
                raise Failure(7) from error
            finally:
                total += 1
        except Failure as failure:
            total -= failure.args[0]
    return total


PROGRAMS: dict[str, tuple[Callable[[int], int], int]] = {
    "recursive fib": (fib, 18),
    "nested integer loops": (integer_loops, 100),
    "list and dict building": (containers, 3000),
    "generator pipeline": (generator_pipeline, 4000),
    "method-heavy class code": (methods, 700),
    "exception-heavy code": (exceptions, 3000),
}


def call_only(size: int) -> int:
    def nothing() -> None:
        return None

    for _ in range(size):
        nothing()
    return size


# --- measuring ------------------------------------------------------------------------------------------------------------------


@contextmanager
def nobody() -> Iterator[None]:
    yield


def ways(core: Any) -> dict[str, Callable[[], Any]]:
    @contextmanager
    def loop() -> Iterator[None]:
        core.interpret(True)
        try:
            yield
        finally:
            core.interpret(False)

    @contextmanager
    def idle() -> Iterator[None]:
        core.idle_hook(True)
        try:
            yield
        finally:
            core.idle_hook(False)

    return {"default": nobody, "loop": loop, "idle hook": idle}


def measure(
    program: Callable[[int], int], size: int, surroundings: dict[str, Callable[[], Any]], repeat: int, seconds: float
) -> dict[str, float]:
    """Best time of one run, in seconds, for each loop."""
    best = dict.fromkeys(surroundings, math.inf)
    wanted = program(size)
    for _ in range(3):  # the default loop specializes its instructions first
        program(size)
    gc.collect()
    gc.disable()
    started = time.perf_counter()
    try:
        for turn in range(repeat):
            for way, around in surroundings.items():
                with around():
                    begun = time.thread_time()
                    result = program(size)
                    taken = time.thread_time() - begun
                assert result == wanted, f"{way}: {result} instead of {wanted}"
                best[way] = min(best[way], taken)
            if turn >= 4 and time.perf_counter() - started > seconds:
                break
    finally:
        gc.enable()
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=100, help="at most this many rounds for each program")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="at most this long for each program, after five rounds"
    )
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    core = load_core()
    surroundings = ways(core)

    version = ".".join(map(str, sys.version_info[:3]))
    print(f"CPython {version}: our loop and an idle hook against the default loop\n")
    print(f"| {'program':24} | default ms | our loop ms | ratio | ns/instruction | idle hook |")
    print(f"|{'-' * 26}|{'-' * 12}|{'-' * 13}|{'-' * 7}|{'-' * 16}|{'-' * 11}|")
    rows = {}
    for name, (program, size) in PROGRAMS.items():
        best = measure(program, size, surroundings, options.repeat, options.seconds)
        core.reset_stats()
        with surroundings["loop"]():
            program(size)
        instructions = max(core.stats()["instructions"], 1)
        ratio, idle = best["loop"] / best["default"], best["idle hook"] / best["default"]
        rows[name] = {
            "default_s": best["default"],
            "loop_s": best["loop"],
            "ratio": ratio,
            "idle_ratio": idle,
            "instructions": instructions,
        }
        print(
            f"| {name:24} | {best['default'] * 1e3:10.2f} | {best['loop'] * 1e3:11.2f} | {ratio:4.2f}x "
            f"| {best['loop'] / instructions * 1e9:14.1f} | {idle:8.2f}x |"
        )
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows.values()) / len(rows))
    idle_mean = math.exp(sum(math.log(row["idle_ratio"]) for row in rows.values()) / len(rows))
    print(f"| {'geometric mean':24} | {'':10} | {'':11} | {mean:4.2f}x | {'':14} | {idle_mean:8.2f}x |")

    calls = 20_000
    best = measure(call_only, calls, surroundings, options.repeat, options.seconds / 2)
    per_call = {way: taken / calls * 1e9 for way, taken in best.items()}
    print(
        f"\nA Python call that does nothing: {per_call['default']:.0f} ns; with an idle hook installed {per_call['idle hook']:.0f} ns; "
        f"in our loop {per_call['loop']:.0f} ns."
    )
    print(f"Geometric mean {mean:.2f}x, target at most {TARGET:.0f}x: {'met' if mean <= TARGET else 'NOT met'}.")
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "python": version,
                    "programs": rows,
                    "geometric_mean": mean,
                    "idle_geometric_mean": idle_mean,
                    "call_ns": per_call,
                },
                indent=1,
            )
            + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

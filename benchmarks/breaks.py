"""What a graph break costs: on every call, and when it is compiled. Ratios against TorchDynamo, in one process.

python benchmarks/breaks.py
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

sys.path.append(str(Path(__file__).resolve().parent.parent))

import alternator

BREAKS = 20


def program(breaks: int, graph_break: Callable[[], None]) -> Callable[[torch.Tensor], torch.Tensor]:
    """One small operation between two breaks."""
    lines = [f"    x = x + {i}\n    graph_break()\n" for i in range(breaks)]
    space: dict[str, Any] = {"graph_break": graph_break}
    exec("def fn(x):\n" + "".join(lines) + "    return x + 1\n", space)
    found: Callable[[torch.Tensor], torch.Tensor] = space["fn"]
    return found


def beyond(compiled: Callable[[torch.Tensor], Any], eager: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    """Microseconds that a compiled call takes more than an eager one: the best of alternating rounds."""
    best = [float("inf"), float("inf")]
    for _ in range(15):
        for which, fn in enumerate((compiled, eager)):
            start = time.perf_counter()
            for _ in range(200):
                fn(x)
            best[which] = min(best[which], time.perf_counter() - start)
    return (best[0] - best[1]) / 200 * 1e6


def measure(compile: Callable[..., Any], graph_break: Callable[[], None]) -> tuple[float, float, float]:
    """Microseconds per call without breaks more than eager, microseconds per break, milliseconds to compile them all."""
    x = torch.ones(4)
    whole, broken = program(0, graph_break), program(BREAKS, graph_break)
    compiled_whole, compiled = compile(whole, backend="eager"), compile(broken, backend="eager")
    compiled_whole(x)
    start = time.perf_counter()
    compiled(x)
    first = (time.perf_counter() - start) * 1e3
    call, every = beyond(compiled_whole, whole, x), beyond(compiled, broken, x)
    return call, (every - call) / BREAKS, first


def main() -> None:
    torch.set_num_threads(1)
    logging.getLogger("alternator").setLevel(logging.CRITICAL)
    measure(alternator.compile, alternator.graph_break)  # warm-up: lazy imports
    ours = measure(alternator.compile, alternator.graph_break)
    theirs = measure(torch.compile, torch._dynamo.graph_break)
    rows = ("front end of a call, us", "a break, us", f"compiling {BREAKS} breaks, ms")
    print(f"{'':28}{'alternator':>12}{'TorchDynamo':>14}{'ratio':>8}")
    for name, mine, other in zip(rows, ours, theirs, strict=True):
        print(f"{name:28}{mine:12.2f}{other:14.2f}{other / mine:8.1f}")


if __name__ == "__main__":
    main()

"""What the guards of a call cost, as models grow. Ratios against TorchDynamo's guards in the same process.

    python benchmarks/guards.py [--modules 100 1000] [--rounds 5] [--no-dynamo] [--json]

Guards are built by hand for the modules, parameters, buffers, flags and hooks of a model, as a trace of its forward makes them.
TorchDynamo's figure is the time of its own root guard manager on the same model, compiled with the "eager" backend.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "guards"))
sys.path.append(str(ROOT))

from guard_models import module_tree  # noqa: E402
from guard_trees import Program, Tree, guards  # noqa: E402


class Chain(nn.Module):
    """Submodules with a weight and a bias each."""

    def __init__(self, count: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def per_call(call: Callable[[], Any], rounds: int) -> float:
    """The best time of one call, in microseconds."""
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        if time.perf_counter() - start > 0.02:
            break
        count *= 2
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - start) / count)
    return best * 1e6


def plus_one() -> tuple[Program, tuple[Any, ...], Any]:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    x = torch.ones(4)
    tree = Tree()
    tree.function().guard("kCode", f.__code__, second=f.__globals__)
    tree.slot(0, "x").guard("kTensor", x).identity().need()
    return tree.program(), (x,), f


def chain(count: int) -> tuple[Program, tuple[Any, ...], Any]:
    net, x = Chain(count), torch.ones(2, 2)
    return module_tree(net, x).program(), (net, x), net


def ours(program: Program, slots: tuple[Any, ...], function: Any, rounds: int) -> dict[str, float]:
    result: dict[str, float] = {}
    timer = program.program.time_checks  # a loop in C++: the call from Python is not measured
    for name, enabled in (("walk", False), ("bound", True)):
        guards.set_bindings(enabled)
        for _ in range(4):
            assert program.once(*slots, function=function) is not None
        result[name] = min(timer(function, slots, 200) for _ in range(rounds)) * 1e6
    guards.set_bindings(True)
    return result


def dynamo(callable_: Any, arguments: tuple[Any, ...], rounds: int) -> float | None:
    """The root guard manager of TorchDynamo's entry, called with the frame's locals."""
    torch._dynamo.reset()
    function = callable_.forward if isinstance(callable_, nn.Module) else callable_
    compiled = torch.compile(callable_, backend="eager")
    compiled(*arguments)
    code = function.__code__ if hasattr(function, "__code__") else function.__func__.__code__
    entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(code)
    if not entries:
        return None
    names = code.co_varnames[: code.co_argcount]
    values = (callable_, *arguments) if isinstance(callable_, nn.Module) else arguments
    local = dict(zip(names, values, strict=True))
    manager = entries[0].guard_manager.root
    assert manager.check(local)
    return per_call(lambda: manager.check(local), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-dynamo", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    guards.set_verify(False)
    torch._dynamo.config.cache_size_limit = 8

    rows = []
    cases = [("x + 1", plus_one())] + [(f"{n} submodules", chain(n)) for n in options.modules]
    for name, (program, slots, callable_) in cases:
        function = callable_ if not isinstance(callable_, nn.Module) else None
        row: dict[str, Any] = {"case": name, "nodes": program.program.node_count, "checks": program.program.check_count}
        row |= ours(program, slots, function, options.rounds)
        row["operations"] = program.counts["operations"]
        arguments = slots if function is not None else slots[1:]
        row["dynamo"] = None if options.no_dynamo else dynamo(callable_, arguments, options.rounds)
        rows.append(row)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'case':18} {'nodes':>6} {'ops':>6} {'walk µs':>9} {'bound µs':>9} {'dynamo µs':>10} {'ratio':>6}")
    for row in rows:
        theirs = f"{row['dynamo']:10.2f} {row['dynamo'] / row['bound']:5.1f}x" if row["dynamo"] else f"{'-':>10}"
        print(
            f"{row['case']:18} {row['nodes']:6} {row['operations']:6} {row['walk']:9.2f} {row['bound']:9.2f} {theirs}"
        )


if __name__ == "__main__":
    main()

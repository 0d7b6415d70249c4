"""The front end alone: how long a trace takes, and what it costs on every later call. Ratios against TorchDynamo, in one process.

    python benchmarks/front_end.py [--layers 12] [--rounds 3] [--code] [--traces]

A trace is the first call with a backend that returns the graph module unchanged, minus the same forward pass in eager, in CPU time of
the process: other load on the machine is not in it. (For an unchanged module Alternator runs the recorded program: no code is
generated from the graph. With --code the backend requests that code in both, which is torch's work in either.) For the cost of a
call the graph returns the outputs of its first run: what is left is binding, guards and results. With transformers on the
path, a small BERT and a small Llama are traced too. The last row is a process: import, compile, call, against import and call.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
sys.path.insert(1, str(ROOT / "benchmarks"))

import record  # noqa: E402

import alternator  # noqa: E402

SECONDS = 1.0  # of measurement

Compile = Callable[..., Any]
Call = Callable[[], Any]


def exported(gm: Any, inputs: list[Any]) -> Any:
    """A backend that wants the graph module with its code."""
    assert gm.graph.nodes and callable(gm.forward)
    return gm


def exported_with_code(gm: Any, inputs: list[Any]) -> Any:
    """The same, with the Python code that torch.fx generates."""
    assert "def forward" in gm.code
    return exported(gm, inputs)


def remembered(gm: Any, inputs: list[Any]) -> Any:
    """A backend whose graphs cost nothing: each run returns the outputs of the first one."""
    results = [None]

    def run(*args: Any) -> Any:
        if results[0] is None:
            results[0] = gm(*args)
        return results[0]

    return run


class Chain(nn.Module):
    """Many submodules, each with one parameter and one operation."""

    def __init__(self, count: int):
        super().__init__()
        self.parts = nn.ModuleList(Scale() for _ in range(count))

    def forward(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        return x * self.weight


def milliseconds(call: Call) -> float:
    gc.collect()
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def within(seconds: float, least: int, measure: Callable[[], float]) -> list[float]:
    """Measures both for the same total time, but each at least `least` times."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < least or time.perf_counter() < end:
        found.append(measure())
    return found


def forget() -> None:
    torch._dynamo.reset()
    alternator.reset()


def trace(compile: Compile, module: Any, example: Any, rounds: int, backend: Any) -> float:
    def first() -> float:
        forget()
        compiled = compile(module, backend=backend)
        return milliseconds(lambda: compiled(example))

    eager = min(milliseconds(lambda: module(example)) for _ in range(3))
    first()  # warm-up: lazy imports
    return statistics.median(within(SECONDS, rounds, first)) - eager


def cost(compile: Compile, fn: Any, example: Any, calls: int) -> float:
    """Microseconds per call."""
    forget()
    compiled = compile(fn, backend=remembered)
    with torch.no_grad():
        for _ in range(3):
            compiled(example)

        def several() -> float:
            start = time.perf_counter()
            for _ in range(calls):
                compiled(example)
            return time.perf_counter() - start

        return min(within(SECONDS, 9, several)) / calls * 1e6


def start_up(compiled: bool) -> float:
    """Seconds for a process that imports, creates a module, and calls it."""
    lines = ["import torch", "net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())"]
    if compiled:
        lines += [f"import sys; sys.path.append({str(ROOT)!r})", "import alternator"]
        lines += ["net = alternator.compile(net, backend='eager')"]
    program = "\n".join([*lines, "net(torch.ones(2, 4))"])
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


def models(layers: int) -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    for name, block in (("nn.MultiheadAttention", record.Block), ("attention written out", record.PlainBlock)):
        found.append((f"{layers} layers, {name}", record.Net(block, layers).eval(), torch.randn(2, 16, 64)))
    try:
        from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel
    except ImportError:
        return found
    sizes = {"hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 128}
    tokens = torch.randint(0, 100, (2, 16))
    found.append(
        (f"transformers' BERT, {layers} layers", BertModel(BertConfig(vocab_size=100, **sizes)).eval(), tokens)
    )
    llama = LlamaConfig(vocab_size=100, num_key_value_heads=4, use_cache=False, **sizes)
    found.append((f"transformers' Llama, {layers} layers", LlamaModel(llama).eval(), tokens))
    return found


def plus_one(x: Any) -> Any:
    return x + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--code", action="store_true", help="let the backend request the generated code")
    parser.add_argument("--traces", action="store_true", help="traces only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.getLogger("alternator").setLevel(logging.CRITICAL)

    print(f"{'trace, ms':44}{'alternator':>12}{'TorchDynamo':>14}{'ratio':>8}")
    backend = exported_with_code if options.code else exported
    with torch.no_grad():
        for name, module, example in models(options.layers):
            ours = trace(alternator.compile, module, example, options.rounds, backend)
            theirs = trace(torch.compile, module, example, options.rounds, backend)
            print(f"{name:44}{ours:12.2f}{theirs:14.1f}{theirs / ours:8.1f}", flush=True)

    if options.traces:
        return
    print(f"{'call, us':44}")
    for name, fn, calls in (
        ("x + 1", plus_one, 2000),
        ("100 submodules", Chain(100), 200),
        ("1,000 submodules", Chain(1000), 20),
    ):
        ours = cost(alternator.compile, fn, torch.ones(2), calls)
        theirs = cost(torch.compile, fn, torch.ones(2), calls)
        print(f"{name:44}{ours:12.2f}{theirs:14.2f}{theirs / ours:8.1f}", flush=True)

    rounds = [(start_up(True), start_up(False)) for _ in range(options.rounds)]
    with_us, without = (statistics.median(times) for times in zip(*rounds, strict=True))
    print(f"{'a process, s: compiled, eager':44}{with_us:12.2f}{without:14.2f}{with_us / without:8.2f}")


if __name__ == "__main__":
    main()

"""How fast a program is recorded and exported, as ratios against TorchDynamo's trace in the same process.

    python benchmarks/record.py [--layers 12] [--rounds 5] [--json]

Recording runs the module under CPython with fakes in place of its parameters. Creating them is part of the time; finding
their sources, which is the tracer's part, is not.
TorchDynamo's time is the first call of torch.compile(module, backend="eager"), without the forward pass itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[1:1] = [str(ROOT / "tests" / "graph")]
sys.path.append(str(ROOT))

from recording import graph, record, recording_again  # noqa: E402


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        h = self.ln1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln2(x))


class PlainBlock(Block):
    """The same, with explicit attention: more calls in user code."""

    def __init__(self, width: int):
        super().__init__(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (p.view(b, t, 4, c // 4).transpose(1, 2) for p in self.qkv(self.ln1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class Net(nn.Module):
    def __init__(self, block: type[Block], layers: int, width: int = 64):
        super().__init__()
        self.blocks = nn.ModuleList([block(width) for _ in range(layers)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def best(run: Callable[[], Any], rounds: int) -> float:
    """Milliseconds; the minimum of several runs: other load on the machine only adds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        gc.enable()
    return 1e3 * min(times)


def dynamo(module: nn.Module, x: Any, rounds: int) -> float:
    def trace() -> None:
        torch._dynamo.reset()
        torch.compile(module, backend="eager", fullgraph=True)(x)

    trace()  # warm-up: lazy imports
    return best(trace, rounds) - best(lambda: module(x), rounds)


def measure(block: type[Block], layers: int, rounds: int) -> dict[str, Any]:
    module, x = Net(block, layers), torch.randn(2, 16, 64)
    recorded = record(module, x)
    mode = torch._subclasses.fake_tensor.FakeTensorMode()
    with recording_again(module, x) as run:
        record_ms = best(run, 8 * rounds)
    result: dict[str, Any] = {
        "nodes": len(recorded.names),
        "record_ms": record_ms,
        "fx_ms": best(recorded.to_fx, 4 * rounds),
        "fx_with_examples_ms": best(lambda: recorded.to_fx(fake_mode=mode), rounds),
        "replay_ms": best(recorded.replay, rounds),
        "eager_ms": best(lambda: module(x), rounds),
        "dynamo_ms": dynamo(module, x, max(2, rounds // 2)),
    }
    result["record_ratio"] = result["dynamo_ms"] / result["record_ms"]
    result["export_ratio"] = result["dynamo_ms"] / (result["record_ms"] + result["fx_ms"])
    result["examples_ratio"] = result["dynamo_ms"] / (result["record_ms"] + result["fx_with_examples_ms"])
    return result


def per_call(rounds: int) -> dict[str, float]:
    """Microseconds per call: fakes alone, recorded directly, recorded through the mode."""
    count = 2000
    times = {}
    for lines in (False, True):
        recorder = graph.Recorder(lines=lines)
        x = recorder.fake_of(torch.ones(4, 4), "L['x']")
        call, relu = recorder.call, torch.relu

        def direct() -> None:
            for _ in range(count):
                call(relu, x)  # noqa: B023

        def by_mode() -> None:
            for _ in range(count):
                relu(x)  # noqa: B023

        with recorder:
            suffix = "_with_line" if lines else ""
            times["direct" + suffix] = best(direct, rounds) * 1e3 / count
            times["mode" + suffix] = best(by_mode, rounds) * 1e3 / count
            if not lines:
                with torch._C.DisableTorchFunction():
                    times["fake_only"] = best(by_mode, rounds) * 1e3 / count
        recorder.finish(x)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {
        block.__name__: measure(block, options.layers, options.rounds) for block in (Block, PlainBlock)
    }
    results["microseconds_per_call"] = per_call(options.rounds)
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for name, row in results.items():
        if "dynamo_ms" not in row:
            continue
        print(
            f"{options.layers} layers of {name}: {row['nodes']} nodes; TorchDynamo traces them in {row['dynamo_ms']:.0f} ms"
        )
        for label, time_key, ratio_key in (
            ("record", "record_ms", "record_ratio"),
            ("+ torch.fx", "fx_ms", "export_ratio"),
            ("+ torch.fx with example values", "fx_with_examples_ms", "examples_ratio"),
        ):
            print(f"  {label:32}{row[time_key]:8.2f} ms {row[ratio_key]:6.0f}x faster in all")
        print(f"  {'replay / eager':32}{row['replay_ms']:8.2f} / {row['eager_ms']:.2f} ms")
    print("a call, in microseconds: " + ", ".join(f"{k} {v:.2f}" for k, v in results["microseconds_per_call"].items()))


if __name__ == "__main__":
    main()

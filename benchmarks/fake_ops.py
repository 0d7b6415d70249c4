"""What an operator costs on fakes, against eager on tiny CPU tensors and against FakeTensorMode with its cache.

    python benchmarks/fake_ops.py [--json FILE]

The three are measured in turns in one process, so that a busy machine slows all of them; each figure is the best round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.append(str(Path(__file__).resolve().parent.parent))

from alternator._C import fake

Make = Callable[[torch.Tensor], torch.Tensor]


def operators(of: Make) -> dict[str, Callable[[], Any]]:
    """Common operators of models, over the tensors that `of` returns for real ones."""
    x, y = of(torch.randn(2, 3, 8)), of(torch.randn(2, 3, 8))
    mask = of(torch.randn(2, 3, 8) > 0)
    m = of(torch.randn(4, 8))
    w, b, v = of(torch.randn(6, 8)), of(torch.randn(6)), of(torch.randn(8))
    wt = of(torch.randn(8, 6))
    yt = of(torch.randn(2, 8, 3))
    image, kernel, c = of(torch.randn(1, 4, 6, 6)), of(torch.randn(4, 4, 3, 3)), of(torch.randn(4))
    mean, var = of(torch.zeros(4)), of(torch.ones(4))
    q = of(torch.randn(1, 2, 3, 8))
    ids, table = of(torch.zeros(2, 3, dtype=torch.int64)), of(torch.randn(10, 8))
    target, where_to = of(torch.zeros(4, dtype=torch.int64)), of(torch.zeros(2, 3, 1, dtype=torch.int64))
    row = of(torch.zeros(2, dtype=torch.int64))
    scratch = of(torch.zeros(2, 3, 8))
    return {
        "add": lambda: x + y,
        "add_scalar": lambda: x + 1,
        "mul": lambda: x * y,
        "div": lambda: x / 2,
        "sub_broadcast": lambda: x - v,
        "gt": lambda: x > 0,
        "exp": lambda: x.exp(),
        "relu": lambda: F.relu(x),
        "gelu": lambda: F.gelu(x),
        "silu": lambda: F.silu(x),
        "tanh": lambda: x.tanh(),
        "where": lambda: torch.where(mask, x, y),
        "masked_fill": lambda: x.masked_fill(mask, 0.0),
        "clamp": lambda: x.clamp(0, 1),
        "pow": lambda: x**2,
        "linear": lambda: F.linear(x, w, b),
        "matmul": lambda: x @ yt,
        "mm": lambda: m @ wt,
        "bmm": lambda: torch.bmm(x, yt),
        "addmm": lambda: torch.addmm(b, m, wt),
        "einsum": lambda: torch.einsum("bij,bkj->bik", x, y),
        "conv2d": lambda: F.conv2d(image, kernel, padding=1),
        "layer_norm": lambda: F.layer_norm(x, (8,), v, v),
        "softmax": lambda: F.softmax(x, -1),
        "log_softmax": lambda: F.log_softmax(x, -1),
        "sdpa": lambda: F.scaled_dot_product_attention(q, q, q),
        "batch_norm": lambda: F.batch_norm(image, mean, var, c, c, True),
        "group_norm": lambda: F.group_norm(image, 2),
        "dropout": lambda: F.dropout(x, 0.5, True),
        "embedding": lambda: F.embedding(ids, table),
        "cross_entropy": lambda: F.cross_entropy(m, target),
        "sum": lambda: x.sum(),
        "mean": lambda: x.mean(-1, keepdim=True),
        "max_dim": lambda: x.max(1),
        "argmax": lambda: x.argmax(-1),
        "cumsum": lambda: x.cumsum(1),
        "topk": lambda: x.topk(3, -1),
        "view": lambda: x.view(-1, 8),
        "reshape": lambda: yt.transpose(1, 2).reshape(2, -1),
        "transpose": lambda: x.transpose(1, 2),
        "permute": lambda: x.permute(2, 0, 1),
        "expand": lambda: v.expand(2, 3, 8),
        "slice": lambda: x[:, 1:],
        "split": lambda: x.split(4, -1),
        "cat": lambda: torch.cat([x, y], 1),
        "stack": lambda: torch.stack([x, y]),
        "index": lambda: x[:, row],
        "gather": lambda: x.gather(-1, where_to),
        "add_": lambda: scratch.add_(y),
    }


def microseconds(run: Callable[[], Any], times: int) -> float:
    clock = time.perf_counter
    begin = clock()
    for _ in range(times):
        run()
    return (clock() - begin) / times * 1e6


def measure(rounds: int) -> dict[str, dict[str, float]]:
    session, mode = fake.Session(), FakeTensorMode()
    kinds: dict[str, tuple[dict[str, Callable[[], Any]], Any, int]] = {
        "eager": (operators(lambda t: t), torch.no_grad(), 300),
        "fake": (operators(session.fake_of), session, 300),
        "fake_tensor_mode": (operators(mode.from_tensor), mode, 15),
    }
    names = list(kinds["eager"][0])
    best: dict[str, dict[str, float]] = {name: {kind: float("inf") for kind in kinds} for name in names}
    with torch.no_grad():
        for name in names:
            for turn in range(rounds + 1):
                for kind, (table, active, times) in kinds.items():
                    with active:
                        spent = microseconds(table[name], times if turn else 3)
                    if turn:  # the first turn fills caches
                        best[name][kind] = min(best[name][kind], spent)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    best = measure(arguments.rounds)
    print(f"{'operator':<14}{'eager us':>10}{'fake us':>10}{'mode us':>10}{'fake/eager':>12}{'mode/fake':>11}")
    for name, row in sorted(best.items(), key=lambda item: item[1]["fake"] / item[1]["eager"]):
        eager, ours, theirs = row["eager"], row["fake"], row["fake_tensor_mode"]
        print(f"{name:<14}{eager:>10.2f}{ours:>10.2f}{theirs:>10.1f}{ours / eager:>12.2f}{theirs / ours:>11.1f}")
    to_eager = [row["fake"] / row["eager"] for row in best.values()]
    to_mode = [row["fake_tensor_mode"] / row["fake"] for row in best.values()]
    print(f"\n{len(best)} operators, median {statistics.median(row['fake'] for row in best.values()):.2f} us on fakes")
    print(f"times eager:            median {statistics.median(to_eager):.2f}, worst {max(to_eager):.2f}")
    print(f"below FakeTensorMode:   median {statistics.median(to_mode):.1f}x, least {min(to_mode):.1f}x")
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=1))


if __name__ == "__main__":
    main()

"""Traces with unbacked sizes and scalars, beside TorchDynamo's in one process.

    python benchmarks/unbacked.py [--rounds 3] [--profile] [NAME ...]

A trace is measured as in front_end.py: the first call with a backend that returns the graph module unchanged, minus the same call in
eager, in processor time. Both front ends capture scalars and sizes that depend on data (capture_scalar_outputs,
capture_dynamic_output_shape_ops) in one graph.
"""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

import alternator  # noqa: E402


class Convolution(nn.Module):
    """A graph convolution as PyG's: self loops are taken out by a mask, and edges are weighted by the degrees of their nodes."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, out)

    def forward(self, x: Any, edges: Any) -> Any:
        count = x.shape[0]
        is_edge = edges[0] != edges[1]
        loops = torch.arange(count).unsqueeze(0).repeat(2, 1)
        edges = torch.cat([edges[:, is_edge], loops], 1)
        source, target = edges[0], edges[1]
        weight = torch.ones(edges.shape[1])
        degree = torch.zeros(count).scatter_add(0, target, weight)
        scale = degree.pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0.0)
        weight = scale.index_select(0, source) * weight * scale.index_select(0, target)
        messages = self.linear(x).index_select(0, source) * weight.unsqueeze(-1)
        index = target.unsqueeze(-1).expand_as(messages)
        return torch.zeros(count, messages.shape[1]).scatter_add(0, index, messages)


class Convolutions(nn.Module):
    def __init__(self, layers: int = 4, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Convolution(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 3)

    def forward(self, x: Any, edges: Any) -> Any:
        for layer in self.layers:
            x = torch.relu(layer(x, edges))
        return self.head(x)


class Experts(nn.Module):
    """A mixture of experts: each one computes the rows that were sent to it."""

    def __init__(self, experts: int = 6, width: int = 16) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(experts)
        )

    def forward(self, x: Any) -> Any:
        weights, chosen = self.gate(x).softmax(-1).max(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            result = result.index_add(0, rows, expert(x[rows]) * weights[rows].unsqueeze(-1))
        return result


def masked_losses(x: Any, labels: Any) -> Any:
    """A loss over the rows that count, and statistics over those of each class."""
    kept = labels >= 0
    logits, wanted = x[kept], labels[kept]
    loss = F.cross_entropy(logits, wanted)
    for label in range(4):
        rows = logits[wanted == label]
        loss = loss + (rows.softmax(-1).pow(2).sum() / (rows.numel() + 1)) + torch.cat([rows, x]).mean()
    return loss


def packed(x: Any, lengths: Any) -> Any:
    """Sequences of several lengths, of which only the tensor knows."""
    parts = x.split(lengths.tolist())
    return torch.cat([torch.tanh(part) * (part + 1) - part.sum(0, keepdim=True) for part in parts])


def workloads() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 16, generator=generator)
    edges = torch.randint(0, 30, (2, 90), generator=generator)
    labels = torch.randint(-1, 4, (30,), generator=generator)
    return {
        "graph network": (Convolutions(), (x, edges)),
        "experts": (Experts(), (x,)),
        "masked losses": (masked_losses, (x, labels)),
        "packed": (packed, (x, torch.tensor([5, 0, 1, 20, 4]))),
    }


def exported(gm: Any, inputs: list[Any]) -> Any:
    """A backend that wants the graph module with its code."""
    assert gm.graph.nodes and callable(gm.forward)
    return gm


def milliseconds(call: Callable[[], Any]) -> float:
    gc.collect()
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def trace(compile: Callable[..., Any], fn: Any, arguments: tuple[Any, ...], rounds: int) -> float:
    eager = min(milliseconds(lambda: fn(*arguments)) for _ in range(3))
    found = []
    for number in range(rounds + 1):
        torch._dynamo.reset()
        alternator.reset()
        compiled = compile(fn, backend=exported, fullgraph=True)
        spent = milliseconds(functools.partial(compiled, *arguments)) - eager
        if number > 0:  # lazy imports
            found.append(spent)
    return statistics.median(found)


def operations(fn: Any, arguments: tuple[Any, ...]) -> int:
    torch._dynamo.reset()
    alternator.reset()
    counted = []

    def count(gm: Any, inputs: list[Any]) -> Any:
        counted.append(sum(node.op.startswith("call") for node in gm.graph.nodes))
        return gm

    alternator.compile(fn, backend=count, fullgraph=True)(*arguments)
    return sum(counted)


def profile(fn: Any, arguments: tuple[Any, ...]) -> None:
    import cProfile
    import pstats

    trace(alternator.compile, fn, arguments, 2)
    profiler = cProfile.Profile()
    compiled = [alternator.compile(fn, backend=exported, fullgraph=True) for _ in range(10)]
    for one in compiled:
        alternator.reset()
        profiler.enable()
        one(*arguments)
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="where the Python code of a trace spends its time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    print(f"{'':16}{'operations':>12}{'Alternator':>14}{'TorchDynamo':>14}{'ratio':>8}")
    for name, (fn, arguments) in workloads().items():
        if options.names and name not in options.names:
            continue
        if options.profile:
            profile(fn, arguments)
            continue
        ours = trace(alternator.compile, fn, arguments, options.rounds)
        theirs = trace(torch.compile, fn, arguments, max(options.rounds // 2, 2))
        print(f"{name:16}{operations(fn, arguments):12}{ours:11.1f} ms{theirs:11.1f} ms{theirs / ours:7.1f}x")


if __name__ == "__main__":
    main()

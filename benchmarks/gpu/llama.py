"""A decoder of 24 layers on a GPU: eager, TorchDynamo and Alternator, each with Inductor, side by side.

    PYTHONPATH=build/gpu/package python3 benchmarks/gpu/llama.py [--layers 24] [--width 512]

Same results, the time of a call, and the time until the first one. Ratios within one process are what counts.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import alternator


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (f(x).view(batch, length, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, width))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.before, self.after = Norm(width), Norm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x), cos, sin)
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers: int, width: int, heads: int = 8, words: int = 1000):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = Norm(width), nn.Linear(width, words, bias=False)
        angles = torch.outer(torch.arange(128.0), 1e-4 ** (torch.arange(0, width // heads, 2) / (width // heads)))
        self.register_buffer("angles", torch.cat((angles, angles), dim=-1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        angles = self.angles[: tokens.shape[1]]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def milliseconds(
    fns: list[Callable[[torch.Tensor], Any]], tokens: torch.Tensor, calls: int = 30, rounds: int = 7
) -> list[float]:
    """Calls them alternately, so that other load on the machine affects all of them."""
    best = [float("inf")] * len(fns)
    for fn in fns * 5:
        fn(tokens)
    for _ in range(rounds):
        for i, fn in enumerate(fns):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                fn(tokens)
            torch.cuda.synchronize()
            best[i] = min(best[i], time.perf_counter() - start)
    return [taken / calls * 1e3 for taken in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    logging.getLogger("alternator").setLevel(logging.ERROR)
    torch.manual_seed(0)
    net = Llama(options.layers, options.width).to("cuda", torch.bfloat16).eval()
    tokens = torch.randint(0, 1000, (1, 8), device="cuda")
    rows: list[tuple[str, float, float, str]] = []
    with torch.no_grad():
        wanted = net(tokens)
        rows.append(("eager", 0.0, milliseconds([net], tokens)[0], ""))
        for words, options_of in (
            ("default", {}),
            ("reduce-overhead", {"mode": "reduce-overhead"}),
            ("backend eager", {"backend": "eager"}),
        ):
            alternator.reset()
            torch.compiler.reset()
            compiled, firsts, judged = [], [], []
            for compile in (torch.compile, alternator.compile):
                compiled.append(compile(net, **options_of))
                start = time.perf_counter()
                got = compiled[-1](tokens)
                torch.cuda.synchronize()
                firsts.append(time.perf_counter() - start)
                same = torch.allclose(wanted.float(), got.float(), atol=0.1, rtol=0.05)
                judged.append("same" if same else "OTHER RESULTS")
            for name, *row in zip(
                ("TorchDynamo", "Alternator"), firsts, milliseconds(compiled, tokens), judged, strict=True
            ):
                rows.append((f"{name}, {words}", *row))
    print(f"{'':32}{'first call, s':>14}{'a call, ms':>12}")
    for label, first, taken, words in rows:
        print(f"{label:32}{first:14.3f}{taken:12.3f}  {words}")
    print(alternator.counters())


if __name__ == "__main__":
    main()

"""A small Llama-like model, compiled with Inductor: graph, guards, results compared with eager, and costs compared with TorchDynamo."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import nn
from torch.nn import functional as F

import alternator

LAYERS, WIDTH, HEADS, WORDS = 4, 64, 4, 256


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = Norm(), Norm()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        h = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm()
        angles = torch.outer(torch.arange(64.0), 10000.0 ** -torch.linspace(0, 1, WIDTH // HEADS // 2 + 1)[:-1])
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin(), persistent=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        cos, sin = self.cos[: words.shape[1]], self.sin[: words.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.embed.weight)


def best(run: Callable[[], Any], times: int) -> float:
    """The minimum CPU time of several runs, in seconds: an estimate without other load."""
    shortest = float("inf")
    for _ in range(times):
        began = time.process_time()
        run()
        shortest = min(shortest, time.process_time() - began)
    return shortest


def nothing(gm: Any, inputs: list[Any]) -> Any:
    """A backend that compiles nothing and whose graphs compute nothing: only the front end is measured."""
    results = [node.meta["example_value"] for node in gm.graph.find_nodes(op="output")[0].args[0]]
    empty = tuple(torch.empty(tuple(r.shape), dtype=r.dtype) for r in results)
    return lambda *args: empty


def front_end_costs(compile_: Any, reset: Callable[[], None], model: Any, words: Any) -> tuple[float, float, float]:
    """Seconds for: a trace of the model with its FX graph; a call of it without the graph; a call of x + 1 without the graph."""
    compiled = compile_(model, backend=nothing)

    def first_call() -> None:
        reset()
        compiled(words)

    first_call()
    trace = best(first_call, 3)
    call = best(lambda: [compiled(words) for _ in range(50)], 5) / 50
    small, x = compile_(lambda x: x + 1, backend=nothing), torch.ones(4)
    small(x)
    return trace, call, best(lambda: [small(x) for _ in range(500)], 5) / 500


def row(name: str, ours: str, theirs: str, ratio: str = "") -> None:
    print(f"  {name:<44}{ours:>14}{theirs:>16}{ratio:>9}")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Llama().eval()
    words = torch.randint(0, WORDS, (2, 16))
    print(
        f"A Llama-like model: {LAYERS} layers, width {WIDTH}, {HEADS} heads, {words.shape[0]} x {words.shape[1]} tokens\n"
    )

    graphs: list[Any] = []

    def keep(gm: Any, inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    with torch.no_grad():
        expected = model(words)
        shown: Any = alternator.compile(model, backend=keep, fullgraph=True)
        same = torch.equal(shown(words), expected)
    lines = graphs[0].print_readable(print_output=False).splitlines()
    code = [line.strip() for line in lines if " = " in line and not line.strip().startswith("#")]
    print(f"The graph: {len(graphs)}, with {len(code)} nodes. It begins and ends with")
    for line in [*code[:4], "...", *code[-3:]]:
        print("   ", line.split(";")[0][:110])
    guards = shown.__call__._guards[0]
    print(f"\nThe guards: {len(guards)}. Some of them:")
    here = f"{Path(__file__).parent}/"
    for guard in [g for g in guards if "tensor is" in g and here in g][:3] + [
        g for g in guards if "training" in g or "grad mode" in g
    ][:2]:
        print("   ", guard.replace(here, "")[:120])

    began = time.perf_counter()
    with torch.no_grad():
        compiled = alternator.compile(model, fullgraph=True)
        result = compiled(words)
    took = time.perf_counter() - began
    difference = (result - expected).abs().max().item()
    print(
        f"\nAgainst eager: the uncompiled graph {'bitwise equal' if same else 'DIFFERENT'}, by Inductor within {difference:.1e}"
    )
    print(f"(compiled by Inductor in {took:.0f} s; state_dict keys as before: {list(compiled.state_dict())[:2]} ...)\n")
    if not same or difference > 1e-3:
        raise SystemExit("the results differ from eager")

    alternator.config.example_values = True
    with torch.no_grad():
        ours = front_end_costs(alternator.compile, alternator.reset, model, words)
        theirs = front_end_costs(torch.compile, torch._dynamo.reset, model, words)
    row("the front end alone", "Alternator", "TorchDynamo", "ratio")
    names = ("trace with FX graph", "each call of the model, graph excluded", "each call of x + 1, graph excluded")
    for name, a, b, (unit, scale) in zip(names, ours, theirs, [("ms", 1e3), ("µs", 1e6), ("µs", 1e6)], strict=True):
        row(name, f"{a * scale:.1f} {unit}", f"{b * scale:.1f} {unit}", f"{b / a:.1f}x")


if __name__ == "__main__":
    main()

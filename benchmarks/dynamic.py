"""Sizes and numbers that change: how many graphs, and how long it all takes, beside TorchDynamo.

    python benchmarks/dynamic.py                  the scripts with aot_eager, then retracing
    python benchmarks/dynamic.py --inductor       12 batch sizes and the others with Inductor too (minutes)
    python benchmarks/dynamic.py cache sgd        these scripts only
    python benchmarks/dynamic.py --retrace        retracing only

Each script is what a new user writes. It runs in a process of its own for each front end: the graphs are those that its compile() made,
the seconds are processor time of all calls, compilers that it starts included, imports of torch and of the front end not. Results
are compared with eager.

Retracing is the front end alone, as in front_end.py: the processor time of the first call with another length, which makes the length
symbolic, without the forward pass in eager; and that of a first call with dynamic=True.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import alternator  # noqa: E402

FRONTENDS = ("alternator", "TorchDynamo")
Compile = Callable[[Any], Any]
Script = Callable[[Compile], list[Any]]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Any, cache: Any = None) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x)))), (k, v)


class Model(nn.Module):
    def __init__(self, layers: int = 4, width: int = 32, vocabulary: int = 50) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Any, caches: Any = None) -> Any:
        past = 0 if caches is None else caches[0][0].shape[2]
        x = self.embed(tokens) + self.places(torch.arange(past, past + tokens.shape[1]))
        made = []
        for number, block in enumerate(self.blocks):
            x, cache = block(x, None if caches is None else caches[number])
            made.append(cache)
        return self.head(x), made


def tokens(batch: int, length: int) -> Any:
    return (torch.arange(batch * length).view(batch, length) * 7) % 50


# ----------------------------------------------------------------------------------------------------------- scripts


def cache(compile: Compile) -> list[Any]:
    """A cache of keys and values that grows over 40 steps."""
    model = compile(Model().eval())
    found = []
    with torch.no_grad():
        logits, caches = model(tokens(1, 4))
        for _ in range(40):
            token = logits[:, -1:].argmax(-1)
            logits, caches = model(token, caches)
            found.append(logits)
    return found


def cache_written(compile: Compile) -> list[Any]:
    """A cache of a fixed size, written at a position that is a Python int, over 40 steps."""
    keys, weight = torch.zeros(1, 64, 32), torch.linspace(-1, 1, 32 * 32).view(32, 32)

    def step(x: Any, keys: Any, position: int) -> Any:
        keys[:, position] = x @ weight
        scores = (keys[:, : position + 1] @ x[0]).softmax(1)
        return (scores[..., None] * keys[:, : position + 1]).sum(1)

    compiled = compile(step)
    return [compiled(torch.full((1, 32), 0.1 * i), keys, i) for i in range(40)]


def lengths(compile: Compile) -> list[Any]:
    """20 lengths of a text."""
    model = compile(Model().eval())
    with torch.no_grad():
        return [model(tokens(2, length))[0] for length in range(5, 45, 2)]


def batches(compile: Compile) -> list[Any]:
    """12 batch sizes."""
    model = compile(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 8)).eval())
    with torch.no_grad():
        return [model(torch.linspace(-1, 1, 16 * n).view(n, 16)) for n in (32, 16, 8, 24, 12, 48, 5, 7, 64, 3, 2, 40)]


def images(compile: Compile) -> list[Any]:
    """8 sizes of an image."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1)
    )
    model = compile(net.eval())
    with torch.no_grad():
        return [model(torch.linspace(-1, 1, 3 * n * n).view(1, 3, n, n)) for n in (16, 20, 24, 28, 17, 32, 40, 18)]


def training(compile: Compile, make: Callable[[Any], Any], steps: int = 30) -> list[Any]:
    """A step with its optimizer and its schedule inside of what is compiled."""
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = make(net.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    compiled = compile(step)
    x = torch.linspace(-1, 1, 128).view(16, 8)
    return [compiled(x, x.sum(1, keepdim=True)) for _ in range(steps)]


def sgd(compile: Compile) -> list[Any]:
    """30 steps of SGD with momentum under a schedule."""
    return training(compile, lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))


def adamw(compile: Compile) -> list[Any]:
    """30 steps of AdamW under a schedule."""
    return training(compile, lambda parameters: torch.optim.AdamW(parameters, lr=0.01))


def annealed(compile: Compile) -> list[Any]:
    """A float attribute that falls with each of 20 calls."""

    class Annealed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.temperature = nn.Linear(16, 16), 1.0

        def forward(self, x: Any) -> Any:
            self.temperature *= 0.95
            return torch.softmax(self.inner(x) / self.temperature, -1)

    model = compile(Annealed())
    return [model(torch.linspace(-1, 1, 64).view(4, 16)) for _ in range(20)]


def last_batch(compile: Compile) -> list[Any]:
    """3 epochs whose last batch is smaller, with a backward pass."""
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 4))
    model = compile(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = []
    for _ in range(3):
        for n in (16, 16, 16, 5):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.linspace(-1, 1, 8 * n).view(n, 8)), torch.arange(n) % 4)
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
    return found


def behind_a_break(compile: Compile) -> list[Any]:
    """12 lengths, with a print in between."""
    weight = torch.linspace(-1, 1, 64).view(8, 8)

    def fn(x: Any) -> Any:
        y = (x @ weight).relu()
        print("rows", y.shape[0])
        return y[: y.shape[0] // 2].sum(0) * y.shape[0]

    compiled = compile(fn)
    with contextlib.redirect_stdout(None):
        return [compiled(torch.linspace(-1, 1, 8 * n).view(n, 8)) for n in range(4, 16)]


SCRIPTS: dict[str, Script] = {
    one.__name__: one
    for one in (cache, cache_written, lengths, batches, images, sgd, adamw, annealed, last_batch, behind_a_break)
}


# ---------------------------------------------------------------------------------------------- one script, one process


def seconds() -> float:
    """Of the processor, in this process and in those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def graphs_of(frontend: str) -> int:
    if frontend == "alternator":
        return int(alternator.counters()["graphs"])
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def run(name: str, frontend: str, backend: str) -> dict[str, Any]:
    """In the process for it."""
    import torch._dynamo

    torch.set_num_threads(1)
    logging.getLogger("alternator").setLevel(logging.CRITICAL)
    torch.manual_seed(0)
    wanted = SCRIPTS[name](lambda fn: fn)
    torch._dynamo.reset()
    compiler: Any = alternator.compile if frontend == "alternator" else torch.compile
    compiler(lambda x: x + 1, backend=backend)(torch.ones(2))  # imports the backend
    before = graphs_of(frontend)
    torch.manual_seed(0)
    start = seconds()
    got = SCRIPTS[name](lambda fn: compiler(fn, backend=backend))
    taken = seconds() - start
    right = all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(wanted, got, strict=True))
    return {"graphs": graphs_of(frontend) - before, "seconds": taken, "right": right}


def in_process(name: str, frontend: str, backend: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ, "TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }  # fmt: skip
        child = [sys.executable, __file__, "--one", name, frontend, backend]
        done = subprocess.run(child, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare_scripts(names: list[str], backends: list[str], rounds: int) -> None:
    print(f"{'graphs, seconds':34}{'backend':11}{'alternator':>16}{'TorchDynamo':>16}{'ratio':>8}")
    for backend in backends:
        for name in names:
            ours, theirs = (best_of([in_process(name, one, backend) for _ in range(rounds)]) for one in FRONTENDS)
            wrong = [one for one, found in zip(FRONTENDS, (ours, theirs), strict=True) if not found["right"]]
            cells = [f"{found['graphs']:6} {found['seconds']:9.2f}" for found in (ours, theirs)]
            ratio = theirs["seconds"] / ours["seconds"]
            more = " more graphs" if ours["graphs"] > theirs["graphs"] else ""
            note = f" {', '.join(wrong)} differs from eager" if wrong else ""
            print(f"{name:34}{backend:11}{cells[0]:>16}{cells[1]:>16}{ratio:8.2f}{more}{note}", flush=True)


def best_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    return min(found, key=lambda one: float(one["seconds"]))


# --------------------------------------------------------------------------------------------------------- retracing


def compare_traces(layers: int, rounds: int) -> None:
    import front_end

    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.getLogger("alternator").setLevel(logging.CRITICAL)
    backend = front_end.exported

    def first_call(compile: Any, module: Any, examples: list[Any], dynamic: bool | None) -> tuple[float, bool]:
        """Of the last length but one; and whether the last one was compiled again."""

        def once() -> float:
            front_end.forget()
            calls.clear()
            compiled = compile(module, backend=counting, dynamic=dynamic)
            for example in examples[:-2]:
                compiled(example)
            taken = front_end.milliseconds(lambda: compiled(examples[-2]))
            calls.append(0)
            compiled(examples[-1])
            return taken

        calls: list[int] = []

        def counting(gm: Any, inputs: list[Any]) -> Any:
            calls.append(1)
            return backend(gm, inputs)

        eager = min(front_end.milliseconds(lambda: module(examples[-2])) for _ in range(3))
        once()
        return statistics.median(front_end.within(front_end.SECONDS, rounds, once)) - eager, calls[-1] == 1

    print(f"{'another length, ms':48}{'alternator':>12}{'TorchDynamo':>14}{'ratio':>8}")
    with torch.no_grad():
        for name, module, example in front_end.models(layers):
            lengths = [example[:, :length] for length in (12, 13, 15)]
            for what, examples, dynamic in ((name, lengths, None), ("  dynamic=True, first call", lengths[1:], True)):
                (ours, again), (theirs, again_too) = (
                    first_call(one, module, examples, dynamic) for one in (alternator.compile, torch.compile)
                )
                note = "  (compiled again for a third length)" if again else ""
                note += "  (TorchDynamo too)" if again_too else ""
                print(f"{what:48}{ours:12.2f}{theirs:14.1f}{theirs / ours:8.1f}{note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"scripts: {', '.join(SCRIPTS)}")
    parser.add_argument("--inductor", action="store_true", help="with Inductor too")
    parser.add_argument("--retrace", action="store_true", help="retracing only")
    parser.add_argument("--rounds", type=int, default=1, help="processes for each script: the fastest counts")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--one", nargs=3, metavar=("SCRIPT", "FRONTEND", "BACKEND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(*options.one)))
        return
    if not options.retrace:
        compare_scripts(
            options.names or list(SCRIPTS), ["aot_eager", *(["inductor"] if options.inductor else [])], options.rounds
        )
    if not options.names:
        compare_traces(options.layers, max(options.rounds, 3))


if __name__ == "__main__":
    main()

"""A decoder of 24 layers over 20 lengths on a GPU: how often it is compiled, and what the calls cost, beside TorchDynamo.

    PYTHONPATH=build/gpu/package python3 benchmarks/gpu/lengths.py [--layers 24] [--width 512] [--modes default reduce-overhead]

Each front end compiles with Inductor in the same process. The first pass over the lengths compiles; the second one, in another order,
is timed. Results are compared with eager at every length. `--device cpu --modes eager` tries the script out anywhere.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
from llama import Llama

import alternator

FRONTENDS: dict[str, Callable[..., Any]] = {"TorchDynamo": torch.compile, "Alternator": alternator.compile}


def graphs_of(name: str) -> int:
    if name == "Alternator":
        return int(alternator.counters()["graphs"])
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def synchronized(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(name: str, net: Llama, inputs: list[torch.Tensor], options: dict[str, Any]) -> str:
    device = str(inputs[0].device.type)
    wanted = [net(tokens).float() for tokens in inputs]
    alternator.reset()
    torch.compiler.reset()
    before = graphs_of(name)
    compiled = FRONTENDS[name](net, **options)
    start = synchronized(device)
    found = [compiled(tokens).float() for tokens in inputs]
    first = synchronized(device) - start
    right = all(torch.allclose(a, b, atol=0.1, rtol=0.05) for a, b in zip(wanted, found, strict=True))
    again = inputs[::2] + inputs[1::2]
    for tokens in again:
        compiled(tokens)
    start = synchronized(device)
    for _ in range(5):
        for tokens in again:
            compiled(tokens)
    each = (synchronized(device) - start) / (5 * len(again))
    judged = "same" if right else "OTHER RESULTS"
    return f"{graphs_of(name) - before:8}{first:22.2f}{each * 1e3:14.3f}  {judged}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--modes", nargs="+", default=["default", "reduce-overhead"])
    options = parser.parse_args()
    logging.getLogger("alternator").setLevel(logging.ERROR)
    torch.manual_seed(0)
    net = Llama(options.layers, options.width).to(options.device, torch.bfloat16).eval()
    inputs = [torch.randint(0, 1000, (1, length), device=options.device) for length in range(8, 128, 6)]
    print(f"{len(inputs)} lengths{'':21}{'graphs':>8}{'first calls, s':>22}{'a call, ms':>14}")
    with torch.no_grad():
        for mode in options.modes:
            how = {"backend": mode} if mode in ("eager", "aot_eager") else {} if mode == "default" else {"mode": mode}
            for name in FRONTENDS:
                print(f"{name + ', ' + mode:31}{measure(name, net, inputs, how)}", flush=True)


if __name__ == "__main__":
    main()

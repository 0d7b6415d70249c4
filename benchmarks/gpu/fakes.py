"""Fakes and the recorder on a machine with CUDA: against real CUDA tensors, in eager.

    benchmarks/gpu/build.sh && PYTHONPATH=build/gpu/package python3 benchmarks/gpu/fakes.py [--json FILE]

1. fakes of real CUDA tensors have all of their properties but the data, and do not touch them;
2. operators that mix CPU and CUDA tensors answer, or refuse, as eager does;
3. a recorded transformer, replayed on real CUDA tensors, equals eager bit by bit, forward and backward;
4. what recording costs, against TorchDynamo's trace of the same module in this process.
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
from torch import nn

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[1:1] = [str(ROOT / "tests"), str(ROOT / "tests" / "graph"), str(ROOT / "benchmarks")]

from record import Block, Net, PlainBlock  # noqa: E402
from recording import check, facts, record  # noqa: E402

from alternator._C import fake  # noqa: E402

CUDA = torch.device("cuda:0")
SEEN = (
    "shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "is_cuda", "is_cpu", "ndim", "itemsize", "_version",
)  # fmt: skip


def mirrors() -> int:
    """Compares fakes with their real CUDA tensors; returns how many."""
    base = torch.randn(4, 6, device=CUDA)
    weight = nn.Parameter(torch.randn(3, 4, device=CUDA))
    cases = {
        "plain": base,
        "view": base[1:, ::2],
        "transposed": base.t(),
        "parameter": weight,
        "half": base.half(),
        "bfloat16": base.bfloat16(),
        "integer": torch.arange(5, device=CUDA),
        "complex": torch.randn(3, device=CUDA, dtype=torch.complex64).conj(),
        "channels last": torch.randn(2, 3, 4, 4, device=CUDA).to(memory_format=torch.channels_last),
        "with history": (weight * 2).sum(0),
        "scalar": torch.tensor(1.5, device=CUDA),
        "written": torch.zeros(3, device=CUDA).add_(1),
    }
    session = fake.Session()
    for name, real in cases.items():
        before = facts(real)
        twin = session.fake_of(real)
        assert fake.is_fake(twin) and type(twin) is type(real), name
        for what in SEEN:
            assert getattr(twin, what) == getattr(real, what), (name, what)
        assert (twin.stride(), twin.storage_offset()) == (real.stride(), real.storage_offset()), name
        assert (twin.is_conj(), twin.is_neg(), twin._is_view()) == (real.is_conj(), real.is_neg(), real._is_view()), (
            name
        )
        assert (twin.grad_fn is None) == (real.grad_fn is None), name
        with session:
            made = [twin + 1, twin.clone(), twin.to("cpu"), torch.zeros_like(twin)]
        expected = [real + 1, real.clone(), real.to("cpu"), torch.zeros_like(real)]
        for ours, theirs in zip(made, expected, strict=True):
            assert (ours.device, ours.dtype, ours.shape, ours.stride()) == (
                theirs.device, theirs.dtype, theirs.shape, theirs.stride(),
            ), name  # fmt: skip
        assert facts(real) == before, name
    shared = session.fake_of(base).untyped_storage()._cdata
    assert session.fake_of(cases["view"]).untyped_storage()._cdata == shared
    return len(cases)


def mixtures(c: Any, x: Any, s: Any, cs: Any, i: Any, ci: Any) -> dict[str, Callable[[], Any]]:
    """Programs over a CUDA matrix, a CPU matrix, scalars and indices on both."""
    return {
        "c + s": lambda: c + s,
        "s + c": lambda: s + c,
        "s * cs": lambda: s * cs,
        "x + cs": lambda: x + cs,
        "c + x": lambda: c + x,
        "c @ x": lambda: c @ x,
        "cat": lambda: torch.cat([c, x]),
        "stack": lambda: torch.stack([c, x]),
        "where scalar": lambda: torch.where(c > 0, c, s),
        "where cpu condition": lambda: torch.where(x > 0, c, c),
        "where scalar condition": lambda: torch.where(s > 0, c, c),
        "masked_fill scalar": lambda: c.masked_fill(c > 0, s),
        "masked_fill cpu mask": lambda: c.masked_fill(x > 0, 1.0),
        "clamp": lambda: c.clamp(s, s),
        "lerp": lambda: c.lerp(c, s),
        "addcmul": lambda: torch.addcmul(c, c, s),
        "addcdiv": lambda: torch.addcdiv(c, s, c),
        "pow": lambda: s**c,
        "index cuda by cpu": lambda: c[i],
        "index cpu by cuda": lambda: x[ci],
        "index cuda by cuda": lambda: c[ci],
        "index two": lambda: c[i, ci],
        "gather": lambda: c.gather(0, i[:, None]),
        "index_select": lambda: c.index_select(0, i),
        "embedding": lambda: F.embedding(i, c),
        "linear": lambda: F.linear(c, x),
        "addmm": lambda: torch.addmm(x, c, c),
        "bias on cpu": lambda: F.linear(c, c, x[0]),
        "copy_": lambda: c.clone().copy_(x),
        "copy_ back": lambda: x.clone().copy_(c),
        "setitem scalar": lambda: c.clone().__setitem__(0, s),
        "setitem tensor": lambda: c.clone().__setitem__(0, x[0]),
        "setitem by cpu": lambda: c.clone().__setitem__(i, 1.0),
        "index_put": lambda: c.index_put((i,), c[0]),
        "to": lambda: (c.to("cpu"), x.to("cuda"), c.to(x), x.to(c), c.to("cpu", torch.float16)),
        "new": lambda: (c.new_zeros(2), x.new_zeros(2), torch.zeros_like(c), torch.zeros_like(c, device="cpu")),
        "tensor": lambda: (torch.tensor([1, 2], device="cuda"), torch.tensor(3.0) * c),
        "in place scalar": lambda: c.clone().add_(s),
        "in place other": lambda: c.clone().add_(x),
        "in place on a scalar": lambda: s.clone().add_(cs),
        "foreach": lambda: torch._foreach_add([c, x], 1.0),
        "foreach lists": lambda: torch._foreach_mul([c, x], [c, x]),
        "out=": lambda: torch.add(c, c, out=torch.empty(3, 3)),
        "equal shapes, sum": lambda: sum([c, s, 1]),
        "minimum": lambda: torch.minimum(c, s),
        "layer_norm": lambda: F.layer_norm(c, (3,), x[0], x[0]),
        "mse_loss": lambda: F.mse_loss(c, x),
        "cross_entropy": lambda: F.cross_entropy(c, torch.arange(3)),
        "bmm": lambda: torch.bmm(c[None], x[None]),
        "expand scalar": lambda: c + s.expand(3, 3),
        "dot": lambda: torch.dot(c[0], x[0]),
        "scatter": lambda: c.scatter(0, i[None], 1.0),
        "arange": lambda: torch.arange(3, device="cuda") + i[:1].sum(),
    }  # fmt: skip


def outcome(program: Callable[[], Any]) -> Any:
    try:
        result = program()
    except Exception as error:
        return "refused" if "device" in str(error).lower() else f"another error: {error}"
    leaves = torch.utils._pytree.tree_leaves(result)
    return [(str(t.device), str(t.dtype), tuple(t.shape)) for t in leaves if isinstance(t, torch.Tensor)]


def mixed_devices() -> tuple[int, list[str]]:
    """The number of mixtures, and those where fakes and eager differ."""
    real = (
        torch.randn(3, 3, device=CUDA), torch.randn(3, 3), torch.tensor(0.5), torch.tensor(0.5, device=CUDA),
        torch.tensor([2, 0]), torch.tensor([2, 0], device=CUDA),
    )  # fmt: skip
    session = fake.Session()
    twins = tuple(session.fake_of(t) for t in real)
    eager = {name: outcome(program) for name, program in mixtures(*real).items()}
    with session:
        ours = {name: outcome(program) for name, program in mixtures(*twins).items()}
    return len(eager), [
        f"{name}: eager {eager[name]}, fakes {ours[name]}" for name in eager if eager[name] != ours[name]
    ]


def scalars_among_cuda() -> tuple[int, list[str]]:
    """Every OpInfo operator with one tensor replaced by a 0-d CPU tensor: which calls are refused?"""
    from opinfo import compare

    tried, differing = 0, []
    for op in compare.database():
        try:
            sample = next(iter(op.sample_inputs("cuda", torch.float32)))
        except Exception:
            continue
        leaves, shape = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        if any(isinstance(x, torch.Tensor) and x.layout != torch.strided for x in leaves):
            continue  # these have no fakes
        for position, leaf in enumerate(leaves):
            if (
                not isinstance(leaf, torch.Tensor)
                or leaf.dim() == 0
                or sum(isinstance(x, torch.Tensor) for x in leaves) < 2
            ):
                continue
            mixed = [torch.ones((), dtype=leaf.dtype) if at == position else x for at, x in enumerate(leaves)]

            def program(values: list[Any], op: Any = op, shape: Any = shape) -> Any:
                given, args, kwargs = torch.utils._pytree.tree_unflatten(values, shape)
                return op(given, *args, **kwargs)

            eager = outcome(lambda: program(mixed))  # noqa: B023
            session = fake.Session()
            twins = [session.fake_of(x) if isinstance(x, torch.Tensor) else x for x in mixed]
            with session:
                ours = outcome(lambda: program(twins))  # noqa: B023
            if isinstance(eager, str) and eager != "refused":
                continue
            tried += 1
            if (eager == "refused") != (ours == "refused"):
                differing.append(f"{op.name}, argument {position}: eager {eager}, fakes {ours}")
    return tried, differing


class Encoder(nn.Module):
    """Layers of torch.nn, and a loss."""

    def __init__(self, width: int = 64):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.tokens, self.body = nn.Embedding(100, width), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 100)

    def forward(self, ids: Any, targets: Any) -> Any:
        logits = self.head(self.body(self.tokens(ids)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net(PlainBlock, 2)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.net(x)


def replays() -> dict[str, int]:
    """Recorded programs that equal eager bit by bit, with their node counts."""
    torch.manual_seed(0)
    ids = torch.randint(0, 100, (2, 16), device=CUDA)
    x = torch.randn(2, 16, 64, device=CUDA)
    found = {}
    for name, module, args in (
        ("12 layers", Net(Block, 12), (x,)),
        ("12 layers, attention written out", Net(PlainBlock, 12), (x,)),
        ("torch's encoder with dropout", Encoder(), (ids, ids)),
        ("autocast to bfloat16", Autocast(), (x,)),
        ("conv net", nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)),
         (torch.randn(2, 3, 8, 8, device=CUDA),)),
    ):  # fmt: skip
        found[name] = len(check(module.to(CUDA), *args).names)
    return found


def cost(rounds: int = 9) -> dict[str, float]:
    module, x = Net(PlainBlock, 12).to(CUDA), torch.randn(2, 16, 64, device=CUDA)

    def milliseconds(run: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3

    def dynamo() -> None:
        torch._dynamo.reset()
        torch.compile(module, backend="eager", fullgraph=True)(x)

    times: dict[str, list[float]] = {"record": [], "fx": [], "eager": [], "dynamo": []}
    dynamo()
    recorded = record(module, x)
    for turn in range(rounds):
        times["record"].append(milliseconds(lambda: record(module, x)))
        times["fx"].append(milliseconds(recorded.to_fx))
        times["eager"].append(milliseconds(lambda: module(x)))
        if turn < 3:
            times["dynamo"].append(milliseconds(dynamo))
    result = {f"{kind}_ms": statistics.median(values) for kind, values in times.items()}
    trace = result["dynamo_ms"] - result["eager_ms"]
    result["record_ratio"] = trace / result["record_ms"]
    result["export_ratio"] = trace / (result["record_ms"] + result["fx_ms"])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("fakes.py: this machine has no CUDA", file=sys.stderr)
        return 2
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = torch.cuda.get_device_name(0)
    print(f"CPython {sys.version.split()[0]}, torch {torch.__version__}, {device}")
    report: dict[str, Any] = {"torch": torch.__version__, "device": device, "mirrors": mirrors()}
    print(f"{report['mirrors']} fakes of CUDA tensors: equal, and the tensors are untouched")
    tried, differing = mixed_devices()
    report["mixtures"], report["differing"] = tried, differing
    print(f"{tried} mixtures of CPU and CUDA tensors: {tried - len(differing)} as in eager")
    for line in differing:
        print(f"  {line}")
    report["replays"] = replays()
    for name, nodes in report["replays"].items():
        print(f"replayed bit by bit, forward and backward: {name}, {nodes} nodes")
    report["cost"] = cost()
    print(", ".join(f"{name} {value:.2f}" for name, value in report["cost"].items()))
    tried, differing_scalars = scalars_among_cuda()
    report["scalars"], report["differing scalars"] = tried, differing_scalars
    print(
        f"{tried} operators with a number on the CPU among CUDA tensors: {tried - len(differing_scalars)} as in eager"
    )
    for line in differing_scalars:
        print(f"  {line}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

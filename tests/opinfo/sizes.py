"""Checks the rules of sizes (csrc/graph/sizes) over torch's own operator database: compiled under dynamic=True, each
operator returns its result and its shape, for a sample and for the same sample with other sizes.

    python tests/opinfo/sizes.py              every operator: about five minutes
    python tests/opinfo/sizes.py --op fft     those whose name contains "fft"
    python tests/opinfo/sizes.py --report     ... and what each operator is: of a rule that agrees, or one that specializes

A result must agree with eager, whatever the sizes. Prints what does not, and how many operators need one graph.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

import torch
from torch.utils._pytree import tree_flatten, tree_map

import alternator
from opinfo import compare

SAMPLES = 3
# These return memory that nothing has written.
UNINITIALIZED = ("empty", "multi_margin_loss", "multilabel_margin_loss")


def copied(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def resized(value: Any) -> Any:
    """With every size of at least 2 larger by one, and values from the same range."""

    def leaf(old: Any) -> Any:
        if not isinstance(old, torch.Tensor) or old.dim() == 0 or old.layout != torch.strided:
            return old
        sizes = [size + 1 if size >= 2 else size for size in old.shape]
        if old.dtype == torch.bool:
            return torch.rand(sizes) > 0.5
        if old.is_complex() or old.is_floating_point():
            new = torch.randn(sizes, dtype=old.dtype)
            return new.abs() if old.numel() and not old.is_complex() and bool((old >= 0).all()) else new
        low, high = (int(old.min()), int(old.max())) if old.numel() else (0, 0)
        return torch.randint(low, high + 1, sizes, dtype=old.dtype)

    return tree_map(leaf, value)


def outcome(function: Callable, arguments: Any) -> Any:
    torch.manual_seed(0)
    try:
        return function(*copied(arguments))
    except Exception as error:
        return error


def difference(wanted: Any, found: Any, with_values: bool) -> str:
    left, left_spec = tree_flatten(wanted)
    right, right_spec = tree_flatten(found)
    if left_spec != right_spec:
        return f"structure {left_spec} became {right_spec}"
    for one, other in zip(left, right, strict=True):
        if type(one) is not type(other):
            return f"{type(one)} became {type(other)}"
        if not isinstance(one, torch.Tensor):
            if one != other and one == one:
                return f"{one} became {other}"
        elif one.shape != other.shape or one.dtype != other.dtype:
            return f"{one.shape} {one.dtype} became {other.shape} {other.dtype}"
        elif one.layout == torch.strided:
            if compare.significant_strides(one) != compare.significant_strides(other):
                return f"strides {one.stride()} became {other.stride()}"
            if with_values and not torch.allclose(one, other, equal_nan=True):
                return f"values of {one.shape}"
    return ""


def check(op: Any, sample: Any, counts: collections.Counter[str]) -> str:
    arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))

    def function(first: Any, rest: Any, keywords: Any) -> Any:
        result = op.op(first, *rest, **keywords)
        if isinstance(result, torch.Tensor):
            return result, result.shape
        return result, [item.shape for item in result if isinstance(item, torch.Tensor)]

    graphs: list[object] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        graphs.append(module)
        return module.forward

    other = resized(copied(arguments))
    calls = [(given, outcome(function, given)) for given in (arguments, other, arguments)]
    if isinstance(calls[0][1], Exception):
        return ""
    with_values = not any(part in op.name for part in UNINITIALIZED)
    fast = alternator.compile(function, backend=backend, dynamic=True, isolate_recompiles=True)
    for given, wanted in calls:
        found = outcome(fast, given)
        if isinstance(wanted, Exception) != isinstance(found, Exception):
            return f"{wanted!r} became {found!r}"
        if not isinstance(wanted, Exception) and (text := difference(wanted, found, with_values)):
            return text
    counts["refused in eager" if isinstance(calls[1][1], Exception) else f"{len(graphs)} graphs"] += 1
    return ""


WRONG = "wrong"


def kind_of(counts: collections.Counter[str]) -> str:
    """What an operator does with sizes, by what became of its samples."""
    made = {name for name in counts if name.endswith("graphs")}
    if counts["wrong"]:
        return WRONG
    if not counts:
        return "no sample of several sizes"
    if not made:
        return "other sizes are refused, as in eager"
    if made <= {"1 graphs"}:
        return "a rule that agrees: one graph for all sizes"
    return "specializes" + (" in some samples" if "1 graphs" in made else "")


def samples_of(op: Any) -> list[Any]:
    known = [dtype for dtype in op.supported_dtypes("cpu") if "float8" not in str(dtype)]
    dtype = torch.float32 if torch.float32 in known else next(iter(known), None)
    found = []
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False) if dtype is not None else ():
        leaves = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
        if any(isinstance(leaf, torch.Tensor) and any(size >= 2 for size in leaf.shape) for leaf in leaves):
            found.append(sample)
        if len(found) == SAMPLES:
            break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="", help="a part of the name")
    parser.add_argument("--report", action="store_true", help="name the operators of each kind")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th operator, from the K-th on")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    part, of = map(int, asked.part.split("/"))
    kinds: dict[str, list[str]] = collections.defaultdict(list)
    for op in compare.database()[part::of]:
        if asked.op not in compare.name_of(op):
            continue
        counts: collections.Counter[str] = collections.Counter()
        for sample in samples_of(op):
            if text := check(op, sample, counts):
                counts["wrong"] += 1
                print(f"{compare.name_of(op)}: {text}", flush=True)
            alternator.reset()
        kinds[kind_of(counts)].append(compare.name_of(op))
    for kind, names in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):5} {kind}" + (f": {' '.join(names)}" if asked.report else ""))
    return 1 if kinds[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main())

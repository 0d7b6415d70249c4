"""How many of the torch calls of real models have a rule for their sizes (csrc/graph/sizes/size_rules.def).

    python benchmarks/size_rules.py [--list NAMES.txt]

Models are those of transformers_models.py; --list names models of a corpus whose `worker.create_model(spec, device)` lies on
PYTHONPATH. A call without a rule specializes where a program reads the sizes of its result; where none does, it does not matter.
"""

from __future__ import annotations

import argparse
import collections
import operator
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import alternator  # noqa: E402

RULES = ROOT / "csrc" / "graph" / "sizes" / "size_rules.def"
# The namespaces of size_rules.cpp, and whether a plain name is looked for there.
NAMESPACES: list[tuple[str, Any, bool]] = [
    ("T.", torch.Tensor, True),
    ("", torch._C.TensorBase, True),
    ("torch.", torch, True),
    ("F.", torch.nn.functional, True),
    ("", torch._C._nn, True),
    ("", torch.special, True),
    ("L.", torch.linalg, False),
    ("A.", torch.autograd, False),
    ("fft.", torch.fft, False),
    ("nn.", torch.nn, False),
    ("O.", operator, False),
]


# operator.iadd and the like
IN_PLACE = {
    getattr(operator, f"i{name}")
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    )
} | {operator.setitem}


def with_rules() -> dict[int, Any]:
    """The callables that have rules, by id."""
    found: dict[int, Any] = {}
    text = re.sub(r"//.*", "", RULES.read_text())
    for row in re.findall(r"ALT_RULE\(\w+,(.*?)\)\n", text, re.S):
        for name in " ".join(re.findall(r'"([^"]*)"', row)).split():
            for prefix, owner, is_default in NAMESPACES:
                here = is_default if "." not in name else bool(prefix) and name.startswith(prefix)
                made = getattr(owner, name if "." not in name else name[len(prefix) :], None) if here else None
                if made is not None:
                    found[id(made)] = made
    return found


class Count:
    """A backend that runs graphs as they are, and counts their calls."""

    def __init__(self) -> None:
        self.rules = with_rules()
        self.known: collections.Counter[str] = collections.Counter()
        self.unknown: collections.Counter[str] = collections.Counter()

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        for node in module.graph.nodes:
            if node.op not in ("call_function", "call_method"):
                continue
            if not makes_tensors(node):
                continue
            method = isinstance(node.target, str)
            target: Any = getattr(torch.Tensor, node.target, None) if method else node.target
            name = f"T.{node.target}" if method else getattr(target, "__name__", str(target))
            # x.add_(y) and x += y have the sizes of x, whatever they are.
            in_place = (name.endswith("_") and not name.endswith("__")) or target in IN_PLACE
            has_rule = id(target) in self.rules or in_place
            (self.known if has_rule else self.unknown)[name] += 1
        return module.forward


def makes_tensors(node: torch.fx.Node) -> bool:
    """... of others: not what sets a mode, writes an attribute or makes a constant."""
    if node.op == "call_method":
        return True
    module = getattr(node.target, "__module__", "") or ""
    name = getattr(node.target, "__name__", "")
    is_mode = "grad_enabled" in name or "grad_mode" in name or "autocast" in name
    return not is_mode and module != "builtins" and node.target is not torch.tensor


def run(name: str, model: Any, arguments: dict[str, Any], count: Count) -> None:
    alternator.reset()
    try:
        with torch.no_grad():
            alternator.compile(model.eval(), backend=count)(**arguments)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:100]}", flush=True)


def of_corpus(path: Path, count: Count) -> None:
    import worker

    for name in [line.split("#")[0].strip() for line in path.read_text().splitlines() if line.strip()]:
        try:
            model, keywords, arguments = worker.create_model({"name": name, "source": "hf"}, "cpu")
        except Exception as error:
            print(f"{name}: not made: {str(error)[:100]}", flush=True)
            continue
        if not arguments:
            run(name, model, keywords or {}, count)
            done, all_calls = sum(count.known.values()), sum(count.known.values()) + sum(count.unknown.values())
            print(f"{name}: {done} of {all_calls} calls so far", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=Path, help="names of models of a corpus, one in each line")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import transformers
    except ModuleNotFoundError:
        print("transformers is not installed: nothing is counted")
        return 0
    count = Count()
    if asked.list:
        of_corpus(asked.list, count)
    else:
        from transformers_models import models

        for name, make in models(transformers).items():
            run(name, *make(), count)
    known, unknown = sum(count.known.values()), sum(count.unknown.values())
    print(f"{known} of {known + unknown} calls have a rule: {100 * known / max(known + unknown, 1):.1f}%")
    print("without one: " + ", ".join(f"{name} {times}" for name, times in count.unknown.most_common(30)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

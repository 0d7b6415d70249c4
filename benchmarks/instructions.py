"""Instructions of a call that finds its entry, counted by valgrind: the same on a busy machine as on a quiet one.

    python benchmarks/instructions.py                  this tree
    python benchmarks/instructions.py --against TREE   beside another built tree, with the ratio

valgrind (a Debian package) runs each call twice, in processes that differ in the number of calls only: what both do is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEW, MANY = 100, 400
TOTAL = re.compile(r"Collected\s*:\s*(\d+)")

SETUP = """
import sys
import time
import torch
sys.path.insert(0, {tree!r})
import alternator
torch.set_num_threads(1)
"""
CALLS = {
    "x + 1": """
call = alternator.compile(lambda x: x + 1, backend="eager")
x = torch.ones(4)
""",
    "100 submodules": """
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(100))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
call = alternator.compile(Module(), backend=lambda gm, inputs: lambda *args: (args[0],))
x = torch.ones(2, 2)
""",
    "one break": """
def fn(x):
    y = x + 1
    time.sleep(0)
    return y * 2
call = alternator.compile(fn, backend="eager")
x = torch.ones(4)
""",
    "x + 1 of a symbolic size": """
call = alternator.compile(lambda x: x + 1, backend="eager", dynamic=True)
x = torch.ones(4)
""",
}


def instructions(tree: Path, script: str, count: int) -> int:
    code = SETUP.format(tree=str(tree)) + script + f"\nwith torch.no_grad():\n    for _ in range({count}): call(x)\n"
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONMALLOC": "pymalloc"}
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = TOTAL.search(done.stderr)
    if found is None:
        sys.exit(done.stderr[-2000:])
    return int(found.group(1))


def of_one_call(tree: Path, script: str) -> float:
    return (instructions(tree, script, MANY) - instructions(tree, script, FEW)) / (MANY - FEW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"calls: {', '.join(CALLS)}")
    parser.add_argument("--against", type=Path, help="another built tree")
    options = parser.parse_args()
    for name in options.names or CALLS:
        ours = of_one_call(ROOT, CALLS[name])
        line = f"{name:28}{ours:10.0f}"
        if options.against is not None:
            theirs = of_one_call(options.against, CALLS[name])
            line += f"{theirs:12.0f}{ours / theirs:8.3f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()

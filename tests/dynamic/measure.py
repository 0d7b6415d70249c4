"""Measures how often TorchDynamo compiles each program of sequences.py, and writes graphs.json.

    python tests/dynamic/measure.py              the rows that graphs.json does not have, or has in other modes
    python tests/dynamic/measure.py --all        every row
    python tests/dynamic/measure.py name ...     these
    python tests/dynamic/measure.py --alternator [--write]
                                                 how often Alternator compiles them; --write makes recompiling.txt of it

A backend that counts its calls runs the graphs as they are. Where TorchDynamo raises and eager does not, there is no number (null).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers"), str(HERE.parent.parent)]

import programs_floats  # noqa: E402, F401
import programs_models  # noqa: E402, F401
import programs_numbers  # noqa: E402, F401
import programs_operators  # noqa: E402, F401
import programs_python  # noqa: E402, F401
import programs_sizes  # noqa: E402, F401
import programs_state  # noqa: E402, F401
import programs_views  # noqa: E402, F401
import torch  # noqa: E402
from harness import Crashed, forked  # noqa: E402
from sequences import GRAPHS, MODES, ROWS, Row, most_graphs, outcome, torchdynamos_graphs, write_recompiling  # noqa: E402


class Counting:
    """A run that only counts: what the harness's runs look at is not touched."""

    def __init__(self, compiler: Callable[..., Any] | None) -> None:
        self.compiler = compiler
        self.graphs = 0
        self.errors: list[str] = []

    def backend(self, module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return module.forward

    def compile(self, fn: Any, **options: Any) -> Callable[..., Any]:
        compiled = self.compiler(fn, backend=self.backend, **options) if self.compiler else fn

        def call(*arguments: Any) -> Any:
            try:
                return compiled(*arguments)
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                return None

        return call

    def watch(self, look: Any) -> None:
        pass


def measured(row: Row, mode: str, compiler: Callable[..., Any]) -> tuple[int | None, str]:
    """The number of graphs, and what else there is to say."""
    wanted, got = Counting(None), Counting(compiler)
    with contextlib.redirect_stdout(io.StringIO()):
        row.script(mode)(wanted)
        row.script(mode)(got)
    if len(wanted.errors) != len(got.errors):
        return (
            None,
            f"errors in eager {[one[:60] for one in wanted.errors]}, compiled {[one[:90] for one in got.errors]}",
        )
    return got.graphs, ""


def measure_torchdynamo(names: list[str]) -> None:
    torch._dynamo.config.recompile_limit = 64
    table = torchdynamos_graphs() if GRAPHS.exists() else {}
    for name in names:
        row = ROWS[name]
        table[name] = {}
        for mode in row.modes:
            try:
                table[name][mode], note = forked(lambda row=row, mode=mode: measured(row, mode, torch.compile))
            except Crashed as error:
                table[name][mode], note = None, str(error)[:300]
            print(f"{name:36}{mode:14}{table[name][mode]!s:>5}  {note[:200]}", flush=True)
        lines = [f"{json.dumps(one)}: {json.dumps(table[one])}" for one in ROWS if one in table]
        GRAPHS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def measure_alternator(names: list[str], write: bool) -> None:
    more: dict[str, set[str]] = {mode: set() for mode in MODES}
    total = dict.fromkeys(MODES, 0)
    for name in names:
        for mode in ROWS[name].modes:
            found, most = outcome(name, mode, "eager"), most_graphs(name, mode)
            total[mode] += 1
            if found.broken or found.wrong:
                print(f"{name:36}{mode:14} wrong: {(found.broken or found.wrong[0])[-300:]}", flush=True)
            if most is not None and found.graphs > most:
                more[mode].add(name)
                print(f"{name:36}{mode:14}{found.graphs:5}  TorchDynamo {most}", flush=True)
    for mode in MODES:
        print(f"{mode}: {len(more[mode])} of {total[mode]} are compiled more often than by TorchDynamo")
    if write:
        write_recompiling(more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--alternator", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("ALTERNATOR_SANITIZE_TAINT", "1")
    torch.set_num_threads(1)
    if options.alternator:
        measure_alternator(options.names or list(ROWS), options.write)
        return
    known = torchdynamos_graphs() if GRAPHS.exists() and not options.all else {}
    missing = [name for name, row in ROWS.items() if list(known.get(name, {})) != list(row.modes)]
    measure_torchdynamo(options.names or missing)


if __name__ == "__main__":
    main()

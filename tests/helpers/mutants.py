"""Breaks the core on purpose, one switch at a time, and looks for a program that notices: `make test-mutants`.

    python tests/helpers/mutants.py --core build/mutants [--only WORD] [--learn] [--list] [--jobs N]

The core is the one in build/mutants, configured with -DALTERNATOR_MUTANTS=ON. There each room has `mutant_names()` (guard kinds,
ambient state, write-back kinds, rebuild kinds, lift rows, channels) and `set_mutant(name, disabled)`. A mutant dies when a program that
passes without it fails, is captured in another way, or crashes. The program that killed it last (killers.json) is asked first, so
that a run takes minutes; a mutant that this one no longer kills is shown to all others. The exit status is 0 when all die
that surviving.txt does not list.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT), str(HERE.parent / "dynamic")]
MEMORY = HERE / "killers.json"  # who killed whom last time
os.environ.setdefault("ALTERNATOR_SANITIZE_TAINT", "1")


def load_core(folder: Path) -> Any:
    """alternator._C from a build folder, in the place of the package's own."""
    import torch

    torch.set_num_threads(1)
    found = sorted(folder.rglob("_C.*.so")) or sorted(folder.rglob("_C*.so"))
    if not found:
        sys.exit(f"{folder} has no alternator._C: `make test-mutants` builds it")
    loader = importlib.machinery.ExtensionFileLoader("alternator._C", str(found[0]))
    spec = importlib.util.spec_from_file_location("alternator._C", found[0], loader=loader)
    assert spec is not None
    core = importlib.util.module_from_spec(spec)
    sys.modules["alternator._C"] = core
    loader.exec_module(core)
    import alternator

    if alternator._C is not core:
        sys.exit("the package has loaded another core")
    if not switches(core):
        sys.exit(f"{found[0]} was built without -DALTERNATOR_MUTANTS=ON")
    return core


def switches(core: Any) -> dict[str, tuple[Any, str]]:
    """By name: the room that has the switch, and what it is called there."""
    rooms = [(name, room) for name, room in vars(core).items() if getattr(room, "has_mutants", False)]
    return {f"{name}.{switch}": (room, switch) for name, room in rooms for switch in room.mutant_names()}


def all_programs() -> dict[str, Any]:
    from traced import make_importable, traced_files

    files = traced_files()
    make_importable(files)
    for path in files:
        importlib.import_module(path.stem)
    from harness import REGISTRY

    return dict(REGISTRY)


# Where a mutant of a room is most likely noticed.
LIKELY = {
    "lift": ["test_lift_rows", "test_sources", "test_implicit_state"],
    "guards": [
        "test_guards_of_traces",
        "test_plain_value_guards",
        "test_context_managers",
        "test_live_edits",
        "test_implicit_state",
    ],
    "replay": ["test_reconstruction", "test_write_back", "test_side_effects"],
    "sizes": [],
}


# The own tests of a room, each file as a whole: asked before all programs.
ROOM_TESTS = {
    "lift": [],
    "guards": [
        "guards/test_guard_kinds.py",
        "guards/test_ambient.py",
        "guards/test_accessors.py",
        "dispatch/test_dynamic_policy.py",
        "backend/test_symbolic_handoff.py",
    ],
    "replay": ["replay/test_values.py", "replay/test_writes.py"],
    "sizes": ["dynamic/test_channels.py", "graph/test_size_rules.py", "dispatch/test_dynamic_policy.py"],
}
# Of these rooms the programs are not asked: a channel of sizes is noticed only in a sequence of calls with other sizes.
OWN_TESTS_ONLY = ("sizes",)

# Off with each mutant of the room, and without one: the second trace of a call would notice, and hide, what a channel lets through.
ALWAYS_OFF = {"sizes": "sizes.verify"}


# Guards of which each implies others, because inference mode, functorch and torch.jit.trace switch dispatch keys: off together.
TOGETHER = [
    "guards.ambient.inference_mode",
    "guards.ambient.functorch_level",
    "guards.ambient.included_keys",
    "guards.ambient.excluded_keys",
    "guards.ambient.jit_tracing",
]


def channel_tests() -> list[str]:
    """One for each channel, by its name."""
    import test_channels as tests

    tables = {
        "test_channel": tests.WRONG,
        "test_channel_that_tells_nothing": [f"reader.{name}" for name in tests.HARMLESS],
    }
    found = [f"dynamic/test_channels.py::{test}[{name}]" for test, names in tables.items() for name in names]
    return found + [f"dynamic/test_channels.py::test_channel_of_memory[{name}-eager]" for name in tests.MEMORY]


class Hunt:
    """Which programs pass without a mutant, and which of them fails first with one."""

    def __init__(self, core: Any, programs: dict[str, Any]) -> None:
        from harness import gaps, the_frontend

        self.switches, self.programs = switches(core), programs
        self.frontend = the_frontend("alternator")
        self.known_gaps = gaps()
        self.killers: dict[str, str] = json.loads(MEMORY.read_text()) if MEMORY.exists() else {}
        self.verdicts: dict[str, str] = {}
        self.tests = channel_tests()

    def turn_on(self, mutant: str) -> None:
        for one in TOGETHER if mutant in TOGETHER else [mutant]:
            room, switch = self.switches[one]
            room.set_mutant(switch, True)
        self.turn_off_checks(mutant)

    def turn_off_checks(self, mutant: str) -> None:
        always = ALWAYS_OFF.get(mutant.partition(".")[0])
        if always is not None and mutant != always:
            room, switch = self.switches[always]
            room.set_mutant(switch, True)

    def verdict(self, name: str) -> str:
        if name not in self.programs:
            import pytest

            with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
                return f"exit status {pytest.main(['-q', '-x', '-p', 'no:cacheprovider', str(HERE.parent / name)])}"
        made = self.programs[name].judge(self.frontend, name in self.known_gaps)
        text: str = made.broken or made.text
        return text

    def baseline(self, names: list[str], mutant: str) -> None:
        """What these programs say without a mutant; one that crashes is left out."""
        from harness import Crashed, forked

        names = [name for name in names if name not in self.verdicts]
        if not names:
            return

        def verdicts(names: list[str]) -> dict[str, str]:
            self.turn_off_checks(mutant)
            return {name: self.verdict(name) for name in names}

        try:
            self.verdicts |= forked(functools.partial(verdicts, names), timeout=600)
        except Crashed:
            for name in names:
                try:
                    self.verdicts |= forked(functools.partial(verdicts, [name]))
                except Crashed as error:
                    print(f"left out, it crashes without a mutant: {name}: {error}")
                    self.verdicts[name] = "compiled: it crashes"

    def can_accuse(self, name: str) -> bool:
        """A program that is wrong anyway cannot; one that is a gap can, if its words change."""
        return not any(word in self.verdicts[name] for word in ("compiled", "spy"))

    def order(self, mutant: str) -> list[str]:
        room, _, switch = mutant.partition(".")
        if room in OWN_TESTS_ONLY:
            tests = [name for name in self.tests if name.endswith((f"[{switch}]", f"[{switch}-eager]"))]
            killer = [self.killers[mutant]] if self.killers.get(mutant) in {*self.tests, *ROOM_TESTS[room]} else []
            return list(dict.fromkeys([*killer, *tests, *ROOM_TESTS[room]]))
        known = {*self.programs, *ROOM_TESTS[room]}
        first = [self.killers[mutant]] if self.killers.get(mutant) in known else []
        often = sorted(set(self.killers.values()) & set(self.programs))
        likely = [name for file in LIKELY[room] for name in self.programs if name.startswith(file + "::")]
        # A table's program for the very row.
        same = [name for name in self.programs if name.endswith(f"[{mutant.partition('.')[2]}]")]
        return list(dict.fromkeys([*first, *same, *ROOM_TESTS[room], *likely, *often, *sorted(self.programs)]))

    def hunt(self, mutant: str) -> str | None:
        """The program that notices this mutant."""
        from harness import Crashed, forked

        found: str | None

        names, size = self.order(mutant), 1
        while names:
            batch, names = names[:size], names[size:]
            size = 10 if size == 1 else min(size * 2, 80)
            self.baseline(batch, mutant)
            batch = [name for name in batch if self.can_accuse(name)]

            def work(batch: list[str] = batch) -> str | None:
                self.turn_on(mutant)
                for name in batch:
                    if self.verdict(name) != self.verdicts[name]:
                        return name
                return None

            try:
                found = forked(work, timeout=900) if batch else None
            except Crashed:
                found = next((name for name in batch if self.crashes(mutant, name)), batch[0])
            if found:
                return found
        return None

    def crashes(self, mutant: str, name: str) -> bool:
        from harness import Crashed, forked

        def work() -> None:
            self.turn_on(mutant)
            self.verdict(name)

        try:
            forked(work)
        except Crashed:
            return True
        return False

    def run(self, mutants: list[str]) -> list[str]:
        survivors = []
        for mutant in mutants:
            started = time.monotonic()
            killer = self.hunt(mutant)
            if killer:
                self.killers[mutant] = killer
            else:
                survivors.append(mutant)
            words = "killed by " + killer if killer else "SURVIVES"
            print(f"{mutant:40} {words} ({time.monotonic() - started:.1f} s)", flush=True)
        return survivors


def surviving() -> set[str]:
    """Those that are known to survive."""
    lines = (HERE / "surviving.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def shared_out(options: argparse.Namespace) -> None:
    """The same command in several processes at once, each with every N-th mutant; this one learns from what they print."""
    words = [sys.executable, __file__, "--core", str(options.core), "--only", options.only]
    parts = [
        subprocess.Popen([*words, "--part", f"{part}/{options.jobs}"], stdout=subprocess.PIPE, text=True)
        for part in range(options.jobs)
    ]
    survivors: list[str] = []
    killers: dict[str, str] = {}

    def listen(part: subprocess.Popen[str]) -> None:
        assert part.stdout is not None
        for line in part.stdout:
            mutant, _, rest = line.partition(" ")
            if " killed by " in line:
                killers[mutant] = rest.strip().removeprefix("killed by ").rpartition(" (")[0]
            elif "SURVIVES" in line:
                survivors.append(mutant)
            if " s)" in line or "left out" in line:
                print(line, end="", flush=True)

    listeners = [threading.Thread(target=listen, args=[part]) for part in parts]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    status = max(part.wait() for part in parts)
    report(killers, survivors, options.learn)
    sys.exit(status)


def report(killers: dict[str, str], survivors: list[str], learn: bool) -> None:
    if learn:
        known = json.loads(MEMORY.read_text()) if MEMORY.exists() else {}
        MEMORY.write_text(json.dumps(known | killers, indent=1, sort_keys=True) + "\n")
    print(f"{len(killers)} killed, {len(survivors)} survive: {', '.join(sorted(survivors))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--learn", action="store_true", help="write down who killed whom, in killers.json")
    parser.add_argument("--list", action="store_true", help="name the mutants and stop")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes at a time")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th mutant, from the K-th on")
    options = parser.parse_args()
    if options.jobs > 1 and not options.list:
        shared_out(options)
    core = load_core(options.core)
    part, of = map(int, options.part.split("/"))
    mutants = [name for name in switches(core) if options.only in name][part::of]
    if options.list:
        print("\n".join(mutants))
        return 0
    hunt = Hunt(core, all_programs())
    print(f"{len(mutants)} mutants, {len(hunt.programs)} programs that may accuse them", flush=True)
    survivors = hunt.run(mutants)
    report({name: hunt.killers[name] for name in mutants if name not in survivors}, survivors, options.learn)
    return 1 if set(survivors) - surviving() or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())

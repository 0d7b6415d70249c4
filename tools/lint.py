"""Runs structure.py, clang-format, ruff, mypy and clang-tidy, and prints one line about each.

    python tools/lint.py                 clang-tidy on the rooms that differ from the merge base; on all if none does
    python tools/lint.py --rooms py fake
    python tools/lint.py --all
    python tools/lint.py --fix           rewrite the files as clang-format and ruff want them, and nothing else

The merge base is that with origin/main, or with what LINT_BASE names.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
BUILD = ROOT / "build"
OWN = BUILD / "lint"
JOBS = int(os.environ.get("JOBS") or os.cpu_count() or 1)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)


def git(*arguments: str) -> list[str]:
    result = run("git", *arguments)
    return result.stdout.splitlines() if result.returncode == 0 else []


def tree_files(*suffixes: str) -> list[str]:
    """The existing files that git tracks or would track."""
    names = set(git("ls-files", "--cached", "--others", "--exclude-standard"))
    return sorted(name for name in names if name.endswith(suffixes) and (ROOT / name).exists())


def report(step: str, result: subprocess.CompletedProcess[str]) -> bool:
    if result.returncode != 0:
        print(result.stdout + result.stderr, end="")
    print(f"lint: {step}: {'ok' if result.returncode == 0 else 'FAILED'}", flush=True)
    return result.returncode == 0


def over(names: list[str], *command: str | Path) -> subprocess.CompletedProcess[str]:
    return run(*command, *names) if names else run("true")


# ------------------------------------------------------------------------------------------------------------ clang-tidy


def changed_rooms() -> set[str]:
    base = os.environ.get("LINT_BASE") or "origin/main"
    merge_base = git("merge-base", "HEAD", base)
    if not merge_base:
        return set()
    changed = git("diff", "--name-only", merge_base[0]) + git("ls-files", "--others", "--exclude-standard")
    return {room for name in changed if (room := room_of(name))}


def room_of(name: str) -> str | None:
    match = re.match(r"csrc/([a-z]+)/|tests/cpp/([a-z]+)(?:_[a-z0-9_]+)?_test\.cpp$", name)
    return (match[1] or match[2]) if match else None


def compile_commands() -> dict[str, dict[str, str]]:
    """The compile command of each source file, without the precompiled header: a file must include what it uses."""
    commands: dict[str, dict[str, str]] = {}
    for folder in (BUILD / "core-3.11", BUILD / "torch"):
        path = folder / "compile_commands.json"
        for entry in json.loads(path.read_text()) if path.exists() else []:
            name = os.path.relpath(entry["file"], ROOT)
            if room_of(name) is None and not name.startswith("tests/cpp/"):
                continue
            command = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx| -fpch-preprocess", "", entry["command"])
            if "packages/torch/include" in command:
                # clang instantiates more templates of torch's headers than g++ does, and needs this class to be complete.
                command = command.replace(" -c ", " -include torch/csrc/autograd/function.h -c ")
            entry["command"] = command
            commands[name] = entry
    return commands


@dataclasses.dataclass
class Tidy:
    """clang-tidy over files that share most of their headers: one run over all of them as one translation unit costs
    little more than one run over the largest. If they do not compile together, each has its own run."""

    commands: dict[str, dict[str, str]]
    # A digest of what every result depends on: a file that passed is not checked again until it or one of these changes.
    shared: bytes = b""

    def prepare(self, groups: dict[str, list[str]]) -> None:
        (OWN / "passed").mkdir(parents=True, exist_ok=True)
        entries = list(self.commands.values())
        for group, names in groups.items():
            together = self.together(group)
            together.write_text("".join(f'#include "{ROOT / name}"  // NOLINT\n' for name in names))
            command = self.commands[names[0]]
            entries.append({**command, "file": str(together), "command": self.command_for(command, together)})
        (OWN / "compile_commands.json").write_text(json.dumps(entries))
        names = [".clang-tidy", "requirements/lint.txt", *tree_files(".h", ".def")]
        self.shared = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in names)).digest()

    @staticmethod
    def together(group: str) -> Path:
        return OWN / f"{group}_together.cpp"

    @staticmethod
    def command_for(command: dict[str, str], path: Path) -> str:
        return command["command"].replace(command["file"], str(path))

    def stamp(self, name: str) -> Path:
        digest = hashlib.sha256(self.shared)
        digest.update((ROOT / name).read_bytes())
        digest.update(self.commands[name]["command"].encode())
        return OWN / "passed" / digest.hexdigest()

    def run(self, path: str | Path) -> subprocess.CompletedProcess[str]:
        return run(BIN / "clang-tidy", "--quiet", "-p", OWN, path)

    def check(self, group: str, names: list[str]) -> list[subprocess.CompletedProcess[str]]:
        """The runs that failed."""
        together = self.run(self.together(group)) if len(names) > 1 else None
        if together is not None and "clang-diagnostic-error" not in together.stdout:
            results = dict.fromkeys(names, together)
        else:
            results = {name: self.run(name) for name in names}
        for name, result in results.items():
            if result.returncode == 0:
                self.stamp(name).touch()
        failed = [result for result in results.values() if result.returncode != 0]
        return list({id(result): result for result in failed}.values())


def clang_tidy(rooms: set[str]) -> bool:
    tidy = Tidy(compile_commands())
    if not tidy.commands:
        print("lint: clang-tidy: FAILED: nothing is configured, run `make build` first")
        return False
    wanted = [name for name in sorted(tidy.commands) if not rooms or room_of(name) in rooms]
    tidy.prepare({})
    todo: dict[str, list[str]] = {}
    for name in wanted:
        if not tidy.stamp(name).exists():
            # C and C++, rooms and tests are separate groups: their commands differ.
            kind = "test" if name.startswith("tests/") else Path(name).suffix[1:]
            todo.setdefault(f"{room_of(name) or 'framework'}_{kind}", []).append(name)
    tidy.prepare({group: names for group, names in todo.items() if len(names) > 1})
    failed = 0
    with ThreadPoolExecutor(JOBS) as pool:
        for results in pool.map(tidy.check, todo, todo.values()):
            for result in results:
                failed += 1
                print(result.stdout, *errors_of(result.stderr), sep="\n", flush=True)
    where = f"rooms {', '.join(sorted(rooms))}" if rooms else "all rooms"
    fresh = sum(map(len, todo.values()))
    print(f"lint: clang-tidy ({where}; {len(wanted)} files, {fresh} of them changed): {'FAILED' if failed else 'ok'}")
    return not failed


def errors_of(text: str) -> Iterable[str]:
    return (line for line in text.splitlines() if "error" in line and "warnings treated as errors" not in line)


# ------------------------------------------------------------------------------------------------------------------ main


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every linter of the project.")
    parser.add_argument("--fix", action="store_true", help="reformat instead of checking")
    parser.add_argument("--all", action="store_true", help="clang-tidy on all rooms")
    parser.add_argument("--rooms", nargs="+", default=[], help="clang-tidy on these rooms")
    options = parser.parse_args()

    sources = tree_files(".c", ".cpp", ".h")
    python = tree_files(".py")
    if options.fix:
        steps = [
            report("clang-format -i", over(sources, BIN / "clang-format", "-i")),
            report("ruff check --fix", over(python, BIN / "ruff", "check", "--fix", "--quiet", "--force-exclude")),
            report("ruff format", over(python, BIN / "ruff", "format", "--quiet", "--force-exclude")),
        ]
        return 0 if all(steps) else 1
    rooms = set() if options.all else set(options.rooms) or changed_rooms()
    steps = [
        report("structure", run(sys.executable, ROOT / "tools/structure.py")),
        report("clang-format", over(sources, BIN / "clang-format", "--dry-run", "-Werror")),
        report("ruff check", over(python, BIN / "ruff", "check", "--quiet", "--force-exclude")),
        report("ruff format", over(python, BIN / "ruff", "format", "--check", "--quiet", "--force-exclude")),
        report("mypy --strict", run(BIN / "mypy")),
        clang_tidy(rooms),
    ]
    return 0 if all(steps) else 1


if __name__ == "__main__":
    sys.exit(main())

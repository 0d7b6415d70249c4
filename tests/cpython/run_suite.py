"""Run CPython's own test suite under the loop and report what plain CPython does not also report.

    python tests/cpython/run_suite.py --ci               the representative part that CI runs
    python tests/cpython/run_suite.py --all --jobs 2     every list, every mode
    python tests/cpython/run_suite.py --modes loop --files test_generators test_with

Every file of a list runs in a process of its own. Modes:
    plain    no hook at all: what CPython itself does on this machine (kept in the build folder per interpreter)
    idle     a PEP 523 hook that only forwards: what any hook changes (from 3.12 on a hook has effects of its own)
    loop     every frame in our loop
    exitN    the loop, left for the default loop at every N-th instruction

A difference is a test that fails, crashes, hangs or is missing in a mode while plain CPython passes it. A file that differs is run
once more, in both modes; only what differs both times counts. From 3.12 on, what fails alone under the idle hook too is named "from
any hook" and does not count. Exceptions with their reasons stand in lists/exceptions.txt.
The exit status is 0 when nothing differs, 1 when something does, 2 for a mistake in the call or a missing part.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RUN_FILE = HERE / "run_file.py"
EXIT_MODES = ("exit7", "exit101")


# ------------------------------------------------------------------------------------------------------------------ lists


@dataclasses.dataclass(frozen=True)
class ListedFile:
    name: str
    tags: frozenset[str]

    @property
    def module(self) -> str:
        return self.name if self.name.startswith("unittest.") else "test." + self.name


def read_list(version: str) -> list[ListedFile]:
    path = HERE / "lists" / f"{version}.txt"
    if not path.exists():
        sys.exit(f"There is no list of test files for CPython {version}: {path.relative_to(ROOT)} is missing.")
    files = []
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            files.append(ListedFile(words[0], frozenset(words[1:])))
    return files


def read_exceptions(version: str) -> dict[tuple[str, str], str]:
    """(mode family, test id) -> reason. A line is: versions | modes | test id | reason."""
    found = {}
    for line in (HERE / "lists" / "exceptions.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        versions, modes, identity, reason = (part.strip() for part in line.split("|", 3))
        if version in versions.split():
            for mode in modes.split():
                found[mode, identity] = reason
    return found


# ------------------------------------------------------------------------------------------------------------- one process


@dataclasses.dataclass
class Outcome:
    """What one file did in one mode."""

    ran: list[str]
    bad: dict[str, str]
    seconds: float
    skipped: int = 0
    note: str = ""
    stats: dict[str, int] | None = None

    def counts(self) -> set[str]:
        return set(self.ran)


def tail(text: str, limit: int = 4000) -> str:
    return text if len(text) <= limit else "...\n" + text[-limit:]


def run_file(python: str, core: Path | None, mode: str, file: ListedFile, timeout: float, match: str = "") -> Outcome:
    with tempfile.TemporaryDirectory(prefix="alternator-", ignore_cleanup_errors=True) as folder:
        work = Path(folder, "work")
        work.mkdir()
        result_path = Path(folder, "result.json")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        # One seed for all modes: set order and the like must not make two runs differ.
        environment.update(PYTHONHASHSEED="1", TMPDIR=str(work), PYTHONDONTWRITEBYTECODE="")
        if core is not None:
            environment["ALTERNATOR_CORE_DIR"] = str(core)
        command = [
            python,
            "-W",
            "default",
            str(RUN_FILE),
            mode,
            file.module,
            str(result_path),
            *([match] if match else []),
        ]
        started = time.monotonic()
        with open(Path(folder, "output"), "w+b") as output:
            child = subprocess.Popen(
                command,
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            hung = False
            try:
                child.wait(timeout)
            except subprocess.TimeoutExpired:
                hung = True
                dump_and_kill(child)
            else:
                end_session(child.pid)
            output.seek(0)
            printed = tail(output.read().decode(errors="replace"))
        seconds = time.monotonic() - started

        data: dict[str, Any] = json.loads(result_path.read_text()) if result_path.exists() else {}
        progress_path = Path(str(result_path) + ".progress")
        progress = progress_path.read_text().splitlines() if progress_path.exists() else []
        outcome = Outcome(
            ran=data.get("ran", progress),
            bad=dict(data.get("bad", {})),
            seconds=round(seconds, 2),
            skipped=len(data.get("skipped", ())),
            note=data.get("skipped_file") or "",
            stats=data.get("stats"),
        )
        if hung or child.returncode != 0:
            what = f"no end after {timeout:.0f} s" if hung else describe_status(child.returncode)
            where = f"{file.name}: at exit" if data else (progress[-1] if progress else f"{file.name}: import")
            outcome.bad[where] = f"{what}\n{printed}"
        if data.get("loop_on_at_end") is False:
            outcome.note = "the loop was off at the end: tracing left on, or the hook taken away"
        return outcome


def describe_status(status: int) -> str:
    if status < 0:
        return f"the process died of {signal.Signals(-status).name}"
    return f"the process ended with status {status}"


def dump_and_kill(child: subprocess.Popen[bytes]) -> None:
    # faulthandler prints where every thread is when the process aborts.
    child.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(10)
    end_session(child.pid)
    child.wait()


def end_session(group: int) -> None:
    """What a test left running in its session must not disturb the next one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


# ------------------------------------------------------------------------------------------------------------ whole suite


class Suite:
    def __init__(self, options: argparse.Namespace) -> None:
        self.python, self.version, self.full_version = find_interpreter(options.python)
        self.core = find_core(options.core, self.version)
        self.match: str = options.match
        self.timeout: float = options.timeout
        self.jobs: int = options.jobs
        self.verbose: bool = options.verbose
        self.cache_path = options.build / "cpython-tests" / f"plain-{self.full_version}.json"
        self.report_folder = self.cache_path.parent
        self.lock = threading.Lock()
        self.plain: dict[str, Outcome] = {}
        if self.cache_path.exists() and not options.fresh and not self.match:
            cached = json.loads(self.cache_path.read_text())
            self.plain = {name: Outcome(**entry) for name, entry in cached.items()}
        self.idle: dict[str, Outcome] = {}
        # Up to 3.11 a hook that only forwards changes nothing that these tests could see, so nothing is excused by it.
        self.hook_shows = tuple(map(int, self.version.split("."))) >= (3, 12)

    def save_plain(self) -> None:
        if self.match:
            return
        self.report_folder.mkdir(parents=True, exist_ok=True)
        with self.lock:
            text = json.dumps({name: dataclasses.asdict(entry) for name, entry in sorted(self.plain.items())}, indent=1)
            partial = self.cache_path.with_suffix(f".{os.getpid()}.tmp")
            partial.write_text(text)
            partial.replace(self.cache_path)

    def run(self, mode: str, file: ListedFile, match: str = "") -> Outcome:
        known = self.plain.get(file.name)
        # A loop without quickening, leaving every few instructions, is slower by an order of magnitude.
        limit = max(self.timeout, 25 * known.seconds) if known else self.timeout
        return run_file(self.python, None if mode == "plain" else self.core, mode, file, limit, match or self.match)

    def plain_outcome(self, file: ListedFile) -> Outcome:
        if file.name not in self.plain:
            self.plain[file.name] = self.run("plain", file)
            self.save_plain()
        return self.plain[file.name]

    def idle_outcome(self, file: ListedFile) -> Outcome:
        if file.name not in self.idle:
            self.idle[file.name] = self.run("idle", file)
        return self.idle[file.name]

    def judge(self, mode: str, file: ListedFile) -> Verdict:
        outcome = self.run(mode, file)
        plain = self.plain_outcome(file)
        verdict = Verdict(mode, file.name, outcome, plain, differences(outcome, plain))
        if verdict.new:
            again = self.run(mode, file)
            plain_again = self.run("plain", file)
            # Failing once in plain CPython is enough to call a test unstable on this machine.
            steady = differences(again, plain_again)
            verdict.unstable = {key: text for key, text in verdict.new.items() if key not in steady}
            verdict.new = {key: steady[key] for key in verdict.new if key in steady}
            if verdict.new and mode != "idle" and self.hook_shows:
                by_any_hook = self.idle_outcome(file)
                idle_bad = differences(by_any_hook, plain)
                shared = {key: text for key, text in verdict.new.items() if key in idle_bad}
                verdict.new = {key: text for key, text in verdict.new.items() if key not in idle_bad}
                self.judge_alone(mode, file, shared, verdict)
        return verdict

    def judge_alone(self, mode: str, file: ListedFile, shared: dict[str, str], verdict: Verdict) -> None:
        """A failure may drag the tests after it along. So what fails under any hook is tried test by test before that excuses it."""
        families: dict[str, list[str]] = {}
        for key in shared:
            families.setdefault(key.split(" ")[0], []).append(key)  # a subtest's id goes on after a space
        for identity, keys in families.items():
            ours = self.run(mode, file, identity)
            if ours.ran and not ours.bad:
                verdict.dragged += len(keys)
                continue
            idle = self.run("idle", file, identity) if ours.ran else None
            for key in keys:
                excused = idle is None or any(bad.split(" ")[0] == identity for bad in idle.bad)
                (verdict.any_hook if excused else verdict.new)[key] = ours.bad.get(key, shared[key])


@dataclasses.dataclass
class Verdict:
    mode: str
    name: str
    outcome: Outcome
    plain: Outcome
    new: dict[str, str]
    unstable: dict[str, str] = dataclasses.field(default_factory=dict)
    any_hook: dict[str, str] = dataclasses.field(default_factory=dict)
    dragged: int = 0  # fail after one that any hook makes fail, and pass alone
    excepted: dict[str, str] = dataclasses.field(default_factory=dict)


def differences(outcome: Outcome, plain: Outcome) -> dict[str, str]:
    found = {key: text for key, text in outcome.bad.items() if key not in plain.bad}
    missing = plain.counts() - outcome.counts()
    # After a crash the rest is missing as a matter of course; the crash is the difference.
    if not any(text.startswith(("the process", "no end")) for text in outcome.bad.values()):
        found.update(dict.fromkeys(missing, "runs in plain CPython, did not run here"))
    return found


def find_interpreter(python: str) -> tuple[str, str, str]:
    """Its path outside of any virtual environment (whose packages are no part of the tests), its version short and full."""
    code = (
        "import sys; print(sys._base_executable); print('%d.%d' % sys.version_info[:2]); print('%d.%d.%d' % sys.version_info[:3]); "
        "sys.stdout.flush(); import test.support"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if len(lines) != 3:
        raise SystemExit(f"{python} is not a working Python: {done.stderr.strip()}")
    if done.returncode != 0:
        print(
            f"CPython's own tests are not installed with {lines[0]} (no module test.support). On Debian: libpython{lines[1]}-testsuite."
        )
        raise SystemExit(2)
    return lines[0], lines[1], lines[2]


def find_core(given: Path | None, version: str) -> Path:
    folder = given or Path(os.environ.get("ALTERNATOR_CORE_DIR") or ROOT / "build" / f"core-{version}")
    if not list(folder.glob("_alternator_core*")):
        print(f"There is no _alternator_core in {folder}. Build it first: make build-core")
        raise SystemExit(2)
    return folder.resolve()


def print_verdict(verdict: Verdict, done: int, total: int, verbose: bool) -> None:
    outcome = verdict.outcome
    line = f"[{done:3}/{total}] {verdict.mode:8} {verdict.name:34} {len(outcome.ran):5} tests {outcome.seconds:7.1f} s"
    for count, word in (
        (len(verdict.new), "NEW"),
        (len(verdict.any_hook), "from any hook"),
        (verdict.dragged, "after those, and not alone"),
        (len(verdict.excepted), "excepted"),
        (len(verdict.unstable), "unstable"),
    ):
        if count:
            line += f"  {count} {word}"
    if outcome.note:
        line += f"  ({outcome.note})"
    if (
        verbose
        or verdict.new
        or verdict.any_hook
        or verdict.excepted
        or verdict.unstable
        or sys.stdout.isatty() is False
    ):
        print(line, flush=True)
    for key, text in verdict.new.items():
        print(f"    NEW {key}\n" + "\n".join("        " + part for part in tail(text, 2500).splitlines()), flush=True)
    for key in verdict.unstable:
        print(f"    unstable {key}", flush=True)


def print_table(version: str, verdicts: list[Verdict], modes: list[str]) -> None:
    print(f"\nCPython {version}")
    print(
        f"| {'mode':8} | files | tests  | new failures | from any hook | excepted | unstable | exits       | minutes |"
    )
    print(f"|{'-' * 10}|{'-' * 7}|{'-' * 8}|{'-' * 14}|{'-' * 15}|{'-' * 10}|{'-' * 10}|{'-' * 13}|{'-' * 9}|")
    for mode in modes:
        rows = [verdict for verdict in verdicts if verdict.mode == mode]
        exits = sum((row.outcome.stats or {}).get("exits", 0) for row in rows)
        print(
            f"| {mode:8} | {len(rows):5} | {sum(len(row.outcome.ran) for row in rows):6} | {sum(len(row.new) for row in rows):12} "
            f"| {sum(len(row.any_hook) for row in rows):13} | {sum(len(row.excepted) for row in rows):8} "
            f"| {sum(len(row.unstable) for row in rows):8} | {exits:11} | {sum(row.outcome.seconds for row in rows) / 60:7.1f} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--ci", action="store_true", help="the files tagged ci (loop) and ci-exit (exit7)")
    part.add_argument(
        "--all", action="store_true", help="loop over the whole list, exit7 and exit101 over the files tagged exit"
    )
    parser.add_argument("--modes", help="comma-separated: plain, idle, loop, exit7, exit101, exitN")
    parser.add_argument("--files", nargs="+", default=[], help="only these (they need not be in the list)")
    parser.add_argument("--match", default="", help="only tests whose id contains this")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="the interpreter under test (of a virtual environment: the one behind it)",
    )
    parser.add_argument("--core", type=Path, help="folder of _alternator_core (default: build/core-X.Y)")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where results are kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--timeout", type=float, default=300, help="seconds a file may take at least")
    parser.add_argument(
        "--fresh", action="store_true", help="run plain CPython again instead of using the kept results"
    )
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()

    suite = Suite(options)
    listed = {file.name: file for file in read_list(suite.version)}
    chosen = [listed.get(name, ListedFile(name, frozenset({"exit"}))) for name in options.files] or list(
        listed.values()
    )
    work: list[tuple[str, ListedFile]] = []
    if options.ci:
        work += [("loop", file) for file in chosen if "ci" in file.tags]
        work += [("exit7", file) for file in chosen if "ci-exit" in file.tags]
    else:
        modes = options.modes.split(",") if options.modes else ["loop", *EXIT_MODES]
        for mode in modes:
            narrow = mode.startswith("exit") and not options.files
            work += [(mode, file) for file in chosen if not narrow or "exit" in file.tags]
    if not work:
        print("No file of the list was chosen.")
        return 2

    exceptions = read_exceptions(suite.version)
    # The long ones first, so that the last process does not run alone.
    expected = {name: entry.seconds for name, entry in suite.plain.items()}
    work.sort(key=lambda item: -expected.get(item[1].name, 5.0))
    print(f"CPython {suite.full_version} at {suite.python}, {len(work)} runs, {options.jobs} at a time", flush=True)

    verdicts: list[Verdict] = []
    done = 0

    def one(item: tuple[str, ListedFile]) -> None:
        nonlocal done
        mode, file = item
        if mode == "plain":
            outcome = suite.plain_outcome(file)
            verdict = Verdict(mode, file.name, outcome, outcome, {})
        else:
            verdict = suite.judge(mode, file)
        family = "exit" if mode.startswith("exit") else mode
        verdict.excepted = {key: text for key, text in verdict.new.items() if (family, key) in exceptions}
        verdict.new = {key: text for key, text in verdict.new.items() if key not in verdict.excepted}
        with suite.lock:
            done += 1
            verdicts.append(verdict)
            print_verdict(verdict, done, len(work), options.verbose)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, work))

    modes_run = sorted({mode for mode, _ in work}, key=lambda mode: (mode.startswith("exit"), len(mode), mode))
    write_report(suite, verdicts, modes_run)
    print_table(suite.full_version, verdicts, modes_run)
    vacuous = [
        verdict
        for verdict in verdicts
        if verdict.mode not in ("plain", "idle") and not verdict.outcome.note and not verdict.new
        if not (verdict.outcome.stats or {}).get("instructions")
    ]
    for verdict in vacuous:
        print(f"{verdict.name} in mode {verdict.mode} ran no instruction in the loop: the run proves nothing.")
    new = sum(len(verdict.new) for verdict in verdicts)
    print(f"{new} new failure{'s' if new != 1 else ''}.")
    return 1 if new or vacuous else 0


def write_report(suite: Suite, verdicts: list[Verdict], modes: list[str]) -> None:
    suite.report_folder.mkdir(parents=True, exist_ok=True)
    path = suite.report_folder / f"report-{suite.full_version}.json"
    rows = [
        {
            "mode": verdict.mode,
            "file": verdict.name,
            "tests": len(verdict.outcome.ran),
            "skipped": verdict.outcome.skipped,
            "seconds": verdict.outcome.seconds,
            "plain_seconds": verdict.plain.seconds,
            "plain_bad": sorted(verdict.plain.bad),
            "new": verdict.new,
            "any_hook": sorted(verdict.any_hook),
            "excepted": sorted(verdict.excepted),
            "unstable": sorted(verdict.unstable),
            "note": verdict.outcome.note,
            "stats": verdict.outcome.stats,
        }
        for verdict in sorted(verdicts, key=lambda verdict: (verdict.mode, verdict.name))
    ]
    path.write_text(json.dumps({"python": suite.full_version, "modes": modes, "files": rows}, indent=1) + "\n")
    print(f"\nWritten: {path}")


if __name__ == "__main__":
    sys.exit(main())

"""Checks fakes against eager over torch's own operator database.

    python tests/opinfo/run.py                   every operator
    python tests/opinfo/run.py --every 20        a sample of them
    python tests/opinfo/run.py --op fft          those whose name contains "fft", in this process

Operators run in worker processes, so that a crash or a hang is an outcome like any other.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.append(str(HERE.parent.parent))

KNOWN = HERE / "known.json"
HANG_SECONDS = 120.0


def work(indices: list[int], samples: int, device: str) -> None:
    """A worker: a line of JSON before and after each operator."""
    from opinfo import compare

    warnings.filterwarnings("ignore")
    operators = compare.database()
    for index in indices:
        print(json.dumps({"start": index}), flush=True)
        result = compare.check_op(operators[index], samples=samples, device=device)
        print(json.dumps({"done": index, **vars(result)}), flush=True)


def check_all(indices: list[int], names: dict[int, str], samples: int, jobs: int, device: str) -> list[dict]:
    """Runs workers over slices of the database; a worker that dies or stops is replaced."""
    results: list[dict] = []
    queue = collections.deque(indices[i::jobs] for i in range(jobs))
    running: list[list] = []  # [process, left, current, since, buffer]
    import selectors

    selector = selectors.DefaultSelector()

    def start(left: list[int]) -> None:
        if not left:
            return
        command = [sys.executable, __file__, "--worker", ",".join(map(str, left)), "--samples", str(samples)]
        command += ["--device", device]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        slot = [process, list(left), None, time.monotonic(), b""]
        running.append(slot)
        selector.register(process.stdout, selectors.EVENT_READ, slot)

    def stop(slot: list, why: str) -> None:
        process, left, current, _, _ = slot
        selector.unregister(process.stdout)
        process.kill()
        process.wait()
        running.remove(slot)
        if current is not None:
            results.append({"name": names[current], "outcome": "crash", "reason": why, "samples": 0})
            left.remove(current)
        start(left)

    while queue:
        start(queue.popleft())
    while running:
        for key, _ in selector.select(timeout=1.0):
            slot = key.data
            chunk = slot[0].stdout.read()
            if chunk:
                slot[4] += chunk
                *lines, slot[4] = slot[4].split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if "start" in message:
                        slot[2], slot[3] = message["start"], time.monotonic()
                    else:
                        slot[2] = None
                        slot[1].remove(message.pop("done"))
                        results.append(message)
            elif chunk == b"":
                stop(slot, f"the process ended with {slot[0].wait()}") if slot[1] else finish(slot, selector, running)
        for slot in list(running):
            if slot[2] is not None and time.monotonic() - slot[3] > HANG_SECONDS:
                stop(slot, f"no answer in {HANG_SECONDS:.0f} s")
    return results


def finish(slot: list, selector, running: list) -> None:
    selector.unregister(slot[0].stdout)
    slot[0].wait()
    running.remove(slot)


def report(results: list[dict], known: dict[str, dict]) -> bool:
    """Prints the tally; False if an operator got worse than known.json says."""
    from opinfo.compare import NO_SAMPLES, OUTCOMES

    tally = collections.Counter(result["outcome"] for result in results)
    print(f"{len(results)} operators:", ", ".join(f"{tally[o]} {o}" for o in OUTCOMES if tally[o]))
    fine = True
    for result in sorted(results, key=lambda r: (OUTCOMES.index(r["outcome"]), r["name"])):
        if result["outcome"] in OUTCOMES[:2] or (result["outcome"] == NO_SAMPLES and not result["reason"]):
            continue
        expected = known.get(result["name"])
        surprise = expected is None or expected["outcome"] != result["outcome"]
        fine &= not surprise
        print(f"  {'! ' if surprise else '  '}{result['outcome']:<12} {result['name']}: {result['reason']}")
    for name in known:
        if any(r["name"] == name and r["outcome"] in OUTCOMES[:2] for r in results):
            print(f"    {name} is better than known.json says")
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", help="only operators whose name contains this, in this process")
    parser.add_argument("--every", type=int, default=1, help="only every n-th operator")
    parser.add_argument("--samples", type=int, default=15, help="samples of an operator and dtype")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu", help="where the samples live")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work([int(index) for index in arguments.worker.split(",")], arguments.samples, arguments.device)
        return 0

    from opinfo import compare

    warnings.filterwarnings("ignore")
    names = {index: compare.name_of(op) for index, op in enumerate(compare.database())}
    begin = time.monotonic()
    if arguments.op:
        operators = compare.database()
        chosen = [index for index, name in names.items() if arguments.op in name]
        results = [
            vars(compare.check_op(operators[index], samples=arguments.samples, device=arguments.device))
            for index in chosen
        ]
    else:
        results = check_all(list(names)[:: arguments.every], names, arguments.samples, arguments.jobs, arguments.device)
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    fine = report(results, known)
    print(f"{time.monotonic() - begin:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

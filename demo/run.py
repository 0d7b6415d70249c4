"""Runs an ordinary program (orders.py) under Alternator's eval loop and compares the results.

python demo/run.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
VERSION = "{}.{}".format(*sys.version_info[:2])


def load_loop() -> ModuleType:
    sys.path.insert(0, str(ROOT / "build" / f"core-{VERSION}"))
    try:
        import _alternator_core
    except ImportError:
        sys.exit("The eval loop is not built: run `make demo`.")
    return _alternator_core


def indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


def main() -> int:
    loop = load_loop()
    import orders

    def under_the_loop(leave_every: int = 0) -> tuple[str, dict[str, int]]:
        loop.reset_stats()
        loop.exit_every(leave_every)
        try:
            return loop.run(orders.report), loop.stats()
        finally:
            loop.exit_every(0)

    expected = orders.report()
    print("1. demo/orders.py in CPython's own loop prints:\n")
    print(indented(expected))

    result, stats = under_the_loop()
    print(f"\n2. In Alternator's loop: {stats['instructions']:,} instructions in {stats['frames']:,} frames;")
    print("   " + verdict(result == expected))

    left, stats = under_the_loop(leave_every=7)
    print(f"\n3. Leaving to CPython's loop at every 7th instruction: {stats['exits']:,} frames changed loops half-way;")
    print("   " + verdict(left == expected))

    print("\n4. Stopped in the middle of reading, with its frames taken off the stack:\n")
    code = orders.read.__code__
    capture = loop.capture(code, 120, orders.report)
    if isinstance(capture, tuple):
        sys.exit("The program ended before it could be stopped.")
    for frame_code, offset, _ in capture.frames:
        line = next((line for start, end, line in frame_code.co_lines() if start <= offset < end and line), 0)
        print(f"    {frame_code.co_qualname:<28} {Path(frame_code.co_filename).name}:{line}, bytecode offset {offset}")
    if capture.cannot:
        print(f"\n   This state cannot be continued: {capture.cannot}")
        return 1
    continued = capture.resume()
    print("\n   and continued on fresh frames, generator and `with` block included;")
    print("   " + verdict(continued == expected))
    return 0 if expected == result == left == continued else 1


def verdict(same: bool) -> str:
    return "the report is the same, letter by letter." if same else "THE REPORT DIFFERS."


if __name__ == "__main__":
    sys.exit(main())

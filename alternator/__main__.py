"""python -m alternator explain script.py [args]: runs a script with torch.compile routed through Alternator, and reports the captures."""

from __future__ import annotations

import argparse
import atexit
import io
import os
import sys
from types import ModuleType, TracebackType

import alternator

from .explain import Collector
from .install import install


def _run(script: str) -> None:
    """As `python script.py` does."""
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
    with io.open_code(os.path.abspath(script)) as file:
        source = file.read()
    main = ModuleType("__main__")
    main.__dict__.update({"__file__": script, "__builtins__": __builtins__, "__cached__": None})
    sys.modules["__main__"] = main
    exec(compile(source, script, "exec"), main.__dict__)


def _show(error: BaseException, script: str) -> None:
    """Prints the traceback as Python does at the end of a script: the frames from the script on."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename != script:
        traceback = traceback.tb_next
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)


def _explain(script: str, arguments: list[str], json_file: str | None) -> int:
    collector = Collector(None, detailed=False, graphs=json_file is not None)
    alternator.events.subscribe(collector)
    install()

    process = os.getpid()

    # Runs after the threads that the script leaves running; not in processes that it forks.
    @atexit.register
    def census() -> None:
        if os.getpid() != process:
            return
        explanation = collector.explanation()
        counts = alternator.counters()
        if json_file is not None:
            with open(json_file, "w", encoding="utf-8") as file:
                file.write(explanation.to_json(indent=1))
        print("\nalternator: " + explanation.census(counts), file=sys.stderr, flush=True)

    sys.argv = [script, *arguments]
    try:
        _run(script)
    except Exception as error:
        _show(error, script)
        return 1
    except KeyboardInterrupt as error:
        _show(error, script)
        return 130
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m alternator", description="Alternator's command line.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "explain",
        help="run a script with torch.compile routed through Alternator; at its end report what was captured, what was not, and why",
    )
    command.add_argument("--json", metavar="FILE", help="also write the explanation to FILE, as JSON")
    command.add_argument("script")
    command.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    given = parser.parse_args(arguments)
    return _explain(given.script, given.args, given.json)


if __name__ == "__main__":
    sys.exit(main())

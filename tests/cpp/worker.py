"""Runs the C++ unit tests of one extension module, one line of JSON a question, so that a crash ends this process only.

python worker.py FOLDER MODULE        then a test's name a line on standard input; an empty line asks for the list
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def main(folder: str, module_name: str) -> None:
    sys.path.insert(0, folder)
    if module_name == "_alternator_torch_tests":
        import torch  # noqa: F401  the extension links its libraries, which only this import makes loadable
    module: Any = importlib.import_module(module_name)
    for line in sys.stdin:
        name = line.rstrip("\n")
        answer = module.run(name) if name else module.tests()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

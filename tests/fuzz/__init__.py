"""A differential fuzzer: random programs with random sequences of calls and edits, compiled against eager.

    python -m tests.fuzz --seed 1 --programs 1000 --jobs 2
    python -m tests.fuzz --seed 1 --seconds 60
    python -m tests.fuzz --show 17                      the program with this number
    python -m tests.fuzz --wide                         more of the language, and breaks
    python -m tests.fuzz --sizes                        other sizes and numbers in every call
    python -m tests.fuzz --frontend aot_eager           through AOTAutograd: histories are not compared, nothing random is drawn
    python -m tests.fuzz --frontend eager               the fuzzer against itself: nothing may fail

A program is the text of a script for tests/helpers/harness.py; a failure is minimized and written out as a test case.
"""

"""Every opcode of the running version has a case in the loop, with the cache size and the stack effect that CPython gives it."""

from __future__ import annotations

import contextlib
import dis
import itertools
import opcode
import re
import sys
from typing import Any

import programs
from support import PROGRAMS, codes_inside, codes_of, core

# Never met by an evaluator that runs de-specialized code without tracing.
NOT_EXECUTED = {
    "CACHE": "room for inline caches, skipped with its instruction",
    "RESERVED": "a number that no instruction has",
    "INTERPRETER_EXIT": "the trampoline's own instruction, only in frames that the default loop makes for itself",
    "ENTER_EXECUTOR": "replaced by the instruction that it stands for",
    "EXIT_INIT_CHECK": "only in the frame that a specialized CALL makes",
}
# Not produced by the programs, so that other tests have to cover them.
NOT_IN_PROGRAMS = {
    "EXTENDED_ARG": "a prefix: the program `wide` is full of it, dis folds it away",
    "IMPORT_STAR": "only in module code (program `executed`)",
    "JUMP_BACKWARD_NO_INTERRUPT": "",
}

# dis.stack_effect counts differently: it splits the effect of a call between PRECALL and CALL, which has all of it in truth, and
# from 3.13 on counts the generator among what is on the stack of its own frame.
COUNTED_DIFFERENTLY = {"PRECALL", "RETURN_GENERATOR"}


def own_opcodes() -> dict[str, int]:
    return {
        name: number
        for name, number in dis.opmap.items()
        if number < 256 and not name.startswith("INSTRUMENTED_") and name not in NOT_EXECUTED
    }


def cache_entries(name: str) -> int:
    entries: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
    return int(entries.get(name, 0) if isinstance(entries, dict) else entries[dis.opmap[name]])


def test_every_opcode_has_a_case() -> None:
    implemented = core.opcodes()
    missing = sorted(set(own_opcodes()) - set(implemented))
    assert not missing, f"CPython {sys.version.split()[0]} has opcodes without a case: {missing}"
    unknown = sorted(set(implemented) - set(dis.opmap))
    assert not unknown, f"cases for opcodes that this version does not have: {unknown}"


def test_cache_sizes() -> None:
    implemented = core.opcodes()
    wrong = {}
    for name, number in own_opcodes().items():
        found, expected = implemented[name][:2], (number, cache_entries(name))
        if found != expected:
            wrong[name] = (found, expected)
    assert not wrong, f"(number, cache entries), ours and CPython's: {wrong}"


def executed_opcodes() -> set[str]:
    found = set()
    for program in PROGRAMS:
        for code in codes_of(program):
            found |= {instruction.opname for instruction in dis.get_instructions(code)}
    return found


def test_programs_contain_every_opcode() -> None:
    """What the capture tests cover: an opcode that no program has would be captured nowhere."""
    found = executed_opcodes()
    for code in codes_inside(compile("from os.path import *", "<test>", "exec")):
        found |= {instruction.opname for instruction in dis.get_instructions(code)}
    missing = sorted(set(own_opcodes()) - found - set(NOT_IN_PROGRAMS))
    assert not missing, f"no program in {programs.__name__} uses {missing}"


def net_effects(text: str) -> set[int]:
    """What "left, right -- result" does to the height of the stack; nothing where that depends on the argument.

    "a, b | c" may mean two outcomes or two kinds of the last value: both are in the set."""
    text = re.sub(r"\(.*?\)", "", text)
    if "[" in text or re.search(r"\w\.\.\.", text):
        return set()
    before, after = text.split("--")
    if before.count("...") != after.count("..."):
        return set()

    def height(side: str) -> int:
        return len([item for item in side.split(",") if item.strip() not in ("", "...")])

    return {height(outcome) - height(before) for outcome in [after, *after.split("|")]}


def test_stack_effects() -> None:
    """Where the loop's table states a fixed stack effect it is the one of dis.stack_effect."""
    checked, wrong = 0, []
    for name, row in core.opcodes().items():
        if name not in own_opcodes():
            continue
        stated = net_effects(row[2])
        if not stated or name in COUNTED_DIFFERENTLY:
            continue
        number = dis.opmap[name]
        found = set()
        # Some put down one value more where the argument's lowest bit says so.
        for jump, argument in itertools.product((False, True), (0, 1) if number >= dis.HAVE_ARGUMENT else (None,)):
            with contextlib.suppress(ValueError):
                found.add(dis.stack_effect(number, argument, jump=jump))
        checked += 1
        if not stated & found:
            wrong.append((name, row[2], stated, found))
    assert not wrong, f"(name, text, stated effect, CPython's): {wrong}"
    assert checked > 70

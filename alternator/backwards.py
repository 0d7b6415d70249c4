"""Whether a `backward()` of the user's does the same whenever it runs.

A graph calls `MyFunction.apply` as it is. AOTAutograd runs its `backward()` once, while it compiles: what that reads from
outside, and what it does besides computing, would be as it was then, and no guard knows of it.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterator
from typing import Any

import torch

_LIBRARIES = {"torch", "math", "operator", "typing", "triton"}
# fmt: off
_BUILTINS: set[Any] = {
    abs, all, any, bool, dict, divmod, enumerate, filter, float, frozenset, getattr, hasattr, int, isinstance, issubclass, len,
    list, map, max, min, pow, range, reversed, round, set, slice, sorted, str, sum, tuple, type, zip,
}
# fmt: on
_WRITES = {"STORE_ATTR", "STORE_GLOBAL", "DELETE_ATTR", "DELETE_GLOBAL", "IMPORT_NAME"}


def changing_backwards(gm: Any) -> list[type]:
    """The functions of autograd's that a graph applies, and whose backward() is not the same whenever it runs."""
    found: list[type] = []
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        applied = getattr(node.target, "__wrapped__", node.target)
        cls: Any = getattr(applied, "__self__", None)
        if _is_function(cls) and getattr(applied, "__name__", "") == "apply" and not _is_closed(cls.backward, set()):
            found.append(cls)
    return found


def _is_function(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, torch.autograd.Function)


def _is_librarys(value: Any) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES


def _is_closed(function: Any, seen: set[Any]) -> bool:
    """Whether it reads nothing but its arguments and code, and writes nothing but tensors, as far as its instructions say."""
    if not isinstance(function, types.FunctionType):
        return _is_librarys(function)
    if function.__code__ in seen:
        return True
    seen.add(function.__code__)
    if str(function.__globals__.get("__name__")).partition(".")[0] in _LIBRARIES:  # once_differentiable, for one
        return all(_is_code(cell.cell_contents, "", seen) for cell in function.__closure__ or ())
    return all(_is_code(value, used, seen) for value, used in _values_read(function, function.__code__))


def _is_code(value: Any, used: str, seen: set[Any]) -> bool:
    if isinstance(value, types.FunctionType):
        return _is_closed(value, seen)
    if _is_function(value) and not _is_librarys(value):
        return used == "apply" and _is_closed(value.forward, seen) and _is_closed(value.backward, seen)
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and getattr(builtins, name, None) is value:
        return value in _BUILTINS or (isinstance(value, type) and issubclass(value, BaseException))
    return (callable(value) or isinstance(value, types.ModuleType)) and _is_librarys(value)


def _values_read(function: types.FunctionType, code: types.CodeType) -> Iterator[tuple[Any, str]]:
    """What is read from outside, each with the attribute that is asked of it at once; a write is a value that is no code."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PRECALL")]
    for instruction, after in zip(instructions, [*instructions[1:], None], strict=True):
        name = instruction.argval
        used = str(after.argval) if after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD") else ""
        if instruction.opname in _WRITES:
            yield None, ""
        elif instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield function.__globals__.get(name, getattr(builtins, name, None)), used
        elif instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and name in cells:
            yield None, ""
        elif instruction.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in cells:
            try:
                yield cells[name].cell_contents, used
            except ValueError:
                yield None, used
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _values_read(function, constant)

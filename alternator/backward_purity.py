"""Whether a user-defined `backward()` does the same whenever it runs: an analysis of its bytecode.

A graph calls `MyFunction.apply` itself. AOTAutograd runs its `backward()` once, while it compiles: its reads of external state and its
side effects would be frozen, and no guard covers them. Guards cover which functions it calls by name, and the trace knows what is
stored on `ctx`: see csrc/trace/higher_order/backward_reads.h.
"""

from __future__ import annotations

import builtins
import dis
import re
import types
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import torch

_LIBRARIES = {"torch", "math", "operator", "typing", "triton"}
# fmt: off
_BUILTINS: set[Any] = {
    abs, all, any, bool, dict, divmod, enumerate, filter, float, frozenset, getattr, hasattr, int, isinstance, issubclass, len,
    list, map, max, min, pow, range, reversed, round, set, slice, sorted, str, sum, tuple, type, zip,
}
# fmt: on
# Library functions whose name matches read or set thread or process state, but for those in _OF_ARGUMENTS.
_AMBIENT = re.compile(r"_?(is|are|get|set|has|current|use|manual|initial)_|seed")
_OF_ARGUMENTS = {
    "is_tensor", "is_floating_point", "is_complex", "is_nonzero", "is_same_size", "is_signed", "is_conj", "is_neg", "is_storage",
    "get_device", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like", "set_grad_enabled",
    "is_available", "device_count", "get_device_properties", "get_device_capability", "get_device_name",
}  # fmt: skip
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format, float)
_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_WRITES = {"STORE_ATTR", "STORE_GLOBAL", "DELETE_ATTR", "DELETE_GLOBAL", "IMPORT_NAME"}


def impure_backward(functions: Sequence[Any]) -> str | None:
    """Why a graph that applies these autograd.Functions must not go through AOTAutograd; None: it may. The core calls it, see
    csrc/backend/aot_compatibility.cpp."""
    for cls in functions:
        if not _has_closed_backward(cls, set()):
            return f"{cls.__qualname__}.backward reads or writes more than its arguments"
    return None


def _has_closed_backward(cls: Any, seen: set[Any]) -> bool:
    return is_closed(cls.backward, seen) and is_closed(cls.vjp, seen)


def _is_function(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, torch.autograd.Function)


def _is_from_library(value: Any) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES


def is_closed(function: Any, seen: set[Any]) -> bool:
    """Whether its instructions read only its arguments and code, and write only tensors."""
    if not isinstance(function, types.FunctionType):
        return _is_from_library(function)
    if function.__code__ in seen:
        return True
    seen.add(function.__code__)
    if not all(map(_is_plain, (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))):
        return False
    if str(function.__globals__.get("__name__")).partition(".")[0] in _LIBRARIES:  # once_differentiable, for one
        return all(_is_code(cell.cell_contents, (), seen) for cell in function.__closure__ or ())
    return all(_is_code(value, used, seen) for value, used in _values_read(function, function.__code__))


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else isinstance(value, _PLAIN)


def _uses_ambient_state(value: Any) -> bool:
    """Whether a library function reads or sets thread or process state."""
    name = getattr(value, "__name__", "")
    return not isinstance(value, type) and name not in _OF_ARGUMENTS and _AMBIENT.match(name) is not None


def _is_code(value: Any, used: Sequence[str], seen: set[Any]) -> bool:
    if isinstance(value, types.ModuleType) and _is_from_library(value):
        for name in used:
            value = getattr(value, name, None)
            if not isinstance(value, types.ModuleType):
                break
        if isinstance(value, _CONSTANTS):
            return True
    if _is_from_library(value) and _uses_ambient_state(value):
        return False
    if isinstance(value, types.FunctionType):
        return is_closed(value, seen)
    if _is_function(value) and not _is_from_library(value):
        return [*used[:1]] == ["apply"] and is_closed(value.forward, seen) and _has_closed_backward(value, seen)
    own_name = getattr(value, "__name__", None)
    if isinstance(own_name, str) and getattr(builtins, own_name, None) is value:
        return value in _BUILTINS or (isinstance(value, type) and issubclass(value, BaseException))
    return (callable(value) or isinstance(value, types.ModuleType)) and _is_from_library(value)


def _values_read(function: types.FunctionType, code: types.CodeType) -> Iterator[tuple[Any, list[str]]]:
    """The external values that are read, each with the attributes that are loaded from it directly; a write is yielded as None."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PRECALL")]
    for position, instruction in enumerate(instructions):
        name = instruction.argval
        used = [str(i.argval) for i in takewhile(lambda i: i.opname in _LOADS, instructions[position + 1 :])]
        if instruction.opname in _WRITES or (instruction.opname in _LOADS and name == "_forward_cls"):
            yield None, []
        elif instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield function.__globals__.get(name, getattr(builtins, name, None)), used
        elif instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and name in cells:
            yield None, []
        elif instruction.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in cells:
            try:
                yield cells[name].cell_contents, used
            except ValueError:
                yield None, used
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _values_read(function, constant)

"""What AOTAutograd assumes about a backward pass, and eager does not.

First, that a user-defined `backward()` does the same whenever it runs. A graph calls `MyFunction.apply` itself. AOTAutograd runs its
`backward()` once, while it compiles: its reads of external state and its side effects would be frozen, and no guard covers them.
Guards cover which functions it calls by name, and the trace knows what is stored on `ctx`: see
csrc/trace/higher_order/backward_reads.h.

Second, that a graph does not write to tensors that its backward pass, or that of an earlier graph, has saved: see old_values_saved()
and written_through_data().
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import operator
import re
import threading
import traceback
import types
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch.fx import Node

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


def _applied(gm: Any) -> Iterator[Any]:
    """The autograd.Functions that a graph applies."""
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        applied = getattr(node.target, "__wrapped__", node.target)
        cls: Any = getattr(applied, "__self__", None)
        if _is_function(cls) and getattr(applied, "__name__", "") == "apply":
            yield cls


def impure_backwards(gm: Any) -> list[type]:
    """The applied autograd.Functions whose backward() depends on more than its arguments, or has side effects."""
    return [cls for cls in _applied(gm) if not _has_closed_backward(cls, set())]


def came_from_backward(error: BaseException, gm: Any) -> bool:
    """Whether a backward() raised `error`. AOTAutograd runs each one while it compiles, eager only where a gradient is required."""
    codes = {getattr(method, "__code__", None) for cls in _applied(gm) for method in (cls.backward, cls.vjp)}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _has_closed_backward(cls: Any, seen: set[Any]) -> bool:
    return _is_closed(cls.backward, seen) and _is_closed(cls.vjp, seen)


def _is_function(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, torch.autograd.Function)


def _is_from_library(value: Any) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES


def _is_closed(function: Any, seen: set[Any]) -> bool:
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
        return _is_closed(value, seen)
    if _is_function(value) and not _is_from_library(value):
        return [*used[:1]] == ["apply"] and _is_closed(value.forward, seen) and _has_closed_backward(value, seen)
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


class Refused(Exception):
    """AOTAutograd would compile the graph to something that differs from eager: it runs the recorded program, uncompiled."""


@contextlib.contextmanager
def old_values_saved() -> Iterator[None]:
    """AOTAutograd saves an input for the backward pass, or recomputes from it what eager has saved, even if the graph has written to
    that input by then: the backward pass raises, or uses the new values instead of the old ones (torch 2.13). Inside this context,
    such a graph works on a copy of the input's original values."""
    from torch._dynamo.backends import common
    from torch._functorch.partitioners import default_partition

    module: Any = common
    compile_module = module.aot_module_simplified
    thread = threading.get_ident()

    def compile_strictly(*args: Any, **keywords: Any) -> Any:
        if threading.get_ident() != thread:  # another thread compiles
            return compile_module(*args, **keywords)
        partition = keywords.get("partition_fn", default_partition)

        def partition_strictly(*args: Any, **keywords: Any) -> Any:
            forward, backward = partition(*args, **keywords)
            _save_old_values(forward, keywords["num_fwd_outputs"])
            return forward, backward

        return compile_module(*args, **{**keywords, "partition_fn": partition_strictly})

    module.aot_module_simplified = compile_strictly
    try:
        yield
    finally:
        module.aot_module_simplified = compile_module


def _save_old_values(forward: Any, results: int) -> None:
    """`forward` is a forward pass in AOTAutograd's form: functional, except that it may copy to its inputs at the end. After its
    `results` outputs it returns the saved tensors."""
    inputs = forward.graph.find_nodes(op="placeholder")
    if any(type(node.meta.get("desc")).__name__ == "ViewBaseAOTInput" for node in inputs):
        # AOTAutograd loses autograd histories then: that of `x` after `x[1:].add_(w)` where both are inputs, for example.
        raise Refused("it writes to inputs that share memory, and gradients are taken")
    output = forward.graph.output_node()
    origins = _origins(forward.graph)
    saved = {origins.get(node) for node in output.args[0][results:]}
    written = [desc.mutated_input for desc in output.meta.get("desc") or () if hasattr(desc, "mutated_input")]
    for node in inputs:
        copies = [user for user in node.users if user.target is torch.ops.aten.copy_.default and user.args[0] is node]
        if node not in saved or not (copies or node.meta.get("desc") in written):
            continue
        found = node.meta["val"]
        with forward.graph.inserting_after(inputs[-1]):
            old = forward.graph.call_function(torch.ops.aten.clone.default, (node,))
        old.meta["val"] = found.clone()
        if old.meta["val"].stride() != found.stride() or found.storage_offset() != 0:
            raise Refused("it writes to a part of a tensor whose old values the backward pass needs")
        writers = {old, *copies}
        node.replace_all_uses_with(old, delete_user_cb=lambda user, writers=writers: user not in writers)
        forward.recompile()


def _origins(graph: torch.fx.Graph) -> dict[Any, Node]:
    """For each node the input that it is, or is a view of. The storage of a node's example value is less reliable: graph passes have
    turned views of one tensor into views of another."""
    origins: dict[Any, Node] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            origins[node] = node
        elif node.args and isinstance(node.args[0], Node) and node.args[0] in origins and _is_view(node.target):
            origins[node] = origins[node.args[0]]
    return origins


def _is_view(target: Any) -> bool:
    if target in (operator.getitem, torch.ops.aten._unsafe_view.default, torch.ops.aten.reshape.default):
        return True
    schema = getattr(target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


_get_data: Any = getattr(torch._C._autograd, "_get_data_attr", None)


class _DataWrites(torch.fx.Interpreter):
    """Runs a graph, and collects the storages that are written through `.data` while grad mode is on."""

    def __init__(self, gm: Any) -> None:
        super().__init__(gm)
        self.versions: list[tuple[torch.Tensor, int]] = []
        self.storages: set[int] = set()

    def run_node(self, n: Node) -> Any:
        takes_gradients = torch.is_grad_enabled()
        result = super().run_node(n)
        for place, (data, version) in enumerate(self.versions):
            if data._version != version:
                self.versions[place] = data, data._version
                if takes_gradients:
                    self.storages.add(data.untyped_storage()._cdata)
        if n.target is _get_data:
            self.versions.append((result, result._version))
        return result


def written_through_data(gm: Any, inputs: Sequence[Any]) -> list[int]:
    """The inputs that require a gradient and are written through `.data` only. This does not increment their version counter, so that
    tensors which an earlier graph has saved stay valid for its backward pass; AOTAutograd writes to the tensor itself."""
    from torch._subclasses.fake_tensor import FakeTensorMode, is_fake

    if _get_data is None or not any(node.target is _get_data for node in gm.graph.nodes) or any(map(is_fake, inputs)):
        return []
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    writes = _DataWrites(gm)
    try:
        given = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        versions = [value._version if isinstance(value, torch.Tensor) else None for value in given]
        with mode, torch.set_grad_enabled(torch.is_grad_enabled()):
            writes.run(*given)
    except Exception:
        return []  # the graph cannot run without data: AOTAutograd will raise as well
    return [
        place
        for place, (value, version) in enumerate(zip(given, versions, strict=True))
        if version is not None
        and value.requires_grad
        and value.layout == torch.strided
        and value._version == version
        and value.untyped_storage()._cdata in writes.storages
    ]

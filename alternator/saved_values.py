"""Tensors that a backward pass has saved, and that a graph writes to afterwards.

Eager saves the values of an operation when it runs. AOTAutograd assumes that a graph writes neither to what its own backward pass has
saved (old_values_saved) nor to what that of an earlier graph has (written_through_data).
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node

from .refusals import Uncompiled


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
        raise Uncompiled("it writes to inputs that share memory, and gradients are taken")
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
            raise Uncompiled("it writes to a part of a tensor whose old values the backward pass needs")
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


def with_versions_kept(call: Callable[..., Any], takes_a_list: bool, places: Sequence[int]) -> Callable[..., Any]:
    """Wraps `call` so that the version counters of these inputs are restored after it."""

    def run(*given: Any) -> Any:
        tensors = tuple((given[0] if takes_a_list else given)[place] for place in places)
        versions = tuple(tensor._version for tensor in tensors)
        try:
            return call(*given)
        finally:
            torch._C._autograd._unsafe_set_version_counter(tensors, versions)

    return run

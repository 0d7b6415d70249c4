"""export(f, *args): one whole call as one graph over its flattened arguments."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

from . import compiler, exc
from .events import Guard
from .explain import collecting


class Exported(NamedTuple):
    graph_module: torch.fx.GraphModule
    guards: list[Guard]


class _Recording:
    """A backend that keeps the graph, its inputs and its outputs."""

    whole_graphs = True  # not cut into segments (segments.py)

    module: torch.fx.GraphModule | None = None
    inputs: tuple[torch.Tensor, ...] = ()
    outputs: tuple[Any, ...] = ()

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        self.module, self.inputs = gm, tuple(inputs)

        def run(*given: Any) -> Any:
            self.outputs = tuple(gm.forward(*given))
            return self.outputs

        return run


def _position(values: tuple[Any, ...], value: Any) -> int | None:
    return next((number for number, one in enumerate(values) if one is value), None)


def _name(text: str, taken: set[str]) -> str:
    base = re.sub(r"\W+", "_", text).strip("_") or "constant"
    name, number = base, 1
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name


def _assemble(
    recorded: _Recording, sources: tuple[str, ...], flat: tuple[Any, ...], leaves: list[Any]
) -> torch.fx.GraphModule:
    """The recorded graph with the flattened arguments as its inputs; other tensors are its attributes."""
    root, graph, taken = torch.nn.Module(), torch.fx.Graph(), set[str]()
    placeholders = [graph.placeholder(f"arg{number}") for number in range(len(flat))]
    known: dict[int, torch.fx.Node] = {}

    def attribute(value: torch.Tensor, text: str) -> torch.fx.Node:
        if id(value) not in known:
            name = _name(text, taken)
            if isinstance(value, torch.nn.Parameter):
                root.register_parameter(name, value)
            else:
                root.register_buffer(name, value)
            known[id(value)] = graph.get_attr(name)
        return known[id(value)]

    def graph_input(number: int) -> torch.fx.Node:
        value = recorded.inputs[number]
        given = _position(flat, value)
        return placeholders[given] if given is not None else attribute(value, sources[number])

    results: tuple[Any, ...] = ()
    if recorded.module is not None:
        values: dict[torch.fx.Node, Any] = {}
        old = recorded.module.graph
        for number, node in enumerate(old.find_nodes(op="placeholder")):
            values[node] = graph_input(number)
        for node in old.nodes:
            if node.op == "output":
                results = tuple(torch.fx.map_arg(node.args[0], lambda one: values[one]))
            elif node.op != "placeholder":
                values[node] = graph.node_copy(node, lambda one: values[one])
                if node.op == "get_attr":
                    setattr(root, str(node.target), getattr(recorded.module, str(node.target)))

    def result_scalar(leaf: Any) -> Any:
        """What is no tensor is a constant, but for unbacked symbols (x.item()): those are outputs of the graph."""
        if not isinstance(leaf, (int, float)):
            return leaf
        same = [value for value in recorded.outputs if type(value) is type(leaf) and (value == leaf or leaf != leaf)]
        if not same:
            return leaf
        number = _position(recorded.outputs, leaf)
        if number is None or type(leaf) is not float:  # small ints are cached objects: it may be a constant as well
            raise exc.Unsupported("export: a number that the call returns may be an unbacked symbol of its graph")
        return results[number]

    def result_node(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return result_scalar(leaf)
        for values, nodes in ((recorded.outputs, results), (flat, placeholders)):
            number = _position(values, leaf)
            if number is not None:
                return nodes[number]
        number = _position(recorded.inputs, leaf)
        # Neither computed nor read by the graph: a pre-existing tensor that is returned.
        return graph_input(number) if number is not None else attribute(leaf, "constant")

    graph.output(tuple(result_node(leaf) for leaf in leaves))
    for node in known.values():
        # That of the first operation that uses it.
        node.stack_trace = next((user.stack_trace for user in node.users if user.stack_trace), None)
    return torch.fx.GraphModule(root, graph)


def export(
    f: Any,
    *args: Any,
    aten_graph: bool = False,
    decomposition_table: dict[Any, Callable[..., Any]] | None = None,
    tracing_mode: Literal["real", "fake", "symbolic"] | None = None,
    **kwargs: Any,
) -> Exported:
    """Calls f and returns what was captured: one torch.fx.GraphModule for the whole call, and the guards under which it is valid.

    The graph takes the leaves of (args, kwargs) one by one, as torch.utils._pytree flattens them, and returns what f returns. Scalars,
    strings, sizes and other plain values are constants of it; parameters and other pre-existing tensors are its attributes. A call that
    cannot be captured in one graph, or that has side effects, is an Unsupported.

    aten_graph: the graph is traced further, down to ATen operators, with decomposition_table and tracing_mode as in make_fx.
    """
    if not aten_graph and (decomposition_table is not None or tracing_mode is not None):
        raise AssertionError("export: decomposition_table and tracing_mode need aten_graph=True")
    flat, _ = pytree.tree_flatten((args, kwargs))
    recorded = _Recording()
    with collecting(threading.get_ident()) as collector:
        compiled = compiler._compile(f, backend=recorded, fullgraph=True, dynamic=False, isolate_recompiles=True)
        result = compiled(*args, **kwargs)
    explanation = collector.explanation()
    if len(explanation.entries) != 1:
        raise exc.Unsupported("export: the call is not captured as one graph")
    (entry,) = explanation.entries
    if entry.eager:
        raise exc.Unsupported(
            "export: the call initializes the lazy parameters of a module; call the module once before"
        )
    if entry.acts:
        raise exc.Unsupported("export: the call mutates objects that outlive it:\n  " + "\n  ".join(entry.residual))
    if not all(isinstance(value, torch.Tensor) for value in recorded.inputs):
        raise exc.Unsupported("export: the call uses a pre-existing random generator")
    if (
        aten_graph
        and recorded.module is not None
        and any(node.meta.get("separate_segment") for node in recorded.module.graph.nodes)
    ):
        raise exc.Unsupported(
            "export: the call sets or reads the state of a random generator, which is not an ATen operator"
        )
    leaves, out_spec = pytree.tree_flatten(result)
    module = _assemble(recorded, entry.inputs, tuple(flat), leaves)
    if aten_graph:
        from torch.fx.experimental.proxy_tensor import make_fx

        captured = module

        def interpreted(*given: Any) -> Any:
            with torch.fx.traceback.preserve_node_meta():  # every operator keeps its user line
                return torch.fx.Interpreter(captured).run(*given)

        module = make_fx(interpreted, decomposition_table=decomposition_table, tracing_mode=tracing_mode or "real")(
            *flat
        )
    in_spec = pytree.tree_structure((tuple(range(len(flat))), {}))
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, in_spec, out_spec)))
    module.recompile()
    return Exported(module, list(entry.guards or ()))

"""Graphs with nodes in separate segments, which no compiler may see: seeds and states of random generators, operators that draw from
an explicit torch.Generator, and torch flags that kernels read, since AOTAutograd would run them while it compiles and not at run time;
and nodes that it cannot trace. The graph is cut there: the backend compiles the segments in between, and such nodes run uncompiled, in
order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import has_side_effect, map_arg

from ._load import load_core
from .graph_module import GraphModule
from .refusals import NeedsStatic

_Flags = load_core().fake.Flags

# (the segment, its example inputs, the nodes of these, why it must not be compiled) -> a callable that runs it
SegmentCompiler = Callable[[GraphModule, list[Any], list[Node], str | None], Callable[..., Any]]

_BEGINS = {torch.amp.autocast_mode._enter_autocast, torch.autograd.grad_mode._enter_inference_mode}
_ENDS = {torch.amp.autocast_mode._exit_autocast, torch.autograd.grad_mode._exit_inference_mode}
_FLAGS = {getattr(torch._C, name) for name in _Flags.setters()}
_STATES = {*_BEGINS, *_ENDS, *_FLAGS, torch._C._set_grad_enabled, torch.set_default_dtype}
for _setter in _FLAGS:
    has_side_effect(_setter)  # its result is unused, and it must not be eliminated as dead code


class Segment:
    """Consecutive nodes that the backend compiles together."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        own = set(nodes)
        used = dict.fromkeys(given for node in nodes for given in node.all_input_nodes if given not in own)
        self.attributes = [node for node in used if node.op == "get_attr"]
        self.inputs = [node for node in used if node.op != "get_attr"]
        self.outputs = [node for node in nodes if any(user not in own for user in node.users)]
        self.run: Callable[..., Any] | None = None

    def refusal(self, given: list[Any]) -> str | None:
        """It may write while inputs share storage: an output of an earlier segment and a view of it, for example. Inductor may then reuse
        an input of the forward pass as scratch space of the backward pass (torch 2.13)."""
        storages = [value.untyped_storage()._cdata for value in given if isinstance(value, torch.Tensor)]
        if len(set(storages)) < len(storages) and any(node.meta.get("writes") for node in self.nodes):
            return "it writes to memory, and some of its inputs share theirs"
        return None

    def module(self, whole: GraphModule) -> GraphModule:
        graph = torch.fx.Graph()
        copies: dict[Node, Node] = {}
        for node in self.inputs:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = {key: node.meta[key] for key in ("example_value", "tensor_dict") if key in node.meta}
            copies[node].meta.setdefault("tensor_dict", {})
        for node in (*self.attributes, *self.nodes):
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in self.outputs))
        made = GraphModule(whole, graph)
        made.meta.update({key: value for key, value in whole.meta.items() if key == "recomputed"})
        return made


def _steps(whole: GraphModule) -> list[Node | Segment]:
    steps: list[Node | Segment] = []
    together: list[Node] = []

    def close() -> None:
        if together:
            steps.append(Segment(together.copy()))
            together.clear()

    for node in whole.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if node.meta.get("separate_segment"):
            close()
            steps.append(node)
        else:
            together.append(node)
    close()
    return steps


def needs_examples(whole: GraphModule) -> bool:
    """Whether a segment has inputs that are no inputs of the graph: these need example values."""
    segments = [step for step in _steps(whole) if isinstance(step, Segment)]
    return len(segments) > 1 or any(node.op != "placeholder" for segment in segments for node in segment.inputs)


class InSegments:
    """Runs the segments and the nodes between them."""

    def __init__(
        self,
        whole: GraphModule,
        inputs: Sequence[Any],
        fake_mode: Any,
        compile_segment: SegmentCompiler,
        examples: Sequence[Any] | None = None,
    ) -> None:
        """`examples`: of the inputs, where their sizes are symbolic; numbers among the inputs are SymInts then."""
        self.whole = whole
        self.placeholders = whole.graph.find_nodes(op="placeholder")
        self.output = whole.graph.output_node()
        self.attributes = {node: getattr(whole, node.target) for node in whole.graph.find_nodes(op="get_attr")}
        self.steps = _steps(whole)
        self._compile(inputs, fake_mode, compile_segment, examples)

    def _compile(
        self, inputs: Sequence[Any], fake_mode: Any, compile_segment: SegmentCompiler, examples: Sequence[Any] | None
    ) -> None:
        """Compiles segment by segment on fake tensors, each in the thread state that it will run in."""
        real = dict(zip(self.placeholders, inputs, strict=True))
        values: dict[Node, Any] = dict(real)
        if examples is not None:
            values.update(zip(self.placeholders, examples, strict=True))
        elif fake_mode is not None:
            for node, value in real.items():
                if isinstance(value, torch.Tensor):
                    values[node] = fake_mode.from_tensor(value, static_shapes=True)
        last = [step for step in self.steps if isinstance(step, Segment)][-1:]
        untouched = True  # no segment has mutated the inputs
        with _Opened() as opened:
            for step in self.steps:
                if isinstance(step, Segment):
                    module = step.module(self.whole)
                    given = [values[node] for node in step.inputs]
                    are_real = untouched and all(node in real for node in step.inputs)
                    known = [real[node] for node in step.inputs] if are_real else given
                    step.run = compile_segment(module, known, step.inputs, step.refusal(given))
                    untouched = False
                    if step in last or fake_mode is None:
                        continue  # nothing more is compiled
                    with fake_mode:
                        values.update(zip(step.outputs, module.forward(*given), strict=True))
                elif step.target in _STATES:
                    values[step] = opened.call(step, map_arg(step.args, values.__getitem__), step.kwargs)
                else:
                    values[step] = step.meta.get("example_value")
                    if examples is not None and step.users and values[step] is None:
                        raise NeedsStatic((), "what a node between two segments returns depends on it")

    def __call__(self, *inputs: Any) -> Any:
        values: dict[Node, Any] = dict(zip(self.placeholders, inputs, strict=True))
        values.update(self.attributes)
        look_up = values.__getitem__
        with _Opened() as opened:
            for step in self.steps:
                if isinstance(step, Segment):
                    assert step.run is not None
                    results = step.run(*[values[node] for node in step.inputs])
                    values.update(zip(step.outputs, results, strict=True))
                else:
                    values[step] = opened.call(step, map_arg(step.args, look_up), map_arg(step.kwargs, look_up))
        return map_arg(self.output.args[0], look_up)


class _Opened:
    """Thread state that nodes have entered. If a node fails, the later nodes that would exit it do not run: __exit__ does it."""

    def __init__(self) -> None:
        self.scopes: list[tuple[Any, Any]] = []

    def __enter__(self) -> _Opened:
        self.grad, self.dtype = torch.is_grad_enabled(), torch.get_default_dtype()
        self.flags: Any = None
        return self

    def call(self, node: Node, args: Any, kwargs: Any) -> Any:
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        assert callable(node.target)
        if self.flags is None and node.target in _FLAGS:
            self.flags = _Flags.now()
        result = node.target(*args, **kwargs)
        if node.target in _BEGINS:
            self.scopes.append((node, result))
        elif node.target in _ENDS:
            self.scopes.pop()
        return result

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            return
        for _, scope in reversed(self.scopes):
            scope.__exit__(None, None, None)
        torch._C._set_grad_enabled(self.grad)
        torch.set_default_dtype(self.dtype)
        if self.flags is not None:
            self.flags.apply()

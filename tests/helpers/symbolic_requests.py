"""Graphs with symbols made by hand, handed over as the core does."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.fx

from alternator import events
from alternator._load import load_core
from alternator.backends import resolve
from alternator.events import Listener
from alternator.graph_module import GraphModule
from alternator.handoff import Handoff

Environment: Any = load_core().shapes.Environment


def traced() -> None:
    """The function that the graphs are said to be of."""


class Symbolic:
    """One graph: declare its symbols and inputs in this order, then build its nodes with `graph`."""

    def __init__(self) -> None:
        self.environment = Environment()
        self.graph = torch.fx.Graph()
        self.symbols: list[tuple[Any, str, str, int]] = []
        self.values: list[Any] = []
        self.sources: list[tuple[str, bool]] = []
        self.sizes: list[Any] = []
        self.strides: list[Any] = []
        self.computes_double = False

    def size(self, hint: int, text: str, dimension: int = 0, low: int = 2, high: int | None = None) -> Any:
        return self._symbol(self.environment.symbol(hint, low, high), hint, text, "size", dimension)

    def integer(self, hint: int, text: str) -> Any:
        return self._symbol(self.environment.symbol(hint), hint, text, "integer", 0)

    def _symbol(self, expression: Any, hint: Any, text: str, reads: str, dimension: int) -> Any:
        self.symbols.append((expression, text, reads, dimension))
        return expression, self._placeholder(f"s{expression.value}", hint, text, False, expression, None)

    def real(self, hint: float, text: str) -> Any:
        """The node of its value."""
        expression = self.environment.float_symbol(hint)
        self.symbols.append((expression, text, "float", 0))
        node = self._placeholder(text, hint, text, False, expression, None)
        return self.graph.call_method("item", (node,))

    def tensor(self, value: torch.Tensor, text: str, *sizes: Any, order: Sequence[int] | None = None) -> Any:
        """`sizes`: expressions or ints; none: all are static. `order`: of the dimensions of a dense tensor, outermost first; empty: its
        strides are fixed."""
        integer = self.environment.integer
        wanted = tuple(integer(size) if isinstance(size, int) else size for size in sizes) or None
        strides: list[Any] | None = None
        if wanted is not None:
            strides = [integer(stride) for stride in value.stride()]
            expected = integer(1)
            for dimension in reversed(range(len(wanted)) if order is None else order):
                strides[dimension] = expected
                expected = self.environment.make("product", expected, wanted[dimension])
        return self._placeholder(
            text, value, text, isinstance(value, torch.nn.Parameter), wanted, strides and tuple(strides)
        )

    def _placeholder(self, name: str, value: Any, text: str, state: bool, sizes: Any, strides: Any) -> Any:
        self.values.append(value)
        self.sources.append((text, state))
        self.sizes.append(sizes)
        self.strides.append(strides)
        return self.graph.placeholder(name)

    def make(self, kind: str, *operands: Any) -> Any:
        return self.environment.make(kind, *operands)

    def call(self, function: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(function, str):
            return self.graph.call_method(function, arguments, keywords)
        return self.graph.call_function(function, arguments, keywords)

    # ---- as GraphRequest

    def outputs(self, *nodes: Any) -> None:
        self.graph.output(nodes)

    def export(self, _fake_mode: Any = None, _paths: Any = None, examples: Any = None) -> Any:
        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(self.graph, {}))
        module = GraphModule(torch.nn.Module(), graph)
        for node, example in zip(module.graph.find_nodes(op="placeholder"), examples or (), strict=False):
            node.meta["example_value"] = example
        return module

    def request(self) -> Any:
        facts = SimpleNamespace(
            aot_incompatible=None,
            has_runtime_asserts=False,
            takes_subclass=False,
            takes_numpy_scalar=False,
            takes_generator=False,
            computes_double=self.computes_double,
        )
        return SimpleNamespace(
            export=self.export,
            is_as_exported=lambda module: False,
            inputs=self.values,
            sources=self.sources,
            code=traced.__code__,
            shape_env=None,
            runner="compiled",
            reason=None,
            facts=facts,
            autograd_functions=(),
            environment=self.environment,
            symbols=tuple(self.symbols),
            input_sizes=tuple(self.sizes),
            input_strides=tuple(self.strides),
            numbers=(),
        )

    def hand_over(self, backend: Any, **options: Any) -> Any:
        """The answer of the hand-off."""
        handoff = Handoff(resolve(backend, None, None, True, **options), Listener(traced.__code__, 0))
        return handoff(self.request())

    def compile(self, backend: Any) -> Compiled:
        answer = self.hand_over(backend)
        assert isinstance(answer, tuple), answer
        call, boxed, conditions = answer
        for condition, _ in conditions:
            assert self.environment.assume(condition) != "contradiction"
        return Compiled(self, call, boxed, [condition for condition, _ in self.environment.guards()])


class Compiled:
    def __init__(self, made: Symbolic, call: Callable[..., Any], boxed: bool, guards: list[Any]) -> None:
        self.made, self.call, self.boxed, self.guards = made, call, boxed, guards

    def texts(self) -> list[str]:
        return [repr(guard) for guard in self.guards]

    def admits(self, *registers: float) -> bool:
        """Whether the guards hold for these values of the symbols. (The given intervals are not among them.)"""
        return self.made.environment.check(self.guards, registers) is not None

    def same_as_eager(self, *arguments: Any) -> None:
        """Results, strides, and gradients of all that requires one."""
        eager = self.made.export()
        expected, gradients = _run(lambda *given: eager(*given), arguments)
        found, ours = _run(lambda *given: self.call(list(given)) if self.boxed else self.call(*given), arguments)
        for one, other in zip((*found, *ours), (*expected, *gradients), strict=True):
            torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-6, atol=1e-9)
            if isinstance(one, torch.Tensor):
                assert one.stride() == other.stride()


def _run(call: Callable[..., Any], arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    given = [_copy(value) for value in arguments]
    results = list(call(*given))
    wanted = [value for value in given if isinstance(value, torch.Tensor) and value.requires_grad]
    outputs = [value for value in results if isinstance(value, torch.Tensor) and value.requires_grad]
    if wanted and outputs:
        weighed = [(value * torch.arange(value.numel()).reshape(value.shape)).sum() for value in outputs]
        gradients = list(torch.autograd.grad(sum(weighed), wanted, allow_unused=True))
    else:
        gradients = []
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in results], gradients


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    copied = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value.detach())
    return copied.requires_grad_(value.requires_grad)


class Seen(events.Subscriber):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def report(self, event: Any) -> None:
        self.events.append(event)


@contextlib.contextmanager
def all_events() -> Any:
    seen = Seen()
    events.subscribe(seen)
    try:
        yield seen.events
    finally:
        events.unsubscribe(seen)


add, mul, neg, getitem = operator.add, operator.mul, operator.neg, operator.getitem

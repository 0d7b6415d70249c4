"""Graphs whose inputs have symbolic sizes, and numbers: their symbols as those of a ShapeEnv of torch, example values over them, and
what a compiler has assumed about them.

Loaded for the first such graph: it imports torch's symbolic shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch
from torch._dynamo.source import TensorProperty, TensorPropertySource
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import DimDynamic, StatefulSymbolicContext, StatelessSymbolicContext
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from .graph_metadata import InputSource
from .refusals import NeedsStatic
from .sympy_bridge import Expression, from_sympy, to_sympy

# torch imports Inductor when it makes its first symbol: better now, before the trace (csrc/dispatch/capture_loop.cpp).
symbolic_shapes.uninteresting_files()


class Symbol(NamedTuple):
    """Of the graph's environment, by number: a row of GraphRequest.symbols."""

    expression: Expression
    source: str  # of the tensor that it is a size (stride, offset) of, or of the number itself
    reads: str  # "size", "stride", "offset", "integer" or "float"
    dimension: int

    @property
    def text(self) -> str:
        return {
            "size": f"{self.source}.size()[{self.dimension}]",
            "stride": f"{self.source}.stride()[{self.dimension}]",
            "offset": f"{self.source}.storage_offset()",
        }.get(self.reads, self.source)


class Assumption(NamedTuple):
    """A condition that a compiler has assumed."""

    condition: Expression
    text: str
    where: str  # the code that has asked, in parentheses; empty: it is a bound, or an equality


def _storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def _are_alike(example: torch.Tensor, value: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return (
            example.shape == value.shape
            and example.stride() == value.stride()
            and example.storage_offset() == value.storage_offset()
            and example.requires_grad == value.requires_grad
            and example.is_leaf == value.is_leaf
        )


class _ShapeEnv(symbolic_shapes.ShapeEnv):
    def get_pruned_guards(self, symints: Sequence[Any]) -> list[Any]:
        """What the caches of compiled code store with it: the guards over symbols that it gets. torch leaves out those that were added
        before one of their symbols was replaced by others, which code that is loaded would then not check."""
        known = {symbol for number in symints for symbol in number.node.expr.free_symbols}
        return [guard for guard in self.guards if self.replace(guard.expr).free_symbols <= known]


def symbols_in(expression: Expression) -> set[int]:
    """Their numbers."""
    if expression.kind in ("symbol", "float_symbol"):
        return {expression.value}
    return {number for operand, _ in expression.terms for number in symbols_in(operand)}


def _is_fixed_or_float(size: Any) -> bool:
    return size is None or (not isinstance(size, tuple) and size.sort == "float")


class _Declared(dict[int, Any]):
    """The symbols of the graph as those of torch, by number: each declared when it is first needed."""

    def __init__(self, symbols: Sequence[Symbol], environment: Any, shape_env: Any) -> None:
        super().__init__()
        self.symbols, self.environment, self.shape_env = symbols, environment, shape_env
        self.ranges: dict[Any, Any] = {}  # as given, by torch's symbol
        self.computed: dict[Expression, Any] = {}  # symbols of torch that are expressions of ours
        self.texts: set[str] = set()

    def __missing__(self, number: int) -> Any:
        symbol = self.symbols[number]
        if symbol.expression.kind == "float_symbol":
            raise NeedsStatic([number], "a size that is computed from a float")
        self[number] = made = self._declare(symbol.expression, symbol.text)
        return made

    def declare_computed(self, expression: Expression, text: str) -> None:
        """What torch has no exact counterpart of: it becomes a symbol whose value the guards compute."""
        self.computed[expression] = self._declare(expression, text)

    def each(self) -> dict[Any, Expression]:
        """Ours, by torch's."""
        ours = {symbol: self.symbols[number].expression for number, symbol in self.items()}
        return ours | {symbol: expression for expression, symbol in self.computed.items()}

    def _declare(self, expression: Expression, text: str) -> Any:
        low, high = self.environment.interval(expression)
        while text in self.texts:  # variables of two frames may have the same name
            text += "'"
        self.texts.add(text)
        made = self.shape_env.create_symbol(
            expression.hint,
            InputSource(text),
            DimDynamic.DYNAMIC,
            None,
            positive=True if low is not None and low >= 1 else None,
            do_not_specialize_zero_one=True,
        )
        self.ranges[made] = ValueRanges(-int_oo if low is None else low, int_oo if high is None else high)
        self.shape_env.var_to_range[made] = self.ranges[made]
        return made


class SymbolicExamples:
    """Of one graph. NeedsStatic: there are none.

    `sizes`: for each input None (nothing about it is symbolic), the sizes of a tensor, or a number. `strides`: those of a tensor with
    sizes."""

    def __init__(
        self,
        environment: Any,
        symbols: Sequence[Symbol],
        inputs: Sequence[Any],
        sources: Sequence[tuple[str, bool]],
        sizes: Sequence[Any],
        strides: Sequence[tuple[Expression, ...] | None],
        shape_env: Any,
    ) -> None:
        self.environment = environment
        self.symbols = symbols
        # Of the trace, which has unbacked symbols: where only floats vary, no symbol of ours joins them.
        self.is_of_trace = shape_env is not None and all(_is_fixed_or_float(size) for size in sizes)
        self.shape_env = shape_env if self.is_of_trace else _ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.shape_env)
        self.declared = _Declared(symbols, environment, self.shape_env)
        self.contexts: dict[torch.Tensor, StatefulSymbolicContext] = {}
        self.examples: list[Any] = []  # of the placeholders; None until adopt(): the export makes it
        self.real: list[Any] = []  # the inputs of a call: a float is a tensor
        self.given: list[Any] = []  # what a backend gets: as `real`, but SymInts
        self._storages = Counter(_storage_of(value) for value in inputs if isinstance(value, torch.Tensor))
        for row in zip(inputs, sources, sizes, strides, strict=True):
            self._add(*row)

    # ---- example values

    def sympy(self, expression: Expression | None) -> Any:
        if expression is None:
            raise NeedsStatic(range(len(self.symbols)), "an expression is too large")
        found = to_sympy(self.environment, expression, self.declared, self.declared.computed)
        if found is None:
            raise NeedsStatic(symbols_in(expression), f"torch has no counterpart of {expression!r}")
        return found

    def _add(self, value: Any, source: tuple[str, bool], sizes: Any, strides: Any) -> None:
        real = given = example = value
        with torch._C.DisableTorchFunctionSubclass():  # no user __torch_function__ is called
            if isinstance(sizes, tuple):
                example = self._symbolic_tensor(value, source[0], sizes, strides)
            elif sizes is not None and sizes.sort == "float":
                # A tensor of which the graph takes the item: no compiler can make its code depend on the value.
                real = given = torch.tensor(value, dtype=torch.float64)
                example = self.mode.from_tensor(real, static_shapes=True)
            elif sizes is not None:
                if sizes.kind != "symbol":
                    self.declared.declare_computed(sizes, source[0])
                expression = self.sympy(sizes)
                example = given = self.shape_env.create_symintnode(
                    expression, hint=value, source=InputSource(source[0])
                )
            elif isinstance(value, torch.Tensor):
                example = None if self._is_plain(value) else self.mode.from_tensor(value, static_shapes=True)
        self.real.append(real)
        self.given.append(given)
        self.examples.append(example)

    def _is_plain(self, value: torch.Tensor) -> bool:
        """Whether the export can make its example value from the recorded fake, a thousand times as fast: see adopt()."""
        return (
            type(value) in (torch.Tensor, torch.nn.Parameter)
            and value.layout is torch.strided
            and value.dim() > 0
            and value._base is None
            and (not value.is_leaf or value.grad is None)
            and not (value.is_conj() or value.is_neg() or value.is_quantized)
            and not (value.requires_grad and value.is_leaf and value.grad_dtype != value.dtype)
            and self._storages[_storage_of(value)] == 1
        )

    def adopt(self, gm: Any) -> None:
        """The example values that the export has made for plain inputs: for whoever asks the mode for a FakeTensor of such an input."""
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        for i, (node, value) in enumerate(zip(placeholders, self.real, strict=True)):
            if self.examples[i] is not None:
                continue
            example = node.meta.get("example_value")
            if example is not None and _are_alike(example, value):
                self.mode.fake_tensor_converter.set_tensor_memo(value, example)
            else:
                node.meta["example_value"] = example = self.mode.from_tensor(value, static_shapes=True)
            self.examples[i] = example

    def _symbolic_tensor(
        self, value: torch.Tensor, text: str, sizes: tuple[Expression, ...], strides: tuple[Expression, ...]
    ) -> Any:
        """torch looks each size up by the name of its source, and finds ours."""
        involved = [number for length in (*sizes, *strides) for number in symbols_in(length)]
        wanted_sizes = [self.sympy(size) for size in sizes]
        wanted_strides = [self.sympy(stride) for stride in strides]
        found: dict[str, Any] = {}
        tensors = {text: value}
        if value.is_leaf and value.grad is not None:
            if value.grad.stride() != value.stride():
                raise NeedsStatic(involved, f"the strides of {text}.grad differ from those of {text}")
            tensors[f"{text}.grad"] = value.grad
        for name, tensor in tensors.items():
            source = InputSource(name)
            for dimension in range(value.dim()):
                found[TensorPropertySource(source, TensorProperty.SIZE, dimension).name] = wanted_sizes[dimension]
                found[TensorPropertySource(source, TensorProperty.STRIDE, dimension).name] = wanted_strides[dimension]
            offset = sympy.Integer(tensor.storage_offset())
            found[TensorPropertySource(source, TensorProperty.STORAGE_OFFSET).name] = offset
        base = value._base
        context = StatefulSymbolicContext(
            dynamic_sizes=[DimDynamic.STATIC] * value.dim(),
            dynamic_strides=[DimDynamic.DYNAMIC] * value.dim(),
            tensor_source=InputSource(text),
            view_base_context=None if base is None else StatelessSymbolicContext([DimDynamic.STATIC] * base.dim()),
            shape_env_to_source_to_symbol_cache={id(self.shape_env): found},
        )
        example = self.mode.from_tensor(value, symbolic_context=context, source=InputSource(text))
        made = [_expression_of(number) for number in (*example.size(), *example.stride())]
        if made != [*wanted_sizes, *wanted_strides]:
            raise NeedsStatic(involved, f"torch takes the sizes of {text} to be {made}")
        self.contexts[value] = context
        return example

    def check(self, numbers: Sequence[Expression]) -> None:
        """That torch can compute these: the graph does so."""
        for number in numbers:
            self.sympy(number)

    def register(self, context: TracingContext) -> None:
        """AOTAutograd then makes the same fakes, should it have to."""
        for tensor, symbolic in self.contexts.items():
            context.tensor_to_context[tensor] = symbolic

    # ---- what a compiler has assumed

    def assumptions(self) -> list[Assumption]:
        """To be called once the backend has compiled the graph, the backward pass too: a later guard is an error. torch's guards, the
        bounds of its symbols, and symbols that it has replaced."""
        if self.is_of_trace:
            return []
        ours = self.declared.each()
        found = [self._translated(guard.expr, str(guard.sloc), ours) for guard in self.shape_env.guards]
        for symbol, given in self.declared.ranges.items():
            now = self.shape_env.var_to_range[symbol]
            if now.lower != given.lower:
                found.append(self._translated(sympy.Ge(symbol, now.lower, evaluate=False), "", ours))
            if now.upper != given.upper:
                found.append(self._translated(sympy.Le(symbol, now.upper, evaluate=False), "", ours))
        for symbol, value in self.shape_env.replacements.items():
            if symbol in ours:
                found.append(self._translated(sympy.Eq(symbol, value, evaluate=False), "", ours))
        for asserts in self.shape_env.deferred_runtime_asserts.values():
            for one in asserts:
                if not symbolic_shapes.free_unbacked_symbols(one.expr):
                    found.append(self._translated(one.expr, "", ours))
        self.shape_env.frozen = True
        self.shape_env._error_on_new_guards = True
        return found

    def _translated(self, condition: Any, where: str, ours: dict[Any, Expression]) -> Assumption:
        translated = from_sympy(self.environment, condition, ours)
        if translated is None:
            known = {
                number for symbol in condition.free_symbols if symbol in ours for number in symbols_in(ours[symbol])
            }
            raise NeedsStatic(sorted(known) or range(len(self.symbols)), f"a compiler has assumed {condition}")
        names = [symbol.text for symbol in self.symbols]
        return Assumption(translated, translated.text(names), where)


def _expression_of(number: Any) -> Any:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)

"""The sizes of what a call returns, as expressions over the symbols of a trace: torch tells them for calls that csrc/graph/sizes has no
rule for, by running the operator once on FakeTensors of a ShapeEnv. Custom operators bring the function for that.

Loaded for the first such call: it imports torch's symbolic shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.utils import _pytree as pytree

from .symbolic_examples import Symbol, SymbolicExamples
from .sympy_bridge import Expression, from_sympy


class Found(NamedTuple):
    sizes: list[tuple[Expression, ...]]  # of each tensor of the result
    conditions: list[Expression]  # under which the call has them


def sizes_of(
    environment: Any,
    symbols: Sequence[Expression],
    call: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    tensors: Mapping[int, tuple[Any, ...]],
) -> Found | None:
    """`arguments`: with fakes as tensors, of which `tensors` has sizes and strides (None: not known) by id, and with expressions as
    numbers. None: torch does not know either."""
    rows = [Symbol(symbol, f"s{number}", "integer", 0) for number, symbol in enumerate(symbols)]
    examples = SymbolicExamples(environment, rows, [], [], [], [], None)
    number_type = type(symbols[0])

    def number(expression: Expression) -> Any:
        if expression.kind == "integer":
            return expression.value
        return examples.shape_env.create_symintnode(examples.sympy(expression), hint=expression.hint)

    def unknown(hint: int) -> Any:
        """A symbol that is none of ours: what depends on it has no counterpart."""
        source = ConstantSource(f"unknown{len(examples.shape_env.var_to_range)}")
        symbol = examples.shape_env.create_symbol(hint, source, DimDynamic.DYNAMIC, do_not_specialize_zero_one=True)
        return examples.shape_env.create_symintnode(symbol, hint=hint)

    def example(value: Any) -> Any:
        if isinstance(value, number_type):
            return number(value)
        if not isinstance(value, torch.Tensor):
            return value
        sizes, strides = tensors[id(value)]
        steps = map(unknown, value.stride()) if strides is None else map(number, strides)
        return torch.empty_strided(tuple(map(number, sizes)), tuple(steps), dtype=value.dtype, device=value.device)

    try:
        with torch._C.DisableTorchFunction(), torch.no_grad(), examples.mode:
            given, named = pytree.tree_map(example, (tuple(arguments), dict(keywords)))
            result = call(*given, **named)
        made = [result] if isinstance(result, torch.Tensor) else list(result)
        if not all(map(_is_contiguous, made)):
            return None
        ours = examples.declared.each()
        sizes = [[from_sympy(environment, _sympy_of(size), ours) for size in tensor.size()] for tensor in made]
        conditions = [assumption.condition for assumption in examples.assumptions()]
    except Exception:  # the function of the operator asks for data, or does not take symbols
        return None
    known = [tuple(size for size in row if size is not None) for row in sizes]
    return Found(known, conditions) if list(map(len, known)) == list(map(len, sizes)) else None


def _sympy_of(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _is_contiguous(tensor: torch.Tensor) -> bool:
    """Whether its strides are the products of its sizes, whatever these are."""
    expected: Any = 1
    for size, stride in zip(reversed(tensor.size()), reversed(tensor.stride()), strict=True):
        if _sympy_of(stride) != expected:
            return False
        expected = expected * _sympy_of(size)
    return bool(_sympy_of(tensor.storage_offset()) == 0)

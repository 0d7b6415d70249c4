"""Example values of a graph: fake tensors in a mode that the backend shares."""

from __future__ import annotations

import sys
from typing import Any

import torch

from . import config
from .backends import Backend
from .graph_request import GraphRequest
from .refusals import NeedsStatic, first_line


def examples_of(backend: Backend, request: GraphRequest) -> tuple[Any, list[Any], str | None]:
    """The mode of the example values, those that must stay alive while the backend compiles, and why it cannot."""
    facts = request.facts
    if facts.takes_subclass and not facts.has_runtime_asserts:
        return None, [], None
    fake_mode = fake_mode_for(backend, request.shape_env, facts.has_runtime_asserts)
    if fake_mode is None:
        return None, [], None
    try:
        return fake_mode, _static_examples(backend, fake_mode, request.inputs), None
    except Exception as error:
        # FakeTensorMode cannot convert one of them: its gradient is of another size, or its base of another type.
        if facts.has_runtime_asserts:
            raise
        if backend.is_torch_backend:
            return fake_mode, [], first_line(error)
        return None, [], None  # a user callable does without examples


def fake_mode_for(backend: Backend, shape_env: Any, needed: bool) -> Any:
    """The mode of the example values. Creating one loads torch._dynamo: if it is not loaded yet, a user callable gets no example
    values."""
    wanted = config.example_values
    if wanted is None:
        wanted = "torch._dynamo" in sys.modules
    if not (wanted or needed or backend.is_torch_backend):
        return None
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=shape_env or ShapeEnv())


def symbolic_examples_of(request: GraphRequest) -> Any:
    """Of a graph with symbols: a SymbolicExamples; None: it is not to be compiled, and has none."""
    from .symbolic_examples import Symbol, SymbolicExamples

    assert request.input_sizes is not None
    assert request.input_strides is not None
    assert request.numbers is not None
    symbols = [Symbol(*row) for row in request.symbols]
    if request.facts.takes_subclass and request.runner != "recorded":
        # A subclass may override anything that FakeTensorMode reads.
        raise NeedsStatic(range(len(symbols)), "an input is of a tensor subclass")
    try:
        examples = SymbolicExamples(
            request.environment,
            symbols,
            request.inputs,
            request.sources,
            request.input_sizes,
            request.input_strides,
            request.shape_env,
        )
        examples.check(request.numbers)
        return examples
    except NeedsStatic:
        if request.runner != "recorded":
            raise
        return None


def check_floats(request: GraphRequest) -> None:
    """Inductor's kernels take floats in single precision (torch 2.13): exact for single precision and below only."""
    if not request.facts.computes_double or not request.symbols:
        return
    from .symbolic_examples import symbols_in

    given = [size for size in request.input_sizes or () if size is not None and not isinstance(size, tuple)]
    floats = {number for size in given if size.sort == "float" for number in symbols_in(size)}
    if floats:
        raise NeedsStatic(
            sorted(floats), "compiled code takes floats in single precision, and the graph computes in double precision"
        )


def plain_numbers(inputs: list[Any]) -> list[Any]:
    """With the values of this call in place of SymInts."""
    return [value.node.hint if isinstance(value, torch.SymInt) else value for value in inputs]


def _static_examples(backend: Backend, fake_mode: Any, inputs: list[Any]) -> list[Any]:
    """While these are alive, the mode returns them to AOTAutograd: sizes are static, those of a view's base too."""
    with torch._C.DisableTorchFunctionSubclass():  # no user __torch_function__ is called
        wanted = [
            value
            for value in inputs
            if isinstance(value, torch.Tensor) and (backend.is_torch_backend or value._is_view())
        ]
    return [fake_mode.from_tensor(value, static_shapes=True) for value in wanted]

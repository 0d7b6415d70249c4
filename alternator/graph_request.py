"""What the core hands over with a graph: csrc/backend/graph_request.h."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, Protocol


class GraphFacts(Protocol):
    """csrc/backend/graph_facts.h"""

    aot_incompatible: str | None
    has_runtime_asserts: bool
    takes_subclass: bool
    takes_numpy_scalar: bool
    takes_generator: bool
    computes_double: bool


class GraphRequest(Protocol):
    """csrc/backend/graph_request.h"""

    export: Callable[..., Any]
    is_as_exported: Callable[[Any], bool]
    inputs: list[Any]
    sources: tuple[tuple[str, bool], ...]
    code: CodeType
    shape_env: Any
    runner: str
    reason: str | None
    facts: GraphFacts
    autograd_functions: tuple[type, ...]
    environment: Any  # alternator._C.shapes.Environment
    symbols: tuple[Any, ...]
    input_sizes: tuple[Any, ...] | None
    input_strides: tuple[Any, ...] | None
    numbers: tuple[Any, ...] | None

"""The metadata that AOTAutograd and Inductor read from a graph."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import CompileId, GuardSource, Source


class InputSource(Source):
    """The source of a graph input, for backends that distinguish inputs by it. The guards are Alternator's: they prove which inputs
    are one object, so that the additional guards of AOTAutograd hold already."""

    text: str

    def __init__(self, text: str) -> None:
        self.__dict__["text"] = text  # a Source is a frozen dataclass, whose __setattr__ is slow

    @property
    def _name_template(self) -> str:
        return self.text

    @property
    def guard_source(self) -> GuardSource:
        return GuardSource.CONSTANT

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSource) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[type[InputSource], tuple[str]]:
        return InputSource, (self.text,)  # Inductor's FX graph cache pickles them


def describe(
    gm: Any, inputs: Sequence[Any], sources: Sequence[tuple[str, bool]], name: str, compile_id: CompileId
) -> None:
    """`sources`: for each input its source text, and whether it is a parameter or buffer of a module."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    met: collections.Counter[str] = collections.Counter()
    set_new = object.__setattr__  # Node.__setattr__ looks the node up in its graph
    for node, value, (text, is_state) in zip(placeholders, inputs, sources, strict=True):
        met[text] += 1  # after a break, variables of several frames may have the same name
        set_new(node, "_dynamo_source", InputSource(text if met[text] == 1 else f"{text} ({met[text]})"))
        # Its address rarely changes: CUDA graphs record again when it does, instead of copying it every time. No guard
        # checks addresses, and a graph serves several modules: so never "guarded", whatever the tensor's mark is.
        marked = getattr(value, "_dynamo_static_input_type", None) is not None
        attributes = node.meta.setdefault("tensor_dict", {})
        if marked or is_state or isinstance(value, torch.nn.Parameter):
            attributes["_dynamo_static_input_type"] = "unguarded"
    gm.meta["dynamo_compile_id"] = compile_id
    gm.meta["dynamo_flat_name_to_original_fqn"] = {}
    gm.meta["backend_id"] = name
    state = itertools.chain(gm.named_parameters(remove_duplicate=False), gm.named_buffers(remove_duplicate=False))
    gm._param_name_to_source = {key: InputSource(f"constant {key}") for key, _ in state}
    gm._source_to_user_stacks = {}
    # Part of the key of FX graph caches: a graph that was compiled without old_values_saved() must not be reused.
    gm._saves_old_values = True

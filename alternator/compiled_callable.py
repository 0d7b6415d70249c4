"""What a backend has made of a graph: how it is called, and whether it is the graph itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
import torch.fx.experimental._config

from .graph_module import GraphModule


def takes_a_list(compiled: Any) -> bool:
    """Whether it takes its inputs as one list, which it may clear. AOTAutograd copies `_boxed_call` to wrappers that take them one by
    one."""
    if getattr(compiled, "_boxed_call", False) is not True:
        return False
    call = compiled if isinstance(compiled, (FunctionType, MethodType)) else getattr(type(compiled), "__call__", None)  # noqa: B004
    code = getattr(call, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return False
    is_bound = isinstance(call, MethodType) or call is not compiled
    return bool(code.co_argcount - is_bound == 1)


def module_of(compiled: Any) -> GraphModule | None:
    """The graph module whose generated code is all that a call runs, without hooks or code of the backend; or None."""
    if isinstance(compiled, GraphModule):
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        return None if any(getattr(compiled, name) for name in hooks) else compiled
    module = getattr(compiled, "__self__", None)
    if not isinstance(compiled, MethodType) or not isinstance(module, GraphModule):
        return None
    cls: Any = type(module)
    return module if compiled.__func__ in (cls.forward, cls._lazy_forward) else None


def results_of(call: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """The outputs of a graph for copies of its inputs. The random state is the same in every run."""
    copies = [
        value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
        for value in inputs
    ]
    with torch.random.fork_rng():
        return list(call(copies) if takes_a_list(call) else call(*copies))


def wants_code() -> bool:
    """Whether something inspects the generated code while it runs."""
    return bool(getattr(torch.fx.experimental._config, "enrich_profiler_metadata", False))

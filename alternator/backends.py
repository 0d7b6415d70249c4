"""Resolves the `backend`, `mode` and `options` of compile() to a callable that compiles graphs."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch

# (graph module, example inputs) -> what runs the graph
Compiler = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


INDUCTOR_RECURSION_LIMIT = 2000  # as in torch._inductor.compile_fx


class _Same:
    """Wraps an object in a key that compares by identity."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _key(value: Any) -> Any:
    """Equal for values that mean the same to a backend: plain ones of the same type, or the same object."""
    if value is None or type(value) in (bool, int, str, bytes):
        return type(value), value
    if type(value) is float:
        return float, value.hex()
    if type(value) in (list, tuple):
        return type(value), tuple(_key(item) for item in value)
    if type(value) is dict:
        return dict, tuple((_key(name), _key(item)) for name, item in value.items())
    if isinstance(value, MethodType):
        return MethodType, _Same(value.__func__), _Same(value.__self__)
    return _Same(value)


@dataclass(frozen=True)
class Backend:
    name: str
    compiler: Compiler | None  # None: the recorded program itself
    key: Any = None  # equal for backends that compile a graph in the same way
    # A torch backend, built on AOTAutograd: needs torch's compile lock.
    is_torch_backend: bool = False

    def prepare(self) -> None:
        """Applies the backend's process-wide changes before anything is traced: importing it registers abstract base classes, on
        which traces depend, and it needs a high recursion limit, also when it compiles a backward pass later (inspect.unwrap reads
        the limit)."""
        if self.name == "inductor":
            importlib.import_module("torch._inductor.compile_fx")
            if sys.getrecursionlimit() < INDUCTOR_RECURSION_LIMIT:
                sys.setrecursionlimit(INDUCTOR_RECURSION_LIMIT)

    def reset(self) -> None:
        reset = getattr(self.compiler, "reset", None)
        if callable(reset):
            reset()


def _name_of(backend: Any) -> str:
    return backend if isinstance(backend, str) else getattr(backend, "__name__", None) or type(backend).__name__


def default_backend() -> str | Compiler:
    """The backend that torch.compiler.set_default_backend has set; "inductor" otherwise."""
    registry: Any = sys.modules.get("torch._dynamo.backends.registry")
    chosen: str | Compiler = registry.get_default_backend() if registry is not None else "inductor"
    return chosen


def _inductor(
    mode: str | None, options: dict[str, Any], use_aoti: bool, dynamic: bool | None, name: str | None
) -> Backend:
    # torch's wrapper, so that modes and options are validated and interpreted as in torch.compile.
    wrapper: Any = torch._TorchCompileAOTInductorWrapper if use_aoti else torch._TorchCompileInductorWrapper
    # Older versions of torch do not take the name.
    names = (name,) if "name" in inspect.signature(wrapper.__init__).parameters else ()
    key = _key(["inductor", use_aoti, mode, options, dynamic, name])
    return Backend("inductor", wrapper(mode, options, dynamic, *names), key, is_torch_backend=True)


def _registered(name: str) -> Compiler:
    from torch._dynamo.backends import registry
    from torch._dynamo.exc import InvalidBackend

    try:
        return registry.lookup_backend(name)
    except InvalidBackend as error:
        known = ", ".join(registry.list_backends(exclude_tags=()))
        error.args = (f"Invalid backend: {name!r}. Known backends: {known}; or any callable (gm, example_inputs).",)
        raise error from None


def resolve(
    backend: str | Compiler | None,
    mode: str | None,
    options: Mapping[str, Any] | None,
    dynamic: bool | None,
    name: str | None = None,
) -> Backend:
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options must be a dict of names and values, not {options!r}")
    if mode is not None and not isinstance(mode, str):
        raise TypeError(f"mode must be a str, not {mode!r}")
    if backend is None:
        backend = default_backend()
    chosen = dict(options or {})
    # Options of torch.compile itself, which are not passed to the backend.
    chosen.pop("guard_filter_fn", None)  # it filters TorchDynamo's guards; ours are all kept
    use_aoti = chosen.pop("use_aoti", False)
    if backend == "inductor":
        return _inductor(mode, chosen, use_aoti, dynamic, name)
    if not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"backend must be a name or a callable (gm, example_inputs), not {backend!r}")

    keywords: dict[str, Any] = {}
    if mode and mode != "default":
        keywords["mode"] = mode
    if chosen:
        keywords["options"] = chosen
    if backend == "eager" and not keywords:
        return Backend("eager", None, _key(["eager", dynamic]))
    compiler = _registered(backend) if isinstance(backend, str) else backend
    key = _key([backend, compiler, keywords, dynamic])
    if not keywords:
        return Backend(_name_of(backend), compiler, key, isinstance(backend, str))

    def with_keywords(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return compiler(gm, example_inputs, **keywords)

    return Backend(_name_of(backend), with_keywords, key, isinstance(backend, str))

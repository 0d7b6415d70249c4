"""install(): torch.compile and nn.Module.compile go through Alternator, so that programs need no edit."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

import torch

from . import compiler

# The replaced attributes, by (owner, name); empty: not installed.
_originals: dict[tuple[Any, str], Any] = {}
_lock = threading.Lock()
_depth = 0


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)

# torch modules that forward a user's call.
_FORWARDING = ("torch.compiler", "torch.nn.modules.module")


def _is_internal_call() -> bool:
    """Whether torch itself made the current call of torch.compile, for internal purposes."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name not in _FORWARDING:
            return isinstance(name, str) and (name == "torch" or name.startswith("torch."))
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _instead_of_compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile(model: Any = None, **kwargs: Any) -> Any:
        # torch.export uses torch.compile internally.
        if torch.compiler.is_exporting() or _is_internal_call():
            return original(model, **kwargs)
        return compiler._compile(model, backend=kwargs.pop("backend", None), **kwargs)

    return compile


def _instead_of_reset(original: Any) -> Any:
    @functools.wraps(original)
    def reset() -> None:
        compiler.reset()
        original()

    return reset


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _originals[owner, name] = original
    setattr(owner, name, make(original))


class _Watching:
    """An import hook in sys.meta_path that waits for torch._dynamo: install() does not load it, which takes seconds."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch._dynamo" or _Watching not in sys.meta_path:
            return None
        sys.meta_path.remove(_Watching)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_replace(module: ModuleType) -> None:
                load(module)
                with _lock:
                    if _depth > 0:
                        _replace(module, "reset", _instead_of_reset)

            spec.loader.exec_module = load_and_replace  # type: ignore[method-assign]
        return spec


class Installed:
    """The result of install(): leaving `with install():` undoes it."""

    def __enter__(self) -> Installed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        uninstall()


def install() -> Installed:
    """Until uninstall(), torch.compile, torch.compiler.compile and nn.Module.compile are Alternator's, and torch.compiler.reset and
    torch._dynamo.reset also reset Alternator.

    Internal calls of torch.compile by torch are not affected, nor is what was compiled before. A name that `from torch import compile`
    bound before stays torch's.
    """
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            _replace(torch, "compile", _instead_of_compile)
            if "torch._dynamo" in sys.modules:
                _replace(sys.modules["torch._dynamo"], "reset", _instead_of_reset)  # torch.compiler.reset calls it
            else:
                sys.meta_path.insert(0, _Watching)
    return Installed()


def uninstall() -> None:
    """Undoes one install(). What was compiled meanwhile stays compiled."""
    global _depth
    with _lock:
        if _depth == 0:
            return
        _depth -= 1
        if _depth == 0:
            for (owner, name), original in _originals.items():
                setattr(owner, name, original)
            _originals.clear()
            if _Watching in sys.meta_path:
                sys.meta_path.remove(_Watching)

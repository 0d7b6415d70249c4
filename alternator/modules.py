"""A compiled nn.Module: a second object over the same state, of a subclass of the user's class.

It shares the `__dict__` of the module that it was made of, so parameters, buffers, hooks, submodules and attributes are the same in
both, whichever of them is written through. Only calls differ: `__call__` is a slot of the object, and it holds the compiled call of
the original. No wrapper is between the user and the module: no name in `state_dict()` changes, `isinstance` holds.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Module = torch.nn.Module


class Made(NamedTuple):
    """What a compiled module is made of."""

    original: Module
    again: Callable[[Any], Any]  # compiles another module, or a method of it, in the same way


class _View(Module):
    """What a compiled module has in addition. The layout is the same for all classes, so that `__class__` can be assigned."""

    __slots__ = ("__call__", "_alternator_forward", "_alternator_made")


class _Forward:
    """`forward` of a compiled module: the original's, compiled. One that the user puts on the module itself comes before it."""

    def __get__(self, view: Any, cls: type) -> Any:
        if view is None:
            base: Any = cls.__mro__[1]  # the user's class
            return base.forward
        made: Made = view._alternator_made
        method = made.original.forward
        if torch.compiler.is_compiling():
            return method  # a part of what is being compiled
        with contextlib.suppress(AttributeError):
            of, compiled = _forward_slot.__get__(view)
            if of is getattr(method, "__func__", method):
                return compiled
        compiled = made.again(method)
        _forward_slot.__set__(view, (getattr(method, "__func__", method), compiled))
        return compiled


_forward = _Forward()
_call_slot: Any = _View.__dict__["__call__"]
_made_slot: Any = _View.__dict__["_alternator_made"]
_forward_slot: Any = _View.__dict__["_alternator_forward"]


def original_of(module: Any) -> Any:
    """The module behind a compiled one; anything else is itself."""
    return _made_slot.__get__(module).original if issubclass(type(module), _View) else module


def compiled_call(module: Any) -> Any:
    """What a call of a compiled module runs; None for anything else."""
    return _call_slot.__get__(module) if issubclass(type(module), _View) else None


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    made: Made = self._alternator_made
    memo[id(self)] = result = made.again(copy.deepcopy(made.original, memo))
    return result


def _copy(self: Any) -> Any:
    made: Made = self._alternator_made
    return made.again(copy.copy(made.original))


def _reduce_ex(self: Any, protocol: Any) -> Any:
    # A pickle holds the user's module: it can be read where there is no Alternator.
    return self._alternator_made.original.__reduce_ex__(protocol)


def _get_class(self: Any) -> type:
    return type(self._alternator_made.original)


def _set_class(self: Any, new: type) -> None:
    # torch.nn.utils.parametrize does this.
    self._alternator_made.original.__class__ = new
    object.__dict__["__class__"].__set__(self, _view_class(new))


def _recompile(self: Any) -> Any:
    # An fx.GraphModule writes its code into its own class: that is the original's.
    return self._alternator_made.original.recompile()


class _Signature:
    """That of the original; the class has none of its own."""

    def __get__(self, view: Any, _: type) -> inspect.Signature:
        if view is None:
            raise AttributeError("__signature__")
        return inspect.signature(view._alternator_made.original)


def _view_class(cls: type) -> type:
    known: type
    for known in cls.__subclasses__():  # weak: it goes with its last object
        if known.__dict__.get("__call__") is _call_slot:
            return known
    body: dict[str, Any] = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__call__": _call_slot,  # also where the user's class has one
        "forward": _forward,
        "__class__": property(_get_class, _set_class),
        "__deepcopy__": _deepcopy,
        "__copy__": _copy,
        "__reduce_ex__": _reduce_ex,
        "__signature__": _Signature(),
    }
    if issubclass(cls, torch.fx.GraphModule):
        body["recompile"] = _recompile
    if not any("__init_subclass__" in base.__dict__ for base in cls.__mro__ if base is not object):
        return type(cls)(cls.__name__, (cls, _View), body)
    # The user's hook for subclasses is for the user's subclasses.
    made = type(cls)(cls.__name__, (_View,), body)
    made.__bases__ = (cls, _View)
    return made


def view_of(module: Module, call: Callable[..., Any], again: Callable[[Any], Any]) -> Any:
    """A module over `module`'s state that runs `call`; None where its class allows no such thing."""
    cls = type(module)
    with contextlib.suppress(TypeError):
        view_class = _view_class(cls)
        view: Any = object.__new__(view_class)
        object.__setattr__(view, "__dict__", module.__dict__)
        for name in _slots_of(cls):
            with contextlib.suppress(AttributeError):
                object.__setattr__(view, name, getattr(module, name))
        _call_slot.__set__(view, call)
        _made_slot.__set__(view, Made(module, again))
        return view
    return None


def _slots_of(cls: type) -> list[str]:
    found = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in found if name not in ("__dict__", "__weakref__")]

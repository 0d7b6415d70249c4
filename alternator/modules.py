"""A compiled nn.Module: a second object over the same state, in place of the user's module.

It shares the `__dict__` of the original module, so parameters, buffers, hooks, submodules and attributes are the same in both,
whichever of them is written through. Attributes of the user's class are forwarded: its methods see the original as `self`. Only calls
differ: `__call__` is a slot of the object, and it holds the compiled call of the original. There is no wrapper module: no name in
`state_dict()` changes, `isinstance` holds.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Module = torch.nn.Module


class Made(NamedTuple):
    """The internal state of a compiled module."""

    original: Module
    again: Callable[[Any], Any]  # compiles another module, or a method of it, in the same way


class _ViewClass(type):
    """Calling the type of a compiled module creates an object of the user's class."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._alternator_class(*args, **kwargs)  # type: ignore[attr-defined]


class _View(Module, metaclass=_ViewClass):
    """The additional slots of a compiled module. The layout is the same for all classes, so that `__class__` can be assigned."""

    __slots__ = ("__call__", "_alternator_forward", "_alternator_made")


class _Forward:
    """`forward` of a compiled module: the original's, compiled. An instance attribute of that name takes precedence."""

    def __get__(self, view: Any, cls: Any) -> Any:
        if view is None:
            return cls._alternator_class.forward
        made: Made = view._alternator_made
        method = made.original.forward
        if torch.compiler.is_compiling():
            return method  # it is inlined into the trace
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
    """The original of a compiled module; any other object itself."""
    return _made_slot.__get__(module).original if issubclass(type(module), _View) else module


def compiled_call(module: Any) -> Any:
    """The compiled call of a compiled module; None for any other object."""
    return _call_slot.__get__(module) if issubclass(type(module), _View) else None


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    made: Made = self._alternator_made
    memo[id(self)] = result = made.again(copy.deepcopy(made.original, memo))
    return result


def _copy(self: Any) -> Any:
    made: Made = self._alternator_made
    return made.again(copy.copy(made.original))


def _reduce_ex(self: Any, protocol: Any) -> Any:
    # A pickle holds the user's module: it can be loaded without Alternator.
    return self._alternator_made.original.__reduce_ex__(protocol)


def _get_class(self: Any) -> type:
    return type(self._alternator_made.original)


def _set_class(self: Any, new: type) -> None:
    # torch.nn.utils.parametrize does this.
    self._alternator_made.original.__class__ = new
    object.__dict__["__class__"].__set__(self, _view_class(new))


def _getattr(self: Any, name: str) -> Any:
    # Attributes that were added to the class later, or that come from another class assigned to the original; parameters, buffers and
    # submodules.
    return getattr(self._alternator_made.original, name)


def _setattr(self: Any, name: str, value: Any) -> None:
    if name == "__class__":
        _set_class(self, value)
    elif name == "__dict__":
        original = self._alternator_made.original
        original.__dict__ = value
        object.__setattr__(self, name, original.__dict__)
    else:
        setattr(self._alternator_made.original, name, value)


def _delattr(self: Any, name: str) -> None:
    delattr(self._alternator_made.original, name)


class _Attribute:
    """An attribute of the user's class (a non-data descriptor), looked up on the original. Instance attributes take precedence."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, view: Any, cls: Any) -> Any:
        return getattr(cls._alternator_class if view is None else view._alternator_made.original, self.name)


class _Property(_Attribute):
    """A data descriptor: a property, or a slot. It takes precedence over instance attributes."""

    def __set__(self, view: Any, value: Any) -> None:
        setattr(view._alternator_made.original, self.name, value)

    def __delete__(self, view: Any) -> None:
        delattr(view._alternator_made.original, self.name)


def _method(name: str) -> Any:
    """A method that is looked up on the class (`len(m)`), or that overrides one of nn.Module (`m.to(...)`). If it returns the
    original, the compiled module is returned instead."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        original = self._alternator_made.original
        result = getattr(type(original), name)(original, *args, **kwargs)
        return self if result is original else result

    method.__name__ = name
    return method


# Not forwarded: they belong to the view or its class, or are defined above.
_OWN = frozenset(
    [
        "__new__",
        "__del__",
        "__init_subclass__",
        "__class_getitem__",
        "__subclasshook__",
        "__dict__",
        "__weakref__",
        "__slots__",
        "__module__",
        "__qualname__",
        "__doc__",
        "__annotations__",
        "__abstractmethods__",
        "__parameters__",
        "__orig_bases__",
        "__getattribute__",
        "__getattr__",
        "__setattr__",
        "__delattr__",
        "__reduce_ex__",
        "__copy__",
        "__deepcopy__",
        "__class__",
        "__call__",
        "forward",
        "__signature__",
        "__firstlineno__",
        "__static_attributes__",
    ]
)

# Methods of nn.Module or object that pass `self` on to a function, a hook or a (de)serializer: they must see the original.
_PASSING_SELF_ON = (
    "__init__",
    "__getstate__",
    "__setstate__",
    "__reduce__",
    "apply",
    "state_dict",
    "_save_to_state_dict",
    "load_state_dict",
    "_load_from_state_dict",
    "_register_load_state_dict_pre_hook",
    "register_load_state_dict_pre_hook",
    "register_buffer",
    "register_parameter",
    "register_module",
    "add_module",
)


def _forwarded(cls: type) -> dict[str, Any]:
    """Forwarding attributes for the user's class and its bases up to nn.Module."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__[: cls.__mro__.index(Module)]):
        for name, value in base.__dict__.items():
            if name in _OWN:
                continue
            special = name.startswith("__") and name.endswith("__")
            if value is not None and callable(value) and (special or callable(getattr(Module, name, None))):
                found[name] = _method(name)
            elif special and not hasattr(value, "__get__"):
                found[name] = value  # `__hash__ = None`, `__match_args__`
            else:
                found[name] = _Property(name) if hasattr(type(value), "__set__") else _Attribute(name)
    return found


class _Original:
    """The attribute by which torch and programs unwrap a compiled module. One that the user's module defines takes precedence."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, view: Any, cls: Any) -> Any:
        if view is None:
            raise AttributeError(self.name)
        original = view._alternator_made.original
        return getattr(original, self.name, original)


class _Signature:
    """The signature of the original, or of its class."""

    def __get__(self, view: Any, cls: Any) -> inspect.Signature:
        return inspect.signature(cls._alternator_class if view is None else view._alternator_made.original)


_view_classes: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


def _view_class(cls: type) -> type:
    """The class of compiled modules of `cls`. No subclass of it: neither `__init_subclass__` nor the metaclass must run."""
    held = _view_classes.get(cls)
    known = held() if held is not None else None
    if known is not None:
        return known
    body: dict[str, Any] = {
        **{name: _method(name) for name in _PASSING_SELF_ON},
        **_forwarded(cls),
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "_alternator_class": cls,
        "__new__": lambda _, *args, **kwargs: cls.__new__(cls, *args, **kwargs),
        "__call__": _call_slot,
        "forward": _forward,
        "__class__": property(_get_class, _set_class),
        "__getattr__": _getattr,
        "__setattr__": _setattr,
        "__delattr__": _delattr,
        "__deepcopy__": _deepcopy,
        "__copy__": _copy,
        "__reduce_ex__": _reduce_ex,
        "__signature__": _Signature(),
        "_orig_mod": _Original("_orig_mod"),
        "_torchdynamo_orig_callable": _Original("_torchdynamo_orig_callable"),
        "_torchdynamo_wrapper_id": property(id),
    }
    made = _ViewClass(cls.__name__, (_View,), body)
    _view_classes[cls] = weakref.ref(made)
    return made


def view_of(module: Module, call: Callable[..., Any], again: Callable[[Any], Any]) -> Any:
    """A module over `module`'s state that runs `call`."""
    view: Any = object.__new__(_view_class(type(module)))
    _made_slot.__set__(view, Made(module, again))
    object.__setattr__(view, "__dict__", module.__dict__)
    _call_slot.__set__(view, call)
    return view

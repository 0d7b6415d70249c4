"""compile, disable, reset, counters, is_compiling: the public entry points."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any, TypedDict, TypeVar, Unpack, overload

import torch

from . import backends, breaks, config, logs
from ._load import load_core
from .backends import Compiler
from .events import Listener
from .handoff import Handoff
from .modules import compiled_call, original_of, view_of

_C = load_core()
Model = TypeVar("Model", bound=Callable[..., Any])
_frame_numbers = itertools.count()
_TORCH_SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")


def is_on() -> bool:
    """False with ALTERNATOR=0, TORCHDYNAMO_DISABLE=1 or TORCH_COMPILE_DISABLE=1 in the environment, or where
    torch._dynamo.config.disable is set: then nothing is compiled."""
    is_off = os.environ.get("ALTERNATOR", "1") == "0" or config.is_set("disable")
    return not is_off and "1" not in (os.environ.get(name) for name in _TORCH_SWITCHES)


def _caller(callable_object: Callable[..., Any]) -> Any:
    """A Python function that calls an object without Python code (torch.sin, a functools.partial), or one whose calls have a special
    meaning to the tracer (flex_attention, torch.cond)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return callable_object(*args, **kwargs)

    functools.update_wrapper(call, callable_object, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    return call


def _is_torchs(function: FunctionType) -> bool:
    """Whether torch defines it. A user function that a torch decorator wraps keeps the `__module__` of the user."""
    return (function.__module__ or "").partition(".")[0] == "torch"


def _target(model: Any) -> tuple[FunctionType, Any]:
    """The Python function that a call of `model` runs, and the object that it is bound to (or None)."""
    if isinstance(model, FunctionType):
        return (_caller(model) if _is_torchs(model) else model), None
    if isinstance(model, MethodType) and isinstance(model.__func__, FunctionType):
        return model.__func__, model.__self__
    call = getattr(type(model), "__call__", None)  # noqa: B004  the function itself is wanted
    if isinstance(call, FunctionType) and (isinstance(model, torch.nn.Module) or not _is_torchs(call)):
        return call, model
    if not callable(model):
        raise TypeError(f"alternator.compile needs a function, a method or a callable object, not {model!r}")
    return _caller(model), None


def _is_object(model: Any) -> bool:
    """Whether the `__call__` of its class defines what a call runs."""
    return not isinstance(model, FunctionType | MethodType)


def _innermost(model: Any) -> Any:
    """The argument of compile(), if `model` is its result; otherwise `model`."""
    if isinstance(model, _C.Compiled):
        return model.__wrapped__ if model.__self__ is None else MethodType(model.__wrapped__, model.__self__)
    return original_of(model)


# torch unwraps a compiled function by these attributes: torch.compiler.disable(compiled).
_C.Compiled._torchdynamo_orig_callable = property(_innermost)
_C.Compiled._torchdynamo_wrapper_id = property(id)


def is_compiled(model: Any) -> bool:
    """Whether it is a result of compile()."""
    return isinstance(model, _C.Compiled) or isinstance(compiled_call(model), _C.Compiled)


def is_disabled(model: Any) -> bool:
    function = model.__func__ if isinstance(model, MethodType) else model
    attributes = getattr(function, "__dict__", {})
    if attributes.get("_torchdynamo_disable") is not True:
        return False
    # functools.wraps copies attributes: the mark only counts on the function that it was made for.
    owner = attributes.get("_torchdynamo_wrapper_id")
    return owner is None or owner == id(function)


class CompileOptions(TypedDict, total=False):
    """The options of compile()."""

    fullgraph: bool
    dynamic: bool | None
    backend: str | Compiler | None
    mode: str | None
    options: Mapping[str, Any] | None
    disable: bool
    isolate_recompiles: bool
    shapes_spec: Any


@overload
def compile(model: Model, **options: Unpack[CompileOptions]) -> Model: ...
@overload
def compile(model: None = None, **options: Unpack[CompileOptions]) -> Callable[[Model], Model]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Compiler | None = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """A callable that does what `model` does, through graphs that `backend` compiled. Also a decorator.

    model: a function, a method, a callable object or an nn.Module. A compiled module is the user's module in all but its calls:
        another object of its class that shares its state. The original is unchanged.
    fullgraph: raise where the call cannot be captured in one graph, instead of breaking the graph.
    dynamic: None: sizes and numbers are constants of what is compiled, until they differ between calls: then they become symbols of one
        version for all values. True: sizes are symbols from the first call on, as far as the program allows. False: never.
    backend: "inductor", "eager", "aot_eager", the name of any backend that is registered with torch, or a callable
        (graph_module, example_inputs) that returns a callable. None means torch.compiler.get_default_backend().
    mode, options: for Inductor, as in torch.compile; at most one of the two. Other backends get them as keyword arguments.
    disable: return `model` itself.
    isolate_recompiles: use a private cache for this compile(). Otherwise all compile()s of the same code with the same
        backend and options share a cache: twelve blocks of a model, compiled one by one, cost one compilation.
    shapes_spec: which sizes and ints of the arguments are symbols, and what holds for them (torch.fx.experimental.dynamic_spec).
        Nothing else is a symbol then; a call that does not fit is an error.

    What cannot be traced runs eagerly, and the logger "alternator" says why.
    """
    return _compile(
        model,
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backend,
        mode=mode,
        options=options,
        disable=disable,
        isolate_recompiles=isolate_recompiles,
        shapes_spec=shapes_spec,
    )


def _check(fullgraph: Any, dynamic: Any, disable: Any, isolate_recompiles: Any, recompile_limit: Any) -> None:
    flags = {"fullgraph": fullgraph, "disable": disable, "isolate_recompiles": isolate_recompiles}
    for name, value in flags.items():
        if not (isinstance(value, bool) or value is None or (isinstance(value, int) and value in (0, 1))):
            raise TypeError(f"{name} must be True or False, not {value!r}")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f"dynamic must be True, False or None, not {dynamic!r}")
    if recompile_limit is not None and (not isinstance(recompile_limit, int) or recompile_limit < 0):
        raise TypeError(f"recompile_limit must be a number of recompilations, or None, not {recompile_limit!r}")


def _compile(
    model: Any,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Compiler | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    isolate_recompiles: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    shapes_spec: Any = None,
) -> Any:
    _check(fullgraph, dynamic, disable, isolate_recompiles, recompile_limit)
    shapes_spec = _checked_spec(shapes_spec, dynamic)
    again = functools.partial(
        _compile,
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backend,
        mode=mode,
        options=options,
        disable=disable,
        isolate_recompiles=isolate_recompiles,
        name=name,
        recompile_limit=recompile_limit,
        shapes_spec=shapes_spec,
    )
    if model is None:

        def decorate(decorated: Any) -> Any:
            if decorated is None:
                raise RuntimeError("Model can't be None")
            return again(decorated)

        return decorate
    resolved = backends.resolve(backend, mode, options, dynamic, name)
    model = _innermost(model)
    if isinstance(model, type):
        # As in torch: objects of the class are compiled when they are called.
        setattr(model, "__call__", again(model.__call__))  # noqa: B010  mypy takes it for a method
        return model
    function, self = _target(model)
    if disable or not is_on() or is_disabled(model):
        return model
    resolved.prepare()
    listener = Listener(function.__code__, next(_frame_numbers))
    shared = None if isolate_recompiles else _shared(function, resolved, fullgraph, shapes_spec)
    handoff = Handoff(resolved, listener, shared, _specification(shapes_spec, function, model))
    limit = -1 if recompile_limit is None else recompile_limit  # -1: config.limits(), whenever it matters
    compiled = _C.compile(
        function, self, handoff, fullgraph, limit, listener, False, shared and shared.store, _is_object(model), dynamic
    )
    if shapes_spec is not None:
        compiled.__dict__["_alternator_shapes_spec"] = shapes_spec  # see _with_other_backend
    _remember(handoff)
    if isinstance(model, torch.nn.Module):
        return view_of(model, compiled, again)
    return compiled


def _checked_spec(spec: Any, dynamic: bool | None) -> Any:
    """A torch.fx.experimental.dynamic_spec.ShapesSpec, or None."""
    if spec is None:
        return None
    if dynamic is not None:
        raise ValueError("`dynamic` and `shapes_spec` cannot both be set. `shapes_spec` controls dynamic behavior.")
    from torch.fx.experimental.dynamic_spec import ShapesSpec

    return spec if isinstance(spec, ShapesSpec) else ShapesSpec(spec)


def _specification(spec: Any, function: FunctionType, model: Any) -> Any:
    if spec is None:
        return None
    from .shapes_spec import Specification

    return Specification(spec, function.__code__, model.forward if isinstance(model, torch.nn.Module) else None)


def _with_other_backend(compiled: Any) -> Any:
    """For torch.compiler.set_stance(force_backend=...): the same function, compiled with that backend. Its own entries are kept."""
    backend = sys.modules["torch._dynamo.eval_frame"]._stance.backend
    others: dict[Any, Any] = compiled.__dict__.setdefault("_alternator_others", {})
    if backend not in others:
        function, self = compiled.__wrapped__, compiled.__self__
        model = function if self is None else MethodType(function, self)
        others[backend] = made = _compile(
            model,
            fullgraph=compiled._fullgraph,
            dynamic=compiled._dynamic,
            backend=backend,
            shapes_spec=compiled.__dict__.get("_alternator_shapes_spec"),
        )
        made._alternator_other = True
    return others[backend]


# No WeakValueDictionary: at the end of `compile(f)(x)`, its weakref callback would be the first Python code to run since the call
# began, and a pending KeyboardInterrupt would be raised there, and lost.
_handoffs: deque[weakref.ref[Handoff]] = deque()


def _remember(handoff: Handoff) -> None:
    with _kept_lock:
        _handoffs.append(weakref.ref(handoff))
        for _ in range(2):  # dead references are removed faster than new ones are added
            held = _handoffs.popleft()
            if held() is not None:
                _handoffs.append(held)


class SharedCache:
    """The shared cache of all compile()s of one code object with one backend and its options."""

    def __init__(self, code: CodeType, spec: Any = None) -> None:
        self.code, self.spec = code, spec  # kept alive, so that no other object gets their ids
        self.store = _C.new_store()


_all_shared: weakref.WeakValueDictionary[Any, SharedCache] = weakref.WeakValueDictionary()

# The hand-offs hold them; beyond that, the most recently used are kept: `compile(f)(x)` in a loop is compiled once.
_kept: OrderedDict[Any, SharedCache] = OrderedDict()
_MOST_KEPT = 64
_kept_lock = threading.RLock()  # the garbage collector may run a finalizer that compiles


def _after_fork() -> None:
    """In a forked child: other threads, which may have been tracing or holding the lock, do not exist."""
    global _kept_lock
    _kept_lock = threading.RLock()
    _C.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _shared(function: FunctionType, backend: backends.Backend, fullgraph: bool, spec: Any) -> SharedCache:
    key = id(function.__code__), backend.key, fullgraph, id(spec)
    with _kept_lock:
        found = _all_shared.get(key)
        if found is None:
            found = _all_shared[key] = SharedCache(function.__code__, spec)
        _kept[key] = found
        _kept.move_to_end(key)
        oldest = _kept.popitem(last=False) if len(_kept) > _MOST_KEPT else None
    del oldest  # finalizers run without the lock
    return found


def _twin(function: FunctionType) -> FunctionType:
    """A copy of the function, so that a call needs no wrapper frame."""
    twin = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks a function, a module or a class to run without compilation, for Alternator and for TorchDynamo. Also a decorator.

    A call of it in a compiled function is a graph break. With `recursive`, the functions that it calls run without compilation too,
    unless they were compiled explicitly; otherwise they are compiled, each with its own graphs.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    fn = _innermost(fn)
    if not callable(fn):
        raise TypeError(f"alternator.disable needs something that can be called, not {fn!r}")
    if isinstance(fn, type):
        setattr(fn, "__call__", disable(fn.__call__, recursive, reason=reason))  # noqa: B010
        return fn
    if isinstance(fn, MethodType) and isinstance(fn.__func__, FunctionType):
        return MethodType(disable(fn.__func__, recursive, reason=reason), fn.__self__)
    target: Callable[..., Any] = fn
    marked: Any = _twin(target) if isinstance(target, FunctionType) else _caller(target)
    functools.update_wrapper(marked, target)
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = reason
    marked._torchdynamo_disable_recursive = recursive
    marked._torchdynamo_orig_callable = target
    marked._torchdynamo_wrapper_id = id(marked)
    if isinstance(fn, torch.nn.Module):
        return view_of(fn, marked, functools.partial(disable, recursive=recursive, reason=reason))
    return marked


def is_compiling() -> bool:
    """True while a program is traced."""
    return False  # a traced call is answered by the tracer


_C.mark_functions(breaks.graph_break, is_compiling, breaks.__dict__)


def run(fn: Any = None) -> Any:
    """A callable that uses the existing entries of fn and compiles nothing: a call that matches no entry runs eagerly. Also a
    decorator. fn may be compiled or not; entries of any compile() of the same function are used."""
    if fn is None:
        return run
    model = _innermost(fn)
    function, self = _target(model)
    compiled = _C.compile(function, self, None, False, 0, None, True, None, _is_object(model))
    if isinstance(model, torch.nn.Module):
        return view_of(model, compiled, run)
    return compiled


class Compiling:
    """The result of compiling(). It is reentrant and reusable."""

    def __init__(self, options: dict[str, Any]) -> None:
        def nothing() -> None:
            pass

        self._compiled = _compile(nothing, isolate_recompiles=True, **options)

    def __enter__(self) -> None:
        if isinstance(self._compiled, _C.Compiled):
            _entered.append(self)
            _C.begin_interception(self._compiled)

    def __exit__(self, *_: object) -> None:
        if isinstance(self._compiled, _C.Compiled):
            _C.end_interception(self._compiled)
            _entered.remove(self)


_entered: list[Compiling] = []  # kept alive until they are exited


def compiling(
    *,
    dynamic: bool | None = None,
    backend: str | Compiler | None = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Compiling:
    """A context manager: Python functions that are called inside, on this thread, are compiled where they work on tensors, each with
    its own graphs. The body of the with statement itself runs eagerly. The entries are used again when the same object is entered again."""
    return Compiling({"dynamic": dynamic, "backend": backend, "mode": mode, "options": options})


def reset() -> None:
    """Drops all entries and resets all counters."""
    _C.reset()
    with _kept_lock:
        _kept.clear()
        stores = [shared.store for shared in _all_shared.values()]
        handoffs = list(_handoffs)
    for store in stores:  # also those whose users are unreachable but not collected yet
        _C.clear_store(store)
    logs.repeated.flush()
    for held in handoffs:
        if handoff := held():
            handoff.backend.reset()


reset._torchdynamo_disable = True  # type: ignore[attr-defined]  # a graph break in a compiled function


def counters() -> dict[str, Any]:
    """Counts since the last reset: calls, hits, traces, graphs, eager calls, breaks by reason."""
    result: dict[str, Any] = _C.counters()
    return result

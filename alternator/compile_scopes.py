"""State around a compilation by a backend, and around what it returns: held, restored, or kept from the program."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ._load import load_core
from .refusals import is_refusal

_Flags = load_core().fake.Flags


def uses_cuda() -> bool:
    is_initialized: Callable[[], bool] = torch.cuda.is_initialized
    return is_initialized()


def _torch_rng_state() -> torch.Tensor:
    """torch holds the lock of its generator while it makes the tensor. A collection then could run a finalizer, and another thread
    with it, which would wait for the lock with the GIL."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return torch.get_rng_state()
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def state_kept() -> Iterator[None]:
    """A backend may draw random numbers, switch modes and raise the recursion limit (Inductor does): all of it is restored."""
    python_rng, torch_rng = random.getstate(), _torch_rng_state()
    device_rng = torch.cuda.get_rng_state_all() if uses_cuda() else None
    grad, flags = torch.is_grad_enabled(), _Flags.now()
    depth = sys.getrecursionlimit()
    key = torch._C._TorchDispatchModeKey.FAKE
    fake_mode = torch._C._get_dispatch_mode(key)
    functorch = torch._C._functorch
    transforms = functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        # A compiler has run the graph, which failed between a node that enters a transform and the one that leaves it.
        if functorch.get_dynamic_layer_stack_depth() > transforms:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(transforms)
        # A KeyboardInterrupt may have been raised while FakeTensorMode was entered or left.
        if torch._C._get_dispatch_mode(key) is not fake_mode:
            torch._C._unset_dispatch_mode(key)
            if fake_mode is not None:
                torch._C._set_dispatch_mode(fake_mode)
        if sys.getrecursionlimit() != depth:
            sys.setrecursionlimit(depth)
        random.setstate(python_rng)
        torch.set_rng_state(torch_rng)
        if device_rng is not None:
            torch.cuda.set_rng_state_all(device_rng)
        torch._C._set_grad_enabled(grad)
        if flags is not None:
            flags.apply()  # flags that nodes of a graph have set before one of them failed


@contextlib.contextmanager
def compile_lock_held() -> Iterator[None]:
    """The lock that TorchDynamo holds while a torch backend compiles."""
    from torch._dynamo.convert_frame import compile_lock

    with compile_lock:
        yield


@contextlib.contextmanager
def differentiable_lstm() -> Iterator[None]:
    """torch's decomposition uses oneDNN's layer, which is for inference only, unless the *input* requires a gradient. TorchDynamo
    never captures an LSTM; where one is captured, the weights count too."""
    from torch._decomp import decompositions

    select = getattr(decompositions, "select_one_layer_lstm_function", None)
    if select is None:
        yield
        return

    def stricter(given: Any, hidden: Any, params: Any) -> Any:
        learns = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in itertools.chain(hidden, *params) if isinstance(tensor, torch.Tensor)
        )
        return decompositions.one_layer_lstm if learns else select(given, hidden, params)

    decompositions.select_one_layer_lstm_function = stricter
    try:
        yield
    finally:
        decompositions.select_one_layer_lstm_function = select


def backward_compiled_early() -> contextlib.AbstractContextManager[None]:
    """AOTAutograd compiles the backward pass together with the forward pass: what its compiler assumes about symbols is known then."""
    import torch._functorch.config as functorch

    patched: contextlib.AbstractContextManager[None] = functorch.patch(force_non_lazy_backward_lowering=True)
    return patched


@contextlib.contextmanager
def warnings_held() -> Iterator[None]:
    """Warnings that torch issues while it compiles are shown afterwards, and not at all for a graph that it rejects. Like
    warnings.catch_warnings(), but the filters are unchanged, and so are the warnings of other threads."""
    module: Any = warnings
    thread = threading.get_ident()
    before = module.showwarning, module._showwarnmsg_impl
    held: list[Any] = []

    def hold(message: Any) -> None:
        show, show_impl = before
        if threading.get_ident() == thread:
            held.append(message)
        elif show is module._showwarning_orig:
            show_impl(message)
        else:
            show(message.message, message.category, message.filename, message.lineno, message.file, message.line)

    module.showwarning, module._showwarnmsg_impl = module._showwarning_orig, hold
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        module.showwarning, module._showwarnmsg_impl = before
        if not is_refusal(failure):
            for message in held:
                module._showwarnmsg(message)


def forget_tensors(fake_mode: Any) -> None:
    """Clears the weak references of a mode that the compiled code keeps alive: torch.utils.swap_tensors() rejects tensors with any."""
    if fake_mode is None:
        return
    describer = fake_mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.clear()
    describer.lookup_storage.clear()

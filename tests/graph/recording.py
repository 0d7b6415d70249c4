"""Records plain Python programs for tests: no interpreter of ours is at work, only fakes and the recorder.

What the tracer will do at the CALL opcode is done here by patching a few names of torch for the time of a recording.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

import alternator

graph = alternator._C.graph


class Recorded:
    """A program and the real tensors that are its inputs."""

    def __init__(self, program: Any, paths: dict[int, str]):
        self.program = program
        self.paths = paths

    @property
    def names(self) -> list[str]:
        return [node["name"] for node in self.program.nodes if node["live"]]

    @property
    def inputs(self) -> list[torch.Tensor]:
        return [source for _, source in self.program.inputs]

    def replay(self, mapping: dict[int, torch.Tensor] | None = None) -> Any:
        return self.program.replay(*self._inputs(mapping))

    def _inputs(self, mapping: dict[int, torch.Tensor] | None) -> list[torch.Tensor]:
        return [mapping[id(t)] if mapping else t for t in self.inputs]

    def to_fx(self, **options: Any) -> torch.fx.GraphModule:
        return self.program.to_fx(module_paths=self.paths, **options)

    def run_fx(self, module: Any, mapping: dict[int, torch.Tensor] | None = None) -> Any:
        return self.program.unflatten(module(*self._inputs(mapping)))


def _swaps(root: nn.Module) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Every place in a module that holds a tensor, and how a user would write it."""
    for path, module in root.named_modules():
        prefix = "L['self']" + "".join(f"._modules['{part}']" for part in path.split(".") if part)
        for kind in ("_parameters", "_buffers"):
            for name in getattr(module, kind):
                yield getattr(module, kind), name, f"{prefix}.{kind}['{name}']"
        for name, value in module.__dict__.items():
            if isinstance(value, torch.Tensor):
                yield module.__dict__, name, f"{prefix}.{name}"


def _reals(modules: list[nn.Module]) -> list[tuple[dict[str, Any], str, str, torch.Tensor]]:
    swaps = [swap for module in modules for swap in _swaps(module)]
    return [(place, name, label, place[name]) for place, name, label in swaps if place[name] is not None]


@contextlib.contextmanager
def _faked(reals: list[tuple[dict[str, Any], str, str, torch.Tensor]], recorder: Any) -> Iterator[None]:
    try:
        for place, name, label, real in reals:
            place[name] = recorder.fake_of(real, label)
        yield
    finally:
        for place, name, _, real in reals:
            place[name] = real


@contextlib.contextmanager
def _seen_calls(recorders: list[Any]) -> Iterator[None]:
    """Calls that torch does not show to modes, and the modules that run, are shown to the last of the recorders."""
    module_call = nn.Module.__call__
    function = torch.autograd.Function
    apply = function.__dict__["apply"]
    manual_seed, has_torch_function = torch.manual_seed, torch.overrides.has_torch_function

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        recorder = recorders[-1]
        recorder.enter_module(self)
        try:
            return module_call(self, *args, **kwargs)
        finally:
            recorder.leave_module()

    nn.Module.__call__ = call
    function.apply = classmethod(lambda cls, *a, **k: recorders[-1].call(apply.__get__(None, cls), *a, **k))
    torch.manual_seed = lambda seed: recorders[-1].call(manual_seed, seed)
    # Modules ask this to choose a fast path; eager's answer is no.
    torch.overrides.has_torch_function = lambda args: False
    try:
        yield
    finally:
        nn.Module.__call__ = module_call
        function.apply = apply
        torch.manual_seed = manual_seed
        torch.overrides.has_torch_function = has_torch_function


def record(
    fn: Callable[..., Any], *args: Any, modules: tuple[nn.Module, ...] = (), lines: bool = True, **kwargs: Any
) -> Recorded:
    own = [fn] if isinstance(fn, nn.Module) else []
    target = fn.forward if own else fn
    recorder = graph.Recorder(lines=lines)
    try:
        bound = inspect.signature(target).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {f"arg{i}": arg for i, arg in enumerate(args)} | kwargs
    for name, value in bound.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                recorder.fake_of(leaf, f"L['{name}']{pytree.keystr(path)}")
    fake_args, fake_kwargs = pytree.tree_map_only(torch.Tensor, lambda t: recorder.fake_of(t, None), (args, kwargs))
    paths = {}
    for module in [*own, *modules]:
        for path, child in module.named_modules():
            paths[id(child)] = "L['self']" + (f".{path}" if path else "")
    with torch.random.fork_rng(), _faked(_reals([*own, *modules]), recorder), _seen_calls([recorder]):
        with recorder:
            result = fn(*fake_args, **fake_kwargs)
        program = recorder.finish(result)
    return Recorded(program, paths)


@contextlib.contextmanager
def recording_again(module: nn.Module, x: torch.Tensor) -> Iterator[Callable[[], Any]]:
    """A function that records the module and nothing else: a tracer would find its tensors and calls by itself."""
    reals = _reals([module])
    recorders: list[Any] = []

    def run() -> Any:
        recorder = graph.Recorder()
        recorders[:] = [recorder]
        fake = recorder.fake_of(x, "L['x']")
        with _faked(reals, recorder), recorder:
            result = module(fake)
        return recorder.finish(result)

    with _seen_calls(recorders):
        yield run


# ---- comparing with eager


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's elements, in order: zeros of two signs differ, and a NaN equals itself."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.flatten().view(torch.uint8).cpu().numpy().tobytes()


def facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What of a real tensor a recording must leave alone."""
    return (
        tensor.dtype,
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.storage_offset(),
        tensor.data_ptr(),
        tensor.requires_grad,
        tensor.grad_fn,
        id(tensor.grad) if tensor.is_leaf else None,
        tensor._version,
        bits(tensor),
    )


def same(a: Any, b: Any) -> None:
    """Equal bit by bit, in structure, types, dtypes, strides and autograd state."""
    flat_a, spec_a = pytree.tree_flatten(a)
    flat_b, spec_b = pytree.tree_flatten(b)
    assert spec_a == spec_b
    for x, y in zip(flat_a, flat_b, strict=True):
        if not isinstance(x, torch.Tensor):
            assert type(x) is type(y)
            assert x == y
            continue
        assert (x.dtype, x.shape, x.stride(), x.device, x.requires_grad) == (
            y.dtype,
            y.shape,
            y.stride(),
            y.device,
            y.requires_grad,
        )
        assert type(x.grad_fn) is type(y.grad_fn)
        if bits(x) != bits(y):
            torch.testing.assert_close(x.detach(), y.detach(), rtol=0, atol=0, equal_nan=True)
            raise AssertionError("equal, but for the bits of a zero or a NaN")


def _tensors(modules: list[nn.Module], args: Any) -> list[torch.Tensor]:
    seen = {}
    for module in modules:
        for place, name, _ in _swaps(module):
            if place[name] is not None:
                seen[id(place[name])] = place[name]
    for leaf in pytree.tree_leaves(args):
        if isinstance(leaf, torch.Tensor):
            seen[id(leaf)] = leaf
    return list(seen.values())


def _backward(result: Any) -> None:
    outputs = [
        t
        for t in pytree.tree_leaves(result)
        if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn is not None
    ]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])


def check(
    fn: Callable[..., Any],
    *args: Any,
    modules: tuple[nn.Module, ...] = (),
    backward: bool = True,
    seed: int = 0,
    **kwargs: Any,
) -> Recorded:
    """Records `fn` and compares two replays and the FX graph with eager: results, gradients, inputs and buffers."""
    own = [*([fn] if isinstance(fn, nn.Module) else []), *modules]
    before = [facts(t) for t in _tensors(own, (args, kwargs))]
    recorded = record(fn, *args, modules=modules, **kwargs)
    for tensor, then in zip(_tensors(own, (args, kwargs)), before, strict=True):
        assert facts(tensor) == then, "a recording touched a real tensor"
    module = recorded.to_fx()
    module.graph.lint()

    def run(call: Callable[[Any, dict[int, torch.Tensor]], Any]) -> tuple[Any, list[Any]]:
        originals = _tensors(own, (args, kwargs))
        f, m, a, k = copy.deepcopy((fn, modules, args, kwargs))
        copies = _tensors([*([f] if isinstance(f, nn.Module) else []), *m], (a, k))
        mapping = {id(x): y for x, y in zip(originals, copies, strict=True)}
        torch.manual_seed(seed)
        result = call((f, a, k), mapping)
        if backward:
            _backward(result)
        return result, [(t, t.grad, torch.rand(1)) for t in copies]

    eager = run(lambda fresh, _: fresh[0](*fresh[1], **fresh[2]))
    for _ in range(2):
        same(run(lambda _, mapping: recorded.replay(mapping)), eager)
    same(run(lambda _, mapping: recorded.run_fx(module, mapping)), eager)
    return recorded

"""What a program can observe of objects, as nested tuples by which two runs are compared.

Identity is part of it: an object gets a label when it is first met, over all snapshots of one observer, so `a is b` in one
run and not in the other shows. The observer keeps what it has labeled alive: an address never means two objects.
"""

from __future__ import annotations

import collections
import decimal
import enum
import functools
import hashlib
import importlib.util
import inspect
import random
import re
import types
import weakref
from collections.abc import Callable, ItemsView, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range))
TORCH_ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
ITERATORS = (
    *(
        type(iter(c))
        for c in ([], (), {}, set(), "", b"", range(0), {}.keys(), {}.values(), {}.items(), collections.deque())
    ),
    *(type(reversed(c)) for c in ([], (), {})),
    *(enumerate, zip, map, filter, type(iter(np.zeros(1)))),
)
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
CLASS_NAMES_LEFT_OUT = {
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__annotations__",
    "_abc_impl",
    "__slotnames__",
}
# Marks that front ends leave on modules and functions.
MARKS = ("_dynamo", "_torchdynamo", "_compiled_call_impl", "_alternator")
# What a compiler does not keep: how often a tensor was written to, how it was computed, what shares memory as a view, the last digit
# of a sum, and whether a gradient of zeros is one.
sees_histories = True
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def foreign_frames() -> tuple[str, ...]:
    """Beginnings of the files of frames that are not the program's: the harness, the front end, the graph it calls."""
    torch_home = Path(torch.__file__).parent
    own = importlib.util.find_spec("alternator")
    places = [
        torch_home / "_dynamo",
        torch_home / "fx",
        Path(__file__).parent / "harness.py",
        Path(__file__).parent / "frontends.py",
    ]
    return (
        *(str(place) for place in places),
        *(own.submodule_search_locations or () if own else ()),
        "<eval_with_key>",
    )


FOREIGN_FRAMES = foreign_frames()

Snapshot = Any  # str | tuple[Snapshot, ...]


def name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def digest(data: bytes) -> str:
    return hashlib.blake2s(data, digest_size=8).hexdigest()


def traceback_lines(traceback: types.TracebackType | None) -> tuple[str, ...]:
    lines = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        path = code.co_filename
        if not path.startswith(FOREIGN_FRAMES):
            lines.append(f"{Path(path).name}:{traceback.tb_lineno} in {code.co_name}")
        traceback = traceback.tb_next
    return tuple(lines)


class Observer:
    """Takes snapshots. `home` says whose classes and functions are looked into: those of this file's programs."""

    def __init__(self, home: Callable[[str], bool]) -> None:
        self.home = home
        self.labels: dict[int, int] = {}
        self.kept: list[Any] = []
        self.storages: dict[int, int] = {}
        self.memory: dict[int, int] = {}  # address -> label: tensors and arrays may have the same
        self.seen: set[int] = set()
        self.plans: dict[type, Plan] = {}
        self.blind: set[int] = set()  # ids of objects that are the harness's own

    def __call__(self, value: Any) -> Snapshot:
        """One snapshot: within it an object is written out once."""
        self.seen = set()
        with torch._C.DisableTorchFunctionSubclass():
            return self.see(value)

    def label(self, value: Any) -> int:
        found = self.labels.get(id(value))
        if found is None:
            found = self.labels[id(value)] = len(self.labels)
            self.kept.append(value)
        return found

    def all(self, values: Iterable[Any]) -> tuple[Snapshot, ...]:
        return tuple([self.see(value) for value in values])

    def see(self, value: Any) -> Snapshot:
        cls = type(value)
        if cls in ATOMS:
            return f"{cls.__name__} {value!r}"
        found = self.labels.get(id(value))
        if found is not None and id(value) in self.seen:
            return ("again", found)
        if id(value) in self.blind:
            return "harness"
        plan = self.plans.get(cls) or PLANS.get(cls) or self.plan(cls)
        if plan.short is not None:
            made = plan.short(self, value)
            if made is not None:
                return made
        label = self.label(value) if found is None else found
        self.seen.add(id(value))
        own = plan.kind(self, value) if plan.kind else ()
        if plan.exact:
            return (plan.name, label, *own)
        return (plan.name, label, *own, *self.attributes(value, cls, plan))

    def plan(self, cls: type) -> Plan:
        """Plans for the program's own classes are not kept: their number has no end."""
        plans = self.plans if self.home(cls.__module__) else PLANS
        made = plans[cls] = Plan(cls)
        return made

    def attributes(self, value: Any, cls: type, plan: Plan) -> tuple[Snapshot, ...]:
        """Instance dict and slots, and the class itself if it is the program's."""
        parts: list[Snapshot] = []
        if plan.has_dict:
            try:
                own = object.__getattribute__(value, "__dict__")
            except AttributeError:
                own = {}
            if isinstance(own, dict):
                # Which dict it is can be observed, but only once somebody asked for it: its label is not taken.
                parts.append(("vars", *((self.see(k), self.see(v)) for k, v in list(own.items()) if not is_mark(k))))
        if self.home(cls.__module__):
            for name, member in plan.members:
                try:
                    parts.append((name, self.see(member.__get__(value))))
                except AttributeError:
                    parts.append((name, "unset"))
            parts.append(self.see(cls))
        return tuple(parts)

    # Values whose identity nobody counts on

    def see_repr(self, value: Any) -> Snapshot:
        return repr(value)

    def see_enum(self, value: enum.Enum) -> Snapshot:
        return f"{name_of(type(value))} {value!r}"

    def see_slice(self, value: slice) -> Snapshot:
        return ("slice", self.see(value.start), self.see(value.stop), self.see(value.step))

    def see_empty(self, value: tuple[Any, ...]) -> Snapshot:
        return None if value else "()"

    def see_method(self, value: Any) -> Snapshot:
        return ("method", value.__name__, self.see(value.__self__))

    def see_builtin(self, value: Any) -> Snapshot:
        owner = value.__self__
        return ("builtin", value.__qualname__, None if isinstance(owner, types.ModuleType) else self.see(owner))

    def see_module_object(self, value: types.ModuleType) -> Snapshot:
        return f"module {value.__name__}"

    def see_numpy_scalar(self, value: np.generic) -> Snapshot:
        return ("numpy scalar", str(value.dtype), value.tobytes())

    # ------------------------------------------------------------------------------------------------------ by kind

    def see_sequence(self, value: Any) -> tuple[Snapshot, ...]:
        iterate = next(base for base in type(value).__mro__ if base in (list, tuple, collections.deque)).__iter__
        extra = (value.maxlen,) if isinstance(value, collections.deque) else ()
        return (*self.all(iterate(value)), *extra)

    def see_dict(self, value: Any) -> tuple[Snapshot, ...]:
        # Looking a key up would run its __hash__.
        ordered = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        items = list(ordered.items(value))
        if not sees_histories and ordered is not dict and all(type(key) is int for key, _ in items):
            items = list(enumerate(item for _, item in items))  # hooks: a compiler uses up numbers of handles too
        parts: list[Snapshot] = [(self.see(key), self.see(item)) for key, item in items]
        if isinstance(value, collections.defaultdict):
            parts.append(("default_factory", self.see(value.default_factory)))
        return tuple(parts)

    def see_set(self, value: Any) -> tuple[Snapshot, ...]:
        elements = list(set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value))
        if all(type(element) in ATOMS for element in elements):
            return self.all(elements)  # iteration order counts
        # Other elements lie in the order of their addresses, which no two runs share.
        return self.all(sorted(elements, key=lambda element: repr(Observer(self.home)(element))))

    def see_atom_subclass(self, value: Any) -> tuple[Snapshot, ...]:
        base = next(base for base in type(value).__mro__ if base in ATOMS)
        return (base.__repr__(value),)

    def see_exception(self, value: BaseException) -> tuple[Snapshot, ...]:
        try:
            text = str(value)
        except Exception as error:
            text = f"its str() raises {type(error).__name__}"
        notes = getattr(value, "__notes__", ())
        lines = traceback_lines(value.__traceback__)
        if isinstance(value, UnboundLocalError) and lines:
            # Which of two neighboring lines CPython 3.11 names depends on how warm the code is (superinstructions).
            lines = (*lines[:-1], re.sub(r":\d+", "", lines[-1]))
        return (
            self.without_addresses(text),
            ("args", *([self.see(argument) for argument in value.args] if not has_address(text) else [])),
            ("cause", self.see(value.__cause__)),
            ("context", self.see(value.__context__), value.__suppress_context__),
            ("traceback", *lines),
            ("notes", *self.all(notes)),
            *((("group", *self.all(value.exceptions)),) if isinstance(value, BaseExceptionGroup) else ()),
        )

    @staticmethod
    def without_addresses(text: str) -> str:
        return ADDRESS.sub("0x...", text)

    def see_function(self, value: types.FunctionType) -> tuple[Snapshot, ...]:
        parts: tuple[Snapshot, ...] = (value.__qualname__,)
        if not self.home(value.__module__ or ""):
            return parts
        return (
            *parts,
            ("cells", *self.all(value.__closure__ or ())),
            ("defaults", self.see(value.__defaults__), self.see(value.__kwdefaults__)),
            ("vars", *((name, self.see(item)) for name, item in vars(value).items() if not is_mark(name))),
        )

    def see_class(self, value: type) -> tuple[Snapshot, ...]:
        if not self.home(value.__module__) or issubclass(value, enum.Enum):
            return (name_of(value),)
        return (
            name_of(value),
            ("bases", *self.all(value.__bases__)),
            *(
                (k, self.see(v))
                for k, v in list(vars(value).items())
                if k not in CLASS_NAMES_LEFT_OUT and not is_mark(k)
            ),
        )

    def see_cell(self, value: types.CellType) -> tuple[Snapshot, ...]:
        try:
            return (self.see(value.cell_contents),)
        except ValueError:
            return ("empty",)

    def see_partial(self, value: functools.partial[Any]) -> tuple[Snapshot, ...]:
        return (self.see(value.func), self.see(value.args), self.see(value.keywords))

    def see_property(self, value: property) -> tuple[Snapshot, ...]:
        return self.all((value.fget, value.fset, value.fdel))

    def see_wrapped(self, value: Any) -> tuple[Snapshot, ...]:
        return (self.see(value.__func__),)

    def see_generator(self, value: types.GeneratorType[Any, Any, Any]) -> tuple[Snapshot, ...]:
        frame = value.gi_frame
        if frame is None:
            return (value.__qualname__, "ended")
        return (value.__qualname__, inspect.getgeneratorstate(value), frame.f_lineno, self.see_locals(frame))

    def see_coroutine(self, value: types.CoroutineType[Any, Any, Any]) -> tuple[Snapshot, ...]:
        frame = value.cr_frame
        if frame is None:
            return (value.__qualname__, "ended")
        return (value.__qualname__, inspect.getcoroutinestate(value), frame.f_lineno, self.see_locals(frame))

    def see_locals(self, frame: types.FrameType) -> Snapshot:
        return tuple((name, self.see(item)) for name, item in sorted(frame.f_locals.items()))

    def see_iterator(self, value: Any) -> tuple[Snapshot, ...]:
        try:
            return tuple(map(self.see_made, value.__reduce__()[1:], value.__reduce__()[1:]))
        except TypeError:  # a dict that changed under its iterator
            return ("cannot go on",)

    def see_made(self, one: Any, other: Any) -> Snapshot:
        """What was asked for twice: containers that were made for the answer have no identity."""
        if one is other or type(one) not in (list, tuple):
            return self.see(one)
        return (type(one).__name__, *map(self.see_made, one, other))

    def see_view(self, value: Any) -> tuple[Snapshot, ...]:
        if isinstance(value, ItemsView):  # pairs are made anew each time
            return tuple((self.see(k), self.see(v)) for k, v in value)
        return self.all(value)

    def see_weakref(self, value: weakref.ref[Any]) -> tuple[Snapshot, ...]:
        return (self.see(value()),)

    def see_proxy(self, value: types.MappingProxyType[Any, Any]) -> tuple[Snapshot, ...]:
        return tuple((self.see(k), self.see(v)) for k, v in value.items())

    def see_array(self, value: np.ndarray[Any, Any]) -> tuple[Snapshot, ...]:
        contents = self.all(value.ravel().tolist()) if value.dtype == object else value.tobytes()
        owner: Any = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        start = owner.__array_interface__["data"][0]
        place = (self.memory_at(start), value.__array_interface__["data"][0] - start) if value.nbytes else None
        flags = ("writeable" if value.flags.writeable else "read-only", "own" if value.flags.owndata else "view")
        return (str(value.dtype), value.shape, value.strides, place, flags, contents)

    def memory_at(self, address: int) -> int | None:
        return self.memory.setdefault(address, len(self.memory)) if address else None

    def see_text(self, value: Any) -> tuple[Snapshot, ...]:
        return (repr(value),)

    def see_random(self, value: random.Random) -> tuple[Snapshot, ...]:
        return (digest(repr(random.Random.getstate(value)).encode()),)

    def see_torch_generator(self, value: torch.Generator) -> tuple[Snapshot, ...]:
        return (digest(value.get_state().numpy().tobytes()),)

    def see_tensor(self, value: torch.Tensor) -> tuple[Snapshot, ...]:
        if is_lazy(value):
            return "uninitialized", str(value.dtype), str(value.device), value.requires_grad
        parts: list[Snapshot] = [
            str(value.dtype), str(value.device), ("shape", *value.shape),
            "requires_grad" if value.requires_grad else "no grad", "leaf" if value.is_leaf else "not leaf",
            "inference" if value.is_inference() else f"version {value._version if sees_histories else '?'}",
            "view" if value._is_view() and sees_histories else "no view",
        ]  # fmt: skip
        if value.layout is not torch.strided:
            return (*parts, str(value.layout), self.see(value.detach().to_dense()))
        parts.append(
            (
                "strides",
                *(stride if size > 1 else None for size, stride in zip(value.shape, value.stride(), strict=True)),
            )
        )
        parts.append(f"offset {value.storage_offset()}")
        storage = value.untyped_storage()
        known = self.storages.get(storage._cdata)
        if known is None:
            known = self.storages[storage._cdata] = len(self.storages)
            self.kept.append(storage)
        parts.append(f"storage {known}")
        parts.append(("memory", self.memory_at(storage.data_ptr() if storage.nbytes() else 0)))
        parts.append(("values", values_of(value)))
        if sees_histories:
            parts.append(("grad_fn", type(value.grad_fn).__name__))
        if value.is_leaf or value.retains_grad:
            grad = value.grad if sees_histories or value.grad is None or value.grad.any() else None
            parts.append(("grad", self.see(grad)))
        parts.append(("hooks", len(value._backward_hooks or ())))
        if type(value) is torch.Tensor and any(not is_mark(k) for k in value.__dict__):
            parts.append(("vars", *((k, self.see(v)) for k, v in value.__dict__.items() if not is_mark(k))))
        return tuple(parts)


def is_mark(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(MARKS)


def has_address(text: str) -> bool:
    return ADDRESS.search(text) is not None


def values_of(tensor: torch.Tensor) -> Any:
    """The bits of its elements; short ones as readable numbers too. One NaN is like another: the text of a graph has but one."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        flat = flat.masked_fill(flat.isnan(), float("nan"))
        if not sees_histories:
            flat = torch.tensor([float(f"{number:.4g}") for number in flat.tolist()])
    raw = (flat if flat.dtype == torch.bool else flat.view(torch.uint8)).numpy().tobytes() if flat.numel() else b""
    if flat.numel() <= 16:
        return (str(flat.tolist()), digest(raw))
    return digest(raw)


KINDS: dict[type, Callable[[Observer, Any], tuple[Snapshot, ...]]] = {
    list: Observer.see_sequence, tuple: Observer.see_sequence, collections.deque: Observer.see_sequence,
    dict: Observer.see_dict, set: Observer.see_set, frozenset: Observer.see_set,
    BaseException: Observer.see_exception, types.FunctionType: Observer.see_function, type: Observer.see_class,
    types.CellType: Observer.see_cell, functools.partial: Observer.see_partial, property: Observer.see_property,
    staticmethod: Observer.see_wrapped, classmethod: Observer.see_wrapped,
    types.GeneratorType: Observer.see_generator, types.CoroutineType: Observer.see_coroutine,
    weakref.ref: Observer.see_weakref, types.MappingProxyType: Observer.see_proxy, np.ndarray: Observer.see_array,
    decimal.Decimal: Observer.see_text, decimal.Context: Observer.see_text,
    random.Random: Observer.see_random, torch.Generator: Observer.see_torch_generator, torch.Tensor: Observer.see_tensor,
    **dict.fromkeys(ITERATORS, Observer.see_iterator), **dict.fromkeys(VIEWS, Observer.see_view),
    **dict.fromkeys((int, float, complex, str, bytes), Observer.see_atom_subclass),
}  # fmt: skip


SHORT: dict[type, Callable[[Observer, Any], Snapshot]] = {
    **dict.fromkeys((*TORCH_ATOMS, torch.Size), Observer.see_repr), enum.Enum: Observer.see_enum, slice: Observer.see_slice,
    tuple: Observer.see_empty,
    types.MethodType: Observer.see_method, types.MethodWrapperType: Observer.see_method, types.BuiltinFunctionType: Observer.see_builtin,
    type(re.compile("").match): Observer.see_builtin,
    types.ModuleType: Observer.see_module_object, np.generic: Observer.see_numpy_scalar, np.dtype: Observer.see_repr,
}  # fmt: skip


try:
    import optree
except ImportError:
    pass
else:
    KINDS[optree.PyTreeSpec] = lambda _, spec: (repr(spec),)


HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


class Plan:
    """How objects of one class are looked at."""

    def __init__(self, cls: type) -> None:
        self.name = name_of(cls)
        self.short = next((SHORT[base] for base in cls.__mro__ if base in SHORT), None)
        base = next((base for base in cls.__mro__ if base in KINDS), object)
        self.kind = KINDS.get(base)
        self.exact = cls is base
        self.has_dict = bool(cls.__dictoffset__)
        self.members = [
            (name, member)
            for owner in cls.__mro__
            for name, member in vars(owner).items()
            if isinstance(member, types.MemberDescriptorType) and owner.__flags__ & HEAP_TYPE
        ]


PLANS: dict[type, Plan] = {}


def difference(wanted: Snapshot, got: Snapshot, path: str = "") -> str | None:
    """Where two snapshots part, in words; None if nowhere."""
    if wanted == got:
        return None
    if isinstance(wanted, tuple) and isinstance(got, tuple) and wanted[:1] == got[:1]:
        head = wanted[0] if wanted and isinstance(wanted[0], str) else ""
        here = f"{path}/{head}" if head else path
        for position, (a, b) in enumerate(zip(wanted, got, strict=False)):
            found = difference(a, b, here if isinstance(a, tuple) and isinstance(b, tuple) else f"{here}[{position}]")
            if found:
                return found
        return f"{here}: {len(wanted)} parts wanted, {len(got)} got: {short(wanted)} / {short(got)}"
    if isinstance(wanted, tuple) and isinstance(got, tuple) and wanted and isinstance(wanted[0], tuple):
        for a, b in zip(wanted, got, strict=False):
            found = difference(a, b, path)
            if found:
                return found
    return f"{path}: wanted {short(wanted)}, got {short(got)}"


def short(value: Snapshot, limit: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."

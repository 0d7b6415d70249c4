"""What an operator gives in eager against what it gives on fakes: everything but the data must agree."""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

if "expecttest" not in sys.modules:  # torch's test database imports it, but does not use it here.
    try:
        import expecttest  # noqa: F401
    except ModuleNotFoundError:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        stand_in.assert_expected_inline = None  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from alternator._C import fake

DTYPES = (torch.float32, torch.int64, torch.complex64)
DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException)

# Outcomes of a sample, from best to worst.
MATCH = "match"
BOTH_DATA_DEPENDENT = "data-dependent"  # we say so, and FakeTensorMode can say no more
NO_SAMPLES = "no samples"  # not an operator of this device
OUTCOMES = (MATCH, BOTH_DATA_DEPENDENT, NO_SAMPLES, "unsupported", "stride", "autograd", "error", "wrong", "crash")


@dataclass
class Result:
    """The worst outcome over an operator's samples, and why."""

    name: str
    outcome: str = MATCH
    reason: str = ""
    samples: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: str, reason: str = "") -> None:
        self.samples += 1
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        if OUTCOMES.index(outcome) > OUTCOMES.index(self.outcome):
            self.outcome, self.reason = outcome, reason


def name_of(op: Any) -> str:
    variant = f".{op.variant_test_name}" if op.variant_test_name else ""
    return f"{op.name}{variant}"


def database() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def significant_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of dimensions with more than one element; the others never matter."""
    if tensor.numel() <= 1:
        return ()
    return tuple(stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)


def grad_fn_name(tensor: torch.Tensor) -> str:
    return "" if tensor.grad_fn is None else tensor.grad_fn.name()


def difference(eager: Any, traced: Any) -> tuple[str, str] | None:
    """The first difference between two results: (outcome, text)."""
    left, left_spec = tree_flatten(eager)
    right, right_spec = tree_flatten(traced)
    if left_spec != right_spec:
        return "wrong", f"structure {left_spec} became {right_spec}"
    worst: tuple[str, str] | None = None
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        if type(a) is not type(b):
            return "wrong", f"output {index}: type {type(a)} became {type(b)}"
        if not isinstance(a, torch.Tensor):
            if a != b and not (a != a and b != b):
                return "wrong", f"output {index}: {a!r} became {b!r}"
            continue
        if not fake.is_fake(b):
            return "wrong", f"output {index} is a real tensor"
        for what in ("shape", "dtype", "device", "layout"):
            if getattr(a, what) != getattr(b, what):
                return (
                    "wrong",
                    f"output {index}: {what} {getattr(a, what)} became {getattr(b, what)}",
                )
        facts: list[tuple[str, str, Callable[[torch.Tensor], Any]]] = [
            ("wrong", "is_conj", lambda t: t.is_conj()),
            ("wrong", "is_neg", lambda t: t.is_neg()),
            ("stride", "stride", significant_strides),
            ("stride", "storage_offset", lambda t: t.storage_offset()),
            ("stride", "is_contiguous", lambda t: t.is_contiguous()),
            ("autograd", "requires_grad", lambda t: t.requires_grad),
            ("autograd", "is_leaf", lambda t: t.is_leaf),
            ("autograd", "grad_fn", grad_fn_name),
            ("autograd", "is view", lambda t: t._is_view()),
        ]
        for outcome, what, fact in facts:
            if fact(a) != fact(b) and (worst is None or OUTCOMES.index(outcome) > OUTCOMES.index(worst[0])):
                worst = outcome, f"output {index}: {what} {fact(a)} became {fact(b)} {tuple(a.shape)}"
    return worst


def clone_inputs(value: Any) -> Any:
    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
            return leaf
        with torch.no_grad():
            twin = torch.empty(0, dtype=leaf.dtype, device=leaf.device).set_(
                leaf.untyped_storage().clone(), leaf.storage_offset(), leaf.shape, leaf.stride()
            )
        if leaf.is_conj():
            twin = twin.conj()
        if leaf.is_neg():
            twin = torch._neg_view(twin)
        return twin.requires_grad_(leaf.requires_grad)

    return tree_map(copy, value)


def fake_mode_says_data_dependent(call: Callable[..., Any], inputs: Any) -> bool:
    try:
        with FakeTensorMode() as mode:
            call(*tree_map(lambda t: mode.from_tensor(t) if isinstance(t, torch.Tensor) else t, inputs))
    except DATA_DEPENDENT:
        return True
    except BaseException as error:
        # FakeTensorMode wraps some of its own errors; an answer of any other kind is not a yes.
        return any(isinstance(cause, DATA_DEPENDENT) or wants_data(cause) for cause in causes(error))
    return False


def wants_data(error: BaseException) -> bool:
    """C++ code that reads a tensor's memory without asking the dispatcher."""
    return any(words in str(error) for words in ("Cannot access data pointer", "its data is not allocated yet"))


def causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def check_sample(call: Callable[..., Any], sample: Any, result: Result) -> None:
    inputs = (sample.input, sample.args, sample.kwargs)
    try:
        eager = call(*clone_inputs(inputs))
    except Exception:
        return  # not a sample of what the operator does
    session = fake.Session()
    try:
        fakes = tree_map(lambda t: session.fake_of(t) if isinstance(t, torch.Tensor) else t, inputs)
        with session:
            traced = call(*fakes)
    except Exception as error:
        if isinstance(error, fake.UnsupportedError):
            result.add("unsupported", str(error).split("\n")[0])
            return
        if not isinstance(error, fake.DataDependentError) and not wants_data(error):
            result.add("error", f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}")
            return
        agreed = fake_mode_says_data_dependent(call, clone_inputs(inputs))
        result.add(BOTH_DATA_DEPENDENT if agreed else "unsupported", str(error).split("\n")[0])
        return
    found = difference(eager, traced)
    if found is None:
        result.add(MATCH)
    else:
        result.add(*found)


def check_op(op: Any, dtypes: tuple[torch.dtype, ...] = DTYPES, samples: int = 15, device: str = "cpu") -> Result:
    """Runs an operator's samples of each dtype in eager and on fakes."""
    result = Result(name_of(op))

    def call(value: Any, args: Any, kwargs: Any) -> Any:
        return op(value, *args, **kwargs)

    for dtype in dtypes:
        if dtype not in op.supported_dtypes(device):
            continue
        requires_grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        torch.manual_seed(0)
        try:
            inputs = op.sample_inputs(device, dtype, requires_grad=requires_grad)
            # Sampling is lazy, and the seed must not depend on what ran in between.
            inputs = [sample for _, sample in zip(range(samples), inputs, strict=False)]
        except Exception as error:
            if not result.reason:
                result.reason = f"sampling {dtype}: {type(error).__name__}: {str(error).strip().splitlines()[:1]}"
            continue
        for sample in inputs:
            check_sample(call, sample, result)
    if result.samples == 0:
        result.outcome = NO_SAMPLES
    return result

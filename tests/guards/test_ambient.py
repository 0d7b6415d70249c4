"""The state around a call: every row is noticed, and put back it matches again."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from guard_trees import guards
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("a mode was called")


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("a mode was called")


@contextlib.contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic(warn_only: bool = False) -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def flag(owner: Any, name: str) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, not old)
    try:
        yield
    finally:
        setattr(owner, name, old)


@contextlib.contextmanager
def autocast_dtype() -> Iterator[None]:
    old = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        yield
    finally:
        torch.set_autocast_dtype("cpu", old)


@contextlib.contextmanager
def autocast_for_cuda() -> Iterator[None]:
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@contextlib.contextmanager
def autocast_cache() -> Iterator[None]:
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(True)


@contextlib.contextmanager
def functorch() -> Iterator[None]:
    torch._C._functorch._vmap_increment_nesting(2, "error")
    try:
        yield
    finally:
        torch._C._functorch._vmap_decrement_nesting()


@contextlib.contextmanager
def digits() -> Iterator[None]:
    old = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(5000)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(old)


STATES: dict[str, tuple[Callable[[], Any], str]] = {
    "no_grad": (torch.no_grad, "the grad mode is on, not off"),
    "inference_mode": (torch.inference_mode, "the "),
    "forward AD": (lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False), "forward-mode differentiation is on, not off"),
    "view replay": (lambda: torch.autograd._force_original_view_tracking(True), "view replay is off, not on"),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), "autocast is off, not on for cpu (BFloat16)"),
    "autocast for cuda": (autocast_for_cuda, "autocast is off, not on for cuda (Half)"),
    "autocast dtype": (autocast_dtype, "autocast is not as it was"),
    "autocast cache": (autocast_cache, "autocast is not as it was"),
    "default dtype": (default_dtype, "the default dtype is Float, not Double"),
    "default device": (lambda: torch.device("meta"), "the stack of torch-function modes is [], not [DeviceContext(meta)]"),
    "torch function off": (torch._C.DisableTorchFunction, "the state of __torch_function__ is enabled, not disabled"),
    "subclasses off": (torch._C.DisableTorchFunctionSubclass, "the state of __torch_function__ is enabled, not disabled for subclasses"),
    "function mode": (FunctionMode, "the stack of torch-function modes is [], not [FunctionMode]"),
    "dispatch mode": (DispatchMode, "the "),
    "functorch": (functorch, "the "),
    "saved-tensor hooks": (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), "the number of saved-tensor hooks is 0, not 1"
    ),
    "no saved-tensor hooks": (
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"), "whether saved-tensor hooks are allowed is on, not off"
    ),
    "deterministic": (deterministic, "use_deterministic_algorithms is off, not on"),
    "deterministic, warn only": (lambda: deterministic(True), "use_deterministic_algorithms is off, not on"),
    "fill": (
        lambda: flag(torch.utils.deterministic, "fill_uninitialized_memory"),
        "torch.utils.deterministic.fill_uninitialized_memory is on, not off",
    ),
    "cudnn deterministic": (lambda: flag(torch.backends.cudnn, "deterministic"), "torch.backends.cudnn.deterministic is off, not on"),
    "cudnn benchmark": (lambda: flag(torch.backends.cudnn, "benchmark"), "torch.backends.cudnn.benchmark is off, not on"),
    "anomaly": (lambda: torch.autograd.detect_anomaly(check_nan=True), "the anomaly mode is off, not on"),
    "digits": (digits, "sys.get_int_max_str_digits() is 4300, not 5000"),
    "anomaly without NaN check": (lambda: torch.autograd.detect_anomaly(check_nan=False), "the anomaly mode is off, not on"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STATES)
def test_a_state_is_noticed(name: str) -> None:
    enter, text = STATES[name]
    outside = guards.Ambient.capture()
    assert outside.matches()
    assert outside.mismatch() == ""
    with enter():
        assert not outside.matches()
        assert outside.mismatch().startswith(text), outside.mismatch()
        inside = guards.Ambient.capture()
        assert inside.matches()
        assert inside.texts
    assert outside.matches()
    assert not inside.matches()
    assert inside.mismatch()


@pytest.mark.filterwarnings("ignore")
def test_no_two_states_match() -> None:
    captured = {}
    for name, (enter, _) in STATES.items():
        with enter():
            captured[name] = guards.Ambient.capture()
    for name, (enter, _) in STATES.items():
        with enter():
            for other, state in captured.items():
                same = name == other
                if same and name in ("function mode", "dispatch mode"):
                    same = False  # another mode object
                assert state.matches() == same, (name, other)


@pytest.mark.filterwarnings("ignore")
def test_every_row_is_noticed_by_a_state() -> None:
    """Each row of the table is the only one that tells some state apart, or is named here."""
    if not guards.has_mutants:
        pytest.skip("this build has no switches (ALTERNATOR_MUTANTS)")
    rows = [name for name in guards.mutant_names() if name.startswith("ambient.")]
    # What another row notices too: inference mode switches the grad mode and keys as well, and so on.
    shared = {"ambient.inference_mode", "ambient.functorch_level", "ambient.included_keys", "ambient.excluded_keys",
              "ambient.dispatch_modes", "ambient.jit_tracing", "ambient.anomaly_check_nan", "ambient.deterministic_warn_only",
              "ambient.flags"}  # fmt: skip
    noticed = set()
    for row in rows:
        guards.set_mutant(row, True)
        try:
            outside = guards.Ambient.capture()
            for enter, _ in STATES.values():
                with enter():
                    if outside.matches():
                        noticed.add(row)
        finally:
            guards.set_mutant(row, False)
    assert set(rows) - noticed == shared


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_rows_that_share() -> None:
    """Those that the test above leaves out, each where nothing else differs."""
    with deterministic(warn_only=False):
        hard = guards.Ambient.capture()
    with deterministic(warn_only=True):
        assert hard.mismatch() == "whether deterministic algorithms only warn is off, not on"
    with torch.autograd.detect_anomaly(check_nan=True):
        checking = guards.Ambient.capture()
    with torch.autograd.detect_anomaly(check_nan=False):
        assert checking.mismatch() == "the NaN check of the anomaly mode is on, not off"
    first, second = DispatchMode(), DispatchMode()
    with first:
        one = guards.Ambient.capture()
        assert one.matches()
    with second:
        assert one.mismatch().startswith("the stack of torch-dispatch modes is ")
    with first:
        assert one.matches()


def test_jit_tracing_is_noticed() -> None:
    outside = guards.Ambient.capture()
    seen = []

    def traced(x: torch.Tensor) -> torch.Tensor:
        seen.append(outside.matches())
        return x + 1

    torch.jit.trace(traced, torch.ones(2), check_trace=False)
    assert seen == [False]


def test_a_device_context_is_known_by_its_device() -> None:
    with torch.device("meta"):
        state = guards.Ambient.capture()
    with torch.device("meta"):
        assert state.matches()
    with torch.device("cpu"):
        assert not state.matches()
    torch.set_default_device("meta")
    try:
        assert state.matches()
    finally:
        torch.set_default_device(None)
    assert not state.matches()


def test_a_mode_is_not_kept_alive() -> None:
    mode = FunctionMode()
    with mode:
        state = guards.Ambient.capture()
    reference = weakref.ref(mode)
    del mode
    gc.collect()
    assert reference() is None
    with FunctionMode():
        assert not state.matches()


def test_states_belong_to_threads() -> None:
    with torch.no_grad():
        state = guards.Ambient.capture()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(state.matches()))
        thread.start()
        thread.join()
    assert answers == [False]


def test_a_program_is_valid_in_its_state_only() -> None:
    from guard_trees import Tree

    program = Tree().slot().guard("kEquals", 1).program()
    assert program.holds(1)
    with torch.no_grad():
        assert program.why(1) == "the grad mode is on, not off"
    assert program.holds(1)
    assert "the grad mode is on" in program.texts

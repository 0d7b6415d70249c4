"""Who runs a graph, and why: the Runner event, its log line, and what explain() shows of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import alternator
from alternator.events import Runner

scale = 2.0


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * scale


def plain(x: Any) -> Any:
    return x.sin() + 1


def makes_a_leaf(x: Any) -> Any:
    w = torch.ones(3, requires_grad=True)
    return x * w, w


def impure(x: Any) -> Any:
    return Scaled.apply(x) + 1


def seeded(x: Any) -> Any:
    y = x.cos() * 2
    torch.manual_seed(3)
    return y + torch.rand(3)


def gives_back(gm: Any, inputs: list[Any]) -> Any:
    return gm.forward


def transforms(gm: Any, inputs: list[Any]) -> Any:
    return lambda *given: gm(*given)


def broken(gm: Any, inputs: list[Any]) -> Any:
    raise ValueError("no such luck")


def through_aot(gm: Any, inputs: list[Any]) -> Any:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward))(gm, inputs)


NOT_PURE = "Scaled.backward reads or writes more than its arguments"
UNCHANGED = "the backend returned it unchanged"
CASES: dict[str, tuple[Callable[..., Any], Any, str, str | None, bool]] = {
    "eager": (plain, "eager", "recorded", "the backend compiles nothing", False),
    "compiled": (plain, "aot_eager", "compiled", None, False),
    "in segments": (seeded, "aot_eager", "compiled in segments", None, False),
    "a user callable": (plain, transforms, "compiled", None, False),
    "a user callable, in segments": (seeded, transforms, "compiled in segments", None, False),
    "given back": (plain, gives_back, "recorded", UNCHANGED, False),
    "given back whole": (seeded, gives_back, "recorded", UNCHANGED, False),
    "the core's choice": (makes_a_leaf, "aot_eager", "recorded", "it makes a leaf that requires grad", True),
    "an impure backward": (impure, "aot_eager", "recorded", NOT_PURE, True),
    "an impure backward, user callable": (impure, through_aot, "recorded", NOT_PURE, True),
    "an impure backward, no compiler": (impure, "eager", "recorded", "the backend compiles nothing", False),
}


def runners_of(fn: Callable[..., Any], backend: Any, x: Any) -> list[Runner]:
    return alternator.explain(fn, backend=backend)(x).runners


@pytest.mark.parametrize("case", CASES)
def test_who_runs_it(case: str, caplog: pytest.LogCaptureFixture) -> None:
    fn, backend, runner, reason, warns = CASES[case]
    (event,) = runners_of(fn, backend, torch.ones(3, requires_grad=fn is impure))
    assert (event.runner, event.reason, event.warns, event.segment) == (runner, reason, warns, None)
    assert event.graph.startswith("__compiled_fn_")
    said = [record.getMessage() for record in caplog.records if record.name == "alternator"]
    assert said == ([f"{event.graph} {event.text}"] if warns else [])


def test_an_impure_backward_is_not_frozen_by_a_user_callable() -> None:
    global scale
    compiled = alternator.compile(impure, backend=through_aot)
    for scale in (2.0, 5.0):
        x = torch.ones(3, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [scale] * 3


def test_the_warning_needs_no_explanation(caplog: pytest.LogCaptureFixture) -> None:
    """The same line where nobody asks for graphs, and none is exported."""
    alternator.compile(makes_a_leaf, backend="aot_eager")(torch.ones(3))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "alternator"]
    assert line.endswith(" runs the recorded program, not through aot_eager: it makes a leaf that requires grad")


def test_what_only_the_backend_can_tell() -> None:
    """AOTAutograd itself rejects the graph; the reason is the first line of its error."""

    def changes_what_exp_has_saved(x: Any) -> Any:
        y = x.exp()
        y.add_(1)
        return y

    (event,) = runners_of(changes_what_exp_has_saved, "aot_eager", torch.zeros(3, requires_grad=True))
    assert (event.runner, event.warns) == ("recorded", True)
    assert event.reason and "\n" not in event.reason


def test_suppressed_errors_are_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "suppress_errors", True)
    (event,) = runners_of(plain, broken, torch.ones(3))
    assert event.warns and event.runner == "recorded"
    assert event.reason is not None
    assert event.reason.startswith("it raised ValueError while it compiled the graph, made from plain (")
    assert event.reason.endswith(": no such luck")

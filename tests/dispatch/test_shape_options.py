"""Options of dynamic shapes beyond the ladder, beside what torch 2.13 does; questions about sizes; errors of marks."""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.fx.experimental._config as shape_config
import torch.fx.experimental.symbolic_shapes as torchs
from test_dynamic_policy import check, marked, rows, traces, twice
from torch import nn

import alternator


def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum() + y.sum()


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def pairs(*sizes: tuple[int, int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(a), torch.randn(b)) for a, b in sizes]


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ducks", "expected"), [(True, [1, 2, 2]), (False, [1, 1, 1])])
def test_duck_shaping(ducks: bool, expected: list[int]) -> None:
    with shape_config.patch(use_duck_shape=ducks):
        compiled = alternator.compile(both, backend="eager", dynamic=True)
        assert check(compiled, both, *pairs((4, 4), (5, 6), (7, 7))) == expected


def test_sizes_that_must_be_equal_are_without_duck_shaping() -> None:
    with shape_config.patch(use_duck_shape=False):
        compiled = alternator.compile(added, backend="eager", dynamic=True)
        assert check(compiled, added, *pairs((4, 4), (6, 6), (7, 7))) == [1, 1, 1]
        check(compiled, added, *pairs((1, 5), (5, 1), (5, 5)))


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("static", "expected"), [(True, [1, 2, 3, 4]), (False, [1, 2, 2, 2])])
def test_force_parameter_static_shapes(
    monkeypatch: pytest.MonkeyPatch, static: bool, expected: list[int], backend: str
) -> None:
    monkeypatch.setattr(alternator.config, "force_parameter_static_shapes", static)
    module = Weighted()
    compiled = alternator.compile(module, backend=backend)
    counts = []
    for size in (4, 5, 6, 7):
        module.weight = nn.Parameter(torch.randn(size))
        x = torch.randn(3)
        (wanted,) = torch.autograd.grad(module(x).sum(), module.weight)
        (got,) = torch.autograd.grad(compiled(x).sum(), module.weight)
        torch.testing.assert_close(got, wanted)
        counts.append(traces())
    assert counts == expected


def test_unbacked_sources() -> None:
    import torch.compiler.config as settings

    with settings.patch(unbacked_sources="L['x']"):
        assert check(alternator.compile(twice, backend="eager"), twice, *rows(4, 5, 6)) == [1, 1, 1]


def test_the_accumulated_limit_counts_isolated_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "accumulated_recompile_limit", 5)
    kept = [alternator.compile(twice, backend="eager", dynamic=False, isolate_recompiles=True) for _ in range(4)]
    for i, compiled in enumerate(kept):
        check(compiled, twice, *rows(*range(2 + 3 * i, 5 + 3 * i)))
    assert traces() == 5


# --- marks --------------------------------------------------------------------------------------------------------


def test_marked_sizes_0_and_1_are_versions_of_their_own() -> None:
    compiled = alternator.compile(twice, backend="eager")
    calls = [(marked(torch._dynamo.mark_dynamic, size),) for size in (1, 1, 5, 6, 0, 2)]
    assert check(compiled, twice, *calls) == [1, 1, 2, 2, 3, 3]


def test_a_size_beyond_the_range_of_a_mark_is_symbolic() -> None:
    compiled = alternator.compile(twice, backend="eager")
    x = marked(torch._dynamo.mark_dynamic, 5, min=4, max=10)
    assert check(compiled, twice, (x,), *rows(12, 13, 3, 6)) == [1, 2, 2, 2, 2]


def test_a_mark_that_another_size_forbids() -> None:
    compiled = alternator.compile(added, backend="eager")
    x, y = marked(torch._dynamo.mark_dynamic, 5), torch.randn(5, 3)
    with pytest.raises(torchs.ConstraintViolationError) as raised:
        compiled(x, y)
    text = str(raised.value)
    assert "You marked L['x'].size()[0] as dynamic but your code specialized it to be a constant (5)" in text
    assert "with another value the call fails" in text and "return x + y" in text
    # Marks of both can hold.
    torch._dynamo.mark_dynamic(y, 0)
    wanted = traces()
    check(compiled, added, (x, y), *[(torch.randn(n, 3), torch.randn(n, 3)) for n in (6, 7)])
    assert traces() == wanted + 1


def test_a_weak_mark_that_another_size_forbids() -> None:
    compiled = alternator.compile(added, backend="eager")
    calls = [(marked(torch._dynamo.maybe_mark_dynamic, size), torch.randn(size, 3)) for size in (5, 6, 7, 8)]
    assert check(compiled, added, *calls) == [1, 2, 2, 2]


def test_every_line_that_specialized_is_named() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x * {5: 1, 6: 2}[x.shape[0]]  # the first
        for i in range(y.shape[1]):  # the second
            x = x + y[:, i : i + 1].sum()
        return x

    x, y = torch.randn(5, 3), torch.randn(4, 6)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(y, 1)
    with pytest.raises(alternator.exc.ConstraintViolation) as raised:
        alternator.compile(fn, backend="eager")(x, y)
    text = str(raised.value)
    assert text.startswith("Constraints violated (L['x'].size()[0], L['y'].size()[1])! For more information, run with")
    for words in ("# the first", "# the second", "User stack:", "either remove it or use maybe_mark_dynamic"):
        assert words in text
    assert text.count("test_shape_options.py") == 2


def test_a_range_that_the_code_narrows() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 7 else x - 1  # this line

    with pytest.raises(torchs.ConstraintViolationError) as raised:
        alternator.compile(fn, backend="eager")(marked(torch._dynamo.mark_dynamic, 9, min=4, max=10))
    text = str(raised.value)
    assert "Not all values of L['x'].size()[0] in the specified range [4, 10] satisfy the generated guards" in text
    assert "[8, 10]" in text and "# this line" in text
    compiled = alternator.compile(fn, backend="eager")
    check(compiled, fn, (marked(torch._dynamo.mark_dynamic, 9),), *rows(8, 5))
    assert traces() == 3


# --- questions about sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda n: torch.sym_int(n),
        lambda n: torch.sym_max(n, 5),
        lambda n: torch.sym_max(5, n),
        lambda n: torch.sym_min(n, 5),
        lambda n: torch.sym_sum([n, 3, n]),
        lambda n: torch.sym_sum(n, 3),
        lambda n: torch.sym_ite(n > 1, 2, 3),
        lambda n: 2 if torch.sym_not(n > 1) else 3,
        lambda n: torchs.guard_int(n),
        lambda n: torchs.guarding_hint_or_throw(n),
        lambda n: torchs.optimization_hint(n, 5),
        lambda n: 2 if torchs.is_concrete_int(n) else 3,
        lambda n: 2 if torchs.statically_known_true(n >= 0) else 3,
        lambda n: 2 if torchs.guard_or_false(n < 1) else 3,
        lambda n: 2 if torchs.guard_or_true(n >= 1) else 3,
        lambda n: 2 if torchs.sym_and(n > 2, n < 100) else 3,
    ],
)
def test_questions_that_do_not_specialize(ask: Callable[[int], int]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * ask(x.shape[0])

    compiled = alternator.compile(fn, backend="eager", dynamic=True)
    assert check(compiled, fn, *rows(4, 5, 6, 7, 3, 9)) == [1] * 6


@pytest.mark.parametrize(
    "ask",
    [
        lambda n: torch.sym_float(n),
        lambda n: torch.sym_sqrt(n),
        lambda n: torch.sym_max(n, 5.5),
        lambda n: torch.sym_int(n / 2),
        lambda n: math.sqrt(n),
        lambda n: 2 if torchs.guard_or_false(n == 6) else 3,
        lambda n: 2 if torchs.guard_or_true(n == 6) else 3,
        lambda n: 2 if torchs.statically_known_true(n == 6) else 3,
        lambda n: 2 if torchs.expect_true(n != 6) else 3,
    ],
)
def test_questions_that_have_true_answers(ask: Callable[[int], float]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * ask(x.shape[0])

    compiled = alternator.compile(fn, backend="eager", dynamic=True)
    calls = rows(4, 5, 7, 3, 6, 9)
    if "expect_true" in ask.__code__.co_names:  # it raises
        calls.pop(4)
    check(compiled, fn, *calls, *calls)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda n: torch._check(n > 3), RuntimeError),
        (lambda n: torch._check_value(n > 3, lambda: f"bad {n}"), ValueError),
        (lambda n: torch._check_index(n > 3), IndexError),
        (lambda n: torch._check_type(n > 3), TypeError),
        (lambda n: torch._check_not_implemented(n > 3), NotImplementedError),
        (lambda n: torch._check_with(LookupError, n > 3, lambda: "hm"), LookupError),
        (lambda n: torch._check_is_size(n, max=5), None),
        (lambda n: torch._check_is_size(n), None),
    ],
)
def test_checks_of_sizes_are_guards(ask: Callable[[int], None], error: type[Exception] | None) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        ask(x.shape[0])
        return x * 2

    compiled = alternator.compile(fn, backend="eager", dynamic=True)
    assert check(compiled, fn, *rows(4, 5)) == [1, 1]
    for _ in range(2):
        if error is None:
            continue
        with pytest.raises(error) as wanted:
            fn(torch.randn(3, 3))
        with pytest.raises(error) as got:
            compiled(torch.randn(3, 3))
        assert str(got.value) == str(wanted.value)
    counts = check(compiled, fn, *rows(4, 5, 4))
    assert counts[0] == counts[-1]


# --- explanations -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def logged(names: str, caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    said: list[str] = []
    alternator.logs.set_logs(names)
    try:
        alternator.logs._own.propagate = True
        with caplog.at_level(logging.DEBUG, logger="alternator.logs"):
            yield said
    finally:
        alternator.logs._own.propagate = False
        alternator.logs.set_logs("")
    said += [record.getMessage() for record in caplog.records if record.name == "alternator.logs"]


def reshaped(x: torch.Tensor, n: int) -> torch.Tensor:
    if x.shape[0] > 3:  # asks
        x = x * n
    return x.view(-1, x.shape[0] // 2) + 1


def test_the_log_of_symbols_says_ranges_lines_and_who_asked(caplog: pytest.LogCaptureFixture) -> None:
    with logged("dynamic,recompiles,guards,graph_sizes", caplog) as said:
        compiled = alternator.compile(reshaped, backend="aot_eager")
        check(compiled, reshaped, *[(torch.randn(n, 4), n) for n in (4, 6, 10, 8)])
    text = "\n".join(said)
    assert "x.size(0) is symbolic, now 6, in [4, int_oo]: it differs between calls" in text
    assert "eval x.size(0) >= 4 [guard added] if x.shape[0] > 3:  # asks" in text
    assert "aot_eager assumes 4*x.size()[0] % (x.size()[0] // 2) == 0 (" in text
    assert "it holds that 4*x.size(0) % (x.size(0) // 2) == 0; assumed by aot_eager (" in text
    # The call with 8 is none of the second graph's: who asked stands with the guard that fails.
    (failure,) = {line for line in text.splitlines() if line.startswith("    - ") and "not where x.size(0) = 8" in line}
    assert "assumed by aot_eager (" in failure
    assert re.search(r"x: \(s\d+, 4\)", text)

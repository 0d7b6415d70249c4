"""Which sizes and numbers become symbols, when, and how the user steers it."""

from __future__ import annotations

import contextlib
import logging
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import alternator

SIZES = (4, 5, 6, 7, 9, 12)


class Counting:
    """A backend that keeps the graphs, and runs them."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, inputs: list[Any]) -> Any:
        self.graphs.append(gm)
        return lambda *args: gm(*args)


def traces() -> int:
    count: int = alternator.counters()["traces"]
    return count


def check(compiled: Any, fn: Callable[..., Any], *calls: tuple[Any, ...]) -> list[int]:
    """Each call agrees with eager; the number of traces after each."""
    counts = []
    for arguments in calls:
        wanted, got = fn(*arguments), compiled(*arguments)
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        counts.append(traces())
    return counts


def rows(*sizes: int, width: int = 3) -> list[tuple[torch.Tensor]]:
    return [(torch.randn(size, width),) for size in sizes]


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def looked_up(x: torch.Tensor) -> torch.Tensor:
    return x * {size: size for size in range(100)}[x.shape[0]]


# --- the ladder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "counting"])
def test_a_size_is_symbolic_once_it_has_changed(backend: str) -> None:
    counting = Counting()
    compiled = alternator.compile(twice, backend=counting if backend == "counting" else "eager")
    assert check(compiled, twice, *rows(*SIZES)) == [1, 2, 2, 2, 2, 2]
    assert len(counting.graphs) == (2 if backend == "counting" else 0)


def test_only_what_has_changed_is_symbolic() -> None:
    compiled = alternator.compile(twice, backend="eager")
    check(compiled, twice, *rows(4, 5, 6))
    assert check(compiled, twice, *rows(4, 5, width=8)) == [3, 3]  # now both are
    assert check(compiled, twice, *rows(40, 50, width=9)) == [3, 3]


def test_sizes_0_and_1_are_versions_of_their_own() -> None:
    compiled = alternator.compile(twice, backend="eager")
    assert check(compiled, twice, *rows(4, 5, 1, 0, 6, 1, 0)) == [1, 2, 3, 4, 4, 4, 4]


def test_what_is_specialized_on_each_time_is_a_constant_again() -> None:
    compiled = alternator.compile(looked_up, backend="eager")
    check(compiled, looked_up, *rows(4, 5, 6, 7, 8))
    assert traces() == 5
    guards = compiled._guards
    # The first, and the one after three specializations, have the guards of constants; so have those between.
    assert all(any("of size" in guard and "?" not in guard for guard in one) for one in guards)
    assert not any("it holds that" in guard for one in guards for guard in one)


def test_a_specialized_size_costs_what_a_constant_costs() -> None:
    compiled = alternator.compile(looked_up, backend="eager")
    check(compiled, looked_up, *rows(4, 5))
    assert len(compiled._guards[0]) == len(compiled._guards[1])


def test_a_constant_version_is_asked_before_a_symbolic_one() -> None:
    counting = Counting()
    compiled = alternator.compile(twice, backend=counting)
    x4, x5 = torch.randn(4, 3), torch.randn(5, 3)
    compiled(x4)
    compiled(x5)
    for _ in range(3):
        compiled(x5)
        compiled(x4)
    assert "?" not in " ".join(compiled._guards[0]) and "?" in " ".join(compiled._guards[1])


def test_ints_that_change_are_symbols() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n + n

    compiled = alternator.compile(fn, backend="eager")
    x = torch.randn(3)
    assert check(compiled, fn, *[(x, n) for n in (2, 3, 4, 5, 1, 0, -7)])[-1] == 2


def test_an_int_that_is_specialized_on_stays_right() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        table = [x, x + 1, x + 2, x + 3, x + 4, x + 5]
        return table[n] * 2

    compiled = alternator.compile(fn, backend="eager")
    x = torch.randn(3)
    check(compiled, fn, *[(x, n) for n in (0, 1, 2, 3, 4, 5, 1, 4)])
    check(compiled, fn, (x, -1), (x, True))


def test_equal_sizes_need_not_stay_equal() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum()

    compiled = alternator.compile(fn, backend="eager")
    calls = [(torch.randn(a, 2), torch.randn(b, 2)) for a, b in ((4, 4), (5, 5), (5, 6), (7, 3))]
    assert check(compiled, fn, *calls) == [1, 2, 2, 2]


# --- options ------------------------------------------------------------------------------------------------------


def test_dynamic_true_compiles_once() -> None:
    compiled = alternator.compile(twice, backend="eager", dynamic=True)
    assert check(compiled, twice, *rows(*SIZES)) == [1] * len(SIZES)
    assert check(compiled, twice, *rows(5, 6, width=7)) == [1, 1]


def test_dynamic_false_never_makes_symbols() -> None:
    compiled = alternator.compile(twice, backend="eager", dynamic=False)
    assert check(compiled, twice, *rows(4, 5, 6)) == [1, 2, 3]


def test_dynamic_true_leaves_what_a_module_has() -> None:
    class Scaled(nn.Module):
        scale: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.randn(3))
            self.times = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale * self.times

    module = Scaled()
    compiled = alternator.compile(module, backend="eager", dynamic=True)
    assert check(compiled, module, *rows(4, 5, 6)) == [1, 1, 1]


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("automatic_dynamic_shapes", False, [1, 2, 3]),
        ("assume_static_by_default", False, [1, 1, 1]),
    ],
)
@pytest.mark.parametrize("of_torch", [False, True])
def test_settings_for_sizes(
    monkeypatch: pytest.MonkeyPatch, setting: str, value: bool, expected: list[int], of_torch: bool
) -> None:
    with contextlib.ExitStack() as scope:
        if of_torch:
            import torch._dynamo.config as settings

            scope.enter_context(settings.patch({setting: value}))
        else:
            monkeypatch.setattr(alternator.config, setting, value)
        assert check(alternator.compile(twice, backend="eager"), twice, *rows(4, 5, 6)) == expected


def test_specialize_int(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    monkeypatch.setattr(alternator.config, "specialize_int", True)
    x = torch.randn(3)
    assert check(alternator.compile(fn, backend="eager", fullgraph=True), fn, (x, 2), (x, 3), (x, 4)) == [1, 2, 3]


@pytest.mark.parametrize("sources", ["L['x']", "L['x']:0", "L\\['.*'\\]", ".*:0"])
def test_dynamic_sources(sources: str) -> None:
    import torch.compiler.config as settings

    with settings.patch(dynamic_sources=sources):
        assert check(alternator.compile(twice, backend="eager"), twice, *rows(4, 5, 6)) == [1, 1, 1]
        assert check(alternator.compile(twice, backend="eager", dynamic=False), twice, *rows(4, 5, 6))[-1] == 2


def test_other_dynamic_sources() -> None:
    import torch.compiler.config as settings

    with settings.patch(dynamic_sources="L['x']:1, L['y']"):
        assert check(alternator.compile(twice, backend="eager"), twice, *rows(4, 5, 6)) == [1, 2, 2]


# --- marks --------------------------------------------------------------------------------------------------------


def marked(mark: Callable[..., Any], size: int, **options: Any) -> torch.Tensor:
    x = torch.randn(size, 3)
    mark(x, 0, **options)
    return x


@pytest.mark.parametrize("mark", ["mark_dynamic", "maybe_mark_dynamic", "mark_unbacked"])
def test_marked_sizes_are_symbols_of_the_first_trace(mark: str) -> None:
    compiled = alternator.compile(twice, backend="eager")
    x = marked(getattr(torch._dynamo, mark, None) or getattr(torch._dynamo.decorators, mark), 4)
    assert check(compiled, twice, (x,), *rows(5, 6, 7)) == [1, 1, 1, 1]


def test_a_mark_that_comes_later_makes_a_new_version() -> None:
    compiled = alternator.compile(twice, backend="eager")
    x = torch.randn(4, 3)
    assert check(compiled, twice, (x,), (x,)) == [1, 1]
    torch._dynamo.mark_dynamic(x, 0)
    assert check(compiled, twice, (x,), (x,), *rows(8, 9)) == [2, 2, 2, 2]
    # A symbolic version serves marked tensors of all kinds.
    assert check(compiled, twice, (marked(torch._dynamo.maybe_mark_dynamic, 11),)) == [2]


def test_a_symbolic_version_serves_marked_tensors() -> None:
    compiled = alternator.compile(twice, backend="eager")
    check(compiled, twice, *rows(4, 5))
    assert check(compiled, twice, (marked(torch._dynamo.mark_dynamic, 6),)) == [2]


def test_a_mark_with_a_range_is_a_guard() -> None:
    compiled = alternator.compile(twice, backend="eager")
    x = marked(torch._dynamo.mark_dynamic, 5, min=4, max=10)
    assert check(compiled, twice, (x,), *rows(4, 10)) == [1, 1, 1]
    assert check(compiled, twice, *rows(11)) == [2]
    assert any("4 <= x.size(0) <= 10" in guard for one in compiled._guards for guard in one)


def test_a_size_outside_of_its_range() -> None:
    x = marked(torch._dynamo.mark_dynamic, 12, min=4, max=10)
    with pytest.raises(alternator.exc.ConstraintViolation, match="not in the range of the mark"):
        alternator.compile(twice, backend="eager")(x)


def test_mark_static_comes_before_dynamic_true_only() -> None:
    compiled = alternator.compile(twice, backend="eager", dynamic=True)
    assert check(compiled, twice, *[(marked(torch._dynamo.mark_static, size),) for size in (4, 5, 6)]) == [1, 2, 3]
    x = marked(torch._dynamo.mark_static, 7)
    torch._dynamo.mark_dynamic(x, 0)
    assert check(compiled, twice, (x,), *rows(8)) == [4, 4]


def test_mark_static_address_changes_nothing() -> None:
    compiled = alternator.compile(twice, backend="eager")
    x = torch.randn(4, 3)
    torch._dynamo.mark_static_address(x)
    assert check(compiled, twice, (x,), *rows(5, 6)) == [1, 2, 2]


def test_a_mark_that_cannot_hold_names_the_lines() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y * {size: size for size in range(100)}[x.shape[0]]  # this line

    compiled = alternator.compile(fn, backend="eager")
    x = marked(torch._dynamo.mark_dynamic, 5)
    with pytest.raises(alternator.exc.ConstraintViolation) as raised:
        compiled(x)
    text = str(raised.value)
    assert "L['x'].size()[0] as dynamic but your code specialized it to be a constant (5)" in text
    assert "maybe_mark_dynamic" in text
    assert "test_dynamic_policy.py" in text and "# this line" in text
    import torch.fx.experimental.symbolic_shapes as torchs

    with pytest.raises(torchs.ConstraintViolationError):
        compiled(x)
    check(compiled, fn, *rows(5))  # without a mark


def test_marks_that_may_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "allow_ignore_mark_dynamic", True)
    check(alternator.compile(looked_up, backend="eager"), looked_up, (marked(torch._dynamo.mark_dynamic, 5),))


def test_a_weak_mark_that_cannot_hold_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    alternator.logs.set_logs("dynamic")
    try:
        alternator.logs._own.propagate = True
        with caplog.at_level(logging.DEBUG, logger="alternator.logs"):
            compiled = alternator.compile(looked_up, backend="eager")
            check(compiled, looked_up, (marked(torch._dynamo.maybe_mark_dynamic, 5),))
            alternator.compile(twice, backend="eager")(marked(torch._dynamo.mark_dynamic, 6))
    finally:
        alternator.logs._own.propagate = False
        alternator.logs.set_logs("")
    said = [record.getMessage() for record in caplog.records]
    assert any("x.size(0) is specialized to 5 (maybe_mark_dynamic)" in one and "looked_up" in one for one in said)
    assert any("x.size(0) is symbolic, now 6, in [2, int_oo]: mark_dynamic" in one for one in said)


# --- the limit ----------------------------------------------------------------------------------------------------


class Level(nn.Module):
    def __init__(self, inner: nn.Module | None) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        return self.inner(x) * 2 if self.inner is not None else x.relu()


def test_beyond_the_limit_the_whole_call_is_eager(caplog: pytest.LogCaptureFixture) -> None:
    module, backend = Level(Level(Level(None))), Counting()
    compiled = alternator.compile(module, backend=backend, dynamic=False)
    for size in range(2, 40):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=0)
    assert len(backend.graphs) == alternator.config.recompile_limit == 8
    warnings = [record.getMessage() for record in caplog.records if record.name == "alternator"]
    assert len(warnings) == 1
    assert "hit config.recompile_limit (8)" in warnings[0] and "Level.forward" in warnings[0]
    assert "test_dynamic_policy.py" in warnings[0] and "size mismatch at index 0. expected" in warnings[0]


class BrokenLevel(Level):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        alternator.graph_break()
        return self.inner(x) * 2 if self.inner is not None else x.relu()


class OtherLevel(BrokenLevel):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - 1
        alternator.graph_break()
        return self.inner(x) * 3 if self.inner is not None else x.relu()


def versions(compiled: Any, module: nn.Module, backend: Counting, sizes: range) -> list[int]:
    counts = []
    for size in sizes:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=0)
        counts.append(len(backend.graphs))
    return counts


def test_beyond_the_limit_behind_breaks(caplog: pytest.LogCaptureFixture) -> None:
    """Each part of a call has its versions; a call that matches none of the start runs eagerly as a whole."""
    module, backend = BrokenLevel(OtherLevel(None)), Counting()
    compiled = alternator.compile(module, backend=backend, dynamic=False)
    assert versions(compiled, module, backend, range(2, 20)) == [*range(3, 25, 3), *[24] * 10]
    warnings = [record.getMessage() for record in caplog.records if "hit config.recompile_limit (8)" in record.message]
    assert len(warnings) == 1 and "BrokenLevel.forward" in warnings[0]
    before = alternator.counters()["eager"]
    compiled(torch.randn(50))
    assert alternator.counters()["eager"] == before + 1


def test_the_limit_of_a_function_that_calls_itself(caplog: pytest.LogCaptureFixture) -> None:
    """The resume points at one position count as one: recursion would make any number of them."""
    module, backend = BrokenLevel(BrokenLevel(BrokenLevel(None))), Counting()
    compiled = alternator.compile(module, backend=backend, dynamic=False)
    assert versions(compiled, module, backend, range(2, 72))[-1] == 16
    warnings = [record.getMessage() for record in caplog.records if "hit config.recompile_limit (8)" in record.message]
    assert len(warnings) == 2, warnings
    assert all("BrokenLevel.forward" in warning and "test_dynamic_policy.py" in warning for warning in warnings)
    # Sizes that were compiled are hits still.
    alternator.counters()
    hits = alternator.counters()["hits"]
    versions(compiled, module, backend, range(2, 4))
    assert alternator.counters()["hits"] == hits + 8


def test_first_entries_of_a_function_that_calls_itself() -> None:
    """They are no recompilations, however many there are."""
    module: nn.Module = BrokenLevel(None)
    for _ in range(11):
        module = BrokenLevel(module)
    compiled, backend = alternator.compile(module, backend="eager"), Counting()
    versions(compiled, module, backend, range(4, 5))
    assert alternator.counters()["graphs"] == 13 and alternator.counters()["eager"] == 0


def test_fullgraph_at_the_limit_raises() -> None:
    compiled = alternator.compile(twice, backend="eager", fullgraph=True, dynamic=False)
    check(compiled, twice, *rows(*range(2, 10)))
    with pytest.raises(alternator.exc.RecompileLimitHit, match="fullgraph=True(.|\n)*recompile_limit"):
        compiled(torch.randn(20, 3))
    import torch._dynamo.exc as torchs

    with pytest.raises(torchs.FailOnRecompileLimitHit):
        compiled(torch.randn(20, 3))
    check(compiled, twice, *rows(5))


def test_the_limits_are_those_of_the_settings_now(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = alternator.compile(twice, backend="eager", dynamic=False)
    monkeypatch.setattr(alternator.config, "recompile_limit", 2)
    assert check(compiled, twice, *rows(2, 3, 4, 5)) == [1, 2, 2, 2]
    monkeypatch.setattr(alternator.config, "recompile_limit", 4)
    assert check(compiled, twice, *rows(6, 7, 8)) == [3, 4, 4]
    monkeypatch.setattr(alternator.config, "fail_on_recompile_limit_hit", True)
    with pytest.raises(alternator.exc.RecompileLimitHit):
        compiled(torch.randn(30, 3))


def test_a_limit_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "recompile_limit", 0)
    compiled = alternator.compile(twice, backend="eager", dynamic=False)
    assert check(compiled, twice, *rows(2, 3)) == [0, 0]
    monkeypatch.setattr(alternator.config, "recompile_limit", 1)
    assert check(compiled, twice, *rows(2, 3, 2)) == [1, 1, 1]


def test_a_failure_at_the_limit_ends_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "recompile_limit", 1)
    monkeypatch.setattr(alternator.config, "fail_on_recompile_limit_hit", True)
    compiled = alternator.compile(twice, backend="eager", dynamic=False)
    assert check(compiled, twice, *rows(2)) == [1]
    for _ in range(2):
        with pytest.raises(alternator.exc.RecompileLimitHit, match="fail_on_recompile_limit_hit(.|\n)*twice"):
            compiled(torch.randn(3, 3))
    monkeypatch.setattr(alternator.config, "fail_on_recompile_limit_hit", False)
    assert check(compiled, twice, *rows(3, 2)) == [1, 1]
    assert alternator.counters()["eager"] == 1


def test_the_accumulated_limit_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "accumulated_recompile_limit", 2)
    compiled = alternator.compile(twice, backend="eager", dynamic=False)
    assert check(compiled, twice, *rows(2, 3, 4)) == [1, 2, 2]
    monkeypatch.setattr(alternator.config, "accumulated_recompile_limit", 3)
    assert check(compiled, twice, *rows(5, 6)) == [3, 3]
    monkeypatch.setattr(alternator.config, "fail_on_recompile_limit_hit", True)
    with pytest.raises(alternator.exc.RecompileLimitHit, match=r"accumulated_recompile_limit \(3\)"):
        compiled(torch.randn(7, 3))


def test_the_accumulated_limit_is_that_of_all_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "accumulated_recompile_limit", 3)
    kept = [alternator.compile(twice, backend="eager", dynamic=False) for _ in range(3)]
    for size, compiled in zip((2, 3, 4), kept, strict=True):
        check(compiled, twice, *rows(size, size + 10))
    assert traces() == 3


@pytest.mark.parametrize("kind", [list, tuple])
def test_sizes_of_parts(kind: Any) -> None:
    """They make up the whole in every call that does not fail."""

    def fn(x: torch.Tensor, sizes: Any) -> list[torch.Tensor]:
        return [part.sum(0) * part.shape[0] for part in x.split(sizes)]

    compiled = alternator.compile(fn, backend="eager")
    calls = [(torch.randn(8, 2), kind(sizes)) for sizes in ((4, 4), (2, 6), (3, 5), (8, 0), (5, 3))]
    assert check(compiled, fn, *calls) == [1, 2, 2, 2, 2]
    for sizes in ((3, 4), (-1, 9), (4, 5)):
        with pytest.raises(RuntimeError):
            compiled(torch.randn(8, 2), kind(sizes))
    check(compiled, fn, (torch.randn(8, 2), kind((1, 7))), (torch.randn(8, 2), kind((2, 2, 4))))


# --- graph breaks -------------------------------------------------------------------------------------------------


def test_what_varies_at_a_break_is_symbolic_behind_it() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        y = x * n
        alternator.graph_break()
        z = y + n
        alternator.graph_break()
        return z * x

    compiled = alternator.compile(fn, backend="eager", dynamic=True)
    check(compiled, fn, *rows(4))
    assert check(compiled, fn, *rows(*SIZES)) == [3] * len(SIZES)
    alternator.reset()
    compiled = alternator.compile(fn, backend="eager")
    check(compiled, fn, *rows(4, 5))
    assert check(compiled, fn, *rows(*SIZES)) == [6] * len(SIZES)


def test_a_loop_that_counts_behind_a_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for i in range(12):
            x = x * 2 + i
            alternator.graph_break()
        return x

    compiled = alternator.compile(fn, backend="eager")
    check(compiled, fn, (torch.randn(3),))
    assert traces() <= 6


# --- stances ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_first_two_calls_tell_what_varies(stance: str) -> None:
    compiled = alternator.compile(twice, backend="eager")
    with torch.compiler.set_stance(stance):
        assert check(compiled, twice, *rows(4, 5, 6, 7)) == [0, 1, 1, 1]


# --- what programs ask of sizes ------------------------------------------------------------------------------------


def test_torch_check_is_a_guard() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] > 3, lambda: "too small")
        return x * 2

    compiled = alternator.compile(fn, backend="eager", dynamic=True)
    assert check(compiled, fn, *rows(4, 5, 60)) == [1, 1, 1]
    with pytest.raises(RuntimeError, match="too small"):
        compiled(torch.randn(3, 3))


def test_questions_about_sizes_have_true_answers() -> None:
    from torch.fx.experimental import symbolic_shapes as shapes

    def fn(x: torch.Tensor) -> Any:
        n = x.shape[0]
        return (
            x * torch.sym_max(n, 6),
            torch.sym_min(n, 6) + 0,
            torch.sym_float(n) + 0.5,
            int(torch.sym_int(n + 0.0)),
            bool(torch.sym_not(n > 5)),
            shapes.guard_size_oblivious(n == 6),
            shapes.guard_or_false(n == 6),
            shapes.guard_or_true(n == 6),
            shapes.statically_known_true(n == n),
        )

    compiled = alternator.compile(fn, backend="eager")
    for (x,) in rows(4, 5, 6, 7, 12, 3):
        for wanted, got in zip(fn(x), compiled(x), strict=True):
            assert type(wanted) is type(got)
            if isinstance(wanted, torch.Tensor):
                torch.testing.assert_close(got, wanted, rtol=0, atol=0)
            else:
                assert wanted == got


def test_sizes_that_were_taken_to_be_equal() -> None:
    """A size that has differed from the others once is a symbol of its own."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] * x.shape[1], -1).sum(0)

    alternator.reset()
    compiled = alternator.compile(function, backend="eager", dynamic=True, isolate_recompiles=True)
    for sizes in ((4, 4, 4), (5, 6, 6), (5, 6, 7), (3, 3, 8), (2, 7, 7)):
        x = torch.randn(sizes)
        assert torch.equal(compiled(x), function(x))
    assert alternator.counters()["graphs"] == 2


@pytest.mark.parametrize("shows", [False, True])
def test_numbers_in_a_namespace(shows: bool) -> None:
    def make() -> Any:
        state = types.SimpleNamespace(length=0, other=types.SimpleNamespace(length=4))

        def function(x: torch.Tensor) -> Any:
            state.length += x.shape[0]
            same = types.SimpleNamespace(length=state.length) == state.other
            return x * state.length, same, repr(state) if shows else None

        return function

    alternator.reset()
    wanted, compiled = make(), alternator.compile(make(), backend="eager", isolate_recompiles=True)
    for _ in range(6):
        x = torch.ones(2)
        one, other = compiled(x), wanted(x)
        assert torch.equal(one[0], other[0])
        assert one[1:] == other[1:]

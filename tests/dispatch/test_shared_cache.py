"""What one compile() has compiled serves others of the same code, backend and options."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import alternator

WIDTH = 4


class Block(nn.Module):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scale = scale
        self.register_buffer("shift", torch.randn(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) * self.scale + self.shift


class Counting:
    """A backend that keeps the graphs."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, inputs: list[Any]) -> Any:
        self.graphs.append(gm)
        return lambda *args: gm(*args)  # the module itself would not be kept: the recorded program runs in its place


def counts() -> tuple[int, int]:
    found = alternator.counters()
    return found["traces"], found["graphs"]


X = torch.randn(3, WIDTH)


def same(block: Any, compiled: Any, x: torch.Tensor = X) -> None:
    """Forward and backward of a compiled module, compared with the original's."""
    results = []
    for module in (block, compiled):
        given = x.clone().requires_grad_()
        module(given).sum().backward()
        results.append((module(x).detach(), given.grad, [p.grad for p in block.parameters()]))
        block.zero_grad()
    for eager, ours in zip(results[0], results[1], strict=True):
        torch.testing.assert_close(eager, ours, rtol=0, atol=0)


def test_twelve_blocks_cost_one_compilation() -> None:
    blocks = [Block() for _ in range(12)]
    backend = Counting()
    compiled = [alternator.compile(block, backend=backend) for block in blocks]
    for _ in range(4):
        x = X
        for block, ours in zip(blocks, compiled, strict=True):
            with torch.no_grad():
                torch.testing.assert_close(block(x), ours(x), rtol=0, atol=0)
                x = ours(x)
    assert counts() == (1, 1) and len(backend.graphs) == 1
    assert alternator.counters()["eager"] == 0


def test_module_compile_in_a_loop() -> None:
    blocks = [Block() for _ in range(12)]
    backend = Counting()
    with alternator.install():
        for block in blocks:
            block.compile(backend=backend)
        for block in blocks:
            torch.testing.assert_close(block(X), block.forward(X), rtol=0, atol=0)
    assert counts() == (1, 1) and len(backend.graphs) == 1


def test_gradients_go_to_each_block() -> None:
    blocks = [Block() for _ in range(4)]
    compiled = [alternator.compile(block, backend="aot_eager") for block in blocks]
    for _ in range(3):
        for block, ours in zip(blocks, compiled, strict=True):
            same(block, ours)
    assert counts()[1] == 2  # with gradients and without


def test_inductor_serves_all_blocks() -> None:
    blocks = [Block() for _ in range(3)]
    compiled = [alternator.compile(block) for block in blocks]
    with torch.no_grad():
        for _ in range(2):
            for block, ours in zip(blocks, compiled, strict=True):
                torch.testing.assert_close(block(X), ours(X))
    assert counts() == (1, 1)


def test_an_edit_of_one_block_is_its_own() -> None:
    blocks = [Block() for _ in range(3)]
    compiled = [alternator.compile(block, backend="eager") for block in blocks]
    for block, ours in zip(blocks, compiled, strict=True):
        same(block, ours)
    before = counts()[0]
    with torch.no_grad():
        blocks[1].linear.weight.mul_(3)
    blocks[2].linear.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
    for block, ours in zip(blocks, compiled, strict=True):
        same(block, ours)
    assert counts()[0] == before
    blocks[0].scale = 5.0
    same(blocks[0], compiled[0])
    assert counts()[0] > before
    now = counts()[0]
    blocks[1].scale = 5.0  # another block has been there
    same(blocks[1], compiled[1])
    same(blocks[2], compiled[2])
    assert counts()[0] == now


def test_weights_that_are_one_or_two() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: torch.Tensor) -> Any:
            return x * self.a + self.b, self.a is self.b

    apart, tied = Pair(), Pair()
    tied.b = tied.a
    ours = [alternator.compile(pair, backend="eager") for pair in (apart, tied, Pair())]
    for _ in range(3):
        assert [compiled(X)[1] for compiled in ours] == [False, True, False]
    assert counts()[0] == 2


def test_frozen_blocks_and_others() -> None:
    blocks = [Block() for _ in range(4)]
    for parameter in blocks[2].parameters():
        parameter.requires_grad_(False)
    compiled = [alternator.compile(block, backend="aot_eager") for block in blocks]
    for _ in range(2):
        assert [ours(X).requires_grad for ours in compiled] == [True, True, False, True]
    assert counts()[0] == 2


def test_each_compile_has_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that differ in a number each have a version; none is used up by the others."""
    monkeypatch.setattr(alternator.config, "recompile_limit", 8)
    blocks = [Block(scale=float(i)) for i in range(20)]
    compiled = [alternator.compile(block, backend="eager") for block in blocks]
    for _ in range(3):
        for block, ours in zip(blocks, compiled, strict=True):
            torch.testing.assert_close(block(X), ours(X), rtol=0, atol=0)
    assert counts()[0] == 20
    assert alternator.counters()["eager"] == 0
    assert not alternator.counters()["breaks"]


def test_the_limit_counts_what_a_compile_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "recompile_limit", 8)

    def f(x: torch.Tensor, text: str) -> torch.Tensor:
        return x * len(text)

    first = alternator.compile(f, backend="eager", isolate_recompiles=False)
    second = alternator.compile(f, backend="eager")
    for n in range(8):
        first(X, n * "-")
    for n in range(8):
        torch.testing.assert_close(second(X, n * "-"), X * n)
    assert counts()[0] == 8
    for n in range(8, 16):
        second(X, n * "-")
    assert counts()[0] == 16 and alternator.counters()["eager"] == 0
    second(X, 16 * "-")
    assert counts()[0] == 16 and alternator.counters()["eager"] == 1
    torch.testing.assert_close(first(X, 12 * "-"), X * 12)  # made by the other


@pytest.mark.parametrize(
    "second",
    [
        {"backend": "aot_eager"},
        {"backend": "eager", "fullgraph": True},
        {"backend": "eager", "dynamic": False},
        {"backend": "eager", "isolate_recompiles": True},
    ],
)
def test_other_options_share_nothing(second: dict[str, Any]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = [alternator.compile(f, backend="eager") for _ in range(2)]
    for ours in compiled:
        ours(X)
    assert counts()[0] == 1
    other = alternator.compile(f, **second)
    for _ in range(2):
        torch.testing.assert_close(other(X), X * 2, rtol=0, atol=0)
    assert counts()[0] == 2


def test_isolated_ones_share_with_nobody() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = [alternator.compile(f, backend="eager", isolate_recompiles=True) for _ in range(3)]
    for ours in compiled:
        ours(X)
        ours(X)
    assert counts()[0] == 3


def test_backends_that_differ() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    first, second = Counting(), Counting()
    compiled = [alternator.compile(f, backend=backend) for backend in (first, first, second)]
    for ours in compiled:
        ours(X)
    assert (len(first.graphs), len(second.graphs)) == (1, 1)
    bound = [alternator.compile(f, backend=first.__call__) for _ in range(2)]  # two objects, one method
    for ours in bound:
        ours(X)
    assert len(first.graphs) == 2
    options: list[dict[str, Any]] = [{"a": 1}, {"a": 1}, {"a": True}, {"a": 1.0}, {"b": 1}]
    seen = []

    def takes_options(gm: Any, inputs: Any, options: dict[str, Any]) -> Any:
        seen.append(options)
        return gm.forward

    kept = [alternator.compile(f, backend=takes_options, options=chosen) for chosen in options]
    for ours in kept:
        ours(X)
    assert [repr(chosen) for chosen in seen] == ["{'a': 1}", "{'a': True}", "{'a': 1.0}", "{'b': 1}"]


def make_closure(scale: Any, table: Any = None) -> Callable[[torch.Tensor], Any]:
    def f(x: torch.Tensor, more: int = 1) -> Any:
        if table is not None:
            table.append(scale)
        return x * scale + more

    return f


def test_closures_of_one_code_object() -> None:
    functions = [make_closure(n) for n in (1, 2, 1, torch.tensor(3.0), torch.tensor(4.0))]
    compiled = [alternator.compile(f, backend="eager") for f in functions]
    for _ in range(3):
        for f, ours in zip(functions, compiled, strict=True):
            torch.testing.assert_close(f(X), ours(X), rtol=0, atol=0)
    assert counts()[0] == 3  # 1, 2, a tensor


def test_closures_write_to_their_own_cells() -> None:
    tables: list[list[Any]] = [[], [], []]
    compiled = [alternator.compile(make_closure(2, table), backend="eager") for table in tables]
    for ours in compiled:
        ours(X)
        ours(X)
    compiled[0](X)
    assert [len(table) for table in tables] == [3, 2, 2]


def test_defaults_and_globals_are_each_functions_own() -> None:
    f = make_closure(2)
    g = make_closure(2)
    g.__defaults__ = (7,)
    h = type(f)(f.__code__, {"__builtins__": __builtins__}, "h", (1,), f.__closure__)
    compiled = [alternator.compile(function, backend="eager") for function in (f, g, h)]
    for _ in range(2):
        for function, ours in zip((f, g, h), compiled, strict=True):
            torch.testing.assert_close(function(X), ours(X), rtol=0, atol=0)


def broken(table: list[Any], note: str) -> Callable[[torch.Tensor], Any]:
    def f(x: torch.Tensor) -> Any:
        y = x + 1
        alternator.graph_break()
        table.append(note)
        y = y * 2
        alternator.graph_break()
        return y + len(table), note, f_itself() is not None

    def f_itself() -> Any:
        return note

    return f


def test_breaks_of_several_closures() -> None:
    tables: list[list[Any]] = [[], [], []]
    functions = [broken(table, note) for table, note in zip(tables, "abc", strict=True)]
    compiled = [alternator.compile(f, backend="eager") for f in functions]
    for round_ in range(3):
        for ours, table, note in zip(compiled, tables, "abc", strict=True):
            result, said, _ = ours(X)
            torch.testing.assert_close(result, (X + 1) * 2 + round_ + 1, rtol=0, atol=0)
            assert said == note and table == [note] * (round_ + 1)


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        alternator.graph_break()
        return x * self.linear.weight.sum()


def test_resume_points_are_shared_too() -> None:
    blocks = [Breaking() for _ in range(5)]
    compiled = [alternator.compile(block, backend="eager") for block in blocks]
    for _ in range(3):
        for block, ours in zip(blocks, compiled, strict=True):
            torch.testing.assert_close(block(X), ours(X), rtol=0, atol=0)
    assert counts()[1] == 2


def test_what_dies_frees_what_only_it_used() -> None:
    backend = Counting()
    blocks = [Block() for _ in range(3)]
    compiled = [alternator.compile(block, backend=backend) for block in blocks]
    for ours in compiled:
        ours(X)
    graphs = [weakref.ref(gm) for gm in backend.graphs]
    backend.graphs.clear()
    parameters = [weakref.ref(block.linear.weight) for block in blocks]
    modules = [weakref.ref(block) for block in blocks]
    del ours, compiled[0], blocks[0]  # the one that was traced
    gc.collect()
    assert parameters[0]() is None and modules[0]() is None
    assert graphs[0]() is not None
    before = counts()
    torch.testing.assert_close(compiled[0](X), blocks[0](X), rtol=0, atol=0)
    assert counts() == before
    compiled.clear()
    blocks.clear()
    gc.collect()
    assert [reference() for reference in parameters + modules] == [None] * 6
    assert graphs[0]() is not None  # for a compile() to come
    alternator.reset()
    gc.collect()
    assert graphs[0]() is None


def test_a_function_that_is_compiled_for_every_call() -> None:
    scale, notes = [2.0], list[str]()

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * scale[0]
        alternator.graph_break()
        notes.append("called")
        return y + x

    def expected(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * scale[0] + x

    backend = Counting()
    for round_ in range(6):
        x = X.clone().requires_grad_()
        result = alternator.compile(f, backend=backend)(x)
        torch.testing.assert_close(result, expected(x), rtol=0, atol=0)
        result.sum().backward()
        torch.testing.assert_close(x.grad, x.cos() * 2 + 1)
        assert len(notes) == round_ + 1
    assert len(backend.graphs) == 2
    scale[0] = 3.0
    for _ in range(3):
        x = X.clone().requires_grad_()
        torch.testing.assert_close(alternator.compile(f, backend=backend)(x), expected(x), rtol=0, atol=0)
    assert len(backend.graphs) == 3


def test_a_function_that_is_made_and_compiled_for_every_call() -> None:
    backend = Counting()

    def step(x: torch.Tensor, scale: Any) -> torch.Tensor:
        @alternator.compile(backend=backend)
        def inner(y: torch.Tensor) -> torch.Tensor:
            return y * scale

        result: torch.Tensor = inner(x)
        return result

    for scale in (2.0, 2.0, torch.tensor(3.0), torch.tensor(4.0), 2.0):
        torch.testing.assert_close(step(X, scale), X * scale, rtol=0, atol=0)
    assert len(backend.graphs) == 2
    for scale in map(float, range(5, 35)):  # each is another function: none reaches its limit
        torch.testing.assert_close(step(X, scale), X * scale, rtol=0, atol=0)
    assert alternator.counters()["eager"] == 0


def test_a_module_that_is_compiled_for_every_call() -> None:
    block, backend = Block(), Counting()
    for _ in range(3):
        same(block, alternator.compile(block, backend=backend))
        with torch.no_grad():
            block.linear.weight.mul_(2)
    before = len(backend.graphs)
    same(block, alternator.compile(block, backend=backend))
    assert len(backend.graphs) == before


def test_the_limit_of_a_function_that_is_compiled_for_every_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alternator.config, "recompile_limit", 2)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    for size in (3, 4, 5, 6, 3, 4, 7):
        x = torch.randn(size)
        compiled = alternator.compile(f, backend="eager", dynamic=False)
        torch.testing.assert_close(compiled(x), x + 1, rtol=0, atol=0)
    assert counts()[0] == 2
    assert alternator.counters()["hits"] == 2 and alternator.counters()["eager"] == 3
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "alternator"]
    assert warning.startswith("alternator hit config.recompile_limit (2)")
    assert "tensor 'x' size mismatch at index 0. expected" in warning
    alternator.reset()
    alternator.compile(f, backend="eager", dynamic=False)(torch.randn(7))
    assert counts()[0] == 1 and alternator.counters()["eager"] == 0


def test_not_all_functions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.compiler, "_MOST_KEPT", 2)
    made: dict[str, Any] = {}
    for name in "abc":
        exec(f"def {name}(x): return x * {ord(name)}", made)
    for name in "abcaa":
        torch.testing.assert_close(alternator.compile(made[name], backend="eager")(X), X * ord(name), rtol=0, atol=0)
    assert counts()[0] == 4


def test_a_closure_that_dies() -> None:
    held = Block()
    model = weakref.ref(held)

    def make(block: Any) -> Any:
        def f(x: torch.Tensor) -> Any:
            y = x + 1
            alternator.graph_break()
            return block(y)

        return f

    kept, other = Block(), alternator.compile(make(held), backend="eager")
    ours = alternator.compile(make(kept), backend="eager")
    other(X)
    torch.testing.assert_close(ours(X), kept(X + 1), rtol=0, atol=0)
    del other, held
    gc.collect()
    assert model() is None
    torch.testing.assert_close(ours(X), kept(X + 1), rtol=0, atol=0)


def test_reset_forgets_for_all() -> None:
    blocks = [Block() for _ in range(3)]
    compiled = [alternator.compile(block, backend="eager") for block in blocks]
    for ours in compiled:
        ours(X)
    assert counts()[0] == 1
    alternator.reset()
    for ours in reversed(compiled):
        ours(X)
    assert counts()[0] == 1
    for block, ours in zip(blocks, compiled, strict=True):
        torch.testing.assert_close(block(X), ours(X), rtol=0, atol=0)
    assert counts()[0] == 1


def test_run_uses_what_is_there() -> None:
    block = Block()
    compiled = alternator.compile(block, backend="eager")
    compiled(X)
    runs = alternator.run(block)
    before = alternator.counters()["hits"]
    torch.testing.assert_close(runs(X), block(X), rtol=0, atol=0)
    assert alternator.counters()["hits"] == before + 1
    assert counts()[0] == 1


def test_copies_share() -> None:
    compiled: Any = alternator.compile(Block(), backend="eager")
    compiled(X)
    again = copy.deepcopy(compiled)
    with torch.no_grad():
        again.linear.weight.mul_(2)
        torch.testing.assert_close(again(X), type(again).forward(again, X), rtol=0, atol=0)
    assert counts()[0] == 2  # without gradients
    assert not torch.equal(again(X), compiled(X))
    assert counts()[0] == 2


def test_threads() -> None:
    blocks = [Block() for _ in range(8)]
    compiled = [alternator.compile(block, backend="eager") for block in blocks]
    failures: list[BaseException] = []

    def work(block: Any, ours: Any) -> None:
        try:
            for _ in range(20):
                torch.testing.assert_close(block(X), ours(X), rtol=0, atol=0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(blocks, compiled, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert alternator.counters()["eager"] == 0


def test_an_explanation_is_complete_whatever_was_compiled_before() -> None:
    block = Block()
    alternator.compile(block, backend="eager")(X)
    explanation = alternator.explain(block)(X)
    assert len(explanation.graphs) == 1


def test_a_static_address_is_never_taken_for_granted() -> None:
    kinds: list[list[Any]] = []

    def backend(gm: Any, inputs: list[Any]) -> Any:
        kinds.append(
            [
                node.meta["tensor_dict"].get("_dynamo_static_input_type")
                for node in gm.graph.find_nodes(op="placeholder")
            ]
        )
        return gm.forward

    block = Block()
    block.shift._dynamo_static_input_type = "guarded"  # type: ignore[union-attr]
    alternator.compile(block, backend=backend)(X)
    assert "guarded" not in kinds[0] and kinds[0].count("unguarded") == 3

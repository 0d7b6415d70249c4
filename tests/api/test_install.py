"""Programs that were written for torch.compile, as they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

import alternator
from alternator import _C


def x() -> torch.Tensor:
    return torch.arange(4.0)


def f(x: Any) -> Any:
    return x + 1


def test_install_and_uninstall() -> None:
    before = torch.compile
    alternator.install()
    try:
        assert torch.compile is not before
        assert inspect.signature(torch.compile) == inspect.signature(before)
        compiled = torch.compile(f, backend="eager")
        assert isinstance(compiled, _C.Compiled)
        assert torch.equal(compiled(x()), x() + 1)
    finally:
        alternator.uninstall()
    assert torch.compile is before
    assert torch.equal(compiled(x()), x() + 1)
    assert alternator.counters()["hits"] == 1
    alternator.uninstall()  # once more does no harm
    assert torch.compile is before


def test_as_a_context_manager_also_nested() -> None:
    before = torch.compile
    with alternator.install():
        with alternator.install():
            assert isinstance(torch.compile(f, backend="eager"), _C.Compiled)
        assert isinstance(torch.compile(f, backend="eager"), _C.Compiled)
    assert torch.compile is before


def test_all_of_torchs_forms(seen: Any) -> None:
    with alternator.install():

        @torch.compile(backend=seen, fullgraph=True, dynamic=False, name="mine", recompile_limit=3)
        def decorated(x: Any) -> Any:
            return x * 2

        in_compiler = torch.compiler.compile(f, backend=seen)
        module = torch.nn.Linear(4, 4)
        module.compile(backend=seen)
    assert torch.equal(decorated(x()), x() * 2)
    assert torch.equal(in_compiler(x()), x() + 1)
    module(x())
    assert len(seen.graphs) == 3
    assert alternator.counters()["graphs"] == 3


def test_the_recompile_limit_of_torchs_form() -> None:
    with alternator.install():
        compiled = torch.compile(f, backend="eager", dynamic=False, recompile_limit=2)
    for size in range(2, 6):
        assert torch.equal(compiled(torch.ones(size)), torch.ones(size) + 1)
    assert alternator.counters()["graphs"] == 2
    assert alternator.counters()["eager"] == 2


def test_torchs_own_calls_are_not_ours(seen: Any) -> None:
    from torch.nn.attention import flex_attention as inside

    with alternator.install():
        namespace = {"__name__": "torch.somewhere", "torch": torch}
        exec("def make(f): return torch.compile(f, backend='eager')", namespace)
        make: Any = namespace["make"]
        assert not isinstance(make(f), _C.Compiled)
    assert inside is not None


@pytest.mark.parametrize("reset", [lambda: torch.compiler.reset(), lambda: torch._dynamo.reset()])
def test_reset_is_both(seen: Any, reset: Callable[[], None]) -> None:
    before = torch._dynamo.reset
    with alternator.install():
        compiled = torch.compile(f, backend=seen)
        compiled(x())
        compiled(x())
        reset()
        compiled(x())
    assert len(seen.graphs) == 2
    assert torch._dynamo.reset is before
    reset()
    compiled(x())
    assert len(seen.graphs) == 2


LOADED_LATER = """
import sys, torch, alternator
finders = list(sys.meta_path)
graphs = []
def backend(gm, _):
    graphs.append(gm)
    return gm.forward
with alternator.install():
    f = torch.compile(lambda x: x + 1, backend=backend)
    f(torch.ones(2))
    assert "torch._dynamo" not in sys.modules
    torch._dynamo.reset()
    f(torch.ones(2))
    torch.compiler.reset()
    f(torch.ones(2))
    assert len(graphs) == 3
assert torch._dynamo.reset.__code__.co_filename == torch._dynamo.__file__
assert sys.meta_path == finders
with alternator.install():
    torch._dynamo.reset()
    f(torch.ones(2))
assert len(graphs) == 4
print("done")
"""


def test_reset_is_both_where_dynamo_is_loaded_later(run_python: Callable[..., str]) -> None:
    assert run_python(LOADED_LATER) == "done\n"


NEVER_LOADED = """
import sys, torch, alternator
finders = list(sys.meta_path)
with alternator.install():
    pass
assert sys.meta_path == finders
import torch._dynamo
assert torch._dynamo.reset.__code__.co_filename == torch._dynamo.__file__
print("done")
"""


def test_nothing_of_install_is_left(run_python: Callable[..., str]) -> None:
    assert run_python(NEVER_LOADED) == "done\n"


SCRIPT = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.linear(x).relu()
net = Net()
@torch.compile(backend="eager", fullgraph=True)
def step(x):
    return net(x) + 1
net2 = torch.compile(net, backend="eager")
net.compile(backend="aot_eager")
x = torch.ones(2, 4)
assert torch.equal(step(x), net2(x) + 1)
step(x).sum().backward()
print("keys", list(net2.state_dict()))
print("grad", net.linear.weight.grad is not None)
"""


def test_an_unmodified_script(run_python: Callable[..., str]) -> None:
    script = f"""
import alternator, sys
alternator.install()
exec(compile({SCRIPT!r}, "script.py", "exec"), {{"__name__": "__main__"}})
print("graphs", alternator.counters()["graphs"], "eager", alternator.counters()["eager"])
"""
    said = run_python(script)
    assert "keys ['linear.weight', 'linear.bias']" in said
    assert "grad True" in said
    assert "graphs 2 eager 0" in said


def test_the_same_script_with_everything_off(run_python: Callable[..., str]) -> None:
    script = f"""
import alternator, sys
alternator.install()
exec(compile({SCRIPT!r}, "script.py", "exec"), {{"__name__": "__main__"}})
print("calls", alternator.counters()["calls"], "dynamo", "torch._dynamo.convert_frame" in sys.modules)
"""
    assert "calls 0 dynamo" in run_python(script, ALTERNATOR="0")


def test_torch_dynamo_is_not_loaded_without_need(run_python: Callable[..., str]) -> None:
    script = """
import sys, torch, alternator
net = torch.nn.Linear(3, 3)
f = alternator.compile(net, backend="eager")
g = alternator.compile(lambda x: x + 1 if x.sum() > 0 else x, backend="eager")
with alternator.install():
    h = torch.compile(lambda x: x * 2, backend="eager")
f(torch.ones(2, 3)), g(torch.ones(2)), h(torch.ones(2))
print("loaded", [m for m in ("torch._dynamo", "torch._inductor") if m in sys.modules])
assert alternator.counters()["graphs"] == 4
"""
    assert "loaded []" in run_python(script)

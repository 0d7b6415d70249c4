"""The stages of call_dispatch.cpp: each takes its kind of callable, in the order that docs/trace/calls.md gives."""

from __future__ import annotations

import functools
import importlib.util
import operator
import re
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import alternator

ROOT = Path(__file__).resolve().parents[3]
SOURCE = (ROOT / "csrc/trace/calls/call_dispatch.cpp").read_text()
PAGE = (ROOT / "docs/trace/calls.md").read_text()


def stages() -> list[str]:
    found = re.search(r"kStages\[\] = \{\n(.*?)\n\};", SOURCE, re.S)
    assert found is not None
    return re.findall(r"^ +(\w+),$", found[1], re.M)


def test_the_page_names_the_stages_in_their_order() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.M) == stages()


class Holder:
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def __call__(self, x: torch.Tensor, times: int = 2) -> torch.Tensor:
        return x * times


class Meta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance)


class Tested(metaclass=Meta):
    pass


class Watched:
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value * 2)


class Reference(weakref.ref):  # type: ignore[type-arg]
    pass


def set_through_super(x: torch.Tensor) -> torch.Tensor:
    watched = Watched()
    watched.value = x
    return watched.value


def through_proxy(x: torch.Tensor) -> torch.Tensor:
    def own(y: torch.Tensor) -> torch.Tensor:
        return y - 1

    return weakref.proxy(own)(x)


def through_subclass(x: torch.Tensor) -> torch.Tensor:
    holder = Holder()
    held = Reference(holder)()
    assert held is not None
    return held(x)


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return x.relu() + 1


holder = Holder()
items = [1, 2, 3]
length = items.__len__
inlined = alternator.compile(lambda x: x.sin() + 1, backend="eager")
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "call_bound_method": lambda x: holder.method(x),
    "call_slot_of_container": lambda x: x * items.__len__() + x.__getitem__(0),
    "call_weak_reference": through_proxy,
    "call_handler": lambda x: x * getattr(holder, "missing", 3),
    "call_torch_api": lambda x: torch.nn.functional.softmax(x, 0),
    "call_on_plain_values": lambda x: x.expand(torch.broadcast_shapes((3,), (2, 1))),
    "call_python_function": lambda x: (lambda y, *more, **named: y + len(more) + len(named))(x, 1, a=2),
    "call_compiled": lambda x: inlined(x),
    "call_scripted": lambda x: scripted(x),
    "call_preexisting_slot": lambda x: x * length(),
    "call_through_call_slot": lambda x: x * len.__call__(items) + type(len).__call__(len, items),
    "call_slot_with_handler": set_through_super,
    "call_class": lambda x: x * int("3") + len(list(items)) + isinstance(type("C", (Holder,), {})(), Holder),
    "call_partial": lambda x: functools.partial(holder, times=3)(x) + functools.partial(operator.add, 2)(3),
    "test_instance": lambda x: x + isinstance(Tested(), Tested),
    "call_listed_native": lambda x: x * operator.itemgetter(1)(items) + max(items),
    "call_special_method": lambda x: holder(x, times=5),
    "call_inherited_slot": through_subclass,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_stage_in_one_graph(name: str) -> None:
    assert name in stages()
    run = PROGRAMS[name]
    compiled = alternator.compile(run, backend="eager", fullgraph=True)
    for value in (torch.arange(3.0), torch.arange(3.0), torch.ones(3)):
        assert torch.equal(compiled(value), run(value))


def test_what_is_not_callable() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        made: Any = x + 1
        return made(x)

    def seven(x: torch.Tensor) -> torch.Tensor:
        number: Any = 7
        return x + number(x)

    for fn in (run, seven):
        with pytest.raises(TypeError, match="is not callable") as eager:
            fn(torch.ones(2))
        with pytest.raises(TypeError, match="is not callable") as traced:
            alternator.compile(fn, backend="eager")(torch.ones(2))
        assert str(eager.value) == str(traced.value)


def test_functions_of_modules_that_are_loaded_after_a_trace() -> None:
    """Marked functions, handlers and those that query is_compiling() are found when their module is there."""
    if importlib.util.find_spec("optree") is None:
        pytest.skip("torch.utils._cxx_pytree needs optree, which is not installed")
    code = """
        import sys, torch, alternator

        def before(x):
            return x + 1

        alternator.compile(before, backend="eager")(torch.ones(2))
        assert not {"optree", "torch._dynamo.decorators"} & sys.modules.keys()
        import torch._dynamo
        from torch.utils import _cxx_pytree
        from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder

        def broken(x):
            y = x + 1
            torch._dynamo.graph_break()
            return y * 2

        def region(x):
            return invoke_subgraph_placeholder(torch.sin, x)

        def tree(x):
            return _cxx_pytree.tree_map(torch.cos, {"a": x})["a"]

        x = torch.arange(3.0)
        counter = alternator.compile(broken, backend="eager")
        assert torch.equal(counter(x), broken(x))
        try:
            alternator.compile(broken, backend="eager", fullgraph=True)(x)
        except Exception as error:
            assert "graph_break" in str(error), error
        else:
            raise AssertionError("graph_break() was traced")
        for fn in (region, tree):
            assert torch.equal(alternator.compile(fn, backend="eager", fullgraph=True)(x), fn(x))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr

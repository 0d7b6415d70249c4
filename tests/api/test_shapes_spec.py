"""torch.compile(shapes_spec=...) of torch 2.13."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import alternator

dynamic_spec = pytest.importorskip("torch.fx.experimental.dynamic_spec", reason="torch before 2.13 has no shapes_spec")
TensorSpec, ShapeVar, IntVar, ShapesSpec = (
    getattr(dynamic_spec, name) for name in ("TensorSpec", "ShapeVar", "IntVar", "ShapesSpec")
)


def check(compiled: Any, fn: Callable[..., Any], *calls: tuple[Any, ...]) -> list[int]:
    counts = []
    for arguments in calls:
        torch.testing.assert_close(compiled(*arguments), fn(*arguments), rtol=0, atol=0)
        counts.append(alternator.counters()["traces"])
    return counts


def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def spec(**params: Any) -> Any:
    return ShapesSpec(params)


@pytest.mark.parametrize("installed", [False, True])
def test_what_is_named_is_symbolic_and_nothing_else(installed: bool) -> None:
    wanted = spec(x=TensorSpec([ShapeVar("a"), None]), n=IntVar("n"))
    if installed:
        with alternator.install():
            compiled = torch.compile(scaled, backend="eager", shapes_spec=wanted)
    else:
        compiled = alternator.compile(scaled, backend="eager", shapes_spec=wanted)
    x = torch.randn(4, 3)
    assert check(compiled, scaled, (x, 2), (torch.randn(5, 3), 3), (torch.randn(6, 3), 1)) == [1, 1, 1]
    widths = [(torch.randn(5, width), 2) for width in (4, 5, 6)]
    assert check(compiled, scaled, *widths) == [2, 3, 4]


def test_a_bare_params_spec() -> None:
    compiled = alternator.compile(
        scaled, backend="eager", shapes_spec=dynamic_spec.ParamsSpec({"x": TensorSpec([ShapeVar("a")])})
    )
    calls = [(torch.randn(n), 2) for n in (4, 5, 6)]
    assert check(compiled, scaled, *calls) == [1, 1, 1]
    assert check(compiled, scaled, *[(torch.randn(4), n) for n in (3, 4)]) == [2, 3]


def test_a_pinned_size() -> None:
    compiled = alternator.compile(scaled, backend="eager", shapes_spec=spec(x=TensorSpec([ShapeVar("a"), 3]), n=2))
    check(compiled, scaled, (torch.randn(4, 3), 2))
    with pytest.raises(ValueError, match="declares dim 1 as static with value 3, but got 4"):
        compiled(torch.randn(4, 4), 2)
    with pytest.raises(ValueError, match="declares n as static with value 2, but got 5"):
        compiled(torch.randn(4, 3), 5)
    with pytest.raises(ValueError, match="TensorSpec has 2 dims but tensor x has 1 dims"):
        compiled(torch.randn(4), 2)


def summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum() + y.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_equal_derived_and_assumed(backend: str) -> None:
    a = ShapeVar("a", max=50)
    wanted = ShapesSpec({"x": TensorSpec([a, a]), "y": TensorSpec([a * 2 + 1])}, assumptions=[a % 2 == 0])
    compiled = alternator.compile(summed, backend=backend, shapes_spec=wanted)
    calls = [(torch.randn(n, n), torch.randn(2 * n + 1)) for n in (4, 6, 8)]
    assert check(compiled, summed, *calls) == [1, 1, 1]
    for x, y in (((4, 6), 9), ((4, 4), 8), ((5, 5), 11), ((52, 52), 105)):
        with pytest.raises(RuntimeError, match="Runtime assertion failed for expression"):
            compiled(torch.randn(x), torch.randn(y))
    assert check(compiled, summed, *calls) == [1, 1, 1]
    check(compiled, summed, (torch.randn(0, 0), torch.randn(1)))


def test_a_variable_that_nothing_binds() -> None:
    a, b = ShapeVar("a"), ShapeVar("b")
    with pytest.raises(ValueError, match=r"unbound IntVar\(s\) \['b'\]"):
        alternator.compile(summed, shapes_spec=ShapesSpec({"x": TensorSpec([a])}, assumptions=[a > b]))


def test_containers_arguments_and_objects() -> None:
    class Holder:
        def __init__(self, size: int) -> None:
            self.t = torch.randn(size)

    def fn(d: Any, h: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return d["k"][1].sum() + h.t.sum() + args[0].sum() * kwargs["z"].sum()

    one = lambda: TensorSpec([ShapeVar()])  # noqa: E731
    wanted = ShapesSpec(
        {
            "d": dynamic_spec.DictSpec({"k": dynamic_spec.SeqSpec([None, one()])}),
            "h": dynamic_spec.ObjectSpec({"t": one()}),
            "*args": [one()],
            "**kwargs": {"z": one()},
        }
    )
    compiled = alternator.compile(fn, backend="eager", shapes_spec=wanted)
    for sizes in ((2, 3, 4, 5), (6, 7, 8, 9), (5, 4, 3, 2)):
        a, b, c, d = sizes
        arguments = {"k": [0, torch.randn(a)]}, Holder(b), torch.randn(c)
        z = torch.randn(d)
        torch.testing.assert_close(compiled(*arguments, z=z), fn(*arguments, z=z), rtol=0, atol=0)
    assert alternator.counters()["traces"] == 1


def test_a_module() -> None:
    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
            return x.sum() + y.sum()

    module = Doubled()
    compiled = alternator.compile(
        module, backend="eager", shapes_spec=spec(x=TensorSpec([ShapeVar()]), y=TensorSpec([ShapeVar()]))
    )
    for n in (2, 3, 4):
        x, y = torch.randn(n), torch.randn(n + 5)
        torch.testing.assert_close(compiled(x, y=y), module(x, y=y), rtol=0, atol=0)
    assert alternator.counters()["traces"] == 1


def test_dynamic_is_another_way_to_say_it() -> None:
    with pytest.raises(ValueError, match="cannot both be set"):
        alternator.compile(scaled, dynamic=True, shapes_spec=spec(x=TensorSpec([ShapeVar()])))


def test_two_specs_of_one_function() -> None:
    free = alternator.compile(scaled, backend="eager", shapes_spec=spec(n=IntVar()))
    plain = alternator.compile(scaled, backend="eager")
    x = torch.randn(3)
    assert check(free, scaled, (x, 2), (x, 3)) == [1, 1]
    assert check(plain, scaled, (x, 2), (x, 3), (x, 4)) == [2, 3, 3]

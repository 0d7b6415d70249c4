"""The hand-off of graphs with symbolic sizes and numbers: right at other sizes, and what compilers assume comes back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from symbolic_requests import Symbolic, add, all_events, getitem, mul, neg

FLOATS = (0.1, -2.7, 0.0, -0.0, 1e30, float("inf"), float("nan"))
backends = pytest.mark.parametrize("backend", ["aot_eager", "inductor"])


def double(*size: int, requires_grad: bool = False) -> torch.Tensor:
    made = torch.arange(1, 1 + torch.Size(size).numel(), dtype=torch.float64).reshape(size) / 7
    return made.requires_grad_(requires_grad)


def affine(learns: bool) -> Symbolic:
    """Sizes and numbers computed from a size, in the forward and in the backward pass."""
    made = Symbolic()
    size, s0 = made.size(5, "x")
    x = made.tensor(double(5, 3, requires_grad=learns), "x", size, 3)
    w = made.tensor(torch.nn.Parameter(double(3, 4)), "w")
    number = made.call(add, made.call(mul, s0, 2), 1)
    y = made.call("tanh", made.call(torch.matmul, x, w))
    rows = made.call(torch.cat, [y, made.call(torch.ones, number, 4, dtype=torch.float64)])
    scaled = made.call(mul, rows, number)
    part = made.call(getitem, made.call("view", scaled, -1), slice(None, number, None))
    made.outputs(scaled, part, made.call("expand", made.call("sum", y), s0, number))
    return made


@backends
@pytest.mark.parametrize("learns", [False, True])
def test_is_right_at_other_sizes(backend: str, learns: bool) -> None:
    compiled = affine(learns).compile(backend)
    for size in (5, 2, 3, 17, 33):
        assert compiled.admits(size)
        compiled.same_as_eager(size, double(size, 3, requires_grad=learns), torch.nn.Parameter(double(3, 4)))


def equal_and_divisible() -> Symbolic:
    """`x.view(-1, 4)` before `x + y`: torch replaces the symbol of x by that of y."""
    made = Symbolic()
    first, _ = made.size(8, "x")
    second, _ = made.size(8, "y")
    x, y = made.tensor(double(8), "x", first), made.tensor(double(8), "y", second)
    rows = made.call("view", x, -1, 4)
    total = made.call(add, x, y)
    made.outputs(rows, made.call(torch.narrow, total, 0, 0, 7))
    return made


def check_equal_and_divisible(compiled: Any) -> None:
    admitted = {size for size in range(2, 41) if compiled.admits(size, size)}
    assert admitted <= {size for size in range(8, 41) if size % 4 == 0}
    assert {8, 12, 40} <= admitted
    assert not compiled.admits(8, 12)
    for size in (8, 12, 40):
        compiled.same_as_eager(size, size, double(size), double(size))


def test_what_a_compiler_assumes_comes_back() -> None:
    with all_events() as seen:
        compiled = equal_and_divisible().compile("aot_eager")
    check_equal_and_divisible(compiled)
    assumed = [event for event in seen if event.kind == "assumed"]
    assert all(event.text.startswith("aot_eager assumes ") for event in assumed)
    texts = [event.condition for event in assumed]
    assert "x.size()[0] % 4 == 0" in texts
    assert "x.size()[0] == y.size()[0]" in texts or "y.size()[0] == x.size()[0]" in texts


def test_cached_code_brings_its_guards() -> None:
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    with fresh_cache():
        check_equal_and_divisible(equal_and_divisible().compile("inductor"))
        counters.clear()
        compiled = equal_and_divisible().compile("inductor")
        assert counters["aot_autograd"]["autograd_cache_hit"] == 1
        check_equal_and_divisible(compiled)


def test_cached_code_keeps_guards_on_replaced_symbols() -> None:
    """A guard over one symbol, which is then replaced by the other: torch would not store it with the code."""
    kept = []

    def backend(gm: Any, inputs: Any) -> Any:
        first, second = inputs[:2]
        assert first != 9
        assert second != 10
        assert first == second
        guards = first.node.shape_env.get_pruned_guards([first, second])
        kept.extend(str(guard.expr.func.__name__) for guard in guards)
        return lambda *given: gm.forward(*given)

    made = equal_and_divisible()
    made.compile(backend)
    assert sorted(kept) == ["Equality", "Unequality", "Unequality"]


def test_bounds_come_back() -> None:
    made = Symbolic()
    size, _ = made.size(8, "x")
    x = made.tensor(double(8), "x", size)
    made.outputs(made.call(torch.narrow, x, 0, 0, 7))
    compiled = made.compile("aot_eager")
    assert [size for size in range(2, 12) if compiled.admits(size)] == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("asks", ["forward", "backward"])
def test_guards_of_both_passes_come_back(asks: str) -> None:
    """The backward pass is compiled with the forward pass, even if it gets no symbols."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(name: str) -> Any:
        def compile(gm: Any, inputs: Any) -> Any:
            if name == asks:
                assert all(value.shape[0] > 3 for value in inputs if isinstance(value, torch.Tensor))
            return make_boxed_func(gm.forward)

        return compile

    made = Symbolic()
    size, _ = made.size(8, "x")
    x = made.tensor(double(8, requires_grad=True), "x", size)
    made.outputs(made.call("sin", x))
    compiled = made.compile(aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward")))
    assert not compiled.admits(3)
    assert compiled.admits(4)
    compiled.same_as_eager(5, double(5, requires_grad=True))


def test_a_later_guard_is_an_error() -> None:
    kept = []

    def backend(gm: Any, inputs: Any) -> Any:
        kept.extend(inputs)
        return lambda *given: gm.forward(*given)

    made = Symbolic()
    size, _ = made.size(8, "x")
    made.outputs(made.call("sin", made.tensor(double(8), "x", size)))
    made.compile(backend)
    with pytest.raises(Exception, match="frozen"):
        bool(kept[0] == 8)


def test_a_backend_gets_symbols_and_real_tensors() -> None:
    """As from TorchDynamo."""
    got = []

    def backend(gm: Any, inputs: Any) -> Any:
        got.append((gm, inputs))
        return lambda *given: gm.forward(*given)

    affine(False).compile(backend)
    gm, (number, x, w) = got[0]
    assert isinstance(number, torch.SymInt)
    assert number.node.hint == 5
    assert type(x) is torch.Tensor
    assert type(w) is torch.nn.Parameter
    examples = [node.meta["example_value"] for node in gm.graph.find_nodes(op="placeholder")]
    assert str(examples[0]) == str(examples[1].shape[0]) == str(number)
    assert list(examples[2].shape) == [3, 4]
    assert examples[1].stride() == (3, 1)


def test_derived_sizes() -> None:
    """y has two more rows than x, as the guards of the trace prove."""
    made = Symbolic()
    size, _ = made.size(5, "x")
    more = made.make("sum", size, made.environment.integer(2))
    x = made.tensor(double(5, 3, requires_grad=True), "x", size, 3)
    y = made.tensor(double(7, 3), "y", more, 3)
    made.outputs(made.call(add, made.call(torch.nn.functional.pad, x, (0, 0, 1, 1)), y))
    compiled = made.compile("aot_eager")
    for size in (2, 5, 9):
        assert compiled.admits(size)
        compiled.same_as_eager(size, double(size, 3, requires_grad=True), double(size + 2, 3))


@pytest.mark.parametrize("base", ["transposed", "channels_last", "part", "expanded"])
def test_layouts(base: str) -> None:
    def make(size: int) -> torch.Tensor:
        return {
            "transposed": lambda: double(3, size).t(),
            "channels_last": lambda: double(size, 3, 4, 5).to(memory_format=torch.channels_last),
            "part": lambda: double(size, 6)[:, 1:4],
            "expanded": lambda: double(1, 3).expand(size, 3),
        }[base]()

    order = {"transposed": (1, 0), "channels_last": (0, 2, 3, 1), "part": (), "expanded": ()}[base]
    made = Symbolic()
    size, _ = made.size(8, "x")
    value = make(8)
    x = made.tensor(value, "x", size, *value.shape[1:], order=order)
    made.outputs(made.call(add, x, 1), made.call("reshape", x, -1), made.call("flatten", made.call("relu", x)))
    compiled = made.compile("aot_eager")
    for size in (3, 8, 11):
        if compiled.admits(size):
            call = compiled.call
            found, expected = call(size, make(size)), made.export()(size, make(size))
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other)
                assert one.stride() == other.stride()
    assert compiled.admits(11)


@pytest.mark.parametrize("grad", [False, True])
def test_leaves_with_gradients_and_views(grad: bool) -> None:
    made = Symbolic()
    size, _ = made.size(8, "x")
    value = double(8, 3, requires_grad=True)
    if grad:
        value.grad = torch.ones(8, 3, dtype=torch.float64)
    x = made.tensor(value, "x", size, 3)
    y = made.tensor((double(8, 3, requires_grad=True) * 1).view(8, 3), "y", size, 3)
    made.outputs(made.call(mul, x, y))
    compiled = made.compile("aot_eager")
    for size in (2, 8, 11):
        compiled.same_as_eager(size, double(size, 3, requires_grad=True), double(size, 3, requires_grad=True))


@backends
def test_ints(backend: str) -> None:
    """Of any value: no program would see that 0 and 1 are not among them."""
    made = Symbolic()
    _, number = made.integer(7, "n")
    x = made.tensor(double(5), "x")
    scaled = made.call(mul, x, number)
    made.outputs(made.call(add, scaled, made.call(neg, number)))
    compiled = made.compile(backend)
    for value in (7, 1, 0, -1, -40, 10**6):
        assert compiled.admits(value)
        compiled.same_as_eager(value, double(5))


def as_item(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@backends
@pytest.mark.parametrize("use", ["arithmetic", "alpha", "in_place", "full"])
def test_floats(backend: str, use: str) -> None:
    """No compiler can make its code depend on one."""
    made = Symbolic()
    size, _ = made.size(5, "x")
    number = made.real(0.5, "lr")
    x, y = made.tensor(double(5).float(), "x", size), made.tensor(double(5).float(), "y", size)
    made.outputs(
        {
            "arithmetic": lambda: made.call(add, made.call(mul, x, number), number),
            "alpha": lambda: made.call(torch.add, x, y, alpha=made.call(neg, number)),
            "in_place": lambda: made.call("mul_", made.call("clone", y), number),
            "full": lambda: made.call(torch.full, (3,), number),
        }[use]()
    )
    compiled = made.compile(backend)
    assert compiled.texts() == []
    for value in FLOATS:
        compiled.same_as_eager(7, as_item(value), double(7).float(), double(7).float())


def test_a_float_that_a_compiler_needs_is_to_be_a_constant() -> None:
    made = Symbolic()
    size, _ = made.size(5, "x")
    number = made.real(0.25, "weight")
    x, y = made.tensor(double(5), "x", size), made.tensor(double(5), "y", size)
    made.outputs(made.call(torch.lerp, x, y, number))
    with all_events() as seen:
        assert made.hand_over("inductor") == [1]
    (event,) = [event for event in seen if event.kind == "specialized"]
    assert event.symbols == ("weight",)


def test_code_in_double_precision_gets_no_floats() -> None:
    """Inductor's C++ kernels take them in single precision."""

    def made() -> Symbolic:
        graph = Symbolic()
        graph.computes_double = True
        size, _ = graph.size(5, "x")
        number = graph.real(0.1, "lr")
        graph.outputs(graph.call(torch.add, graph.tensor(double(5), "x", size), 1, alpha=number))
        return graph

    assert made().hand_over("inductor") == [1]
    made().compile("aot_eager").same_as_eager(7, as_item(0.3), double(7))


def test_what_cannot_be_a_guard_is_to_be_a_constant() -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        number = inputs[0]
        assert torch.sym_sqrt(number) > 2.0
        return lambda *given: gm.forward(*given)

    made = Symbolic()
    size, _ = made.size(8, "x")
    other, _ = made.size(9, "y")
    made.outputs(made.call("sin", made.tensor(double(8), "x", size)), made.tensor(double(9), "y", other))
    assert made.hand_over(backend) == [0]


def test_a_graph_that_fails_with_symbols_is_tried_without() -> None:
    made = Symbolic()
    size, _ = made.size(8, "x")
    made.outputs(made.call(needs_a_constant, made.tensor(double(8), "x", size)))
    assert made.hand_over("aot_eager") == [0]


def needs_a_constant(x: Any) -> Any:
    if not isinstance(x.shape[0], int):
        raise NotImplementedError
    return x + 1

"""What a guard wants of a tensor, field by field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from guard_trees import guards


class MyTensor(torch.Tensor):
    pass


def leaf(*size: int, **options: Any) -> torch.Tensor:
    return torch.ones(*size or (2, 3), **options)


def view_in_no_grad() -> torch.Tensor:
    base = leaf(requires_grad=True) * 2
    with torch.no_grad():
        view = base[0:2]
    return view


def view_that_its_base_makes_require_grad() -> torch.Tensor:
    base = torch.zeros(4, 3)
    view = base[:2]
    base.mul_(torch.ones(3, requires_grad=True))
    return view


def inference(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode():
        return make()


def dual() -> Any:
    level = torch.autograd.forward_ad.enter_dual_level()
    made = torch.autograd.forward_ad.make_dual(leaf(), leaf())
    torch.autograd.forward_ad.exit_dual_level(level=level)
    return made


MAKE: dict[str, Callable[[], torch.Tensor]] = {
    "plain": leaf,
    "size": lambda: leaf(3, 3),
    "fewer dimensions": lambda: leaf(6),
    "no dimensions": lambda: torch.tensor(1.0),
    "strides": lambda: leaf(3, 2).t(),
    "expanded": lambda: leaf(1, 3).expand(2, 3),
    "dtype": lambda: leaf(dtype=torch.float64),
    "complex": lambda: leaf(dtype=torch.complex64),
    "conjugated": lambda: leaf(dtype=torch.complex64).conj(),
    "negated": lambda: leaf(dtype=torch.complex64).conj().imag,
    "device": lambda: leaf(device="meta"),
    "requires grad": lambda: leaf(requires_grad=True),
    "has a history": lambda: leaf(requires_grad=True) * 1,
    "view of a leaf": lambda: leaf(2, 3, requires_grad=True)[0:2],
    "view of a history": lambda: (leaf(2, 3, requires_grad=True) * 1)[0:2],
    "view made without grad": view_in_no_grad,
    "multi-output view": lambda: (leaf(4, 3, requires_grad=True) * 1).split(2)[0],
    "parameter": lambda: torch.nn.Parameter(leaf()),
    "frozen parameter": lambda: torch.nn.Parameter(leaf(), requires_grad=False),
    "subclass": lambda: leaf().as_subclass(MyTensor),  # type: ignore[attr-defined]
    "inference": lambda: inference(leaf),
    "zero tensor": lambda: torch._efficientzerotensor(2, 3),
    "empty": lambda: leaf(0, 3),
    "many dimensions": lambda: leaf(1, 2, 1, 2, 1, 2, 1),
}


@pytest.mark.parametrize("name", MAKE)
def test_another_tensor_of_the_same_kind_matches(name: str) -> None:
    first, second = MAKE[name](), MAKE[name]()
    assert first is not second
    spec = guards.TensorSpec(first)
    assert spec.matches(first)
    assert spec.matches(second)
    assert spec == guards.TensorSpec(second)
    assert spec.text


def test_no_two_kinds_match() -> None:
    specs = {name: guards.TensorSpec(make()) for name, make in MAKE.items()}
    for name, spec in specs.items():
        for other, make in MAKE.items():
            assert spec.matches(make()) == (name == other), (name, other)
            if name != other:
                assert spec.text_against(specs[other]) != specs[other].text_against(spec), (name, other)


def test_views_matter_only_where_gradients_do() -> None:
    spec = guards.TensorSpec(leaf())
    assert spec.matches(leaf(4, 3)[:2])
    assert spec.matches(leaf(4, 3)[1:3])  # elsewhere in its storage


def test_the_offset_matters_once_it_was_read() -> None:
    spec = guards.TensorSpec(leaf(4, 3)[1:3])
    spec.offset = 3
    assert spec.matches(leaf(4, 3)[1:3])
    assert not spec.matches(leaf(4, 3)[:2])


def test_a_view_whose_base_got_a_history() -> None:
    view = view_that_its_base_makes_require_grad()
    assert not guards.TensorSpec(leaf()).matches(view)
    assert guards.TensorSpec(view).matches(view_that_its_base_makes_require_grad())
    assert view.requires_grad and not view.is_leaf


def test_what_is_changed_in_place_is_noticed() -> None:
    changes: list[Callable[[torch.Tensor], Any]] = [
        lambda t: t.requires_grad_(),
        lambda t: t.resize_(5),
        lambda t: t.t_(),
        lambda t: t.unsqueeze_(0),
        lambda t: setattr(t, "data", torch.ones(2, 3, dtype=torch.float64)),
        lambda t: setattr(t, "data", torch.ones(7)),
        lambda t: setattr(t, "__class__", MyTensor),
        lambda t: t.mul_(torch.ones(3, requires_grad=True)),
    ]
    for change in changes:
        t = leaf()
        spec = guards.TensorSpec(t)
        assert spec.matches(t)
        change(t)
        assert not spec.matches(t)


def test_what_does_not_matter() -> None:
    t = leaf()
    spec = guards.TensorSpec(t)
    t.add_(1)
    assert spec.matches(t)
    t.grad = leaf()
    assert spec.matches(t)
    t.data = leaf() * 5
    assert spec.matches(t)


def test_tangents() -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(leaf(), leaf())
        assert not guards.TensorSpec(leaf()).matches(dual)
        assert "with a tangent" in guards.TensorSpec(dual).text_against(guards.TensorSpec(leaf()))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.nested.nested_tensor([leaf(1), leaf(2)]),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.eye(3).to_mkldnn(),
        lambda: torch.quantize_per_tensor(leaf(), 0.1, 0, torch.qint8),
    ],
)
def test_kinds_that_are_not_known_match_nothing_else(make: Callable[[], torch.Tensor]) -> None:
    t = make()
    spec = guards.TensorSpec(t)
    assert spec.text
    assert not guards.TensorSpec(leaf(3, 3)).matches(t)
    assert not spec.matches(leaf(3, 3))


def test_other_objects_do_not_match() -> None:
    spec = guards.TensorSpec(leaf())
    for other in (None, 1, [leaf()], torch.Tensor, torch.float32):
        assert not spec.matches(other)


def test_texts() -> None:
    assert guards.TensorSpec(leaf()).text == "a Tensor, of dtype float, of size [2, 3], on cpu"
    text = guards.TensorSpec(torch.nn.Parameter(leaf().t())).text
    assert text == "a Parameter, of dtype float, of size [3, 2], with strides [1, 3], on cpu, requiring grad"

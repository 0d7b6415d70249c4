"""Tensors of bound objects: looked at in one pass over their fields, and asked again where one of those changed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guard_models import Net, module_program
from guard_trees import Program, Tree, guards
from torch import nn
from torch.autograd import forward_ad


class Holder:
    def __init__(self, **tensors: torch.Tensor) -> None:
        self.__dict__.update(tensors)


def program_for(tensor: torch.Tensor) -> tuple[Program, Any]:
    """A guard on `holder.tensor`, bound."""
    holder = Holder(tensor=tensor, other=torch.ones(2, 3), third=torch.ones(1))
    tree = Tree()
    for name in ("other", "tensor", "third"):
        tree.slot().attr(name).guard("kTensor", getattr(holder, name)).identity().need()
    program = tree.program()
    assert program.check(holder) is not None
    assert program.is_bound(holder)
    return program, holder


def asks(program: Program, holder: Any) -> int:
    """How many tensors the next check asks."""
    before = program.counts["asked"]
    assert program.once(holder) is not None
    return program.counts["asked"] - before


def parameter(*size: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(*size))


def no_grad(act: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    def run(tensor: torch.Tensor) -> None:
        with torch.no_grad():
            act(tensor)

    return run


def add_history(tensor: torch.Tensor) -> None:
    tensor.requires_grad_(False)
    tensor.mul_(torch.ones(4, 3, requires_grad=True))


def add_tangent(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(forward_ad.make_dual(torch.ones(4, 3), torch.ones(4, 3)))


def make_view(tensor: torch.Tensor) -> None:
    base = torch.ones(2, 4, 3, requires_grad=True)
    torch.utils.swap_tensors(tensor, nn.Parameter._make_subclass(nn.Parameter, torch.ones(4, 3), True))
    tensor.requires_grad_(False)
    tensor.copy_(base[0])


EDITS: dict[str, tuple[Callable[[torch.Tensor], Any], bool]] = {
    # what is done to a parameter of size (4, 3), and whether the guard still holds
    "nothing": (lambda p: None, True),
    "arithmetic in place": (no_grad(lambda p: p.mul_(2)), True),
    "a gradient": (lambda p: setattr(p, "grad", torch.ones(4, 3)), True),
    "a backward pass": (lambda p: (p * 2).sum().backward(), True),
    "a hook": (lambda p: p.register_hook(lambda g: g), True),
    "an attribute": (lambda p: setattr(p, "note", 1), True),
    "data of the same kind": (lambda p: setattr(p, "data", torch.zeros(4, 3)), True),
    "data at an offset": (lambda p: setattr(p, "data", torch.zeros(5, 3)[1:]), True),
    "data with other strides": (lambda p: setattr(p, "data", torch.zeros(3, 4).t()), False),
    "data of another size": (lambda p: setattr(p, "data", torch.zeros(4, 4)), False),
    "data of another rank": (lambda p: setattr(p, "data", torch.zeros(4, 3, 1)), False),
    "data of a high rank": (lambda p: setattr(p, "data", torch.zeros(4, 3, 1, 1, 1, 1, 1)), False),
    "data of another dtype": (lambda p: setattr(p, "data", torch.zeros(4, 3, dtype=torch.float64)), False),
    "set_ of the same kind": (no_grad(lambda p: p.set_(torch.zeros(4, 3))), True),
    "set_ of another size": (no_grad(lambda p: p.set_(torch.zeros(6, 2))), False),
    "transposed in place": (no_grad(lambda p: p.t_()), False),
    "as_strided_": (no_grad(lambda p: p.as_strided_((4, 3), (1, 4))), False),
    "unsqueezed in place": (no_grad(lambda p: p.unsqueeze_(0)), False),
    "frozen": (lambda p: p.requires_grad_(False), False),
    "frozen and thawed": (lambda p: p.requires_grad_(False).requires_grad_(), True),
    "a history": (add_history, False),
    "another class": (lambda p: setattr(p, "__class__", type("Special", (nn.Parameter,), {})), False),
    "swapped with one of the same kind": (lambda p: torch.utils.swap_tensors(p, parameter(4, 3)), True),
    "swapped with another size": (lambda p: torch.utils.swap_tensors(p, parameter(3, 3)), False),
    "swapped with a frozen one": (
        lambda p: torch.utils.swap_tensors(p, nn.Parameter(torch.ones(4, 3), requires_grad=False)), False
    ),
    "a view": (make_view, False),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_a_parameter(name: str) -> None:
    edit, holds = EDITS[name]
    program, holder = program_for(parameter(4, 3))
    assert asks(program, holder) == 0
    edit(holder.tensor)
    assert program.holds(holder) == holds
    if holds:
        assert asks(program, holder) == 0  # it is known as it is now
        assert program.counts["bindings_stale"] == 0  # nothing but the tensor was looked at again
        holder.tensor.requires_grad_(False)
        assert not program.holds(holder)
    else:
        assert program.why(holder)
    assert program.counts["bindings_stale"] == 0


def test_a_tangent() -> None:
    program, holder = program_for(nn.Parameter(torch.ones(4, 3), requires_grad=False))
    with forward_ad.dual_level():
        add_tangent(holder.tensor)
        assert not program.holds(holder)


def test_an_edit_and_its_undoing() -> None:
    program, holder = program_for(parameter(4, 3))
    for _ in range(50):
        holder.tensor.requires_grad_(False)
        assert not program.holds(holder)
        holder.tensor.requires_grad_()
        assert program.holds(holder)
    assert program.counts["bindings_made"] == 1


def test_a_buffer_that_begins_to_require_grad() -> None:
    program, holder = program_for(torch.ones(4, 3))  # without autograd metadata
    holder.tensor.grad = torch.ones(4, 3)  # with them
    assert program.holds(holder)
    assert asks(program, holder) == 0
    holder.tensor.requires_grad_()
    assert not program.holds(holder)


def test_a_buffer_is_resized() -> None:
    program, holder = program_for(torch.ones(4, 3))
    holder.tensor.resize_(2, 3)
    assert not program.holds(holder)
    holder.tensor.resize_(4, 3)
    assert program.holds(holder)


def test_the_offset_where_it_was_read() -> None:
    base = torch.ones(4, 3)
    holder = Holder(tensor=torch.empty(0).set_(base[1:]))
    tree = Tree()
    spec = guards.TensorSpec(holder.tensor)
    spec.offset = 3
    tree.slot().attr("tensor").guard("kTensor", spec)
    tree.slot().attr("tensor").step("kType").guard("kIs", torch.Tensor)
    program = tree.program()
    assert program.check(holder) is not None
    assert asks(program, holder) == 0
    holder.tensor.set_(base.untyped_storage(), 0, (3, 3), (3, 1))
    assert not program.holds(holder)


@pytest.mark.parametrize("kind", ["a high rank", "a view", "a subclass", "sparse", "a history", "conjugated"])
def test_tensors_that_are_asked_each_time_or_not(kind: str) -> None:
    class Special(torch.Tensor):
        pass

    base = torch.ones(2, 4, 3, requires_grad=True)
    tensor, is_asked, edit = {
        "a high rank": (torch.ones(1, 2, 1, 2, 1, 2, 1), True, lambda t: t.unsqueeze_(0)),
        "a view": (base[0], True, no_grad(lambda t: t.t_())),
        "a subclass": (torch.Tensor._make_subclass(Special, torch.ones(4, 3)), False, lambda t: t.t_()),
        "sparse": (torch.ones(4, 3).to_sparse(), None, None),
        "a history": (base * 2, True, lambda t: t.detach_()),
        "conjugated": (torch.ones(4, 3, dtype=torch.complex64).conj(), None, None),
    }[kind]
    if edit is None:
        if kind == "sparse":
            tree = Tree()
            tree.slot().attr("tensor").guard("kTensor", tensor)
            assert not tree.program().holds(Holder(tensor=tensor))  # such tensors match nothing
            return
        program, holder = program_for(tensor)
        holder.tensor = tensor.resolve_conj()
        assert not program.holds(holder)
        return
    program, holder = program_for(tensor)
    assert asks(program, holder) == int(is_asked)
    assert program.holds(holder)
    edit(holder.tensor)
    assert not program.holds(holder)


def test_a_tensor_that_changes_time_and_again() -> None:
    program, holder = program_for(parameter(4, 3))
    for i in range(200):
        with torch.no_grad():
            holder.tensor.set_(torch.zeros(7, 3)[i % 3 : i % 3 + 4])
        assert program.once(holder) is not None
    holder.tensor.requires_grad_(False)
    assert not program.holds(holder)


def test_an_unchanged_model_asks_nothing() -> None:
    net, x = Net(depth=5), torch.ones(2, 4)
    program = module_program(net, x)
    assert program.check(net, x) is not None
    assert program.is_bound(net, x)
    assert asks_of(program, net, x) == 0
    net.layers[3].linear.weight.requires_grad_(False)
    assert not program.holds(net, x)
    net.layers[3].linear.weight.requires_grad_()
    assert program.is_bound(net, x)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert program.is_bound(net, x)
    assert asks_of(program, net, x) == 0


def asks_of(program: Program, *slots: Any) -> int:
    before = program.counts["asked"]
    assert program.once(*slots) is not None
    return program.counts["asked"] - before


def test_hooks_come_and_go() -> None:
    net, x = Net(), torch.ones(2, 4)
    program = module_program(net, x)
    assert program.check(net, x) is not None
    made = program.counts["bindings_made"]
    for _ in range(3):
        handle = net.layers[1].register_forward_hook(lambda *args: None)
        handle.remove()  # the dict has another version, and is empty
        assert program.is_bound(net, x)
    assert program.counts["bindings_made"] == made
    net.layers[1]._forward_hooks[7] = print  # type: ignore[assignment]
    assert not program.holds(net, x)
    net.layers[1]._forward_hooks.clear()
    assert program.holds(net, x)
    net.layers[1]._forward_hooks = type(net._forward_hooks)({1: print})  # type: ignore[list-item]
    assert not program.holds(net, x)


def test_tensors_die_and_others_take_their_place() -> None:
    program, holder = program_for(parameter(4, 3))
    for i in range(30):
        del holder.tensor
        gc.collect()
        holder.tensor = parameter(4, 3) if i % 2 else parameter(4, 4)
        assert program.holds(holder) == (i % 2 == 1)
        if i % 2:
            torch.utils.swap_tensors(holder.tensor, parameter(4, 4))
            gc.collect()
            assert not program.holds(holder)

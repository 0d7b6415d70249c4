"""Constructors and tests from torch's past: Variable, torch.FloatTensor, x.new(), and what programs still do with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from harness import Run, T, program
from torch import nn
from torch.autograd import Variable

import alternator


@program()
def test_variable(t: Run) -> None:
    def fn(x: Any) -> Any:
        y = Variable(x * 2)
        return (
            y,
            y.requires_grad,
            Variable(x.data, requires_grad=True) * 3,
            isinstance(y, Variable),
            Variable(torch.ones(2)) + 1,
        )

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    f(T(2, rg=True))


@program()
def test_variable_shares_its_memory(t: Run) -> None:
    def fn(x: Any) -> Any:
        y = Variable(x)
        y.add_(1)
        return x * 2

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program()
def test_tensors_of_data(t: Run) -> None:
    def fn(x: Any, numbers: Any) -> Any:
        return (
            x + torch.Tensor([1, 2]),
            torch.FloatTensor([[1, 2], [3, 4]]) @ x,
            x[torch.LongTensor([1, 0])],
            torch.LongTensor(range(3)),
            torch.DoubleTensor((1.5, 2)),
            torch.ByteTensor([1, 0]),
            torch.Tensor(numbers) * 2,
            x.new([1, 2]),
            x.new_tensor([3, 4]),
            x.new_tensor([3, 4], dtype=torch.int64, requires_grad=False),
            torch.Tensor(),
        )

    f = t.compile(fn)
    f(T(2), [1, 2])
    f.hit(T(2), [1, 2])
    f(T(2), [1, 3])
    f(T(2), (0.5, True))


@program()
def test_tensors_of_arrays(t: Run) -> None:
    def fn(x: Any, n: Any) -> Any:
        a = np.arange(4) * n
        return (
            x + torch.Tensor(np.reshape(np.array(range(2)), [2])),
            torch.Tensor(a),
            torch.FloatTensor(a / 2),
            torch.LongTensor(np.array([1.5, n])),
            torch.DoubleTensor(np.array([[n]])),
            x.new_tensor(np.array(n)),
            x.new(np.ones((2, 2))),
            x.new_tensor(a),
            x.new_tensor(a, dtype=torch.float64, requires_grad=True),
            torch.Tensor(np.sin(x.numpy())),
            torch.LongTensor(x.numpy().astype(np.int64)),
        )

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 3)
    f(T(2).double(), 3)


@program(one_graph=False)
def test_tensors_over_the_memory_of_arrays(t: Run) -> None:
    """Where the types agree, what is written to the one shows in the other."""

    def fn(x: Any, which: Any) -> Any:
        a = np.zeros(3, dtype=np.float32)
        b = torch.DoubleTensor(a) if which == 0 else x.new(a) if which == 1 else torch.Tensor(a)
        b.add_(x)
        a += 1
        return a, b

    f = t.compile(fn)
    for which in (0, 1, 2):
        f(T(3), which)
        f(T(3), which)


@program()
def test_tensors_of_a_size(t: Run) -> None:
    def fn(x: Any) -> Any:
        return (
            torch.Tensor(2, 3).zero_() + x,
            torch.FloatTensor(3).fill_(2),
            torch.LongTensor(x.size()).fill_(1),
            torch.Tensor(x.shape).copy_(x),
            x.new(x.size()).zero_(),
            torch.FloatTensor(2, 0),
        )

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))
    f(T(2, 3))


@program()
def test_the_default_type(t: Run) -> None:
    f = t.compile(lambda x: (torch.Tensor([1, 2]), torch.Tensor(2).fill_(1), x + 1))
    f(T(2))
    torch.set_default_dtype(torch.float64)
    f(T(2))
    torch.set_default_dtype(torch.float32)
    f(T(2))


@program(one_graph=False)
def test_under_a_default_device(t: Run) -> None:
    """Tensor() and its like do not ask the mode that it is; today's constructors do."""
    f = t.compile(lambda: (torch.Tensor([1, 2]).device, torch.FloatTensor(2).device, torch.empty(2).device))
    f()
    with torch.device("meta"):
        f()
    f()


@program()
def test_requires_grad_is_set_to_what_it_is(t: Run) -> None:
    net = nn.Linear(2, 2)

    def fn(x: Any) -> Any:
        x.requires_grad = False
        for p in net.parameters():
            p.requires_grad = True
        return net(x)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program(one_graph=False)
def test_requires_grad_is_set(t: Run) -> None:
    net = nn.Linear(2, 2)

    def fn(x: Any, flag: Any) -> Any:
        net.weight.requires_grad = flag
        return net(x)

    f = t.compile(fn)
    for flag in (True, False, False, True):
        f(T(2), flag)
        t.note(net.weight.requires_grad)


@program()
def test_instances_of_tensor_types(t: Run) -> None:
    def fn(x: Any) -> Any:
        return (
            isinstance(x, torch.FloatTensor),
            isinstance(x, torch.cuda.FloatTensor),
            isinstance(x, torch.LongTensor),
            isinstance(x, Variable),
            isinstance(3, torch.FloatTensor),
            x + 1,
        )

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    f(torch.ones(2, dtype=torch.int64))
    f(torch.ones(2, dtype=torch.float64))


def test_what_is_refused() -> None:
    for fn in (lambda x: torch.Tensor(x), lambda x: torch.FloatTensor([x[0], x[1]])):
        with pytest.raises(alternator.exc.Unsupported):
            alternator.compile(fn, backend="eager", fullgraph=True)(T(2))
        assert torch.equal(alternator.compile(fn, backend="eager")(T(2)), fn(T(2)))


@torch.jit.script
def scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.sin() * n if n > 2 else x - n


@program()
def test_scripted_functions(t: Run) -> None:
    f = t.compile(lambda x, n: scripted(x, n) + 1)
    f(T(3), 3)
    f.hit(T(3), 3)
    f(T(3), 1)


def branches(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


@program(one_graph=False)
def test_traced_functions_are_what_was_traced(t: Run) -> None:
    traced = torch.jit.trace(branches, (torch.ones(2),), check_trace=False)
    f = t.compile(lambda x: traced(x) * 2)
    f(torch.ones(2))
    f(-torch.ones(2))


@program()
def test_the_history_of_leaves(t: Run) -> None:
    weight = nn.Parameter(T(2))

    def fn(x: Any) -> Any:
        return x * weight, weight.grad_fn, x.grad_fn

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    f(T(2, rg=True))


def test_the_history_of_others() -> None:
    def fn(x: Any) -> Any:
        return x + 1 if x.grad_fn is None else x - 1

    compiled = alternator.compile(fn, backend="eager")
    for x in (T(2), T(2, rg=True), T(2, rg=True) * 2, T(2)):
        assert torch.equal(compiled(x), fn(x))


@program()
def test_shapes_as_tensors(t: Run) -> None:
    f = t.compile(lambda x: (torch._shape_as_tensor(x) + 1, x * torch._shape_as_tensor(x)[0].item()))
    f(T(3))
    f.hit(T(3))
    f(T(2, 3))


class Fields(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Lenient(dict):
    __getattr__ = dict.get


@program()
def test_keys_as_attributes(t: Run) -> None:
    fields, lenient = Fields(a=2), Lenient(b=3)

    def fn(x: Any) -> Any:
        return x * fields.a + (lenient.b or 0), lenient.absent, fields.get("c")

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    fields["a"] = 5
    f(T(2))
    lenient["absent"] = 1
    f(T(2))


@program(one_graph=False)
def test_keys_set_as_attributes(t: Run) -> None:
    fields = Fields(a=2)

    def fn(x: Any) -> Any:
        fields.b = fields.a + 1
        del fields.a
        return x * fields.b

    f = t.compile(fn)
    f(T(2))
    fields["a"] = 7
    f(T(2))
    t.note((dict(fields), fields.__dict__))


def test_a_key_that_is_absent() -> None:
    fields = Fields()
    compiled = alternator.compile(lambda x: fields.a + x, backend="eager")
    for _ in range(2):
        with pytest.raises(KeyError, match="'a'"):
            compiled(T(2))


@program()
def test_classes_called_like_native_ones(t: Run) -> None:
    class Impostor:
        def __init__(self, n: int) -> None:
            self.n = n

        def __call__(self, x: Any) -> Any:
            return x * self.n

    values = [
        type(name, (Impostor,), {})(2) for name in ("functools.partial", "re.Pattern", "datetime.date", "torch.Size")
    ]

    def fn(x: Any) -> Any:
        return [value(x) + value.n for value in values]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    values[1].n = 3
    values[2].n = 4
    f(T(2))


@program()
def test_buffers_that_the_call_makes(t: Run) -> None:
    class Holder(nn.Module):
        def forward(self, x: Any) -> Any:
            self.last = nn.Buffer(x * 2)
            kept = nn.Buffer(x, persistent=False)
            return (
                self.last + x,
                kept,
                kept.persistent,
                type(kept) is torch.Tensor,
                isinstance(kept, nn.Buffer),
                kept is x,
            )

    holder = Holder()
    t.watch(lambda: [dict(holder.named_buffers()), list(holder.state_dict())])
    f = t.compile(holder)
    for s in range(3):
        f(T(3, s=s))
    f(T(3, rg=True))

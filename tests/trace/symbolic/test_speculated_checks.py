"""Checks of data that raise: taken for granted by the trace, looked at by every call.

PYTEST_DONT_REWRITE: the assertions are the programs' own.
"""

from __future__ import annotations

from typing import Any

import torch
from harness import T, program
from torch import nn
from trace_support import in_child

import alternator


@program()
def test_an_assertion(t):
    def fn(x):
        assert (x > 0).all()
        return x * 2

    f = t.compile(fn)
    f(T(3) + 1)
    f.hit(T(3) + 2)
    f.free(T(3) - 5)
    f.hit(T(3) + 2)


@program()
def test_an_error_with_a_text_of_the_data(t):
    def fn(x, limit):
        if x.max() > limit:
            raise ValueError(f"{x.max().item():.1f} is more than {limit}, of {tuple(x.shape)}")
        return x + limit

    f = t.compile(fn)
    f(torch.ones(2, 2), 3)
    f.free(torch.full((2, 2), 5.0), 3)
    f.hit(torch.zeros(2, 2), 3)


@program()
def test_both_ways_round(t):
    def fn(x):
        if not (x > 0).any():
            raise ValueError("none")
        if (x < -10).any() or (x > 100).any():
            raise ValueError("far")
        assert x.sum() > 0 and x.mean() < 50, "sum"
        return x.sqrt()

    for bad in ([-1.0, -2.0], [-11.0, 20.0], [101.0, 2.0], [-3.0, 1.0], [60.0, 60.0]):
        f = t.compile(fn)
        f(torch.tensor([1.0, 4.0]))
        f.free(torch.tensor(bad))
        f.hit(torch.tensor([9.0, 4.0]))


@program()
def test_nothing_has_happened_yet(t):
    """Where the check fails, what stands before it has happened as in eager, once, and what stands behind it has not."""

    def fn(x, log, box):
        log.append("before")
        box["n"] = box.get("n", 0) + 1
        print("before", len(log))
        assert x.sum() > 0
        log.append("behind")
        print("behind", len(log))
        return x + box["n"]

    f = t.compile(fn)
    log: list[str] = []
    box: dict[str, int] = {}
    f(T(3) + 1, log, box)
    f.free(T(3) - 9, ["before"], {"n": 0})
    f(T(3) + 1, ["x"], {"n": 3})


@program()
def test_the_error_is_caught(t):
    def fn(x):
        try:
            if x.sum() < 0:
                raise ValueError("less")
            y = x + 1
        except ValueError as error:
            y = x * len(str(error))
        return y - 1

    f = t.compile(fn)
    f(T(3) + 1)
    f.free(T(3) - 9)
    f.hit(T(3) + 1)


@program(one_graph=False)
def test_a_check_that_fails_again_and_again(t):
    """It is a branch like any other then."""

    def fn(x):
        y = x + 1
        try:
            if x.sum() < 0:
                raise ValueError("less")
        except ValueError:
            y = y * 3
        return y - 1

    f = t.compile(fn)
    f(T(3) + 1)
    for _ in range(6):
        f(T(3) - 9)
    f(T(3) + 1)


@program()
def test_random_numbers_are_drawn_once(t):
    def fn(x):
        noise = torch.rand(3)
        if x.sum() < 0:
            raise ValueError(f"{noise.sum().item()}")
        return x + noise + torch.randn(3)

    f = t.compile(fn)
    f(T(3) + 1)
    f.free(T(3) - 9)
    f.hit(T(3) + 1)
    t.note(torch.rand(2))


@program(one_graph=False)
def test_what_writes_to_its_inputs_is_not_run_twice(t):
    def fn(x, state):
        state.add_(1)
        assert x.sum() > 0
        state.data.mul_(2)
        return x + state

    f = t.compile(fn)
    state = torch.zeros(3)
    f(T(3) + 1, state)
    f.free(T(3) - 9, state)
    f(T(3) + 1, state)


@program(one_graph=False)
def test_what_writes_to_the_data_of_its_inputs(t):
    def fn(x, state):
        assert x.sum() > 0
        state.data.mul_(2)
        return x + state

    f = t.compile(fn)
    state = torch.ones(3)
    f(T(3) + 1, state)
    f.free(T(3) - 9, state)
    f(T(3) + 1, state)


@program()
def test_the_checked_tensor_is_written_later(t):
    def fn(x):
        flag = x.sum() > 0
        if not flag:
            raise ValueError
        flag.fill_(False)
        return x + flag

    f = t.compile(fn)
    f(T(3) + 1)
    f.hit(T(3) + 2)
    f.free(T(3) - 9)


@program()
def test_an_operator_behind_the_check_fails(t):
    """Eager never gets there."""

    def fn(table, index):
        if index.max() >= table.shape[0]:
            raise IndexError("too far")
        return table[index] + 1

    f = t.compile(fn)
    f(torch.arange(4.0), torch.tensor([1, 2]))
    f.hit(torch.arange(4.0), torch.tensor([3, 0]))
    f.free(torch.arange(4.0), torch.tensor([1, 9]))


@program()
def test_gradients_go_through(t):
    def fn(x, w):
        y = x * w
        if y.isnan().any():
            raise FloatingPointError
        return (y * y).sum()

    f = t.compile(fn)
    w = torch.ones(3, requires_grad=True)
    f(T(3), w).backward()
    t.note(w.grad)
    f.free(T(3) * float("nan"), w)
    f.hit(T(3), w).backward()
    t.note(w.grad)


@program()
def test_numbers_as_conditions(t):
    """A tensor of any kind, as in eager: zero is false, nan is true."""

    def fn(x):
        if x:
            raise ValueError(x.item())
        return x + 1

    for value in (0.0, -0.0, 0, False):
        f = t.compile(fn)
        f(torch.tensor(value))
        f.free(torch.tensor(value) + 1)
    f = t.compile(fn)
    f(torch.tensor(0.0))
    f.free(torch.tensor(float("nan")))


@program()
def test_a_check_in_a_callee_and_in_a_loop(t):
    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

        def check(self, x: Any) -> None:
            if not torch.isfinite(x).all():
                raise FloatingPointError("not finite")

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                self.check(x)
                x = layer(x).relu()
            return x

    torch.manual_seed(0)
    f = t.compile(Checked())
    f(T(2, 3))
    f.hit(T(2, 3) + 1)
    f.free(T(2, 3) * float("inf"))


@program()
def test_distributions_check_what_they_are_given(t):
    def fn(mean, scale):
        normal = torch.distributions.Normal(mean, scale)
        return normal.log_prob(mean * 2), normal.rsample()

    f = t.compile(fn)
    f(T(3), torch.ones(3))
    f.hit(T(3) + 1, torch.ones(3) * 2)
    f.free(T(3), -torch.ones(3))


@program(one_graph=False)
def test_several_elements_have_no_truth_value(t):
    def fn(x):
        assert x > 0
        return x + 1

    f = t.compile(fn)
    f.free(T(3))
    f(T(1) + 1)


@program(one_graph=False)
def test_two_ways_that_go_on_are_no_check(t):
    def fn(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    f = t.compile(fn)
    f(T(3) + 1)
    f(T(3) - 9)


@program(one_graph=False)
def test_running_statistics_are_written_once(t):
    norm = nn.BatchNorm1d(3)

    def fn(x):
        y = norm(x)
        if x.sum() < 0:
            raise ValueError("less")
        return y

    f = t.compile(fn)
    f(T(2, 3) + 1)
    t.note([norm.running_mean, norm.running_var, norm.num_batches_tracked])
    f(T(2, 3) - 9)
    t.note([norm.running_mean, norm.running_var, norm.num_batches_tracked])
    f(T(2, 3) + 1)


@program(one_graph=False)
def test_generators_are_drawn_from_once(t):
    generator = torch.Generator().manual_seed(3)

    def fn(x, generator):
        noise = torch.rand(3, generator=generator)
        if x.sum() < 0:
            raise ValueError("less")
        return x + noise

    f = t.compile(fn)
    f(T(3) + 1, generator)
    f(T(3) - 9, generator)
    t.note(generator.get_state())
    torch.manual_seed(5)

    def seeded(x):
        torch.manual_seed(7)
        noise = torch.rand(3)
        if x.sum() < 0:
            raise ValueError("less")
        return x + noise

    g = t.compile(seeded)
    g(T(3) + 1)
    g(T(3) - 9)
    t.note(torch.rand(2))


@program(one_graph=False)
def test_hooks_behind_a_check(t):
    def fn(x, log):
        y = x * 2
        y.register_hook(lambda g: log.append(1))
        if x.sum() < 0:
            raise ValueError("less")
        return y.sum()

    f = t.compile(fn)
    log: list[int] = []
    f(T(3, s=0, rg=True), log).backward()
    f((T(3) - 9).requires_grad_(), log)
    t.note(log)


@in_child
def test_what_failed_too_often_is_not_assumed_again(front):
    def fn(x):
        y = x + 1
        try:
            if x.sum() < 0:
                raise ValueError("less")
        except ValueError:
            y = y * 3
        return y - 1

    compiled = alternator.compile(fn, backend="eager")
    good, bad = torch.ones(3), -torch.ones(3)
    assert torch.equal(compiled(good), fn(good))
    for _ in range(3):
        assert torch.equal(compiled(bad), fn(bad))
    assert alternator.counters()["eager"] == 3 and not alternator.counters()["breaks"]
    for x in (bad, good, bad, good):
        assert torch.equal(compiled(x), fn(x))
    assert alternator.counters()["eager"] == 3
    assert alternator.counters()["breaks"] == {"data_dependent": 1}


def checked_whole(x, mask=None):
    torch._check_tensor_all(x > 0, lambda: f"not positive: {x.min().item():.0f}")
    torch._check_tensor_all_with(ValueError, x.sum(-1) < 100, lambda: "too much")
    return x.sqrt() if mask is None else x[mask]


@program()
def test_all_of_a_tensor_is_checked(t):
    f = t.compile(checked_whole)
    f(T(2, 3).abs() + 1)
    f.hit(T(2, 3).abs() + 2)
    f.free(T(2, 3) - 5)
    f.free(T(2, 3) + 100)
    f.hit(T(2, 3).abs() + 2)
    f(torch.ones(0, 3))


@program()
def test_all_of_a_tensor_is_checked_for_gradients(t):
    f = t.compile(checked_whole)
    for scale in (1.0, 2.0):
        x = (T(2, 3).abs() + scale).requires_grad_()
        f(x).sum().backward()
        t.note(x.grad)


@program(one_graph=False)
def test_all_of_a_tensor_is_checked_next_to_a_write(t):
    def fn(x, total):
        total.add_(x.sum())
        torch._check_tensor_all_with(ValueError, x > 0)
        return x.sqrt()

    total = torch.zeros(())
    f = t.compile(fn)
    for x in (torch.ones(3), torch.full((3,), 2.0), torch.tensor([1.0, -1.0, 2.0]), torch.ones(3)):
        f.free(x, total)
        t.note(total)


def test_a_graph_that_writes_checks_all_of_a_tensor():
    def fn(x, total):
        total.add_(1)
        torch._check_tensor_all(x > 0)
        return x.sqrt() * total

    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = alternator.compile(fn, backend=backend, fullgraph=True)
    totals = torch.zeros(()), torch.zeros(())
    for x in (torch.ones(3), torch.full((3,), 4.0)):
        torch.testing.assert_close(compiled(x, totals[0]), fn(x, totals[1]), rtol=0, atol=0)
    for function, total in ((compiled, totals[0]), (fn, totals[1])):
        try:
            function(-torch.ones(3), total)
        except RuntimeError:
            pass
        else:
            raise AssertionError("no error")
    torch.testing.assert_close(*totals)
    if len(graphs) != 1:
        raise AssertionError(graphs)


@program()
def test_numbers_that_only_a_run_knows(t):
    alternator.config.capture_scalar_outputs = True  # in a process of its own

    def fn(x, lengths):
        longest = lengths.max().item()
        assert longest <= x.shape[0], f"{longest} is too long"
        if lengths.min().item() * 2 < longest:
            raise ValueError("uneven")
        return x * longest

    f = t.compile(fn)
    f(T(4), torch.tensor([2, 3]))
    f.hit(T(4), torch.tensor([4, 3]))
    f.free(T(4), torch.tensor([5, 5]))
    f.free(T(4), torch.tensor([1, 3]))
    f.hit(T(4), torch.tensor([4, 4]))

"""Dicts from outside that have tensors among their keys, as the state of an optimizer is; and optimizers themselves."""

from __future__ import annotations

import collections

import pytest
import torch
from harness import T, program
from trace_support import alone

import alternator


@program()
def test_read_by_key(t):
    a, b = T(2), T(2)
    table = {a: 3, "word": 4, b: [5]}

    def fn(x):
        return x * table[a] + table["word"] + table[b][0]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    table[b][0] = 6
    f(T(2))
    table[a] = 7
    f(T(2))
    table[T(2)] = 1  # one more key
    f(T(2))


@program()
def test_which_tensor_it_is(t):
    a, b = T(2), T(2)
    table = {a: 3, b: 4}

    def fn(x, key):
        return x * table.get(key, 1), key in table

    f = t.compile(fn)
    f(T(2), a)
    f.hit(T(2), a)
    f(T(2), b)
    f(T(2), T(2))  # equal, and another one


@program()
def test_tensors_of_the_call(t):
    def fn(table, x):
        return [key * value for key, value in table.items()], x + len(table)

    f = t.compile(fn)
    f({T(2): 1, T(3): 2}, T(2))
    f.hit({T(2): 1, T(3): 2}, T(2))
    f({T(3): 1, T(2): 2}, T(2))  # sizes change places
    f({T(2): 1, T(3): 2, T(4): 3}, T(2))
    key = T(2)
    f({key: 1, T(3): 2}, key)  # one of them is the argument


@program()
def test_written(t):
    a, b = T(2), T(2)
    table = {a: 1, b: 2}

    def fn(x, fresh):
        table[a] += 1
        table[fresh] = x
        table[b] = None
        return x + table[a]

    f = t.compile(fn)
    for _ in range(3):
        f(T(2), T(2))
    f(T(2), a)


@program()
def test_deleted_and_put_at_the_end(t):
    a, b = T(2), T(2)
    table = {a: 1, b: 2}

    def fn(x):
        value = table.pop(a)
        table[a] = value + 1
        return x + [v for v in table.values()][1]

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_a_default_for_each(t):
    a, b = T(2), T(2)
    table = collections.defaultdict(dict)

    def fn(x):
        for key in (a, b):
            state = table[key]
            state["step"] = state.get("step", 0) + 1
        return x + table[a]["step"], len(table)

    f = t.compile(fn)
    for _ in range(3):
        f(T(2))
    table[T(2)] = {"step": 1}
    f(T(2))
    del table[a]
    f(T(2))


@program()
def test_first_asked_then_kept(t):
    table = {}

    def fn(x, key):
        if key in table:
            return x + table[key]
        table[key] = 2
        return x - 1

    f = t.compile(fn)
    key = T(2)
    f(T(2), key)
    f(T(2), key)
    f(T(2), T(2))


@program()
def test_gradients_through_the_keys(t):
    weight = torch.nn.Parameter(T(2))
    table = {weight: 2.0}

    def fn(x):
        return sum(key * value for key, value in table.items()) * x

    f = t.compile(fn)
    f(T(2)).sum().backward()
    f(T(2)).sum().backward()
    table[weight] = 3.0
    f(T(2)).sum().backward()
    weight.requires_grad_(False)
    f(T(2))


@program(one_graph=False)
def test_a_key_with_a_hash_of_its_own(t):
    class Named(torch.Tensor):
        def __hash__(self):
            return 5

    key = T(2).as_subclass(Named)
    table = {key: 3}
    f = t.compile(lambda x: x * table[key])
    f(T(2))
    table[key] = 4
    f(T(2))


@program(one_graph=False)
def test_a_key_whose_class_gets_a_hash_later(t):
    class Plain(torch.Tensor):
        pass

    key = T(2).as_subclass(Plain)
    table = {key: 3}
    f = t.compile(lambda x: x * table[key])
    f(T(2))
    f.hit(T(2))
    Plain.__hash__ = lambda self: 5
    f(T(2))
    del Plain.__hash__
    f(T(2))


@program()
def test_a_tensor_where_a_number_is_wanted(t):
    def fn(x, by):
        y = torch.add(x, x * 2, alpha=by * 2)
        return y.addcdiv_(x, x + 1, value=by), x.addcmul(x, x, value=-by)

    f = t.compile(fn)
    f(T(2), torch.tensor(3.0))
    f.hit(T(2), torch.tensor(0.5))
    f(T(2), torch.tensor(2))


# ---- optimizers: what they ask is_compiling() for is not bit by bit what eager computes

OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {"foreach": True},
    "RMSprop": {},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "Rprop": {},
}


def trained(name: str, compile_step: bool) -> tuple[list[torch.Tensor], list[dict]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, **OPTIMIZERS[name])

    def step() -> None:
        optimizer.step()

    run = alternator.compile(step, backend="eager") if compile_step else step
    for i in range(5):
        if i == 3:
            optimizer.param_groups[0]["lr"] = 0.05
        optimizer.zero_grad()
        model(torch.ones(2, 3) * (i + 1)).pow(2).sum().backward()
        run()
    states = [dict(state) for state in optimizer.state_dict()["state"].values()]
    return [p.detach() for p in model.parameters()], states


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_an_optimizer(name: str) -> None:
    @alone
    def run() -> None:
        parameters, states = trained(name, compile_step=False)
        alternator.reset()
        own_parameters, own_states = trained(name, compile_step=True)
        for mine, other in zip(own_parameters, parameters, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
        for own, state in zip(own_states, states, strict=True):
            assert own.keys() == state.keys()
            for key, value in state.items():
                torch.testing.assert_close(own[key], value, rtol=1e-4, atol=1e-5)
        counted = alternator.counters()
        assert counted["breaks"].keys() == {"graph_break_call"}, counted  # torch's own calls of graph_break()
        assert 1 <= counted["graphs"] <= 3, counted

    run()


# ---- frames that record nothing


@alone
def test_what_records_nothing_runs_as_it_is() -> None:
    asked = []

    def ask(x: torch.Tensor) -> bool:
        asked.append(torch.compiler.is_compiling())
        return asked[-1]

    def fn(x: torch.Tensor) -> torch.Tensor:
        alternator.graph_break()
        answers = list(map(ask, [x, x, x, x]))
        alternator.graph_break()
        return x + len(set(answers))

    compiled = alternator.compile(fn, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    assert len(set(asked)) == 1, asked

"""Numbers of numpy's in arguments: inputs of the graph where whoever runs it takes them, constants everywhere else."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from harness import REGISTRY, T, add_row, check, program

import alternator

ROWS: dict[str, Any] = {
    "divided": lambda x, n: {"a": x + 1, "b": n / 2},
    "remainder": lambda x, n: x + (4096 % n),
    "with_a_tensor": lambda x, n: (x * n, n - x, x / n, n + x),
    "chain": lambda x, n: ((n + 1) * 3 - 2, n // 2, x + (n * 2 + 1)),
    "classes": lambda x, n: (x + 1, type(n), type(n / 2), type(n + 1)),
    "moved": lambda x, n: (x + 1, [n, (n,)], {"n": n}),
    "the_very_object": lambda x, n: (x * n, n),
    "is_none": lambda x, n: x + 1 if n is None else x * n,
    "in_place": lambda x, n: functools.reduce(lambda a, b: a + b, [n, 1, 2]) + x,
}
NEEDED: dict[str, Any] = {
    "branch": lambda x, n: x + 1 if n > 3 else x - 1,
    "truth": lambda x, n: x + 1 if n else x - 1,
    "size": lambda x, n: x.new_zeros(int(n)) + x.sum(),
    "range": lambda x, n: [x + i for i in range(int(n))],
    "index": lambda x, n: x[int(n) % 3],
    "torch_call": lambda x, n: torch.add(x, float(n)),
    "power": lambda x, n: (x**n, n**2),
    "compared": lambda x, n: (x > n, x == n),
    "hashed": lambda x, n: (x, {n: 1}.get(n), n in (1, 2, 3)),
    "isinstance": lambda x, n: (x + 1, isinstance(n, np.generic), isinstance(n, float)),
    "attributes": lambda x, n: (x + 1, n.dtype, n.item()),
    "ufunc": lambda x, n: x * np.sqrt(n),
    "known_tensor": lambda x, n: (torch.tensor([1.0, 2.0, 3.0]) * n, x),
    "round": lambda x, n: (x, round(float(n), 1), abs(n), -n),
}


def with_numbers(fn: Any) -> Any:
    def script(t: Any) -> None:
        f = t.compile(fn)
        for number in (np.int64(2), np.float64(2.5), np.int64(5), np.float32(1.5), np.int64(2), np.uint8(3)):
            f(T(3), number)

    return script


NAMES = [
    add_row(__name__, "test_row", row, with_numbers(expression), one_graph=False)
    for row, expression in (ROWS | NEEDED).items()
]


@pytest.mark.parametrize("name", NAMES, ids=list(ROWS | NEEDED))
def test_row(name):
    check(REGISTRY[name])


@program()
def test_one_entry_for_all_of_a_class(t):
    def fn(x, n):
        return x * n + (n % 3), n // 2

    f = t.compile(fn)
    f(T(3), np.int64(4))
    for number in range(10):
        f.hit(T(3), np.int64(number))
    f.miss(T(3), np.float64(4))
    f.hit(T(3), np.float64(0.5))
    f.miss(T(3), np.int32(4))
    f.miss(T(3), 4)
    f.hit(T(3), np.int64(-7))


@program(one_graph=False)
def test_numpy_warns(t):
    """The call falls back to eager, and warns where eager does. (Computed while tracing, it is a break.)"""

    def fn(x, n):
        return x + 1, 7 % n, n + np.int64(2**63 - 1)

    f = t.compile(fn)
    f(T(3), np.int64(-2))
    f(T(3), np.int64(0))
    f(T(3), np.int64(5))
    f.hit(T(3), np.int64(-3))


@program()
def test_one_object_twice(t):
    def fn(x, n, m):
        return x * n + m, n is m

    f = t.compile(fn)
    number = np.float64(2.5)
    f(T(3), number, number)
    f(T(3), number, np.float64(2.5))


@program()
def test_addresses_of_one_object(t):
    def fn(x, n, m):
        return x * n + m, id(n) == id(m), [n] == [m]

    f = t.compile(fn)
    number = np.float64(2.5)
    f(T(3), number, number)
    f(T(3), number, np.float64(2.5))


@program()
def test_next_to_a_write(t):
    def fn(x, n):
        x.add_(1)
        return n / 2, x * n

    f = t.compile(fn)
    f(T(3), np.float64(2.5))
    f(T(3), np.float64(4.5))


def op_counts(fn: Any, calls: list[tuple[Any, ...]], wrapped: bool = False) -> list[int]:
    counts: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        counts.append(sum(node.op.startswith("call") for node in gm.graph.nodes))
        return (lambda *given: gm(*given)) if wrapped else gm.forward

    compiled = alternator.compile(fn, backend=backend)
    for args in calls:
        for found, expected in zip(compiled(*args), fn(*args), strict=True):
            assert type(found) is type(expected)
            torch.testing.assert_close(found, expected) if isinstance(found, torch.Tensor) else None
            assert isinstance(found, torch.Tensor) or found == expected
    return counts


def test_they_are_inputs():
    calls = [(torch.ones(2), np.int64(i)) for i in range(10)]
    assert op_counts(lambda x, n: (x + 1, n / 2), calls) == [2]
    assert op_counts(lambda x, n: (x + (4096 % n),), calls[1:]) == [2]


def test_a_compiler_gets_constants():
    """Asked once whether it runs graphs as they are."""
    calls = [(torch.ones(2), np.float64(i)) for i in range(3)]
    assert op_counts(lambda x, n: (x * n, n / 2), calls, wrapped=True) == [2, 1, 1, 1]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compilers_of_torchs(backend):
    def fn(x: Any, n: Any) -> Any:
        return x * n + (n % 3), n / 2

    compiled = alternator.compile(fn, backend=backend, fullgraph=True)
    for number in (np.float64(2.5), np.float64(4.0), np.int64(7)):
        found, expected = compiled(torch.ones(3), number), fn(torch.ones(3), number)
        torch.testing.assert_close(found[0], expected[0])
        assert type(found[1]) is type(expected[1]) and found[1] == expected[1]

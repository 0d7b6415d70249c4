"""Numbers of numpy: plain values, computed while tracing; arrays are not."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from harness import REGISTRY, T, add_row, check, program

ROWS = {
    "log": lambda x, n: x * -(np.log(float(n)) / (n - 1)),
    "left_of_a_tensor": lambda x, n: np.float64(n) * x - np.int64(3) / x,
    "single_with_a_tensor": lambda x, n: (x + np.float32(n)) * np.float16(0.1),
    "compared_with_a_tensor": lambda x, n: (np.float64(n) < x, x == np.int8(2)),
    "power": lambda x, n: (np.float64(n) ** x, x ** np.int64(2)),
    "int_as_a_size": lambda x, n: (
        x.new_zeros(np.int64(n), 2) + x.reshape(np.int32(1), -1).expand(np.int64(1), -1).sum()
    ),
    "sizes_in_a_tuple": lambda x, n: torch.zeros((np.int64(n), 2)) + x.sum(),
    "prod": lambda x, n: x.repeat(int(np.prod([n, 2]))) * np.prod((n, 3)),
    "ceil_and_sqrt": lambda x, n: x[: int(np.ceil(np.sqrt(n)))] * math.sqrt(np.float64(n)),
    "types": lambda x, n: (x, type(np.float32(n) * 2), type(np.int64(n) / 2), isinstance(np.float64(n), float)),
    "methods": lambda x, n: (x * np.float64(n).item(), np.float64(n).is_integer(), np.int64(n).astype(np.float32)),
    "attributes": lambda x, n: (x, np.float64(n).real, np.int64(n).imag),
    "branch": lambda x, n: x + 1 if np.float64(n) > 3 else x - 1,
    "truth": lambda x, n: x + 1 if np.bool_(n > 3) else x - 1,
    "builtins": lambda x, n: (x, abs(np.float64(-n)), int(np.int64(n)), max(np.float64(n), 4.5), sum([np.int8(n), 1])),
    "range": lambda x, n: [x + i for i in range(np.int64(n))],
    "index": lambda x, n: (x[np.int64(1)], [7, 8, 9, 10, 11, 12][np.int64(n)]),
    "item_set": lambda x, n: x.clone().index_fill_(0, torch.tensor([0]), np.float64(n)),
    "leaves": lambda x, n: (x + 1, np.float64(n), [np.int32(n)], {"a": np.bool_(True)}),
    "minus_zero_and_nan": lambda x, n: (
        x,
        np.copysign(np.float64(0.0), -float(n)),
        np.isnan(np.float64(n) * np.float64(math.nan)),
    ),
    "overflowing_int": lambda x, n: x + int(np.uint8(200)) * n,
    "key": lambda x, n: ({np.int64(n): 1}[n], x),
}


def make(expression):
    def script(t):
        f = t.compile(lambda x, n: expression(x, n))
        for n in (2, 5):
            f(T(3), n)
            f.hit(T(3, s=1), n)
        f(T(3), 2)

    return script


NAMES = [add_row(__name__, "test_row", row, make(expression)) for row, expression in ROWS.items()]


@pytest.mark.parametrize("name", NAMES, ids=list(ROWS))
def test_row(name):
    check(REGISTRY[name])


@program()
def test_from_outside(t):
    state = {"scale": np.float64(2.0)}
    numbers = [np.int64(2), np.float32(0.5)]

    def fn(x, n):
        return x * state["scale"] + numbers[0], numbers[1] * n

    f = t.compile(fn)
    f(T(3), np.float64(1.5))
    f.hit(T(3), np.float64(1.5))
    state["scale"] = np.float64(3.0)
    f(T(3), np.float64(1.5))
    state["scale"] = np.float32(3.0)  # another type, the same value
    f(T(3), np.float64(1.5))
    state["scale"] = 3.0
    f(T(3), np.float64(1.5))
    numbers[1] = np.float32(-0.0)
    f(T(3), np.float64(1.5))
    numbers[1] = np.float32(0.0)
    f(T(3), np.float64(1.5))
    numbers[1] = np.float64("nan")
    f(T(3), np.float64(1.5))
    f(T(3), 1.5)


@program()
def test_written(t):
    box = {"n": np.int64(1)}

    def fn(x):
        box["n"] = box["n"] + 1
        return x + box["n"]

    f = t.compile(fn)
    t.watch(lambda: box)
    f(T(3))
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_floating_point_errors_are_eagers(t):
    def fn(x, n):
        return x + 1, np.float64(1.0) / n, np.int8(100) + np.int8(n)

    f = t.compile(fn)
    for n in (1, 0, 0, 100, 100, 1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            f(T(3), np.float64(n))
        t.note([str(one.message) for one in caught])
    with np.errstate(all="ignore"):
        f(T(3), np.float64(0))
    with np.errstate(all="raise"):
        f(T(3), np.float64(0))
    f(T(3), np.float64(0))


@program(one_graph=False)
def test_a_floating_point_error_is_not_caught(t):
    def fn(x, n):
        try:
            return x * (np.float64(1.0) / n)
        except FloatingPointError:
            return x - 1

    f = t.compile(fn)
    for n in (2.0, 0.0, 0.0, 4.0):
        with np.errstate(all="ignore"):
            f(T(3), n)
    with np.errstate(all="raise"):
        f(T(3), 0.0)
    f(T(3), 2.0)


@program(one_graph=False)
def test_arrays_and_texts(t):
    """What gives an array, takes the type of a number for a tensor's, or shows one."""

    def fn(x, n, which):
        v = np.float64(n)
        if which == 0:
            return x + torch.tensor(v), torch.as_tensor(np.int8(n)), torch.tensor([v, 1.0])
        if which == 1:
            return x, f"{v}", str(np.float32(n)), repr([v])
        if which == 2:
            return x + torch.from_numpy(np.ones(3) * v), v * [1, 2]
        if which == 3:
            return x * np.bool_(True), np.bool_(False) + x, torch.full((2,), np.bool_(True))
        if which == 4:
            return x, v.dtype, v.shape, np.sum([[n, 2], [3, 4]], axis=0)
        x = x.clone()
        x[np.int64(0)] = v
        return x

    f = t.compile(fn)
    for which in range(6):
        f(T(3), 2, which)
        f(T(3), 2, which)
        f(T(3), 5, which)


@program(one_graph=False)
def test_errors(t):
    def fn(x, n):
        x = x + 1
        if n == 0:
            x[0] = np.float32(2)
        if n == 1:
            x[np.float64(1)]
        if n == 2:
            return np.int64("a")
        if n == 3:
            return np.uint8(300)
        if n == 4:
            return np.log(x, 1, 2, 3)
        return torch.zeros(np.float64(2))

    f = t.compile(fn)
    for n in range(6):
        f(T(3), n)
        f(T(3), n)


def test_in_a_graph_it_is_a_plain_number():
    """Backends know nothing of numpy: the code of a graph must run without it."""
    import alternator

    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    alternator.compile(lambda x: x * np.float64(2.5) + torch.mul(x, np.int64(3)), backend=backend, fullgraph=True)(T(3))
    (graph,) = graphs
    assert "np." not in graph.code and "numpy" not in graph.code
    constants = [type(a) for node in graph.graph.nodes for a in node.args if isinstance(a, (int, float))]
    assert constants and set(constants) <= {int, float}


def test_code_of_the_users_sees_its_own_settings():
    """What runs for real while tracing has numpy's floating-point errors as the user wants them."""
    import alternator

    @torch._dynamo.assume_constant_result
    def real():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.isinf(np.float64(1.0) / np.float64(0.0))
        return len(caught)

    before = np.geterr()
    assert alternator.compile(lambda x: x + real(), backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1
    assert np.geterr() == before

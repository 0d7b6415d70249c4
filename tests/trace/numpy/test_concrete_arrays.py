"""Numbers of numpy: plain values, computed while tracing. Arrays of such: computed while tracing where they are made there."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import warnings

import numpy as np
import pytest
import torch
from harness import REGISTRY, T, add_row, check, program
from trace_support import with_two_numbers

import alternator

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


NAMES = [add_row(__name__, "test_row", row, with_two_numbers(expression)) for row, expression in ROWS.items()]


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
def test_texts_and_odd_uses(t):
    """What shows a number, or takes its type for something that torch says."""

    def fn(x, n, which):
        v = np.float64(n)
        if which == 0:
            return x + torch.tensor([v, 1.0])
        if which == 1:
            return x, f"{v}", str(np.float32(n)), repr([v])
        if which == 2:
            return x * np.bool_(True), np.bool_(False) + x, torch.full((2,), np.bool_(True))
        x = x.clone()
        x[np.int64(0)] = v
        return x

    f = t.compile(fn)
    for which in range(4):
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
    """What runs concretely while tracing has numpy's floating-point errors as the user wants them."""

    @torch._dynamo.assume_constant_result
    def real():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.isinf(np.float64(1.0) / np.float64(0.0))
        return len(caught)

    before = np.geterr()
    assert alternator.compile(lambda x: x + real(), backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1
    assert np.geterr() == before


# ------------------------------------------------------------------------------------------------ arrays of the trace

ARRAYS = {
    "array_of_a_list": lambda x, n: x + float(np.array([1.0, n, 3]).sum()),
    "arange": lambda x, n: (x, np.arange(n), np.arange(1, 2 * n, 2, dtype=np.int32), np.arange(0.0, 1.0, 0.25)),
    "linspace": lambda x, n: (x, np.linspace(0, 1, n), np.linspace(0.0, n, 3, endpoint=False)),
    "zeros_ones_full": lambda x, n: (x, np.zeros((n, 2)), np.ones(n, dtype=np.int8), np.full((2,), n), np.eye(n)),
    "likes": lambda x, n: (x, np.zeros_like(np.arange(n)), np.full_like(np.ones(2), n), np.ones_like([1, n])),
    "of_a_shape": lambda x, n: (x.reshape(-1) * int(np.prod(x.shape)), np.zeros(x.shape), np.array(x.shape) // 2),
    "arithmetic": lambda x, n: (
        x,
        np.arange(n) * 2 + 1.5 - np.ones(n) / 3,
        -(np.arange(n) ** 2) % 3 // 2,
        1 / np.arange(1, n),
    ),
    "with_lists": lambda x, n: (
        x,
        np.arange(2) + [n, 1],
        [n, 1] * np.arange(2),
        np.float64(n) * [1, 2],
        (1, n) - np.ones(2),
    ),
    "in_place": lambda x, n: (x, in_place(n)),
    "comparisons": lambda x, n: (
        x,
        np.arange(n) > 1,
        np.arange(n) == [0] * n,
        np.all(np.arange(n) >= 0),
        ~(np.arange(n) < 2),
    ),
    "matrices": lambda x, n: (
        x,
        np.eye(n) @ np.ones((n, 2)),
        np.dot(np.arange(n), np.arange(n)),
        np.outer([1, 2], [3, n]),
    ),
    "ufuncs": lambda x, n: (x, np.sqrt(np.arange(n)), np.exp(np.ones(2)), np.maximum([1, 5], n), np.sin(np.float32(n))),
    "out": lambda x, n: (x, np.add(np.arange(3), n, out=np.zeros(3))),
    "indexing": lambda x, n: (
        x + np.arange(6)[n],
        np.arange(6)[1:n],
        np.arange(6).reshape(2, 3)[:, 1],
        np.arange(6).reshape(2, 3)[..., None],
        np.arange(6)[[0, n]],
        np.arange(6)[np.arange(6) > n],
        np.arange(6).reshape(2, 3)[1, 2],
    ),
    "items_set": lambda x, n: (x, items_set(n)),
    "reductions": lambda x, n: (
        x * np.arange(n).sum(),
        np.arange(6).reshape(2, 3).mean(axis=0),
        np.arange(6.0).reshape(2, 3).std(axis=1, keepdims=True),
        np.arange(n).max(),
        np.arange(n).argmax(),
        np.cumsum(np.arange(n)),
        np.median([1, n, 7]),
    ),
    "types": lambda x, n: (
        x,
        np.arange(n).astype(np.float32),
        np.arange(n).astype("int8").dtype,
        np.arange(n).dtype == np.int64,
        np.zeros(n, dtype=float).dtype.name,
        np.dtype("float32"),
        np.ones(1).dtype.itemsize,
    ),
    "shapes": lambda x, n: (
        x.reshape(np.zeros((1, 3)).shape),
        np.arange(6).reshape(3, -1).T,
        np.arange(6).reshape(2, 3).transpose(1, 0).copy(),
        np.zeros((2, n)).shape,
        np.zeros((2, n)).ndim,
        np.zeros((2, n)).size,
        np.ones((1, n)).squeeze(),
        np.expand_dims(np.ones(n), 0),
        len(np.zeros((n, 2))),
    ),
    "joined": lambda x, n: (
        x,
        np.concatenate([np.arange(2), [n]]),
        np.stack([np.arange(2), np.ones(2)], axis=1),
        np.vstack([[1, 2], [3, n]]),
        np.split(np.arange(6), 3),
        np.tile([1, n], 2),
        np.repeat([1, n], 2),
        np.meshgrid(np.arange(2), np.arange(n)),
    ),
    "chosen": lambda x, n: (
        x,
        np.where(np.arange(n) > 1, 1.0, 0.0),
        np.clip(np.arange(n), 1, 2),
        np.nonzero([0, n, 0]),
    ),
    "sorted": lambda x, n: (
        x,
        np.sort([3, n, 1]),
        np.argsort([3, n, 1]),
        np.unique([n, n, 1]),
        sorted(np.array([3, n, 1])),
    ),
    "as_numbers": lambda x, n: (
        x * np.array(n).item(),
        np.arange(n).tolist(),
        np.arange(6).reshape(2, 3).tolist(),
        float(np.array(1.5)),
        int(np.array(n)),
        bool(np.array([n > 3])),
    ),
    "iterated": lambda x, n: (
        [x + v for v in np.arange(n)],
        list(np.linspace(0, 1, n)),
        [row.sum() for row in np.eye(n)],
        list(zip(np.arange(2), [n, n])),
        dict(enumerate(np.array([n, 1]))),
        sum(np.arange(n)),
        max(np.array([1, n])),
        tuple(np.arange(n)),
    ),
    "unpacked": lambda x, n: (lambda a, b, *c: (x * a, b, c))(*np.arange(4) + n),
    "truth": lambda x, n: x + 1 if np.array([n > 3]) else x - 1,
    "any": lambda x, n: x + 1 if (np.arange(n) > 3).any() else x - 1,
    "contains": lambda x, n: (x, n in np.arange(4), 2.5 in np.arange(3)),
    "isinstance": lambda x, n: (
        x,
        isinstance(np.arange(n), np.ndarray),
        type(np.arange(n)) is np.ndarray,
        isinstance(x, np.ndarray),
    ),
    "drop_path": lambda x, n: [x * p for p in np.linspace(0.0, 0.1, n)],
    "frequencies": lambda x, n: x * float((1.0 / (10000.0 ** (np.arange(0, 8, 2) / 8))).sum() * n),
    "base": lambda x, n: (x, np.arange(n).base is None, (lambda a: a[1:].base is a)(np.arange(n))),
    "order": lambda x, n: (x, np.asfortranarray(np.arange(6).reshape(2, 3)), np.ones((2, n), order="F")),
    "bytes": lambda x, n: (x, np.arange(n, dtype=np.int8).tobytes()),
    "key": lambda x, n: ({np.arange(5)[n - 1]: 1}[n - 1], x),
    "in_containers": lambda x, n: (x, {"a": np.arange(n), "b": [np.ones(2)]}),
}


def in_place(n):
    a = np.arange(4.0)
    b = a
    a += n
    a[1:] *= 2
    return a, b


def items_set(n):
    a = np.zeros((2, 3))
    a[0] = 1
    a[:, 1] = [n, 2]
    a[a > 1] = -1
    a[1, 2] = n
    return a


ARRAY_NAMES = [add_row(__name__, "test_array", row, with_two_numbers(expression)) for row, expression in ARRAYS.items()]


@pytest.mark.parametrize("name", ARRAY_NAMES, ids=list(ARRAYS))
def test_array(name):
    check(REGISTRY[name])


TENSORS = {
    "tensor": lambda x, n: x + torch.tensor(np.arange(3) * n),
    "tensor_with_a_type": lambda x, n: x + torch.tensor(np.arange(3), dtype=torch.float32) * n,
    "tensor_of_a_number": lambda x, n: (
        x + torch.tensor(np.float64(n)),
        torch.tensor(np.int8(n)),
        torch.as_tensor(np.float32(n)),
    ),
    "from_numpy": lambda x, n: x + torch.from_numpy(np.linspace(0.0, 1.0, 3, dtype=np.float32)) * n,
    "as_tensor": lambda x, n: (x + torch.as_tensor(np.full(3, n)), torch.as_tensor(np.ones(2), dtype=torch.float32)),
    "empty": lambda x, n: (
        torch.Tensor(np.arange(0, n, -1)).long() + x.sum(),
        torch.cat([x, torch.as_tensor(np.zeros(n)[:0], dtype=x.dtype)]),
        torch.tensor(np.arange(0)),
    ),
    "leaves": lambda x, n: (x, torch.from_numpy(np.arange(6).reshape(2, 3) + n), torch.tensor(np.eye(2))),
    "written": lambda x, n: torch.from_numpy(np.arange(3.0)).add_(n) + x,
    "kept": lambda x, n: kept(x, n),
    "kinds": lambda x, n: [torch.tensor(np.arange(n).astype(k)) for k in ("bool", "int8", "uint8", "float16", "int32")],
    "no_dimension": lambda x, n: x * torch.tensor(np.array(n)),
    "gradient": lambda x, n: torch.tensor(np.arange(3.0) + n, requires_grad=True),
    "not_a_number": lambda x, n: torch.tensor(np.array([math.nan, math.inf, -math.inf, -0.0, n])) + x.sum(),
    "value": lambda x, n: x + 1 if torch.tensor(np.arange(n)).sum().item() > 3 else x,
    "index": lambda x, n: (x[np.arange(3)[::-1].copy()] * n, x[None, np.array([[0, n % 3], [2, 1]])], x[..., INDEX]),
    "index_that_is_written": lambda x, n: written_at(x.clone(), n),
}
INDEX = np.array([2, 0], dtype=np.int32)


def written_at(x, n):
    x[np.array([0, 2])] = n
    x[np.array([1])] += 1
    return x


def kept(x, n):
    position = np.arange(3)
    t = torch.from_numpy(position)
    return x + t * n, position.sum()


@program(one_graph=False)
def test_masks_and_other_indices(t):
    def fn(x, which):
        if which == 0:
            return x[np.arange(3) < 2], x[np.array([True, False, True])]
        if which == 1:
            return x[np.array([[0, 1], [2, 0]])]
        if which == 2:
            return x[np.array(1)]
        return x[np.array([0, 1], dtype=np.uint8)]

    f = t.compile(fn)
    for which in (0, 0, 1, 1, 2, 2, 3):
        f(T(3), which)


TENSOR_NAMES = [
    add_row(__name__, "test_tensor_of", row, with_two_numbers(expression)) for row, expression in TENSORS.items()
]


@pytest.mark.parametrize("name", TENSOR_NAMES, ids=list(TENSORS))
def test_tensor_of(name):
    check(REGISTRY[name])


@program()
def test_views_share_memory(t):
    def fn(x, n):
        a = np.arange(6.0)
        rows = a.reshape(2, 3)
        rows[0, 0] = n
        tail = a[4:]
        tail += 10
        back = a[::-1]
        return x + a[0] + rows[1, 2], a, rows, tail, back, rows.T, a.view(np.int64)

    f = t.compile(fn)
    f(T(3), 2)
    f.hit(T(3), 2)
    f(T(3), 5)


@program()
def test_results_are_new_in_every_call(t):
    def fn(x, n):
        a = np.arange(n)
        return x + 1, a, a, [a]

    f = t.compile(fn)
    first = f(T(3), 3)
    second = f.hit(T(3), 3)
    t.watch(lambda: (first, second))
    for one in (first, second):
        if one is not None:
            one[1][0] = 7
    third = f(T(3), 3)
    t.watch(lambda: third)


@program()
def test_stored(t):
    box = {}

    class Holder:
        pass

    holder = Holder()

    def fn(x, n):
        box["a"] = np.arange(n)
        holder.b = box["a"][1:]
        holder.b[0] = 9
        return x * holder.b.sum()

    f = t.compile(fn)
    t.watch(lambda: (box, holder.__dict__))
    f(T(3), 3)
    f(T(3), 3)
    f(T(3), 4)


@program(one_graph=False)
def test_same_memory_as_a_tensor(t):
    """What is written to the one shows in the other."""

    def fn(x, n, which):
        a = np.arange(3.0)
        v = a[1:]
        b = torch.from_numpy(a)
        if which == 0:
            b.add_(n)
            return x + a.sum()
        if which == 1:
            v[0] = n
            return x + b
        if which == 2:
            return a, b, x + n
        if which == 3:
            c = b[1:]
            c.mul_(n)
            return v
        if which == 4:
            return x, torch.as_tensor(a), v
        if which == 5:
            b = b + 0
            a[0] = 100
            return b, a
        y = x + b
        alternator.graph_break()
        a[0] = n
        return y + b

    f = t.compile(fn)
    for which in range(7):
        for n in (2, 2, 3):
            f(T(3), n, which)


@program(one_graph=False)
def test_odd_tensors_of_arrays(t):
    def fn(x, which):
        a = np.arange(6.0)
        if which == 0:
            return torch.from_numpy(a[::2]) + x
        if which == 1:
            return torch.from_numpy(a.reshape(2, 3).T) + x.sum()
        if which == 2:
            return torch.from_numpy(a[::-1])
        if which == 3:
            return torch.as_tensor(a, dtype=torch.float32), torch.as_tensor(a, torch.float32), torch.asarray(a)
        if which == 4:
            return torch.from_numpy(np.float64(2))
        if which == 5:
            return x.new_tensor(a), torch.Tensor(a)
        if which == 6:
            return torch.from_numpy(np.arange(3, dtype=np.uint16))
        if which == 7:
            return torch.from_numpy(np.ones(2, dtype=complex))
        if which == 8:
            return x[np.array([0, 1])], x[np.int64(1)], x[np.array([True, False, True])]
        if which == 9:
            return torch.from_numpy(np.broadcast_to(1.0, (3,)).copy()) + x
        if which == 10:
            return x.shape, torch.zeros(tuple(np.array([2, 3])))
        if which == 13:
            return (
                torch.tensor(a.reshape(2, 3).T),
                torch.tensor(a[::2]),
                torch.tensor(a[::-1]),
                torch.tensor(a[:, None]),
            )
        if which == 14:
            return torch.tensor(np.zeros((0, 2))), torch.tensor(np.zeros(0)), torch.from_numpy(np.zeros((2, 0)))
        if which == 11:
            return torch.cat([x, torch.from_numpy(a[:, None])[0].float()])
        x = x.clone()
        x[:] = torch.from_numpy(a[:3]).float()
        return x

    f = t.compile(fn)
    for which in range(15):
        f(T(3), which)
        f(T(3), which)


@program(one_graph=False)
def test_operators_of_tensors_and_arrays(t):
    def fn(x, which):
        a = np.arange(3.0)
        if which == 0:
            return x * a
        if which == 1:
            return a * x
        if which == 2:
            a[0] = x[0]
            return a
        if which == 3:
            return a < x
        if which == 4:
            return np.sum(x), np.array(x)
        return sum([a, a], 0), sum([x, x], 0)

    f = t.compile(fn)
    for which in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            f(T(3), which)
            f(T(3), which)


@program(one_graph=False)
def test_errors_of_arrays(t):
    def fn(x, which):
        a = np.arange(6).reshape(2, 3)
        x = x + 1
        if which == 0:
            return a[5]
        if which == 1:
            return a + np.arange(4)
        if which == 2:
            return a.reshape(4, 4)
        if which == 3:
            return a.sum(axis=7)
        if which == 4:
            return bool(a)
        if which == 5:
            return a.nothing
        if which == 6:
            return float(a)
        if which == 7:
            return np.concatenate([a, np.ones(2)])
        if which == 8:
            return {a: 1}
        if which == 9:
            return np.zeros(-1)
        if which == 10:
            del a[0]
        if which == 11:
            return np.array([[1, 2], [3]])
        if which == 12:
            try:
                a[7]
            except IndexError as error:
                return x, str(error)
        if which == 13:
            np.broadcast_to(a, (2, 2, 3))[0] = 1
        return len(np.array(3))

    f = t.compile(fn)
    for which in range(15):
        f(T(3), which)
        f(T(3), which)


@program(one_graph=False)
def test_warnings_of_arrays(t):
    def fn(x, which):
        x = x + 1
        if which == 0:
            return x, np.ones(2) / np.zeros(2)
        if which == 1:
            return x, np.log(np.array([0.0, -1.0]))
        if which == 2:
            return x, np.array([300.0]).astype(np.int8), np.array([np.nan]).astype(int)
        if which == 3:
            return x, np.zeros(0).mean()
        if which == 4:
            return x, np.ones(1).var(ddof=1)
        if which == 5:
            return x, float(np.ones(1))
        if which == 6:
            return x, np.arange(3, dtype=np.int8) * np.int8(100)
        return x, np.exp(np.array([1000.0]))

    f = t.compile(fn)
    for which in range(8):
        for action in ("always", "default", "always"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter(action)
                f(T(3), which)
            t.note([(one.category.__name__, str(one.message)) for one in caught])


@program(one_graph=False)
def test_what_is_not_computed(t):
    """Random numbers, code of the program's, other elements, settings, addresses, texts."""

    def fn(x, which):
        x = x + 1
        if which == 0:
            return x, np.random.rand(2), np.random.default_rng(0).integers(5)
        if which == 1:
            return x, np.vectorize(lambda v: v + 1)(np.arange(3))
        if which == 2:
            return x, np.apply_along_axis(lambda v: v.sum(), 0, np.eye(2))
        if which == 3:
            return x, np.fromfunction(lambda i, j: i + j, (2, 2))
        if which == 4:
            return x, np.array([None, "a"]), np.array(["a", "b"]), np.array([1 << 80])
        if which == 5:
            with np.errstate(all="ignore"):
                return x, np.ones(2) / np.zeros(2)
        if which == 6:
            with np.printoptions(precision=2):
                return x, str(np.ones(2) / 3)
        if which == 7:
            return x, f"{np.arange(3)}", repr(np.ones(2)), "%s" % np.ones(1)
        if which == 8:
            return x, ascii(np.arange(3)), "{}".format(np.arange(2)), str([np.ones(1)])
        if which == 9:
            a = np.arange(3)
            a.shape = (3, 1)
            a.flags.writeable = False
            return x, a
        if which == 10:
            return x, bytes(np.arange(3, dtype=np.uint8)), memoryview(np.ones(2)).tolist(), np.arange(3).data.nbytes
        if which == 11:
            return x, np.ones(2) + 1j, np.fft.fft(np.ones(2))
        if which == 12:
            a = np.empty(3)
            a[:] = 2
            return x, a
        if which == 13:
            return x, [v for v in np.arange(4).flat], np.ndindex(2)
        if which == 14:
            return x, np.add.reduce(np.arange(4)), np.add(np.arange(3), 1, where=[True, True, True])
        if which == 15:
            return x, np.broadcast_to(np.arange(2), (2, 2))
        if which == 16:
            a = np.zeros(2)
            np.copyto(a, 3)
            return x, a
        a = np.arange(4)
        a.resize(6, refcheck=False)
        return x, a

    f = t.compile(fn)
    for which in range(18):
        f(T(3), which)
        f(T(3), which)


@program(one_graph=False)
def test_across_a_break(t):
    def fn(x, n):
        a = np.arange(6)
        rows = a.reshape(2, 3)
        y = x + a.sum()
        alternator.graph_break()
        rows[0, 0] = n
        for row in rows:
            y = y + row.sum()
            alternator.graph_break()
        return y, a, rows

    f = t.compile(fn)
    f(T(3), 2)
    f(T(3), 2)
    f(T(3), 3)


# ------------------------------------------------------------------------------------------------ arrays from outside


@program()
def test_array_of_a_module(t):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = np.array([0.5, 0.25, 0.125], dtype=np.float32)
            self.anchors = np.arange(6).reshape(3, 2)

        def forward(self, x):
            return (x - torch.tensor(self.mean)) * self.anchors[1].sum(), self.anchors.shape

    net = Net()
    f = t.compile(net)
    f(T(3))
    f.hit(T(3, s=1))
    net.mean[0] = 2
    f(T(3))
    f.hit(T(3))
    net.mean = net.mean.copy()
    f.hit(T(3))
    net.mean = net.mean.astype(np.float64)
    f(T(3))
    net.anchors = np.asfortranarray(net.anchors)
    f(T(3))
    net.anchors = net.anchors.reshape(2, 3)
    f(T(3))
    net.anchors = [1, 2, 3]
    f.free(T(3))


TABLE = np.array([1.0, 2.0, 3.0])


@program()
def test_global_array(t):
    def fn(x):
        return x * TABLE.sum() + torch.as_tensor(TABLE), [x + v for v in TABLE]

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))
    TABLE[1] = -0.0
    f(T(3))
    TABLE[1] = 0.0
    f(T(3))
    TABLE[1] = 2.0


@program()
def test_outside_array_is_given_back(t):
    table = np.arange(4.0)
    pair = [table, table]

    def fn(x):
        return x + table[0], table, pair, pair[0] is table, table[1:]

    f = t.compile(fn)
    t.watch(lambda: table)
    f(T(3))
    f.hit(T(3))
    table[2] = 9
    f(T(3))


@program(one_graph=False)
def test_writes_to_outside_arrays(t):
    table = np.arange(4.0)
    view = table[1:]

    def fn(x, which):
        x = x + table[1]
        if which == 0:
            table[0] = 7
        if which == 1:
            part = table[2:]
            part += 1
        if which == 2:
            np.add(table, 1, out=table)
        if which == 3:
            table.fill(3)
        if which == 4:
            table.sort()
        if which == 5:
            try:
                table[1] = 5
            except ValueError:
                return x - 1
        if which == 6:
            c = table.copy()
            c[0] = 100
            return x + c.sum()
        if which == 7:
            table.reshape(2, 2).T[0] = 4
        return x + table.sum() + view[0]

    f = t.compile(fn)
    t.watch(lambda: (table, view))
    for which in range(8):
        f(T(3), which)
        f(T(3), which)


@program(one_graph=False)
def test_outside_array_with_the_memory_of_a_tensor(t):
    table = np.arange(3.0)
    tensor = torch.from_numpy(table)
    mirror = torch.arange(3.0)
    image = mirror.numpy()

    def fn(x, which):
        if which == 0:
            tensor.add_(1)
            return x + table.sum()
        if which == 1:
            before = table.sum()
            tensor.add_(1)
            return x + before + table[0]
        if which == 2:
            mirror.mul_(2)
            return x + image.sum()
        if which == 3:
            own = torch.from_numpy(table)
            own.add_(1)
            return x + own, table[0]
        if which == 4:
            return x + sum([table, table])[0], tensor.add_(1), sum([table, table])[0]
        return x + torch.from_numpy(table), torch.as_tensor(table)

    f = t.compile(fn)
    t.watch(lambda: (table, tensor, mirror, image))
    for which in range(6):
        f(T(3), which)
        f(T(3), which)
        f(T(3), which)


@program(one_graph=False)
def test_arrays_that_stay_outside(t):
    large = np.zeros(5000)
    things = np.array([None, 1], dtype=object)
    fixed = np.arange(3)
    fixed.setflags(write=False)
    sparse = np.arange(10)[::3]

    def fn(x, a, which):
        x = x + 1
        if which == 0:
            return x + large[0], large
        if which == 1:
            return x, things[1], things
        if which == 2:
            return x + fixed[1], fixed
        if which == 3:
            return x + sparse.sum(), sparse
        if which == 4:
            return x + a.sum(), a
        return x, a, [a, a]

    f = t.compile(fn)
    for which in range(6):
        for k in (1, 2, 2):
            f(T(3), np.arange(3) * k, which)
            large[0] += 1
            things[1] += 1


@program()
def test_an_argument_that_is_passed_on(t):
    """An array that nobody looks into is no constant: no new entry for each."""

    def fn(x, a):
        return x + 1, a, {"a": a}

    f = t.compile(fn)
    f(T(3), np.arange(3))
    f.hit(T(3), np.arange(4))
    f.hit(T(3), np.arange(4.0))


@program()
def test_shown(t):
    def fn(x, n):
        a = np.arange(3) / n
        print(a, [a, np.float64(n)])
        a[0] = 7
        return x + a[0]

    f = t.compile(fn)
    f(T(3), 3)
    f.hit(T(3), 3)
    with np.printoptions(precision=2):
        f.hit(T(3), 3)
    f(T(3), 7)


@program(one_graph=False)
def test_an_outside_array_that_always_changes(t):
    """It is a constant for some calls, and then what stays outside: the function does not run out of entries."""
    state = np.zeros(2)

    def fn(x):
        y = x * 2 + state[0]
        return y + 1

    f = t.compile(fn)
    for i in range(12):
        state[0] = i
        f(T(3))
        f(T(3))


@program(one_graph=False)
def test_outside_arrays_inside_of_others(t):
    """Native code that goes through a container or an iterator comes upon them by itself."""

    def fn(x, a, which):
        if which == 0:
            return x + sum([a, a])[0]
        if which == 1:
            return x, [a[:1]] == [np.zeros(1)], max([a[0], 1])
        if which == 2:
            return x, [abs(v) for v in map(operator.neg, [a])]
        if which == 3:
            return x + functools.reduce(operator.add, (v for v in (a, a)))[0]
        if which == 4:
            return x, list(itertools.accumulate([a, a])), list(zip([a], [a], strict=True))
        if which == 5:
            return x, sorted([a.sum(), 1]), sorted({"k": a}.values(), key=len)
        if which == 6:
            return x, [0] in [[1], a.tolist()], any([a.any()]), 0 in [a[0]]
        if which == 7:
            return x, sum(iter([a, a])), math.sqrt(a[0]), divmod(a[0], 2)
        if which == 8:
            return x, (x, a)[1], [a, x][0], dict(k=a)["k"], len([a]), isinstance(a, np.ndarray)
        return x, operator.itemgetter(0)([a]), operator.methodcaller("sum")(a), operator.attrgetter("T")(a)

    f = t.compile(fn)
    for which in range(10):
        for k in (1, 2, 2):
            f(T(3), np.arange(3) * k + k, which)


@program(one_graph=False)
def test_what_a_generator_gives_to_a_sum(t):
    """Native code adds it, or asks for its truth: what is in it is read."""
    arrays = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    buffers = [bytearray(b"ab"), bytearray(b"c")]

    def each(values):
        for value in values:
            yield value

    def summed(x):
        return x + 1, sum(each(arrays), 0.0)

    def with_a_start(x):
        return x + torch.tensor(sum(each(arrays), np.zeros(2)))

    def truth(x):
        return x + 1, any(each(buffers[:1])), all(each(buffers))

    functions = [t.compile(fn) for fn in (summed, with_a_start, truth)]
    for step in range(4):
        for f in functions:
            f(T(2))
        arrays[0][0] += 1
        buffers[0][:] = b"" if step % 2 == 0 else b"xy"


@program(graphs=1)
def test_tensors_that_a_generator_gives_to_a_sum(t):
    weights = [torch.nn.Parameter(T(2, s=i)) for i in range(3)]

    def each():
        for weight in weights:
            yield weight

    def fn(x):
        return sum(each(), x), any(weight.dim() == 3 for weight in weights)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2, s=5))

"""Arrays of numpy that are computed from tensors or handed over: their numbers are known to a run only, and calls of numpy are nodes."""

from __future__ import annotations

import collections
import gc
import warnings

import numpy as np
import pytest
import torch
from harness import REGISTRY, T, add_row, check, program
from trace_support import alone, with_two_numbers

import alternator

ROWS = {
    "there_and_back": lambda x, n: torch.from_numpy(x.numpy()) * n,
    "computed": lambda x, n: torch.from_numpy(np.sin(x.numpy()) * n + 1) + x,
    "asarray": lambda x, n: torch.as_tensor(np.asarray(x * n) ** 2),
    "detached": lambda x, n: x + torch.from_numpy(x.detach().cpu().numpy() / n),
    "returned": lambda x, n: (x.numpy(), x.numpy() + n, x + 1),
    "views": lambda x, n: (lambda a: (a, a[1:], a[::-1], a.reshape(1, 3), a.T, a[None], a.view(np.int32)))(x.numpy()),
    "types": lambda x, n: (
        lambda a: (
            x * n,
            a.shape,
            a.dtype,
            a.ndim,
            a.size,
            a.strides,
            a.nbytes,
            len(a),
            type(a),
            isinstance(a, np.ndarray),
        )
    )(x.numpy()),
    "functions_about_shapes": lambda x, n: (x + 1, np.shape(x.numpy()), np.ndim(x.numpy()), np.size(x.numpy())),
    "operators": lambda x, n: (
        lambda a: (a + 1, 1 - a, a * a, a / n, a // n, a % n, a**2, -a, +a, abs(a), [n, 1, 2] * a, np.float64(n) + a)
    )(x.numpy()),
    "integers": lambda x, n: (lambda a: (a + n, ~a, a & 3, a | n, a ^ a, a << 1, a >> 1, a / n, a.astype(np.int8)))(
        x.to(torch.int64).numpy()
    ),
    "comparisons": lambda x, n: (lambda a: (a > 0, a == a, a != n, a <= 1, (a > 0) & (a < 1), ~(a >= 0)))(x.numpy()),
    "promotion": lambda x, n: (lambda a: (a + 1.5, a + np.float64(n), a * np.arange(3), a + np.int8(n), a == True))(  # noqa: E712
        x.numpy()
    ),
    "ufuncs": lambda x, n: (lambda a: (np.exp(a), np.maximum(a, n), np.sqrt(np.abs(a)), np.floor(a), np.isnan(a)))(
        x.numpy()
    ),
    "two_results": lambda x, n: (np.modf(x.numpy()), np.divmod(x.numpy(), n), np.frexp(x.numpy() * n)),
    "ufunc_options": lambda x, n: (
        np.add(x.numpy(), n, dtype=np.float64),
        np.multiply(x.numpy(), n, casting="same_kind"),
    ),
    "reductions": lambda x, n: (
        lambda a: (a.sum(axis=0), a.mean(axis=1), np.max(a, axis=0), a.std(axis=1, keepdims=True))
    )((x[None] * T(2, 3)).numpy()),
    "argmax": lambda x, n: torch.from_numpy(np.argmax(x.numpy()[None], axis=1)) + n,
    "cumulative": lambda x, n: (np.cumsum(x.numpy()), x.numpy().cumprod(), np.diff(x.numpy())),
    "joined": lambda x, n: (
        lambda a: (np.concatenate([a, a * n]), np.stack([a, np.ones(3)]), np.vstack((a, a)), np.tile(a, n))
    )(x.numpy()),
    "taken_apart": lambda x, n: (
        np.split(x.numpy(), 3),
        np.array_split(x.numpy(), 2),
        np.meshgrid(x.numpy(), x.numpy()),
    ),
    "shapes": lambda x, n: (
        lambda a: (
            np.expand_dims(a, 0),
            a.squeeze(),
            np.transpose(a[None]),
            a.ravel(),
            a.flatten(),
            np.flip(a),
            np.roll(a, n),
        )
    )(x.numpy()),
    "matrices": lambda x, n: (lambda a: (a @ a.T, np.dot(a, a.T), np.outer(a, a), np.einsum("ij,kj->ik", a, a)))(
        (T(2, 3) * n).numpy() + x.numpy()
    ),
    "chosen": lambda x, n: (lambda a: (np.where(a > 0, a, n), np.clip(a, 0, n), a.clip(-1, 1), np.take(a, [0, 2])))(
        x.numpy()
    ),
    "sorted": lambda x, n: (np.sort(x.numpy()), np.argsort(x.numpy()), np.searchsorted(np.arange(3), x.numpy())),
    "indices": lambda x, n: (
        lambda a, i: (a[i], a[[0, 1]], np.arange(9)[i], a[np.array([True, False, True])], a[..., 1:])
    )(x.numpy(), np.argsort(x.numpy())),
    "likes": lambda x, n: (
        np.zeros_like(x.numpy()),
        np.ones_like(x.numpy()),
        np.full_like(x.numpy(), n),
        x.numpy().copy(),
    ),
    "converted": lambda x, n: (lambda a: (a.astype(np.float64), a.astype("float16"), a.astype(np.float32, copy=False)))(
        x.numpy()
    ),
    "made_of_lists": lambda x, n: (np.array([x.numpy(), x.numpy() * n]), np.asarray([x.numpy()], dtype=np.float64)),
    "rounded": lambda x, n: (np.round(x.numpy(), 1), x.numpy().round(n), np.trunc(x.numpy() * 10)),
    "tensor_of": lambda x, n: (
        torch.tensor(x.numpy() * n),
        torch.tensor(x.numpy(), dtype=torch.float64),
        torch.as_tensor(x.numpy(), dtype=torch.float64),
        torch.as_tensor(x.numpy() + n),
    ),
    "strides_of_tensors": lambda x, n: (
        lambda a: (torch.from_numpy(a), torch.from_numpy(a[:, 1:]), torch.tensor(a), torch.from_numpy(a + n))
    )(T(2, 3).t().numpy()),
    "expanded": lambda x, n: (x.expand(2, 3).numpy() * n, x.expand(2, 3).numpy().strides),
    "no_dimension": lambda x, n: (lambda a: (a, a.shape, a.reshape(1) + n, torch.from_numpy(a)))(x.sum().numpy()),
    "empty": lambda x, n: (lambda a: (a, a * n, a.shape, np.concatenate([a, x.numpy()])))(x[:0].numpy()),
    "in_containers": lambda x, n: {"a": x.numpy(), "b": [x.numpy() * n], "c": (x.numpy(),)},
    "appended": lambda x, n: appended(x, n),
    "kept_in_a_dict": lambda x, n: {}.setdefault("a", x.numpy() + n),
    "with_defaults": lambda x, n: np.sum(np.stack([x.numpy()] * 2), axis=0, dtype=np.float64, keepdims=True),
    "identity": lambda x, n: (lambda a: (np.asarray(a) is a, a[:] is a, a.astype(np.float32, copy=False) is a, x + n))(
        x.numpy()
    ),
    "written": lambda x, n: written(x.clone(), n),
    "written_by_torch": lambda x, n: written_by_torch(x.clone(), n),
    "filled": lambda x, n: filled(x, n),
    "out": lambda x, n: (lambda a: (np.add(a, n, out=a), np.multiply(a, 2, a), a))(x.numpy().copy()),
    "out_of_the_calls_own": lambda x, n: np.add(x.numpy(), n, out=np.zeros(3)),
    "methods_that_write": lambda x, n: methods_that_write(x.numpy().copy(), n),
    "masked": lambda x, n: masked(x.numpy().copy(), n),
    "rows": lambda x, n: rows((T(2, 3) * n).numpy() + x.numpy(), n),
    "half": lambda x, n: x.half().numpy() * n,
    "truth_values": lambda x, n: ((x > 0).numpy(), (x > 0).numpy().astype(np.int32) * n),
}


def appended(x, n):
    rows = collections.deque() if n > 3 else []
    for i in range(3):
        rows.append(x.numpy() * i)
    return np.stack(rows if n <= 3 else list(rows)) + n


def written(x, n):
    a = x.numpy()
    before = a[1:]
    a += n
    a[0] = 7
    a[1:] *= 2
    return x + 1, a, before, x


def written_by_torch(x, n):
    a = x.numpy()
    t = torch.from_numpy(a)
    x.add_(n)
    t.mul_(2)
    return a * 1, a, t, x


def filled(x, n):
    out = np.zeros((2, 3), dtype=np.float32)
    row = out[1]
    other = out.T
    out[0] = x.numpy()
    row[1:] = x.numpy()[:2] * n
    return out, row, other, torch.from_numpy(out)


def rows(a, n):
    made = [row * n for row in a]
    for i, (row, other) in enumerate([(row, row[1:]) for row in a]):
        row += i
        other[0] = n
    first, second = a
    head, *rest = a
    return made, a, first, second, head, rest


def methods_that_write(a, n):
    a.sort()
    b = a * n
    b.fill(n)
    return a, b


def masked(a, n):
    a[a > 0] = n
    a[[0]] = -1
    return a


NAMES = [add_row(__name__, "test_row", row, with_two_numbers(expression)) for row, expression in ROWS.items()]


@pytest.mark.parametrize("name", NAMES, ids=list(ROWS))
def test_row(name):
    check(REGISTRY[name])


@program()
def test_memory_of_an_argument(t):
    """What is written to the array is seen in the tensor, and the reverse, in the call and after it."""

    def fn(x, n):
        a = x.numpy()
        a[0] = n
        y = x * 2
        x[1] = n
        b = torch.from_numpy(a[1:])
        b += 1
        return a, y, b

    f = t.compile(fn)
    x = T(4)
    t.watch(lambda: x)
    for n in (1, 2, 2):
        a, y, b = f(x, n) or (np.zeros(4), None, T(3))
        a[3] = n
        b[0] = -n
        t.note([x, a, b])


@program()
def test_guards(t):
    def fn(x):
        a = x.numpy()
        return a.sum(axis=-1, keepdims=True) + 1, torch.from_numpy(a * 2)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=2))
    f(T(4))
    f(T(2, 3))
    f(T(3, 2).t())
    f(T(3, dtype=torch.float64))
    f(T(3, dtype=torch.int32))
    f.hit(T(3))


@program(one_graph=False)
def test_a_tensor_that_wants_a_gradient(t):
    def fn(x, which):
        y = x * 2
        if which == 0:
            return y, torch.from_numpy(y.detach().numpy()) + y
        if which == 1:
            try:
                return y.numpy()
            except RuntimeError as error:
                return y, str(error)
        return y.numpy()

    f = t.compile(fn)
    for which in range(3):
        f(T(3, rg=True), which)
        f(T(3, rg=True), which)
        f(T(3), which)


@program()
def test_gradients_flow_past_it(t):
    def fn(x, w):
        scale = np.abs(w.detach().numpy()).max(axis=0, keepdims=True)
        return (x * w / torch.from_numpy(scale)).sum()

    f = t.compile(fn)
    for s in (0, 1):
        w = T(3, s=s, rg=True)
        loss = f(T(3), w)
        if loss is not None:
            loss.backward()
        t.note(w.grad)


@program(one_graph=False)
def test_warnings(t):
    """Numpy warns where the numbers say so: in every call, at the program's own line."""

    def fn(x, n):
        a = (x - n).numpy()
        b = 1 / a
        c = np.log(a)
        d = np.float32(3e38) * (a + 2)
        return x * 2, torch.from_numpy(b), c, d, (a * 1e30).astype(np.int32)

    f = t.compile(fn)
    for x in (torch.ones(2), torch.zeros(2), torch.tensor([0.0, 1.0]), torch.ones(2) * 5, torch.ones(2)):
        for action in ("always", "default", "error"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter(action)
                f(x, 1)
            t.note([(one.category.__name__, str(one.message), one.lineno) for one in caught])
    with np.errstate(all="ignore"):
        f(torch.ones(2), 1)
        f(torch.zeros(2), 1)
    with np.errstate(all="raise"):
        f(torch.ones(2), 1)
        f(torch.zeros(2) + 3, 1)
    seen = []
    with np.errstate(all="call", call=lambda kind, flag: seen.append(kind)):
        f(torch.ones(2), 1)
    t.note(seen)


class Inverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        try:
            return torch.from_numpy(1 / x.detach().numpy())
        except FloatingPointError:
            return x * 0

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@program(one_graph=False)
def test_errors_of_others(t):
    """Code that runs inside of a node sees no exceptions that eager would not raise."""

    def fn(x):
        return Inverse.apply(x * 2), np.sin(x.detach().numpy())

    f = t.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in (torch.ones(2), torch.zeros(2), torch.ones(2)):
            f(x.requires_grad_())


@program()
def test_underflow_is_no_error(t):
    def fn(x):
        return np.exp(-x.numpy() * 100), x.numpy() * np.float32(1e-40)

    f = t.compile(fn)
    f(torch.ones(3))
    f.hit(torch.ones(3) * 1e-5)


@program(one_graph=False)
def test_a_warning_that_is_caught(t):
    def fn(x):
        a = x.numpy()
        try:
            return torch.from_numpy(1 / a)
        except (RuntimeWarning, FloatingPointError) as error:
            return x - 1, str(error)

    f = t.compile(fn)
    for action in ("error", "ignore"):
        for x in (torch.ones(2), torch.zeros(2), torch.ones(2)):
            with warnings.catch_warnings():
                warnings.simplefilter(action)
                f(x)
    with np.errstate(all="raise"):
        f(torch.zeros(2))


@program(one_graph=False)
def test_errors(t):
    def fn(x, which):
        a = x.numpy()
        y = x + 1
        if which == 0:
            return y, a + np.arange(4)
        if which == 1:
            return y, a.reshape(7)
        if which == 2:
            return y, a[5]
        if which == 3:
            return y, a.nothing
        if which == 4:
            return y, np.concatenate([a, a[None]])
        if which == 5:
            return y, {a: 1}
        if which == 6:
            return y, a.astype(np.int64) ** (a.astype(np.int64) - 3)
        if which == 7:
            return y, np.arange(2)[a.astype(np.int64)]
        if which == 8:
            try:
                return y, np.arange(2)[a.astype(np.int64) + 9]
            except IndexError as error:
                return y, str(error)
        if which == 9:
            a += 1j
        if which == 10:
            np.broadcast_to(a, (2, 3))[0] = 1
        a.astype(np.int8)[:] = 300
        return y

    f = t.compile(fn)
    for which in range(12):
        f(torch.arange(3.0), which)
        f(torch.arange(3.0), which)
        f(torch.arange(3.0) + 5, which)


@program(one_graph=False)
def test_numbers_of_such_arrays(t):
    """What needs a number, or as many elements as the numbers say, is done by the run itself."""

    def fn(x, which):
        a = (x * 2).numpy()
        if which == 0:
            return x + a.sum(), float(a[0]), type(a.max())
        if which == 1:
            return [v * 2 for v in a], x
        if which == 2:
            return x + 1 if a[0] > 0 else x - 1
        if which == 3:
            return a[a > 0], np.nonzero(a), np.unique(a), x
        if which == 4:
            return a.tolist(), a.item(0), a.tobytes(), x
        if which == 5:
            return str(a), f"{a}", [a].__repr__(), x
        if which == 6:
            print(a, [a])
            return x
        if which == 7:
            return bool((a > 0).all()), (a > 0).any(), np.array_equal(a, a), x
        if which == 8:
            return sum(a), max(a), sorted(a), list(a), tuple(a), dict(enumerate(a)), x
        if which == 9:
            p, q, r = a
            return p, q, r, [*a], x
        if which == 10:
            return 2.0 in a, [a, 1].index(1) if False else 0, x
        if which == 11:
            return np.zeros(3)[a.argmax()], [1, 2, 3][np.argmax(a)], x[np.argmax(a)]
        if which == 12:
            k = np.argmax(a[None], axis=1).reshape(())
            return [4, 5, 6][k], range(k), [1, 2, 3][k:], x
        if which == 13:
            return memoryview(a).tolist(), bytes(a.astype(np.uint8)), a.data.nbytes, a.flags.owndata, a.base is None, x
        if which == 14:
            return np.repeat(a, (a > 0).astype(int)), np.zeros((a > -9).astype(int)), x
        if which == 15:
            return [np.linalg.norm(a), np.median(a), np.percentile(a, 50), np.histogram(a, 2)], x
        if which == 16:
            return (
                np.apply_along_axis(lambda v: v + 1, 0, a),
                np.vectorize(lambda v: v)(a),
                list(map(np.sin, [a, a])),
                x,
            )
        if which == 17:
            return x * a, a * x, np.sin(x), x
        if which == 18:
            it = iter(np.arange(3.0))
            return [next(it), a + 1, next(it)], x
        c = np.arange(3.0)
        got = []
        for i, v in enumerate(c):
            got.append(v)
            c[2] = a[:1].sum(axis=0, keepdims=True)[0] if i > 5 else 5
            c[1:] = a[1:]
        return got, c, x

    f = t.compile(fn)
    for which in range(20):
        f(T(3), which)
        f(T(3), which)
        f(T(3, s=1), which)


@program(one_graph=False)
def test_across_a_break(t):
    def fn(x, n):
        a = x.numpy()
        b = a[1:] * n
        v = b[1:]
        y = x + torch.from_numpy(a)
        alternator.graph_break()
        v += 1
        a[0] = n
        alternator.graph_break()
        return y, a, b, v, x * 2

    f = t.compile(fn)
    x = T(4)
    t.watch(lambda: x)
    f(x, 2)
    f(x, 2)
    f(T(4), 3)


@program()
def test_stored(t):
    box = {}

    class Holder:
        pass

    holder = Holder()

    def fn(x, n):
        box["a"] = x.numpy()
        holder.b = box["a"][1:] + n
        return x * n

    f = t.compile(fn)
    t.watch(lambda: (box, holder.__dict__))
    f(T(3), 3)
    f(T(3), 3)
    f(T(3), 4)


@program(one_graph=False)
def test_next_to_other_arrays(t):
    """Constants of the call, arrays from outside that are constants, tensors of constants."""
    table = np.arange(3.0)

    def fn(x, which):
        a = x.numpy()
        c = np.arange(3.0)
        if which == 0:
            return a + c, c
        if which == 1:
            c[0] = 9
            b = a + c
            c[0] = 10
            return b, c
        if which == 2:
            tensor = torch.from_numpy(c)
            c[:2] = a[:2]
            return tensor + 1, c
        if which == 3:
            v = c[1:]
            c += a
            return v * 2, v, c
        if which == 4:
            return a * table, table
        if which == 5:
            table[0] = a[0:1].sum(axis=0, keepdims=True).reshape(())
            return a * table
        if which == 6:
            return a + c[::-1], np.atleast_1d(a, c)
        if which == 7:
            first = table[0]
            x += 1
            return first, table[0] + 1, a
        return torch.tensor([1.0, 2.0]).numpy() + 1, x

    f = t.compile(fn)
    t.watch(lambda: table)
    for which in range(9):
        f(T(3), which)
        f(T(3), which)


@program(one_graph=False)
def test_shown_and_written(t):
    def fn(x):
        print(x)
        a = x.numpy()
        a += 1
        print(x)
        return x * 2

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program()
def test_fails_after_a_write(t):
    """Numpy's warnings where the call cannot begin again."""

    def fn(x, n):
        a = x.numpy()
        a += 1
        return np.sqrt(a - n)

    f = t.compile(fn)
    f(torch.ones(2), 0)
    f.hit(torch.ones(2) * 3, 0)
    with np.errstate(all="ignore"):
        f(torch.ones(2), 5)
        f.hit(torch.zeros(2), 5)


# ------------------------------------------------------------------------------------------------ arrays that are handed over


@program()
def test_argument(t):
    def fn(a, x):
        return torch.from_numpy(a) * x, np.sin(a) + 1, a, a.shape, a[1:]

    f = t.compile(fn)
    f(np.arange(3.0), T(3))
    f.hit(np.ones(3), T(3))
    f(np.arange(3, dtype=np.float32), T(3))
    f(np.arange(3), T(3))
    f(np.arange(6.0)[::2], T(3))
    f(np.arange(6.0).reshape(2, 3), T(3))
    f(np.asfortranarray(np.arange(6.0).reshape(2, 3)), T(3))
    f.hit(np.zeros(3), T(3))


@program()
def test_argument_that_is_written(t):
    def fn(a, x):
        a += 1
        a[0] = 7
        b = a[1:]
        b *= 2
        return a, b, x + 1

    f = t.compile(fn)
    a = np.arange(3.0)
    t.watch(lambda: a)
    f(a, T(3))
    f.hit(a, T(3))
    f.hit(np.ones(3), T(3))


@program()
def test_the_same_array_twice(t):
    def fn(a, b, x):
        a[0] = 5
        return a + b, a is b, torch.from_numpy(a).add_(1), x * torch.from_numpy(b)

    f = t.compile(fn)
    a = np.arange(3.0)
    f(a, np.arange(3.0), T(3))
    f(a, a, T(3))
    f.hit(a, a, T(3))
    f.hit(a, np.ones(3), T(3))
    base = np.arange(5.0)
    f.hit(base[:3], base[1:4], T(3))
    x = T(3, dtype=torch.float64)
    f(a, x.numpy(), x)


@program(one_graph=False)
def test_arguments_of_other_kinds(t):
    def fn(a, x):
        return a[:1], x + 1

    f = t.compile(fn)
    fixed = np.arange(3.0)
    fixed.setflags(write=False)

    class Special(np.ndarray):
        pass

    odd = np.zeros(9, dtype=np.int8)[1:].view(np.float64)
    for a in (np.arange(3.0), fixed, np.arange(3.0)[::-1], np.zeros(0), np.array(["a"]), np.array([None]), odd):
        f(a, T(3))
        f(a, T(3))
    f(np.arange(3.0).view(Special), T(3))
    f(np.ones(3, dtype=complex), T(3))
    f(np.ones(3, dtype=np.uint16), T(3))
    f(np.ones(3, dtype=">f8"), T(3))
    f([1, 2], T(3))


@program(one_graph=False)
def test_a_slice_from_outside(t):
    """Nobody has looked into it: its ends may be arrays, or objects that stand for numbers."""

    class Index:
        def __init__(self, n):
            self.n = n

        def __index__(self):
            return self.n

    def fn(x, s):
        return [1, 2, 3][s], np.arange(3)[s], x * 2

    f = t.compile(fn)
    for n in (0, 1, 2, 1):
        f(T(3), slice(np.array(n), None))
        f(T(3), slice(Index(n), None))
        f(T(3), slice(n, None))


@program()
def test_attribute_that_is_large(t):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = np.arange(3000.0).reshape(1000, 3)

        def forward(self, x):
            return x + torch.from_numpy(self.table.max(axis=0))

    net = Net()
    f = t.compile(net)
    f(T(3))
    net.table[5] = 9999
    f.hit(T(3))
    net.table = net.table * 2
    f.hit(T(3))
    net.table = net.table[:500]
    f(T(3))


def test_in_a_graph():
    """One graph, with numpy's own functions in it."""
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    fn = alternator.compile(lambda x: torch.from_numpy(np.sin(x.numpy())[1:]), backend=backend, fullgraph=True)
    assert torch.equal(fn(T(3)), torch.from_numpy(np.sin(T(3).numpy())[1:]))
    (graph,) = graphs
    assert [node.name for node in graph.graph.nodes if node.op.startswith("call")] == [
        "numpy",
        "sin",
        "getitem",
        "from_numpy",
    ]
    assert torch.equal(graph(T(3))[0], fn(T(3)))


def test_nothing_of_the_trace_stays():
    """What stood for the arrays while tracing is not kept: such an array has its memory from a real tensor."""

    def is_real(value):
        try:
            return value.sum() is not None
        except RuntimeError:
            return False

    fn = alternator.compile(lambda x: np.sin(x.numpy()) + 1, backend="eager", fullgraph=True)
    fn(torch.ones(12_345))
    gc.collect()
    sized = [one for one in gc.get_objects() if type(one) is torch.Tensor and one.numel() == 12_345]
    assert not [one for one in sized if is_real(one)]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@alone
def test_other_backends(backend):
    def fn(x, w):
        y = (x @ w).relu()
        a = np.sort(y.detach().numpy(), axis=1) * 2
        return torch.from_numpy(a) + y.sum(), a

    compiled = alternator.compile(fn, backend=backend, fullgraph=True)
    for s in (0, 1):
        x, w = T(3, 4, s=s), T(4, 2, rg=True)
        (got, array), (wanted, expected) = compiled(x, w), fn(x, w)
        torch.testing.assert_close(got, wanted)
        np.testing.assert_allclose(array, expected, rtol=1e-5)
        (gradient,) = torch.autograd.grad(got.sum(), w)
        (eager,) = torch.autograd.grad(wanted.sum(), w)
        torch.testing.assert_close(gradient, eager)

    def writes(x):
        y = x + 1
        a = y.numpy()
        y.mul_(2)
        a[0] = 7
        return y * 1, torch.from_numpy(a)

    compiled = alternator.compile(writes, backend=backend, fullgraph=True)
    for s in (0, 1):
        for got, wanted in zip(compiled(T(3, s=s)), writes(T(3, s=s)), strict=True):
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@alone
def test_a_tensor_is_written_next_to_an_array(backend):
    """Running statistics are written by what the backend compiles, unless the array lies in their memory."""

    def fn(net, a):
        y = net(torch.from_numpy(a) * 2)
        return torch.from_numpy(a) + y, np.sort(y.detach().numpy(), axis=0)

    def run(overlapping, call):
        memory = torch.arange(6.0)
        net = torch.nn.BatchNorm1d(3)
        net.running_mean = memory[:3] if overlapping else memory[:3].clone()
        results = call(net, memory.numpy().reshape(2, 3))
        return *results, net.running_mean, net.running_var, memory

    compiled = alternator.compile(fn, backend=backend, fullgraph=True)
    for overlapping in (False, True, False, True):
        for got, wanted in zip(run(overlapping, compiled), run(overlapping, fn), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted))


def test_segments_are_compiled():
    """What lies between calls of numpy's goes to the backend, also where a tensor or an array of the call's own is written."""
    segments = []

    class Backend:
        def __call__(self, gm, inputs):
            segments.append([node.name for node in gm.graph.nodes if node.op.startswith("call")])
            return lambda *given: gm(*given)  # not as it was

    def fn(x, state):
        out = np.zeros(3, dtype=np.float32)
        state.add_(1)
        out[:] = np.sin((x * 2).numpy())
        return (torch.from_numpy(out) + 1).relu(), state * 2

    compiled = alternator.compile(fn, backend=Backend(), fullgraph=True)
    for s in (0, 1):
        got, wanted = compiled(T(3, s=s), T(2)), fn(T(3, s=s), T(2))
        assert all(map(torch.equal, got, wanted))
    assert segments[-2:] == [["add_", "mul"], ["add", "relu", "mul_1"]]

"""Floats that differ from call to call: as Python computes with them, bit for bit, and what needs their digits."""

import math
import struct
import types

import torch
import torch.nn.functional as F
from harness import T
from sequences import over, sequence
from torch import nn


def with_float(*numbers):
    return over(lambda f: (T(3), f), *numbers)


def with_both(*pairs):
    return over(lambda f, n: (T(3), f, n), *pairs)


@sequence(with_both((0.1, 3), (0.2, 4), (-1.7, 5), (3.0, -2)))
def operators_of_both(x, f, n):
    return x * f, f + n, n - f, f * n, f / n, n / f, f // 0.3, f % 0.3, n // 0.7, n % 0.7, -f, abs(f), divmod(f, 0.25)


@sequence(with_both((0.1, 3), (0.2, 4), (1.7, 5), (3.0, 2)))
def powers_of_both(x, f, n):
    return x * f**2, 2**f, f**n, n**f, n**-0.5, f**-1, pow(f, 2), n**3, 2**n, f**0


@sequence(with_both((-0.1, 3), (-0.2, 4), (-1.7, 5)))
def powers_of_negative(x, f, n):
    return x * f**2, f**3, f**n, f**-1


@sequence(with_both((0.1, 3), (0.2, 4), (1.7, 5), (3.5, 7)))
def functions_of_both(x, f, n):
    return (
        x * math.sqrt(f), math.exp(-f), math.log(f), math.log2(n), math.sin(f), math.cos(n), math.tanh(f), math.sqrt(n),
        math.floor(f), math.ceil(f), math.trunc(f), round(f), int(f * 10), float(n), math.copysign(1, -f), math.gcd(n, 6),
    )  # fmt: skip


@sequence(with_both((1.5, 1), (1.25, 2), (1.75, 3), (2.5, 4)))
def compared_exactly(x, f, n):
    return x * (2 if n < 1.9 else 3), x + (1 if f <= n else 2), 5.5 > n, 0 < f, f != n, n == 100.0


@sequence(with_both((0.5, 2**53), (0.25, 2**53 + 1), (0.75, 2**53 + 3), (float(2**53), 2**53 + 1)))
def compared_beyond_doubles(x, f, n):
    return x * (2 if n > float(2**53) else 3), f == n, n / 3


@sequence(with_both((0.5, 1), (1.5, 2), (2.5, 1), (float("nan"), 1), (1.0, 1)))
def extremes_of_both(x, f, n):
    return x * max(f, 0.75), min(f, n), max(n, f), max([f, 1, n]), sum([f, n, 1.5]), sum((n, n), 2), min(1.0, f)


@sequence(with_float(0.5, 0.25, 0.0, 2.0, 0.0))
def divided_by_zero(x, f):
    return x * (1.0 / f), f // f


@sequence(with_float(0.5, 0.25, 0.0, -0.0, float("nan"), 2.0))
def truth_of_a_float(x, f):
    return x * 2 if f else x, not f


@sequence(with_float(0.5, 0.25, 0.125))
def digits_are_read(x, f):
    return (
        struct.pack("d", f), sorted([f, 0.3]), f in (0.5, 0.25), {f: x}, hash(f), f.hex(), "%f" % f, [0.1] * int(f * 8),
        f.is_integer(), f.as_integer_ratio(), complex(f), str([f]), math.fsum([f, 0.1]), x,
    )  # fmt: skip


@sequence(with_float(0.5, 0.25, 0.125, 1.0))
def as_sizes(x, f):
    n = int(f * 8)
    return torch.zeros(n), x.repeat(n + 1), torch.arange(n) * f, x[: round(f * 3)], torch.full((n, 2), f)


@sequence(over(lambda n: (T(n, 2),), 4, 6, 9, 10), marks=[(0, 0)])
def sizes_through_floats(x):
    n = x.shape[0]
    return x[: int(n * 0.5)], x[: math.ceil(n / 2)], torch.zeros(round(n * 1.5)), x / n**0.5, x[: n - int(math.sqrt(n))]


@sequence(over(lambda f: (T(1, 1, 4, 4), f), 2.0, 1.5, 3.0))
def resized(x, f):
    y = F.interpolate(x, scale_factor=f)
    return y, y.shape


@sequence(with_float(0.5, 0.25, 0.125, 0.0))
def options_of_torch(x, f):
    return (
        F.dropout(x, f, False),
        F.elu(x, f),
        x.clamp(min=f),
        torch.add(x, x, alpha=f),
        F.softplus(x, beta=f + 1),
        x**f,
        f - x,
    )


@sequence(with_float(0.5, 0.25, 0.0, 1.0))
def dropped_out(x, f):
    torch.manual_seed(0)
    y = F.dropout(x, f, True)
    return y, F.dropout(y, p=f, training=f > 0.3)


@sequence(over(lambda f: (T(3), (f, [f, {"f": f}])), 0.5, 0.25, 0.125))
def within_tuples(x, values):
    first, (second, third) = values
    return x * first + second * third["f"], values, (first, second + 1)


@sequence(over(lambda f: (T(3), {"lr": f, "betas": (f, 0.9)}, [f]), 0.5, 0.25, 0.125))
def written_back(x, options, seen):
    options["lr"] *= 0.5
    options["last"] = options["betas"][0]
    seen.append(options["lr"])
    seen[0] = seen[0] + 1
    return x * options["lr"]


@sequence([*[lambda: (T(3),)] * 5], made=True)
def cosine_schedule():
    state = types.SimpleNamespace(step=0, best=math.inf, rates=[])

    def fn(x):
        rate = 0.1 * 0.5 * (1 + math.cos(math.pi * state.step / 10))
        state.step += 1
        state.best = min(state.best, rate)
        state.rates.append(rate)
        return x * rate

    return fn


@sequence([*[lambda: (T(3),)] * 5], made=True)
def warm_up():
    class Warm(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps, self.scale = 0, 0.0

        def forward(self, x):
            self.steps += 1
            self.scale = min(1.0, self.steps / 4)
            return x * self.scale

    return Warm()


@sequence(with_float(0.1, 0.2, 0.3))
def captured_by_a_closure(x, f):
    def scaled(y, by=f):
        return y * by + f

    return scaled(x), [g(x) for g in (lambda y: y - f, scaled)]


@sequence(over(lambda f: (T(3, rg=True), f), 0.5, 0.25, 0.125), backward=True)
def differentiated(x, f):
    return (x * f).sin() + f


@sequence(over(lambda f: (T(3).double(), T(3).to(torch.int64), T(3).to(torch.complex64), f), 0.1, 0.2, 0.3))
def promoted(x, y, z, f):
    return x * f, y * f, z * f, torch.tensor(f), x.new_full((2,), f), torch.tensor([f, 2.0], dtype=torch.float16)


@sequence(with_float(0.5, 0.25, 0.125))
def asked_what_it_is(x, f):
    g = f * 2
    return type(f), isinstance(g, float), f.real, f is f, f is None, float(f), callable(f), x * g.real


@sequence(with_float(0.5, 1, 0.25, True, 2, 0.125))
def of_changing_type(x, f):
    return x * f, f + 1, type(f)

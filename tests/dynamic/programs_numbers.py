"""Ints, floats and bools that come from outside: arguments, attributes, globals, cells, items."""

import math
import types

import torch
from harness import T
from sequences import over, sequence
from torch import nn

X = T(3)


def with_number(*numbers):
    return over(lambda n: (T(3), n), *numbers)


@sequence(with_number(2, 3, 4, 5), marks=())
def int_argument(x, n):
    return x * n + n


@sequence(with_number(5, 1, 0, -1, -7, 2))
def int_around_zero(x, n):
    return x * n, n + 1, -n, abs(n)


@sequence(with_number(10**6, 2**31, 2**33, 2**62, -(2**63)))
def large_ints(x, n):
    return x * n, n // 3, n % 1000


@sequence(with_number(3, 2**63, 2**64, 10**30, 4))
def ints_beyond_64_bits(x, n):
    return x + 1, n * 2, n // 7


@sequence(with_number(3, 4, 5))
def int_as_size(x, n):
    return torch.zeros(n) + 1, torch.arange(n), x.repeat(n), torch.full((2, n), n)


@sequence(with_number(3, 0, 1, -1, 2))
def int_as_odd_size(x, n):
    return torch.ones(n).sum() * x


@sequence(over(lambda n: (T(12), n), 2, 3, 4, 6, 5))
def int_as_divisor_of_a_view(x, n):
    return x.view(n, -1).sum(1)


@sequence(with_number(True, 2, 3, False, 4))
def bool_among_ints(x, n):
    return x * n, n + 1, type(n), n is True


@sequence(with_number(True, False, True))
def bool_argument(x, flag):
    return x * 2 if flag else -x, not flag


@sequence(with_number(2, 2.0, 3, 3.5, 4))
def int_or_float(x, n):
    return x * n, n / 2, type(n)


@sequence(over(lambda n: (T(3), n), 1, None, 2, None, 3))
def int_or_none(x, n):
    return x if n is None else x * n


@sequence(with_number(1, 2, 3, 4))
def int_branch(x, n):
    return x * 2 if n > 2 else x - n


@sequence(with_number(1, 2, 3, 5))
def int_loop(x, n):
    for i in range(n):
        x = x * 2 + i
    return x


@sequence(with_number(1, 2, 3))
def int_results_only(x, n):
    return n * 2, n - 1, [n], {"n": n}, (n, str(n)), x


@sequence(with_number(4, 5, 6))
def int_division(x, n):
    return n // 2, n % 4, divmod(n, 4), -n // 2, -n % 3, n / 4, x / n, x // n, x % n, divmod(-n, -4)


@sequence(with_number(2, 3, 4))
def int_exponent(x, n):
    return x**n, 2**n, n**2, (n - 3) ** 2


@sequence(with_number(0, 1, 2, -1))
def int_dimension(x, d):
    return torch.stack([x, x, x]).unsqueeze(0).sum(d)


@sequence(over(lambda n, m: (T(3), n, m), (2, 2), (3, 3), (3, 4), (5, 4)))
def equal_ints_that_part(x, n, m):
    return x * n + m, n == m, x.repeat(n)[:m]


@sequence(over(lambda n: (T(n), n), 3, 4, 5, 6))
def int_that_equals_a_size(x, n):
    return x.view(n, 1) + torch.arange(n), n == x.shape[0]


@sequence(with_number(0.5, 0.25, 0.125, 2.0))
def float_argument(x, f):
    return x * f + f


@sequence(with_number(0.5, 1.0, 0.0, -1.0, 2.0))
def floats_at_whole_numbers(x, f):
    return x * f, f + 1, f == 1.0, f > 0


@sequence(with_number(0.0, -0.0, 1.0, -0.0))
def negative_zero(x, f):
    return x * f, torch.full((2,), f), math.copysign(1.0, f), 1.0 + f, -f


@sequence(with_number(1.0, float("nan"), 2.0, float("nan")))
def not_a_number(x, f):
    return x * f, f == f, torch.full((2,), f), f > 0


@sequence(with_number(1.0, float("inf"), -float("inf"), 1e308, 5e-324))
def infinities(x, f):
    return x * f, f * 2, f - f, f > 1e300


@sequence(with_number(0.1, 0.2, 0.3))
def float_arithmetic(x, f):
    return x * (f + 0.1), f * 3, f / 3, f**2, f - 0.1 == 0, -f, abs(f), x + (1 - f) * 0.5


@sequence(with_number(0.1, 1.7, 2.5, 3.5, -0.5))
def float_rounding(x, f):
    return int(f), round(f), math.floor(f), math.ceil(f), f // 1, f % 1, x * round(f, 1), f.is_integer()


@sequence(with_number(0.5, 1.5, 2.5))
def float_branch(x, f):
    return x * f if f > 1 else x


@sequence(with_number(0.5, 1.5, 2.5))
def float_text(x, f):
    return f"{f:.2f}", str(f), repr([f]), x


@sequence(with_number(0.1, 0.25, 0.5))
def float_keyword(x, f):
    return x.add(1, alpha=f), torch.clamp(x, min=-f, max=f), torch.nn.functional.leaky_relu(x, negative_slope=f)


@sequence(with_number(0.1, 0.25, 0.5))
def float_epsilon(x, f):
    return torch.nn.functional.layer_norm(x, (3,), eps=f), torch.allclose(x, x + 0.2, atol=f)


@sequence(with_number(1, 2, 3))
def int_keyword(x, n):
    return x.add(x, alpha=n), torch.clamp(x, max=n), x.roll(shifts=n, dims=0)


@sequence(with_number(0.5, 0.25, 0.1), marks=())
def mixed_dtypes(x, f):
    return x.double() * f, x.to(torch.int64) + f, x.to(torch.float16) * f, torch.tensor(f), torch.tensor([f, 1])


@sequence(over(lambda n: (T(3), torch.tensor(n)), 1, 2, 3))
def tensor_of_no_dimensions(x, n):
    return x * n


@sequence(over(lambda n: (T(3), [n, 1.5, {"k": n}]), 1, 2, 3))
def numbers_in_containers(x, values):
    return x * values[0] + values[1] * values[2]["k"], values


@sequence(over(lambda n: (T(3), list(range(n))), 1, 2, 3, 0))
def list_of_numbers(x, values):
    return x * sum(values), len(values), [v * 2 for v in values]


@sequence(over(lambda n: (T(3), types.SimpleNamespace(scale=n, rate=n / 4)), 1, 2, 3))
def numbers_in_attributes(x, config):
    return x * config.scale + config.rate


@sequence([*[lambda: (T(3),)] * 5], made=True)
def counter_on_self():
    class Stepping(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0

        def forward(self, x):
            self.step += 1
            return x * self.step

    return Stepping()


@sequence([*[lambda: (T(3),)] * 5], made=True)
def counter_returned():
    state = types.SimpleNamespace(n=10)

    def fn(x):
        state.n += 2
        return x + 1, state.n, state

    return fn


@sequence([*[lambda: (T(3),)] * 5], made=True)
def annealed_on_self():
    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature = 1.0

        def forward(self, x):
            y = torch.softmax(x / self.temperature, -1)
            self.temperature *= 0.9
            return y

    return Annealed()


@sequence([*[lambda: (T(3),)] * 4], made=True)
def counter_in_a_cell():
    n = 0

    def fn(x):
        nonlocal n
        n += 1
        return x * n, n

    return fn


@sequence([*[lambda: (T(3),)] * 4], made=True)
def counter_in_a_list():
    seen = [0]

    def fn(x):
        seen[0] += 1
        return x * seen[0]

    return fn


@sequence([*[lambda: (T(3),)] * 4], made=True)
def counter_in_a_dict():
    state = {"step": 0, "rate": 0.5}

    def fn(x):
        state["step"] += 1
        state["rate"] /= 2
        return x * state["rate"] + state["step"]

    return fn


STEP = 0


@sequence([*[lambda: (T(3),)] * 4], made=True, watch=lambda: STEP)
def counter_in_a_global():
    global STEP
    STEP = 0

    def fn(x):
        global STEP
        STEP += 1
        return x * STEP

    return fn


SCALE = 1.0


@sequence(over(lambda v: set_scale(v), 0.5, 0.75, 1.5, 0.75), watch=lambda: SCALE)
def float_global(x):
    return x * SCALE


def set_scale(value):
    global SCALE
    SCALE = value
    return (T(3),)


@sequence([*[lambda: (T(3),)] * 4], made=True)
def every_second_step():
    state = types.SimpleNamespace(n=0)

    def fn(x):
        state.n += 1
        return x * 2 if state.n % 2 == 0 else x

    return fn


@sequence([*[lambda: (T(3),)] * 5], made=True)
def counter_that_grows_a_list():
    log = []

    def fn(x):
        log.append(len(log) * 2)
        return x + len(log)

    return fn


@sequence([*[lambda: (T(3),)] * 4], made=True)
def moving_average():
    state = types.SimpleNamespace(mean=torch.zeros(3), decay=0.9, count=0)

    def fn(x):
        state.count += 1
        decay = min(state.decay, (1 + state.count) / (10 + state.count))
        state.mean = state.mean * decay + x * (1 - decay)
        return state.mean

    return fn


@sequence(over(lambda n: (T(3), types.SimpleNamespace(n=n)), 1, 2, 3))
def int_written_back(x, holder):
    holder.half, holder.twice = holder.n // 2, holder.n * 2
    holder.n = holder.n + 1
    return x * holder.n


@sequence(with_number(1, 2, 3))
def int_default(x, n, k=3):
    return x * (n + k), max(n, k), min(n, k, 2)


@sequence(over(lambda n: (T(3), range(n)), 2, 3, 4))
def range_argument(x, numbers):
    return x * len(numbers), sum(numbers)


@sequence(over(lambda a: (T(6), slice(0, a)), 2, 3, 4))
def slice_argument(x, part):
    return x[part] + 1


@sequence(over(lambda *s: (T(12), s), (3, 4), (4, 3), (2, 6), (12,)))
def shape_argument(x, shape):
    return x.view(shape) * 2


@sequence(over(lambda s: (T(3), s), "a", "bb", "ccc"))
def length_of_text(x, text):
    return x * len(text)


@sequence(with_number(1, 2, 3))
def torch_manual_seed(x, n):
    torch.manual_seed(n)
    return x * n


@sequence(over(lambda n: (T(3).to(torch.int32), n), 2, 3, 2**31, 5))
def int_beyond_the_dtype(x, n):
    return x + n, x * n


@sequence(over(lambda n: (T(3), n), 1j, 2j, 3 + 1j))
def complex_argument(x, z):
    return x * z

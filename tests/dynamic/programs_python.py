"""Sizes in the hands of Python: arithmetic, branches, loops, text, containers, errors."""

import collections
import copy
import dataclasses
import functools
import itertools
import json
import math
import operator
import struct

import torch
from harness import T
from sequences import over, sequence, shapes

ROWS3 = shapes((4, 3), (5, 3), (7, 3))
LENGTHS = shapes((4,), (5,), (6,), (9,))
FIRST = [(0, 0)]


@sequence(LENGTHS, marks=FIRST)
def arithmetic(x):
    n = x.shape[0]
    return x[: n // 2], x * (n * 2 - 1), x + -n, torch.zeros((n + 1) * 2), x * (n % 3), x / n, x ** (n - 3)


@sequence(LENGTHS)
def divisions(x):
    n = x.shape[0]
    return divmod(n, 3), n // -2, -n % 4, n / 2, n // 2 * 2 == n, 7 % n, 100 // n


@sequence(LENGTHS)
def extremes(x):
    n = x.shape[0]
    return x[: min(n, 5)], max(n, 5), abs(5 - n), min([n, 6, 8]), sum([n, n, 1]), sum([n, 1.5]), x[: max(n - 3, 1)]


@sequence(shapes((4,), (3,), (2,), (1,), (6,)))
def division_by_zero(x):
    return x * (12 // (x.shape[0] - 2)), 5 % (x.shape[0] - 3)


@sequence(LENGTHS)
def powers_and_shifts(x):
    n = x.shape[0]
    return n**2, 2**n, 1 << n, n >> 1, n & 6, n | 1, n ^ 3, ~n, n**0.5, pow(n, 2, 5), n.bit_length()


@sequence(LENGTHS)
def roots(x):
    n = x.shape[-1]
    return (
        x / math.sqrt(n),
        x * n**-0.5,
        math.floor(n / 2),
        math.ceil(n / 4),
        math.log2(n),
        math.prod([n, 2]),
        math.gcd(n, 6),
    )


@sequence(LENGTHS)
def roundings(x):
    n = x.shape[0]
    return round(n / 3), int(n * 0.7), round(n * 1.25, 1), float(n), int(n), bool(n), complex(n), math.trunc(n / 2)


@sequence(LENGTHS, marks=FIRST)
def halves_as_floats(x):
    return x[: int(x.shape[0] * 0.5)]


@sequence(LENGTHS)
def enormous(x):
    n = x.shape[0]
    return n * 10**20, (n << 70) % 1000, n * 2**62, n**40 // n**39, -(n * 2**63)


@sequence(shapes((3,), (4,), (5,), (6,), (4,), (2,)))
def branch(x):
    if x.shape[0] > 4:
        return x * 2
    return -x


@sequence(shapes((6,), (7,), (8,), (3,), (9,), (2,)), marks=FIRST)
def branch_never_taken(x):
    if x.shape[0] > 100:
        return x * 2
    return x.cos()


@sequence(shapes((3,), (4,), (6,), (8,), (5,), (7,)))
def branch_on_parity(x):
    return x.view(2, -1).sum(0) if x.shape[0] % 2 == 0 else x[:-1].view(2, -1).sum(0)


@sequence(shapes((3, 4), (4, 4), (5, 4), (5, 5), (6, 6)))
def branch_on_square(x):
    return x + x.t() if x.shape[0] == x.shape[1] else x


@sequence(shapes((4,), (5,), (0,), (6,), (0,)))
def branch_on_emptiness(x):
    if not x.shape[0] or not len(x) or x.numel() == 0:
        return torch.zeros(1)
    return x[0]


@sequence(LENGTHS)
def branch_in_a_chain(x):
    n = x.shape[0]
    return x * (3 if 4 < n <= 6 else 5 if n in (9, 10) else 7), n in (4, 5), n in [6, 7], n in {4: 1}, n in range(5, 8)


@sequence(LENGTHS)
def truth_kept(x):
    n = x.shape[0]
    big = n > 5
    return big, not big, x * big, (n == 4) + 1, [n >= 5, n != 6], n < 5 or n > 8, n and 3


@sequence(LENGTHS)
def asserts(x):
    assert x.shape[0] > 2, "too short"
    assert x.dim() == 1 and x.shape[0] != 100
    return x + 1


@sequence(shapes((4,), (5,), (2,), (6,), (1,)))
def assertion_that_fails(x):
    assert x.shape[0] > 3, f"{x.shape[0]} rows"
    return x + 1


@sequence(shapes((4,), (5,), (6,), (9,), (7,)))
def raises_with_the_size(x):
    n = x.shape[0]
    if n % 3 == 0:
        raise ValueError(n, f"{n} rows")
    return x * 2


@sequence(shapes((4,), (5,), (6,), (9,), (7,)))
def error_caught(x):
    try:
        y = x.view(-1, 3)
    except RuntimeError as error:
        return str(error), x
    return y


@sequence(LENGTHS)
def identity(x):
    n = x.shape[0]
    return n is 4, n is x.shape[0], (n + 1) is 5, n is not None, x * (2 if n is 5 else 3)


@sequence(shapes((300,), (301,), (300,), (302,)))
def identity_of_large(x):
    n = x.shape[0]
    m = n
    return m is n, [n, n], x.sum()


@sequence(shapes((2,), (3,), (5,), (4,)))
def loop_over_a_size(x):
    y = x
    for i in range(x.shape[0]):
        y = y + x[i] * i
    return y


@sequence(shapes((2, 3), (3, 3), (5, 3)))
def loop_over_rows(x):
    total = 0
    for number, row in enumerate(x):
        total = total + row * number
    return total


@sequence(shapes((3,), (4,), (6,)))
def while_halving(x):
    n, steps = x.shape[0], 0
    while n > 1:
        n, steps, x = (n + 1) // 2, steps + 1, x * 0.5
    return x, steps


@sequence(shapes((4,), (5,), (7,)))
def windows(x):
    return torch.stack([x[i : i + 2].sum() for i in range(x.shape[0] - 1)])


@sequence(shapes((3,), (4,), (5,)))
def ranges(x):
    n = x.shape[0]
    return (
        list(range(n)),
        range(n),
        len(range(0, n, 2)),
        range(n)[-1],
        sum(range(n)),
        [*range(n, 0, -1)],
        x[list(range(n))],
    )


@sequence(shapes((3,), (4,), (5,)))
def repeated_lists(x):
    n = x.shape[0]
    return [0] * n, n * (1,), "ab" * n, [None] * (n - 2), bytes(n), [[0] * 2 for _ in range(n)]


@sequence(shapes((3,), (4,), (5,)))
def list_items(x):
    n = x.shape[0]
    values = [10, 11, 12, 13, 14, 15]
    text = "abcdefgh"
    values[n] = -1
    return (
        values[n - 1],
        values[:n],
        text[n],
        text[n:],
        values[-n],
        [x, x * 2, x * 3][n % 3],
        operator.itemgetter(n)(values),
    )


@sequence(shapes((3,), (4,), (5,), (9,)))
def list_item_lacking(x):
    return [x, x + 1, x + 2, x + 3, x + 4][x.shape[0]]


@sequence(shapes((3,), (4,), (5,)))
def dict_keys(x):
    n = x.shape[0]
    table = {n: x, (n, 1): x + 1, "n": n}
    table[x.shape] = n * 2
    return table, n in table, table[n] * 2, {n, n + 1, 3}, {3: "a", 4: "b"}.get(n), table[x.shape], hash(n)


@sequence(shapes((3,), (4,), (5,)))
def dict_lookup(x):
    d = {3: 0.5, 4: 1.5}
    try:
        return x * d[x.shape[0]]
    except KeyError as error:
        return x, error.args


@sequence(shapes((3,), (4,), (5,)))
def texts(x):
    n = x.shape[0]
    return f"{n} {x.shape} {n:03d} {n!r}", "%d" % n, "%s" % (x.shape,), str(n), repr(n), "{}".format(n), chr(n + 60), hex(n)  # fmt: skip


@sequence(shapes((3,), (4,), (5,)))
def printed(x):
    print("size", x.shape[0], x.shape, sep="|")
    return x + 1


@sequence(shapes((3,), (4,), (5,)))
def encoded(x):
    n = x.shape[0]
    return struct.pack("<i", n), json.dumps({"n": n}), n.to_bytes(2, "big"), ord(chr(n)), int(str(n)) + 1


@sequence(shapes((3,), (4,), (5,)))
def sorted_by_remainder(x):
    n = x.shape[0]
    values = [5, 7, 9, 4, n]
    return (
        sorted(values, key=lambda v: v % n),
        sorted(values),
        max(values),
        values.index(n),
        values.count(5),
        sorted([n, 4], reverse=True),
    )


@sequence(shapes((3,), (4,), (5,)))
def library_functions(x):
    n = x.shape[0]
    return (
        list(itertools.islice(itertools.count(), n)), functools.reduce(operator.mul, [n, 2, n]), list(itertools.repeat(1, n)),
        collections.Counter([n, n, 4]), collections.deque(range(6), maxlen=n), operator.index(n), math.comb(6, n), copy.copy(n),
    )  # fmt: skip


Size = collections.namedtuple("Size", "rows columns")


@dataclasses.dataclass
class Box:
    rows: int
    shape: torch.Size

    def half(self):
        return self.rows // 2


@sequence(ROWS3)
def containers_of_sizes(x):
    made = Size(*x.shape)
    return (
        made,
        made.rows + 1,
        {"shape": x.shape, "list": [x.shape[0]]},
        Box(x.shape[0], x.shape),
        Box(len(x), x.shape).half(),
    )


@sequence(ROWS3, marks=FIRST)
def sizes_through_functions(x):
    def halves(n):
        return n // 2, n - n // 2

    def make(n, *, scale=1, **rest):
        return torch.ones(n * scale) + rest["more"]

    a, b = halves(x.shape[0])
    cut = functools.partial(torch.narrow, x, 0, 0)
    return make(a, more=b), make(b, scale=2, more=1), cut(a), (lambda n=a: x[n])()


@sequence(shapes((3,), (4,), (5,)))
def generator_of_sizes(x):
    def steps(n):
        while n > 0:
            yield n
            n -= 2

    return sum(x.sum() * n for n in steps(x.shape[0])), list(steps(len(x)))


@sequence(ROWS3)
def comprehensions(x):
    sizes = [s * 2 for s in x.shape]
    return (
        sizes,
        {s: i for i, s in enumerate(x.shape)},
        all(s > 0 for s in x.shape),
        max(x.shape),
        tuple(s - 1 for s in x.shape),
    )


@sequence(ROWS3, marks=FIRST)
def checks(x):
    torch._check(x.shape[0] >= 3)
    torch._check(x.shape[0] < 100, lambda: "too long")
    return x.view(x.shape[0], 3)


@sequence(shapes((4,), (5,), (2,), (6,)))
def check_that_fails(x):
    torch._check(x.shape[0] > 3, lambda: f"only {x.shape[0]}")
    return x + 1


@sequence(LENGTHS)
def symbolic_functions(x):
    n = x.shape[0]
    bounds = torch.sym_max(n, 5), torch.sym_min(n, 5)
    return bounds, torch.sym_not(n == 4), torch.sym_float(n), torch.sym_int(n / 2), torch.sym_ite(n > 5, 1, 2)


@sequence(LENGTHS)
def types_of_sizes(x):
    n = x.shape[0]
    return (
        type(n), isinstance(n, int), isinstance(n, torch.SymInt), isinstance(n, bool), type(n > 3), type(n / 2), type(x.shape),
        callable(n), n.real, n.numerator, n.__class__, n.__add__(1), int.__mul__(n, 2), hasattr(n, "is_integer"),
    )  # fmt: skip


@sequence(shapes((3,), (4,), (5,)))
def matched(x):
    match x.shape[0]:
        case 3:
            return x
        case n if n > 4:
            return x * n
        case _:
            return -x


@sequence(LENGTHS, marks=FIRST)
def nested_calls(x):
    def halve(y):
        return y[: y.shape[0] // 2] if y.dim() else y

    return halve(halve(x)) + 1


@sequence(shapes((2, 4), (3, 4), (4, 4)))
def recursion_over_a_size(x):
    def total(y):
        n = y.shape[0]
        return y[0] if n == 1 else total(y[: n // 2]) + total(y[n // 2 :])

    return total(x)

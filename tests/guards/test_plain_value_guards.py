"""Plain values are guarded by type and bits, and containers by order: what is equal is not always the same."""

from __future__ import annotations

import collections
import math

from harness import T, program

NAN = float("nan")


@program()
def test_values_of_constant_tensors(t):
    def fn(x, n):
        table = torch.tensor([[n, 2], [3, 4]])
        rows = table.tolist()
        table[0, 0] = 7
        return x * rows[0][0] + table[0].tolist()[0], rows, torch.tensor(1.5).tolist(), table.tolist()

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 5)


@program()
def test_zero_and_minus_zero(t):
    f = t.compile(lambda v, x: (str(v), math.copysign(1, v), x + 1))
    f(0.0, T(2))
    f(-0.0, T(2))
    f.hit(0.0, T(2))
    f.hit(-0.0, T(2))


@program()
def test_zero_and_minus_zero_inside(t):
    f = t.compile(lambda v, x: (repr(v), x + 1))
    for pair in ([0.0], [-0.0]), ({"k": 0.0}, {"k": -0.0}), ((0.0,), (-0.0,)), ([[0.0]], [[-0.0]]):
        for value in pair:
            f(value, T(2))


@program()
def test_complex_zeros(t):
    f = t.compile(lambda v, x: (repr(v), x + 1))
    f(complex(0.0, 0.0), T(2))
    f(complex(-0.0, 0.0), T(2))
    f(complex(0.0, -0.0), T(2))


@program()
def test_minus_zero_in_arithmetic(t):
    f = t.compile(lambda v, x: x * v)
    f(0.0, T(2))
    f(-0.0, T(2))
    f(0, T(2))


@program()
def test_nan(t):
    f = t.compile(lambda v, x: (v == v, v is NAN, [v] == [NAN], x + 1))
    f(NAN, T(2))
    f(float("nan"), T(2))
    f(1.0, T(2))


@program()
def test_nan_hits(t):
    f = t.compile(lambda v, x: x * v)
    f(NAN, T(2))
    f.hit(float("nan"), T(2))


@program()
def test_nan_as_a_key(t):
    f = t.compile(lambda d, k, x: (k in d, len(d), x + 1))
    f({NAN: 1}, NAN, T(2))
    f({float("nan"): 1}, NAN, T(2))
    f({NAN: 1, float("nan"): 2}, NAN, T(2))


@program()
def test_true_and_one(t):
    f = t.compile(lambda v, x: (repr(v), x * v))
    f(1, T(2))
    f(True, T(2))
    f(1.0, T(2))
    f.hit(1, T(2))
    f.hit(True, T(2))


@program()
def test_true_and_one_inside(t):
    f = t.compile(lambda v, x: (repr(v), x + 1))
    for value in (
        [1],
        [True],
        [1.0],
        (1, 0),
        (True, False),
        {"k": 1},
        {"k": True},
        {1},
        {True},
        range(1),
        slice(1),
        slice(True),
    ):
        f(value, T(2))


@program()
def test_numbers_as_keys(t):
    f = t.compile(lambda d, x: (list(d), d[1], x + 1))
    f({1: 2}, T(2))
    f({True: 2}, T(2))
    f({1.0: 2}, T(2))


@program()
def test_bytes_and_str(t):
    f = t.compile(lambda v, x: (v == "a", v == b"a", len(v), x + 1))
    f("a", T(2))
    f(b"a", T(2))
    f(bytearray(b"a"), T(2))


@program()
def test_subclasses_of_plain_types(t):
    class Int(int):
        def __add__(self, other):
            return 100

    class Str(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

    f = t.compile(lambda v, s, x: (v + 1, s == "other", x + 1))
    f(1, "a", T(2))
    f(Int(1), "a", T(2))
    f(1, Str("a"), T(2))


@program()
def test_large_ints(t):
    f = t.compile(lambda n, x: (n + 1, x * (n % 7)))
    f(2**70, T(2))
    f.hit(2**70, T(2))
    f(2**70 + 1, T(2))
    f(-(2**70), T(2))


@program()
def test_dict_order(t):
    f = t.compile(lambda d, x: (list(d), list(d.items()), x + 1))
    f({"a": 1, "b": 2}, T(2))
    f({"b": 2, "a": 1}, T(2))
    f.hit({"a": 1, "b": 2}, T(2))


@program()
def test_dict_order_nested(t):
    f = t.compile(lambda d, x: (repr(d), x + 1))
    f({"k": {"a": 1, "b": 2}}, T(2))
    f({"k": {"b": 2, "a": 1}}, T(2))


@program()
def test_dict_order_does_not_matter_by_itself(t):
    f = t.compile(lambda d, x: x + d["a"] + d["b"])
    f({"a": 1, "b": 2}, T(2))
    f.hit({"b": 2, "a": 1}, T(2))


@program()
def test_keyword_order(t):
    f = t.compile(lambda x, **kw: (list(kw), x + 1))
    f(T(2), a=1, b=2)
    f(T(2), b=2, a=1)
    f.hit(T(2), a=1, b=2)


@program()
def test_attribute_order(t):
    class Box:
        pass

    def make(*names):
        box = Box()
        for name in names:
            setattr(box, name, 1)
        return box

    f = t.compile(lambda o, x: (list(vars(o)), x + 1))
    f(make("a", "b"), T(2))
    f(make("b", "a"), T(2))
    f.hit(make("a", "b"), T(2))


@program()
def test_set_order(t):
    """Equal sets that iterate in another order."""
    f = t.compile(lambda s, x: (list(s), [x * i for i in s]))
    f(set([0, 8]), T(2))
    f(set([8, 0]), T(2))
    f(set([0, 8]), T(2))


@program()
def test_set_order_after_deletions(t):
    def sparse():
        s = {i * 16 for i in range(20)}
        for i in range(17):
            s.discard(i * 16)
        return s

    f = t.compile(lambda s, x: (list(s), x + 1))
    f(sparse(), T(2))
    f({272, 288, 304}, T(2))
    f(sparse(), T(2))


@program()
def test_set_order_of_results(t):
    def fn(s, x):
        s |= {16, 24}
        return s, {8, 0, 16}, frozenset([8, 0]), x + 1

    f = t.compile(fn)
    f(set([0, 8]), T(2))
    f(set([8, 0]), T(2))


@program()
def test_frozenset_order(t):
    f = t.compile(lambda s, x: (list(s), x + 1))
    f(frozenset([0, 8]), T(2))
    f(frozenset([8, 0]), T(2))


@program()
def test_set_order_does_not_matter_by_itself(t):
    f = t.compile(lambda s, x: x + 1 if 8 in s else x)
    f(set([0, 8]), T(2))
    f.hit(set([8, 0]), T(2))


@program()
def test_counter_and_ordered_dict_order(t):
    f = t.compile(lambda d, x: (next(iter(d)), x + 1))
    f(collections.Counter("ab"), T(2))
    f(collections.Counter("ba"), T(2))
    f(collections.OrderedDict(a=1, b=2), T(2))
    f(collections.OrderedDict(b=2, a=1), T(2))


@program()
def test_empty_things(t):
    f = t.compile(lambda v, x: (not v, type(v).__name__, x + 1))
    for value in ([], (), {}, set(), frozenset(), "", b"", 0, 0.0, False, None, range(0), collections.deque()):
        f(value, T(2))


@program()
def test_identity_of_small_ints_and_strings(t):
    def fn(a, b, x):
        return a is b, a == b, x + 1

    f = t.compile(fn)
    f(1, 1, T(2))
    f(1000, int("1000"), T(2))
    n = 1000
    f(n, n, T(2))
    f("ab", "".join(["a", "b"]), T(2))
    s = "".join(["a", "b"])
    f(s, s, T(2))


@program()
def test_identity_of_a_constant_that_is_returned(t):
    """Constants are kept by object: the program gets back what it passed."""
    f = t.compile(lambda s, x: [s, x + 1])
    a, b = "".join(["a", "b"]), "".join(["a", "b"])
    t.note(f(a, T(2))[0] is a)
    t.note(f(b, T(2))[0] is b)


@program()
def test_identity_of_an_equal_constant_that_was_compared(t):
    """Guarded by equality, returned by object."""
    f = t.compile(lambda s, x: (s if s == "ab" else None, x + 1))
    a, b = "".join(["a", "b"]), "".join(["a", "b"])
    t.note(f(a, T(2))[0] is a)
    t.note(f(b, T(2))[0] is b)


@program()
def test_float_from_int(t):
    f = t.compile(lambda v, x: (v / 2, v // 2, type(v + 1).__name__, x + v))
    f(3, T(2))
    f(3.0, T(2))
    f(True, T(2))

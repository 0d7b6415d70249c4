"""torch.cond inside of a compiled function: one node over two graphs."""

from __future__ import annotations

import torch
from harness import T, program
from trace_support import in_child

import alternator


@program(graphs=1)
def test_cond(t):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos() + 1, (x,)) * 2

    f = t.compile(fn)
    f(T(3).abs())
    f.hit(-T(3).abs())


@program(graphs=1)
def test_closures_modules_and_structures(t):
    layer = torch.nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.copy_(T(3, 3))
        layer.bias.copy_(T(3))
    shift = T(3, s=4)

    def fn(x, flag):
        z = x * 2

        def yes(y):
            return layer(y) + z, [y + shift]

        def no(y):
            return (y - shift), [z.sin()]

        a, [b] = torch.cond(flag, yes, no, (x,))
        return a + b

    f = t.compile(fn)
    with torch.no_grad():
        f(T(3), torch.tensor(True))
        f.hit(T(3, s=1), torch.tensor(False))
        shift.add_(1)
        f.hit(T(3, s=1), torch.tensor(True))


@program(graphs=1)
def test_gradients(t):
    weight = T(3, s=2, rg=True)

    def fn(x):
        return torch.cond(x.sum() > 0, lambda y: (y * weight).sin(), lambda y: y * 3.0, (x,)).sum()

    f = t.compile(fn)
    for x in (T(3).abs().requires_grad_(), (-T(3).abs()).requires_grad_()):
        f(x).backward()
        t.note((x.grad, weight.grad))


@program()
def test_a_plain_predicate(t):
    seen = []

    def fn(x, flag):
        return torch.cond(flag, lambda y: seen.append(1) or y + 1, lambda y: y - 1, (x,))

    f = t.compile(fn)
    t.watch(lambda: seen)
    f(T(3), True)
    f(T(3), False)
    f.hit(T(3, s=1), True)


@program(one_graph=False)
def test_a_break_in_an_arm(t):
    def fn(x, flag):
        def yes(y):
            z = y * 2
            alternator.graph_break()
            return z + 1

        return torch.cond(pred=flag, true_fn=yes, false_fn=lambda y: y - 1, operands=(x + 1,)) * 3

    f = t.compile(fn)
    with torch.no_grad():
        for flag in (True, False, True):
            f(T(3), flag)


@in_child
def test_arms_that_act(front):
    """torch.cond itself says what it thinks of it."""
    kept = []

    def appends(x):
        mine = []

        def yes(y):
            mine.append(1)
            return y + 1

        out = torch.cond(x.sum() > 0, yes, lambda y: y - 1, (x,))
        return out, len(mine)

    def keeps(x):
        return torch.cond(x.sum() > 0, lambda y: kept.append(1) or y + 1, lambda y: y - 1, (x,))

    def counts(x):
        n = 0

        def yes(y):
            nonlocal n
            n += 1
            return y + n

        return torch.cond(x.sum() > 0, yes, lambda y: y - 1, (x,)), n

    def writes(x):
        return torch.cond(x.sum() > 0, lambda y: y.add_(1) * 2, lambda y: y - 1, (x,)), x

    def outcome(fn):
        kept.clear()
        try:
            return repr(fn(-T(3).abs())), list(kept)
        except Exception as error:
            return type(error), list(kept)

    for fn in (appends, keeps, counts, writes):
        assert outcome(alternator.compile(fn, backend="eager")) == outcome(fn), fn.__name__


@in_child
def test_refused(front):
    def differs(x):
        return torch.cond(x.sum() > 0, lambda y: y, lambda y: y[:1] * 2, (x,))

    def alias(x):
        return torch.cond(x.sum() > 0, lambda y: y.view(-1), lambda y: y * 1, (x,))

    def raises(x):
        def no(y):
            raise ValueError("no")

        return torch.cond(x.sum() > 0, lambda y: y + 1, no, (x,))

    def breaks(x):
        def yes(y):
            alternator.graph_break()
            return y + 1

        return torch.cond(x.sum() > 0, yes, lambda y: y - 1, (x * 2,))

    for fn in (differs, alias, raises, breaks):
        try:
            alternator.compile(fn, backend="eager", fullgraph=True)(T(3))
        except alternator.exc.Unsupported:
            continue
        raise AssertionError(fn.__name__)


@in_child
def test_backends(front):
    weight = T(3, s=2, rg=True)

    def fn(x):
        z = torch.cond(
            x.sum() > 0,
            lambda y: (y * weight).sin(),
            lambda y: torch.cond(y.sum() < -1, lambda v: v * 2.0, lambda v: v.exp(), (y,)),
            (x,),
        )
        return (z * x).sum()

    for backend in ("eager", "aot_eager", "inductor"):
        f = alternator.compile(fn, backend=backend, fullgraph=True)
        for values in ([1.0, 2.0, 3.0], [-1.0, -2.0, 0.5], [-0.1, 0.0, -0.2]):
            x, y = torch.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
            weight.grad = None
            f(x).backward()
            got = x.grad, weight.grad
            weight.grad = None
            wanted = fn(y)
            wanted.backward()
            torch.testing.assert_close(f(x), wanted)
            torch.testing.assert_close(got, (y.grad, weight.grad if weight.grad is not None else torch.zeros(3)))

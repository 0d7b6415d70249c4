"""while_loop, scan and associative_scan inside of a compiled function: one node over graphs of their own."""

from __future__ import annotations

import torch
from harness import T, program
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from trace_support import in_child

import alternator


@program(graphs=1)
def test_while_loop(t):
    def fn(x, limit):
        n, y = while_loop(lambda i, a: i < limit, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))
        return n, y + 1

    f = t.compile(fn)
    f(T(3), torch.tensor(3))
    f.hit(T(3, s=1), torch.tensor(5))
    f.hit(T(3, s=1), torch.tensor(0))


@program(graphs=1)
def test_a_result_is_no_operand(t):
    def fn(x, limit):
        n, y = while_loop(lambda i, a: i < limit, lambda i, a: (i + 1, a + 1), (torch.tensor(0), x))
        y.mul_(3)
        return y, x * 1, n

    f = t.compile(fn)
    x = T(3)
    f(x, torch.tensor(0))
    t.note(x)
    f.hit(x, torch.tensor(2))
    t.note(x)


@program(graphs=1)
def test_closures_and_modules(t):
    layer = torch.nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.copy_(T(3, 3))
        layer.bias.copy_(T(3))
    shift = T(3, s=4)

    def fn(x):
        twice = x * 2

        def body(i, a, b):
            return i + 1, layer(a) + shift, b - twice

        n, a, b = while_loop(lambda i, a, b: i < 3, body, (torch.tensor(0), x, x + 1))
        return n, a + b

    f = t.compile(fn)
    with torch.no_grad():
        f(T(3))
        f.hit(T(3, s=1))
        shift.add_(1)
        layer.weight.mul_(2)
        f.hit(T(3, s=1))


@program()
def test_what_a_body_reads_is_guarded(t):
    class Config:
        scale = 2

    def fn(x):
        return while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * Config.scale), (torch.tensor(0), x))[1]

    f = t.compile(fn)
    torch._dynamo.reset()  # eager compiles the loop by itself, in torch 2.11 without a guard for this
    f(T(3))
    f.hit(T(3))
    Config.scale = 5
    torch._dynamo.reset()
    f.miss(T(3))


@in_child
def test_what_no_graph_can_hold(_):
    seen = []

    def notes(i, a):
        seen.append(1)
        return i + 1, a * 2

    def raises(i, a):
        raise ValueError("no")

    bodies = [
        notes,
        raises,
        lambda i, a: (i + 1, torch.cat([a, a])),
        lambda i, a: (i + 1, a),
        lambda i, a: (i + 1, a.add_(1)),
    ]
    for body in bodies:

        def fn(x, body=body):
            return while_loop(lambda i, a: i < 2, body, (torch.tensor(0), x))[1]

        for call in (fn, alternator.compile(fn, backend="eager")):
            for _ in range(2):
                try:
                    call(T(3))
                except torch._dynamo.exc.UncapturedHigherOrderOpError:
                    continue
                raise AssertionError("no error")
        assert not seen


@program(graphs=1)
def test_nested(t):
    def fn(x, limit):
        def body(i, a):
            inner = torch.cond(a.sum() > 0, lambda b: b - 1, lambda b: b * 2, (a,))
            return i + 1, while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b + x), (torch.tensor(0), inner))[1]

        return while_loop(lambda i, a: i < limit, body, (torch.tensor(0), x.clone()))[1]

    f = t.compile(fn)
    f(T(3), torch.tensor(3))
    f.hit(-T(3), torch.tensor(4))


@program(graphs=1)
def test_scan(t):
    def fn(xs):
        carry, out = scan(lambda c, v: (c + v, c * v), torch.zeros(3), xs)
        return carry, out, out.stride()

    f = t.compile(fn)
    f(T(4, 3))
    f.hit(T(4, 3, s=1))
    f.hit(T(4, 3, s=2))


@program(graphs=1)
def test_scan_of_structures(t):
    weight = T(2, s=7)

    def fn(xs, init):
        def step(carry, x):
            total = carry[0] + x[0] * weight
            return [total], (total.sin(), x[1] * 2)

        return scan(step, [init], (xs, xs + 1), dim=1, reverse=True)

    f = t.compile(fn)
    f(T(2, 5), T(2))
    weight.add_(1)
    f.hit(T(2, 5, s=1), T(2))


@in_child
def test_gradients_of_scan(_):
    def fn(xs, init):
        carry, out = scan(lambda c, v: (c * v, (c + v).sin()), init, xs)
        return carry.sum() + out.sum(), carry.requires_grad

    alternator.reset()
    compiled = alternator.compile(fn, backend="eager", fullgraph=True)
    for s in range(2):
        results = []
        for call in (fn, compiled):
            xs, init = T(4, 3, s=s, rg=True), T(3, s=s + 5, rg=True)
            loss, learns = call(xs, init)
            loss.backward()
            results.append((loss, xs.grad, init.grad, learns))
        torch.testing.assert_close(*results)
    assert alternator.counters()["traces"] == 1


@program()
def test_associative_scan(t):
    f = t.compile(lambda xs: associative_scan(lambda a, b: a * b + 1, xs, dim=0, combine_mode="generic"))
    f(T(5, 3))
    f.hit(T(5, 3, s=1))
    f(T(4, 3))


@in_child
def test_backends(_):
    def loop(x):
        return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2 + x), (torch.tensor(0), x.clone()))[1]

    def scanned(xs):
        carry, out = scan(lambda c, v: (c * v, c + v), torch.ones(3), xs)
        return carry + out.sum(0)

    for backend in ("aot_eager", "inductor"):
        for fn, x in ((loop, T(3)), (scanned, T(4, 3))):
            alternator.reset()
            compiled = alternator.compile(fn, backend=backend, fullgraph=True)
            with torch.no_grad():
                wanted = fn(x)
                for _ in range(2):
                    torch.testing.assert_close(compiled(x), wanted)
    alternator.reset()
    compiled = alternator.compile(scanned, backend="aot_eager", fullgraph=True)
    wanted, got = T(4, 3, rg=True), T(4, 3, rg=True)
    scanned(wanted).sum().backward()
    compiled(got).sum().backward()
    torch.testing.assert_close(got.grad, wanted.grad)

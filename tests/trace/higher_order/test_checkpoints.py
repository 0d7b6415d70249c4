"""torch.utils.checkpoint: the function is a part of the graph; one that does more than compute runs eagerly."""

from __future__ import annotations

import functools

import torch
from harness import T, program
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, noop_context_fn, set_checkpoint_debug_enabled
from trace_support import in_child

import alternator


def fill(module):
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(T(*parameter.shape, s=number))
    return module


def block(dropout=0.0):
    return fill(nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(dropout), nn.Linear(8, 4)))


def train(t, f, module, *calls):
    """One step of training for each of these: the result, and all gradients."""
    for x in calls:
        module.zero_grad()
        y = f(x)
        torch.manual_seed(len(calls))
        (y if isinstance(y, torch.Tensor) else y[0]).square().sum().backward()
        t.note((x.grad, [p.grad for p in module.parameters()]))


@program()
def test_a_layer_of_a_model(t):
    net = block()
    f = t.compile(lambda x: checkpoint(net, x, use_reentrant=False) + x)
    train(t, f, net, T(2, 4), T(2, 4, s=1), T(2, 4, rg=True), T(2, 4, s=3, rg=True))
    f.hit(T(2, 4))
    net[0].weight.requires_grad_(False)
    train(t, f, net, T(2, 4))


@program(graphs=2)
def test_without_gradients(t):
    net = block()
    f = t.compile(lambda x: checkpoint(net, x, use_reentrant=False))
    with torch.no_grad():
        f(T(2, 4))
        f.hit(T(2, 4, s=1))
    f(T(2, 4))


@program()
def test_dropout(t):
    net = block(0.5)
    f = t.compile(lambda x: checkpoint(net, x, use_reentrant=False, preserve_rng_state=True) + torch.rand(4))
    torch.manual_seed(1)
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))
    t.note(torch.rand(2))


@program(one_graph=False)
def test_dropout_that_is_not_preserved(t):
    net = block(0.5)
    f = t.compile(lambda x: checkpoint(net, x, use_reentrant=False, preserve_rng_state=False) * 2)
    torch.manual_seed(1)
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))
    t.note(torch.rand(2))


@program()
def test_not_preserved_and_nothing_drawn(t):
    net = block()
    f = t.compile(lambda x: checkpoint(net, x, use_reentrant=False, preserve_rng_state=False) * 2)
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))


@program()
def test_keywords_and_containers(t):
    w = T(3, rg=True)

    def body(x, *rest, scale=1.0, named=None):
        return {"y": x * scale + named["b"] + sum(rest), "n": len(rest)}, [x]

    def fn(x, y):
        made, same = checkpoint(
            body,
            x,
            y,
            w,
            use_reentrant=False,
            scale=2.0,
            named={"b": w * 2},
            determinism_check="none",
            early_stop=False,
        )
        return made["y"].sum(), made["n"], same[0] is x

    f = t.compile(fn)
    for _ in range(2):
        w.grad = None
        x, y = T(3, rg=True), T(3, s=1)
        f(x, y)[0].backward()
        t.note((x.grad, w.grad))
    f.hit(T(3, rg=True), T(3))


@program()
def test_partials_closures_and_methods(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = block()

        def part(self, x, k):
            return self.inner(x) * k

        def forward(self, x):
            k = x.sum()
            x = checkpoint(functools.partial(self.part, k=k), x, use_reentrant=False)
            x = checkpoint(self.part, x, 2, use_reentrant=False)
            return checkpoint(lambda y: self.part(y, k), x, use_reentrant=False)

    net = Net()
    f = t.compile(net)
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))
    f.hit(T(2, 4, rg=True))


@program()
def test_one_inside_of_another_and_in_a_loop(t):
    layers = nn.ModuleList([block(), block(), block()])

    def outer(x):
        return checkpoint(layers[1], x.sin(), use_reentrant=False).cos()

    def fn(x):
        sizes = []
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False)
            sizes.append(x.shape[0])
        return checkpoint(outer, x, use_reentrant=False), sizes

    f = t.compile(fn)
    train(t, f, layers, T(2, 4, rg=True), T(2, 4, s=1, rg=True))
    f.hit(T(2, 4, rg=True))


@program()
def test_autocast_around_and_no_grad_inside(t):
    net = block()

    def body(x):
        with torch.no_grad():
            scale = x.abs().max()
        return net(x) / scale

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return checkpoint(body, x, use_reentrant=False)

    f = t.compile(fn)
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))


@program()
def test_sequential(t):
    net = nn.Sequential(block(), nn.Tanh(), block(), nn.Tanh())
    f = t.compile(lambda x: checkpoint_sequential(net, 2, x, use_reentrant=False))
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))


@program(one_graph=False)
def test_batch_norm(t):
    net = nn.Sequential(block(), nn.BatchNorm1d(4))
    t.watch(lambda: dict(net[1].named_buffers()))
    f = t.compile(lambda x: checkpoint(net, x, use_reentrant=False) * 2)
    train(t, f, net, T(3, 4, rg=True), T(3, 4, s=1, rg=True))
    net.eval()
    train(t, f, net, T(3, 4, rg=True))


WRITES = {
    "counter": "box['n'] += 1",
    "a list": "seen.append(float(len(seen)))",
    "print": "print('body')",
    "attribute": "net.calls = getattr(net, 'calls', 0) + 1",
    "buffer": "state.add_(1)",
    "a view of a buffer": "state[0].add_(1)",
    "an argument": "x.detach().mul_(2)",
    "made before, a list": "made.append(1)",
    "made before, in a dict": "held['it'].append(2)",
    "made before, an object": "thing.n = 5",
    "made before, a variable": "counted()",
    "made before, an iterator": "next(numbers)",
    "made before, bytes": "data.append(7)",
    "Python's random numbers": "random.random()",
}


def add_writing(what, line):
    source = f"""
def script(t):
    net, box, seen, state = block(), {{"n": 0}}, [], torch.zeros(4)
    t.watch(lambda: (box, seen, state, vars(net).get("calls")))

    class Thing:
        n = 0

    def fn(x):
        made, held, thing, count = [], {{"it": [1]}}, Thing(), 0
        numbers, data = iter([1, 2, 3, 4, 5, 6]), bytearray(b"a")

        def counted():
            nonlocal count
            count += 1

        def body(x):
            {line}
            return net(x) * state.sum().add(1)

        y = checkpoint(body, x * 1, use_reentrant=False)
        return y, made, held, thing, lambda: count, numbers, data

    f = t.compile(fn)
    for _ in range(2):
        x = T(2, 4, rg=True)
        y, made, held, thing, count, numbers, data = f(x)
        try:
            y.sum().backward()
        except RuntimeError as error:
            t.note(str(error)[:40])
        t.note((x.grad, made, held, thing.n, count(), next(numbers), data, box, seen, state))
"""
    import random

    names = {"block": block, "torch": torch, "T": T, "checkpoint": checkpoint, "random": random}
    exec(compile(source, f"<{what}>", "exec"), names)  # noqa: S102 - the same program with another line
    script = names["script"]
    script.__module__, script.__name__ = (
        __name__,
        "test_writing_" + what.replace(" ", "_").replace(",", "").replace("'", ""),
    )
    globals()[script.__name__] = program(one_graph=False)(script)


for one in WRITES.items():
    add_writing(*one)


@program()
def test_writes_to_what_the_body_makes(t):
    net = block()

    def body(x):
        seen, y = [], x * 2
        seen.append(y)
        y[0] = 1
        y.add_(x)
        return net(seen[0]), seen

    f = t.compile(lambda x: checkpoint(body, x, use_reentrant=False))
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))


@program()
def test_writes_where_nothing_wants_a_gradient(t):
    box, state = {"n": 0}, torch.zeros(4)

    def body(x):
        box["n"] += 1
        state.add_(1)
        return x * 2

    f = t.compile(lambda x: checkpoint(body, x, use_reentrant=False))
    t.watch(lambda: (box, state))
    f(T(4))
    f(T(4))
    with torch.no_grad():
        f(T(4, rg=True))


@program()
def test_writes_around_it(t):
    net, log, box = block(), [], {"n": 0}

    def fn(x):
        box["n"] += 1
        log.append(x.shape)
        y = checkpoint(net, x, use_reentrant=False)
        box["n"] += 1
        log.append(y.shape)
        net.last = len(log)
        return checkpoint(net, y, use_reentrant=False)

    f = t.compile(fn)
    t.watch(lambda: (log, box))
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))


@program(one_graph=False)
def test_errors(t):
    def body(x, n):
        if n:
            raise ValueError("in the body")
        return x * 2

    def fn(x, n):
        try:
            return checkpoint(body, x, n, use_reentrant=False)
        except ValueError as error:
            return str(error)

    f, g = t.compile(fn), t.compile(lambda x, n: checkpoint(body, x, n, use_reentrant=False))
    for call in (f, g):
        call(T(2, rg=True), 0)
        call(T(2, rg=True), 1)
        call(T(2, rg=True), 0)
    h = t.compile(lambda x: checkpoint(body, x, 0, use_reentrant=False, determinism_check="x"))
    h(T(2, rg=True))


@program(one_graph=False)
def test_breaks_inside(t):
    net = block()

    def body(x):
        y = net(x)
        alternator.graph_break()
        return y.sin()

    def fn(x):
        x = x.cos()
        x = checkpoint(body, x, use_reentrant=False)
        return x * 2

    f = t.compile(fn)
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))
    with torch.no_grad():
        f(T(2, 4))


@program(one_graph=False)
def test_breaks_between(t):
    net = block()

    def fn(x):
        x = checkpoint(net, x, use_reentrant=False)
        alternator.graph_break()
        return checkpoint(net, x, use_reentrant=False) * 2

    f = t.compile(fn)
    train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))


@program()
def test_reentrant(t):
    layers = nn.ModuleList([block(0.5), block(), block()])

    def part(layer, x, n):
        y = layer(x)
        return y, None, (x > 0).sum(), n

    def fn(x):
        for layer in layers[:2]:
            x, nothing, count, n = checkpoint(part, layer, x, 2, use_reentrant=True)
        return checkpoint_sequential([*layers[2], nn.Tanh()], 2, x, use_reentrant=True) * n, nothing, count

    f = t.compile(fn)
    train(t, f, layers, T(2, 4, rg=True), T(2, 4, s=1, rg=True))
    f.hit(T(2, 4, rg=True))
    t.note(torch.rand(2))


REENTRANT = {
    "asks": lambda x, w, y: (x * w).relu() if torch.is_grad_enabled() else x,
    "asks a tensor": lambda x, w, y: x * w if (x * 1).requires_grad else x,
    "history": lambda x, w, y: x * y,
    "gives its argument": lambda x, w, y: x,
    "gives a view": lambda x, w, y: x[0],
    "gives a list": lambda x, w, y: (x * w, [x * w]),
    "gives one twice": lambda x, w, y: (x * w,) * 2,
    "gives what learns nothing": lambda x, w, y: (x * w, w.detach() * 2),
}


@program(one_graph=False)
def test_reentrant_and_what_it_can_tell(t):
    w = T(3, rg=True)
    for body in REENTRANT.values():

        def fn(x, body=body):
            y = w.sin()
            z = checkpoint(lambda x: body(x, w, y), x * 2, use_reentrant=True)
            return [one.requires_grad for one in (z if isinstance(z, tuple) else (z,))[:1]], z

        f = t.compile(fn)
        for _ in range(2):
            x, w.grad = T(3, rg=True), None
            _, z = f(x)
            (z if isinstance(z, torch.Tensor) else z[0]).sum().backward()
            t.note((x.grad, w.grad))


@program(one_graph=False)
def test_reentrant_without_gradients(t):
    net = block()
    f = t.compile(lambda x: checkpoint(net, x, use_reentrant=True) * 2)
    f(T(2, 4))
    with torch.no_grad():
        f(T(2, 4, rg=True))
        f(T(2, 4))
    g = t.compile(lambda x: checkpoint(lambda x, n=1: x * n, x, n=2, use_reentrant=True))
    g(T(2, rg=True))


@program(one_graph=False)
def test_other_ways_to_ask_for_it(t):
    net = block()
    for options in (
        {},
        {"use_reentrant": False, "context_fn": lambda: noop_context_fn()},
        {"use_reentrant": False, "debug": True},
    ):
        f = t.compile(lambda x, options=options: checkpoint(net, x, **options) * 2)
        train(t, f, net, T(2, 4, rg=True), T(2, 4, s=1, rg=True))
        f(T(2, 4))
    f = t.compile(lambda x: checkpoint(net, x, use_reentrant=False))
    f(T(2, 4, rg=True))
    with set_checkpoint_debug_enabled(False):
        f(T(2, 4, rg=True))
    f.hit(T(2, 4, rg=True))


@in_child
def test_nodes_are_marked(front):
    """AOTAutograd's partitioner goes by these marks."""
    marks = []

    def backend(module, inputs):
        for node in module.graph.nodes:
            policy = node.meta.get("recompute")
            marks.append((node.op.split("_")[0], policy and policy.name, node.meta.get("ac_graph_id")))
        return module.forward

    def body(x):
        return x.sin().cos()

    def fn(x):
        y = checkpoint(body, x * 2, use_reentrant=False)
        return checkpoint(body, y + 1, use_reentrant=False)

    front.compile(fn, backend, fullgraph=True)(T(3, rg=True))
    wanted = "PREFER_RECOMPUTE"
    assert marks == [
        ("placeholder", None, None), ("call", None, None), ("call", wanted, 1), ("call", wanted, 1),
        ("call", None, None), ("call", wanted, 2), ("call", wanted, 2), ("output", None, None),
    ]  # fmt: skip


@in_child
def test_aot_autograd_computes_them_again(front):
    """What the forward pass keeps: its inputs, not what the checkpointed parts made of them."""
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    kept = []

    def forward(module, inputs):
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        kept.append(len(output.args[0]))
        return make_boxed_func(module.forward)

    def body(x):
        for _ in range(4):
            x = x.sin().exp()
        return x

    def part(x):
        return body(x)

    def with_checkpoint(x):
        return checkpoint(part, x, use_reentrant=False).sum()

    def without(x):
        return part(x).sum()

    backend = aot_autograd(
        fw_compiler=forward,
        bw_compiler=lambda module, inputs: make_boxed_func(module.forward),
        partition_fn=functools.partial(min_cut_rematerialization_partition),
    )
    results = []
    with torch._functorch.config.patch(activation_memory_budget=1.0, ban_recompute_used_far_apart=True):
        for fn in (with_checkpoint, without):
            x = T(8, rg=True)
            front.compile(fn, backend, fullgraph=True)(x).backward()
            results.append(x.grad)
    assert torch.equal(*results)
    assert kept[0] == 2, kept
    assert kept[1] > 2, kept

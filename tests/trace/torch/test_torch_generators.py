"""Seeds, states and generators: nodes of the graph that run in their place, with every backend."""

from __future__ import annotations

import functools

import torch
import torch._dynamo  # what programs in several segments need; loaded once, before they fork
import torch.nn.functional as F
from harness import T, program
from torch import nn
from trace_support import in_child

import alternator


@program()
def test_seed(t):
    def fn(x):
        torch.manual_seed(3)
        return x + torch.rand(3)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))
    t.note(torch.rand(2))


@program()
def test_seed_between_two_draws(t):
    def fn(x):
        a = x + torch.rand(3)
        torch.manual_seed(3)
        b = a * torch.rand(3)
        return a, b

    f = t.compile(fn)
    for s in range(3):
        f(T(3, s=s, rg=True))[1].sum().backward()
    f.hit(T(3, rg=True))


@program()
def test_seed_last(t):
    def fn(x):
        y = x + torch.rand(3)
        torch.random.manual_seed(5)
        return y

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))
    t.note(torch.rand(2))


@program(graphs=2)
def test_seed_is_guarded(t):
    def fn(x, seed):
        torch.manual_seed(seed)
        return x * torch.rand(3)

    f = t.compile(fn)
    f(T(3), 1)
    f.hit(T(3), 1)
    f.miss(T(3), 2)
    f.hit(T(3), 2)


@program()
def test_what_the_seed_returns(t):
    def fn(x):
        g = torch.manual_seed(1)
        return x + torch.rand(3, generator=g), g is torch.default_generator, g.initial_seed(), torch.initial_seed()

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))


@program(one_graph=False)
def test_a_seed_that_is_none(t):
    def fn(x, seed):
        try:
            torch.manual_seed(seed)
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            return type(error).__name__
        return x * torch.rand(3)

    f = t.compile(fn)
    for seed in (2**64, 2**64 - 1, -1, -(2**63), -(2**63) - 1, 2.5, True, "a"):
        f(T(3), seed)


@program()
def test_states(t):
    def fn(x):
        state = torch.get_rng_state()
        a = torch.rand(3)
        torch.set_rng_state(state)
        b = torch.rand(3)
        return a - b + x, state.shape, state.dtype

    f = t.compile(fn)
    f(T(3))
    torch.manual_seed(9)
    f.hit(T(3))
    t.note(torch.rand(2))


@program()
def test_a_state_that_leaves(t):
    kept = []

    def fn(x, state):
        kept.append(torch.get_rng_state())
        torch.set_rng_state(state)
        y = x + torch.rand(3)
        return y, torch.random.get_rng_state()

    f = t.compile(fn)
    t.watch(lambda: kept)
    state = torch.get_rng_state()
    state = f(T(3), state)[1]
    f(T(3), state)


@program(one_graph=False)
def test_a_state_that_is_none(t):
    def fn(x, state):
        try:
            torch.set_rng_state(state)
        except (TypeError, RuntimeError) as error:
            return str(error)
        return x + torch.rand(3)

    f = t.compile(fn)
    f(T(3), torch.zeros(3, dtype=torch.uint8))
    f(T(3), torch.get_rng_state().float())
    f(T(3), torch.get_rng_state())


@program()
def test_fork(t):
    def fn(x):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            a = torch.rand(3)
        return x + a, torch.rand(3)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))
    t.note(torch.rand(2))


@program()
def test_fork_asks_a_cache_that_is_empty(t):
    def fn(x):
        with torch.random.fork_rng():
            return x + 1

    f = t.compile(fn)
    torch.get_device_module.cache_clear()
    f(T(3))
    f.hit(T(3))
    torch.get_device_module.cache_clear()
    f(T(3))


@program()
def test_fork_of_no_devices_and_an_error(t):
    def fn(x):
        try:
            with torch.random.fork_rng(devices=[], enabled=True):
                y = x + torch.rand(3)
                raise KeyError("a")
        except KeyError:
            return y, torch.rand(3)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3))


@program()
def test_initial_seed(t):
    def fn(x):
        return x + torch.initial_seed() % 7

    f = t.compile(fn)
    torch.manual_seed(4)
    f(T(3))
    f.hit(T(3))
    torch.manual_seed(5)
    f.miss(T(3))
    torch.rand(3)
    f.hit(T(3))


@program(one_graph=False)
def test_a_seed_from_nowhere(t):
    def fn(x):
        with torch.random.fork_rng():
            seed = torch.seed()
            return x + 1, seed == torch.initial_seed()

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program()
def test_generator_made_inside(t):
    def fn(x):
        g = torch.Generator()
        first = g.initial_seed()
        g.manual_seed(7)
        a = torch.rand(3, generator=g)
        b = torch.randn(3, generator=g, dtype=torch.float64)
        return x + a, b, torch.randint(0, 9, (2,), generator=g), torch.randperm(5, generator=g), first, g.initial_seed()

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))
    t.note(torch.rand(2))


@program()
def test_generator_that_leaves(t):
    def fn(x, device):
        g = torch.Generator(device=device).manual_seed(2)
        unused = torch.Generator("cpu")
        return x * torch.rand(3, generator=g), g, [g, unused.device], (unused, g)

    f = t.compile(fn)
    for _ in range(2):
        _, g, [same, _], (unused, _) = f(T(3), torch.device("cpu"))
        t.note((g is same, g is unused, torch.rand(3, generator=g), torch.rand(3, generator=unused)))
    f.hit(T(3), torch.device("cpu"))


@program()
def test_generator_passed_in(t):
    def fn(x, g):
        noise = torch.randn(x.shape, generator=g)
        return (
            torch.bernoulli(torch.full((4,), 0.5), generator=g),
            x + noise,
            torch.multinomial(x.abs(), 2, generator=g),
        )

    f = t.compile(fn)
    mine, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    t.watch(lambda: (mine.get_state(), other.get_state(), mine.initial_seed()))
    f(T(3, rg=True), mine)
    f.hit(T(3, rg=True), mine)
    f.hit(T(3, rg=True), other)
    f(T(3, rg=True), None)
    f(T(3, rg=True), torch.default_generator)
    f.hit(T(3, rg=True), torch.default_generator)


@program()
def test_two_generators_that_may_be_one(t):
    def fn(x, a, b):
        a.manual_seed(1)
        b.manual_seed(2)
        return x + torch.rand(3, generator=a) - torch.rand(3, generator=b), b.initial_seed(), a.device

    f = t.compile(fn)
    one, two = torch.Generator(), torch.Generator()
    t.watch(lambda: (one.get_state(), two.get_state()))
    f(T(3), one, two)
    f.hit(T(3), two, one)
    f(T(3), one, one)
    f(T(3), two, two)
    f(T(3), one, two)


@program(one_graph=False)
def test_a_seed_that_another_generator_may_have_changed(t):
    def fn(x, a, b):
        a.manual_seed(1)
        b.manual_seed(2)
        return x + a.initial_seed()

    f = t.compile(fn)
    one, two = torch.Generator(), torch.Generator()
    f(T(3), one, two)
    f(T(3), one, one)


class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(11)
        self.weight = nn.Parameter(T(3))

    def forward(self, x):
        if self.training:
            x = x + torch.empty_like(x).normal_(generator=self.generator)
        return x * self.weight


@program()
def test_generator_of_a_module(t):
    net = Sampler()
    f = t.compile(net)
    t.watch(lambda: net.generator.get_state())
    for s in range(3):
        f(T(3, s=s)).sum().backward()
    t.note(net.weight.grad)
    net.generator = torch.Generator().manual_seed(5)
    f.hit(T(3))
    net.eval()
    f(T(3))


@program()
def test_states_of_a_generator(t):
    def fn(x, g):
        state = g.get_state()
        a = torch.rand(3, generator=g)
        g.set_state(state)
        return x + a - torch.rand(3, generator=g), state

    f = t.compile(fn)
    g = torch.Generator().manual_seed(3)
    t.watch(lambda: g.get_state())
    f(T(3), g)
    f.hit(T(3), g)


@program()
def test_written_by_a_generator(t):
    def fn(x, y, g):
        x.uniform_(generator=g)
        z = x.view(-1)
        y = y * 2
        torch.nn.init.normal_(y, generator=g)
        z.add_(1)
        return y

    f = t.compile(fn)
    g = torch.Generator()
    f(T(2, 2), T(3), g)
    f.hit(T(2, 2), T(3), g)


@program()
def test_dropout_between_seeds(t):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3))

    def fn(x):
        torch.manual_seed(0)
        y = net(x)
        torch.manual_seed(0)
        return y, net(x), F.dropout(x, 0.3)

    f = t.compile(fn)
    for s in range(2):
        x = T(4, 3, s=s, rg=True)
        y, z, w = f(x)
        (y.sum() + z.square().sum() + w.sum()).backward()
        t.note((x.grad, [p.grad for p in net.parameters()]))


@program(one_graph=False)
def test_a_break_between(t):
    def fn(x, g):
        mine = torch.Generator().manual_seed(1)
        a = torch.rand(3, generator=mine)
        torch.manual_seed(2)
        torch._dynamo.graph_break()
        return x + a + torch.rand(3, generator=mine) + torch.rand(3) + torch.rand(3, generator=g)

    f = t.compile(fn)
    g = torch.Generator()
    t.watch(lambda: g.get_state())
    f(T(3), g)
    f(T(3), g)


@program(one_graph=False)
def test_inside_of_other_things(t):
    from torch.utils.checkpoint import checkpoint

    def seeded(x):
        torch.manual_seed(1)
        return x * torch.rand(3)

    def fn(x, g, which):
        if which == 0:
            return torch.vmap(lambda y: y + torch.rand(3, generator=g), randomness="different")(x[None])
        if which == 1:
            return checkpoint(seeded, x, use_reentrant=False)
        if which == 2:
            return checkpoint(lambda y: y * torch.rand(3, generator=g), x, use_reentrant=False)
        return list(map(functools.partial(torch.rand, generator=g), [2, 3]))

    f = t.compile(fn)
    g = torch.Generator()
    t.watch(lambda: g.get_state())
    for which in range(4):
        for _ in range(2):
            x = T(3, rg=True)
            made = f(x, g, which)
            if which in (1, 2):
                made.sum().backward()
                t.note(x.grad)


@program()
def test_raising_behind_a_seed(t):
    def fn(x, k):
        torch.manual_seed(1)
        y = x + torch.rand(3)
        if k:
            raise ValueError("k")
        return y

    f = t.compile(fn)
    f(T(3), False)
    f(T(3), True)
    t.note(torch.rand(2))


def segments(backend):
    """A function and its compiled twin, over several calls: forward, backward, written inputs, random numbers."""

    def fn(x, y, g):
        a = (x * 2).relu()
        torch.manual_seed(1)
        b = a.sin() + torch.rand(3, generator=g)
        y.add_(b.detach())
        with torch.no_grad():
            c = b * 3
            state = torch.get_rng_state()
        view = y[:2]
        torch.set_rng_state(state)
        y.mul_(2)
        return b.cos() * y, c + 1, view + 1, torch.rand(3, generator=torch.default_generator), view

    def run(call, seed):
        torch.manual_seed(seed)
        g = torch.Generator().manual_seed(5)
        seen = []
        for s in range(3):
            x, y = T(3, s=s, rg=True), T(3, s=s + 1)
            made = call(x, y, g)
            made[0].sum().backward()
            seen += [*made, x.grad, y, torch.rand(2), torch.rand(2, generator=g), made[1].requires_grad]
            made[4].add_(1)
            seen.append(y.clone())
        return seen

    wanted, got = run(fn, 0), run(alternator.compile(fn, backend=backend, fullgraph=True), 0)
    for a, b in zip(wanted, got, strict=True):
        torch.testing.assert_close(a, b) if isinstance(a, torch.Tensor) else None
        assert isinstance(a, torch.Tensor) or a == b


@in_child
def test_with_aot_autograd(front):
    segments("aot_eager")


@in_child
def test_with_inductor(front):
    segments("inductor")


@in_child
def test_with_a_users_aot_autograd(front):
    from torch._dynamo.backends.common import aot_autograd

    segments(aot_autograd(fw_compiler=lambda gm, inputs: gm.forward))


@in_child
def test_seeds_reach_a_backend_that_compiles(front):
    def fn(x):
        torch.manual_seed(3)
        y = F.dropout(x, 0.5) + torch.rand(64)
        torch.manual_seed(4)
        return y, torch.rand(64)

    for backend in ("eager", "aot_eager", "inductor"):
        alternator.reset()
        call = alternator.compile(fn, backend=backend, fullgraph=True)
        first, second = call(torch.ones(64)), call(torch.ones(64))
        for a, b in zip(first, second, strict=True):
            assert torch.equal(a, b)
        after = torch.rand(3)
        call(torch.ones(64))
        assert torch.equal(after, torch.rand(3))


@in_child
def test_a_segment_that_fails(front):
    def fn(x, i):
        with torch.no_grad():
            torch.manual_seed(1)
            y = x[i] + 1
        return y

    call = alternator.compile(fn, backend="aot_eager", fullgraph=True)
    call(torch.ones(3), torch.tensor([1]))
    try:
        call(torch.ones(3), torch.tensor([7]))
    except (IndexError, RuntimeError):
        pass
    else:
        raise AssertionError("no error")
    assert torch.is_grad_enabled()


@in_child
def test_modes_around_generators(front):
    """A segment is compiled in the state of the thread that it runs in."""

    def fn(x, g):
        with torch.no_grad():
            a = x * 2
            torch.manual_seed(1)
            b = a + torch.rand(3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            m = torch.mm(x[None], x[:, None])
            noise = torch.rand(1, 1, generator=g)
            m = torch.mm(m, m) + noise
        c = torch.rand(2, generator=g) * 2
        return a, b, m, c, x * 3

    def run(call):
        seen = []
        for _ in range(2):
            x = T(3, rg=True)
            made = call(x, torch.Generator())
            (made[2].sum() + made[4].sum()).backward()
            seen += [*made, x.grad, torch.rand(2)]
            assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        return seen

    wanted = run(fn)
    for backend in ("eager", "aot_eager", lambda module, inputs: module.forward):
        alternator.reset()
        for a, b in zip(wanted, run(alternator.compile(fn, backend=backend, fullgraph=True)), strict=True):
            assert torch.equal(a, b) and a.dtype == b.dtype and a.requires_grad == b.requires_grad


@in_child
def test_exported(front):
    def fn(x):
        torch.manual_seed(3)
        return x + torch.rand(3)

    module = alternator.export(fn, T(3)).graph_module
    assert torch.equal(module(T(3, s=1)), fn(T(3, s=1)))
    cases = [(lambda x: alternator.export(fn, x, aten_graph=True))]
    g = torch.Generator()
    cases.append(lambda x: alternator.export(lambda y: y + torch.rand(3, generator=g), x))
    for case in cases:
        try:
            case(T(3))
        except alternator.exc.Unsupported:
            continue
        raise AssertionError("exported")


@in_child
def test_seed_of_the_system(front):
    """Another number in every run; what it seeds is what the number says."""

    def of_all(x):
        seed = torch.seed()
        a = torch.rand(3)
        torch.manual_seed(seed)
        return x + 1, a, torch.rand(3), int(seed % 1000)

    def of_one(x):
        g = torch.Generator()
        seed = g.seed()
        return x + 1, torch.rand(3, generator=g), torch.rand(3, generator=g.manual_seed(seed)), seed

    def unused(x):
        torch.seed()
        return x + 1

    for backend in ("eager", "aot_eager", lambda module, inputs: module.forward):
        for fn in (of_all, of_one):
            alternator.reset()
            call = alternator.compile(fn, backend=backend, fullgraph=True)
            seen = [call(T(3)) for _ in range(3)]
            assert all(torch.equal(a, b) and torch.equal(y, T(3) + 1) for y, a, b, _ in seen)
            assert len({tuple(a.tolist()) for _, a, _, _ in seen}) == 3
            assert all(type(number) is int for *_, number in seen)
            assert alternator.counters()["graphs"] == 1
        call = alternator.compile(unused, backend=backend, fullgraph=True)
        drawn = set()
        for _ in range(3):
            torch.manual_seed(0)
            call(T(3))
            drawn.add(torch.initial_seed())
        assert len(drawn) == 3


@in_child
def test_backends_that_leave_the_graph_as_it_is(front):
    """They get the whole of it; the others, once they have shown it, what lies between."""

    def fn(x):
        state = torch.get_rng_state()
        a = x + torch.rand(3)
        torch.set_rng_state(state)
        return a * torch.rand(3)

    def operations(module):
        return sum(node.op.startswith("call") for node in module.graph.nodes)

    def as_it_is(module, inputs):
        seen.append(operations(module))
        return module.forward

    def wraps(module, inputs):
        seen.append(operations(module))
        return lambda *given: module.forward(*given)

    def replaces(module, inputs):
        seen.append(operations(module))
        for node in list(module.graph.nodes):
            if node.op == "call_function" and node.target is torch.random.set_rng_state:
                module.graph.erase_node(node)
        module.recompile()
        return module.forward

    def fails(module, inputs):
        seen.append(operations(module))
        if len(seen) == 1:
            raise ValueError("such a node")
        return module.forward

    backends = {as_it_is: [6, 6], wraps: [6, 2, 2, 2, 2], replaces: [6, 2, 2, 2, 2], fails: [6, 2, 2, 2, 2]}
    for backend, counts in backends.items():
        alternator.reset()
        seen = []
        call = alternator.compile(fn, backend=backend)
        for size in (3, 3, 1, 3):
            torch.manual_seed(size)
            ours = call(T(size)), torch.rand(1)
            torch.manual_seed(size)
            theirs = fn(T(size)), torch.rand(1)
            assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
        assert seen == counts, (backend.__name__, seen)

"""functorch's transforms inside of a compiled function: their own code is traced, what it does to tensors are nodes."""

from __future__ import annotations

import torch
import torch._decomp.decompositions_for_jvp  # torch loads it at the first jvp, with a warning
from harness import T, program
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from trace_support import in_child

import alternator

SCALE = T(4, s=3)


def linear(count: int, to: int) -> torch.nn.Linear:
    layer = torch.nn.Linear(count, to)
    with torch.no_grad():
        layer.weight.copy_(T(to, count))
        layer.bias.copy_(T(to))
    return layer


# ------------------------------------------------------------------------------------------------------------ vmap


@program(graphs=1)
def test_vmap(t):
    def fn(x):
        return vmap(lambda row: row.sin().sum())(x) + 1

    f = t.compile(fn)
    f(T(3, 4))
    f.hit(T(3, 4, s=1))


@program()
def test_other_sizes_and_dtypes(t):
    f = t.compile(lambda x: torch.vmap(lambda row: row * row.shape[0])(x))
    f(T(3, 4))
    f(T(2, 4))
    f(T(3, 4, dtype=torch.int64))
    f.hit(T(3, 4, s=1))


@program(graphs=1)
def test_dims(t):
    def fn(x, y, z):
        a = vmap(torch.dot, in_dims=(0, 1))(x, y)
        b = vmap(lambda u, v: u * v, in_dims=(0, None), out_dims=1)(x, z)
        c = vmap(lambda d, k: (d["a"] + k, {"s": d["b"].sum()}), in_dims=({"a": 0, "b": None}, None), out_dims=(-1, 0))(
            {"a": x, "b": z}, 2.5
        )
        return a, b, c

    f = t.compile(fn)
    f(T(3, 4), T(4, 3), T(4))
    f.hit(T(3, 4, s=1), T(4, 3), T(4, s=2))


@program(graphs=1)
def test_nested(t):
    def fn(x, y):
        return vmap(vmap(lambda a, b: (a * b).sum(), in_dims=(0, None)), in_dims=(None, 0))(x, y)

    f = t.compile(fn)
    f(T(3, 4), T(2, 4))
    f.hit(T(3, 4), T(2, 4, s=1))


@program(graphs=1)
def test_named_results(t):
    def fn(x):
        return vmap(lambda row: row.max(0))(x).values + vmap(torch.sort)(x).values[:, 0]

    f = t.compile(fn)
    f(T(3, 4))
    f.hit(T(3, 4, s=1))


@program(graphs=1)
def test_chunks(t):
    def fn(x):
        return vmap(lambda row: row.cos(), chunk_size=2)(x)

    f = t.compile(fn)
    f(T(5, 2))
    f.hit(T(5, 2, s=1))


@program(graphs=1)
def test_random_numbers_that_differ(t):
    f = t.compile(lambda x: vmap(lambda row: row + torch.rand(2), randomness="different")(x))
    f(T(3, 2))
    f.hit(T(3, 2))


@program(graphs=1)
def test_random_numbers_that_are_the_same(t):
    f = t.compile(lambda x: vmap(lambda row: torch.nn.functional.dropout(row, 0.5), randomness="same")(x))
    f(T(3, 8))
    f.hit(T(3, 8))


@program(one_graph=False)
def test_random_numbers_that_are_an_error(t):
    f = t.compile(lambda x: vmap(lambda row: row + torch.rand(2))(x))
    f(T(3, 2))
    f(T(3, 2))


@program(graphs=1)
def test_closures_and_modules(t):
    layer = linear(4, 2)
    weight = T(4)

    def fn(x):
        def one(row):
            return layer(row * weight) + SCALE.sum()

        return vmap(one)(x)

    f = t.compile(fn)
    f(T(3, 4))
    with torch.no_grad():
        layer.weight.mul_(2)
        weight.add_(1)
    f.hit(T(3, 4))


@program(graphs=1)
def test_gradients_through_vmap(t):
    layer = linear(4, 2)

    def fn(x):
        return vmap(lambda row: layer(row).tanh().sum())(x)

    f = t.compile(fn)
    x = T(3, 4, rg=True)
    f(x).sum().backward()
    t.note((x.grad, layer.weight.grad, layer.bias.grad))
    y = T(3, 4, s=1, rg=True)
    f.hit(y).sum().backward()
    t.note((y.grad, layer.weight.grad))


@program(graphs=1)
def test_a_mask_as_transformers_makes_it(t):
    def causal(b, h, q, k):
        return k <= q

    def padding(mask):
        def inner(b, h, q, k):
            return mask[b, k]

        return inner

    def both(*functions):
        def inner(b, h, q, k):
            result = q.new_ones((), dtype=torch.bool)
            for one in functions:
                result = result & one(b, h, q, k)
            return result

        return inner

    def fn(mask, length):
        function = both(causal, padding(mask))
        for dims in [(None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)]:
            function = vmap(function, in_dims=dims, out_dims=0)
        positions = torch.arange(length)
        return function(torch.arange(mask.shape[0]), torch.arange(1), positions, positions)

    f = t.compile(fn)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    f(mask, 3)
    f.hit(~mask, 3)


@program(graphs=1)
def test_a_write_to_what_is_mapped(t):
    def fn(x):
        def one(row):
            row.add_(1)
            torch.nn.functional.relu(row, inplace=True)
            return row * 2

        return vmap(one)(x)

    f = t.compile(fn)
    f(T(3, 4))
    f.hit(T(3, 4, s=1))


@program(graphs=1)
def test_a_write_whose_result_nobody_uses(t):
    def fn(x):
        vmap(lambda row: torch.nn.functional.relu(row, inplace=True))(x)
        return x + 1

    f = t.compile(fn)
    f(T(3, 4))
    f.hit(T(3, 4, s=1))


@program(graphs=1)
def test_a_result_that_nobody_uses(t):
    def fn(x):
        vmap(torch.sin)(x)
        return x + 1

    f = t.compile(fn)
    f(T(3, 4))
    f.hit(T(3, 4))


@program()
def test_constants_and_sizes_inside(t):
    def fn(x):
        def one(row):
            c = torch.tensor([1.0, 2.0])
            d = torch.zeros(2) + torch.arange(2)
            return row * c + d + row.size(0) + torch.tensor(3).item()

        return vmap(one)(x), grad(lambda y: one(y).sum())(x[0])

    f = t.compile(fn)
    f(T(3, 2))
    f.hit(T(3, 2, s=1))


@program()
def test_python_effects_inside(t):
    seen = []

    def fn(x):
        def one(row):
            seen.append(tuple(row.shape))
            return row + len(seen)

        return vmap(one)(x)

    f = t.compile(fn)
    t.watch(lambda: seen)
    f(T(3, 2))
    f(T(3, 2))


@program()
def test_no_grad_and_autocast_inside(t):
    def fn(x, w):
        def one(row):
            with torch.no_grad():
                a = row * 2
            with torch.autocast("cpu", dtype=torch.bfloat16):
                b = (w @ row).float()
            return a + b

        return vmap(one)(x)

    f = t.compile(fn)
    f(T(3, 2), T(2, 2))
    x = T(3, 2, rg=True)
    y = f(x, T(2, 2))
    y.sum().backward()
    t.note(x.grad)


# ------------------------------------------------------------------------------------------------- breaks and errors


@program(one_graph=False)
def test_a_break_inside_moves_out(t):
    def fn(x):
        y = x + 1

        def one(row):
            a = row.sin()
            alternator.graph_break()
            return a * 2

        z = vmap(one)(y)
        return z.cos() + y

    f = t.compile(fn)
    f(T(3, 4))
    f(T(3, 4, s=1))


@program(one_graph=False)
def test_a_break_inside_of_nested_transforms(t):
    def fn(x):
        def inner(v):
            alternator.graph_break()
            return (v * v).sum()

        return vmap(grad(inner))(x * 2) + vmap(vmap(torch.sin))(x)

    f = t.compile(fn)
    f(T(3, 4))
    f(T(3, 4, s=1))


@program(one_graph=False)
def test_breaks_before_and_behind(t):
    def fn(x):
        a = x * 2
        alternator.graph_break()
        b = vmap(torch.cumsum, in_dims=(0, None))(a, 0)
        alternator.graph_break()
        return b + 1

    f = t.compile(fn)
    f(T(3, 4))
    f(T(3, 4, s=1))


@program(one_graph=False)
def test_data_decides_inside_of_grad(t):
    def fn(x):
        def loss(y):
            if y.sum() > 0:
                return (y * 2).sum()
            return (y * 3).sum()

        return grad(loss)(x) + 1

    f = t.compile(fn)
    f(T(3))
    f(-T(3))


@program()
def test_an_exception_of_the_function(t):
    def fn(x, stop):
        def one(row):
            if stop:
                raise ValueError("stopped")
            return row * 2

        try:
            return vmap(one)(x)
        except ValueError as error:
            return str(error), x + torch._C._functorch.maybe_get_level(x)

    f = t.compile(fn)
    f(T(3, 2), False)
    f(T(3, 2), True)
    f.hit(T(3, 2, s=1), True)


@program(one_graph=False)
def test_an_exception_that_leaves(t):
    def fn(x, stop):
        def one(row):
            if stop:
                raise ValueError("stopped")
            return row * 2

        return vmap(one)(x) + grad(lambda y: one(y).sum())(x)

    f = t.compile(fn)
    f(T(3, 2), True)
    f(T(3, 2), False)
    f(T(3, 2), True)


@program(one_graph=False)
def test_errors_of_torch(t):
    def mapped(x, y):
        return vmap(lambda a, b: a @ b)(x, y)

    f = t.compile(mapped)
    f(T(3, 2), T(3, 4))
    f(T(3, 2), T(2, 2))
    f(T(3, 2), 3)
    f(T(3, 2), T(3, 2))
    g = t.compile(lambda x: grad(lambda y: y * 2)(x))
    g(T(3))


@in_child
def test_an_index_that_is_out_of_range(front):
    """Only the run knows it: the graph fails inside of the transform."""

    def fn(x, i):
        with torch.no_grad():
            return vmap(lambda row, k: row.index_select(0, k.reshape(1)))(x, i) + 1

    for backend in ("eager", lambda module, inputs: module.forward, "aot_eager"):
        f = alternator.compile(fn, backend=backend, fullgraph=True)
        for index in ([0, 1, 0], [0, 5, 0], [1, 1, 0]):
            try:
                assert torch.equal(f(T(3, 2), torch.tensor(index)), fn(T(3, 2), torch.tensor(index)))
            except (IndexError, RuntimeError):
                assert index == [0, 5, 0]
            assert torch._C._functorch.maybe_current_level() is None and torch.is_grad_enabled()


@in_child
def test_a_tensor_that_leaves_its_transform(front):
    kept = []

    def fn(x):
        def one(row):
            kept.append(row * 2)
            return row + 1

        return vmap(one)(x)

    f = alternator.compile(fn, backend="eager")
    for count in (1, 2):
        assert torch.equal(f(T(3, 2)), T(3, 2) + 1)
        assert len(kept) == count and torch._C._functorch.is_batchedtensor(kept[-1])
        assert torch.equal(torch._C._functorch.get_unwrapped(kept[-1]), T(3, 2) * 2)


@program(one_graph=False)
def test_print_inside(t):
    def fn(x):
        def one(y):
            print(y)
            return (y * 2).sum()

        return grad(one)(x)

    f = t.compile(fn)
    f(T(3))
    f(T(3, s=1))


@program(one_graph=False)
def test_hooks_inside(t):
    seen = []

    def fn(x):
        def one(y):
            z = y * 2
            z.register_hook(lambda g: seen.append("hook"))
            return z.sum()

        return grad(one)(x)

    f = t.compile(fn)
    t.watch(lambda: seen)
    f(T(3))
    f(T(3, s=1))


class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


@program(one_graph=False)
def test_an_autograd_function_inside(t):
    f = t.compile(lambda x: vmap(Square.apply)(x) + grad(lambda y: Square.apply(y).sum())(x))
    f(T(3))
    f(T(3, s=1))


@program(one_graph=False)
def test_a_mode_of_the_programs(t):
    def fn(x):
        with torch.device("cpu"):
            return vmap(lambda row: row + torch.ones(2))(x)

    f = t.compile(fn)
    f(T(3, 2))
    f(T(3, 2, s=1))


@program(one_graph=False)
def test_levels_that_stay(t):
    def fn(x):
        level = torch._C._functorch._vmap_increment_nesting(3, "error")
        y = torch._C._functorch._add_batch_dim(x, 0, level) * 2
        z = torch._C._functorch._remove_batch_dim(y, level, 3, 0)
        torch._C._functorch._vmap_decrement_nesting()
        return z

    def stays(x):
        torch._C._functorch._vmap_increment_nesting(3, "error")
        return x + 1

    f, g = t.compile(fn), t.compile(stays)
    f(T(3, 2))
    g(T(3, 2))
    torch._C._functorch._vmap_decrement_nesting()
    f(T(3, 2))


@program(one_graph=False)
def test_other_functions_of_functorchs(t):
    def fn(x):
        torch._C._functorch._set_vmap_fallback_enabled(True)
        return x + 1

    f = t.compile(fn)
    t.watch(torch._C._functorch._is_vmap_fallback_enabled)
    f(T(3))
    torch._C._functorch._set_vmap_fallback_enabled(False)
    f(T(3, s=1))


@program(one_graph=False)
def test_saved_tensor_hooks_that_are_forbidden(t):
    def fn(x):
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            y = x * 2
            try:
                with torch.autograd.graph.save_on_cpu():
                    y = y + 1
            except RuntimeError as error:
                return y, str(error)
        return y

    f = t.compile(fn)
    f(T(3))
    with torch.autograd.graph.disable_saved_tensors_hooks("nor there"):
        f(T(3))
        t.compile(lambda x: grad(lambda y: y.sum())(x))(T(3))
        t.note(torch._C._autograd._saved_tensors_hooks_get_disabled_error_message())


@program(one_graph=False)
def test_called_inside_of_a_transform(t):
    f = t.compile(lambda x: x.sin() + 1)
    x = T(2)
    t.note(vmap(lambda row: row + f.call(x))(T(3, 2)))
    t.note(grad(lambda row: (row + f.call(x)).sum())(x))
    t.note(grad(lambda row: f.call(row).sum())(x))
    f(x)


# ------------------------------------------------------------------------------------------------- grad and its like


@program(graphs=1)
def test_grad(t):
    def fn(x, y):
        return grad(lambda a, b: (a * b).sin().sum(), argnums=(0, 1))(x, y)

    f = t.compile(fn)
    f(T(3), T(3, s=1))
    f.hit(T(3, s=2), T(3, s=1))


@program(graphs=1)
def test_grad_and_value_with_more(t):
    def fn(x):
        def loss(y):
            z = y * y
            return z.sum(), {"z": z, "n": 3}

        return grad_and_value(loss, has_aux=True)(x), grad(grad(lambda y: (y**3).sum()))(x.sum())

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program(graphs=1)
def test_vjp(t):
    def fn(x, v):
        out, back = vjp(lambda y: (y.sin(), y.cos()), x)
        return out, back((v, v * 2))

    f = t.compile(fn)
    f(T(3), T(3, s=1))
    f.hit(T(3, s=2), T(3, s=1))


@program(one_graph=False)
def test_a_break_between_vjp_and_its_function(t):
    def fn(x, v):
        out, back = vjp(lambda y: y.sin(), x * 2)
        alternator.graph_break()
        return out + 1, back(v)

    f = t.compile(fn)
    f(T(3), T(3, s=1))
    f(T(3, s=2), T(3, s=1))


@program(graphs=1)
def test_jvp(t):
    def fn(x, v):
        return jvp(lambda y: y.sin() * y, (x,), (v,))

    f = t.compile(fn)
    f(T(3), T(3, s=1))
    f.hit(T(3, s=2), T(3, s=1))


@program(graphs=1)
def test_jacobians(t):
    def fn(x):
        def two(y):
            return y.sin() * y.sum()

        return jacrev(two)(x), jacfwd(two)(x), hessian(lambda y: two(y).sum())(x)

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=2))


@program(graphs=1)
def test_gradients_through_grad(t):
    weight = T(3, s=5, rg=True)

    def fn(x):
        return grad(lambda y: (y * y * weight).sum())(x)

    f = t.compile(fn)
    x = T(3, rg=True)
    f(x).sum().backward()
    t.note((x.grad, weight.grad))
    f.hit(T(3, s=1, rg=True)).sum().backward()
    t.note(weight.grad)


@program(graphs=1)
def test_gradients_of_each_sample(t):
    layer = linear(4, 2)

    def fn(x, y):
        parameters = {name: one.detach() for name, one in layer.named_parameters()}

        def loss(given, a, b):
            out = functional_call(layer, given, (a.unsqueeze(0),))
            return torch.nn.functional.mse_loss(out, b.unsqueeze(0))

        return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)

    f = t.compile(fn)
    f(T(3, 4), T(3, 2))
    with torch.no_grad():
        layer.weight.mul_(2)
    f.hit(T(3, 4, s=1), T(3, 2))


@program()
def test_an_ensemble(t):
    layers = [linear(4, 2), linear(4, 2)]
    with torch.no_grad():
        layers[1].weight.mul_(3)
    base = linear(4, 2)

    def fn(x):
        parameters, buffers = stack_module_state(layers)

        def one(given, held):
            return functional_call(base, (given, held), (x,))

        return vmap(one)(parameters, buffers)

    f = t.compile(fn)
    f.free(T(3, 4))
    f.free(T(3, 4, s=1))


@program(graphs=1)
def test_no_grad_around(t):
    def fn(x):
        with torch.no_grad():
            a = grad(lambda y: (y * y).sum())(x)
        return a, grad(lambda y: (y.detach() * y).sum())(x)

    f = t.compile(fn)
    f(T(3, rg=True))
    f.hit(T(3, s=1, rg=True))


# ---------------------------------------------------------------------------------------------------------- backends


def mapped_rows(x, w):
    return vmap(lambda row: (row @ w).tanh().sum())(x) * 2


def steps(x, w):
    value, slope = torch.func.grad_and_value(lambda v: (x @ v).tanh().sum())(w), torch.func.jacrev(torch.sin)(w[:, 0])
    return x.sum() + value[0].sum() + slope.sum() + torch.func.jvp(torch.cos, (w,), (w,))[1].sum()


@in_child
def test_backends(front):
    for backend in ("eager", "aot_eager", "inductor"):
        for fn in (mapped_rows, steps):
            compiled = alternator.compile(fn, backend=backend, fullgraph=True)
            for s in (0, 1):
                x, w = T(3, 4, s=s, rg=True), T(4, 2, s=s, rg=True)
                y, v = T(3, 4, s=s, rg=True), T(4, 2, s=s, rg=True)
                got, wanted = compiled(x, w), fn(y, v)
                torch.testing.assert_close(got, wanted)
                got.sum().backward()
                wanted.sum().backward()
                torch.testing.assert_close((x.grad, w.grad), (y.grad, v.grad))
            assert torch._C._functorch.maybe_current_level() is None


@in_child
def test_the_nodes(front):
    names = []

    def backend(module, inputs):
        names.extend(node.name for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    alternator.compile(lambda x: vmap(torch.sin)(x), backend=backend, fullgraph=True)(T(3, 2))
    assert names == ["_vmap_increment_nesting", "_add_batch_dim", "sin", "_remove_batch_dim", "_vmap_decrement_nesting"]


@in_child
def test_a_backend_that_fails_inside_of_a_transform(front):
    def backend(module, inputs):
        torch._C._functorch._vmap_increment_nesting(3, "error")
        raise RuntimeError("no")

    try:
        alternator.compile(lambda x: vmap(torch.sin)(x), backend=backend)(T(3, 2))
    except RuntimeError:
        pass
    assert torch._C._functorch.maybe_current_level() is None


class Squared(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x * FACTOR[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def vmap(info, in_dims, x):
        return x * 3, in_dims[0]


FACTOR = [1]


@program()
def test_autograd_functions_inside(t):
    def fn(x, i):
        batched = torch.vmap(Squared.apply)
        return (
            batched(x),
            batched(i),
            torch.vmap(Tripled.apply)(x),
        )

    f = t.compile(fn)
    t.undo(lambda: FACTOR.__setitem__(0, 1))
    f(T(3), torch.arange(3))
    f(T(3, rg=True), torch.arange(3))[0].sum().backward()
    f.hit(T(3), torch.arange(3))
    FACTOR[0] = 2
    f(T(3), torch.arange(3))
    t.patch(Tripled, "vmap", staticmethod(lambda info, in_dims, x: (x[:, None] * info.batch_size, in_dims[0])))
    f(T(3), torch.arange(3))


class Noting(torch.autograd.Function):
    notes: list[str] = []

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        Noting.notes.append("backward")
        return 2 * gradient * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info, in_dims, x):
        Noting.notes.append(f"vmap of {info.batch_size}")
        return x * x, in_dims[0]


@program(one_graph=False)
def test_what_an_autograd_function_does_besides(t):
    """Its rule for vmap and its backward run as often as in eager."""
    t.watch(lambda: list(Noting.notes))
    t.undo(Noting.notes.clear)
    x = T(3, rg=True)
    for fn in (
        lambda x: torch.vmap(Noting.apply)(x),
        lambda x: torch.func.grad(lambda y: Noting.apply(y).sum())(x),
        lambda x: torch.autograd.grad(Noting.apply(x).sum(), x),
        lambda x: torch.vmap(torch.func.grad(lambda y: Noting.apply(y).sum()))(x),
    ):
        f = t.compile(fn)
        f(x)
        f(x)


class IndexWithTensors(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__:
            return torch.ops.aten.index(args[0], list(args[1]) if isinstance(args[1], tuple) else [args[1]])
        return func(*args, **(kwargs or {}))


@program()
def test_vmap_under_a_mode(t):
    def fn(mask, n):
        def allowed(q, k):
            return (k <= q) & mask[q, k]

        both = torch.vmap(torch.vmap(allowed, in_dims=(None, 0)), in_dims=(0, None))
        with IndexWithTensors():
            return both(torch.arange(n), torch.arange(n)) * 1

    f = t.compile(fn)
    f(T(4, 4) > 0, 4)
    f(T(4, 4, s=3) > 0, 4)
    f(T(4, 4, s=3) > 0, 3)


@program(one_graph=False)
def test_derivatives_inside_of_inference_mode(t):
    """A level of functorch's leaves that mode, and comes back to it."""

    def fn(x, which):
        with torch.inference_mode():
            v = x * 1.5
            y = which(v)
            inside = torch.is_inference_mode_enabled()
        return y, inside, torch.is_inference_mode_enabled(), torch.ones(2)

    def square(q):
        return (q * q).sum()

    f = t.compile(fn)
    for which in (grad(square), lambda v: jvp(square, (v,), (v,))[1]):
        f(T(3), which)
        f(T(3), which)
    with torch.inference_mode():
        f(T(3), grad(square))

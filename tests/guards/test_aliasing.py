"""Which objects are one and which tensors share memory: as arguments, in results, through state; hit and failed."""

from __future__ import annotations

import weakref

import torch
from harness import T, program
from torch import nn

import alternator


class Box:
    def __init__(self, value=None):
        self.value = value


# ------------------------------------------------------------------------------------------------------ containers


@program()
def test_two_lists_that_may_be_one(t):
    def fn(a, b, x):
        a.append(x)
        return len(b), a == b

    f = t.compile(fn)
    one = []
    f([], [], T(2))
    f(one, one, T(2))
    f([], [], T(2))


@program()
def test_list_inside_a_dict(t):
    def fn(d):
        d["a"].append(1)
        return len(d["b"])

    def make(same):
        items = []
        return {"a": items, "b": items if same else []}

    f = t.compile(fn)
    f(make(False))
    f(make(True))
    f.hit(make(False))
    f.hit(make(True))


@program()
def test_argument_is_also_a_global(t):
    global SHARED
    SHARED = [1]

    def fn(items, x):
        items.append(2)
        return x + len(SHARED)

    f = t.compile(fn)
    f([1], T(2))
    f(SHARED, T(2))
    f([1], T(2))


@program()
def test_argument_is_also_in_a_cell(t):
    kept = Box(1)

    def fn(o, x):
        o.value = 5
        return x + kept.value

    f = t.compile(fn)
    f(Box(1), T(2))
    f(kept, T(2))
    kept.value = 1
    f(Box(1), T(2))


@program()
def test_argument_is_an_attribute_of_self(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = []

        def forward(self, items, x):
            items.append(1)
            return x + len(self.items)

    net = Net()
    f = t.compile(net)
    f([], T(2))
    f(net.items, T(2))
    f([], T(2))


@program()
def test_object_and_its_dict(t):
    def fn(o, d, x):
        d["value"] = 5
        return x + o.value

    f = t.compile(fn)
    one = Box(1)
    f(one, {"value": 1}, T(2))
    f(one, one.__dict__, T(2))
    f(Box(1), {"value": 1}, T(2))


@program()
def test_object_in_a_tuple_and_a_list(t):
    def fn(p, items, x):
        p[0].value += 1
        return x + items[0].value

    f = t.compile(fn)
    one = Box(1)
    f((Box(1),), [Box(1)], T(2))
    f((one,), [one], T(2))
    f((Box(1),), [Box(1)], T(2))


@program()
def test_default_argument_is_passed(t):
    def helper(x, items=[]):  # noqa: B006
        items.append(1)
        return x + len(items)

    def fn(items, x):
        items.append(2)
        return helper(x)

    f = t.compile(fn)
    f([], T(2))
    f(helper.__defaults__[0], T(2))
    f([], T(2))


@program()
def test_class_attribute_is_passed(t):
    class A:
        items = []

    def fn(items, x):
        items.append(1)
        return x + len(A.items)

    f = t.compile(fn)
    f([], T(2))
    f(A.items, T(2))
    f([], T(2))


@program()
def test_three_that_may_be_two(t):
    def fn(a, b, c):
        a.append(1)
        b.append(2)
        return list(c)

    f = t.compile(fn)
    one = []
    f([], [], [])
    f([], one, one)
    one = []
    f(one, [], one)
    one = []
    f(one, one, [])
    one = []
    f(one, one, one)
    f([], [], [])


@program()
def test_aliasing_only_through_the_result(t):
    """Nothing is written: but the result says who is who."""
    f = t.compile(lambda a, b: [a, b])
    one = []
    f([], [])
    f(one, one)
    x = T(2)
    f(T(2), T(2))
    f(x, x)
    f([], [])


@program()
def test_stored_argument_aliases_later(t):
    class Keeper:
        def __init__(self):
            self.kept = None

    keeper = Keeper()

    def fn(items, x):
        if keeper.kept is not None:
            keeper.kept.append(1)
        keeper.kept = items
        return x + len(items)

    f = t.compile(fn)
    one = []
    f(one, T(2))
    f(one, T(2))
    f([], T(2))
    f([], T(2))


@program()
def test_equal_strings_and_tuples_as_keys(t):
    def fn(d, k, x):
        return x + d[k]

    f = t.compile(fn)
    f({("a", 1): 2}, ("a", 1), T(2))
    key = ("a", 1)
    f({key: 2}, key, T(2))
    f({("a", 1): 3}, ("a", 1), T(2))


# ----------------------------------------------------------------------------------------------------------- tensors


@program()
def test_same_tensor_twice(t):
    def fn(a, b):
        c = a * 2
        a.add_(1)
        return c, a + b, a is b

    f = t.compile(fn)
    one = T(2)
    f(T(2), T(2))
    f(one, one)
    f(T(2), T(2))


@program()
def test_gradient_of_the_same_tensor_twice(t):
    f = t.compile(lambda a, b: (a * b).sum())
    one = T(2, rg=True)
    f(T(2, rg=True), T(2, rg=True)).backward()
    f(one, one).backward()
    f(T(2, rg=True), T(2, rg=True)).backward()


@program()
def test_view_and_base(t):
    def fn(a, b):
        a.mul_(2)
        return a + b

    f = t.compile(fn)
    base = T(4)
    f(T(2), T(2))
    f(base[:2], base[:2])
    f(base[:2], base[2:])
    f(base[:2], base[1:3])
    f(base, base)
    f(base.view(2, 2), base.view(2, 2).t())
    f(T(2), T(2))


@program()
def test_view_and_base_in_the_other_order(t):
    def fn(base, view):
        base.add_(1)
        view.mul_(2)
        return base * 1, view * 1

    f = t.compile(fn)
    f(T(4), T(2))
    base = T(4)
    f(base, base[:2])
    f(T(4), T(2))


@program()
def test_view_of_a_parameter(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(T(4))

        def forward(self, v, x):
            with torch.no_grad():
                v.add_(1)
            return x * self.w

    net = Net()
    f = t.compile(net)
    f(T(4), T(4))
    f(net.w.detach(), T(4))
    f(net.w.data, T(4))
    f(T(4), T(4))


@program()
def test_expanded_and_overlapping(t):
    def fn(a, b):
        return a + b

    f = t.compile(fn)
    one = T(3)
    f(one.expand(3, 3), T(3, 3))
    f(one.as_strided((2, 2), (1, 1)), T(2, 2))


@program()
def test_detached_alias_written(t):
    def fn(x):
        d = x.detach()
        d.add_(1)
        return x * 2, d

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_outputs_alias_inputs(t):
    f = t.compile(lambda x: (x.view(-1), x[0], x.t(), x, x.reshape(4), x.detach(), x.contiguous()))
    x = T(2, 2)
    r = f(x)
    r[0].add_(1)
    f.hit(x)
    f.hit(T(2, 2))


@program()
def test_outputs_alias_each_other(t):
    def fn(x):
        y = x + 1
        return y, y[0], y.view(-1), y.split(1)

    f = t.compile(fn)
    r = f(T(2, 2))
    r[0].add_(1)
    f.hit(T(2, 2))


@program()
def test_output_aliases_a_parameter(t):
    net = nn.Linear(2, 2)
    f = t.compile(lambda x: (net.weight, net.weight.t(), net.weight.data, x + 1))
    f(T(2))
    f.hit(T(2))


@program()
def test_views_made_and_written(t):
    def fn(x):
        v = x.view(-1)
        v.mul_(2)
        v[1:3] += 1
        return v, x.t(), x[0]

    f = t.compile(fn)
    f(T(2, 2))
    f.hit(T(2, 2))


@program()
def test_two_parameters_share_storage(t):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    flat = T(12)
    f = t.compile(net)
    f(T(1, 2)).sum().backward()
    net[0].weight.data = flat[:4].view(2, 2)
    net[1].weight.data = flat[:4].view(2, 2)
    f(T(1, 2)).sum().backward()
    net[1].weight.data = flat[4:8].view(2, 2)
    f(T(1, 2)).sum().backward()


@program()
def test_tensor_in_a_list_and_alone(t):
    def fn(items, x):
        items[0].add_(1)
        return x * 2, items[0] is x

    f = t.compile(fn)
    x = T(2)
    f([T(2)], x)
    f([x], x)
    f([T(2)], x)


@program()
def test_module_passed_twice(t):
    def fn(a, b, x):
        a.n = 5
        return b(x) * b.n

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 1

        def forward(self, x):
            return x * self.n

    f = t.compile(fn)
    one = Net()
    f(Net(), Net(), T(2))
    f(one, one, T(2))
    f(Net(), Net(), T(2))


@program()
def test_same_list_object_in_two_calls(t):
    def fn(items, x):
        items.append(x.sum())
        return len(items)

    f = t.compile(fn)
    items = []
    f(items, T(2))
    f(items, T(2))
    f(items, T(2))


@program()
def test_result_is_fed_back(t):
    def fn(state, x):
        state["h"] = state.get("h", 0) + x
        return state, [state["h"]]

    f = t.compile(fn)
    state, items = f({}, T(2))
    state, items = f(state, items[0])
    state, items = f(state, items[0])


@program()
def test_an_address_that_is_used_again(t):
    """The guarded list dies; another may get its address."""
    holder = Box([1, 2])
    f = t.compile(lambda x: x + sum(holder.value))
    for i in range(6):
        f(T(2))
        holder.value = None
        holder.value = [i, i]


@program(one_graph=False)
def test_a_view_without_history_that_is_written_to(t):
    """Torch refuses to look at such a view's history."""

    def helper(x):
        x.detach().mul_(2)
        return x

    kept = torch.full((), 1.0)

    def fn(x):
        view = helper(kept.view(1))
        alternator.graph_break()
        return x + view.shape[0]

    f = t.compile(fn)
    kept.requires_grad_()
    t.undo(lambda: torch.set_grad_enabled(True))
    torch.set_grad_enabled(False)
    f(T(2))
    f(T(2))


def test_a_weak_reference_to_what_is_computed() -> None:
    def fn(x):
        y = x * 2
        reference = weakref.ref(y)
        there = reference() is y
        del y
        return x + 1, there, reference() is None

    compiled = alternator.compile(fn, backend="eager")
    for _ in range(2):
        assert compiled(T(2))[1:] == (True, True)


def test_a_weak_reference_to_what_is_taken_away() -> None:
    held = {}

    def fn(x):
        reference = weakref.ref(held["b"])
        there = reference() is not None
        del held["b"]
        return x + 1, there, reference() is None

    compiled = alternator.compile(fn, backend="eager")
    for _ in range(2):
        held["b"] = Box()
        assert compiled(T(2))[1:] == (True, True)


@program()
def test_weak_references_with_callbacks(t):
    """`weakref.ref(x)` is one object for all, unless it is given a callback."""

    class Held:
        pass

    held = Held()
    common, other = weakref.ref(held), weakref.ref(held, lambda _: None)

    def fn(x, held, reference):
        found = weakref.ref(held)
        return x + 1, found is reference, reference() is held, found, reference

    f = t.compile(fn)
    for reference in (common, other, common, other):
        t.note([given is reference for given in f(T(2), held, reference)[3:]])


# -------------------------------------------------------------------------------------------- memory that is looked at


@program(one_graph=False)
def test_storages_of_what_is_computed(t):
    """A tensor without data has a storage too: nobody may see it."""

    def fn(x):
        y = x + 1
        storage = y.untyped_storage()
        same = storage._cdata == y.view(-1).untyped_storage()._cdata, storage.data_ptr() == y.data_ptr()
        return y, storage.device, storage.nbytes(), len(storage), storage[2], same

    f = t.compile(fn)
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_storages_of_arguments(t):
    def fn(x):
        return x.untyped_storage()._cdata == x.view(-1).untyped_storage()._cdata, x + 1

    f = t.compile(fn)
    f(T(3, 2))
    f(T(3, 2))


@program(one_graph=False)
def test_is_set_to(t):
    def fn(x, z):
        y = x + 1
        return x.is_set_to(z), y.is_set_to(y), y.is_set_to(y.view(3, 2)), y.is_set_to(y[1:]), y.is_set_to(x)

    f = t.compile(fn)
    x = T(3, 2)
    f(x, x)
    f(x, x.view(3, 2))
    f(x, x.clone())


def test_tensors_that_get_other_memory_with_aot_autograd():
    """AOTAutograd fails on these, or loses which tensors share memory: such a graph runs as it was recorded."""

    def grown(x, y):
        y.resize_(2, 2).fill_(1)
        return x + 1

    def given(x, y):
        z = x.clone()
        z.set_(y)
        return z

    def out(x, y):
        return torch.add(x, 1, out=y)

    def other_data(x, y):
        z = x * 2
        row = z[1:]
        z.data = x + 5
        z.add_(1)
        return z + row.sum()

    def other_data_of_an_argument(x, y):
        y.data = x * 2
        y.add_(1)
        return y

    for fn in (grown, given, out, other_data, other_data_of_an_argument):
        alternator.reset()
        f = alternator.compile(fn, backend="aot_eager")
        for _ in range(2):
            wanted, found = (T(3), torch.zeros(0)), (T(3), torch.zeros(0))
            a, b = fn(*wanted), f(*found)
            torch.testing.assert_close(b, a, rtol=0, atol=0)
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)
            assert (a is wanted[1]) == (b is found[1])
            assert (a.data_ptr() == wanted[1].data_ptr()) == (b.data_ptr() == found[1].data_ptr())


@program(graphs=1)
def test_other_data(t):
    """`.data` of a parameter is set: by a node, in the order of the writes around it."""
    net, mean = nn.Linear(2, 2), nn.Linear(2, 2)
    with torch.no_grad():
        for i, p in enumerate([*net.parameters(), *mean.parameters()]):
            p.copy_(T(*p.shape, s=i))

    def fn(x):
        before = mean(x)
        with torch.no_grad():
            for p, q in zip(net.parameters(), mean.parameters(), strict=True):
                q.data = q.data * 0.9 + p.data * 0.1
                q.mul_(2)
        return before, mean(x), net(x)

    f = t.compile(fn)
    t.watch(lambda: (net, mean))
    f(T(3, 2))
    old = mean.weight.data
    results = f.hit(T(3, 2, s=1))
    (results[1] + results[2]).sum().backward()
    t.note((net.weight.grad, mean.weight.grad, old))
    mean.weight.data = T(2, 2, s=5)
    f.hit(T(3, 2))


@program()
def test_other_data_of_arguments(t):
    def swap(a, b):
        a.data, b.data = b.data, a.data
        a.add_(1)
        return a * 2, b, a.shape

    f = t.compile(swap)
    f(T(3), T(3, s=1))
    f.hit(T(3), T(3, s=2))
    f(T(3), T(2, 2))
    f.hit(T(3, s=2), T(2, 2))
    x = T(3)
    f(x, x)
    f(x, x[:])
    f(T(3, rg=True).clone(), T(3))

    def leaf(x):
        y = x * x
        x.data = y.detach()
        return y, x * 3

    g = t.compile(leaf)
    for s in (1, 2):
        x = T(3, s=s, rg=True)
        y, z = g(x)
        t.note(x)
        z.sum().backward()
        t.note(x.grad)
    g(T(3))


@program(one_graph=False)
def test_data_that_cannot_be_set(t):
    def fn(x, y):
        try:
            x.data = y
        except (RuntimeError, TypeError) as error:
            return type(error).__name__, str(error), x + 1
        return x * 2

    f = t.compile(fn)
    for y in (T(3, s=1), T(3, s=2), T(3).double(), T(3).to_sparse(), 3, None, T(3, s=1)):
        f(T(3), y)
        f(T(3, rg=True), y)

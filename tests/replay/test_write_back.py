"""What a call writes to the world before it is there afterwards, as eager leaves it: every kind of container and place."""

from __future__ import annotations

import collections
import copy
import enum
import types

import torch
from harness import T, program
from torch import nn

import alternator


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


# ---------------------------------------------------------------------------------------------------------- lists


@program()
def test_list_append_only_needs_no_length(t):
    def fn(items, x):
        items.append(x.sum())
        return x

    f = t.compile(fn)
    f([], T(2))
    f.hit([1], T(2))
    f.hit([1, 2], T(2))


@program()
def test_list_every_method(t):
    def fn(items, x):
        items.append(x + 1)
        items.insert(1, "inserted")
        items.extend([7, 8])
        items[0] = x * 2
        del items[2]
        items.remove(7)
        last = items.pop()
        items.reverse()
        items += [9]
        items[1:2] = ["s", "t"]
        items *= 2
        return items, last, items.index("s"), items.count("t")

    f = t.compile(fn)
    f([1, 2, 3], T(2))
    f.hit([1, 2, 3], T(2))
    f([1, 2, 3, 4], T(2))


@program()
def test_list_sorted_in_place(t):
    def fn(items, x):
        items.sort(key=lambda v: -v)
        return x + items[0]

    f = t.compile(fn)
    f([1, 3, 2], T(2))
    f.hit([1, 3, 2], T(2))
    f([1, 2, 3], T(2))


@program()
def test_list_cleared_and_refilled(t):
    def fn(items, x):
        items.clear()
        items.append(x)
        return x + 1

    f = t.compile(fn)
    f([1, 3, 2], T(2))
    f([], T(2))
    f([5], T(2))


@program()
def test_list_unchanged_in_the_end(t):
    def fn(items, x):
        items.append(1)
        items.pop()
        return x + 1

    f = t.compile(fn)
    f([1], T(2))
    f([], T(2))


@program()
def test_list_elements_swapped(t):
    def fn(items, x):
        items[0], items[1] = items[1], items[0]
        return x + 1

    f = t.compile(fn)
    f([T(1), T(2)], T(2))
    f.hit([T(1), T(2)], T(2))
    f([Box(), Box()], T(2))


@program()
def test_list_written_while_iterated(t):
    def fn(items, x):
        for item in items:
            if len(items) < 6:
                items.append(item + 1)
            x = x + item
        return x

    f = t.compile(fn)
    f([1, 2], T(2))
    f.hit([1, 2], T(2))
    f([1], T(2))


@program()
def test_kv_cache(t):
    def fn(cache, x):
        cache.append(x)
        return torch.cat(cache)

    f = t.compile(fn)
    cache = []
    f(cache, T(2))
    f(cache, T(2))
    f(cache, T(2))


# ---------------------------------------------------------------------------------------------------------- dicts


@program()
def test_dict_every_method(t):
    def fn(d, x):
        d["new"] = x + d["s"]
        d["count"] = d.get("count", 0) + 1
        gone = d.pop("z", None)
        d.update(a=1, b=[x])
        d.setdefault("b", []).append(2)
        d |= {"c": 3}
        del d["s"]
        d["s"] = "at the end"
        return d["new"] * 2, gone, d.popitem()

    f = t.compile(fn)
    f({"s": 1, "z": 3}, T(2))
    f.hit({"s": 1, "z": 3}, T(2))
    f({"s": 1, "count": 5}, T(2))


@program()
def test_dict_order_after_deletion(t):
    def fn(d, x):
        first = next(iter(d))
        value = d.pop(first)
        d[first] = value
        return x + 1

    f = t.compile(fn)
    f({"a": 1, "b": 2, "c": 3}, T(2))
    f.hit({"a": 1, "b": 2, "c": 3}, T(2))
    f({"b": 2, "a": 1}, T(2))


@program()
def test_dict_overwritten_keeps_its_place(t):
    def fn(d, x):
        d["a"] = x
        return x + 1

    f = t.compile(fn)
    f({"a": 1, "b": 2}, T(2))
    f({"b": 1, "a": 2}, T(2))
    f({"b": 1}, T(2))


@program()
def test_dict_cleared(t):
    def fn(d, x):
        d.clear()
        d["only"] = x
        return x

    f = t.compile(fn)
    f({"a": 1}, T(2))
    f({}, T(2))
    f({"only": 3, "b": 1}, T(2))


@program()
def test_dict_key_object_is_kept(t):
    """An equal key that is written again keeps the key object that was there."""

    def fn(d, x):
        d[True] = x
        d[2.0] = 5
        return x + 1

    f = t.compile(fn)
    f({1: 0, 2: 0}, T(2))
    f({}, T(2))
    f({True: 0}, T(2))


# ------------------------------------------------------------------------------------------------ sets and deques


@program()
def test_set_every_method(t):
    def fn(s, x):
        s.add(4)
        s.discard(1)
        s.update({5, 6})
        s ^= {6, 7}
        s -= {2}
        s |= {8}
        return x + len(s), s

    f = t.compile(fn)
    f({1, 2, 3}, T(2))
    f.hit({1, 2, 3}, T(2))
    f({2, 3}, T(2))


@program()
def test_set_of_tensors(t):
    def fn(s, x):
        s.add(x)
        return x + len(s)

    f = t.compile(fn)
    x = T(2)
    seen = set()
    f(seen, x)
    f(seen, x)
    f(seen, T(2))


@program()
def test_deque_every_method(t):
    def fn(q, x):
        q.append(x)
        q.appendleft(1)
        q.extend([2, 3])
        q.rotate(2)
        q[0] = "first"
        q.remove(2)
        return q.pop(), q.popleft(), q

    f = t.compile(fn)
    f(collections.deque([5, 6]), T(2))
    f.hit(collections.deque([5, 6]), T(2))
    f(collections.deque([5, 6], maxlen=3), T(2))


@program()
def test_deque_as_a_window(t):
    def fn(q, x):
        q.append(x.sum())
        return sum(q)

    f = t.compile(fn)
    window = collections.deque(maxlen=2)
    for i in range(4):
        f(window, T(2, s=i))


# ----------------------------------------------------------------------------------------------------- attributes


@program()
def test_attributes_set_changed_deleted(t):
    def fn(o, x):
        o.new = x + 1
        o.old += 1
        del o.gone
        return o.new

    f = t.compile(fn)
    f(Box(old=1, gone=2), T(2))
    f.hit(Box(old=1, gone=2), T(2))
    f(Box(old=2, gone=2), T(2))
    f(Box(old=2), T(2))


@program()
def test_attribute_order(t):
    def fn(o, x):
        o.b = 1
        o.a = 2
        del o.first
        o.first = x
        return list(vars(o))

    f = t.compile(fn)
    f(Box(first=0), T(2))
    f.hit(Box(first=0), T(2))
    f(Box(a=0, first=0), T(2))


@program()
def test_attribute_deleted_and_set_again(t):
    def fn(o, x):
        del o.a
        had = hasattr(o, "a")
        o.a = x
        return had

    f = t.compile(fn)
    f(Box(a=1, b=2), T(2))
    f(Box(a=1, b=2), T(2))


@program()
def test_setattr_hook(t):
    class Recording:
        def __init__(self):
            object.__setattr__(self, "log", [])

        def __setattr__(self, name, value):
            self.log.append(name)
            object.__setattr__(self, name, value)

        def __delattr__(self, name):
            self.log.append("-" + name)
            object.__delattr__(self, name)

    def fn(o, x):
        o.a = x + 1
        o.b = 2
        del o.b
        return o.a

    f = t.compile(fn)
    one = Recording()
    f(one, T(2))
    f(one, T(2))


@program()
def test_slots_written_and_deleted(t):
    class Slotted:
        __slots__ = ("a", "b", "c")

    def fn(o, x):
        o.b = x + o.a
        o.a += 1
        had = hasattr(o, "c")
        if had:
            del o.c
        return had

    def make(a, **more):
        o = Slotted()
        o.a = a
        for name, value in more.items():
            setattr(o, name, value)
        return o

    f = t.compile(fn)
    f(make(1), T(2))
    f.hit(make(1), T(2))
    f(make(1, c=3), T(2))


@program()
def test_module_attributes(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.weight = nn.Parameter(T(2))
            self.history = []
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x):
            self.calls += 1
            self.last = x.shape[0]
            self.history.append(self.calls)
            self.total += x.detach()
            self.latest = x * 2
            return x * self.weight + self.calls

    net = Net()
    f = t.compile(net)
    f(T(2))
    f(T(2))
    f(T(2))


@program()
def test_buffer_replaced(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x):
            self.mean = self.mean * 0.9 + x * 0.1
            return x - self.mean

    f = t.compile(Net())
    for i in range(3):
        f(T(2, s=i))


@program()
def test_lazy_cache_on_self(t):
    class Rope(nn.Module):
        def __init__(self):
            super().__init__()
            self.cos = None

        def forward(self, x):
            if self.cos is None or self.cos.shape[0] < x.shape[0]:
                self.cos = torch.arange(x.shape[0], dtype=x.dtype, device=x.device).cos()[:, None]
            return x * self.cos[: x.shape[0]]

    f = t.compile(Rope())
    f(T(3, 2))
    f(T(3, 2))
    f(T(2, 2))
    f(T(5, 2))
    f(T(5, 2))


@program()
def test_parameter_made_in_the_call(t):
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = None

        def forward(self, x):
            if self.weight is None:
                self.weight = nn.Parameter(torch.ones(x.shape[-1]))
            return x * self.weight

    f = t.compile(Lazy())
    f.free(T(3, 2))
    f(T(3, 2))
    f.hit(T(3, 2))


@program()
def test_dict_of_an_instance_updated(t):
    def fn(o, x):
        vars(o).update(z=1, y=x)
        o.__dict__.pop("a")
        return o.z

    f = t.compile(fn)
    f(Box(a=1), T(2))
    f.hit(Box(a=1), T(2))


# ---------------------------------------------------------------------------- globals, cells, classes, functions


@program()
def test_global_counter(t):
    global COUNT
    COUNT = 0

    def fn(x):
        global COUNT
        COUNT += 1
        return x + COUNT

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    COUNT = 10
    f(T(2))


@program()
def test_global_made_and_deleted(t):
    global GONE
    GONE = 1

    def fn(x):
        global MADE, GONE
        MADE = x + 1
        del GONE
        return x

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    GONE = 5
    f(T(2))


@program()
def test_global_list(t):
    global HISTORY
    HISTORY = []

    def fn(x):
        HISTORY.append(x.sum())
        return x * 2

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    f.hit(T(2))


@program()
def test_global_of_another_module(t):
    other = types.ModuleType("other")
    other.count = 0
    t.watch(lambda: vars(other))

    def fn(x):
        other.count += 1
        other.latest = x + 1
        return x + other.count

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_nonlocal(t):
    count, latest = 0, None

    def fn(x):
        nonlocal count, latest
        count += 1
        latest = x + count
        return latest

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    count = 10
    f(T(2))


@program()
def test_nonlocal_deleted(t):
    value = 1

    def fn(x):
        nonlocal value
        del value
        return x

    def ask():
        try:
            return value
        except NameError:
            return "gone"

    t.watch(ask)
    f = t.compile(fn)
    f(T(2))
    value = 2
    f(T(2))
    f(T(2))


@program()
def test_class_attribute(t):
    class Registry:
        table = {}
        count = 0
        gone = 1

    def fn(x):
        Registry.count += 1
        Registry.table["k"] = Registry.count
        Registry.made = x + 1
        if hasattr(Registry, "gone"):
            del Registry.gone
        return x + Registry.count

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    Registry.gone = 1
    f(T(2))


@program()
def test_class_attribute_through_the_instance(t):
    class Registry:
        items = []

    def fn(x):
        one = Registry()
        one.items.append(len(one.items))
        return x + len(Registry.items)

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    Registry.items.clear()
    f(T(2))


@program()
def test_class_attribute_read_by_a_subclass(t):
    class Base:
        n = 1

    class Derived(Base):
        pass

    def fn(x):
        Base.n += 1
        return x * Derived.n, Derived().n

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_method_replaced_by_the_call(t):
    class A:
        def scale(self, x):
            return x * 2

    def fn(o, x):
        first = o.scale(x)
        A.scale = lambda self, x: x * 3
        return first, o.scale(x)

    f = t.compile(fn)
    f(A(), T(2))
    f(A(), T(2))


@program()
def test_function_attributes_and_defaults(t):
    def helper(x, by=2):
        return x * by

    helper.calls = 0

    def fn(x):
        helper.calls += 1
        helper.latest = x
        helper.__defaults__ = (helper.calls,)
        return helper(x)

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_environment_of_the_process(t):
    import os

    t.undo(lambda: os.environ.pop("ALTERNATOR_TEST_WORD", None))
    t.watch(lambda: os.environ.get("ALTERNATOR_TEST_WORD"))

    def fn(x):
        os.environ["ALTERNATOR_TEST_WORD"] = os.environ.get("ALTERNATOR_TEST_WORD", "") + "a"
        return x + len(os.environ["ALTERNATOR_TEST_WORD"])

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


# -------------------------------------------------------------------------------------------------------- tensors


@program(graphs=1)
def test_tensors_in_place(t):
    def fn(x, y):
        x.add_(1)
        y[0] = 5
        x[:, 1].mul_(2)
        x += y
        return x + y

    f = t.compile(fn)
    f(T(2, 2), T(2, 2))
    f.hit(T(2, 2), T(2, 2))


@program()
def test_metadata_in_place(t):
    def fn(x, y, z):
        x.t_()
        y.requires_grad_()
        z.unsqueeze_(0)
        return x.shape, y * 2, z

    f = t.compile(fn)
    f(T(2, 3), T(2), T(2))
    f(T(2, 3), T(2), T(2))


@program()
def test_set_data(t):
    def fn(p, x):
        p.data = x * 2
        return p + 1

    f = t.compile(fn)
    f.free(nn.Parameter(T(2)), T(2))
    f.free(nn.Parameter(T(2)), T(2))
    f.free(nn.Parameter(T(2)), T(3))


@program()
def test_resize_and_set(t):
    def fn(x):
        x.resize_(2, 2)
        return x + 1

    f = t.compile(fn)
    f.free(torch.zeros(4))
    f.free(torch.zeros(4))


@program()
def test_gradients_written_by_backward_inside(t):
    def fn(x, w):
        y = (x * w).sum()
        y.backward()
        return w.grad

    f = t.compile(fn)
    w = T(2, rg=True)
    f.free(T(2), w)
    f.free(T(2), w)
    f.free(T(2), T(2, rg=True))


@program()
def test_optimizer_step_by_hand(t):
    def fn(m, x):
        loss = m(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in m.parameters():
                p.sub_(p.grad, alpha=0.1)
                p.grad = None
        return loss.detach()

    m = nn.Linear(3, 3)
    f = t.compile(fn)
    for _ in range(3):
        f.free(m, T(2, 3))


@program()
def test_tensor_stored_in_many_places(t):
    def fn(o, items, d, x):
        y = x + 1
        o.y = y
        items.append(y)
        d["y"] = y
        return y

    f = t.compile(fn)
    f(Box(), [], {}, T(2))
    f.hit(Box(), [], {}, T(2))


@program()
def test_input_stored(t):
    def fn(o, x):
        o.x = x
        o.view = x[0]
        return x + 1

    f = t.compile(fn)
    f(Box(), T(2))
    f.hit(Box(), T(2))


@program()
def test_written_between_reads(t):
    """A value that is shown must be the one that it was when it was shown, not the last."""

    def fn(o, x):
        before = list(o.items)
        o.items.append(x)
        o.n += 1
        middle = o.n
        o.n += 1
        return before, middle, o.n

    f = t.compile(fn)
    f(Box(items=[1], n=0), T(2))
    f.hit(Box(items=[1], n=0), T(2))


# -------------------------------------------------------------------------------------- effects before an exception


@program()
def test_effects_before_an_exception(t):
    def fn(items, d, o, x):
        items.append(1)
        d["k"] = x + 1
        o.n = 2
        raise ValueError("stop")

    f = t.compile(fn)
    f([], {}, Box(), T(2))
    f([], {}, Box(), T(2))


@program(one_graph=False)
def test_effects_before_a_failing_graph(t):
    """The second call has an index that the graph cannot serve."""

    def fn(items, x, i):
        items.append(1)
        y = x[i]
        items.append(2)
        return y

    f = t.compile(fn)
    one = []
    f(one, T(3), torch.tensor(1))
    f(one, T(3), torch.tensor(7))
    f(one, T(3), torch.tensor(2))


@program(one_graph=False)
def test_effects_before_a_torch_error(t):
    def fn(items, x, y):
        items.append(1)
        z = x @ y
        items.append(2)
        return z

    f = t.compile(fn)
    one = []
    f(one, T(2, 3), T(3, 2))
    f(one, T(2, 3), T(2, 3))
    f(one, T(2, 3), T(3, 2))


@program()
def test_several_places_in_one_order(t):
    """A setter that reads what other places hold: with write-back in one order, nothing of the program is run again."""
    log = []

    class A:
        def __init__(self):
            self._v = 0

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, value):
            log.append((value, len(log)))
            self._v = value

    def fn(a, x):
        a.v = 1
        a.w = a.v + 1
        a.v = a.w + 1
        return x * a.v

    t.watch(lambda: log)
    f = t.compile(fn)
    one = A()
    f(one, T(2))
    f(one, T(2))


# ---------------------------------------------------------------------------------------- what was there already


@program()
def test_what_was_there_is_written_again(t):
    """The first call writes what is there already; the next one has something else there."""

    class Box:
        def __init__(self, n):
            self.n = n

    def fn(x, box, table):
        setattr(box, "n", 1)
        table["k"] = 1
        return x + 1

    f = t.compile(fn)
    f(T(2), Box(1), {"k": 1})
    f.hit(T(2), Box(3), {"k": 3})
    f.hit(T(2), Box(1), {"k": 1})


@program()
def test_keys_that_are_equal_but_not_the_same(t):
    """A dict slot is found by equality, whatever object asks for it; the first key that was stored stays."""

    def fn(x, table, key):
        table[key] = 7
        seen = [table[int("1000")], table[1000.0]]
        del table[int("1000")]
        seen.append(int("1000") in table)
        table[int("1000")] = 8
        table[True] = 5
        table[1] = 6
        return x + table[1000], seen

    f = t.compile(fn)
    f(T(2), {1000: 1, "b": 2}, 1000)
    f.hit(T(2), {1000: 2, "b": 2}, 1000)
    f(T(2), {"b": 2}, 1000)


@program(one_graph=False)
def test_a_set_remembers_what_was_added_and_removed(t):
    """What came and went leaves a gap in a set's table, and the gaps decide where later elements stand."""

    def fn(x, items, new):
        items.add(new)
        items.discard(1)
        return x + 1

    f = t.compile(fn)
    items = {0, 8}
    for new in (2, 1, 10):
        f(T(2), items, new)


@program(one_graph=False)
def test_a_set_whose_elements_come_and_go(t):
    """The gaps are another matter in each call; a set that is only asked what is in it need not be traced again."""

    def fn(x, active, name):
        active.add(name)
        busy = name in active and 3 in active
        active.remove(name)
        return x + busy

    f = t.compile(fn)
    active = {3, 11, 19}
    f(T(2), active, 5)
    for _ in range(20):
        f.hit(T(2), active, 5)
    t.note(list(active))


@program(one_graph=False)
def test_a_set_that_is_emptied(t):
    def fn(x, items):
        items.clear()
        items.add(8)
        items.add(0)
        return x + len(items)

    f = t.compile(fn)
    for _ in range(3):
        items = {*range(40), 100}
        f(T(2), items)
        items.add(16)
        t.note(list(items))


@program(one_graph=False)
def test_a_set_that_is_popped(t):
    def fn(x, items):
        first = items.pop()
        items.add(first + 8)
        return x + first, items.pop()

    f = t.compile(fn)
    items = {1, 2, 3, 4}
    for _ in range(5):
        f(T(2), items)
        t.note(list(items))


@program(one_graph=False)
def test_a_set_that_is_changed_by_many_and_back(t):
    """Elements that come by update and go by a difference: no step by step account of that."""

    def fn(x, items, others):
        items |= others
        items -= others
        return x + len(items)

    f = t.compile(fn)
    items = {0, 8}
    f(T(2), items, {1, 16})
    items.add(24)
    t.note(list(items))
    f(T(2), items, {1, 16})
    items.add(32)
    t.note(list(items))


@program(one_graph=False)
def test_order_of_a_set_seen_after_changes(t):
    def fn(x, items, new):
        items.add(new)
        items.discard(1)
        return x + 1, list(items)

    f = t.compile(fn)
    for first in ({0, 8}, {8, 0}, {0, 8, 1}, {1, 0, 8}):
        for new in (2, 1, 10, 16):
            f(T(2), first, new)


@program(one_graph=False)
def test_attributes_of_an_ordered_dict(t):
    ordered, bare = collections.OrderedDict(a=1), collections.OrderedDict()
    ordered.k = 2
    state = torch.nn.Linear(2, 2).state_dict()
    t.watch(lambda: (vars(ordered), vars(bare)))

    def fn(x):
        ordered.seen = getattr(ordered, "seen", 0) + 1
        made = collections.OrderedDict()
        made.first = 1
        alternator.graph_break()
        made.second = x + 1
        made["c"] = copy.copy(ordered)
        return x * ordered.k, hasattr(bare, "k"), getattr(state, "_metadata", None), made, vars(made), vars(made["c"])

    def delete(x):
        del ordered.seen
        return x + 1

    f, g = t.compile(fn), t.compile(delete)
    f(T(2))
    ordered.k = 3
    f(T(2))
    g(T(2))
    bare.k = 1
    f(T(2))
    ordered.items = lambda: 5
    f(T(2))


class Kind(enum.Enum):
    A = "a"
    B = "b"


# The __hash__ of an Enum is Python code.
@program()
def test_dicts_by_members_of_an_enum(t):
    table = {Kind.A: 1, Kind.B: 2}
    t.watch(lambda: table)

    def fn(x, kind):
        made = {kind: x + 1}
        table[kind] += 1
        return made, f"{kind.value}", x * table[kind], list(table)

    f = t.compile(fn)
    f(T(2), Kind.A)
    f(T(2), Kind.B)
    table[Kind.A] = 1
    f(T(2), Kind.A)


@program(one_graph=False)
def test_keys_are_hashed_after_the_writes(t):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return hash(self.n)

        def __eq__(self, other):
            return self.n == other.n

    def made(key, x):
        key.n += 1
        return {key: x, "a": {(key, 1)}}, {key}

    def given(table, chosen, key, x):
        table["before"] = len(chosen)
        key.n += 1
        table[key] = x
        table["after"] = 1
        chosen.add(key)
        return x + len(table)

    f, g = t.compile(made), t.compile(given)
    for n in (1, 1, 5):
        key = Key(n)
        first, second = f(key, T(2))
        t.note([key in first, key in second, (key, 1) in first["a"]])
        key, table, chosen = Key(n), {}, set()
        g(table, chosen, key, T(2))
        t.note([key in table, key in chosen, [k if isinstance(k, str) else k.n for k in table]])


@program(one_graph=False)
def test_elements_of_frozen_sets_are_hashed_after_the_writes(t):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return hash(self.n)

        def __eq__(self, other):
            return self.n == other.n

    class Frozen(frozenset):
        pass

    def made(key, x):
        key.n += 1
        inner = frozenset([key])
        named = Frozen([key, "a"])
        named.tag = x
        return inner, {inner: x}, frozenset([inner, (inner, 2)]), (named, {named}), frozenset([key, Key(7), 3]), x + 1

    f = t.compile(made)
    for n in (1, 1, 5):
        key = Key(n)
        inner, table, outer, (named, some), mixed, _ = f(key, T(2))
        t.note([key in inner, inner in table, inner in outer, (inner, 2) in outer, frozenset([Key(n + 1)]) in table])
        t.note([key in named, named in some, key in mixed, Key(7) in mixed, 3 in mixed, type(named), named.tag])


@program()
def test_the_factory_of_a_defaultdict(t):
    table = collections.defaultdict(int)
    t.watch(lambda: (table, table.default_factory()))

    def fn(x, d):
        before = d["a"]
        d.default_factory = list
        d["b"].append(x + 1)
        return before, d.default_factory is list, d["c"]

    f = t.compile(fn)
    f(T(2), table)
    table.clear()
    table.default_factory = int
    f(T(2), table)
    f(T(2), collections.defaultdict(int))


class Slotted(dict):
    __slots__ = ("inside", "missing")


class Counted(list):
    __slots__ = ("inside", "sets")

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        object.__setattr__(self, "sets", getattr(self, "sets", 0) + 1)

    def __delattr__(self, name):
        object.__delattr__(self, name)


@program()
def test_slots_of_classes_over_containers(t):
    table, items = Slotted(a=1), Counted([1])
    table.inside, items.inside = 2, [3]
    t.watch(lambda: (table.inside, items.inside, items.sets, hasattr(table, "missing")))

    def fn(x, d, l):
        total = x * d.inside + l.inside[0]
        d.inside += 1
        l.inside.append(total)
        l.inside = l.inside[:]
        gone = hasattr(d, "missing")
        if gone:
            del d.missing
        else:
            d.missing = 1
        return total, gone, l.sets

    f = t.compile(fn)
    f(T(2), table, items)
    f(T(2), table, items)
    table.inside = 7
    f(T(2), table, items)


@program(one_graph=False)
def test_slots_of_classes_over_containers_behind_a_break(t):
    def fn(x):
        d, l, e = Slotted(), Counted(), collections.defaultdict(int)
        alternator.graph_break()
        d.inside = x + 1
        l.inside = [x]
        e.default_factory = list
        alternator.graph_break()
        l.inside.append(1)
        return d.inside, l.inside, l.sets, e["new"], hasattr(d, "missing")

    f = t.compile(fn)
    f(T(2))
    f(T(2))

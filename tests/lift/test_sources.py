"""Every accessor of lift/sources/accessors.def: a value is found again where it was found first, and a change there is noticed."""

from __future__ import annotations

import collections
import functools
import types
import weakref

import torch
from harness import T, program
from torch import nn


class Box:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("__weakref__", "left", "right")

    def __init__(self, left):
        self.left = left


# ---------------------------------------------------------------------------------------------------------- roots


@program()
def test_function_itself(t):
    def fn(x):
        fn.calls += 1
        return x + fn.step

    fn.calls, fn.step = 0, 2
    f = t.compile(fn)
    f(T(2))
    f(T(2))
    fn.step = 3
    f(T(2))


@program()
def test_slots_of_the_frame(t):
    def fn(a, /, b, *rest, c=3, **more):
        return a * b + c + sum(rest) + sum(more.values()), rest, more

    f = t.compile(fn)
    f(T(2), 2)
    f.hit(T(2), 2)
    f(T(2), 2, c=4)
    f(T(2), 2, 5, 6)
    f(T(2), 2, z=1)
    f(T(2), b=2)
    f.hit(T(2), 2, 5, 6)
    f(T(2), 2, y=1)


@program()
def test_varargs_and_keywords_are_new_objects(t):
    def fn(x, *args, **kwargs):
        kwargs["q"] = x + 1
        return args, kwargs

    f = t.compile(fn)
    own = {"a": 1}
    f(T(2), 1, **own)
    f.hit(T(2), 1, **own)
    t.note(own)


@program(one_graph=False)
def test_wrong_arguments(t):
    def fn(a, b, *, c):
        return a + b + c

    f = t.compile(fn)
    f(T(2))
    f(T(2), 1)
    f(T(2), 1, 2, 3)
    f(T(2), 1, c=2, d=3)
    f(T(2), 1, c=2)
    f(T(2), a=1, c=2)


@program()
def test_module_dict_as_root(t):
    import math

    t.patch(math, "scale_of_this_test", 2)

    def fn(x):
        return x * math.scale_of_this_test * math.pi

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    math.scale_of_this_test = 3
    f(T(2))


@program()
def test_class_as_root(t):
    class Settings:
        scale = 2

    f = t.compile(lambda x: x * Settings.scale)
    f(T(2))
    f.hit(T(2))
    Settings.unrelated = 1
    f.hit(T(2))
    Settings.scale = 3
    f(T(2))


# ---------------------------------------------------------------------------------------------------------- steps


@program()
def test_type_of(t):
    class A:
        k = 2

    class B:
        k = 3

    f = t.compile(lambda o, x: x * type(o).k * o.__class__.k)
    f(A(), T(2))
    f.hit(A(), T(2))
    f(B(), T(2))


@program()
def test_instance_dict(t):
    def fn(o, x):
        return x * vars(o)["value"] + len(o.__dict__), sorted(o.__dict__)

    f = t.compile(fn)
    f(Box(2), T(2))
    f.hit(Box(2), T(2))
    f(Box(3), T(2))
    more = Box(2)
    more.extra = 1
    f(more, T(2))


@program()
def test_instance_dict_as_an_object(t):
    def fn(o, x):
        d = o.__dict__
        d["made"] = x + 1
        o.other = 2
        return d is o.__dict__, d["other"], o.made, "made" in vars(o)

    f = t.compile(fn)
    f(Box(2), T(2))
    f.hit(Box(2), T(2))


@program()
def test_instance_dict_replaced(t):
    def fn(o, x):
        return x * o.value

    f = t.compile(fn)
    box = Box(2)
    f(box, T(2))
    box.__dict__ = {"value": 3}
    f(box, T(2))
    box.__dict__["value"] = 4
    f(box, T(2))


@program()
def test_dict_of_function_and_of_exception(t):
    def helper():
        pass

    helper.scale = 2

    def fn(e, x):
        return x * helper.scale * e.scale

    def error(scale):
        made = ValueError("v")
        made.scale = scale
        return made

    f = t.compile(fn)
    f(error(2), T(2))
    f(error(2), T(2))
    f(error(3), T(2))
    helper.__dict__["scale"] = 5
    f(error(3), T(2))


@program()
def test_item_by_key_of_any_type(t):
    key = Box(0)

    def fn(d, x):
        return x * d[1] + d["a"] + d[(1, "b")] + d[key] + d[None] + d[2.5] + d[torch.float32]

    def make(n):
        return {1: n, "a": 2, (1, "b"): 3, key: 4, None: 5, 2.5: 6, torch.float32: 7}

    f = t.compile(fn)
    f(make(1), T(2))
    f.hit(make(1), T(2))
    f(make(2), T(2))


@program()
def test_nested_items(t):
    f = t.compile(lambda d, x: x * d["a"]["b"][0]["c"])
    f({"a": {"b": [{"c": 2}]}}, T(2))
    f.hit({"a": {"b": [{"c": 2}]}}, T(2))
    f({"a": {"b": [{"c": 3}]}}, T(2))


@program()
def test_keys_are_lifted_too(t):
    def fn(d, x):
        for key in d:
            key.value += 1
        return x + sum(key.value for key in d)

    f = t.compile(fn)
    f({Box(1): 1, Box(2): 2}, T(2))
    f.hit({Box(1): 1, Box(2): 2}, T(2))
    f({Box(1): 1, Box(5): 2}, T(2))


@program()
def test_tensors_as_keys(t):
    def fn(d, x):
        return [k * v for k, v in d.items()], x in d

    f = t.compile(fn)
    x = T(2)
    f({x: 1, T(2): 2}, x)
    f({T(2): 1, T(2): 2}, x)
    f({T(2): 1, x: 2}, x)


@program()
def test_index(t):
    f = t.compile(lambda items, pair, queue, x: x + items[1] + items[-1] + pair[0] + queue[0])
    f([0, 1, 2], (3, 4), collections.deque([5]), T(2))
    f.hit([9, 1, 2], (3, 9), collections.deque([5]), T(2))
    f([0, 7, 2], (3, 4), collections.deque([5]), T(2))
    f([0, 1, 7], (3, 4), collections.deque([5]), T(2))
    f([0, 1, 2], (7, 4), collections.deque([5]), T(2))
    f([0, 1, 2], (3, 4), collections.deque([7]), T(2))


@program()
def test_element_of_a_set(t):
    def fn(s, x):
        (only,) = s
        return x + only.value

    f = t.compile(fn)
    f({Box(1)}, T(2))
    f({Box(1)}, T(2))
    f({Box(2)}, T(2))


@program()
def test_type_attribute_and_bases(t):
    class Base:
        k = 2

        def scale(self, x):
            return x * self.k

    class Derived(Base):
        pass

    f = t.compile(lambda o, x: o.scale(x))
    f(Derived(), T(2))
    f.hit(Derived(), T(2))
    Base.k = 3
    f(Derived(), T(2))
    Derived.k = 4
    f(Derived(), T(2))
    del Derived.k
    f(Derived(), T(2))
    Derived.scale = lambda self, x: x - 1
    f(Derived(), T(2))


@program()
def test_slots_field(t):
    def fn(o, x):
        return x * o.left, getattr(o, "right", None)

    f = t.compile(fn)
    f(Slotted(2), T(2))
    f.hit(Slotted(2), T(2))
    f(Slotted(3), T(2))
    full = Slotted(2)
    full.right = 9
    f(full, T(2))
    del full.right
    f.hit(full, T(2))


@program()
def test_c_fields(t):
    """Read-only fields of C objects that hold outside references."""

    def fn(p, m, s, x):
        return x * p.args[0] + p.keywords["k"] + m.__self__.value + s.start

    f = t.compile(fn)

    def bound(value):
        return types.MethodType(lambda self: None, Box(value))

    part = functools.partial
    f(part(print, 2, k=3), bound(4), slice(5, 6), T(2))
    f.hit(part(print, 2, k=3), bound(4), slice(5, 6), T(2))
    f(part(print, 3, k=3), bound(4), slice(5, 6), T(2))
    f(part(print, 2, k=4), bound(4), slice(5, 6), T(2))
    f(part(print, 2, k=3), bound(5), slice(5, 6), T(2))
    f(part(print, 2, k=3), bound(4), slice(6, 6), T(2))


@program()
def test_cell_contents(t):
    scale, items = 2.0, [1.0]

    def fn(x):
        return x * scale + items[0]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    scale = 3.0
    f(T(2))
    items[0] = 5.0
    f(T(2))
    items = [1.0]
    f(T(2))


@program()
def test_empty_cell(t):
    def fn(x):
        try:
            return x + late
        except NameError as error:
            return str(error), x

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    late = 3
    f(T(2))
    del late
    f(T(2))


@program()
def test_cell_shared_by_two_functions(t):
    count = 0

    def bump():
        nonlocal count
        count += 1

    def fn(x):
        bump()
        bump()
        return x + count

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    bump()
    f(T(2))


@program()
def test_defaults(t):
    def helper(x, a=2, *, k=3.0, items=[1, 2]):  # noqa: B006
        return x * a + k + items[1]

    def fn(x):
        return helper(x)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    helper.__defaults__ = (5,)
    f(T(2))
    helper.__kwdefaults__["k"] = 4.0
    f(T(2))
    helper.__kwdefaults__ = {"k": 3.0, "items": [1, 7]}
    f(T(2))
    helper.__kwdefaults__["items"][1] = 8
    f(T(2))


@program()
def test_own_defaults(t):
    def fn(x, a=2, *, k=3.0):
        return x * a + k

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2), 2)
    fn.__defaults__ = (5,)
    f(T(2))
    fn.__kwdefaults__["k"] = 4.0
    f(T(2))


@program()
def test_mutable_default(t):
    def fn(x, seen=[]):  # noqa: B006
        seen.append(len(seen))
        return x + len(seen), seen

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    f(T(2), [5])
    f(T(2))


@program()
def test_code_replaced(t):
    def helper(x):
        return x * 2

    def other(x):
        return x * 3

    def fn(x):
        return helper(x)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    helper.__code__ = other.__code__
    f(T(2))


@program()
def test_own_code_replaced(t):
    def fn(x):
        return x * 2

    def other(x):
        return x * 3

    f = t.compile(fn)
    f(T(2))
    fn.__code__ = other.__code__
    f(T(2))


@program()
def test_globals_of_another_function(t):
    code = "def helper(x):\n    global calls\n    calls += 1\n    return x * scale\n"
    space = {"scale": 2, "calls": 0}
    exec(code, space)
    helper = space["helper"]
    t.watch(lambda: (space["scale"], space["calls"]))
    f = t.compile(lambda x: helper(x))
    f(T(2))
    f(T(2))
    space["scale"] = 3
    f(T(2))


@program()
def test_two_functions_of_one_code_in_two_namespaces(t):
    code = compile("def helper(x):\n    return x * scale\n", "two", "exec")
    first, second = {"scale": 2}, {"scale": 3}
    exec(code, first)
    exec(code, second)
    f = t.compile(lambda g, x: g(x))
    f(first["helper"], T(2))
    f(second["helper"], T(2))
    f.hit(first["helper"], T(2))


@program()
def test_globals(t):
    global SCALE, ITEMS, CONFIG
    SCALE, ITEMS, CONFIG = 3, [1, 2], {"b": [1, 2, 3]}

    def fn(x):
        return x * SCALE + len(ITEMS) + CONFIG["b"][1]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    SCALE = 4
    f(T(2))
    ITEMS.append(1)
    f(T(2))
    CONFIG["b"][1] = 9
    f(T(2))
    CONFIG = {"b": [5, 6]}
    f(T(2))
    del CONFIG
    f(T(2))


@program()
def test_globals_function(t):
    global SCALE
    SCALE = 3

    def fn(x):
        space = globals()
        space["MADE"] = space.get("MADE", 0) + 1
        return x * space["SCALE"], "SCALE" in globals()

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    SCALE = 5
    f(T(2))


@program()
def test_method_self_and_function(t):
    class A:
        def __init__(self, n):
            self.n = n

        def scale(self, x):
            return x * self.n

    f = t.compile(lambda m, x: (m(x), m.__self__.n, m.__func__(m.__self__, x), m.__name__))
    f(A(2).scale, T(2))
    f.hit(A(2).scale, T(2))
    f(A(3).scale, T(2))
    f(types.MethodType(lambda self, x: x - self.n, A(2)), T(2))


@program()
def test_stored_bound_method(t):
    class A:
        def __init__(self, n):
            self.n = n
            self.call = self.scale

        def scale(self, x):
            self.n += 1
            return x * self.n

    f = t.compile(lambda o, x: o.call(x))
    f(A(2), T(2))
    f.hit(A(2), T(2))
    f(A(3), T(2))
    other = A(2)
    other.call = A(9).scale
    f(other, T(2))


@program()
def test_default_factory(t):
    def fn(d, x):
        d["made"].append(x)
        return d.default_factory is list, len(d["made"])

    f = t.compile(fn)
    f(collections.defaultdict(list), T(2))
    f.hit(collections.defaultdict(list), T(2))
    f(collections.defaultdict(lambda: [1, 2]), T(2))
    f(collections.defaultdict(list, made=[0]), T(2))


@program()
def test_gradient_as_a_source(t):
    def fn(p):
        return p * 2 if p.grad is None else p - p.grad

    f = t.compile(fn)
    p = nn.Parameter(T(2))
    f(p).sum().backward()
    f(p)
    f(p)
    p.grad = None
    f(p)
    p.grad = T(2, s=4)
    f(p)
    p.grad = T(2).double().float()
    f(p)


@program()
def test_gradient_written(t):
    def fn(p):
        with torch.no_grad():
            if p.grad is not None:
                p.sub_(p.grad, alpha=0.1)
            p.grad = None
        return p * 2

    f = t.compile(fn)
    p = nn.Parameter(T(2))
    f(p).sum().backward()
    f(p).sum().backward()
    f(p)


@program(one_graph=False)
def test_referent_of_a_weak_reference(t):
    a, b = Box(2), Box(3)
    holder = types.SimpleNamespace(ref=weakref.ref(a))
    f = t.compile(lambda x: x * holder.ref().value)
    f(T(2))
    f(T(2))
    a.value = 5
    f(T(2))
    holder.ref = weakref.ref(b)
    f(T(2))


@program()
def test_weak_reference_made_inside(t):
    def fn(o, x):
        r = weakref.ref(o)
        return x + r().value, r() is o

    f = t.compile(fn)
    f(Box(2), T(2))
    f(Box(2), T(2))
    f(Box(3), T(2))


@program()
def test_property_and_class_chain(t):
    class Inner:
        def __init__(self, n):
            self._n = n

        @property
        def n(self):
            return self._n

    class Outer:
        def __init__(self, n):
            self.inner = {"list": [Inner(n)]}

        def __getitem__(self, key):
            return self.inner[key]

    f = t.compile(lambda o, x: x * o["list"][0].n)
    f(Outer(2), T(2))
    f.hit(Outer(2), T(2))
    f(Outer(3), T(2))


@program()
def test_module_tree(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
            self.named = nn.ModuleDict({"act": nn.ReLU()})
            self.scales = nn.ParameterList([nn.Parameter(T(2)) for _ in range(2)])
            self.config = {"n": 2}

        def forward(self, x):
            for layer in self.layers:
                x = self.named["act"](layer(x))
            return x * self.scales[1] * self.config["n"]

    net = Net()
    f = t.compile(net)
    f(T(2, 2)).sum().backward()
    f.hit(T(2, 2))
    net.config["n"] = 3
    f(T(2, 2))
    net.layers[1] = nn.Identity()
    f(T(2, 2))
    net.named["act"] = nn.Tanh()
    f(T(2, 2))
    net.scales[1] = nn.Parameter(T(2, s=3))
    f.hit(T(2, 2))


# ---------------------------------------------------------------------------------------- iterators from before the call


@program()
def test_next_of_an_outside_iterator(t):
    def fn(x, it):
        first = next(it)
        second = next(it, None)
        return x * first, second

    f = t.compile(fn)
    it = iter((1.0, 2.0, 3.0))
    f(T(2), it)
    f(T(2), it)
    t.note(list(it))
    f(T(2), iter((1.0, 2.0, 3.0)))
    f.hit(T(2), iter((1.0, 2.0, 3.0)))
    it = iter(range(5, 50, 5))
    f(T(2), it)
    f(T(2), it)
    t.note(list(it))


@program(one_graph=False)
def test_next_at_the_end(t):
    def fn(x, it):
        try:
            return x * next(it) + next(it), it
        except StopIteration:
            return x - 1, it

    f = t.compile(fn)
    for values in ((1.0, 2.0), (1.0,), (), (3.0, 4.0, 5.0)):
        it = iter(values)
        f(T(2), it)
        f(T(2), it)
        t.note(list(it))


@program()
def test_tensors_and_objects_behind_an_iterator(t):
    def fn(it):
        x = next(it)
        box = next(it)
        box["n"] += 1
        return x * box["n"], box, next(it) is x

    f = t.compile(fn)
    box = {"n": 1.0}
    x = T(2)
    f(iter((x, box, x)))
    f(iter((x, box, x)))
    f(iter((x, box, T(2))))


@program(one_graph=False)
def test_an_iterator_made_before_a_break(t):
    def fn(x):
        it = iter((1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
        x = x + next(it)
        if x.sum() > 0:
            x = x * next(it)
        x = x + next(it)
        left = []
        for n in it:
            left.append(n)
            x = x + next(it, 0.0)
            if x.sum() > 1000:
                break
        return x, left, it

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    f(T(2) - 5)
    f(T(2) - 5)


@program()
def test_whether_an_object_can_be_referred_to_weakly(t):
    box, slotted = Box(1.0), Slotted(2.0)

    def fn(x, v):
        box.value = v
        answers = [hasattr(o, "__weakref__") for o in (box, slotted, v)]
        return x + box.value, answers

    f = t.compile(fn)
    f(T(2), 3.0)
    f(T(2), 3.0)
    reference = weakref.ref(box)
    f(T(2), 3.0)
    f(T(2), Box(4.0).value)
    del reference
    f(T(2), 4.0)

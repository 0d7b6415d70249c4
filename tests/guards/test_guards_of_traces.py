"""Every guard kind of lift/sources/guards.def, and the ambient state: one call that keeps it, one that breaks it."""

from __future__ import annotations

import collections

import torch
from harness import T, program
from torch import nn
from trace_support import in_child

import alternator


class Box:
    def __init__(self, value=1):
        self.value = value


# ---------------------------------------------------------------------------------------------- type, is, equals


@program()
def test_type(t):
    class Sub(list):
        pass

    f = t.compile(lambda o, x: (isinstance(o, list), isinstance(o, tuple), x + len(o)))
    f([1], T(2))
    f.hit([2], T(2))
    f((1,), T(2))
    f(Sub([1]), T(2))
    f("a", T(2))
    f({1: 2}, T(2))


@program()
def test_isinstance_dispatch(t):
    def fn(v, x):
        if isinstance(v, (int, float)):
            return x + v
        if isinstance(v, torch.Tensor):
            return x * v
        return x if v is None else [x]

    f = t.compile(fn)
    f(1, T(2))
    f(T(2), T(2))
    f(None, T(2))
    f([1], T(2))
    f(1.5, T(2))
    f.hit(1, T(2))


@program()
def test_none_or_tensor(t):
    def fn(x, mask=None):
        return x if mask is None else x * mask

    f = t.compile(fn)
    f(T(2))
    f(T(2), T(2))
    f(T(2), None)
    f.hit(T(2))
    f.hit(T(2), T(2))


@program()
def test_is(t):
    a, b = Box(), Box()

    def fn(o, x):
        return x + 1 if o is a else x + 2

    f = t.compile(fn)
    f(a, T(2))
    f(b, T(2))
    f.hit(a, T(2))
    f.hit(Box(), T(2))


@program()
def test_is_function(t):
    def fn(g, x):
        return x * 2 if g is torch.relu else g(x)

    f = t.compile(fn)
    f(torch.relu, T(2))
    f(torch.sin, T(2))
    f.hit(torch.relu, T(2))


@program()
def test_equals(t):
    f = t.compile(lambda n, s, k, x: x * n if s == "mul" else x + k)
    f(2, "mul", 3, T(2))
    f.hit(2, "mul", 99, T(2))
    f(3, "mul", 3, T(2))
    f(2, "add", 3, T(2))
    f(2, "add", 4, T(2))


@program()
def test_equals_on_a_whole_container(t):
    def fn(table, x):
        return x + sum(k * sum(v) for k, v in table.items())

    def make():
        return {i: [i, i + 1] for i in range(200)}

    f = t.compile(fn)
    f(make(), T(2))
    f.hit(make(), T(2))
    other = make()
    other[100][1] = 0
    f(other, T(2))
    other = make()
    other[5] = [5.0, 6]
    f(other, T(2))
    other = make()
    other[200] = []
    f(other, T(2))


@program()
def test_a_whole_container_that_aliases_itself(t):
    """One equality guard over lists of plain values still has to notice which list is which."""

    def fn(rows, x):
        rows[0].append(9)
        return x + sum(len(row) for row in rows)

    f = t.compile(fn)
    f([[1], [1]], T(2))
    one = [1]
    f([one, one], T(2))
    f([[1], [1]], T(2))


@program()
def test_a_users_eq_is_never_called_by_guards(t):
    calls = []

    class Odd:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            calls.append(self.n)
            return True

        def __hash__(self):
            calls.append("hash")
            return 5

    def fn(o, x):
        return x * o.n

    t.watch(lambda: calls)
    f = t.compile(fn)
    f(Odd(2), T(2))
    f.hit(Odd(2), T(2))
    f(Odd(3), T(2))
    g = t.compile(lambda d, k, x: x * d[k])
    key = Odd(1)
    g({key: 2}, key, T(2))
    g({key: 2}, key, T(2))
    g({Odd(1): 3}, key, T(2))


# -------------------------------------------------------------------------------------------------------- tensors


@program()
def test_tensor_shape_dtype_stride_grad(t):
    def fn(x):
        return x.reshape(-1) * x.shape[0], x.stride(), x.dtype, (x * 2).requires_grad

    f = t.compile(fn)
    f(T(2, 3))
    f.hit(T(2, 3))
    f(T(3, 2))
    f(T(3, 2).t())
    f(T(2, 3, dtype=torch.float64))
    f(T(2, 3, rg=True))
    f(T(4, 6)[::2, ::2])
    f.hit(T(2, 3))


@program()
def test_tensor_attributes_of_autograd(t):
    f = t.compile(lambda h: h * 2 if h.is_leaf else h * 3)
    f(T(2, rg=True))
    f(T(2, rg=True) * 2)
    f.hit(T(2, rg=True))
    g = t.compile(lambda h: (h.grad_fn is None, h + 1))
    g(T(2, rg=True))
    g(T(2, rg=True) * 2)
    g(T(2))


@program()
def test_tensor_version(t):
    f = t.compile(lambda h: (h._version, h + 1))
    f(T(2))
    x = torch.zeros(2)
    f(x)
    f(x.add_(1))
    f(x)


@program()
def test_tensor_is_view(t):
    f = t.compile(lambda h: (h._is_view(), h._base is None, h + 1))
    f(torch.ones(2, 2))
    f(torch.ones(2, 2).view(4))
    f(torch.ones(2, 2)[:1])
    f(torch.ones(2, 2))


@program()
def test_storage_offset(t):
    f = t.compile(lambda h: (h.storage_offset(), h.as_strided((2,), (1,)) + 1))
    base = T(6)
    f(base)
    f(base[2:])
    f(base[:4])


@program()
def test_zero_and_one_sizes(t):
    def fn(x):
        if x.shape[0] == 0:
            return x.sum()
        return x.squeeze(0) if x.shape[0] == 1 else x[1]

    f = t.compile(fn)
    f(T(3, 2))
    f(T(1, 2))
    f(T(0, 2))
    f(T(3, 2))


@program()
def test_broadcast_and_expanded(t):
    f = t.compile(lambda x, y: x + y)
    f(T(2, 3), T(2, 3))
    f(T(2, 3), T(1, 3))
    f(T(2, 3), T(1, 3).expand(2, 3))
    f(T(2, 3), T(1))


# ------------------------------------------------------------------------------------------ lengths, truth, keys


@program()
def test_length(t):
    f = t.compile(lambda items, x: x + len(items))
    for maker in (list, tuple, set, collections.deque, dict.fromkeys):
        f(maker([1, 2]), T(2))
        f.hit(maker([3, 4]), T(2))
        f(maker([3, 4, 5]), T(2))


@program()
def test_truth(t):
    f = t.compile(lambda items, x: x + 1 if items else x - 1)
    f([1], T(2))
    f.hit([1, 2], T(2))
    f([], T(2))
    f.hit([], T(2))
    f({}, T(2))
    f({1: 1}, T(2))
    f.hit({1: 1, 2: 2}, T(2))
    f("", T(2))
    f(0, T(2))
    f(5, T(2))


@program()
def test_keys_in_order(t):
    f = t.compile(lambda d, x: ([k for k in d], list(d.values()), x + 1))
    f({"a": 1, "b": 2}, T(2))
    f.hit({"a": 1, "b": 2}, T(2))
    f({"b": 2, "a": 1}, T(2))
    f({"a": 1, "c": 2}, T(2))
    f({"a": 1}, T(2))


@program()
def test_keys_equal_but_not_the_same(t):
    f = t.compile(lambda d, x: (list(d), x + 1))
    f({1: 2}, T(2))
    f({True: 2}, T(2))
    f({1.0: 2}, T(2))
    f.hit({1: 2}, T(2))


@program()
def test_has_key(t):
    f = t.compile(lambda d, x: x + 1 if "a" in d else x - 1)
    f({"a": 1}, T(2))
    f.hit({"a": 2, "b": 1}, T(2))
    f({"b": 1}, T(2))
    f.hit({}, T(2))


@program()
def test_lacks_key(t):
    def fn(d, x):
        try:
            return x + d["a"]
        except KeyError as error:
            return x - 1, error.args

    f = t.compile(fn)
    f({}, T(2))
    f.hit({"b": 1}, T(2))
    f({"a": 1}, T(2))
    f.hit({"a": 1, "b": 2}, T(2))


@program()
def test_get_with_default_and_setdefault(t):
    def fn(d, x):
        d.setdefault("made", []).append(1)
        return x + d.get("a", 5), d.pop("b", None)

    f = t.compile(fn)
    f({}, T(2))
    f.hit({}, T(2))
    f({"a": 1}, T(2))
    f({"b": 1}, T(2))
    f({"made": [0]}, T(2))


# ---------------------------------------------------------------------------------------------------- code, absent


@program()
def test_code(t):
    def make(n):
        return lambda x: x * n

    f = t.compile(lambda g, x: g(x))
    f(make(2), T(2))
    f.hit(make(2), T(2))
    f(make(3), T(2))
    f(lambda x: x * 2, T(2))


@program()
def test_absent_instance_attribute(t):
    f = t.compile(lambda o, x: x * getattr(o, "scale", 2))
    f(Box(), T(2))
    f.hit(Box(), T(2))
    other = Box()
    other.scale = 5
    f(other, T(2))


@program()
def test_absent_class_attribute_appears(t):
    class A:
        pass

    class B(A):
        pass

    f = t.compile(lambda o, x: x * getattr(o, "scale", 2))
    f(B(), T(2))
    f.hit(B(), T(2))
    A.scale = 3
    f(B(), T(2))
    B.scale = 4
    f(B(), T(2))
    del A.scale, B.scale
    f(B(), T(2))


@program()
def test_hasattr(t):
    class A:
        pass

    f = t.compile(lambda o, x: x + 1 if hasattr(o, "extra") else x - 1)
    one = A()
    f(one, T(2))
    one.extra = 1
    f(one, T(2))
    del one.extra
    f.hit(one, T(2))
    A.extra = 2
    f(one, T(2))


@program()
def test_a_data_descriptor_appears(t):
    """An instance attribute loses to a data descriptor that its class gets later."""

    class A:
        def __init__(self):
            self.scale = 2

    f = t.compile(lambda o, x: x * o.scale)
    one = A()
    f(one, T(2))
    A.scale = property(lambda self: 7)
    f(one, T(2))
    del A.scale
    f(one, T(2))


@program()
def test_getattr_hook_appears(t):
    class A:
        pass

    def fn(o, x):
        return x * getattr(o, "scale", 2)

    f = t.compile(fn)
    f(A(), T(2))
    A.__getattr__ = lambda self, name: 5
    f(A(), T(2))
    del A.__getattr__
    f(A(), T(2))


@program()
def test_getattribute_hook_appears(t):
    class A:
        scale = 3

    f = t.compile(lambda o, x: x * o.scale)
    f(A(), T(2))
    A.__getattribute__ = lambda self, name: 5
    f(A(), T(2))
    del A.__getattribute__
    f(A(), T(2))


@program()
def test_a_global_that_hides_a_builtin_later(t):
    def fn(items, x):
        return x + len(items)

    f = t.compile(fn)
    f([1, 2], T(2))
    f.hit([1, 2], T(2))
    globals()["len"] = lambda v: 50
    f([1, 2], T(2))
    del globals()["len"]
    f([1, 2], T(2))


@program()
def test_a_builtin_is_replaced(t):
    import builtins

    def fn(items, x):
        return x + sum(items)

    f = t.compile(fn)
    f([1, 2], T(2))
    old = builtins.sum
    t.patch(builtins, "sum", lambda v: 50)
    f([1, 2], T(2))
    builtins.sum = old
    f([1, 2], T(2))


@program()
def test_a_torch_function_is_replaced(t):
    f = t.compile(lambda x: torch.relu(x))
    f(T(2))
    old = torch.relu
    t.patch(torch, "relu", torch.tanh)
    f(T(2))
    torch.relu = old
    f(T(2))


@program()
def test_an_imported_name_inside_the_function(t):
    import math

    def fn(x):
        import math as inner
        from math import pi

        return x * inner.pi + pi

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    t.patch(math, "pi", 3.0)
    f(T(2))


# ------------------------------------------------------------------------------------------------ identity pattern


@program()
def test_same(t):
    def fn(a, b):
        a.append(1)
        b.append(2)
        return a is b, len(a), a, b

    f = t.compile(fn)
    one = []
    f([], [])
    f(one, one)
    f([], [])
    f(one, one)
    other = []
    f(other, other)


@program()
def test_distinct_objects(t):
    def fn(a, b):
        a.value = 1
        b.value = 2
        return a.value

    f = t.compile(fn)
    one = Box()
    f(Box(), Box())
    f(one, one)
    f(Box(), Box())


@program()
def test_distinct_tensors(t):
    def fn(a, b):
        a.add_(1)
        return a + b

    f = t.compile(fn)
    one = T(2)
    f(T(2), T(2))
    f(one, one)
    f(T(2), T(2))


@program()
def test_identity_in_membership(t):
    f = t.compile(lambda o, items, x: (o in items, o == items[0], x + 1))
    one = Box()
    f(one, [Box(), Box()], T(2))
    f(one, [Box(), one], T(2))
    f(one, [one, Box()], T(2))
    f(one, [Box(), Box()], T(2))


@program()
def test_identity_in_dict_keys(t):
    f = t.compile(lambda d, o, x: (d.get(o, 5), x + 1))
    one = Box()
    f({Box(): 1}, one, T(2))
    f({one: 1}, one, T(2))
    f({Box(): 1}, one, T(2))


# -------------------------------------------------------------------------------------------------- special methods


@program()
def test_special_methods(t):
    class Number:
        def __init__(self, n):
            self.n = n

        def __add__(self, other):
            return Number(self.n + other.n)

        def __len__(self):
            return self.n

    f = t.compile(lambda a, b, x: x * (a + b).n + len(a))
    f(Number(1), Number(2), T(2))
    f.hit(Number(1), Number(2), T(2))
    Number.__add__ = lambda self, other: Number(100)
    f(Number(1), Number(2), T(2))
    Number.__len__ = lambda self: 7
    f(Number(1), Number(2), T(2))


@program()
def test_special_methods_that_appear(t):
    class A:
        pass

    def fn(a, b, x):
        return a == b, bool(a), hash(a) == hash(b), x + 1

    f = t.compile(fn)
    a, b = A(), A()
    f(a, b, T(2))
    A.__eq__ = lambda self, other: True
    f(a, b, T(2))
    A.__bool__ = lambda self: False
    f(a, b, T(2))
    A.__hash__ = lambda self: 3
    f(a, b, T(2))
    del A.__eq__, A.__bool__
    f(a, b, T(2))


@program()
def test_call_special_method(t):
    class A:
        def __call__(self, x):
            return x * 2

    f = t.compile(lambda a, x: a(x))
    one = A()
    f(one, T(2))
    A.__call__ = lambda self, x: x * 3
    f(one, T(2))
    one.__call__ = lambda x: x * 4  # has no effect
    f(one, T(2))


# ---------------------------------------------------------------------------------------------------- ambient state


@program()
def test_grad_mode(t):
    f = t.compile(lambda x: (x * 2, torch.is_grad_enabled()))
    x = T(2, rg=True)
    f(x)
    with torch.no_grad():
        f(x)
        f.hit(x)
    f.hit(x)
    with torch.inference_mode():
        f(x)
    f.hit(x)


@program()
def test_inference_mode(t):
    f = t.compile(lambda x: (x * 2, torch.is_inference_mode_enabled()))
    with torch.no_grad():
        f(T(2))
    with torch.inference_mode():
        f(T(2))
    with torch.no_grad():
        f.hit(T(2))


@program(one_graph=False)
def test_flags_of_backends(t):
    cudnn, deterministic = torch.backends.cudnn, torch.utils.deterministic

    def fn(x):
        return x + 1, cudnn.benchmark, cudnn.deterministic, deterministic.fill_uninitialized_memory

    f = t.compile(fn)
    f(T(2))
    for owner, name in (
        (cudnn, "benchmark"),
        (cudnn, "deterministic"),
        (deterministic, "fill_uninitialized_memory"),
    ):
        old = getattr(owner, name)
        t.undo(lambda owner=owner, name=name, old=old: setattr(owner, name, old))
        setattr(owner, name, not old)
        f(T(2))
        setattr(owner, name, old)
        f(T(2))


@program(one_graph=False)
def test_torch_functions_switched_off(t):
    f = t.compile(lambda x: (x + 1, torch._C._is_torch_function_enabled(), torch._C._is_torch_function_all_disabled()))
    f(T(2))
    with torch._C.DisableTorchFunctionSubclass():
        f(T(2))
    with torch._C.DisableTorchFunction():
        f(T(2))
    f(T(2))


@program(one_graph=False)
def test_saved_tensors_hooks_around_a_call(t):
    f = t.compile(lambda x: (x * x).sum())
    x = T(2, rg=True)
    f(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda v: v * 2, lambda v: v):
        y = f(x)
    y.backward()
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        f(x)
    f(x)


@program()
def test_inference_tensor_input(t):
    f = t.compile(lambda x: x * 2)
    with torch.inference_mode():
        x = T(2)
        f(x)
    f(x)
    f(T(2))


@program()
def test_autocast(t):
    f = t.compile(lambda x: (x @ x).dtype)
    f(T(2, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        f(T(2, 2))
    with torch.autocast("cpu", dtype=torch.float16):
        f(T(2, 2))
    f.hit(T(2, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        f.hit(T(2, 2))


@program()
def test_autocast_cache_and_other_devices(t):
    f = t.compile(lambda x: ((x @ x).dtype, torch.is_autocast_enabled("cuda"), torch.is_autocast_cache_enabled()))
    f(T(2, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        f(T(2, 2))
    f.hit(T(2, 2))


@program()
def test_default_dtype(t):
    f = t.compile(lambda x: (torch.ones(2) + x, torch.get_default_dtype(), torch.tensor(1.5)))
    f(T(2))
    t.undo(lambda: torch.set_default_dtype(torch.float32))
    torch.set_default_dtype(torch.float64)
    f(T(2))
    torch.set_default_dtype(torch.float32)
    f.hit(T(2))


@program(one_graph=False)
def test_default_device(t):
    f = t.compile(lambda x: (torch.ones(2).device.type, x + 1))
    f(T(2))
    with torch.device("meta"):
        f(torch.arange(2, device="cpu"))
    f(T(2))
    t.undo(lambda: torch.set_default_device(None))
    torch.set_default_device("meta")
    f(torch.zeros(2, device="cpu"))
    torch.set_default_device(None)
    f(T(2))


@program()
def test_deterministic_flags(t):
    f = t.compile(lambda x: (torch.are_deterministic_algorithms_enabled(), x + 1))
    f(T(2))
    t.undo(lambda: torch.use_deterministic_algorithms(False))
    torch.use_deterministic_algorithms(True)
    f(T(2))
    torch.use_deterministic_algorithms(False)
    f(T(2))


@program(one_graph=False)
def test_torch_function_mode(t):
    class Doubling(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.sin else result

    f = t.compile(lambda x: torch.sin(x))
    f(T(2))
    with Doubling():
        f(T(2))
    f(T(2))


@program(one_graph=False)
def test_torch_dispatch_mode(t):
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Listening(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    t.watch(lambda: names)
    f = t.compile(lambda x: torch.sin(x) + 1)
    f(T(2))
    with Listening():
        f(T(2))
    f(T(2))


@program(one_graph=False)
def test_saved_tensor_hooks(t):
    packed = []

    def pack(x):
        packed.append(tuple(x.shape))
        return x

    t.watch(lambda: packed)
    f = t.compile(lambda x: (x.sin() * x).sum())
    f(T(2, rg=True)).backward()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        f(T(2, rg=True)).backward()
    f(T(2, rg=True)).backward()


@program(one_graph=False)
def test_functorch_level(t):
    f = t.compile(lambda x: x.sum() * 2)
    f(T(3))
    t.note(torch.vmap(lambda x: f.call(x))(T(2, 3)))
    t.note(torch.func.grad(lambda x: f.call(x))(T(3)))
    f(T(3))


@program(one_graph=False)
def test_anomaly_mode(t):
    f = t.compile(lambda x: (x * 2).sum())
    f(T(2, rg=True)).backward()
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        f(T(2, rg=True)).backward()
    f(T(2, rg=True)).backward()


@program()
def test_anomaly_mode_and_inputs_with_a_history(t):
    f = t.compile(lambda x: (x * 2).sum())
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        f(T(2, rg=True) * 3)
        f.hit(T(2, rg=True) * 3)
    f(T(2, rg=True) * 3)


@program()
def test_training_flag_and_submodules(t):
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    f = t.compile(net)
    f(T(2, 4))
    f.hit(T(2, 4))
    net.eval()
    f(T(2, 4))
    net[1].train()
    f(T(2, 4))
    net.train()
    f.hit(T(2, 4))


@program()
def test_defaults_that_were_missing(t):
    """A call that could not be made may be made once the function has defaults."""

    def positional(x, a=1):
        return x + a

    def named(x, *, a=1, b=2):
        return x + a + b

    class Made:
        def __init__(self, a=1):
            self.a = a

    def fn(x, h, k):
        found = []
        for call in (lambda: h(x), lambda: k(x), lambda: sorted([2, 1], key=h), Made):
            try:
                found.append(call())
            except TypeError as error:
                found.append(str(error))
        return x * 2, len(found), [text for text in found if isinstance(text, str)]

    f = t.compile(fn)
    positional.__defaults__ = named.__kwdefaults__ = Made.__init__.__defaults__ = None
    f(T(2), positional, named)
    f.hit(T(2), positional, named)
    positional.__defaults__ = (4,)
    f(T(2), positional, named)
    named.__kwdefaults__ = {"a": 4}
    f(T(2), positional, named)
    named.__kwdefaults__ = {"a": 4, "b": 5}
    f(T(2), positional, named)
    Made.__init__.__defaults__ = (1,)
    f(T(2), positional, named)


@program()
def test_class_attributes_that_become_descriptors(t):
    """What an instance has of its own hides a plain value of its class, but not a property."""

    class Late:
        pass

    class Held:
        v = 7
        d = Late()
        w = 3

    class Set(Held):
        def __init__(self, v):
            self.v = v
            self.d = 1

    class Read(Held):
        def __init__(self):
            self.__dict__["v"] = 1

    class Deleted(Held):
        def __init__(self):
            self.w = 1
            del self.w

    held = Held()
    held.v = 2

    def fn(x):
        held.w = 5
        Deleted()
        return x * 2, sorted(vars(Set(x))), Read().v, held.v

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    f.hit(T(2))
    Held.v = property(lambda self: 3, lambda self, value: None)
    f(T(2))
    Late.__set__ = lambda self, instance, value: None
    f(T(2))
    Held.w = property(lambda self: 3, lambda self, value: None, lambda self: None)
    f(T(2))


@program(one_graph=False)
def test_metaclasses_that_see_writes(t):
    class Meta(type):
        pass

    class Base(metaclass=Meta):
        pass

    seen = []

    def fn(x):
        Base.q = 1
        return x + 1

    def deletes(x):
        del Base.q
        return x + 1

    t.watch(lambda: list(seen))
    f, g = t.compile(fn), t.compile(deletes)
    for _ in range(2):
        f(T(2))
        g(T(2))
    Meta.__setattr__ = lambda cls, name, value: seen.append(name)
    f(T(2))
    Meta.__delattr__ = lambda cls, name: seen.append(name)
    g(T(2))


@program()
def test_attributes_that_are_put_on_tensors_class(t):
    def fn(x):
        return getattr(x, "zork", 3), x * 2

    f = t.compile(fn)
    f(T(2))
    for value in (5, 6, property(lambda self: self.shape[0]), staticmethod(lambda: 4)):
        torch.Tensor.zork = value
        f(T(2))
        f.hit(T(2))
        del torch.Tensor.zork
        f(T(2))


@program()
def test_the_text_of_a_class_with_a_metaclass(t):
    class Meta(type):
        pass

    class Named(metaclass=Meta):
        pass

    f = t.compile(lambda x: (x + 1, f"{Named}".rsplit(".", 1)[-1]))
    f(T(2))
    f.hit(T(2))
    Named.__qualname__ = "Renamed"
    f(T(2))


@program()
def test_methods_that_were_bound_before(t):
    items = [1, 2]
    length, order = items.__len__, type.__dict__["__mro__"].__get__

    class First:
        pass

    class Second(First):
        pass

    f = t.compile(lambda x, length, order: (x * length(), len(order(Second))))
    f(T(2), length, order)
    items.append(3)
    f(T(2), length, order)
    f.hit(T(2), length, order)
    f(T(2), items.__sizeof__.__class__ and [1].__len__, order)
    f(T(2), {1, 2}.__len__, order)


@in_child
def test_torch_jit_trace(front):
    """It sees the operations of eager, inside of a compiled function and around one."""

    class Net(nn.Module):
        def forward(self, x):
            return torch.relu(x) + x.size(0)

    def fn(x):
        return torch.jit.trace(Net(), (x,))(x)

    x = T(3, 4)
    compiled = alternator.compile(fn, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x), fn(x))
    net = alternator.compile(Net(), backend="eager")
    assert torch.equal(net(x), Net()(x))
    kinds = [node.kind() for node in torch.jit.trace(lambda x: net(x), (x,)).graph.nodes()]
    assert "aten::relu" in kinds

"""Classes with a `__torch_function__`: it is traced in place of the calls that torch hands to it, as often as eager runs it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import T, program
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function, has_torch_function_unary

import alternator

SEEN: list[object] = []


def name_of(func):
    return getattr(func, "__name__", "?")


class Wrapping(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs)


class Telling(torch.Tensor):
    scale = 1

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append((cls.__name__, name_of(func), [each.__name__ for each in types], len(args), kwargs is None))
        return super().__torch_function__(func, types, args, kwargs)


class Finer(Telling):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append("finer")
        return super().__torch_function__(func, types, args, kwargs or {})


class Other(torch.Tensor):
    """Knows nothing of the classes above, and says so."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(("other", name_of(func), [each.__name__ for each in types]))
        if not all(issubclass(each, (Other, torch.Tensor)) and each is not Telling for each in types):
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs)


class Unwrapping(torch.Tensor):
    """Computes by itself what it is asked for."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(name_of(func))
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result * 2 if isinstance(result, torch.Tensor) and result.is_floating_point() else result


class Off(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Through(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(name_of(func))
        return torch._C._disabled_torch_function_impl(func, types, args, kwargs or {})


class Static(torch.Tensor):
    @staticmethod
    def __torch_function__(func, types, args=(), kwargs=None):
        SEEN.append(name_of(func))
        return torch.Tensor.__torch_function__.__func__(Static, func, types, args, kwargs)


class Plain(torch.Tensor):
    pass


class Duck:
    """No tensor at all."""

    def __init__(self, tensor, factor=2):
        self.tensor, self.factor = tensor, factor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append((name_of(func), [each.__name__ for each in types]))
        factor = max(each.factor for each in args if isinstance(each, Duck))
        plain = [each.tensor if isinstance(each, Duck) else each for each in args]
        return Duck(func(*plain, **(kwargs or {})) * factor)


def watch(t):
    SEEN.clear()
    t.watch(lambda: list(SEEN))


def of(cls, *shape, s=0.0, rg=False):
    return T(*shape, s=s, rg=rg).as_subclass(cls)


@program()
def test_a_wrapper(t):
    def fn(x):
        x = F.sigmoid(x)
        x = x.sigmoid()
        return torch.sigmoid(x) + 1

    f = t.compile(fn)
    t.note(type(f(of(Wrapping, 3))).__name__)
    t.note(type(f.hit(of(Wrapping, 3, s=1))).__name__)
    f(T(3))
    f.hit(of(Wrapping, 3, s=2))


@program()
def test_it_is_called_as_often_as_in_eager(t):
    watch(t)

    def fn(x, y):
        z = x * y + 2
        z = 1 - z
        return z.relu().sum(dim=0), torch.add(x, y, alpha=2), -x, x == y

    f = t.compile(fn)
    f(of(Telling, 3), of(Telling, 3, s=1))
    f.hit(of(Telling, 3, s=2), of(Telling, 3))
    f(of(Telling, 3), T(3))
    f(T(3), of(Telling, 3))


@program()
def test_a_patched_method(t):
    watch(t)

    class Mine(torch.Tensor):
        scale = 2

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            SEEN.append("first")
            result = super().__torch_function__(func, types, args, kwargs)
            return super().__torch_function__(torch.mul, (cls,), (result, cls.scale))

    def second(cls, func, types, args=(), kwargs=None):
        SEEN.append("second")
        return torch.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs)

    f = t.compile(lambda x: x + 1)
    f(of(Mine, 3))
    f.hit(of(Mine, 3))
    Mine.scale = 3
    f.miss(of(Mine, 3))
    f.hit(of(Mine, 3))
    Mine.__torch_function__ = classmethod(second)
    f.miss(of(Mine, 3))
    f.hit(of(Mine, 3))
    del Mine.__torch_function__
    f.miss(of(Mine, 3))
    f.hit(of(Mine, 3))
    Mine.__torch_function__ = torch._C._disabled_torch_function_impl
    f.miss(of(Mine, 3))


@program()
def test_a_class_that_gets_one_later(t):
    class Mine(torch.Tensor):
        pass

    watch(t)

    def tells(cls, func, types, args=(), kwargs=None):
        SEEN.append(name_of(func))
        return torch.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs)

    f = t.compile(lambda x: torch.cat([x, x]))
    f(of(Mine, 3))
    Mine.__torch_function__ = classmethod(tells)
    f.miss(of(Mine, 3))
    f.hit(of(Mine, 3))


@program(one_graph=False)
def test_a_tensor_that_has_one_itself(t):
    watch(t)

    def own(func, types, args=(), kwargs=None):
        SEEN.append("own")
        return 5

    f = t.compile(lambda x: torch.relu(x))
    f(of(Telling, 3))
    x = of(Telling, 3)
    x.__torch_function__ = own
    f(x)


@program()
def test_two_classes(t):
    watch(t)
    f = t.compile(lambda x, y: (torch.mul(x, y), x + y))
    f(of(Other, 3), T(3))
    f(of(Finer, 3), of(Telling, 3, s=1))
    f(of(Telling, 3), of(Finer, 3, s=1))
    f(of(Telling, 3), of(Finer, 3, s=2))


@program(one_graph=False)
def test_nobody_knows_the_other(t):
    watch(t)

    def fn(x, y):
        try:
            return torch.mul(x, y)
        except TypeError as error:
            return str(error)

    f = t.compile(fn)
    f(of(Telling, 3), of(Other, 3))
    f(of(Other, 3), of(Telling, 3))
    f(of(Other, 3), T(3))


@program()
def test_one_says_not_implemented_and_the_next_does_it(t):
    watch(t)

    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            SEEN.append("refuses")
            return NotImplemented

    class Taking(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            SEEN.append("takes")
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {})).as_subclass(cls)

    f = t.compile(lambda x, y: torch.mul(x, y))
    f(of(Refusing, 3), of(Taking, 3))
    f.hit(of(Refusing, 3), of(Taking, 3))
    f(of(Taking, 3), of(Refusing, 3))


@program()
def test_lists(t):
    watch(t)

    def fn(x, y):
        return torch.cat([x, y]), torch.stack((y, x)), torch.cat(tensors=[y, y])

    f = t.compile(fn)
    f(T(3), of(Telling, 3))
    f.hit(T(3, s=1), of(Telling, 3, s=1))
    f(of(Telling, 3), of(Finer, 3))


@program()
def test_writes(t):
    watch(t)

    def fn(x, y):
        x += 1
        x.mul_(y)
        torch.add(x, y, out=x)
        x[0] = 5
        x[1:] = y[1:]
        return x

    f = t.compile(fn)
    f(of(Telling, 3), of(Telling, 3, s=1))
    f.hit(of(Telling, 3), of(Telling, 3, s=2))
    f(of(Telling, 3), T(3))
    f(T(3), of(Telling, 3))


@program()
def test_attributes(t):
    watch(t)

    def fn(x):
        return (
            x.shape,
            x.dtype,
            x.T + 1,
            x.data * 2,
            x.requires_grad,
            x.ndim,
            x.device.type,
            x.is_leaf,
            x.size(0),
            len(x),
        )

    f = t.compile(fn)
    f(of(Telling, 3, 2))
    f.hit(of(Telling, 3, 2, s=1))
    f(of(Unwrapping, 3, 2))
    f(of(Through, 3, 2))


@program()
def test_attributes_that_the_method_answers(t):
    class Answering(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            SEEN.append(name_of(func))
            if func is torch.Tensor.shape.__get__:
                return (5,)
            return torch.ones(2)

    watch(t)
    f = t.compile(lambda x: (x.shape[0] + 1, x + 1, x.grad))
    f(of(Answering, 3))
    f.hit(of(Answering, 3))


@program()
def test_the_gradient_field(t):
    watch(t)
    x = T(3, rg=True).detach().as_subclass(Telling).requires_grad_()
    with torch._C.DisableTorchFunctionSubclass():
        x.grad = torch.ones(3)
    f = t.compile(lambda x: x * 2 if x.grad is None else x.grad * 3)
    f(x)
    f(x)
    f(of(Telling, 3))


@program()
def test_indices(t):
    watch(t)

    def fn(x, i):
        return x[0], x[i], x[None, 1:], x[..., i]

    f = t.compile(fn)
    i = torch.tensor([0, 2])
    f(of(Telling, 3), i)
    f.hit(of(Telling, 3, s=1), i)
    f(T(3), i.as_subclass(Telling))
    f(of(Telling, 3), i.as_subclass(Telling))


@program()
def test_gradients(t):
    watch(t)

    def fn(x, y):
        return (torch.sigmoid(x) * y).sum()

    f = t.compile(fn)
    for cls, s in ((Telling, 0), (Telling, 1), (Unwrapping, 0)):
        x, y = T(3, s=s, rg=True), T(3, s=s + 1, rg=True)
        with torch._C.DisableTorchFunctionSubclass():
            out = f(x.as_subclass(cls), y)
            out.backward()
        t.note((x.grad, y.grad))
        f(x.as_subclass(cls), y)


@program()
def test_gradients_of_leaves(t):
    f = t.compile(lambda x: torch.sigmoid(x * 2).sum())
    for s in (0, 1):
        x = T(3, s=s).as_subclass(Telling).requires_grad_()
        f(x).backward()
        t.note((x.grad, type(x.grad).__name__))


@program()
def test_without_subclasses(t):
    watch(t)

    def fn(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x + 1
            z = torch.cat([x, y])
        return y, z, x * 2, type(y) is torch.Tensor

    f = t.compile(fn)
    for cls in (Telling, Plain, Off, torch.Tensor):
        f(of(cls, 3))
        f.hit(of(cls, 3, s=1))


@program(one_graph=False)
def test_a_break_without_subclasses(t):
    watch(t)

    def fn(x):
        with torch._C.DisableTorchFunctionSubclass():
            y = x + 1
            alternator.graph_break()
            z = x * y
        return y, z, x * 2

    f = t.compile(fn)
    for cls in (Telling, Plain):
        f(of(cls, 3))
        f(of(cls, 3, s=1))


@program()
def test_without_subclasses_around_the_call(t):
    watch(t)
    f = t.compile(lambda x: x + 1)
    f(of(Telling, 3))
    with torch._C.DisableTorchFunctionSubclass():
        f(of(Telling, 3))
        f.hit(of(Telling, 3))
    f.hit(of(Telling, 3))


@program()
def test_one_that_is_switched_off(t):
    f = t.compile(lambda x: (x + 1, torch.cat([x, x])))
    t.note([type(each).__name__ for each in f(of(Off, 3))])
    f.hit(of(Off, 3, s=1))


@program()
def test_through_torchs_own(t):
    watch(t)
    f = t.compile(lambda x: (x + 1, torch.sum(x, dim=0, keepdim=True)))
    f(of(Through, 3))
    f.hit(of(Through, 3, s=1))
    f(of(Static, 3))
    f.hit(of(Static, 3))


@program()
def test_functions_of_torch_that_are_python(t):
    watch(t)

    def fn(x):
        return (
            F.softmax(x, dim=0),
            F.relu(x),
            torch.einsum("i,i->", x, x),
            x.norm(),
            x.split(2),
            F.max_pool1d(x[None], 2),
        )

    f = t.compile(fn)
    f(of(Telling, 4))
    f.hit(of(Telling, 4, s=1))


@program()
def test_a_function_of_the_programs_own(t):
    watch(t)

    def twice(x):
        if has_torch_function_unary(x):
            return handle_torch_function(twice, (x,), x)
        return x * 2

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            SEEN.append(name_of(func))
            if func is twice:
                with torch._C.DisableTorchFunctionSubclass():
                    return twice(*args) + 1
            return super().__torch_function__(func, types, args, kwargs)

    f = t.compile(lambda x: (twice(x), has_torch_function((x,))))
    f(of(Mine, 3))
    f.hit(of(Mine, 3))
    f(T(3))


@program()
def test_no_tensor_at_all(t):
    watch(t)

    def fn(a, b, x):
        return torch.add(a, b).tensor, torch.mul(x, a).tensor, torch.cat([x, x])

    f = t.compile(fn)
    f(Duck(T(3)), Duck(T(3, s=1)), T(3))
    f.hit(Duck(T(3)), Duck(T(3, s=1)), T(3))
    f(Duck(T(3), 5), 2.0, T(3))


@program()
def test_a_duck_and_an_operator(t):
    watch(t)
    f = t.compile(lambda a, x: (x + a).tensor)
    f(Duck(T(3)), T(3))
    f.hit(Duck(T(3)), T(3, s=1))
    f(Duck(T(3)), of(Plain, 3))


@program(one_graph=False)
def test_a_break_inside(t):
    watch(t)

    class Breaking(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            SEEN.append("before")
            alternator.graph_break()
            SEEN.append("after")
            return super().__torch_function__(func, types, args, kwargs)

    def fn(x):
        y = x + 1
        y = torch.relu(y)
        return F.softmax(y, dim=0) * 2

    f = t.compile(fn)
    f(of(Breaking, 3))
    f(of(Breaking, 3, s=1))


@program(one_graph=False)
def test_an_exception_inside(t):
    watch(t)

    class Raising(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            SEEN.append(name_of(func))
            raise ValueError("no " + name_of(func))

    def fn(x, y):
        z = y + 1
        try:
            return torch.relu(x)
        except ValueError as error:
            return str(error), z

    f = t.compile(fn)
    f(of(Raising, 3), T(3))
    f(of(Raising, 3), T(3, s=1))


@program()
def test_made_inside(t):
    watch(t)

    def fn(x):
        y = (x + 1).as_subclass(Telling) * 2
        return y.sum(), type(y).__name__

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program()
def test_what_a_class_knows(t):
    """The usual form: a table of functions that the class has its own versions of."""
    watch(t)
    table = {}

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in table:
                return table[func](*args, **(kwargs or {}))
            return super().__torch_function__(func, types, args, kwargs)

    def own_add(x, y, alpha=1):
        SEEN.append("own add")
        return torch.Tensor.sub(x, y)

    table[torch.add] = own_add
    f = t.compile(lambda x: torch.add(x, 1) * 2)
    f(of(Mine, 3))
    f.hit(of(Mine, 3))
    table[torch.Tensor.mul] = lambda x, y: x
    f(of(Mine, 3))
    table.clear()
    f(of(Mine, 3))


@program()
def test_under_a_mode(t):
    watch(t)

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            SEEN.append(("mode", name_of(func), [each.__name__ for each in types]))
            return func(*args, **(kwargs or {}))

    def fn(x):
        with Mode():
            y = torch.relu(x) + 1
        return y * 2

    f = t.compile(fn)
    f(of(Telling, 3))
    f.hit(of(Telling, 3))


@program()
def test_under_a_default_device(t):
    class Making(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            made = torch.zeros(1)
            SEEN.append((name_of(func), made.device.type))
            return super().__torch_function__(func, types, args, kwargs)

    watch(t)
    x = of(Making, 3)
    f = t.compile(lambda x: x + 1)
    f(x)
    with torch.device("meta"):
        f(x)
        f(x)
    f(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_torchs_backends(backend):
    def fn(x):
        y = x.as_subclass(Telling)
        return torch.sigmoid(y) + 1, x.as_subclass(Plain) * 2

    compiled = alternator.compile(fn, backend=backend, fullgraph=True)
    for x in (T(3), T(3, s=1), of(Telling, 3)):
        SEEN.clear()
        wanted, seen = fn(x), list(SEEN)
        SEEN.clear()
        found = compiled(x)
        assert list(SEEN) == seen
        for one, other in zip(found, wanted, strict=True):
            assert type(one) is type(other)
            with torch._C.DisableTorchFunctionSubclass():
                assert torch.equal(one, other)


@program(one_graph=False)
def test_conversions(t):
    watch(t)

    def fn(x):
        return float(x.sum()), bool(x[0] > 0), x.tolist(), x.max().item(), [each * 2 for each in x]

    f = t.compile(fn)
    f(of(Telling, 3))
    f(of(Telling, 3, s=1))


@program(one_graph=False)
def test_text(t):
    watch(t)

    def fn(x):
        y = x + 1
        print(y)
        return f"{y}", y * 2

    f = t.compile(fn)
    f(of(Telling, 3))
    f(of(Telling, 3, s=1))


@program(one_graph=False)
def test_hooks_and_setters(t):
    watch(t)
    seen = []

    def fn(x):
        y = x * 2
        y.register_hook(lambda grad: seen.append(1))
        z = (y + 1).detach()
        z.requires_grad = True
        return y.sum(), z

    f = t.compile(fn)
    for s in (0, 1):
        x = T(3, s=s, rg=True)
        out, _ = f(x.as_subclass(Telling))
        out.backward()
        t.note((x.grad, list(seen)))


@program()
def test_parameters_of_a_module(t):
    watch(t)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(T(3))
            self.register_buffer("shift", of(Telling, 3))

        def forward(self, x):
            return x * self.scale + self.shift

    f = t.compile(Layer())
    f(T(3))
    f.hit(T(3, s=1))


@program(one_graph=False)
def test_lists_that_contain_themselves(t):
    def fn(x, given):
        made = [x]
        made.append(made)
        found = []
        for items in (given, made):
            try:
                torch.stack(items)
            except TypeError:
                found.append("refused")
        return x + 1, found

    f = t.compile(fn)
    given = []
    given.append(given)
    f(T(2), given)
    f(T(2), given)


@program(one_graph=False)
def test_getters_that_are_given(t):
    """Which getter a `Tensor.shape.__get__` is belongs to the guards, and so does what a method is bound to."""
    weight = T(2, 3)
    f = t.compile(lambda x, get: (x + 1, get(x)))
    for get in (
        torch.Tensor.shape.__get__,
        torch.Tensor.dtype.__get__,
        torch.Tensor.shape.__get__,
        torch.Tensor.T.__get__,
        weight.__add__,
        T(2, 3, s=4).__add__,
        weight.__add__,
        weight.__rsub__,
        weight.add,
        T(2, 3, s=5).add,
    ):
        f(T(2, 3), get)
        f(T(2, 3, s=1), get)

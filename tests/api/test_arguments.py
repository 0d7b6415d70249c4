"""compile(): what it takes, and what it says about what it does not take."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from typing import Any

import pytest
import torch

import alternator
from alternator import _C


def plus_one(x: Any, *, scale: float = 1.0) -> Any:
    """Adds one."""
    return x * scale + 1


compiled_global = None


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


# ---------------------------------------------------------------------------------------------------- what is compiled


def test_a_function() -> None:
    compiled = alternator.compile(plus_one, backend="eager")
    assert torch.equal(compiled(x()), x() + 1)
    assert torch.equal(compiled(x(), scale=3.0), x() * 3 + 1)
    assert alternator.counters()["graphs"] == 2
    assert alternator.counters()["eager"] == 0


def test_as_a_decorator() -> None:
    @alternator.compile(backend="eager", fullgraph=True)
    def with_arguments(x: Any) -> Any:
        return x.sin()

    @functools.partial(alternator.compile, backend="eager")
    def without(x: Any) -> Any:
        return x.cos()

    assert torch.equal(with_arguments(x()), x().sin())
    assert torch.equal(without(x()), x().cos())
    assert alternator.counters()["graphs"] == 2


def test_decorator_without_parentheses_uses_inductor() -> None:
    @alternator.compile
    def compiled(x: Any) -> Any:
        return x + 1

    assert isinstance(compiled, _C.Compiled)  # not called: Inductor is another test's subject


def test_methods() -> None:
    class Scaler:
        def __init__(self, by: float) -> None:
            self.by = by

        def scale(self, x: Any) -> Any:
            return x * self.by

        @alternator.compile(backend="eager")
        def decorated(self, x: Any) -> Any:
            return x - self.by

    two, three = Scaler(2.0), Scaler(3.0)
    bound = alternator.compile(two.scale, backend="eager", fullgraph=True)
    assert torch.equal(bound(x()), x() * 2)
    two.by = 5.0
    assert torch.equal(bound(x()), x() * 5)
    assert torch.equal(three.decorated(x()), x() - 3)
    assert torch.equal(two.decorated(x()), x() - 5)
    assert torch.equal(Scaler.decorated(three, x()), x() - 3)
    assert alternator.counters()["eager"] == 0


def test_callable_objects() -> None:
    class Adder:
        def __call__(self, x: Any) -> Any:
            return x + 7

    assert torch.equal(alternator.compile(Adder(), backend="eager")(x()), x() + 7)
    assert torch.equal(alternator.compile(torch.sin, backend="eager")(x()), x().sin())
    assert torch.equal(alternator.compile(functools.partial(torch.add, alpha=2), backend="eager")(x(), x()), x() * 3)
    assert alternator.counters()["graphs"] == 3


def _plus(given: Any) -> Any:
    return given + 1


def _torchs_functions() -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    from torch.nn.attention.flex_attention import flex_attention

    query = torch.arange(256.0).reshape(1, 1, 16, 16) / 256
    is_large = x().sum() > 3
    return [
        (flex_attention, (query, query, query), {}),
        (torch.cond, (is_large, _plus, torch.neg, (x(),)), {}),
        (torch.utils.checkpoint.checkpoint, (_plus, x()), {"use_reentrant": False}),
        (torch.nn.functional.softmax, (x(),), {"dim": 0}),
        (torch.ops.aten.sin.default, (x(),), {}),
        (torch.ops.aten.sin, (x(),), {}),
        (torch.vmap(_plus), (x(),), {}),
    ]


@pytest.mark.parametrize("number", range(7))
def test_functions_of_torchs_own(number: int) -> None:
    """What they mean where somebody calls them: `flex_attention = torch.compile(flex_attention)`."""
    function, args, kwargs = _torchs_functions()[number]
    compiled = alternator.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(*args, **kwargs), function(*args, **kwargs), rtol=0, atol=0)
    counted = alternator.counters()
    assert (counted["graphs"], counted["hits"]) == (1, 1)


def test_a_function_that_torch_decorates_is_the_users() -> None:
    @torch.no_grad()
    def decorated(y: Any, k: int = 2) -> Any:
        return y * k

    compiled = alternator.compile(decorated, backend="eager", fullgraph=True)
    parameter = torch.nn.Parameter(x())
    assert not compiled(parameter).requires_grad
    assert compiled.__wrapped__ is decorated
    softmax = torch.nn.functional.softmax
    assert inspect.signature(alternator.compile(softmax)) == inspect.signature(softmax)


def test_the_class_of_an_object_says_what_a_call_is() -> None:
    class Adder:
        def __call__(self, x: Any) -> Any:
            return x + 7

    class Doubler:
        def __call__(self, x: Any) -> Any:
            return x * 2

    adder = Adder()
    compiled, method = (alternator.compile(one, backend="eager") for one in (adder, adder.__call__))
    assert torch.equal(compiled(x()), x() + 7)
    Adder.__call__ = lambda self, x: x - 1  # type: ignore[method-assign, assignment]
    assert torch.equal(compiled(x()), x() - 1)
    assert torch.equal(method(x()), x() + 7)
    adder.__class__ = Doubler  # type: ignore[assignment]
    assert torch.equal(compiled(x()), x() * 2)

    class Net(torch.nn.Linear):
        pass

    net = Net(3, 3)
    view = alternator.compile(net, backend="eager")
    assert torch.equal(view(x()), net(x()))
    Net.__call__ = lambda self, x: x + 3
    assert torch.equal(view(x()), x() + 3)


def test_a_class() -> None:
    @alternator.compile(backend="eager")
    class Doubler:
        def __call__(self, x: Any) -> Any:
            return x * 2

    assert torch.equal(Doubler()(x()), x() * 2)
    assert alternator.counters()["graphs"] == 1


def test_compiled_twice_is_compiled_once() -> None:
    once = alternator.compile(plus_one, backend="eager")
    twice = alternator.compile(once, backend="eager")
    assert twice.__wrapped__ is plus_one


def test_arguments_are_bound_as_python_does() -> None:
    @alternator.compile(backend="eager")
    def f(a: Any, /, b: Any = 2, *rest: Any, c: Any, **more: Any) -> Any:
        return a * b + c + sum(rest) + sum(more.values())

    plain = f.__wrapped__
    for call in (lambda g: g(x(), c=1), lambda g: g(x(), 3, 4, 5, c=1, d=6), lambda g: g(x(), b=3, c=2, e=1)):
        assert torch.equal(call(f), call(plain))
    for bad in (lambda g: g(), lambda g: g(x()), lambda g: g(a=x(), c=1), lambda g: g(x(), b=1, c=1, **{"b": 2})):
        with pytest.raises(TypeError) as ours:
            bad(f)
        with pytest.raises(TypeError) as eagers:
            bad(plain)
        assert str(ours.value) == str(eagers.value)


def test_it_looks_like_the_function() -> None:
    compiled: Any = alternator.compile(plus_one, backend="eager")
    assert (compiled.__name__, compiled.__doc__, compiled.__module__) == ("plus_one", "Adds one.", __name__)
    assert inspect.signature(compiled) == inspect.signature(plus_one)
    assert "plus_one" in repr(compiled)
    compiled.note = 3
    assert compiled.note == 3
    assert not hasattr(plus_one, "note")


def test_copies_and_pickles_are_those_of_functions() -> None:
    global compiled_global
    compiled = alternator.compile(plus_one, backend="eager")
    assert copy.copy(compiled) is compiled
    assert copy.deepcopy([compiled])[0] is compiled
    assert pickle.loads(pickle.dumps(decorated_global)) is decorated_global
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(compiled)  # its name finds another object


@alternator.compile(backend="eager")
def decorated_global(x: Any) -> Any:
    return x + 1


# ------------------------------------------------------------------------------------------------------------- options


def test_disable_gives_the_model_back() -> None:
    assert alternator.compile(plus_one, disable=True) is plus_one
    for off in (None, 0, False):  # as in torch
        assert alternator.compile(plus_one, disable=off, backend="eager") is not plus_one
    module = torch.nn.Linear(2, 2)
    assert alternator.compile(module, disable=True) is module


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_dynamic_is_accepted_and_static(dynamic: bool | None) -> None:
    compiled = alternator.compile(plus_one, backend="eager", dynamic=dynamic)
    for size in (2, 3, 4):
        assert torch.equal(compiled(torch.ones(size)), torch.ones(size) + 1)
    assert alternator.counters()["eager"] == 0


def test_isolate_recompiles_is_accepted() -> None:
    compiled = alternator.compile(plus_one, backend="eager", isolate_recompiles=True)
    assert torch.equal(compiled(x()), x() + 1)


def test_fullgraph_raises_where_something_breaks() -> None:
    def f(x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1

    assert torch.equal(alternator.compile(f, backend="eager")(x()), f(x()))
    with pytest.raises(RuntimeError, match=r"fullgraph=True.*(\n.*)*data_dependent"):
        alternator.compile(f, backend="eager", fullgraph=True)(x())


def test_the_environment_turns_everything_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALTERNATOR", "0")
    assert alternator.compile(plus_one, backend="eager") is plus_one
    assert alternator.compile(backend="eager")(plus_one) is plus_one
    with alternator.install():
        assert torch.compile(plus_one, backend="eager") is plus_one
    monkeypatch.setenv("ALTERNATOR", "1")
    assert alternator.compile(plus_one, backend="eager") is not plus_one


# ------------------------------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mode": "fast"}, RuntimeError, "mode=fast.*default.*reduce-overhead.*max-autotune"),
        ({"options": {"fast": True}}, RuntimeError, "option fast, known options are.*max_autotune"),
        ({"options": {"max_autotune": 3}}, RuntimeError, "max_autotune, got int should be bool"),
        ({"options": ["max_autotune"]}, TypeError, "options must be a dict"),
        ({"mode": "default", "options": {}}, RuntimeError, "both can't be specified"),
        ({"mode": 3}, TypeError, "mode must be a str"),
        ({"backend": "indoctor"}, Exception, "'indoctor'.*aot_eager.*eager.*inductor"),
        ({"backend": 3}, TypeError, "backend must be a name or a callable"),
        ({"fullgraph": "yes"}, TypeError, "fullgraph must be True or False"),
        ({"disable": "no"}, TypeError, "disable must be True or False"),
        ({"isolate_recompiles": 2}, TypeError, "isolate_recompiles must be True or False"),
        ({"dynamic": "auto"}, TypeError, "dynamic must be True, False or None"),
        ({"speed": 3}, TypeError, "unexpected keyword argument 'speed'"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        alternator.compile(plus_one, **arguments)


def test_an_unknown_backend_is_torchs_error() -> None:
    from torch._dynamo.exc import InvalidBackend

    with pytest.raises(InvalidBackend):
        alternator.compile(plus_one, backend="indoctor")


@pytest.mark.parametrize("model", [3, "f", object()])
def test_what_cannot_be_called_cannot_be_compiled(model: Any) -> None:
    with pytest.raises(TypeError, match="needs a function, a method or a callable object"):
        alternator.compile(model)


def test_only_the_model_is_positional() -> None:
    with pytest.raises(TypeError, match="positional"):
        alternator.compile(plus_one, True)  # type: ignore[call-overload]
    with pytest.raises(RuntimeError, match="Model can't be None"):
        alternator.compile(backend="eager")(None)  # type: ignore[type-var]

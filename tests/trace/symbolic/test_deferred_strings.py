"""Deferred strings: texts that show what only a run computes, where nothing reads their characters."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import REGISTRY, Run, T, add_row, check, program

import alternator


def holds(condition: bool, message: Any) -> None:
    """As libraries write it: the text is made before anybody knows whether it is needed."""
    if not callable(message):

        def say() -> Any:
            return message

    else:
        say = message
    if not condition:
        raise ValueError(say())


def message(x: torch.Tensor) -> Any:
    holds(x.dim() == 1, f"{x.sum()} of {x.shape}, {x!r}")
    return x + 1


def nested(x: torch.Tensor) -> Any:
    inner = f"<{x[0]}>"
    outer = f"{inner}/{inner!s}"
    return x * 2 if outer is not None and type(outer) is str else x


def passed_on(x: torch.Tensor) -> Any:
    def count(*given: Any, **named: Any) -> int:
        return len(given) + len(named)

    return x * count(f"{x}", [f"{x.sum()}"], text=f"{x}")


def default(x: torch.Tensor, note: Any = None) -> Any:
    return x + 1 if note is None else default(x * 2)


WHOLE: dict[str, Callable[..., Any]] = {
    "message": message,
    "nested": nested,
    "passed_on": passed_on,
    "default": lambda x: default(x, f"{x}"),
}


def raised(x: torch.Tensor) -> Any:
    raise ValueError(f"bad {x}")


def caught(x: torch.Tensor) -> Any:
    try:
        raise ValueError(f"bad {x}")
    except ValueError as error:
        return x + 1, str(error)


def failed(x: torch.Tensor) -> Any:
    holds(x.dim() == 2, f"{x.sum()}")
    return x


def printed(x: torch.Tensor) -> Any:
    print(f"sum {x.sum()}")
    return x + 1


def warned(x: torch.Tensor) -> Any:
    warnings.warn(f"sum {x.sum()}", stacklevel=1)
    return x + 1


def matched(x: torch.Tensor) -> Any:
    match f"{x}":
        case "a":
            return x - 1
        case [_]:
            return x - 2
        case str():
            return x + 1
        case _:
            return x - 3


def unpacked(x: torch.Tensor) -> Any:
    first, *rest = f"{x[0]}"
    return x, first, rest


def kept(x: torch.Tensor) -> Any:
    class Note:
        pass

    note = Note()
    note.text = f"{x}"  # type: ignore[attr-defined]
    return x + 1, note.text  # type: ignore[attr-defined]


def wrong_format(x: torch.Tensor) -> Any:
    try:
        return f"{x:d}"
    except TypeError:
        return x + 1


LOOKED_AT: dict[str, Callable[..., Any]] = {
    "returned": lambda x: (x + 1, f"{x.sum()}"),
    "in_a_list": lambda x: [f"{t}" for t in x],
    "joined": lambda x: (x + 1, ", ".join(f"{t}" for t in x)),
    "joined_list": lambda x: (x + 1, ", ".join([f"{t}" for t in x])),
    "joined_iterator": lambda x: (x + 1, ", ".join(iter([f"{t}" for t in x]))),
    "a_key": lambda x: {f"{x[0]}": x},
    "length": lambda x: (x + 1, len(f"{x}")),
    "item": lambda x: (x + 1, f"{x}"[0]),
    "part": lambda x: (x + 1, f"{x}"[:3], "t" in f"{x}", f"{x}" in ["a"], "a" in [f"{x}"]),
    "class": lambda x: x + 1 if isinstance(f"{x}", str) else x - 1,
    "truth": lambda x: x + 1 if f"{x[0]}" else x - 1,
    "compared": lambda x: (x, f"{x[0]}" == "1.0", f"{x[0]}" < "2", [f"{x[0]}"] == ["1.0"]),
    "operators": lambda x: (x, "%s!" % f"{x}", "a" + f"{x}", f"{x}" * 2, f"{f'{x}':>90}"),  # noqa: UP031
    "methods": lambda x: (x, f"{x}".upper(), "{}".format(f"{x}"), str(f"{x}"), repr(f"{x}")),  # noqa: UP032
    "sorted": lambda x: (x, sorted([f"{t}" for t in x]), max(f"{t}" for t in x)),
    "mapped": lambda x: (x, list(map(len, [f"{t}" for t in x])), list(map(lambda t: f"{t}", x))),  # noqa: C417
    "reduced": lambda x: (x, functools.reduce(lambda a, b: a + b, [f"{t}" for t in x])),
    "identity": lambda x: (x, operator.is_(f"{int(x[0])}", "1")),
    "arguments": lambda x: (x, ValueError("a", f"{x}").args),
    "with_a_format": lambda x: (x, f"{x[0]:.2f}"),
    "raised": raised,
    "caught": caught,
    "failed": failed,
    "printed": printed,
    "warned": warned,
    "matched": matched,
    "unpacked": unpacked,
    "kept": kept,
    "wrong_format": wrong_format,
}


def script_of(function: Callable[..., Any], whole: bool) -> Callable[[Run], None]:
    def script(t: Run) -> None:
        f = t.compile(function)
        f(T(3))
        (f.hit if whole else f.free)(T(3) + 1)
        f.free(T(4))

    return script


@pytest.mark.parametrize(
    "name", [add_row(__name__, "test_not_looked_at", row, script_of(f, True), graphs=2) for row, f in WHOLE.items()]
)
def test_not_looked_at(name: str) -> None:
    check(REGISTRY[name])


@pytest.mark.parametrize(
    "name",
    [add_row(__name__, "test_looked_at", row, script_of(f, False), one_graph=False) for row, f in LOOKED_AT.items()],
)
def test_looked_at(name: str) -> None:
    check(REGISTRY[name])


@program()
def test_numbers(t: Run) -> None:
    alternator.config.capture_scalar_outputs = True  # in a process of its own

    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        holds(x.dim() == 1, f"{k} and {k!r}")
        return x * k

    f = t.compile(fn)
    f(T(3), torch.tensor(2))
    f.hit(T(3), torch.tensor(5))


@program()
def test_next_to_a_check_of_data(t: Run) -> None:
    def fn(x: torch.Tensor) -> Any:
        holds(x.dim() == 1, f"{x}")
        if (x < 0).any():
            raise ValueError("negative")
        return x.sqrt()

    f = t.compile(fn)
    f(T(3).abs())
    f.hit(T(3).abs() + 1)
    f.free(T(3) - 5)
    f.hit(T(3).abs())


@program()
def test_gradients(t: Run) -> None:
    f = t.compile(message)
    for scale in (1.0, 2.0):
        x = (T(3) * scale).requires_grad_()
        f(x).sum().backward()
        t.note(x.grad)


def test_the_reason() -> None:
    with pytest.raises(alternator.exc.Unsupported, match="a tensor is converted to a string"):
        alternator.compile(lambda x: len(f"{x}"), backend="eager", fullgraph=True)(torch.ones(2))

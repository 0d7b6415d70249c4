"""Each channel through which a size or a number could reach a graph as a constant: a program that is wrong, or compiled too often,
without what closes it. `make test-mutants` opens them one by one (csrc/graph/sizes/size_switches.def), without the second trace."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import alternator

READERS = Path(__file__).parents[2] / "csrc" / "graph" / "sizes" / "size_readers.def"
ROWS = re.findall(r'ALT_READER\((\w+), "([\w.]+)"\)', READERS.read_text())
Calls = Sequence[tuple[Any, ...]]


def tensors(*sizes: tuple[int, ...]) -> Calls:
    return [(torch.arange(math.prod(size), dtype=torch.float32).view(size) + 1,) for size in sizes]


ROW_SIZES = ((4, 3), (5, 3), (6, 3))


def numbered(*numbers: Any, size: tuple[int, ...] = (4, 6)) -> Calls:
    return [(*tensors(size)[0], number) for number in numbers]


def paired(*numbers: tuple[int, int]) -> Calls:
    return [(*tensors((4, 6))[0], *pair) for pair in numbers]


def outcome(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """What a call returns or raises, and what it leaves in its arguments."""
    try:
        result = fn(*arguments)
    except Exception as error:
        result = type(error)
    return [result, arguments]


def is_same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and one.shape == two.shape and torch.equal(one, two)
    return type(one) is type(two) and one == two


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments that share memory still do."""
    import copy

    return copy.deepcopy(arguments)


def check(fn: Callable[..., Any], calls: Calls, backend: str = "eager", most: int | None = None) -> None:
    """With everything symbolic from the first call on, in both orders. `most`: how often it is compiled."""
    for order in (list(calls), list(calls)[::-1]):
        alternator.reset()
        compiled = alternator.compile(fn, backend=backend, dynamic=True)
        for arguments in order:
            one, two = copied(arguments), copied(arguments)
            wanted, got = tree_leaves(outcome(fn, one)), tree_leaves(outcome(compiled, two))
            assert len(wanted) == len(got) and all(map(is_same, wanted, got)), (arguments, wanted, got)
        assert most is None or alternator.counters()["traces"] <= most


# ---- programs that a leak makes wrong ------------------------------------------------------------------------------


def parts(split: Callable[[torch.Tensor], Sequence[torch.Tensor]]) -> Callable[..., Any]:
    return lambda x, *rest: sum(p.sum() * i for i, p in enumerate(split(x, *rest)))


def wrong_rank(fn: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def ranked(*arguments: Any) -> Any:
        made = fn(*arguments)
        return made * 1, made.dim()

    return ranked


FOUR = 4


@functools.lru_cache
def cached(n: int) -> int:
    return n + 1


def numpy_ones(n: int) -> Any:
    import numpy

    return numpy.ones(n)


def written_as_field(x: torch.Tensor, n: int) -> torch.Tensor:
    row: deque[int] = deque([1, 2, 3, 4], maxlen=3)
    row.rotate(n)
    return x * row[0]


WRONG: dict[str, tuple[Callable[..., Any], Calls]] = {
    "reader.shape": (lambda x: x.view(x.shape[0], -1) * x.shape[0], tensors(*ROW_SIZES)),
    "reader.size": (lambda x: x * x.size(0), tensors(*ROW_SIZES)),
    "reader.__len__": (lambda x: x * x.__len__(), tensors(*ROW_SIZES)),
    "reader.numel": (lambda x: x * x.numel(), tensors(*ROW_SIZES)),
    "reader.nelement": (lambda x: x * x.nelement(), tensors(*ROW_SIZES)),
    "reader.torch.numel": (lambda x: x * torch.numel(x), tensors(*ROW_SIZES)),
    "reader.nbytes": (lambda x: x * x.nbytes, tensors(*ROW_SIZES)),
    "reader.is_contiguous": (lambda x, n: x * 2 if x[:, :n].is_contiguous() else x * 3, numbered(6, 5, 4)),
    "reader.contiguous": (lambda x, n: (lambda part: part.contiguous() is part)(x[:, :n]), numbered(6, 5, 4)),
    "reader.squeeze": (wrong_rank(lambda x, n: x[:, :n].squeeze()), numbered(3, 2, 1)),
    "reader.torch.squeeze": (wrong_rank(lambda x, n: torch.squeeze(x[:, :n])), numbered(3, 2, 1)),
    "reader.torch.squeeze_copy": (wrong_rank(lambda x, n: torch.squeeze_copy(x[:, :n])), numbered(3, 2, 1)),
    "reader.split": (parts(lambda x: x.split(2)), tensors((4, 3), (5, 3), (8, 3), (2, 3))),
    "reader.torch.split": (parts(lambda x: torch.split(x, 2)), tensors((4, 3), (5, 3), (8, 3), (2, 3))),
    "reader.unsafe_split": (parts(lambda x: x.unsafe_split(2)), tensors((4, 3), (5, 3), (8, 3))),
    "reader.torch.unsafe_split": (parts(lambda x: torch.unsafe_split(x, 2)), tensors((4, 3), (5, 3), (8, 3))),
    "reader.chunk": (parts(lambda x: x.chunk(4)), tensors((4, 3), (5, 3), (2, 3), (9, 3))),
    "reader.torch.chunk": (parts(lambda x: torch.chunk(x, 4)), tensors((4, 3), (5, 3), (2, 3), (9, 3))),
    "reader.unsafe_chunk": (parts(lambda x: x.unsafe_chunk(4)), tensors((4, 3), (5, 3), (2, 3))),
    "reader.torch.unsafe_chunk": (parts(lambda x: torch.unsafe_chunk(x, 4)), tensors((4, 3), (5, 3), (2, 3))),
    "reader.unbind": (parts(lambda x: x.unbind()), tensors(*ROW_SIZES)),
    "reader.torch.unbind": (parts(lambda x: torch.unbind(x)), tensors(*ROW_SIZES)),
    "reader.cov": (wrong_rank(lambda x, n: x[:n].cov()), numbered(3, 2, 1)),
    "reader.torch.cov": (wrong_rank(lambda x, n: torch.cov(x[:n])), numbered(3, 2, 1)),
    "reader.corrcoef": (wrong_rank(lambda x, n: x[:n].corrcoef().nan_to_num()), numbered(3, 2, 1)),
    "reader.torch.corrcoef": (wrong_rank(lambda x, n: torch.corrcoef(x[:n]).nan_to_num()), numbered(3, 2, 1)),
    # Which of the arguments are returned themselves.
    "reader.torch.broadcast_tensors": (
        lambda x, n: torch.broadcast_tensors(x[:, :n], x[:, :1])[0].add_(1) * 1,
        numbered(6, 5, 1),
    ),
    "unlisted_call": (lambda x: x * sum(x.stride()) * x.storage_offset(), [(x.t(),) for (x,) in tensors(*ROW_SIZES)]),
    "comparison": (lambda x: x * 2 if x.shape[0] > 4 else x * 3, tensors(*ROW_SIZES)),
    "failing_call": (lambda x: x * torch._shape_as_tensor(x)[0].item(), tensors(*ROW_SIZES)),
    "subgraph": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x * x.shape[0], lambda x: x - x.shape[0], (x,)),
        tensors(*ROW_SIZES),
    ),
    "no_rule": (lambda x: x * torch.nonzero_static(x, size=x.shape[0]).shape[0], tensors(*ROW_SIZES)),
    # Native code that reads the digits of numbers.
    "plain": (lambda x, n: x * [*range(20)][n], numbered(4, 6, 9)),
    # Conditions of rules.
    "condition.squeeze": (lambda x, n: x[:, :n].squeeze(1).shape, numbered(3, 2, 1)),
    "condition.part_of_equal": (lambda x: [p.shape for p in x.split(2)], tensors((4, 3), (5, 3), (3, 3), (8, 3))),
    "condition.unbind": (lambda x: [p.shape for p in x.unbind()], tensors(*ROW_SIZES)),
    "condition.broadcast": (lambda x, n, k: (x[:, :n] + x[:, :k]).shape, paired((3, 3), (1, 3), (3, 1))),
    "condition.expanded": (lambda x, n, k: x[:, :n].expand(4, k).shape, paired((6, 6), (1, 6), (5, 5))),
    "condition.inferred": (lambda x, n: x.reshape(n, 4).shape, numbered(6, -1)),
    "condition.clamped": (lambda x, n: (x[:, n:].shape, x[:, :n].shape), numbered(4, 6, -2, 9)),
    "condition.windows": (
        lambda x: torch.nn.functional.avg_pool1d(x, 1, 3, 0, ceil_mode=True).shape,
        tensors((2, 4), (2, 5), (2, 6), (2, 7)),
    ),
    "condition.fixed_int": (lambda x, n: x.unsqueeze(n).shape, numbered(1, 0, 2)),
    "condition.permute": (lambda x, n: x.permute(n, 1 - n).shape, numbered(1, 0)),
    "condition.diff": (lambda x, n: torch.diff(x[:, :n], n=2).shape, numbered(4, 3, 1)),
    "condition.skipped": (lambda x, n: x.select(0, n).storage_offset(), numbered(1, 2, -1)),
    # As many vectors as there are matrices, or one matrix.
    "condition.solve": (
        lambda x, n: torch.linalg.solve(torch.eye(3).expand(n, 3, 3), torch.ones(3, 3)).shape,
        numbered(3, 2, 4),
    ),
    # Of no rows the first argument is the result.
    "condition.addmv": (lambda x, n: torch.addmv(x[0, :1], x[:n], x[0]).shape, numbered(3, 4, 0)),
    "condition.one_hot": (lambda x, n: torch.nn.functional.one_hot(x.long() % 3, n).shape, numbered(5, 4, -1)),
    "condition.tensordot": (lambda x, n: torch.tensordot(x, x, dims=([n], [n])).shape, numbered(0, 1)),
    # What has all sizes already is returned itself.
    "condition.broadcast_tensors": (
        lambda x, n: (lambda column: torch.broadcast_tensors(x[:, :n], column)[1] is column)(x[:, :1]),
        numbered(3, 1),
    ),
}


# Further places where native code reads numbers.
DIGITS: dict[str, tuple[Callable[..., Any], Calls]] = {
    "call_dispatch": (lambda x, n: x * math.gcd(n, 12), numbered(4, 6, 9)),
    "attribute_writes": (written_as_field, numbered(4, 6, 9)),
    "reflective_builtins": (lambda x, n: x * hash(n), numbered(4, 6, 9)),
    "lru_caches": (lambda x, n: x * cached(n), numbered(4, 6, 9)),
    "tracing": (lambda x, n: x * 2 if n is FOUR else x * 3, numbered(4, 6, 9)),
    "unbacked_arithmetic": (lambda x, n: x * (n << 1) * (n ^ 5) * float(n), numbered(4, 6, 9)),
    "backed_numbers": (lambda x, n: x * (n**2) * (n / 4), numbered(4, 6, 9)),
    "frame_evaluator": (
        lambda x, n: x * sorted([3, 1, 2], key=lambda v: v % n)[0] * max([1, 2, 3], key=lambda v: n % v),
        numbered(2, 3, 5),
    ),
    "concrete_arrays": (lambda x, n: x * float(numpy_ones(n).sum()), numbered(4, 6, 9)),
    "random_generators": (lambda x, n: (torch.manual_seed(n), x * torch.rand(4, 6))[1], numbered(4, 6, 9)),
    "optree": (lambda x, n: x * torch.utils._pytree.tree_map(lambda v: v + 1, {"a": n})["a"], numbered(4, 6, 9)),
}


# Where a result shares memory: what is written to it is then written to the argument.
def write_reshaped(reshape: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def fn(x: torch.Tensor, n: int) -> Any:
        z = x * 1
        y = reshape(z[:, :n])
        y.add_(1)
        return z * 1, y * 1, z._version

    return fn


MEMORY: dict[str, tuple[Callable[..., Any], Calls]] = {
    "fixed_views": (write_reshaped(lambda x: x.reshape(-1)), numbered(6, 5, 4)),
    "reader.reshape": (write_reshaped(lambda x: x.reshape(-1)), numbered(6, 5, 4)),
    "reader.torch.reshape": (write_reshaped(lambda x: torch.reshape(x, (-1,))), numbered(6, 5, 4)),
    "reader.flatten": (write_reshaped(lambda x: x.flatten()), numbered(6, 5, 4)),
    "reader.torch.flatten": (write_reshaped(lambda x: torch.flatten(x)), numbered(6, 5, 4)),
    "reader.ravel": (write_reshaped(lambda x: x.ravel()), numbered(6, 5, 4)),
    "reader.torch.ravel": (write_reshaped(lambda x: torch.ravel(x)), numbered(6, 5, 4)),
}


def sharing(size: int, begin: int) -> tuple[torch.Tensor, torch.Tensor]:
    base = torch.arange(20.0)
    return base[:size], base[begin : begin + size]


@pytest.mark.parametrize("channel", WRONG)
def test_channel(channel: str) -> None:
    fn, calls = WRONG[channel]
    check(fn, calls)


@pytest.mark.parametrize("gate", DIGITS)
def test_numbers_read_by_native_code(gate: str) -> None:
    check(*DIGITS[gate])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("channel", MEMORY)
def test_channel_of_memory(channel: str, backend: str) -> None:
    fn, calls = MEMORY[channel]
    check(fn, calls, backend=backend)


def test_shared_memory() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        return y * 2, x * 1

    for order in (((4, 6), (8, 6)), ((8, 6), (4, 6))):
        alternator.reset()
        compiled = alternator.compile(fn, backend="aot_eager", dynamic=True)
        for size, begin in order:
            wanted, got = fn(*sharing(size, begin)), compiled(*sharing(size, begin))
            assert all(map(is_same, wanted, got))


# ---- rows that say that a call tells nothing: without one, each size is compiled -------------------------------------

ARGUMENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    # Itself, where it is of that type already.
    "to": lambda x: x.to(torch.float32),
    "type": lambda x: x.type(torch.float32),
    **{
        name: functools.partial(lambda name, x: getattr(getattr(x, name)(), name)(), name)
        for name in ("double", "half", "bfloat16", "long", "int", "bool")
    },
    "type_as": lambda x: x.type_as(x),
    "torch.result_type": lambda x: torch.result_type(x, 1) == torch.float32,
    "requires_grad": lambda x: x.requires_grad,
    "torch.meshgrid": lambda x: torch.meshgrid(x[:, 0], x[0], indexing="ij"),
    "torch.nn.functional.threshold": lambda x: torch.nn.functional.threshold(x, 0.5, 0.0),
    "torch.dropout": lambda x: torch.dropout(x, 0.5, False),
    "torch.relu_": lambda x: torch.relu_(x * 1),
    "torch.frexp": lambda x: torch.frexp(x),
    "torch.native_layer_norm": lambda x: torch.native_layer_norm(x, [3], None, None, 1e-5),
    "torch.native_group_norm": lambda x: (
        torch.native_group_norm(x.t()[None], None, None, 1, 3, 4, 3, 1e-5)[0].sum() * 0
    ),
    "torch.native_dropout": lambda x: torch.native_dropout(x, 0.0, False)[0],
    "__pos__": lambda x: x.__pos__(),
    "operator.pos": lambda x: +x,
    "retains_grad": lambda x: (x * 2).retains_grad,
    "_version": lambda x: (x * 2)._version,
    **{
        f"torch.nn.functional.{name}": functools.partial(
            lambda name, x: getattr(torch.nn.functional, name)(x, training=False), name
        )
        for name in ("dropout", "alpha_dropout", "feature_alpha_dropout", "rrelu")
    },
    **{
        f"torch.nn.functional.{name}": functools.partial(
            lambda name, dims, x: getattr(torch.nn.functional, name)(x[(None,) * dims], training=False), name, dims
        )
        for name, dims in (("dropout1d", 0), ("dropout2d", 1), ("dropout3d", 2))
    },
    **{
        f"operator.{name}": functools.partial(lambda name, x: getattr(operator, name)(x * 1, 2), name)
        for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow")
    },
    **{
        f"operator.{name}": functools.partial(lambda name, x: getattr(operator, name)(x.long() * 1, 2), name)
        for name in ("iand", "ior", "ixor", "ilshift", "irshift")
    },
    **{
        f"torch._C.{name}": functools.partial(
            lambda name, x: getattr(torch._C, name)((x,) if name[-1] == "n" else x), name
        )
        for name in ("_has_torch_function", "_has_torch_function_unary", "_has_torch_function_variadic")
    },
}
# What a test here cannot tell: a row that another one, or a rule for results of its class, stands in for.
COVERED = {
    "names": "named tensors have no fakes",
    "cuda": "needs a GPU",
    "chalf": "no kernels on the CPU",
}


def asked(name: str) -> Callable[[torch.Tensor], Any]:
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    owner, _, last = name.rpartition(".")
    if owner:
        function = functools.reduce(getattr, owner.split(".")[1:], torch)
        return lambda x: getattr(function, last)(x)

    def ask(x: torch.Tensor) -> Any:
        found = getattr(x, last)
        return found() if callable(found) else found

    return ask


HARMLESS = [name for kind, name in ROWS if kind == "kNothing" and name not in COVERED]


@pytest.mark.parametrize("channel", [f"reader.{name}" for name in HARMLESS])
def test_channel_that_tells_nothing(channel: str) -> None:
    ask = asked(channel.removeprefix("reader."))

    def fn(x: torch.Tensor) -> Any:
        told = ask(x)
        return x * 2, told * 1 if isinstance(told, torch.Tensor) else repr(told)

    check(fn, tensors(*ROW_SIZES), most=1)

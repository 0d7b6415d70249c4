"""Programs over sizes and numbers, called with other sizes and numbers each time: `python -m tests.fuzz --sizes`.

Whether a view, a product or a slice is possible depends on the sizes of all calls. So a program is grown by running it: each statement that is
proposed is run on the arguments of every call, and mostly kept only where it raises in none. What raises in some calls is kept now and then.
"""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .expressions import BOOL, FLOAT, INT, TENSOR
from .generate import Lines, indented

SHAPE = "shape"
LARGEST = 600  # elements of a tensor
TYPES = {torch.Tensor: TENSOR, int: INT, float: FLOAT, bool: BOOL, torch.Size: SHAPE}
# {x} {y} tensors, {n} {m} small ints, {k} any int, {f} a float, {b} a bool, {s} a shape. The form of a statement that gives such a value.
FORMS: dict[str, list[str]] = {
    TENSOR: [
        "{x} + {y}", "{x} * {y}", "{x} - {n}", "{x} * {k}", "{x} * {f}", "{x} / {x}.numel()", "{x} / {n}", "{x} + {f}", "{x} // {n}", "{x} % {n}", "{n} - {x}",
        "{x} @ {y}", "{x} @ {x}.transpose(0, -1)", "torch.matmul({x}, {y})", "{x}.sin()", "{x}.relu()", "-{x}", "{x}.sum()", "{x}.sum(0)", "{x}.mean(-1)",
        "{x}.sum(-1, keepdim=True)", "{x}.amax(0)", "{x}.max(0).values", "{x}.cumsum(0)", "{x}.softmax(-1)", "{x}.sort(0).values", "{x}.topk({n}, 0).values",
        "torch.cat([{x}, {y}])", "torch.cat([{x}, {y}], -1)", "torch.cat([{x}, {x}[:{n}]])", "torch.stack([{x}, {y}])", "torch.stack([{x}] * {n})",
        "{x}.reshape(-1)", "{x}.view(-1)", "{x}.view({n}, -1)", "{x}.reshape({n}, {m})", "{x}.view({x}.shape[0], -1)", "{x}.view({s})", "{x}.reshape({s})",
        "{x}.reshape(-1, {x}.shape[-1])", "{x}.flatten()", "{x}.unflatten(0, (2, -1))", "{x}.unflatten(-1, ({n}, -1))", "{x}.expand({n}, *{x}.shape)",
        "{x}.expand({s})", "{x}.expand_as({y})", "{x}.unsqueeze(0)", "{x}.unsqueeze(-1)", "{x}.squeeze()", "{x}.squeeze(0)", "{x}.squeeze(-1)",
        "{x}[{n}]", "{x}[-1]", "{x}[{n}:]", "{x}[:{n}]", "{x}[{n}:{m}]", "{x}[..., {n}]", "{x}[..., :{n}]", "{x}[::2]", "{x}[1:]", "{x}[None]", "{x}[:, {n}]",
        "{x}[{x}.shape[0] // 2:]", "{x}[:-{n}]", "{x}[torch.arange({n})]", "{x}.index_select(0, torch.arange({n}))", "{x}.narrow(0, {n}, {m})", "{x}.select(0, {n})",
        "{x}.t()", "{x}.transpose(0, -1)", "{x}.permute(*range({x}.ndim)[::-1])", "{x}.movedim(0, -1)", "{x}.contiguous()", "{x}.clone()", "{x}.detach()",
        "{x}.flip(0)", "{x}.roll({n}, 0)", "{x}.repeat({n}, *{x}.shape[1:])", "{x}.repeat_interleave({n}, 0)", "{x}.diagonal()", "torch.tril({x})", "{x}.triu({n})",
        "{x}.chunk(2)[0]", "{x}.chunk({n})[-1]", "{x}.split(2)[-1]", "{x}.split({n})[0]", "sum({x}.unbind())", "{x}.unfold(0, {n}, 1)", "sum(r for r in {x})",
        "torch.zeros({n}, {m})", "torch.ones({s})", "torch.arange({n})", "torch.arange({n}, {m})", "torch.full(({n},), {f})", "torch.eye({n}, {m})",
        "torch.linspace(0, 1, {n})", "{x}.new_zeros({n})", "{x}.new_ones({s})", "torch.zeros_like({x})", "torch.empty({n}, {m}).fill_({k})", "torch.tensor({k})",
        "torch.tensor({x}.shape)", "torch.tensor([{n}, {f}])", "torch.full({s}, {k})", "torch.where({x} > 0, {x}, {n})", "{x}.masked_fill({x} > 0, {f})",
        "{x}.clamp(max={n})", "{x}.add({y}, alpha={n})", "nn.functional.pad({x}, (0, {n}))", "nn.functional.pad({x}, (1, {n}, 0, 1))", "{x}.double()", "{x}.long()",
        "nn.functional.layer_norm({x}, {x}.shape[-1:])", "{x}.as_strided(({n},), (1,))", "({x} if {b} else {y})", "o.x", "helper({x}, {n})", "torch.outer({x}, {y})",
        "torch.arange({x}.shape[0]).float() * {n}", "{x}.view({n}, {x}.numel() // {n})", "{x}.softmax(0) * {x}.shape[0]", "{x}.bool()",
        "torch.nn.functional.avg_pool1d({x}, {n})", "{x}.prod(0)", "{x}.gather(0, torch.zeros_like({x}, dtype=torch.int64))", "{x}.norm()", "{x}.view({x}.size())",
        "torch.einsum('ij,kj->ik', {x}, {y})", "torch.broadcast_tensors({x}, {y})[0]", "{x}.T", "torch.cat([r for r in {x}.split({n})])", "{x}.argmax(-1)",
        "nn.functional.one_hot(torch.arange({n}), {m})", "{x}.scatter(0, torch.zeros_like({x}, dtype=torch.int64), {f})", "torch.cdist({x}, {y})",
        "{x}.new_tensor([{n}] * {m})", "torch.block_diag({x}, {y})", "torch.vmap(lambda r: r * r.shape[-1])({x})", "{x}.nonzero()", "{x}[{x} > 0]",
        # strides and offsets
        "{x}[{n}::2]", "{x}[::{n}]", "{x}[..., ::2]", "{x}[..., 1:]", "{x}[:, :{n}]", "{x}[..., -{n}:]", "{x}[{n}:, {m}:]", "{x}[:, None]", "{x}[..., None, {n}:]",
        "{x}.as_strided(({n}, {m}), ({m}, 1))", "{x}.as_strided(({n},), (2,), 1)", "{x}.as_strided({x}.shape, {x}.stride())", "{x}.as_strided(({n},), ({x}.stride(0),))",
        "{x}.as_strided(({n}, 2), (1, 1))", "{x}.t().contiguous()", "{x}.t().clone()", "torch.empty_like({x}.t()).fill_(1)", "{x}.mT.reshape(-1)", "{x}.T.flatten()",
        "{x}[None, None].contiguous(memory_format=torch.channels_last)[0, 0]", "{x}[..., :{n}].contiguous()", "{x}[:, :{n}].reshape(-1)", "{x}.swapaxes(0, -1).ravel()",
        # broadcasting
        "{x}[:1] + {x}", "{x}.unsqueeze(1) * {x}.unsqueeze(0)", "{x}.expand(-1, {n})", "{x}[:, None] + {y}", "{x} * {y}[:1]", "{x} - {x}.mean(-1, keepdim=True)",
        "{x} + torch.arange({x}.shape[-1])", "torch.where({x} > {y}, {x}, {y})", "torch.maximum({x}, {y})", "{x}.lerp({y}, {f})", "{x}.new_zeros(1).expand({n}, {m})",
        # windows
        "nn.functional.interpolate({x}[None, None].float(), size={n})", "nn.functional.interpolate({x}[None].float(), scale_factor=2)",
        "nn.functional.interpolate({x}[None].float(), scale_factor=0.5)", "nn.functional.interpolate({x}[None, None].float(), size=({n}, {m}), mode='bilinear')",
        "nn.functional.unfold({x}[None, None].float(), ({n}, 1))", "nn.functional.conv1d({x}[None].float(), torch.ones(1, {x}.shape[0], {n}))",
        "nn.functional.conv1d({x}[:, None].float(), torch.ones(2, 1, 2), padding={n})", "nn.functional.conv1d({x}[:, None].float(), torch.ones(1, 1, 2), stride={n})",
        "nn.functional.conv1d({x}[:, None].float(), torch.ones(1, 1, 3), padding='same')", "nn.functional.conv_transpose1d({x}[:, None].float(), torch.ones(1, 2, {n}), stride=2)",
        "nn.functional.conv2d({x}[None, None].float(), torch.ones(1, 1, {n}, 1))", "nn.functional.max_pool1d({x}, 2, ceil_mode=True)", "nn.functional.max_pool1d({x}, {n}, 1)",
        "nn.functional.adaptive_avg_pool1d({x}.float(), {n})", "nn.functional.pad({x}, (-1, {n}))", "nn.functional.pad({x}[None], ({n}, 1), mode='replicate')",
        "nn.functional.pad({x}[None], (1, {n}), mode='reflect')", "nn.functional.pad({x}[None], ({n}, 0), mode='circular')", "nn.functional.pad({x}, ({n}, {m}))",
        # parts of computed sizes
        "torch.cat({x}.split([{n}, {x}.shape[0] - {n}]))", "{x}.split([1, {x}.shape[0] - 1])[1]", "torch.cat({x}.chunk({n})[::-1])", "{x}.tensor_split({n})[0]",
        "{x}.tensor_split(({n}, {m}))[1]", "torch.cat([{x}[:{n}], {y}[{n}:]])", "{x}.split({x}.shape[0] // 2)[0]", "torch.cat({x}.tensor_split(3))",
        "{x}[:min({x}.shape[0], {n})]", "{x}[max({n}, {m}):]", "{x}.narrow(0, 0, min({n}, {x}.shape[0]))", "torch.stack({x}.unbind(-1))", "torch.cat([{x}] * {n}, -1)",
        "torch.zeros(max({n}, {m}), min({n}, {m}))", "{x}.new_ones({x}.shape[0] // 2, 2)", "torch.hstack([{x}, {x}])", "torch.vstack([{x}, {y}])", "torch.dstack([{x}, {x}])",
        # gradients, out=
        "(lambda a: torch.autograd.grad((a * a).sum() * {n}, a)[0])({x}.detach().float().requires_grad_())",
        "(lambda a: torch.autograd.grad(a[:{n}].softmax(0).sum(), a)[0])({x}.detach().float().requires_grad_())",
        "torch.add({x}, {n}, out=torch.empty_like({x}))", "torch.cat([{x}, {x}], out={x}.new_empty(0))", "torch.mul({x}, {x}, out={x}.new_empty({x}.shape))",
        # unbacked sizes, and those besides
        "{x}[{x} > {f}]", "torch.cat([{x}.reshape(-1), {x}[{x} > 0]])", "torch.where({x} > 0)[0]", "{x}[:int(({x} > 0).sum())]", "torch.arange(({x} > 0).sum().item())",
        "{x}.masked_select({x} > 0)", "torch.unique({x})", "{x}[{x}.sum(-1) > 0]", "{x}[({x} > 0).nonzero()[:, 0]]", "{x}[{x} > 0].view(-1, 1) + {x}.reshape(-1)",
        "torch.zeros(int(({x} > 0).sum()), {n})", "{x}.flatten()[{x}.flatten() > 0].sum() * {n}", "torch.split({x}, [int(({x}[:, 0] > 0).sum()), int(({x}[:, 0] <= 0).sum())])[0]",
        # containers
        "{{'a': {x}}}['a']", "[{x}, {y}][{n} % 2]", "Point({n}, {x}).right", "(*{x}.shape, {x})[-1]", "o.cache.setdefault('x', {x})", "Data({n}, {x}).x",
    ],
    INT: [
        "{x}.shape[0]", "{x}.shape[-1]", "{x}.size(0)", "len({x})", "{x}.numel()", "{x}.ndim", "{x}.stride(0)", "{x}.storage_offset()", "{x}.nbytes", "{s}[0]",
        "{s}.numel()", "len({s})", "{k} + {n}", "{k} - {n}", "{n} * {m}", "{k} // {n}", "{k} % {n}", "{k} // 2", "{k} % 2", "{n} * 2 + 1", "{k} // -{n}", "-{n} % {m}",
        "max({n}, {m})", "min({n}, {m})", "abs({k})", "-{k}", "int({b})", "({n} if {b} else {m})", "o.n", "len(o.items)", "sum({x}.shape)", "int({f})", "{n} ** 2",
        "1 << ({n} % 5)", "int({n} * 0.5)", "math.isqrt(abs({k}))", "divmod({k}, 3)[1]", "divmod({k}, {n})[0]", "G", "[5, 6, 7][{n} % 3]", "({n} & {m})", "({n} ^ 1)",
        "sum([{n}, {m}, 1])", "round({f})", "int(str({n}))", "next(i for i in range(50) if i >= {n})", "hash({n})", "len(range({n}))", "len([0] * {n})",
        "o.cache.get({n}, {m})", "{{3: 1, 4: 2}}.get({n}, 0)", "sorted([{n}, {m}, 3])[1]", "sum(1 for _ in {x})", "functools.reduce(lambda p, q: p * q, {s}, 1)",
        "max({s}, default=2)", "(lambda q: q + {n})({m})", "operator.index({n})", "min(o.items, key=lambda q: q % {n}, default=0)", "'abc'.find('c') + {n}",
        "torch.sym_max({n}, {m})", "len({x}.split({n}))", "len({x}.chunk({n}))", "{x}.dim() * {n}", "math.ceil({n} / 2)", "math.gcd({n}, 6)", "({n} or {m})",
        "{x}.stride(-1)", "{x}[{n}:].storage_offset()", "max({x}.shape)", "min({s}, default=1)", "{x}.nonzero().shape[0]", "int(({x} > 0).sum())", "{x}[{x} > 0].shape[0]",
        "{n} * {x}.shape[0] // 3", "-{n} // 2", "({k} + {n}) % ({m} + 1)", "({n} | 1)", "{n} >> 1", "~{n}", "pow({n}, 2, 7)", "round({k} / 2)", "{k}.bit_length()",
        "int({f} * {n})", "({n} > 3) + {m}", "({n} if {n} > {m} else {m})", "math.floor({f})", "math.prod({s})", "sorted({s})[0]", "min({n}, {m}, {k})", "max(1, {n} - {m})",
        "Point({n}, {m}).left", "Data({n}).n", "o.cache.setdefault('n', {n})", "[{n}, {m}][-1]", "{x}.shape[{n} % {x}.ndim]", "{x}.T.stride(0)", "{x}[..., :{n}].stride(0)",
    ],
    FLOAT: ["{n} / 2", "{k} / {n}", "{f} * 2", "{f} + {n}", "math.sqrt(abs({k}))", "abs({n}) ** 0.5", "float({n})", "{f} / 3", "-{f}", "1.0 / ({n} + 1)", "{n} * 0.1",
            "{f} % 1", "o.rate", "abs({f})", "max({f}, 0.5)", "round({f}, 1)", "{f} ** 2", "math.copysign(1.0, {f})", "sum([{n}, {f}])"],
    BOOL: ["{n} > {m}", "{n} == {m}", "{k} <= 4", "{k} != {n}", "{x}.shape == {y}.shape", "{x}.is_contiguous()", "not {b}", "{n} in (4, 5)", "{n} % 2 == 0",
           "({b} and {n} > 1)", "({b} or {m} < 3)", "{x}.shape[0] > 1", "{f} > 0.5", "{x} is {y}", "{n} is {m}", "bool({n})", "{s} == (4, 3)", "{x}.numel() > 8",
           "3 < {n} < 7", "{n} in range(3, 6)", "isinstance({n}, int)", "type({n}) is int", "all({s})", "{x}.is_same_size({y})", "len({x}) == {n}", "{f} == {f}",
           "{x}.numel() == {y}.numel()", "{n} >= {m}", "{x}.T.is_contiguous()", "{x}[..., :{n}].is_contiguous()", "{x}.stride() == {y}.stride()", "{x}.shape[-1] == 1",
           "{n} < {m} <= {k}", "{x}.storage_offset() == 0", "{x}[{n}:].numel() == 0", "{x}.reshape(-1) is {x}", "{x}.contiguous() is {x}", "{x}.squeeze().ndim == 1",
           "min({s}, default=0) > 1", "0 in {s}", "max({n}, {m}) == {n}", "{x}.shape[0] % 2 == 1", "{x}[:{n}].contiguous() is {x}", "{f} == {n}", "{f} < {n}"],
    SHAPE: ["{x}.shape", "{x}.size()", "{x}.shape[1:]", "torch.Size(({n}, {m}))", "{x}.shape[:1] + {s}", "torch.broadcast_shapes({x}.shape, {y}.shape)", "{x}[:{n}].shape", "{x}.stride()", "tuple({x}.shape)", "({n}, *{s})",
              "torch.Size([max({n}, 1), 2])", "{x}.T.shape", "(*{s}[1:], {n})", "{x}.nonzero().shape"],
}  # fmt: skip
EFFECTS = [
    "o.n = {k}", "o.n += 1", "o.n += {n}", "o.x = {x}", "o.x = torch.cat([o.x, {x}])", "o.x = torch.cat([o.x, {x}[:1]])", "o.cache[{n}] = {m}", "o.items.append({n})",
    "o.rate = {f}", "o.rate *= 0.5", "G = {k}", "G += 1", "log.append({s})", "log.append({k})", "log.append(f'{{{n}}} {{{s}}}')", "log.append({{{n}: {m}}})",
    "log.append('%d %s' % ({n}, {s}))", "print({n}, {s})", "log.append(list(range({n})))", "log.append([0] * {n})", "log.append(type({k}))", "log.append(({f}, {b}))",
    "log.append({x}.stride())", "log.append([r.shape for r in {x}])", "log.append({x}.sum().item() > 0)", "o.shape = {s}", "log.append(divmod({k}, {n}))",
    "log.append([q * {n} for q in {s}])", "log.append(tuple({x}.shape) + ({n},))", "assert {b} or True", "torch._check({n} >= 0)", "torch._check({n} < 50, lambda: 'long')",
    "o.items[:] = [{n}, {m}]", "graph_break()", "time.sleep(0)", "pause({n})", "log.append(pause({k}) * 2)", "{x}.sum()",
]  # fmt: skip
WRITES = ["{x}.add_({n})", "{x}[{n}:].mul_(2)", "{x}.view(-1)[0] = {f}", "{x}.reshape(-1).add_(1)", "{x}[0] = {k}", "{x}.copy_({y})", "{x}.t_()", "{x}.unsqueeze_(0)",
          "{x}.zero_()", "{x} += {y}", "{x}[{n}] += 1", "{x}.contiguous().add_(1)", "{x}[..., 0] *= {n}", "{x}.squeeze_()", "{x}.fill_({k})", "{x}[:{n}] = {y}[:{n}]", "{x}[::2].add_({n})", "{x}.T.mul_(2)", "torch.add({x}, 1, out={x})",
          "{x}.diagonal().zero_()", "{x}[..., :{n}].copy_({y}[..., :{n}])", "{x}[{x} > 0] = {f}", "{x}.index_fill_(0, torch.arange({n}), {k})", "{x}.select(0, {n}).fill_(1)",
          "{x}.unbind(0)[0].add_(1)", "{x}.split({n})[0].mul_(2)", "{x}.chunk(2)[-1].zero_()", "{x}.view({s}).add_(1)", "{x}.flatten().add_(1)", "{x}.transpose_(0, -1)",
          "{x}.T.reshape(-1).add_(1)", "{x}[..., :{n}].reshape(-1).add_(1)", "{x}.as_strided((1,), (1,)).fill_({n})", "{x}.masked_fill_({x} > {n}, {k})", "{x}.sub_({y}[:1])",
          "{x}.detach().add_(1)", "{x}.expand_as({y}).contiguous().add_(1)", "{x}[{n}:{m}] = {k}", "{x}[..., 1:] += {x}[..., :-1]", "{x}.cumsum_(0)", "o.x.add_({n})",
          "torch.mul({x}, {n}, out={y})", "{x}.squeeze(0).add_(1)", "{x}.view(-1)[{n}:] = {f}", "{x}.copy_({x}.flip(0))", "{x}.narrow(0, 0, {n}).neg_()"]  # fmt: skip
FAILING = [
    "raise ValueError({k}, {s})",
    "assert {b}, {n}",
    "raise RuntimeError(f'{{{n}}} of {{{s}}}')",
    "{x}.view({n}, {m})",
    "{x}[{n}]",
    "[1, 2, 3][{n}]",
    "12 // {k}",
]
LAYOUTS = [
    "T({0}, s={s}{more})",
    "T({1}, s={s}{more})",
    "T({0}, s={s}{more})[1:]",
    "T({0}, s={s}{more})[::2]",
    "T({0}, s={s}{more})[..., 1:]",
    "T({0}, s={s}{more})[..., ::2]",
]
RESULTS = ["{}", "[{}]", "({},)", "{{'r': [{}]}}"]

Space = dict[str, Any]


class SizeGenerator:
    """The interface of Generator: a seed, and the text of its program."""

    def __init__(self, seed: int, size: int = 12) -> None:
        self.rng = random.Random(seed)
        self.size = size
        self.counter = 0
        self.depth = 0
        self.protected = self.rng.random() < 0.5  # nothing is written to what a caller can see
        self.breaks = self.rng.random() < 0.3
        self.inside_arguments = False  # the argument c is a dict

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    # ------------------------------------------------------------------------------------------------------- running

    def runs(self, lines: Lines, spaces: list[Space]) -> list[bool]:
        """Runs statements on the arguments of each call; where they raise they count as not run, though what they did stays done."""
        code = compile("\n".join(lines), "<proposed>", "exec")
        return [self.run_one(code, space) for space in spaces]

    @staticmethod
    def run_one(code: Any, space: Space) -> bool:
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                exec(code, space)
        except Exception:
            return False
        large = [
            name
            for name, value in space.items()
            if isinstance(value, torch.Tensor) and value.untyped_storage().size() > 8 * LARGEST
        ]
        for name in large:
            del space[name]  # nothing is computed from it, which would be larger still
        return not large

    def names(self, kind: str, spaces: list[Space], small: bool = False) -> list[str]:
        """What has this kind in every call."""
        found = []
        for name, value in spaces[0].items():
            if (
                TYPES.get(type(value)) != kind
                or name == "G"
                or not all(type(space.get(name)) is type(value) for space in spaces)
            ):
                continue
            if not small or all(-2 <= space[name] <= 20 for space in spaces):
                found.append(name)
        return found

    def fill(self, form: str, spaces: list[Space]) -> str:
        """A form with names and numbers in it."""
        tensors = self.names(TENSOR, spaces)[-7:] or ["torch.ones(3)"]
        small = self.names(INT, spaces, small=True)[-5:]
        x = self.rng.choice(tensors)

        def small_int() -> str:
            inline = [f"{x}.shape[0]", f"{x}.shape[-1]", f"len({x})", f"{x}.numel()", f"{x}.shape[0] // 2"]
            return self.rng.choice([*small, *small, *inline, str(self.rng.choice([0, 1, 2, 3, 4, 5]))])

        return form.format(
            x=x, y=self.rng.choice(tensors), n=small_int(), m=small_int(), k=self.rng.choice([*self.names(INT, spaces)[-5:], small_int()]),
            f=self.rng.choice([*self.names(FLOAT, spaces)[-3:], "0.5", "1.5"]), b=self.rng.choice([*self.names(BOOL, spaces)[-3:], f"{small_int()} > 3"]),
            s=self.rng.choice([*self.names(SHAPE, spaces)[-3:], f"{x}.shape"]),
        )  # fmt: skip

    def attempt(self, make: Callable[[], Lines], spaces: list[Space], tries: int = 12) -> Lines:
        """Statements that run in every call, or sometimes only in some."""
        for _ in range(tries):
            lines = make()
            with contextlib.suppress(SyntaxError):
                ran = self.runs(lines, spaces)
                if all(ran) or (any(ran) and self.chance(0.03)):
                    return lines
        return []

    # ---------------------------------------------------------------------------------------------------- statements

    def block(self, budget: int, spaces: list[Space]) -> Lines:
        lines: Lines = []
        for _ in range(4 * budget if spaces else 0):
            made = self.statement(spaces)
            lines += made
            budget -= len(made)
            if budget <= 0:
                break
        return lines

    def statement(self, spaces: list[Space]) -> Lines:
        if self.depth < 2 and self.chance(0.22):
            self.depth += 1
            lines = self.rng.choice(
                [self.condition, self.condition, self.loop, self.rows, self.closure, self.caught, self.halving]
            )(spaces)
            self.depth -= 1
            return lines
        chosen = self.rng.random()
        if chosen < 0.12:
            effects = (
                EFFECTS
                if self.breaks
                else [one for one in EFFECTS if "graph_break" not in one and "sleep" not in one and "pause" not in one]
            )
            return self.attempt(lambda: [self.fill(self.rng.choice(effects), spaces)], spaces)
        if chosen < 0.18 and not self.protected:
            return self.attempt(lambda: [self.fill(self.rng.choice(WRITES), spaces)], spaces)
        kind = self.rng.choice([TENSOR] * 6 + [INT] * 4 + [FLOAT, BOOL, SHAPE])
        if self.inside_arguments and self.chance(0.15):
            taken = self.rng.choice(
                [
                    "c['n']",
                    "c['f']",
                    "c['x']",
                    "c['l'][0]",
                    "sum(c['l'])",
                    "len(c['l'])",
                    "c['l'][-1] * c['n']",
                    "max(c['l'])",
                ]
            )
            return self.attempt(lambda: [f"{self.fresh('v')} = {taken}"], spaces)
        if chosen < 0.26:
            return self.attempt(lambda: self.changed(kind, spaces), spaces)
        return self.attempt(lambda: [f"{self.fresh('v')} = {self.fill(self.rng.choice(FORMS[kind]), spaces)}"], spaces)

    def changed(self, kind: str, spaces: list[Space]) -> Lines:
        """A name that is bound anew."""
        own = [name for name in self.names(kind, spaces) if name.startswith("v")]
        return [f"{self.rng.choice(own or ['v0'])} = {self.fill(self.rng.choice(FORMS[kind]), spaces)}"]

    def inside(self, spaces: list[Space], budget: int, chosen: list[bool] | None = None) -> Lines:
        """A block on copies: what it binds is not bound behind it."""
        kept = [dict(space) for space, into in zip(spaces, chosen or [True] * len(spaces), strict=True) if into]
        lines = self.block(budget, kept)
        if lines and self.chance(0.6):
            lines.append(f"log.append({self.newest(kept, 1)[0]})")
        return lines or ["pass"]

    def newest(self, spaces: list[Space], most: int) -> list[str]:
        """Names that were bound last: what nobody looks at may be wrong."""
        kinds = set(TYPES)
        bound = [
            name
            for name in spaces[0]
            if name.startswith("v") and all(type(space.get(name)) in kinds for space in spaces)
        ]
        return bound[-most:] or ["x"]

    def condition(self, spaces: list[Space]) -> Lines:
        test = self.fill(self.rng.choice(FORMS[BOOL]), spaces)
        taken: list[bool] = []
        for space in spaces:
            try:
                taken.append(bool(eval(test, space)))
            except Exception:
                return []
        last = self.fill(self.rng.choice(FAILING), spaces) if self.chance(0.1) else None
        if last is None and self.chance(0.15):
            last = f"return {self.fill('{x}', spaces)}, {self.fill('{k}', spaces)}"
        body = [*self.inside(spaces, 2, taken), *([last] if last else [])]
        lines = [f"if {test}:", *indented(body)]
        if self.chance(0.5):
            lines += ["else:", *indented(self.inside(spaces, 2, [not one for one in taken]))]
        return lines

    def around(
        self, head: str, names: dict[str, Callable[[Space], Any]], spaces: list[Space], budget: int = 2
    ) -> Lines:
        """A compound statement whose body sees some names of its own."""
        inner = []
        for space in spaces:
            with contextlib.suppress(Exception):
                inner.append({**space, **{name: value(space) for name, value in names.items()}})
        return [head, *indented(self.block(budget, inner) or ["pass"])]

    def loop(self, spaces: list[Space]) -> Lines:
        i, total = self.fresh("i"), self.fresh("v")
        count = self.rng.choice([self.fill("{n}", spaces), self.fill("{x}.shape[0]", spaces)])
        x = self.fill("{x}", spaces)
        lines = self.around(f"for {i} in range({count} % 5):", {i: lambda _: 1}, spaces)
        return self.attempt(lambda: [f"{total} = {x}", *lines, f"    {total} = {total} * 2 + {i}"], spaces, 1)

    def rows(self, spaces: list[Space]) -> Lines:
        r, total, x = self.fresh("r"), self.fresh("v"), self.fill("{x}", spaces)
        lines = self.around(f"for {r} in {x}[:4]:", {r: lambda space: eval(x, space)[0]}, spaces, 1)
        return self.attempt(
            lambda: [f"{total} = 0", *lines, f"    {total} = {total} + {r}.sum() * {r}.numel()"], spaces, 1
        )

    def halving(self, spaces: list[Space]) -> Lines:
        n, x = self.fresh("v"), self.fresh("v")
        made = [
            f"{n}, {x} = {self.fill('{x}.shape[0]', spaces)}, {self.fill('{x}', spaces)}",
            f"while {n} > 1 and {x}.ndim:",
        ]
        return self.attempt(lambda: [*made, f"    {n}, {x} = {n} // 2, {x}[:{n} // 2]"], spaces, 1)

    def closure(self, spaces: list[Space]) -> Lines:
        name, x = self.fresh("g"), self.fill("{x}", spaces)
        inner: list[Space] = []
        for space in spaces:
            with contextlib.suppress(Exception):
                inner.append({**space, "a": eval(x, space), "k": 2})
        body = self.block(2, inner) if inner else []
        given = self.fill(self.rng.choice(FORMS[TENSOR]), inner) if inner else "a"
        head = f"def {name}(a, k={self.fill('{n}', spaces)}):"
        return self.attempt(
            lambda: [head, *indented([*body, f"return {given}"]), f"{self.fresh('v')} = {name}({x})"], spaces, 1
        )

    def caught(self, spaces: list[Space]) -> Lines:
        risky = self.fill(self.rng.choice(FAILING), spaces)
        handler = ["log.append((type(e).__name__, str(e)[:60]))"]
        lines = ["try:", *indented([*self.inside(spaces, 1), risky]), "except Exception as e:", *indented(handler)]
        return self.attempt(lambda: lines, spaces, 1)

    # ------------------------------------------------------------------------------------------------------- program

    def sizes(self, count: int) -> list[tuple[int, int]]:
        """Two sizes for each call: some stay, some meet, some are 0, 1 or 2."""
        n, m = self.rng.choice([2, 3, 4, 5, 6]), self.rng.choice([1, 2, 3, 4, 5])
        found = [(n, n if self.chance(0.2) else m)]
        both = self.chance(0.4)
        for _ in range(count - 1):
            n = self.rng.choice(
                [n + 1, n + 1, n + 2, self.rng.randint(2, 9), self.rng.choice([0, 1, 2]) if self.chance(0.5) else n]
            )
            if both:
                m = self.rng.choice([m, m + 1, n, self.rng.randint(1, 7)])
            found.append((n, m))
        return found

    def argument(self, sizes: list[tuple[int, int]], others: list[str]) -> list[str]:
        """The text of one tensor argument in each call."""
        shape = self.rng.choice(
            [
                ("n", "m"),
                ("n", "m"),
                ("n",),
                ("n", 3),
                (2, "n", "m"),
                ("m", "n"),
                ("n", "n"),
                ("n", 1),
                ("m",),
                (1, "n"),
                ("n", "2m"),
                ("n", 2, "m", 2),
            ]
        )
        layout, steady = self.rng.choice(LAYOUTS), self.chance(0.7)
        more = self.rng.choice(["", "", "", ", rg=True", ", dtype=torch.float64", ", dtype=torch.int64"])
        found = []
        for number, (n, m) in enumerate(sizes):
            dims = [{"n": n, "m": m, "2m": 2 * m}.get(one, one) for one in shape]  # type: ignore[call-overload]
            form = layout if steady else self.rng.choice(LAYOUTS)
            if form == LAYOUTS[1]:
                turned = ", ".join(map(str, dims[::-1]))
                text = f"T({turned}, s={number}{more}).permute(*range({len(dims)})[::-1])"
            else:
                if "1:]" in form:
                    at = -1 if "..." in form else 0
                    dims[at] = int(dims[at]) + 1
                elif "::2" in form:
                    at = -1 if "..." in form else 0
                    dims[at] = int(dims[at]) * 2
                text = form.format(", ".join(map(str, dims)), s=number, more=more)
            if others and self.chance(0.06):
                text = others[number] + self.rng.choice(["", "[1:]", ".detach()"])
            found.append(text)
        return found

    def program(self) -> str:
        sizes = self.sizes(self.rng.randint(3, 6))
        texts = [self.argument(sizes, [])]
        parameters = ["x"]
        for name in ("y", "z")[: self.rng.randint(0, 2)]:
            texts.append(self.argument(sizes, texts[0]))
            parameters.append(name)
        if self.chance(0.6):
            values = [[3, 4, 5, 6], [1, 2, 3, 0], [2, 2, 3, 4], [7, 300, -1, 2]]
            chosen = self.rng.choice(values)
            texts.append(
                [
                    str(chosen[i % 4] if self.chance(0.8) else self.rng.choice([True, 5, n]))
                    for i, (n, _) in enumerate(sizes)
                ]
            )
            parameters.append("k")
        if self.chance(0.4):
            floats = self.rng.choice(
                [
                    ["0.5", "0.25", "0.125"],
                    ["1.0", "-0.0", "0.0"],
                    ["0.1", "0.1", "2.0"],
                    ["float('nan')", "1e30", "2.5"],
                ]
            )
            texts.append([floats[i % 3] for i in range(len(sizes))])
            parameters.append("f")
        if self.chance(0.3):
            # Numbers and tensors inside of containers.
            values = self.rng.choice([[3, 4, 5], [1, 2, 0], [6, 6, 2]])
            inner = self.argument(sizes, texts[0])
            texts.append(
                [
                    f"{{'n': {values[i % 3]}, 'f': {0.5 * i}, 'x': {inner[i]}, 'l': [{n}, {m}]}}"
                    for i, (n, m) in enumerate(sizes)
                ]
            )
            parameters.append("c")
            self.inside_arguments = True
        # Some calls come again, in another order.
        calls = list(zip(*texts, strict=True))
        order = [*range(len(calls)), *(self.rng.randrange(len(calls)) for _ in range(self.rng.randint(0, 3)))]
        kept = self.rng.choice(["T(1, 3)", "T(2)", "None", "torch.zeros(0, 3)", "T(3, 3)"])
        base = [
            f"o = Plain({self.rng.choice([0, 1, 3, 4])})",
            f"o.x, o.rate = {kept}, 0.5",
            "global G",
            f"G = {self.rng.choice([1, 2, 5])}",
        ]
        helper = ["def helper(a, n):", *indented(self.helper_body())]
        spaces = [self.space(base, helper, dict(zip(parameters, call, strict=True))) for call in calls]
        body = self.block(self.size, spaces)
        returned = self.result(spaces)
        if any(line.lstrip().startswith(("G =", "G +=")) for line in body):
            body = ["global G", *body]
        lines = [
            "log, errors = [], []",
            "t.watch(lambda: (log, errors, o, G))",
            *base,
            *helper,
            f"def fn({', '.join(parameters)}):",
            *indented([*body, returned]),
        ]
        lines.append(f"f = t.compile(fn{', dynamic=True' if self.chance(0.25) else ''})")
        for number in order:
            call = f"f({', '.join(calls[number])})"
            lines.append(f"grads({call})" if self.chance(0.2) else call)
            if self.chance(0.15):
                lines.append(
                    self.rng.choice(
                        [
                            "o.n += 1",
                            "o.n = 7",
                            "G = 3",
                            "o.rate = 0.75",
                            "o.items.append(4)",
                            "o.x = T(2, 3)",
                            "log.clear()",
                            "o.cache.clear()",
                        ]
                    )
                )
        return "\n".join(["def program(t):", *indented(lines)]) + "\n"

    def helper_body(self) -> Lines:
        return self.rng.choice([
            ["return a * n + a.shape[0]"], ["return a[:n] if n > 2 else a"], ["if a.ndim > 1:", "    return a.sum(0) / a.shape[0]", "return a * n"],
            ["m = a.shape[0] // 2", "return torch.cat([a[m:], a[:m]])"], ["for i in range(n % 3):", "    a = a + i", "return a"], ["return a.reshape(-1)[:n]"],
        ])  # fmt: skip

    @staticmethod
    def space(base: Lines, helper: Lines, arguments: dict[str, str]) -> Space:
        from .world import MODULE, NAMES, PRELUDE_CODE

        space: Space = {**NAMES, "__name__": MODULE, "log": [], "errors": []}
        exec(PRELUDE_CODE, space)
        exec("\n".join([*base, *helper]), space)
        for name, text in arguments.items():
            space[name] = eval(text, space)
        return space

    def result(self, spaces: list[Space]) -> str:
        parts = [
            self.fill(self.rng.choice(["{x}", "{x}", "{k}", "{s}", "{f}", "{b}"]), spaces)
            for _ in range(self.rng.randint(0, 2))
        ]
        parts += self.newest(spaces, self.rng.randint(1, 8))
        return f"return {self.rng.choice(RESULTS).format(', '.join(parts))}"

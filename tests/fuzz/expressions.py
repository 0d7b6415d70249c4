"""Random expressions by kind. Names that are in scope are kept by kind too; what is generated may raise, but always ends."""

from __future__ import annotations

import random
from collections.abc import Callable

# Kinds of values. Every tensor has the shape (3,), or none: reductions broadcast back.
TENSOR, INT, FLOAT, STR, BOOL = "tensor", "int", "float", "str", "bool"
INTS, TENSORS, TABLE, TTABLE, SET, OBJECT, MODULE, PAIR, ANY = (
    "ints",
    "tensors",
    "table",
    "ttable",
    "set",
    "object",
    "module",
    "pair",
    "any",
)
VALUE_KINDS = [TENSOR, INT, FLOAT, STR, BOOL, INTS, TENSORS, TABLE, TTABLE, SET, OBJECT, PAIR]
KEYS = ["'a'", "'b'", "'c'", "'k'"]
UNARY = [
    "sin",
    "cos",
    "relu",
    "tanh",
    "exp",
    "abs",
    "neg",
    "sigmoid",
    "square",
    "clone",
    "detach",
    "contiguous",
    "softmax(0)",
    "cumsum(0)",
    "flip(0)",
]
IN_PLACE = ["add_(1)", "mul_(2)", "neg_()", "sin_()", "zero_()", "clamp_(-1, 1)", "fill_(2)"]


class Scope:
    """The names that can be read, by kind. Inner scopes see outer ones."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.names: dict[str, list[str]] = {}

    def add(self, kind: str, name: str) -> None:
        self.names.setdefault(kind, []).append(name)

    def of(self, kind: str) -> list[str]:
        own = self.names.get(kind, [])
        return own + self.outer.of(kind) if self.outer else own


class Expressions:
    """What it knows of the program's own classes and functions is filled in by the generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.helpers: list[str] = []  # tensor functions of (x, n)
        self.generators: list[str] = []  # generator functions of a list of ints
        self.classes: list[str] = []
        self.features: set[str] = set()
        self.scope = Scope()

    def pick(self, *choices: Callable[[], str] | str) -> str:
        chosen = self.rng.choice(choices)
        return chosen if isinstance(chosen, str) else chosen()

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def of(self, kind: str, depth: int = 2) -> str:
        """An expression of this kind."""
        if kind == ANY:
            kind = self.rng.choice(VALUE_KINDS)
        names = self.scope.of(kind)
        if names and (depth <= 0 or self.chance(0.45)):
            return self.rng.choice(names[-6:])
        return getattr(self, f"{kind}_expression")(depth - 1)

    def number(self) -> str:
        return str(self.rng.choice([0, 1, 2, 3, 5, 7, -1]))

    # ------------------------------------------------------------------------------------------------------ by kind

    def tensor_expression(self, d: int) -> str:
        if d < 0:
            return self.pick("T(3)", "torch.ones(3)", f"torch.full((3,), {self.rng.choice([0.5, 2.0, -1.0])})")
        x, y = self.of(TENSOR, d), self.of(TENSOR, d)
        choices: list[Callable[[], str] | str] = [
            f"({x} + {y})", f"({x} * {y})", f"({x} - {self.of(INT, d)})", f"({x} * {self.of(FLOAT, d)})",
            lambda: call_unary(x, self.rng.choice(UNARY)), f"{x}.sum()", f"torch.stack(torch.broadcast_tensors({x}, {y})).sum(0)",
            f"torch.where({x} > 0, {x}, {y})", f"({x} if {self.of(BOOL, d)} else {y})", f"sum({self.of(TENSORS, d)}, {x})",
            f"torch.tensor([1.0, 2.0, {self.of(FLOAT, d)}])", f"{x}.view(-1)", f"{x}[{self.rng.choice(['...', ':', 'None', '0'])}]",
            f"torch.zeros(3, dtype={x}.dtype)", lambda: f"{self.of(OBJECT, d)}.scaled({x})",
            lambda: f"{self.of(TTABLE, d)}.get({self.rng.choice(KEYS)}, {y})",
        ]  # fmt: skip
        if self.helpers:
            choices += [f"{self.rng.choice(self.helpers)}({x}, {self.of(INT, d)})"] * 3
        if self.scope.of(MODULE):
            choices += [f"{self.of(MODULE, 0)}({x})"] * 2
        return self.pick(*choices)

    def int_expression(self, d: int) -> str:
        if d < 0:
            return self.number()
        a, b = self.of(INT, d), self.of(INT, d)
        return self.pick(
            self.number, f"({a} + {b})", f"({a} * {b} % 17)", f"({a} - {b})", f"({a} // 3)", f"len({self.of(INTS, d)})",
            f"sum({self.of(INTS, d)})", f"max({self.of(INTS, d)}, default={b})", f"[*{self.of(INTS, d)}, {b}][{self.rng.choice([0, -1])}]",
            f"{self.of(TABLE, d)}.get({self.rng.choice(KEYS)}, {b})", self.risky_int,
            f"{self.of(TENSOR, d)}.shape[0]" if self.chance(0.3) else f"{self.of(TENSOR, d)}.ndim", f"{self.of(OBJECT, d)}.n",
            f"len({self.of(STR, d)})", f"len({self.of(SET, d)})", f"(1 if {self.of(FLOAT, d)} > 0 else 2)", f"int({self.of(BOOL, d)})",
            f"({a} if {self.of(BOOL, d)} else {b})", f"{self.of(PAIR, d)}[0]", f"-{a}", f"len({self.of(OBJECT, d)})",
            f"functools.reduce(lambda p, q: p + q, {self.of(INTS, d)}, {a})", f"next(iter({self.of(INTS, d)}), {b})",
            f"functools.reduce(getattr, ['n'], {self.of(OBJECT, 0)})", f"functools.partial(lambda p, q: p - q, {a})({b})",
            f"len({{id({self.lasting_object()}), id({self.lasting_object()})}})", f"getattr({self.of(OBJECT, 0)}, {self.rng.choice(['n', 'k', 'gone'])!r}, {b})",
            f"max({self.of(INTS, d)}, key=lambda v: v % 3, default={a})", f"sum(map(len, [{self.of(INTS, 0)}, {self.of(TABLE, 0)}]))",
        )  # fmt: skip

    def risky_int(self) -> str:
        """May raise; rare, or nothing else would happen."""
        if "risk" not in self.features or self.chance(0.5):
            return self.number()
        return self.pick(
            f"{self.of(TABLE, 0)}[{self.rng.choice(KEYS)}]", f"{self.of(INTS, 0)}[1]", f"(7 // {self.of(INT, 0)})"
        )

    def float_expression(self, d: int) -> str:
        if d < 0:
            return self.rng.choice(["0.5", "0.0", "-0.0", "2.0", "1.5", "float('inf')", "float('nan')"])
        return self.pick(
            lambda: self.float_expression(-1), f"({self.of(INT, d)} / 2)", f"({self.of(FLOAT, d)} + 1)", f"float({self.of(INT, d)})",
            f"abs({self.of(FLOAT, d)})", f"math.copysign(1.0, {self.of(FLOAT, d)})", f"({self.of(FLOAT, d)} * {self.of(INT, d)})",
        )  # fmt: skip

    def str_expression(self, d: int) -> str:
        if d < 0:
            return self.rng.choice(["'a'", "'b'", "''", "'k'", "'text'"])
        return self.pick(
            lambda: self.str_expression(-1), f"{self.of(STR, d)}.upper()", f"f'{{{strip(self.of(INT, d))}}}:{{{strip(self.of(STR, 0))}}}'",
            f"repr({self.of(INTS, d)})", f"str({self.of(FLOAT, d)})", f"repr({self.of(TABLE, d)})", f"({self.of(STR, d)} + 'z')",
            f"'-'.join(str(i) for i in {self.of(INTS, d)})", f"type({self.of(ANY, 0)}).__name__", f"'%s' % ({self.of(INT, d)},)",
            f"','.join(map(str, {self.of(INTS, d)}))", f"'%s %r' % ({self.of(INT, d)}, {self.of(STR, 0)})", f"str({self.of(OBJECT, 0)})",
            f"repr({self.of(OBJECT, 0)})", f"next(iter({self.of(TABLE, d)}), 'none')", f"'{{}}'.format({self.of(BOOL, d)})",
        )  # fmt: skip

    def bool_expression(self, d: int) -> str:
        if d < 0:
            return self.rng.choice(["True", "False"])
        a, b = self.of(INT, d), self.of(INT, d)
        return self.pick(
            f"({a} < {b})", f"({a} == {b})", f"({a} in {self.of(INTS, d)})", f"(not {self.of(BOOL, d)})", f"bool({self.of(INTS, d)})",
            f"({self.of(BOOL, d)} and {self.of(BOOL, d)})", f"({self.of(BOOL, d)} or {self.of(BOOL, d)})", f"({self.rng.choice(KEYS)} in {self.of(TABLE, d)})",
            f"isinstance({self.of(ANY, 0)}, {self.rng.choice(['int', '(list, dict)', 'torch.Tensor', 'float', 'bool'])})",
            f"({self.same_kind_is()})", f"hasattr({self.of(OBJECT, 0)}, {self.rng.choice(['', 'x']) + 'n'!r})", f"{self.of(TENSOR, 0)}.requires_grad",
            f"({self.of(STR, d)} == {self.of(STR, d)})", f"({self.of(FLOAT, d)} == {self.of(FLOAT, d)})", "torch.is_grad_enabled()",
            f"({self.of(OBJECT, 0)} in [{self.of(OBJECT, 0)}])", f"(id({self.lasting_object()}) == id({self.lasting_object()}))",
            f"({self.of(FLOAT, d)} in [{self.of(FLOAT, d)}])", f"isinstance({self.of(OBJECT, 0)}, {self.rng.choice([*self.classes, 'Plain', 'Tight'])})",
            f"({self.of(OBJECT, 0)} == {self.of(OBJECT, 0)})", f"({a} in {self.of(SET, d)})", f"any({self.of(INTS, d)})", f"bool({self.of(OBJECT, 0)})",
        )  # fmt: skip

    def lasting_object(self) -> str:
        """One that lives on: the address of a temporary may be another's in the next moment."""
        return self.rng.choice([name for name in self.scope.of(OBJECT) if name.isidentifier()] or ["Plain"])

    def same_kind_is(self) -> str:
        kind = self.rng.choice([INTS, OBJECT, TENSOR, TABLE])
        return f"{self.of(kind, 0)} is {self.of(kind, 0)}"

    def ints_expression(self, d: int) -> str:
        if d < 0:
            return self.rng.choice(["[]", "[1]", "[1, 2]", "[3, 1, 2]", "[0, True, 2]"])
        source = self.of(INTS, d)
        choices: list[Callable[[], str] | str] = [
            lambda: self.ints_expression(-1), f"[{self.of(INT, d)}, {self.of(INT, d)}]", f"[i + {self.of(INT, 0)} for i in {source} if i]",
            f"sorted({source})", f"sorted({source}, key=lambda v: -v)", f"{source}[:]", f"{source}[1:]", f"list(range({self.of(INT, d)} % 4))",
            f"({source} + {self.of(INTS, d)})", f"list({self.of(TABLE, d)}.values())", f"list(map(lambda v: v * 2, {source}))",
            f"list(reversed({source}))", f"sorted({self.of(SET, d)})", f"[*{source}, {self.of(INT, d)}]", f"list(filter(None, {source}))",
            f"[a * b for a, b in zip({source}, {self.of(INTS, d)})]", f"{self.of(OBJECT, 0)}.items", f"copy.copy({source})",
            f"list(collections.deque({source}, maxlen=2))", f"sorted({source}, key=str)", f"[o.n for o in [{self.of(OBJECT, 0)}, {self.of(OBJECT, 0)}]]",
            f"list(dict.fromkeys({source}))", f"list(itertools.accumulate({source}))", f"[i for i, _ in enumerate({source})]",
        ]  # fmt: skip
        if self.generators:
            choices += [f"list({self.rng.choice(self.generators)}({source}))"] * 2
        return self.pick(*choices)

    def tensors_expression(self, d: int) -> str:
        if d < 0:
            return self.rng.choice(["[]", "[T(3)]", "[T(3), torch.ones(3)]"])
        return self.pick(
            f"[{self.of(TENSOR, d)}]", f"[{self.of(TENSOR, d)}, {self.of(TENSOR, d)}]", f"[x * 2 for x in {self.of(TENSORS, d)}]",
            f"[{self.of(TENSOR, 0)} * i for i in {self.of(INTS, d)}]", f"list({self.of(TTABLE, d)}.values())",
        )  # fmt: skip

    def table_expression(self, d: int) -> str:
        if d < 0:
            return self.rng.choice(["{}", "{'a': 1}", "{'b': 2, 'a': 1}", "{'a': 1, 'k': 0}"])
        return self.pick(
            lambda: self.table_expression(-1), f"{{{self.rng.choice(KEYS)}: {self.of(INT, d)}}}", f"dict({self.of(TABLE, d)})",
            f"{{**{self.of(TABLE, d)}, {self.rng.choice(KEYS)}: {self.of(INT, d)}}}", f"{{str(i): i for i in {self.of(INTS, d)}}}",
            f"dict(zip('abc', {self.of(INTS, d)}))", f"({self.of(TABLE, d)} | {self.of(TABLE, d)})", f"collections.Counter({self.of(STR, d)})" if "Counter" in self.features else "{}",
            f"collections.OrderedDict({self.of(TABLE, d)})", f"dict(reversed({self.of(TABLE, d)}.items()))",
        )  # fmt: skip

    def ttable_expression(self, d: int) -> str:
        return self.pick(
            "{}",
            f"{{{self.rng.choice(KEYS)}: {self.of(TENSOR, d)}}}",
            f"{{'a': {self.of(TENSOR, d)}, 'b': {self.of(TENSOR, d)}}}",
        )

    def set_expression(self, d: int) -> str:
        if d < 0:
            return self.rng.choice(["set()", "{1, 2}", "{8, 0}", "{0, 8}"])
        return self.pick(
            lambda: self.set_expression(-1), f"set({self.of(INTS, d)})", f"({self.of(SET, d)} | {self.of(SET, d)})", f"{{i % 3 for i in {self.of(INTS, d)}}}",
            f"({self.of(SET, d)} - {{1}})", f"frozenset({self.of(INTS, d)})",
        )  # fmt: skip

    def pair_expression(self, d: int) -> str:
        return self.pick(
            f"({self.of(INT, d)}, {self.of(ANY, d)})",
            f"({self.of(INT, d)}, {self.of(INT, d)})",
            f"Point({self.of(INT, d)}, {self.of(ANY, 0)})",
        )

    def object_expression(self, d: int) -> str:
        made = f"{self.rng.choice(self.classes)}({self.of(INT, max(d, 0) - 1)})" if self.classes else "Plain(1)"
        if "slots" in self.features and self.chance(0.5):
            made = f"Tight({self.of(INT, max(d, 0) - 1)})"
        if d < 0 or not self.scope.of(OBJECT):
            return made
        return self.pick(
            made,
            f"{self.of(OBJECT, 0)}.twin()",
            f"copy.copy({self.of(OBJECT, 0)})",
            f"({self.of(OBJECT, 0)} if {self.of(BOOL, d)} else {made})",
        )

    def module_expression(self, d: int) -> str:
        return "nn.Identity()"


def call_unary(x: str, name: str) -> str:
    return f"{x}.{name}" if "(" in name else f"{x}.{name}()"


def strip(expression: str) -> str:
    """For inside of an f-string: quotes of the other kind, no braces, no backslash."""
    return "0" if any(c in expression for c in "'{}\\!:") else expression

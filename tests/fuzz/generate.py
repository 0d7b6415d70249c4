"""Random programs: a world (globals, classes, modules, helpers), a function, and a script of calls and edits."""

from __future__ import annotations

import random
from collections.abc import Callable

from .expressions import (
    ANY,
    BOOL,
    FLOAT,
    IN_PLACE,
    INT,
    INTS,
    KEYS,
    MODULE,
    OBJECT,
    PAIR,
    SET,
    STR,
    TABLE,
    TENSOR,
    TENSORS,
    TTABLE,
    VALUE_KINDS,
    Expressions,
    Scope,
)  # fmt: skip

Lines = list[str]
FEATURES = {"print": 0.2, "class_write": 0.15, "globals()": 0.2, "subclass": 0.15, "risk": 0.35, "autocast": 0.3, "Counter": 0.2,
            "raise": 0.3, "tensor_write": 0.6, "local_class": 0.4, "attempt": 0.6, "slots": 0.25}  # fmt: skip
# Kinds of parameters of the compiled function, and values that a call may pass instead of the usual ones.
PARAMETERS = [TENSOR, INT, INT, FLOAT, STR, BOOL, INTS, INTS, TENSORS, TABLE, TTABLE, SET, OBJECT, OBJECT, PAIR]
ODD_VALUES = {INT: ["True", "2.0", "10**20"], FLOAT: ["-0.0", "1"], INTS: ["(1, 2)", "range(3)"], TABLE: ["collections.OrderedDict(b=1, a=2)"],
              STR: ["''.join(['a', 'b'])"], BOOL: ["1", "None"], TENSOR: ["T(3, rg=True)", "nn.Parameter(T(3))", "T(3, dtype=torch.float64)"],
              OBJECT: ["Plain(3)"], SET: ["frozenset({1})"]}  # fmt: skip


def indented(lines: Lines) -> Lines:
    return ["    " + line for line in lines] or ["    pass"]


class Generator(Expressions):
    def __init__(self, seed: int, size: int = 12) -> None:
        super().__init__(random.Random(seed))
        self.size = size
        self.counter = 0
        self.loops = 0
        self.globals: list[tuple[str, str]] = []
        self.in_function = False
        self.calls: list[str] = []
        # A program that does everything is stopped by the first thing that cannot be captured: each leaves most of these out.
        self.features = {name for name, probability in FEATURES.items() if self.chance(probability)}

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    # --------------------------------------------------------------------------------------------------- statements

    def block(self, budget: int) -> Lines:
        """A few statements in a scope of their own."""
        outer, self.scope = self.scope, Scope(self.scope)
        lines: Lines = []
        while budget > 0:
            made = self.statement(budget)
            lines += made
            budget -= max(1, len(made))
        self.scope = outer
        return lines

    def statement(self, budget: int) -> Lines:
        simple: list[Callable[[], Lines]] = [
            self.assignment, self.assignment, self.assignment, self.mutation, self.mutation, self.mutation, self.attribute, self.attribute,
            self.augmented, self.tensor_write, self.effect, self.global_write, self.class_write,
        ]  # fmt: skip
        compound = [
            self.condition,
            self.condition,
            self.loop,
            self.attempt,
            self.context,
            self.closure,
            self.stepped_generator,
            self.local_class,
            self.leave,
        ]
        kinds = simple if budget < 3 or self.chance(0.65) else compound
        return self.rng.choice(kinds)()

    def assignment(self) -> Lines:
        kind = self.rng.choice([TENSOR, TENSOR, TENSOR, INT, *VALUE_KINDS])
        value, name = self.of(kind), self.fresh("v")
        self.scope.add(kind, name)
        return [f"{name} = {value}"]

    def augmented(self) -> Lines:
        kind = self.rng.choice([INT, TENSOR, INTS, STR])
        names = [name for name in self.scope.names.get(kind, []) if name.isidentifier() and name.startswith("v")]
        return [f"{self.rng.choice(names)} += {self.of(kind, 1)}{self.short(kind)}"] if names else self.assignment()

    @staticmethod
    def short(kind: str) -> str:
        """Nothing grows without bounds in a loop."""
        return "[:3]" if kind in (INTS, STR) else ""

    def mutation(self) -> Lines:
        items, table, ttable, numbers = self.of(INTS, 0), self.of(TABLE, 0), self.of(TTABLE, 0), self.of(SET, 0)
        key, n = self.rng.choice(KEYS), self.of(INT, 1)
        safe = [
            f"{items}.append({n})", f"{items}.extend({self.of(INTS, 1)}[:3])", f"{items}.insert(0, {n})", f"{items}.sort()", f"{items}.reverse()",
            f"{items}[1:] = {self.of(INTS, 1)}[:3]", f"{items}.clear()", f"{table}[{key}] = {n}", f"{table}.pop({key}, None)",
            f"{table}.setdefault({key}, {n})", f"{table}.update({self.of(TABLE, 1)})", f"{table}.clear()", f"{ttable}[{key}] = {self.of(TENSOR, 1)}",
            f"{self.of(TENSORS, 0)}.append({self.of(TENSOR, 1)})", f"{numbers}.add({n})", f"{numbers}.discard({n})", f"{numbers}.update({self.of(INTS, 1)})",
        ]  # fmt: skip
        risky = [
            (items, f"{items}.pop()"), (items, f"{items}[0] = {n}"), (items, f"del {items}[0]"), (items, f"{items}[-1] += {n}"),
            (table, f"{table}.popitem()"), (f"{key} in {table}", f"del {table}[{key}]"), (f"{key} in {table}", f"{table}[{key}] += {n}"),
        ]  # fmt: skip
        return [self.rng.choice(safe)] if self.chance(0.7) else self.guarded(*self.rng.choice(risky))

    def guarded(self, condition: str, statement: str) -> Lines:
        """A statement that would raise without the condition: mostly with it."""
        return [statement] if "risk" in self.features and self.chance(0.2) else [f"if {condition}:", f"    {statement}"]

    def attribute(self) -> Lines:
        o = self.of(OBJECT, 0)
        if self.chance(0.1):
            return self.guarded(f"hasattr({o}, 'extra')", f"del {o}.extra")
        return [self.rng.choice([
            f"{o}.n = {self.of(INT, 1)}", f"{o}.n += 1", f"{o}.x = {self.of(TENSOR, 1)}", f"{o}.items.append({self.of(INT, 1)})",
            f"{o}.items = {self.of(INTS, 1)}", f"{o}.link = {self.of(OBJECT, 0)}", f"{o}.extra = {self.of(ANY, 1)}",
            f"setattr({o}, 'n', {self.of(INT, 1)})", f"vars({o})['extra'] = {self.of(INT, 0)}", f"{o}.p = {self.of(INT, 1)}", f"{o}.bump({self.of(INT, 0)})",
            f"{o}.cache[{self.rng.choice(KEYS)}] = {self.of(ANY, 1)}", f"{o}.recent.append({self.of(INT, 1)})", f"{o}.recent.rotate(1)",
            f"{o}.items, {o}.cache = {self.of(INTS, 0)}, {self.of(TABLE, 0)}",
        ])]  # fmt: skip

    def tensor_write(self) -> Lines:
        if "tensor_write" not in self.features:
            return self.assignment()
        x = self.of(TENSOR, 0)
        written = [
            *(f"{x}.{name}" for name in self.rng.sample(IN_PLACE, 2)), f"{x}[0] = {self.of(FLOAT, 0)}", f"{x}.add_({self.of(TENSOR, 1)})", f"{x}[1:].mul_(2)",
        ]  # fmt: skip
        if self.chance(0.25):
            return [self.rng.choice([f"{x}.data.add_(1)", f"{x}.note = {self.of(INT, 0)}", f"{x}.detach().mul_(2)"])]
        return self.guarded(f"not {x}.requires_grad and {x}.ndim", self.rng.choice(written))

    def effect(self) -> Lines:
        if "print" not in self.features:
            return [f"log.append({self.of(self.rng.choice([INT, TENSOR, STR]), 1)})"]
        return [self.rng.choice([f"print({self.of(INT, 1)}, {self.of(STR, 1)})", f"print({self.of(INTS, 0)})"])]

    def global_write(self) -> Lines:
        if not self.globals or not self.in_function:
            return self.mutation()
        kind, name = self.rng.choice(self.globals)
        by_call = "globals()" in self.features and self.chance(0.5)
        return [f"globals()['{name}'] = {self.of(kind, 1)}" if by_call else f"{name} = {self.of(kind, 1)}"]

    def class_write(self) -> Lines:
        if not self.classes or "class_write" not in self.features:
            return self.mutation()
        return [f"{self.rng.choice(self.classes)}.{self.rng.choice(['k', 'shared'])} = {self.of(INT, 1)}"]

    def condition(self) -> Lines:
        lines = [f"if {self.of(BOOL)}:", *indented(self.block(3))]
        if self.chance(0.5):
            lines += ["else:", *indented(self.block(2))]
        return lines

    def loop(self) -> Lines:
        if self.loops >= 2:
            return self.condition()
        self.loops += 1
        outer, self.scope = self.scope, Scope(self.scope)
        i, j = self.fresh("i"), self.fresh("i")
        heads: list[tuple[str, list[tuple[str, str]]]] = [
            (f"for {i} in range({self.of(INT, 1)} % 4):", [(INT, i)]), (f"for {i} in {self.of(INTS, 1)}[:5]:", [(INT, i)]),
            (f"for {i}, {j} in enumerate({self.of(INTS, 1)}[:4]):", [(INT, i), (INT, j)]), (f"for {i} in {self.of(TENSORS, 1)}[:3]:", [(TENSOR, i)]),
            (f"for {i}, {j} in list({self.of(TABLE, 1)}.items())[:4]:", [(STR, i), (INT, j)]), (f"for {i} in sorted({self.of(SET, 1)})[:4]:", [(INT, i)]),
            (f"for {i}, {j} in zip({self.of(INTS, 1)}[:3], {self.of(TENSORS, 1)}[:3]):", [(INT, i), (TENSOR, j)]),
        ]  # fmt: skip
        if self.generators:
            heads.append((f"for {i} in {self.rng.choice(self.generators)}({self.of(INTS, 1)}[:4]):", [(INT, i)]))
        head, names = self.rng.choice(heads)
        for kind, name in names:
            self.scope.add(kind, name)
        body = self.block(3)
        if self.chance(0.2):
            body += [f"if {self.of(BOOL, 1)}:", "    " + self.rng.choice(["break", "continue"])]
        self.scope = outer
        self.loops -= 1
        lines = [head, *indented(body)]
        if self.chance(0.15):
            lines += ["else:", *indented(self.block(1))]
        return lines

    def attempt(self) -> Lines:
        if "attempt" not in self.features:
            return self.condition()
        risky = self.rng.choice([f"{self.of(INTS, 1)}[9]", f"{self.of(TABLE, 1)}['zz']", f"1 // {self.of(INT, 1)}", f"int({self.of(STR, 1)})",
                                 f"{self.of(OBJECT, 0)}.nothing", f"raise ValueError({self.of(INT, 1)})", f"raise Mine({self.of(STR, 1)})"])  # fmt: skip
        name = self.fresh("e")
        outer, self.scope = self.scope, Scope(self.scope)
        body = [*self.block(2), risky, *self.block(1)]
        caught = "Exception"
        if "raise" in self.features:
            caught = self.rng.choice(["Exception", "ValueError", "(KeyError, IndexError)", "Mine", "LookupError"])
        self.scope.add(STR, f"str({name})")
        handler = self.block(2)
        if "raise" in self.features and self.chance(0.2):
            handler += [
                self.rng.choice(
                    [f"raise RuntimeError('again') from {name}", "raise", f"raise KeyError({self.of(INT, 0)})"]
                )
            ]
        elif self.chance(0.3):
            handler += [f"errors.append({name})"]
        self.scope = outer
        lines = ["try:", *indented(body), f"except {caught} as {name}:", *indented(handler)]
        if self.chance(0.2):
            lines += ["else:", *indented(self.block(1))]
        if self.chance(0.3):
            lines += ["finally:", *indented(self.block(2))]
        return lines

    def context(self) -> Lines:
        head = self.rng.choice(["with torch.no_grad():", "with logged(log) as c:", "with torch.enable_grad():", "with contextlib.suppress(LookupError):",
                                "with Guarded(log):", "with torch.autocast('cpu', dtype=torch.bfloat16):"])  # fmt: skip
        if "autocast" in head and "autocast" not in self.features:
            head = "with torch.no_grad():"
        return [head, *indented(self.block(3))]

    def closure(self) -> Lines:
        name, outer = self.fresh("g"), self.scope
        self.scope = Scope(outer)
        cells = [n for n in outer.names.get(INT, []) if n.startswith("v")]
        head = f"def {name}(a, b={self.of(INT, 0)}):"
        self.scope.add(TENSOR, "a")
        self.scope.add(INT, "b")
        body = [f"nonlocal {cells[-1]}", f"{cells[-1]} += b"] if cells and self.in_function and self.chance(0.5) else []
        body += [*self.block(2), f"return {self.of(TENSOR, 1)}"]
        self.scope = outer
        result = self.fresh("v")
        use = (
            f"{result} = {name}({self.of(TENSOR, 0)})"
            if self.chance(0.7)
            else f"{result} = [{name}(x) for x in {self.of(TENSORS, 1)}[:3]]"  # what it runs may append
        )
        self.scope.add(TENSOR if "[" not in use.split("=")[1][:3] else TENSORS, result)
        return [head, *indented(self.with_globals(body)), use]

    def stepped_generator(self) -> Lines:
        if not self.generators:
            return self.condition()
        name, value = self.fresh("g"), self.fresh("v")
        steps = [f"{name} = {self.rng.choice(self.generators)}({self.of(INTS, 1)})", f"{value} = next({name}, 0)"]
        self.scope.add(INT, value)
        if self.chance(0.4):
            steps.append(f"{value} = next({name}, {value})")
        if self.chance(0.3):
            steps.append(f"{name}.close()")
        return steps

    def local_class(self) -> Lines:
        if "local_class" not in self.features:
            return self.closure()
        name, value = self.fresh("L"), self.fresh("v")
        base = (
            f"({self.rng.choice(['Plain', *self.classes])})" if "subclass" in self.features and self.chance(0.5) else ""
        )
        body = [f"w = {self.of(INT, 1)}", "def get(self, x):", f"    return x * self.w + {self.number()}"]
        made = f"{name}(1)" if base else f"{name}()"
        use = f"{value} = {made}.get({self.of(TENSOR, 0)})"
        self.scope.add(TENSOR, value)
        return [f"class {name}{base}:", *indented(body), use]

    def leave(self) -> Lines:
        what = f"return {self.result()}"
        if "raise" in self.features:
            what = self.pick(
                what, f"raise ValueError({self.of(STR, 1)})", f"assert {self.of(BOOL, 1)}, {self.of(INT, 0)}"
            )
        return [f"if {self.of(BOOL)} and {self.of(INT, 0)} > 2:", f"    {what}"]

    def result(self) -> str:
        parts = [
            self.of(self.rng.choice([TENSOR, TENSOR, ANY]), self.rng.choice([0, 0, 1]))
            for _ in range(self.rng.randint(1, 4))
        ]
        return (
            self.rng.choice(["{}", "[{}]", "({},)", "{{'r': [{}]}}", "Plain([{}])"]).format(", ".join(parts))
            if len(parts) > 1
            else parts[0]
        )

    # --------------------------------------------------------------------------------------------------------- world

    def helper(self) -> Lines:
        name, outer = self.fresh("helper"), self.scope
        self.scope = Scope(outer)
        self.scope.add(TENSOR, "x")
        self.scope.add(INT, "n")
        default = self.rng.choice(["n=2", "n=1, seen=[]", "n=3, *rest, k=1"])
        body = ["seen.append(n)"] if "seen" in default else []
        body += [*self.block(3), f"return {self.of(TENSOR)}"]
        self.scope = outer
        self.helpers.append(name)
        return [f"def {name}(x, {default}):", *indented(self.with_globals(body))]

    def generator_function(self) -> Lines:
        name, outer = self.fresh("stepping"), self.scope
        self.scope = Scope(outer)
        self.scope.add(INTS, "items")
        self.scope.add(INT, "i")
        body = ["for i in items[:5]:", *indented([*self.block(1), f"yield {self.of(INT, 1)}"])]
        if self.chance(0.3):
            body = ["try:", *indented(body), "finally:", "    log.append('closed')"]
        if self.chance(0.3):
            body.append("yield from [7, 8]")
        self.scope = outer
        self.generators.append(name)
        return [f"def {name}(items):", *indented(self.with_globals(body))]

    def user_class(self) -> Lines:
        name, outer = self.fresh("C"), self.scope
        base = self.rng.choice([f"({c})" for c in self.classes] or ["(Plain)"]) if self.chance(0.3) else "(Plain)"
        self.scope = Scope(outer)
        self.scope.add(INT, "self.n")
        self.scope.add(INT, "self.k")
        self.scope.add(TENSOR, "x")
        body = [f"k = {self.number()}", "shared = []"]
        if self.chance(0.7):
            body += [
                "def scaled(self, x):",
                *indented(self.with_globals([*self.block(2), f"return {self.of(TENSOR)}"])),
            ]
        if self.chance(0.3):
            body += ["def twin(self):", "    made = super().twin()", "    made.n += self.k", "    return made"]
        if self.chance(0.4):
            body += [
                "@property",
                "def p(self):",
                f"    return {self.of(INT, 1)}",
                "@p.setter",
                "def p(self, value):",
                "    self.n = value",
            ]
        if self.chance(0.25):
            body += [
                "def __getattr__(self, name):",
                "    if name == 'nothing':",
                f"        return {self.number()}",
                "    raise AttributeError(name)",
            ]
        if self.chance(0.2):
            body += ["def __len__(self):", "    return self.n % 5"]
        if self.chance(0.2):
            body += [
                "def __eq__(self, other):",
                "    return type(self) is type(other) and self.n == other.n",
                "__hash__ = None",
            ]
        if self.chance(0.2):
            body += ["def bump(self, by):", "    self.n += by", "    type(self).k += 1"]
        self.scope = outer
        self.classes.append(name)
        return [f"class {name}{base}:", *indented(body)]

    def user_module(self) -> Lines:
        name, outer = self.fresh("M"), self.scope
        self.scope = Scope(outer)
        self.scope.add(TENSOR, "x")
        for kind, attribute in ((TENSOR, "self.w"), (TENSOR, "self.buffer"), (INT, "self.n"), (INTS, "self.items")):
            self.scope.add(kind, attribute)
        inner = self.rng.choice(
            ["nn.Linear(3, 3)", "nn.Sequential(nn.Linear(3, 3), nn.Tanh())", "nn.Dropout(0.5)", "nn.Identity()"]
        )
        init = [
            "super().__init__()",
            "self.w = nn.Parameter(T(3))",
            "self.register_buffer('buffer', torch.zeros(3))",
            "self.n, self.items = 1, []",
            f"self.inner = {inner}",
        ]
        forward = [*self.block(3), f"return self.inner({self.of(TENSOR)} + torch.zeros(3))"]
        self.scope = outer
        instance = self.fresh("m")
        self.scope.add(MODULE, instance)
        return [
            f"class {name}(nn.Module):",
            *indented(
                ["def __init__(self):", *indented(init), "def forward(self, x):", *indented(self.with_globals(forward))]
            ),
            f"{instance} = {name}()",
        ]

    def with_globals(self, body: Lines) -> Lines:
        written = [name for _, name in self.globals if any(line.lstrip().startswith(f"{name} = ") for line in body)]
        return [f"global {', '.join(written)}", *body] if written else body

    # -------------------------------------------------------------------------------------------------------- program

    def program(self) -> str:
        lines: Lines = []
        for _ in range(self.rng.randint(1, 3)):
            kind = self.rng.choice([INT, INT, FLOAT, INTS, TABLE, STR])
            name = self.fresh("G")
            lines += [f"global {name}", f"{name} = {self.of(kind, 0)}"]
            self.globals.append((kind, name))
            self.scope.add(kind, name)
        self.in_function = True
        for _ in range(self.rng.randint(0, 2)):
            lines += self.user_class()
        for _ in range(self.rng.randint(0, 2)):
            lines += self.helper()
        if self.chance(0.5):
            lines += self.generator_function()
        if self.chance(0.5):
            lines += self.user_module()
        self.in_function = False
        # Objects that stay over the whole sequence: passed, edited, and shared with each other.
        kept: list[tuple[str, str]] = []
        for kind in self.rng.sample([INTS, TABLE, OBJECT, TENSOR, TENSORS, TTABLE, SET], self.rng.randint(2, 4)):
            name = self.fresh("kept")
            value = self.of(kind, 0)
            lines.append(f"{name} = {value}")
            kept.append((kind, name))
        visible = [pair for pair in kept if self.chance(0.5)]
        parameters = [(kind, f"p{i}") for i, kind in enumerate(self.rng.choices(PARAMETERS, k=self.rng.randint(1, 4)))]
        outer, self.scope = self.scope, Scope(self.scope)
        for kind, name in [*visible, (TENSOR, "x"), *parameters]:
            self.scope.add(kind, name)
        self.in_function = True
        body = [*self.block(self.size), f"return {self.result()}"]
        self.in_function = False
        self.scope = outer
        lines += [
            f"def fn(x, {', '.join(name for _, name in parameters)}):",
            *indented(self.with_globals(body)),
            "f = t.compile(fn)",
        ]
        for kind, name in kept:
            self.scope.add(kind, name)
        for _ in range(self.rng.randint(3, 6)):
            # Calls that come again are to hit.
            again = bool(self.calls) and self.chance(0.35)
            lines += [self.rng.choice(self.calls[-2:])] if again else self.call(parameters, kept)
            if self.chance(0.6):
                lines += self.edit(kept)
        return (
            "\n".join(
                ["def program(t):", *indented(["log, errors = [], []", "t.watch(lambda: (log, errors))", *lines])]
            )
            + "\n"
        )

    def call(self, parameters: list[tuple[str, str]], kept: list[tuple[str, str]]) -> Lines:
        arguments = [
            self.rng.choice(["T(3)", "T(3)", "T(3, s=1)", "T(3, rg=True)"] + [n for k, n in kept if k == TENSOR])
        ]
        for kind, _ in parameters:
            same = [name for k, name in kept if k == kind]
            if kind == TENSOR and self.chance(0.25):
                # Views of another argument, or that argument itself.
                arguments.append(
                    arguments[0] + self.rng.choice(["", "[1:]", ".view(3, 1)", ".detach()"]) if same else "T(3)"
                )
            elif same and self.chance(0.5):
                arguments.append(self.rng.choice(same))
            elif kind in ODD_VALUES and self.chance(0.12):
                arguments.append(self.rng.choice(ODD_VALUES[kind]))
            else:
                # Few values, so that calls hit.
                state = random.Random(self.rng.randint(0, 1) * 77 + len(arguments))
                old, self.rng = self.rng, state
                arguments.append(self.of(kind, -1) if kind not in (TTABLE, PAIR) else self.of(kind, 0))
                self.rng = old
        self.calls.append(f"grads(f({', '.join(arguments)}))" if self.chance(0.3) else f"f({', '.join(arguments)})")
        return [self.calls[-1]]

    def edit(self, kept: list[tuple[str, str]]) -> Lines:
        choices: list[str] = []
        for kind, name in self.globals:
            choices.append(f"{name} = {self.of(kind, 0)}")
        for kind, name in kept:
            if kind in (INTS, TENSORS):
                choices += [f"{name}.append({self.of(INT if kind == INTS else TENSOR, 0)})", f"{name}.clear()"]
            elif kind == TABLE:
                choices += [f"{name}[{self.rng.choice(KEYS)}] = {self.of(INT, 0)}", f"{name}['a'] = {name}.pop('a', 1)"]
            elif kind == OBJECT:
                choices += [f"{name}.n = {self.number()}", f"{name}.extra = 5", f"{name}.items = [{self.number()}]", f"{name}.scaled = lambda x: x * 9",
                            f"{name}.link = {name}", *(f"{name}.items = {other}" for k, other in kept if k == INTS),
                            *(f"{name}.cache = {other}" for k, other in kept if k == TABLE), f"{name}.recent = collections.deque([1], maxlen=2)",
                            f"{name}.__class__ = Plain", f"vars({name}).pop('n', None)", f"{name}.__dict__ = dict(vars({name}))"]  # fmt: skip
            elif kind == TENSOR:
                choices += [f"{name}.requires_grad_()", f"{name}.detach().add_(1)"]
        for name in self.classes:
            choices += [f"{name}.k = {self.number()}", f"{name}.scaled = lambda self, x: x - 1", f"{name}.__len__ = lambda self: 3", f"{name}.nothing = 4",
                        f"{name}.n = property(lambda self: 6, lambda self, v: None)", f"{name}.unrelated = 1", f"{name}.__name__ = 'Renamed'", f"{name}.scaled = Plain.scaled",
                        f"{name}.__repr__ = lambda self: 'other'", f"{name}.twin = lambda self: self"]  # fmt: skip
        for name in self.scope.of(MODULE):
            choices += [f"{name}.eval()", f"{name}.train()", f"{name}.n = {self.number()}", f"{name}.w = nn.Parameter(T(3, s=2))", f"{name}.w.data = T(3, s=5)",
                        f"{name}.w.requires_grad_(False)", f"{name}.register_forward_hook(lambda m, a, r: r * 2)", f"{name}.inner = nn.Identity()",
                        f"{name}.buffer.add_(1)", f"{name}.forward = lambda x: x + 1"]  # fmt: skip
        for name in self.helpers:
            choices += [f"{name}.__defaults__ = ({self.number()}, [5])", f"{name}.extra = 1"]
        choices += ["torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "Plain.k = 11"]
        chosen = self.rng.choice(choices)
        return [chosen]

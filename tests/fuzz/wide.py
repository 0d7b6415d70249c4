"""Programs with more of the language, and with breaks: generators that are sent to and thrown into, managers that swallow, iterators that are kept,
views that are written to, branches on data, classes whose operators break, and edits of all of these between calls."""

from __future__ import annotations

from collections.abc import Callable

from .expressions import ANY, BOOL, FLOAT, INT, INTS, OBJECT, SET, STR, TABLE, TENSOR, TENSORS, TTABLE, Scope
from .generate import Generator, Lines, indented

BREAKS = 0.12  # of the statements
DEPTH = 3  # of statements of this kind inside of one another
MANAGERS = ["scoped(log, n)", "Manager(log, True)", "logged(log)", "torch.no_grad()"]
# What a Num does, of which much is a break: see world.py.
NUM_USES = [
    "({n} + 1).n", "(1 + {n}).n", "sum([{n}, {n}]).n", "sorted([{n}, Num(1), Num(0)])[0].n", "('y' if {n} else 'n')", "[*{n}]", "{n}[1:2]", "(3 in {n})",
    "{n}({x})", "{{{n}: 1, Num(2): 2}}", "{n}.prop + {n}.cached + {n}.cached", "max({n}, Num(2)).n", "dict.fromkeys([{n}, Num(1)], 3)",
    "(lambda p, q: p)(*{n})", "[{n}, 1].index(Num({n}.n))", "{n} == 3", "f'{{{n}!r:>9}}'", "not {n}", "any([{n}, 0])", "list(map({n}, [1, 2]))",
    "(Num(1) < {n} < Num(9))", "memo({i}) + memo(1)", "Color({i}).name", "min([{n}, Num(4)], key=lambda q: pause(q.n))",
    "functools.reduce(lambda p, q: pause(p) + q, [1, 2, 3])", "[pause(q) for q in {n}]", "(z := pause(3)) + z",
]  # fmt: skip
ITERATORS = [
    "iter({ints})", "zip({ints}, {tensors})", "map(lambda q: q, {ints})", "enumerate({tensors})", "iter({table}.items())", "itertools.chain({ints}, [1, 2])",
    "reversed({ints}[:])", "iter(range({i} % 5))", "filter(None, {ints})", "(pause(i) for i in {ints})", "iter({tensors})", "itertools.count({i})",
    "itertools.cycle([1, 2])", "map(pause, {ints})", "iter(Num(3))", "itertools.islice({ints}, 3)", "iter('abc')", "itertools.product([1, 2], 'ab')",
]  # fmt: skip
VIEWS = [
    "{x}[:]", "{x}.view(-1)", "{x}.detach()", "{x}.view({x}.shape)", "{x}.expand_as({x})", "{x}.data", "{x}.reshape(-1)", "{x}.unsqueeze(0)[0]", "{x}.flatten()",
    "{x}.as_strided({x}.shape, {x}.stride())",
]  # fmt: skip
CLASS_EDITS = [
    "Num.__add__ = lambda self, o: Num({n})", "Num.__len__ = lambda self: 0", "Num.__bool__ = lambda self: False", "Num.prop = property(lambda self: 77)",
    "Num.cached = 5", "Num.__iter__ = lambda self: iter([self.n])", "Num.__call__ = lambda self, v: [v]", "Num.__eq__ = lambda a, b: True",
    "Num.__getattr__ = lambda s, name: 3", "Num.__getattribute__ = lambda s, name: object.__getattribute__(s, name)", "memo.cache_clear()", "memo({n})",
    "CV.set({n})", "pause.__code__ = (lambda *a: 1).__code__", "Data.__eq__ = lambda a, b: 'eq'", "Data.n = 4", "Data.__post_init__ = lambda self: None",
    "Plain.__len__ = lambda self: 0", "Plain.__bool__ = lambda self: True", "Plain.__eq__ = lambda a, b: True", "Plain.__slots__ = ()", "Plain.n = 5",
    "Plain.__getattr__ = lambda self, name: 1 if name in ('extra', 'gone') else object.__getattribute__(self, name)", "Plain.scaled = staticmethod(lambda x: x)",
    "Plain.__init__ = lambda self, n: self.__dict__.update(n=n, items=[], cache={{}}, x=None, link=None, recent=collections.deque())",
    "Plain.__setattr__ = lambda self, name, v: object.__setattr__(self, name, v)", "Plain.__class_getitem__ = 1", "Plain.__repr__ = lambda self: pause('r')",
    "Manager.__exit__ = lambda self, *a: True", "Manager.__enter__ = lambda self: pause(self)", "Guarded.__exit__ = lambda s, *a: None", "random.seed(3)",
    "torch.manual_seed(2)", "fn.__defaults__ = None", "logged.__wrapped__.__defaults__ = None", "Num.__lt__ = lambda a, b: pause(a.n > b.n)", "Color.A.extra = 4",
    "Mine.__str__ = lambda self: 'mine'", "Mine.__init__ = lambda self, *a: None", "log.clear()", "errors.clear()",
]  # fmt: skip
VALUE_EDITS = {
    OBJECT: ["{v}.items = (1, 2)", "{v}.link = {v}.items", "{v}.n = {v}.n + 1.0 if isinstance({v}.n, int) else 1", "{v}.n = True", "{v}.scaled = torch.sin",
             "{v}.recent = list({v}.recent)", "{v}.x = T(3, rg=True)", "{v}.cache = collections.OrderedDict({v}.cache)", "{v}.cache['a'] = T(3)"],
    TENSOR: ["{v}.extra = 1", "{v}.grad = T(3)", "{v}.data = T(3, s=4)", "{v}.data = {v}.data.double()", "{v}.resize_(3)", "{v}.t_()",
             "{v}.set_(torch.ones(6)[::2])"],
    INTS: ["{v}[:] = [True, 2.0]", "{v}.reverse()", "{v}.append(1.5)"],
    TABLE: ["{v}[1] = 2", "{v}['a'] = 2.0", "{v}.clear()", "{v}.update(b=1, a=2)"],
    TENSORS: ["{v}.append({v}[0]) if {v} else None", "{v}[:] = [T(3, rg=True)]", "{v}.append(T(3, dtype=torch.float64))"],
    SET: ["[{v}.add(9)] if isinstance({v}, set) else 0"],
}  # fmt: skip


class WideGenerator(Generator):
    def __init__(self, seed: int, size: int = 12) -> None:
        super().__init__(seed, size)
        self.depth = 0
        self.tensor_generators: list[str] = []
        self.endless_generators: list[str] = []
        self.pending: list[tuple[str, str]] = []

    def program(self) -> str:
        return super().program().replace("def program(t):\n", "def program(t):\n    CV.set(0)\n", 1)

    def statement(self, budget: int) -> Lines:
        if self.chance(BREAKS):
            return [self.rng.choice(["graph_break()", "graph_break()", "time.sleep(0)", "pause()"])]
        if self.depth >= DEPTH or budget < 2 or self.chance(0.5):
            return super().statement(budget)
        kinds: list[Callable[[], Lines]] = [
            self.branch_on_data, self.driven_generator, self.scope_with_breaks, self.iterator, self.deleted, self.matched, self.starred, self.weak, self.view,
            self.number_of_tensor, self.recursive, self.lambdas, self.copied, self.returning_try, self.num, self.comprehension, self.various, self.various,
            self.hooked, self.while_loop, self.two_names, self.data_object,
        ]  # fmt: skip
        self.depth += 1
        saved, self.pending = self.pending, []
        lines = self.rng.choice(kinds)()
        # What a statement defines is there only behind the whole of it.
        for kind, name in self.pending:
            self.scope.add(kind, name)
        self.pending = saved
        self.depth -= 1
        return lines

    def new(self, kind: str) -> str:
        name = self.fresh("v")
        self.pending.append((kind, name))
        return name

    # ---------------------------------------------------------------------------------------------------- generators

    def generator_function(self) -> Lines:
        lines = super().generator_function()
        for _ in range(self.rng.randint(0, 2)):
            lines += self.tensor_generator()
        return lines

    def tensor_generator(self) -> Lines:
        name, outer = self.fresh("tensors"), self.scope
        self.scope = Scope(outer)
        self.scope.add(TENSOR, "x")
        self.scope.add(INT, "n")
        given = f"yield {self.of(TENSOR, 1)}"
        form = self.rng.randint(0, 5)
        endless = form == 2
        if form == 0:
            body = ["for i in range(n % 4):", *indented([*self.block(2), given])]
        elif form == 1:
            tried = ["got = yield x", *self.block(2), f"yield ({self.of(TENSOR, 1)}, got)", given]
            body = ["try:", *indented(tried), "except ValueError as e:", *indented([*self.block(1), "yield x - 1"])]
            body += ["finally:", *indented(["log.append('closed')", *self.block(1)])]
        elif endless:
            tried = ["got = yield x", "if got is not None:", "    x = x + got", *self.block(1)]
            body = ["while True:", *indented(["try:", *indented(tried), "except KeyError:", "    x = x * 2"])]
        elif form == 3 and self.tensor_generators:
            body = [f"r = yield from {self.rng.choice(self.tensor_generators)}(x, n)", "log.append(r is None)"]
            body += [*self.block(2), given, f"return {self.of(TENSOR, 1)}"]
        elif form == 4:
            body = [f"with {self.rng.choice(MANAGERS)}:", *indented([given, *self.block(2), given])]
            body.append(f"return {self.of(TENSOR, 1)}")
        else:
            body = [*self.block(2), given, *self.block(2), given, "return n"]
        self.scope = outer
        (self.endless_generators if endless else self.tensor_generators).append(name)
        return [f"def {name}(x, n=2):", *indented(self.with_globals(body))]

    def driven_generator(self) -> Lines:
        if self.endless_generators and (not self.tensor_generators or self.chance(0.4)):
            return self.driven_for_ever()
        if not self.tensor_generators:
            return self.closure()
        g, value = self.fresh("g"), self.fresh("v")
        made = f"{self.rng.choice(self.tensor_generators)}({self.of(TENSOR, 0)}, {self.of(INT, 0)})"
        started = [f"{g} = {made}", f"next({g}, None)"]
        kind = self.rng.randint(0, 6)
        if kind == 0:
            return [f"for {value} in {made}:", *indented([f"log.append({value})", *self.block(2)])]
        if kind == 1:
            return [f"log.append(list({made}))"]
        if kind == 2:
            return [
                f"{g} = {made}",
                f"{value} = next({g}, None)",
                *self.block(2),
                f"log.append(({value}, next({g}, None)))",
            ]
        if kind == 3:
            thrown = [*self.block(1), f"log.append({g}.throw(ValueError('t')))"]
            handler = ["errors.append(repr(err))", *self.block(1)]
            caught = "except (ValueError, StopIteration, KeyError) as err:"
            return [*started, "try:", *indented(thrown), caught, *indented(handler)]
        if kind == 4:
            return [*started, f"log.append({g})"]
        if kind == 5:
            return [f"{g} = {made}", f"log.append([*{g}, *{g}])"]
        return [*started, *self.block(1), f"{g}.close()"]

    def driven_for_ever(self) -> Lines:
        g, value = self.fresh("g"), self.new(TENSOR)
        lines = [f"{g} = {self.rng.choice(self.endless_generators)}({self.of(TENSOR, 0)}, 2)", f"next({g})"]
        lines += [*self.block(1), f"{value} = {g}.send({self.of(TENSOR, 0)})", *self.block(1)]
        if self.chance(0.5):
            lines.append(f"{g}.throw(KeyError(1))")
        lines.append(f"{value} = {g}.send(1)")
        return [*lines, *self.rng.choice([[f"{g}.close()"], [f"log.append({g})"], [], []])]

    # ---------------------------------------------------------------------------------------------------- statements

    def branch_on_data(self) -> Lines:
        x = self.of(TENSOR, 0)
        test = self.rng.choice(
            [f"{self.of(TENSOR, 1)}.sum() > 0", f"({x} > 0).any()", f"bool({x}.float().mean() < 0.3)"]
        )
        return [f"if {test}:", *indented(self.block(2)), "else:", *indented(self.block(2))]

    def while_loop(self) -> Lines:
        n = self.fresh("w")
        test = self.rng.choice([f"{self.of(TENSOR, 0)}.sum() < 9", "True", self.of(BOOL, 0)])
        return [f"{n} = 0", f"while {n} < 3 and {test}:", *indented([f"{n} += 1", *self.block(2)])]

    def scope_with_breaks(self) -> Lines:
        head = self.rng.choice([
            f"with scoped(log, {self.of(INT, 0)}) as c:", "with Manager(log):", "with Manager(log, True):", "with scoped(log), Manager(log, True) as mm:",
            "with contextlib.suppress(ValueError, KeyError):", "with contextlib.ExitStack() as stack:", "with torch.set_grad_enabled(False):",
        ])  # fmt: skip
        body = self.block(2)
        if "ExitStack" in head:
            entered = [
                "stack.enter_context(scoped(log))",
                "stack.callback(log.append, 5)",
                "stack.push(Manager(log, True))",
            ]
            body = [self.rng.choice(entered), *body]
        elif "grad" not in head and "(log):" not in head and self.chance(0.25):
            body.append(self.rng.choice(["raise ValueError('in with')", "raise KeyError(4)", "{}['x']", "[][3]"]))
        handler = ["errors.append((repr(err), repr(err.__cause__), repr(err.__context__)))", *self.block(1)]
        caught = "except (ValueError, KeyError) as err:"
        return ["try:", *indented([head, *indented(body)]), caught, *indented(handler)]

    def iterator(self) -> Lines:
        name, value = self.fresh("it"), self.fresh("v")
        source = self.rng.choice(ITERATORS).format(
            ints=self.of(INTS, 0), tensors=self.of(TENSORS, 0), table=self.of(TABLE, 0), i=self.of(INT, 0)
        )
        endless = "count" in source or "cycle" in source
        rest = f"next({name})" if endless else name if self.chance(0.2) else f"list({name})"
        return [f"{name} = {source}", f"{value} = next({name}, None)", *self.block(2), f"log.append(({rest}, {value}))"]

    def deleted(self) -> Lines:
        name = self.fresh("d")
        gone = ["try:", f"    {name}", "except NameError as err:", "    errors.append(str(err))"]
        return [f"{name} = {self.of(ANY, 1)}", *self.block(1), f"del {name}", *gone]

    def matched(self) -> Lines:
        cases = [
            ("int(q) if pause(q) or True", []), ("[first, *rest]", ["log.append(rest)"]), ("{'a': q, **rest}", ["log.append((q, rest))"]),
            ("str() | None", []), ("Plain(n=q)", ["log.append(q)"]), ("_", []),
        ]  # fmt: skip
        lines = [f"match {self.of(ANY, 1)}:"]
        for pattern, body in cases:
            lines += indented([f"case {pattern}:", *indented([*body, *self.block(1)])])
        return lines

    def starred(self) -> Lines:
        first, rest = self.new(TENSOR), self.new(TENSORS)
        x = self.of(TENSOR, 0)
        source = self.rng.choice(
            [f"[{self.of(TENSOR, 1)}, {x}, {self.of(TENSOR, 0)}]", f"({x}, *{self.of(TENSORS, 0)})", f"[{x}]"]
        )
        return [f"{first}, *{rest} = {source}"]

    def weak(self) -> Lines:
        reference, made = self.fresh("r"), self.fresh("o")
        if self.chance(0.4):
            o = self.of(OBJECT, 0)
            return [f"log.append(not hasattr({o}, '__weakref__') or weakref.ref({o})() is {o})"]
        lines = [f"{made} = Plain({self.of(INT, 0)})", f"{reference} = weakref.ref({made})", *self.block(1)]
        return [*lines, f"log.append({reference}() is {made})", f"del {made}", f"log.append({reference}() is None)"]

    def view(self) -> Lines:
        name = self.new(TENSOR)
        lines = [f"{name} = {self.rng.choice(VIEWS).format(x=self.of(TENSOR, 0))}"]
        if self.chance(0.5):
            lines += self.block(1)
        if self.chance(0.6):
            write = self.rng.choice(["add_(1)", "mul_(2)", "neg_()", "zero_()", "copy_(torch.ones(3).sum())"])
            lines += [f"if not {name}.requires_grad:", f"    {name}.{write}"]
        if self.chance(0.3):
            lines.append(f"log.append(({name}._base is None, {name}.is_leaf))")
        return lines

    def number_of_tensor(self) -> Lines:
        x = self.of(TENSOR, 0)
        kind, value = self.rng.choice([
            (FLOAT, f"{x}.sum().item()"), (INT, f"{x}.argmax().item()"), (ANY, f"{x}.tolist()"), (BOOL, f"bool(({x} > 0).all())"),
            (STR, f"f'{{{x}.sum().item():.2f}}'"),
        ])  # fmt: skip
        return [f"log.append({value})"] if kind == ANY else [f"{self.new(kind)} = {value}"]

    def recursive(self) -> Lines:
        name, outer = self.fresh("fn"), self.scope
        self.scope = Scope(outer)
        self.scope.add(TENSOR, "a")
        self.scope.add(INT, "depth")
        deeper = ["if depth > 0:", f"    return {name}(a + 1, depth - 1, key=depth)"]
        body = [*self.block(2), *deeper, *self.block(1), f"return {self.of(TENSOR, 1)}"]
        self.scope = outer
        use = f"{self.new(TENSOR)} = {name}({self.of(TENSOR, 0)}, {self.rng.randint(0, 2)})"
        decorators = self.rng.choice([[], [], ["@counted(0)"], ["@torch.no_grad()"]])
        head = f"def {name}(a, depth=0, *rest, key=None, **kw):"
        return [*decorators, head, *indented(self.with_globals(body)), use]

    def lambdas(self) -> Lines:
        name = self.fresh("fs")
        lines = [f"{name} = [lambda q, i=i: q * i + {self.of(INT, 0)} for i in range(3)]", *self.block(1)]
        lines.append(f"{self.new(TENSOR)} = sum((h({self.of(TENSOR, 0)}) for h in {name}), torch.zeros(3))")
        return [*lines, *([f"log.append({name}[1])"] if self.chance(0.3) else [])]

    def copied(self) -> Lines:
        kind = self.rng.choice([OBJECT, TABLE, INTS, TENSORS, TTABLE])
        source = self.of(kind, 0)
        if self.chance(0.5):
            return [f"{self.new(kind)} = copy.copy({source})"]
        if kind in (INTS, TABLE):
            return [f"{self.new(kind)} = copy.deepcopy({source})"]
        return [f"log.append(({source}, [{source}]))"]

    def returning_try(self) -> Lines:
        name, value = self.fresh("fn"), self.fresh("v")
        outer, self.scope = self.scope, Scope(self.scope)
        ways = [f"return {self.of(TENSOR, 0)}", "raise ValueError(1)", f"1 / {self.of(INT, 0)}"]
        ways += [f"return {self.of(INTS, 0)}[5]", "graph_break()"]
        handled = ["return err", "raise", "raise KeyError(2) from err", "pass", "errors.append(sys.exc_info()[0])"]
        lasts = ["pass", "pass", "return 'finally'", "log.append('finally')", "log.append(sys.exc_info()[0])"]
        caught = self.rng.choice(["ValueError", "ArithmeticError", "Exception", "IndexError"])
        body = ["try:", *indented([*self.block(1), self.rng.choice(ways)])]
        body += [f"except {caught} as err:", *indented([*self.block(1), self.rng.choice(handled)])]
        if self.chance(0.4):
            body += ["else:", *indented([*self.block(1), "return 'else'"])]
        body += ["finally:", *indented([*self.block(1), self.rng.choice(lasts)]), "return 'end'"]
        self.scope = outer
        use = [f"{value} = {name}()", f"log.append({value} if not isinstance({value}, Exception) else repr({value}))"]
        handler = ["errors.append((repr(err), repr(err.__context__)))", *self.block(1)]
        head = [f"def {name}():", *indented(self.with_globals(body))]
        return [*head, "try:", *indented(use), "except Exception as err:", *indented(handler)]

    def num(self) -> Lines:
        name = self.fresh("n")
        use = self.rng.choice(NUM_USES).format(n=name, x=self.of(TENSOR, 0), i=self.of(INT, 0))
        return [f"{name} = Num({self.of(INT, 0)})", *self.block(1), f"log.append({use})"]

    def comprehension(self) -> Lines:
        s = self.of(TENSORS, 0)
        made = self.rng.choice([
            f"[pause(q) * 2 for q in {s}]", f"[q + i for i, q in enumerate({s}) if pause(i) != 1]", f"list(map(pause, {s}))", f"[q for p in [{s}] for q in p]",
            f"sorted({s}, key=lambda q: q.sum().item())", f"[*filter(lambda q: q.sum() > 0, {s})]", f"list({{i: pause(q) for i, q in enumerate({s})}}.values())",
        ])  # fmt: skip
        return [f"{self.new(TENSORS)} = {made}"]

    def various(self) -> Lines:
        o, x, n, ints, tensors, text = (self.of(kind, 0) for kind in (OBJECT, TENSOR, INT, INTS, TENSORS, STR))
        forms: list[Callable[[], Lines]] = [
            lambda: [f"token = CV.set({n})", *self.block(1), "log.append(CV.get())", "CV.reset(token)"],
            lambda: ["log.append(CV.get())", "CV.set(CV.get() + 1)"], lambda: ["log.append(random.random())"], lambda: ["log.append(torch.rand(2))"],
            lambda: ["before = torch.is_grad_enabled()", "torch.set_grad_enabled(False)", *self.block(1), "torch.set_grad_enabled(before)"],
            lambda: ["log.append(sorted(k for k in locals() if k in ('x', 'log', 'v1', 'v2', 'v3')))"], lambda: [f"{self.new(INT)} = memo({n})"],
            lambda: [f"{self.new(TENSOR)} = torch.from_numpy(np.arange(3.0, dtype=np.float32)) * {n}"],
            lambda: [f"getattr({o}, 'items').append({x})", f"{o}.items.pop()"], lambda: [f"{o}.extra = lambda: {x}", *self.block(1), f"log.append({o}.extra())"],
            lambda: [f"log.append(vars({o}) if hasattr({o}, '__dict__') else 0)"], lambda: [f"print('p', {n}, {text})"],
            lambda: [f"{x}.mark = {n}", *self.block(1), f"log.append(getattr({x}, 'mark', None))"], lambda: [f"assert {self.of(BOOL, 0)} or True, 'never'"],
            lambda: [f"log.append(types.SimpleNamespace(a={x}, b={n}))"], lambda: ["log.append(sys._getframe().f_code.co_name)"],
            lambda: ["exec('log.append(1)')"], lambda: ["log.append(eval('1 + 1'))"], lambda: [f"log.append(operator.attrgetter('n')({o}))"],
            lambda: [f"{o}.link = [{o}, {x}]"], lambda: [f"{o}.extra = {o}.scaled", *self.block(1), f"log.append({o}.extra({x}))", f"del {o}.extra"],
            lambda: [f"log.append({self.of(TABLE, 0)}.items())"], lambda: [f"log.append(reversed({ints}))"], lambda: [f"log.append(map(str, {ints}))"],
            lambda: [f"log.append(functools.partial(pause, {x}))", "log.append(log[-1]())"],
            lambda: [f"left = {ints}[:4]", "while left:", "    left.pop()", *indented(self.block(1))],
            lambda: [f"dq = collections.deque({tensors}, maxlen=3)", f"dq.append({x})", *self.block(1), f"dq.appendleft({x})", "log.append(dq)"],
            lambda: ["dd = collections.defaultdict(list)", f"dd[{text}].append({x})", *self.block(1), "log.append(dd)"],
        ]  # fmt: skip
        return self.rng.choice(forms)()

    def hooked(self) -> Lines:
        y = self.new(TENSOR)
        hook = f"    {y}.register_hook(lambda g: log.append('hook') or g * 2)"
        return [f"{y} = {self.of(TENSOR, 0)} * 2", f"if {y}.requires_grad:", hook, *self.block(1)]

    def two_names(self) -> Lines:
        one, other = self.new(TENSOR), self.new(TENSOR)
        made = f"{one} = {other} = {self.of(TENSOR, 1)}"
        return [made, *self.block(1), f"{one} = {one} + 1", f"log.append({one} is {other})"]

    def data_object(self) -> Lines:
        d, n = self.fresh("data"), self.of(INT, 0)
        if self.chance(0.5):
            seen = f"log.append(({d} == Data({n}), repr({d}), dataclasses.asdict({d})))"
            return [f"{d} = Data({n})", *self.block(1), seen]
        lines = [f"{d} = Data({n}, {self.of(TENSOR, 0)})", *self.block(1), f"{d}.x = {d}.x + 1"]
        return [*lines, f"log.append(dataclasses.replace({d}, n=4, x=None))", f"log.append({d})"]

    # --------------------------------------------------------------------------------------------------------- edits

    def edit(self, kept: list[tuple[str, str]]) -> Lines:
        if self.chance(0.5):
            return super().edit(kept)
        choices = [text.format(n=self.number()) for text in CLASS_EDITS]
        for kind, name in kept:
            choices += [text.format(v=name) for text in VALUE_EDITS.get(kind, [])]
        return [self.rng.choice(choices)]

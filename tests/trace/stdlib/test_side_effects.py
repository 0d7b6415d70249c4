"""What a call shows: print, logging and warnings are effects in order with real values; random generators move as in eager."""

from __future__ import annotations

import logging
import math
import random
import sys
import time
import warnings

import numpy as np
import torch
from harness import T, program
from torch import nn

import alternator

log = logging.getLogger("trace_tests")


# ----------------------------------------------------------------------------------------------------------- print


@program()
def test_print_plain_values(t):
    def fn(n, x):
        print("start", n, [n, {"k": n}], sep="-", end="!\n")
        y = x + n
        print(f"{tuple(y.shape)} {y.dtype}")
        return y

    f = t.compile(fn)
    f(1, T(2))
    f.hit(1, T(2))
    f(2, T(2))


@program()
def test_print_tensors(t):
    def fn(x):
        y = x * 2
        print("input", x)
        print("output", y, [y])
        return y + 1

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2, s=3))


@program()
def test_print_shows_the_value_that_it_was(t):
    """What is printed is written to afterwards."""

    def fn(items, x):
        print(items, x)
        items.append(1)
        x.add_(1)
        print(items, x)
        return x

    f = t.compile(fn)
    f([], T(2))
    f([], T(2))


@program()
def test_print_objects(t):
    class Shown:
        def __init__(self, n):
            self.n = n

        def __repr__(self):
            return f"Shown({self.n})"

    def fn(o, x):
        print(o, [o])
        o.n += 1
        print(o)
        return x * o.n

    f = t.compile(fn)
    one = Shown(1)
    f(one, T(2))
    f(one, T(2))


@program()
def test_print_in_order_with_other_effects(t):
    def fn(items, x):
        print("a", len(items))
        items.append(1)
        log.warning("b %d", len(items))
        print("c", len(items))
        return x + 1

    f = t.compile(fn)
    f([], T(2))
    f([], T(2))


@program()
def test_print_before_an_exception(t):
    def fn(x, n):
        print("before")
        if n:
            raise ValueError("stop")
        print("after")
        return x + 1

    f = t.compile(fn)
    f(T(2), 0)
    f(T(2), 1)
    f(T(2), 1)


@program()
def test_print_in_a_loop(t):
    def fn(x):
        for i in range(4):
            x = x * 2
            print(i, end=" ")
        return x

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_print_to_stderr_and_flush(t):
    def fn(x):
        print("to stderr", file=sys.stderr)
        print("flushed", flush=True)
        sys.stdout.write("written\n")
        return x + 1

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_print_to_a_stdout_that_was_replaced(t):
    import io

    other = io.StringIO()
    t.watch(other.getvalue)

    def fn(x):
        print("hello")
        return x + 1

    f = t.compile(fn)
    f(T(2))
    old, sys.stdout = sys.stdout, other
    try:
        f(T(2))
    finally:
        sys.stdout = old
    f(T(2))


@program()
def test_print_replaced(t):
    import builtins

    lines = []
    t.watch(lambda: lines)

    def fn(x):
        print("hello", x.shape[0])
        return x + 1

    f = t.compile(fn)
    f(T(2))
    t.patch(builtins, "print", lambda *args: lines.append(args))
    f(T(2))


@program()
def test_texts_that_a_class_makes(t):
    """Its __str__ and __format__ are traced, whatever its repr() would show."""

    class Named:
        def __init__(self, name):
            self.name = name

        def __str__(self):
            return f"<{self.name}>"

    class Formatted(Named):
        def __format__(self, spec):
            return self.name + "|" + spec

    def fn(o, x):
        print("it is", o)
        return str(o), f"{o}", f"{o!s:>6}", format(o), format(o, ""), "{}".format(o.name), x + len(str(o))

    f = t.compile(fn)
    f(Named("a"), T(2))
    f.hit(Named("a"), T(2))
    f(Named("bc"), T(2))
    f(Formatted("a"), T(2))
    t.patch(Named, "__str__", lambda self: "another")
    f(Named("a"), T(2))
    g = t.compile(lambda o, spec, x: (f"{o:{spec}}", format(o, spec), x + 1))
    g(Formatted("a"), "w", T(2))
    g.hit(Formatted("a"), "w", T(2))
    g(Formatted("a"), "v", T(2))


@program(one_graph=False)
def test_texts_that_show_an_address(t):
    """Nobody's text may be that of the call that was traced."""

    class Named:
        def __str__(self):
            return "named"

    class Bare:
        pass

    def fn(o, x):
        text = f"{o!r} {[o]} {'%r' % o}"
        return text.count("0x"), len(str(o)) < 6, x + 1

    f = t.compile(fn)
    f(Named(), T(2))
    f(Bare(), T(2))


@program()
def test_print_with_a_users_str(t):
    seen = []
    t.watch(lambda: seen)

    class Noisy:
        def __str__(self):
            seen.append("asked")
            return "noisy"

    def fn(o, x):
        print(o)
        return x + len(seen)

    f = t.compile(fn)
    f(Noisy(), T(2))
    f(Noisy(), T(2))


# -------------------------------------------------------------------------------------------------- logging, warnings


@program()
def test_logging(t):
    def fn(x):
        log.warning("shape %s of %s", tuple(x.shape), x.dtype)
        log.debug("not shown %s", x)
        return x + 1

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    old = log.level
    t.undo(lambda: log.setLevel(old))
    log.setLevel(logging.DEBUG)
    f(T(2))


@program()
def test_logging_level_changes(t):
    def fn(x):
        if log.isEnabledFor(logging.INFO):
            return x * 2
        log.error("only an error")
        return x + 1

    old = log.level
    t.undo(lambda: log.setLevel(old))
    f = t.compile(fn)
    f(T(2))
    log.setLevel(logging.INFO)
    f(T(2))


@program()
def test_logging_handler_of_the_users(t):
    records = []

    class Keeping(logging.Handler):
        def emit(self, record):
            records.append((record.levelname, record.getMessage(), record.funcName))

    handler = Keeping()
    t.watch(lambda: records)
    t.undo(lambda: log.removeHandler(handler))

    def fn(x):
        log.warning("n %d", x.shape[0])
        return x + 1

    f = t.compile(fn)
    f(T(2))
    log.addHandler(handler)
    f(T(2))
    log.removeHandler(handler)
    f(T(2))


@program()
def test_logging_disabled(t):
    def fn(x):
        log.warning("maybe")
        return x + 1

    t.undo(lambda: logging.disable(logging.NOTSET))
    f = t.compile(fn)
    f(T(2))
    logging.disable(logging.CRITICAL)
    f(T(2))
    logging.disable(logging.NOTSET)
    f(T(2))


@program()
def test_logging_an_exception(t):
    def fn(x):
        try:
            raise ValueError("caught")
        except ValueError:
            log.exception("oh")
        return x + 1

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_warning_shown_once(t):
    def fn(x):
        warnings.warn("hey", UserWarning, stacklevel=1)
        return x + 1

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    f(T(2))


@program()
def test_warning_always_and_as_error(t):
    def fn(x, n):
        warnings.warn(f"n {n}", DeprecationWarning, stacklevel=1)
        return x + 1

    f = t.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        f(T(2), 1)
        f(T(2), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(T(2), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(T(2), 1)


@program()
def test_warnings_caught_inside(t):
    def fn(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("inside", stacklevel=1)
        return x + 1, [str(w.message) for w in caught], len(warnings.filters) >= 0

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_filters_of_warnings_for_a_while(t):
    """Which warnings were shown is forgotten with every change of the filters, so that each call warns again."""

    def fn(x):
        warnings.warn("before", stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = x * 2
        warnings.warn("after", stacklevel=1)
        return y

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    t.note(len(warnings.filters))
    warnings.filterwarnings("ignore", message="bef")
    f(T(2))
    f(T(2))
    t.note(len(warnings.filters))


@program(one_graph=False)
def test_filters_of_warnings_that_stay(t):
    def fn(x, n):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = x * 2
            if n > 1:
                warnings.warn("ignored", stacklevel=1)
        if n > 2:
            warnings.simplefilter("error")
        return y + 1

    f = t.compile(fn)
    for n in (1, 1, 2, 2, 3, 3):
        f(T(2), n)
        t.note((len(warnings.filters), warnings.filters[0][0]))


# ------------------------------------------------------------------------------------------------------ random numbers


@program()
def test_torch_random(t):
    def fn(x):
        return (
            x + torch.rand(2),
            torch.randn_like(x),
            torch.randint(0, 10, (2,)),
            torch.bernoulli(torch.full((2,), 0.5)),
        )

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    torch.manual_seed(5)
    f.hit(T(2))


@program()
def test_dropout(t):
    f = t.compile(nn.Dropout(0.5))
    f(T(8))
    f.hit(T(8))


@program()
def test_unused_random_numbers_still_move_the_generator(t):
    def fn(x):
        torch.rand(3)
        nn.functional.dropout(x, 0.5)
        return x + 1

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_python_random(t):
    def fn(x):
        return x * random.random(), random.randint(0, 5), random.choice([1, 2, 3])

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))
    random.seed(5)
    f.free(T(2))


@program()
def test_methods_of_a_generator_run_as_a_whole(t):
    own = random.Random(3)
    seen = []

    def fn(x, low):
        items = [1, 2, 3, 4]
        y = x + 1
        random.shuffle(items)
        seen.append(own.sample(range(10), 3))
        return y * random.gauss(0, 1), items, own.randint(low, low + 5), random.choices(items, k=2)

    f = t.compile(fn)
    f.free(T(2), 0)
    f.free(T(2), 0)
    f.free(T(2), 3)
    random.seed(5)
    own.seed(7)
    f.free(T(2), 3)
    f.free(T(2), float("nan"))  # an error of the method's


@program()
def test_own_random_instance(t):
    own = random.Random(3)

    def fn(x):
        return x * own.random()

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_python_random_that_nobody_looks_at(t):
    """Layers that are dropped in training draw in eval mode, too."""

    def fn(x, training):
        for i in range(3):
            chance = random.uniform(0, 1)
            if training and chance < 0.5:
                continue
            x = x * 2 + i
        return x

    f = t.compile(fn)
    f(T(2), False)
    f.hit(T(2), False)
    random.seed(5)
    f.hit(T(2), False)
    f.free(T(2), True)
    f.free(T(2), True)
    f.free(T(2), False)
    random.seed(3)
    f.free(T(2), True)


@program()
def test_drawn_and_thrown_away(t):
    own = random.Random(3)

    def fn(x):
        random.random()
        kept = [own.random() / 2 - 1.5 * random.random()]
        kept += [random.random() + kept[0]]
        return x + len(kept)

    f = t.compile(fn)
    t.watch(own.getstate)
    f(T(2))
    f.hit(T(2))
    random.seed(5)
    own.seed(7)
    f.hit(T(2))
    random.Random.random = lambda self: 0.25  # found before the generator's own
    try:
        f.free(T(2))
    finally:
        del random.Random.random
    f.free(T(2))
    own.random = lambda: 0.5
    f.free(T(2))
    del own.random
    f.free(T(2))


class Loaded(random.Random):
    def random(self):
        return 0.75


@program(one_graph=False)
def test_drawn_and_used(t):
    """Each way to look at a number that was drawn: all of them see what eager sees, and the generators move alike."""
    box = {"last": None}
    loaded = Loaded(3)

    class Draws(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            random.random()
            return x + 1

        @staticmethod
        def backward(ctx, grad):
            return grad

    def fn(x, way):
        x = x + 1
        first = random.random()
        r = random.random()
        if way == 0:
            return x, r
        if way == 1:
            return x * r + torch.full((2,), r)
        if way == 2:
            return x, [r, {"r": r}], type(r), isinstance(r, float)
        if way == 3:
            return x, max([r, 0.5]), sorted([r, 0.5, first]), sum([r, 1]), math.fsum([r, first])
        if way == 4:
            return x, f"{r:.3f}", str(r), {r: 1}, hash(r), r in (1, 2), -r, r**2, int(r * 10), bool(r), r.hex()
        if way == 5:
            box["last"] = r
            return x
        if way == 6:
            print(r)
            return x, 1 / (r + 1), 1 // (r + 1), (r, first) == (first, r), round(r, 2), divmod(r, 1)
        if way == 7:
            return x, (lambda: r), random.randint(1, 6), random.getstate()[1][-1]
        if way == 8:
            return Draws.apply(x), random.random() < 0.5
        if way == 9:
            raise ValueError(r)
        if way == 10:
            match r:
                case float():
                    return x + 1
            return x + 2
        if way == 11:
            return x * loaded.random(), loaded.uniform(2, 3)
        return (x for _ in range(2) if r < 2), 1 + r * 10**400 if way == 13 else 0

    f = t.compile(fn)
    t.watch(lambda: box)
    for way in range(14):
        for _ in range(3):
            f.free(T(2), way)


@program()
def test_numpy_random(t):
    def fn(x):
        return x * float(np.random.rand()), np.random.randint(5)

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_seed_set_inside(t):
    def fn(x):
        torch.manual_seed(3)
        return x + torch.rand(2)

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_shuffle(t):
    def fn(items, x):
        random.shuffle(items)
        return x + items[0]

    f = t.compile(fn)
    f.free([1, 2, 3], T(2))
    f.free([1, 2, 3], T(2))


@program()
def test_rng_state_read_and_restored(t):
    def fn(x):
        state = torch.get_rng_state()
        a = torch.rand(2)
        torch.set_rng_state(state)
        return x + a, torch.rand(2)

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


# ------------------------------------------------------------------------------------------------------------ time


@program(one_graph=False)
def test_time_goes_on(t):
    stamps = []

    def fn(x):
        stamps.append(time.perf_counter())
        return x + 1

    f = t.compile(fn)
    t.observer.blind.add(id(stamps))  # two runs have two times: only what is noted below is compared
    f(T(2))
    f(T(2))
    f(T(2))
    t.note((len(stamps), stamps == sorted(set(stamps))))


@program(one_graph=False)
def test_counter_from_itertools(t):
    import itertools

    numbers = itertools.count(1)

    def fn(x):
        return x + next(numbers)

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_context_variable(t):
    import contextvars

    variable = contextvars.ContextVar("variable", default=1)

    def fn(x):
        token = variable.set(variable.get() + 1)
        y = x * variable.get()
        if x.shape[0] > 2:
            variable.reset(token)
        return y

    t.watch(variable.get)
    f = t.compile(fn)
    f(T(2))
    f(T(2))
    f(T(3))


@program(one_graph=False)
def test_thread_local(t):
    import threading

    local = threading.local()
    local.n = 1

    def fn(x):
        local.n += 1
        return x * local.n

    t.watch(lambda: local.n)
    f = t.compile(fn)
    f(T(2))
    f(T(2))
    local.n = 10
    f(T(2))


@program(one_graph=False)
def test_breaks_in_a_function_without_builtins(t):
    """As namedtuple's __new__: what is imported while compiling is not asked of its builtins."""
    space = {"__builtins__": {}, "stop": alternator.graph_break}
    bare = eval("lambda x: (x * 2, stop(), x + 3)", space)
    f = t.compile(lambda x: bare(x + 1))
    f(T(3))
    f(T(3))


@program(one_graph=False)
def test_print_of_dicts_with_other_keys(t):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return self.n

        def __eq__(self, other):
            return self.n == other.n

        def __repr__(self):
            return f"Key {self.n % 10}"

    def fn(table, x):
        print({(1, "a"): 2, None: (3,)}, [{frozenset([1]): {Key(1): x.shape[0]}}])
        print(table, {Key(1): 1, Key(2): 2})
        print({Key(1): 1, Key(11): 2})
        table[(5, x.dim())] = len(table)
        return x + 1

    f = t.compile(fn)
    table = {(1, 2): 3, 2.5: [1]}
    for _ in range(3):
        f(table, T(2))


@program(one_graph=False)
def test_native_code_that_warns(t):
    """It warns of every call, by the filters that the program has set."""

    def caught(x, text):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always", SyntaxWarning)
            compile(text, "<a text>", "exec")
        return x + 1, [str(one.message) for one in shown]

    def raised(x, text):
        with warnings.catch_warnings():
            warnings.simplefilter("error", SyntaxWarning)
            try:
                compile(text, "<a text>", "exec")
            except SyntaxError as error:
                return x + 2, error.msg
        return x + 3, None

    for fn in (caught, raised):
        f = t.compile(fn)
        for text in ("x is 1", "x == 1", "x is 1"):
            f(T(2), text)

"""What a call shows: text, tensors, records and warnings come in order, as they were when the program showed them."""

from __future__ import annotations

import contextlib
import enum
import io
import logging
import sys
import warnings

import torch
from harness import T, program
from torch import nn

log = logging.getLogger("trace_tests.showing")


class Color(enum.Enum):
    RED = 1


class OnlyStr:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"<{self.name}>"


class OnlyFormat(OnlyStr):
    __str__ = object.__str__

    def __format__(self, spec):
        return f"{self.name}|{spec}"


@program()
def test_classes_that_say_only_some_of_their_texts(t):
    def fn(x, a, b):
        print(a, OnlyStr("made"))
        texts = f"{a}", f"{a!s}", str(a), format(a), "{} {}".format(a, 1), "%s and %5s" % (a, a), "%s" % a
        return x + 1, texts, f"{b}", f"{b:>4}", format(b, "x"), "{0:q}".format(b)

    f = t.compile(fn)
    f(T(2), OnlyStr("one"), OnlyFormat("1"))
    f.hit(T(2), OnlyStr("one"), OnlyFormat("1"))
    f(T(2), OnlyStr("two"), OnlyFormat("1"))
    f(T(2), OnlyStr("two"), OnlyFormat("2"))
    t.undo(lambda text=OnlyStr.__str__: setattr(OnlyStr, "__str__", text))
    OnlyStr.__str__ = lambda self: "other"
    f(T(2), OnlyStr("two"), OnlyFormat("2"))


@program(one_graph=False)
def test_addresses_in_texts_of_classes_that_say_only_some(t):
    def fn(x, a, b):
        texts = repr(a), f"{a!r}", "{!r}".format(a), "%r" % a, f"{[a]}", f"{b!s}", str(b), "%(b)s" % {"b": b}
        return x + 1, [str(id(a)) in text or hex(id(a)) in text or hex(id(b)) in text for text in texts]

    f = t.compile(fn)
    f(T(2), OnlyStr("one"), OnlyFormat("1"))
    f(T(2), OnlyStr("one"), OnlyFormat("1"))


@program()
def test_print_of_many_kinds(t):
    class Named:
        def __init__(self, name):
            self.name = name

        def __str__(self):
            return f"<{self.name}>"

        def __repr__(self):
            return f"Named({self.name!r})"

    def fn(o, x):
        print()
        print(1, 2.5, None, True, "text", b"bytes", 1j, ...)
        print([1, "a", (2,)], {"k": [x.shape[0]]}, {3}, range(2), slice(1), x.dtype, x.device, x.shape)
        print(o, [o], {"o": o}, Color.RED, [Color.RED], Named)
        print("a", "b", sep="", end="")
        print(*range(3), sep=", ", flush=True)
        print(ValueError("shown"), [KeyError("k")])
        return x + 1

    f = t.compile(fn)
    f(Named("one"), T(2))
    f.hit(Named("one"), T(2))
    f(Named("two"), T(2))


@program()
def test_print_tensors_of_many_kinds(t):
    def fn(x, w, p):
        y = x * w
        print(x, w, y, p, [x, y], {"y": y}, (w,), sep="|")
        print(y.detach(), y.sum(), x.to(torch.int64), x > 0)
        return y * p

    f = t.compile(fn)
    p = nn.Parameter(T(2))
    f(T(2), T(2, rg=True), p)
    f.hit(T(2, s=3), T(2, rg=True), p)


@program()
def test_print_of_what_is_written_later(t):
    def fn(x):
        y = x + 1
        view = y[0:1]
        print(x, y, view)
        view.mul_(5)
        x.zero_()
        print(x, y, view)
        return y

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2, s=3))


@program(one_graph=False)
def test_print_of_what_has_a_gradient_and_is_written_later(t):
    def fn(x):
        y = x * 2
        print(y)
        y.add_(1)
        print(y)
        return y

    f = t.compile(fn)
    f(T(2, rg=True))
    f(T(2, rg=True))


@program()
def test_print_of_containers_that_change_later(t):
    def fn(items, d, x):
        print(items, d)
        items.append(x)
        d["x"] = items
        print(items, d)
        items.clear()
        return x

    f = t.compile(fn)
    f([1], {}, T(2))
    f.hit([1], {}, T(2))


@program(one_graph=False)
def test_print_of_addresses_and_printing_objects(t):
    class Plain:
        pass

    class Printing:
        def __str__(self):
            print("inside")
            return "printing"

    def fn(o, x):
        print("value", o)
        return x + 1

    f = t.compile(fn)
    f(Printing(), T(2))
    f(Printing(), T(2))


@program(one_graph=False)
def test_print_under_redirection_inside(t):
    def fn(x):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            print("hidden")
        return text.getvalue(), x + 1

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_print_under_redirection_outside(t):
    def fn(x):
        print("shape", tuple(x.shape))
        return x + 1

    f = t.compile(fn)
    text = io.StringIO()
    t.watch(text.getvalue)
    f(T(2))
    with contextlib.redirect_stdout(text):
        f(T(2))
    f.hit(T(2))


@program(one_graph=False)
def test_print_to_an_object_of_the_users(t):
    class Counting:
        def __init__(self):
            self.lines = []

        def write(self, text):
            self.lines.append(text)

        def flush(self):
            pass

    out = Counting()
    t.watch(lambda: out.lines)

    def fn(x, to_file):
        if to_file:
            print("one", file=out)
        else:
            print("two")
        return x + len(out.lines)

    f = t.compile(fn)
    f(T(2), True)
    f(T(2), True)
    old, sys.stdout = sys.stdout, out
    try:
        f(T(2), False)
        f(T(2), False)
    finally:
        sys.stdout = old
    f(T(2), False)


@program()
def test_print_in_functions_and_modules(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            h = self.lin(x)
            print("hidden", h.shape, self.training)
            return h.relu()

    f = t.compile(Net())
    f(T(1, 2))
    f.hit(T(1, 2))


@program()
def test_print_then_raise(t):
    def fn(items, x, n):
        print("before", x)
        items.append(n)
        if n:
            raise ValueError(n)
        print("after", items)
        return x

    f = t.compile(fn)
    for n in (0, 1, 1, 0):
        f([], T(2), n)


@program(one_graph=False)
def test_print_in_a_function_of_autograd(t):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            print("forward")
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def fn(x):
        print("before")
        return Double.apply(x)

    f = t.compile(fn)
    f(T(2, rg=True))
    f(T(2, rg=True))


# ------------------------------------------------------------------------------------------------------------- logging


def to_stream(t, logger, style):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(style))
    logger.addHandler(handler)
    t.undo(lambda: logger.removeHandler(handler))
    t.watch(stream.getvalue)
    return handler


@program()
def test_records_name_the_place_that_logs(t):
    to_stream(t, log, "%(levelname)s %(name)s %(filename)s:%(lineno)d %(funcName)s %(message)s")

    def helper(x):
        log.warning("in helper %s", x.shape[0])
        log.error("of its caller", stacklevel=2)

    def fn(x):
        log.critical("plain")
        helper(x)
        log.log(35, "level %d and %r", 35, "text")
        return x + 1

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_levels_decide(t):
    to_stream(t, log, "%(levelname)s %(message)s")
    old = log.level
    t.undo(lambda: log.setLevel(old))

    def fn(x):
        log.debug("debug %s", x)
        log.info("info")
        return x + 1

    f = t.compile(fn)
    f(T(2))
    log.setLevel(logging.DEBUG)
    f(T(2))
    f.hit(T(2))
    log.setLevel(logging.INFO)
    f(T(2))


@program()
def test_tensors_are_logged(t):
    to_stream(t, log, "%(message)s")

    def fn(x):
        y = x * 2
        log.warning("%s and %s", x, [y])
        x.add_(1)
        return y

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2, s=4))


@program(one_graph=False)
def test_objects_are_logged(t):
    class Counter:
        n = 0

        def __str__(self):
            return f"n={self.n}"

    to_stream(t, log, "%(message)s")

    def fn(c, x):
        log.warning("%s", c)
        c.n += 1
        log.warning("%s", c)
        return x

    f = t.compile(fn)
    one = Counter()
    f(one, T(2))
    f(one, T(2))


@program(one_graph=False)
def test_handlers_filters_and_formatters_of_the_users(t):
    seen, state = [], []
    t.watch(lambda: (seen, state))

    class Looking(logging.Handler):
        def emit(self, record):
            seen.append((record.getMessage(), len(state), record.lineno))

    class Only(logging.Filter):
        def filter(self, record):
            seen.append("asked")
            return "no" not in record.getMessage()

    def fn(x, text):
        state.append(1)
        log.warning(text)
        return x + len(seen)

    f = t.compile(fn)
    f(T(2), "first")
    handler = Looking()
    log.addHandler(handler)
    t.undo(lambda: log.removeHandler(handler))
    f(T(2), "second")
    f(T(2), "second")
    only = Only()
    log.addFilter(only)
    t.undo(lambda: log.removeFilter(only))
    f(T(2), "no third")
    f(T(2), "fourth")


@program()
def test_root_logger_and_functions_of_the_module(t):
    to_stream(t, logging.getLogger(), "%(name)s %(funcName)s %(message)s")

    def fn(x):
        logging.warning("by the module")
        logging.getLogger().error("root")
        return x + 1

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


# ------------------------------------------------------------------------------------------------------------ warnings


@program()
def test_warnings_name_the_place(t):
    def helper(x):
        warnings.warn("of the caller", FutureWarning, stacklevel=2)
        warnings.warn("own", UserWarning)  # noqa: B028
        return x

    def fn(x):
        warnings.warn("above", DeprecationWarning, stacklevel=2)
        return helper(x) + 1

    f = t.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        f(T(2))
        f.hit(T(2))
    f(T(2))


@program()
def test_warnings_are_recorded_outside(t):
    def fn(x, n):
        for _ in range(n):
            warnings.warn("again", stacklevel=1)
        return x + 1

    f = t.compile(fn)
    seen = []
    t.watch(lambda: seen)
    for kind in ("always", "default", "once", "ignore", "module"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(kind)
            f(T(2), 2)
            f(T(2), 2)
        seen.append((kind, [(str(w.message), w.category.__name__, w.lineno) for w in caught]))


@program(one_graph=False)
def test_warnings_as_errors(t):
    log_ = []
    t.watch(lambda: log_)

    def fn(x):
        log_.append("before")
        try:
            warnings.warn("now an error", RuntimeWarning, stacklevel=1)
        except RuntimeWarning as error:
            log_.append(str(error))
        return x + 1

    f = t.compile(fn)
    f(T(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        f(T(2))
        f(T(2))
    f(T(2))


@program(one_graph=False)
def test_prints_that_raise(t):
    class Bad:
        def __str__(self):
            raise ValueError("no text")

    def fn(x, sep):
        seen = []
        try:
            print("before", Bad())
        except ValueError as error:
            seen.append(str(error))
        try:
            print("a", "b", sep=sep)
        except TypeError as error:
            seen.append(str(error))
        print(x.shape)
        return x + 1, seen

    f = t.compile(fn)
    f(T(2), "-")
    f(T(2), 3)
    f(T(2), None)


@program(one_graph=False)
def test_levels_that_a_logger_remembers(t):
    logger = logging.Logger("another of its own", 20)
    logger.manager = logging.Manager(logger)
    logger.propagate = False
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    t.watch(lambda: dict(logger._cache))

    def fn(x, level):
        logger.debug("not shown")
        if logger.isEnabledFor(level):
            logger.log(level, "shown")
        return x + 1

    f = t.compile(fn)
    for level in (10, 20, 30, 20):
        f(T(2), level)
    logger.disabled = True
    f(T(2), 40)


@program(one_graph=False)
def test_how_it_is_shown_was_changed(t):
    """What is shown goes through what the call has set before, and not through what it sets afterwards."""
    stream = io.StringIO()
    logger = logging.Logger("of its own")
    logger.manager = logging.Manager(logger)  # not the one that knows all loggers
    handler = logging.StreamHandler(stream)
    logger.setLevel(20)
    logger.propagate = False
    logger.handlers = [handler]
    t.watch(stream.getvalue)

    def options(x):
        with torch._tensor_str.printoptions(precision=2):
            print(x)
        print(x)
        return x * 2

    def level(x, n):
        handler.setLevel(n)
        logger.info("of level %s", n)
        handler.setLevel(0)
        return x + 1

    def text(x, n):
        handler.setFormatter(logging.Formatter(f"{n}:%(message)s"))
        logger.info("here")
        return x + 1

    def end(x, n):
        handler.terminator = n
        logger.info("ended")
        return x + 1

    def format_of_a_formatter(x, n):
        handler.formatter._style._fmt = n
        logger.info("there")
        return x + 1

    def is_passed_on(x, n):
        logger.propagate = n
        logger.info("not to others")
        logger.propagate = False
        return x + 1

    f = t.compile(options)
    f(T(2))
    f(T(2, s=1))
    for fn, values in (
        (level, (40, 0, 40)),
        (text, ("a", "a", "b")),
        (end, ("|", "\n", "|")),
        (format_of_a_formatter, ("%(message)s", "!%(message)s")),
        (is_passed_on, (False, False)),
    ):
        f = t.compile(fn)
        for value in values:
            f(T(2), value)


@program(one_graph=False)
def test_who_writes_warnings_was_changed(t):
    def fn(x, own):
        before = warnings.formatwarning
        if own:
            warnings.formatwarning = lambda message, *_: f"own: {message}\n"
        warnings.warn("shown", stacklevel=1)
        warnings.formatwarning = before
        return x + 1

    def plain(x):
        warnings.warn("plain", stacklevel=1)
        return x + 1

    f = t.compile(fn)
    for own in (False, True, False, True):
        f(T(2), own)
    f = t.compile(plain)
    f(T(2))
    before = warnings.formatwarning
    t.undo(lambda: setattr(warnings, "formatwarning", before))
    warnings.formatwarning = lambda message, *_: f"later: {message}\n"
    f(T(2))


@program(one_graph=False)
def test_warnings_that_somebody_records(t):
    def of_the_caller(x, got):
        warnings.warn("one", stacklevel=1)
        return x + 1, len(got)

    def behind_a_break(x, _):
        with warnings.catch_warnings(record=True) as got:
            warnings.simplefilter("always")
            alternator.graph_break()
            warnings.warn("two", stacklevel=1)
            count = len(got)
        return x + count, [str(one.message) for one in got]

    def of_torch(x, _):
        with warnings.catch_warnings(record=True) as got:
            warnings.simplefilter("always")
            alternator.graph_break()
            torch.add(x, x, out=torch.ones(5))
            count = len(got)
        return x + count, len(got)

    for fn in (of_the_caller, behind_a_break, of_torch):
        f = t.compile(fn)
        for _ in range(3):
            with warnings.catch_warnings(record=True) as got:
                warnings.simplefilter("always")
                f(T(3), got)
        f(T(3), [])

"""Exceptions of all kinds: caught, chained, grouped, leaving the function with the effects so far."""

from __future__ import annotations

import gc
import sys

from harness import T, program
from torch import nn

import alternator

# ----------------------------------------------------------------------------------------------------- exceptions


@program()
def test_try_except_else_finally(t):
    def fn(d, x):
        log = []
        try:
            v = d["k"]
        except KeyError as e:
            v = len(e.args)
            log.append("except")
        else:
            log.append("else")
        finally:
            log.append("finally")
            x = x + 1
        return x * v, log

    f = t.compile(fn)
    f({}, T(2))
    f.hit({}, T(2))
    f({"k": 4}, T(2))


@program()
def test_exception_leaves_the_function(t):
    def fn(x, n):
        y = x + 1
        if n > 2:
            raise ValueError("big %d" % n)
        return y + n

    f = t.compile(fn)
    f(T(2), 1)
    f(T(2), 5)
    f(T(2), 5)
    f.hit(T(2), 1)


@program()
def test_exception_with_cause_and_context(t):
    def deep(x):
        raise KeyError("deep")

    def fn(x, how):
        try:
            deep(x)
        except KeyError as e:
            if how == "from":
                raise ValueError("outer") from e
            if how == "none":
                raise ValueError("outer") from None
            if how == "bare":
                raise
            raise ValueError("outer")  # noqa: B904
        return x

    f = t.compile(fn)
    for how in ("from", "none", "bare", "plain", "from"):
        f(T(2), how)


@program()
def test_exception_of_the_users_class(t):
    class Mine(RuntimeError):
        def __init__(self, code, x):
            super().__init__(f"code {code}")
            self.code, self.x = code, x

    def fn(x, n):
        y = x + 1
        if n:
            raise Mine(n, y)
        return y

    f = t.compile(fn)
    f(T(2), 0)
    f(T(2), 3)
    f(T(2), 3)


@program()
def test_exception_through_several_frames(t):
    def a(x, n):
        return b(x + 1, n)

    def b(x, n):
        try:
            return c(x, n)
        finally:
            n.append("b")

    def c(x, n):
        n.append("c")
        raise IndexError("at the bottom")

    class Net(nn.Module):
        def forward(self, x, n):
            return a(x, n)

    f = t.compile(Net())
    f(T(2), [])
    f(T(2), [])


@program()
def test_exception_from_builtins(t):
    def fn(x, what):
        if what == "index":
            return [1][5]
        if what == "key":
            return {}["k"]
        if what == "attribute":
            return x.no_such_attribute
        if what == "type":
            return 1 + "a"
        if what == "zero":
            return 1 // 0
        if what == "unpack":
            a, b = [1]
        if what == "name":
            return no_such_name  # noqa: F821
        if what == "call":
            return len(1, 2)
        if what == "int":
            return int("x")
        return x + 1

    f = t.compile(fn)
    for what in ("", "index", "key", "attribute", "type", "zero", "unpack", "name", "call", "int", "index"):
        f(T(2), what)


@program(one_graph=False)
def test_exception_from_torch(t):
    def fn(x, y):
        return x @ y

    f = t.compile(fn)
    f(T(2, 3), T(3, 2))
    f(T(2, 3), T(2, 2))
    f(T(2, 3), T(4))
    f(T(2, 3), "a")


@program(one_graph=False)
def test_torch_errors_that_the_program_catches(t):
    def fn(x, y):
        try:
            return x @ y
        except RuntimeError as error:
            return x, "shapes" in str(error)

    f = t.compile(fn)
    f(T(2, 3), T(3, 2))
    f(T(2, 3), T(2, 2))
    f(T(2, 3), T(3, 2))


@program(one_graph=False)
def test_errors_of_fakes_are_not_the_programs(t):
    """What only fails because a tensor has no data must not be caught by the program."""

    def fn(x):
        try:
            n = x.numpy().sum() * 0 + 1
        except Exception:
            return "fell", x
        try:
            p = x.data_ptr() != 0
        except Exception:
            return "fell", x
        try:
            i = int(x[0] > 100)
        except Exception:
            return "fell", x
        return float(n), p, i, x + 1

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_exception_group(t):
    def fn(x, n):
        log = []
        try:
            if n:
                raise ExceptionGroup("g", [ValueError(1), TypeError(2), ExceptionGroup("h", [ValueError(3)])])
        except* ValueError as g:
            log.append(len(g.exceptions))
        except* TypeError:
            log.append("type")
        return x + n, log

    f = t.compile(fn)
    f(T(2), 0)
    f(T(2), 1)
    f.hit(T(2), 1)


@program()
def test_return_in_finally_and_break(t):
    def fn(x, n):
        for i in range(5):
            try:
                if i == n:
                    continue
                if i == 3:
                    break
                x = x + i
            finally:
                x = x * 2
        else:
            return "else", x

        def inner():
            try:
                raise ValueError
            finally:
                return 7  # noqa: B012

        return inner(), x

    f = t.compile(fn)
    f(T(2), 1)
    f.hit(T(2), 1)
    f(T(2), 3)


@program()
def test_assertion(t):
    def fn(x, n):
        assert n > 1, f"n is {n}"
        assert x.shape[0] == 2
        return x + n

    f = t.compile(fn)
    f(T(2), 2)
    f(T(2), 1)
    f(T(3), 2)
    f.hit(T(2), 2)


@program()
def test_exceptions_of_every_base(t):
    def fn(x, cls):
        raise cls("stop")

    f = t.compile(fn)
    for cls in (
        KeyboardInterrupt,
        SystemExit,
        GeneratorExit,
        StopIteration,
        BaseException,
        MemoryError,
        RecursionError,
    ):
        f.free(T(2), cls)


@program()
def test_add_note_and_args(t):
    def fn(x):
        e = ValueError("a", 1)
        e.add_note("note")
        e.extra = [1]
        raise e

    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_exception_raised_is_an_input(t):
    def fn(e, x):
        raise e

    f = t.compile(fn)
    one = ValueError("mine")
    f.free(one, T(2))
    f.free(ValueError("other"), T(2))


@program()
def test_sys_exc_info(t):
    import sys

    def fn(x):
        before = sys.exc_info()[0]
        try:
            raise KeyError("k")
        except KeyError:
            inside = sys.exc_info()[0], str(sys.exc_info()[1])
        return before, inside, sys.exc_info()[0], x + 1

    f = t.compile(fn)
    f.free(T(2))
    try:
        raise TypeError("outside")
    except TypeError:
        f.free(T(2))


@program()
def test_called_while_an_exception_is_handled(t):
    def fn(x, n):
        if n:
            raise ValueError("new")
        return x + 1

    f = t.compile(fn)
    try:
        raise KeyError("old")
    except KeyError:
        f(T(2), 0)
        f(T(2), 1)
        f(T(2), 1)


@program()
def test_recursion_error(t):
    def deep(n, x):
        return x if n == 0 else deep(n - 1, x)

    f = t.compile(lambda n, x: deep(n, x) + 1)
    f(100, T(2))
    f.hit(100, T(2))


@program(one_graph=False)
def test_generator_that_an_exception_leaves_suspended(t):
    """It is closed once, by the call itself: the trace that came before runs none of its code."""
    log = []

    def steps():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    def fn(x):
        generator = steps()
        log.append(next(generator))
        x = x + 1
        raise ValueError("left")

    t.watch(lambda: log)
    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_messages_name_classes_and_functions(t):
    """A class may be renamed between two calls; what CPython says then has the new name."""

    class Base:
        pass

    class Thing(Base):
        @property
        def fixed(self):
            return 1

        def method(self, a):
            return a

    def helper(a, b):
        return a

    failures = [
        lambda: Thing().extra,
        lambda: delattr(Thing(), "extra"),
        lambda: setattr(Thing(), "fixed", 2),
        lambda: Thing() + 1,
        lambda: Thing() < Thing(),
        lambda: -Thing(),
        lambda: [*Thing()],
        lambda: Thing()(),
        lambda: Thing(1, 2),
        lambda: Thing()[0],
        lambda: 1 in Thing(),
        lambda: Thing.extra,
        lambda: super(Thing, Thing()).extra,
        lambda: [1][Thing()],
        lambda: range(Thing()),
        lambda: "".join([Thing()]),
        lambda: sorted([Thing(), Thing()]),
        lambda: helper(1),
        lambda: helper(1, 2, 3),
        lambda: helper(1, 2, c=3),
        lambda: Thing().method(),
    ]

    def fn(x):
        said = []
        for failure in failures:
            try:
                failure()
            except (TypeError, AttributeError) as error:
                said.append(str(error))
        return x + 1, said

    def leaves(x):
        x = x + 1
        return Thing() + x.shape

    f, g = t.compile(fn), t.compile(leaves)
    f(T(2)), g(T(2))
    f.hit(T(2))
    Thing.__name__ = "Renamed"
    f(T(2)), g(T(2))
    helper.__qualname__ = "Helper"
    f(T(2))
    Thing.method.__qualname__ = "Thing.other"
    f(T(2))
    Thing.__qualname__ = "Qualified"
    f(T(2))
    Thing.__qualname__ = "Again"
    f(T(2))
    Base.__name__ = "Root"
    f(T(2)), g(T(2))


@program(one_graph=False)
def test_a_break_while_an_exception_is_handled_leaves_no_cycle(t):
    log = []

    def steps(items):
        try:
            yield from items
        finally:
            log.append("closed")

    def fn(x):
        generator = steps([1, 2])
        log.append(next(generator))
        try:
            x.nothing  # noqa: B018
        except AttributeError as error:
            log.append(str(error))
            alternator.graph_break()
            log.append(x.sum())
            alternator.graph_break()
        return x + 1

    f = t.compile(fn)
    gc.disable()  # what dies, dies at once
    for _ in range(3):
        f(T(2))
        t.note(list(log))
    gc.enable()


@program()
def test_sys_exception(t):
    def fn(x):
        before = sys.exception()
        try:
            raise ValueError("inner")
        except ValueError:
            inside = str(sys.exception())
            try:
                raise KeyError("deeper")
            except KeyError:
                deeper = repr(sys.exception())
            again = type(sys.exception()).__name__
        return x + 1, before, inside, deeper, again, sys.exception() is None

    f = t.compile(fn)
    f(T(3))
    f.hit(T(3, s=1))


@program(one_graph=False)
def test_sys_exception_of_the_caller(t):
    def fn(x):
        return x + 1, repr(sys.exception())

    f = t.compile(fn)
    f(T(3))
    try:
        raise ValueError("outer")
    except ValueError:
        f(T(3))
    f(T(3))


@program(one_graph=False)
def test_exceptions_without_a_traceback_leave(t):
    def group(x):
        x = x + 1
        try:
            raise ExceptionGroup("eg", [ValueError(1), ExceptionGroup("in", [TypeError(2)])])
        except* ValueError:
            raise OSError("new")

    def cleared(x, mode):
        x = x + 1
        try:
            raise ValueError("inner")
        except ValueError as error:
            error.__traceback__ = None
            if mode:
                raise OSError("outer") from error
            raise OSError("outer").with_traceback(None)

    f, g = t.compile(group), t.compile(cleared)
    for _ in range(2):
        f(T(2))
        g(T(2), True)
        g(T(2), False)


@program(one_graph=False)
def test_outside_groups_in_groups(t):
    def method(e, x):
        matched, rest = ExceptionGroup("outer", [e, ValueError(1)]).split(ValueError)
        return x + len(matched.exceptions), rest

    def caught(e, x):
        try:
            raise ExceptionGroup("outer", [ExceptionGroup("middle", [e]), KeyError(1)])
        except* ValueError as some:
            x = x + len(some.exceptions)
        except* Exception:
            x = x * 2
        return x

    def picked(e, x):
        some = ExceptionGroup("outer", [e]).subgroup(lambda one: isinstance(one, ValueError) and one.args == (2,))
        return x, some is None

    f, g, h = t.compile(method), t.compile(caught), t.compile(picked)
    for parts in ([ValueError(2)], [ValueError(2)], [TypeError(2)], [ValueError(2), TypeError(3)], [ValueError(3)]):
        f(ExceptionGroup("given", parts), T(2))
        g(ExceptionGroup("given", parts), T(2))
        h(ExceptionGroup("given", parts), T(2))
    f(KeyError(1), T(2))
    f(ValueError(1), T(2))

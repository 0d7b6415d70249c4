"""The module decimal: numbers are guarded by what they are made of, contexts by their settings; what a call does to them is done at its end."""

from __future__ import annotations

import decimal
import threading
from decimal import Context, Decimal

import torch
from harness import T, program

import alternator


def state(context: Context) -> tuple:
    """All that a context is."""
    flags = [signal.__name__ for signal, raised in context.flags.items() if raised]
    traps = [signal.__name__ for signal, wanted in context.traps.items() if wanted]
    settings = context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp
    return *settings, flags, traps, str(context)  # the text shows which conditions of a signal there were


def watch(t) -> None:
    decimal.setcontext(Context())
    t.watch(lambda: state(decimal.getcontext()))


@program()
def test_computed_in_the_call(t):
    watch(t)

    def fn(x):
        a = Decimal("1.10") + 2
        return x * float(a), str(a), a.as_tuple(), hash(a) == hash(Decimal("3.1")), a, -a, f"{a:.1f}"

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    f.hit(T(2))


@program(graphs=4)
def test_a_number_from_outside(t):
    watch(t)
    rate = Decimal("1.5")

    def fn(x, d):
        return x * float(d + rate), d, rate, d + 1, d == rate

    f = t.compile(fn)
    f(T(2), Decimal("2.0"))
    f.hit(T(2), Decimal("2.0"))
    f.miss(T(2), Decimal("2.00"))  # another number of digits
    f.hit(T(2), Decimal("2.00"))
    f.miss(T(2), Decimal("-2.00"))
    f.miss(T(2), Decimal("12345678901234567890123.5"))
    f.hit(T(2), Decimal("12345678901234567890123.5"))


@program()
def test_special_numbers(t):
    watch(t)

    def fn(x, d):
        return x + 1, d, d.is_nan(), d.is_infinite(), d.is_signed(), str(d)

    f = t.compile(fn)
    for text in ("NaN", "NaN12", "-NaN", "sNaN", "Infinity", "-Infinity", "0", "-0", "0E+3"):
        f(T(2), Decimal(text))
        f.hit(T(2), Decimal(text))


@program()
def test_which_object_it_is(t):
    watch(t)

    def fn(x, a, b):
        return x + 1, a is b, a, [a, b], +a

    f = t.compile(fn)
    one = Decimal("1.5")
    f(T(2), one, Decimal("1.5"))
    f.hit(T(2), Decimal("1.5"), Decimal("1.5"))
    f.miss(T(2), one, one)


@program()
def test_the_precision_is_guarded(t):
    watch(t)

    def fn(x):
        return x + 1, Decimal(1) / Decimal(3)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    decimal.getcontext().prec = 5
    f.miss(T(2))
    f.hit(T(2))
    decimal.getcontext().rounding = decimal.ROUND_UP
    f.miss(T(2))
    decimal.setcontext(Context(prec=5, rounding=decimal.ROUND_UP))  # another context like it
    f.hit(T(2))


@program()
def test_flags_are_raised_in_every_call(t):
    watch(t)

    def fn(x):
        return x + 1, Decimal(1) / Decimal(3)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    decimal.getcontext().clear_flags()
    f.hit(T(2))
    decimal.getcontext().clear_flags()
    decimal.getcontext().flags[decimal.Overflow] = True
    f.hit(T(2))


@program()
def test_flags_that_are_read(t):
    watch(t)

    def fn(x):
        context = decimal.getcontext()
        before = context.flags[decimal.Inexact]
        context.clear_flags()
        Decimal(1) / Decimal(8)
        exact = context.flags[decimal.Inexact]
        Decimal(1) / Decimal(3)
        return x + 1, before, exact, bool(context.flags[decimal.Inexact])

    f = t.compile(fn)
    f(T(2))
    f(T(2))
    f.hit(T(2))
    decimal.getcontext().flags[decimal.Clamped] = True
    f.miss(T(2))


@program()
def test_a_trap(t):
    watch(t)

    def fn(x, a, b):
        try:
            return x + 1, a / b
        except decimal.DivisionByZero as error:
            return x + 2, type(error), error.args

    f = t.compile(fn)
    f(T(2), Decimal(1), Decimal(0))
    f.hit(T(2), Decimal(1), Decimal(0))
    f.miss(T(2), Decimal(1), Decimal(2))
    decimal.getcontext().traps[decimal.DivisionByZero] = False
    f.miss(T(2), Decimal(1), Decimal(0))


@program()
def test_a_trap_leaves_the_call(t):
    watch(t)

    def fn(x, text):
        y = x + 1
        return y, Decimal(text)

    f = t.compile(fn)
    f(T(2), "what")
    f.hit(T(2), "what")
    f(T(2), "1")


@program()
def test_several_conditions_are_one_signal(t):
    watch(t)
    decimal.getcontext().traps[decimal.InvalidOperation] = False

    def unseen(x, text, number):
        return x + 1, Decimal(text), number - number

    def seen(x, text, number):
        context, mine = decimal.getcontext(), Context(traps=[])
        made = Decimal(text), number - number, mine.create_decimal(text)
        return x + 1, made, str(context), context.flags == mine.flags, mine

    f, g = t.compile(unseen), t.compile(seen)
    for text in ("1", "what"):
        for number in (Decimal("Infinity"), Decimal("1.5")):
            decimal.getcontext().clear_flags()
            f(T(2), text, number)
            f.hit(T(2), text, number)
            decimal.getcontext().clear_flags()
            g(T(2), text, number)
            decimal.getcontext().clear_flags()
            g.hit(T(2), text, number)
            decimal.getcontext().flags[decimal.InvalidOperation] = True
            g(T(2), text, number)


@program()
def test_settings_are_written(t):
    watch(t)

    def fn(x, prec):
        context = decimal.getcontext()
        context.prec = prec
        context.traps[decimal.Inexact] = False
        context.flags[decimal.Subnormal] = True
        context.rounding = decimal.ROUND_FLOOR
        return x + 1, context is decimal.getcontext(), +Decimal("1.23456789")

    f = t.compile(fn)
    f(T(2), 4)
    f(T(2), 4)
    f.hit(T(2), 4)
    f(T(2), 6)


@program()
def test_a_local_context(t):
    watch(t)

    def fn(x):
        with decimal.localcontext() as context:
            context.prec = 3
            a = Decimal(2).sqrt()
        with decimal.localcontext(prec=7):
            b = Decimal(2).sqrt()
        return x * float(a), a, b, Decimal(2).sqrt()

    f = t.compile(fn)
    f(T(2))
    f.free(T(2))
    f.hit(T(2))
    decimal.getcontext().prec = 9
    f.miss(T(2))


@program()
def test_a_context_of_the_calls(t):
    watch(t)

    def fn(x):
        context = Context(prec=3, rounding=decimal.ROUND_HALF_DOWN)
        third = context.divide(Decimal(1), Decimal(3))
        made = context.create_decimal("1.23456")
        return x + 1, third, made, context, state(context), context.flags[decimal.Inexact]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_a_context_is_set(t):
    watch(t)

    def fn(x, prec):
        context = Context(prec=prec)
        decimal.setcontext(context)
        return x + 1, Decimal(1) / 3, decimal.getcontext() is context, context

    t.watch(lambda: decimal.getcontext())
    f = t.compile(fn)
    f(T(2), 4)
    f(T(2), 4)
    f.free(T(2), 4)
    f(T(2), 5)


@program()
def test_a_template_is_set(t):
    watch(t)

    def fn(x):
        decimal.setcontext(decimal.BasicContext)
        same = decimal.getcontext() is decimal.BasicContext
        return x + 1, same, Decimal(1) / 3

    t.watch(lambda: decimal.getcontext() is decimal.BasicContext)
    f = t.compile(fn)
    f.free(T(2))
    f(T(2))
    f.free(T(2))
    f.hit(T(2))


@program()
def test_set_and_put_back(t):
    watch(t)

    def fn(x):
        before = decimal.getcontext()
        decimal.setcontext(Context(prec=2))
        a = Decimal(1) / 3
        decimal.setcontext(before)
        return x + 1, a, Decimal(1) / 8

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_a_context_that_is_handed_over(t):
    watch(t)
    kept = Context(prec=4)

    def fn(x, context):
        return x + 1, context.divide(Decimal(1), Decimal(3)), context.prec, context

    t.watch(lambda: state(kept))
    f = t.compile(fn)
    f(T(2), kept)
    f(T(2), kept)
    f.hit(T(2), kept)
    f.miss(T(2), Context(prec=5))
    f(T(2), decimal.getcontext())
    f.free(T(2), decimal.getcontext())


@program()
def test_the_default_is_guarded(t):
    watch(t)

    def fn(x):
        return x + 1, Context().prec

    before = decimal.DefaultContext.prec
    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    decimal.DefaultContext.prec = 11
    f.miss(T(2))
    decimal.DefaultContext.prec = before


@program(one_graph=False)
def test_the_default_is_changed(t):
    watch(t)

    def fn(x):
        before = decimal.DefaultContext.prec
        decimal.DefaultContext.prec = 13
        found = Context().prec
        decimal.DefaultContext.prec = before
        return x + 1, found

    t.watch(lambda: state(decimal.DefaultContext))
    f = t.compile(fn)
    f(T(2))
    f(T(2))


@program()
def test_a_break_in_a_local_context(t):
    watch(t)

    def fn(x):
        with decimal.localcontext(prec=4):
            a = Decimal(1) / 3
            alternator.graph_break()
            b = Decimal(2) / 3
        return x + 1, a, b, Decimal(1) / 3

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_native_code_computes(t):
    watch(t)
    prices = [Decimal("1.10"), Decimal("0.35"), Decimal("7")]

    def fn(x):
        total = sum(prices)
        return x + 1, total, sorted(prices), max(prices), list(map(Decimal, ["1", "2.5"])), round(total, 1), {total: 1}

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))
    prices[1] = Decimal("0.350")
    f.miss(T(2))


@program()
def test_a_class_over_decimal(t):
    watch(t)

    class Money(Decimal):
        def cents(self):
            return int(self * 100)

    def fn(x, text):
        return x + 1, Money(text).cents(), isinstance(Money(text), Decimal)

    f = t.compile(fn)
    f(T(2), "1.25")
    f.hit(T(2), "1.25")
    f.miss(T(2), "2.25")


def test_another_thread_has_another_context():
    def fn(x):
        return x + 1, Decimal(1) / Decimal(3)

    f = alternator.compile(fn, backend="eager", fullgraph=True)
    decimal.setcontext(Context(prec=6))
    assert str(f(torch.ones(2))[1]) == "0.333333"
    found: list[str] = []

    def work() -> None:
        decimal.setcontext(Context(prec=3))
        found.append(str(f(torch.ones(2))[1]))
        found.append(str(decimal.getcontext().flags[decimal.Inexact]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["0.333", "True"]
    assert str(f(torch.ones(2))[1]) == "0.333333"
    assert decimal.getcontext().prec == 6


def test_nothing_is_written_while_tracing():
    context = Context(prec=6)
    decimal.setcontext(context)
    seen: list[tuple] = []

    def backend(gm, inputs):
        seen.append((decimal.getcontext() is context, state(context)))
        return gm.forward

    def fn(x):
        decimal.getcontext().prec = 3
        return x + 1, Decimal(1) / Decimal(3)

    before = state(context)
    assert str(alternator.compile(fn, backend=backend, fullgraph=True)(torch.ones(2))[1]) == "0.333"
    assert seen == [(True, before)]
    assert decimal.getcontext() is context and context.prec == 3 and context.flags[decimal.Inexact]

"""Functions, closures, decorators, patterns, control flow, and what may be compiled."""

from __future__ import annotations

from harness import T, program

# ----------------------------------------------------------------------------------------- functions, closures, match


@program()
def test_closures_and_nonlocal(t):
    def fn(x):
        n = 0

        def inc(by=1):
            nonlocal n
            n += by
            return n

        fs = [lambda i=i: i * n for i in range(3)]
        inc()
        inc(by=2)
        return x + n, [g() for g in fs]

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_decorators(t):
    def twice(g):
        def inner(*args, **kw):
            return g(*args, **kw) + g(*args, **kw)

        return inner

    def times(k):
        def decorate(g):
            return lambda *a: g(*a) * k

        return decorate

    @twice
    @times(3)
    def helper(x):
        return x + 1

    def fn(x):
        @times(2)
        def local(x):
            return x - 1

        return helper(x) + local(x)

    f = t.compile(fn)
    f(T(2))
    f.hit(T(2))


@program()
def test_call_conventions(t):
    def g(a, b=2, *args, c, d=4, **kw):
        return a, b, args, c, d, kw

    def fn(x, args, kw):
        return g(x, c=1), g(*args, **kw), g(x, *[1, 2, 3], c=5, **{"z": 1}), (lambda *a: len(a))(*args)

    f = t.compile(fn)
    f(T(2), [1, 2], {"c": 3})
    f.hit(T(2), [1, 2], {"c": 3})
    f(T(2), [1, 2], {"c": 3, "q": 4})
    f(T(2), [1], {})


@program()
def test_recursion(t):
    def fib(n, x):
        return x if n < 2 else fib(n - 1, x) + fib(n - 2, x)

    f = t.compile(fib)
    f(6, T(2))
    f.hit(6, T(2))
    f(5, T(2))


@program()
def test_match(t):
    class P:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    def fn(p, x):
        match p:
            case {"a": int(q), **rest}:
                return x + q, rest
            case [a, *b] if len(b) < 3:
                return x * a, b
            case P(3, b=z):
                return x - z
            case P(a=v):
                return x * v
            case "s" | b"s":
                return "string"
            case None | True:
                return "constant"
            case float() as value:
                return x / value
            case _:
                return "other"

    f = t.compile(fn)
    for value in (
        {"a": 1, "z": 2},
        [2, 3],
        P(3, 4),
        P(5, 4),
        "s",
        None,
        2.5,
        7,
        [1, 2, 3, 4, 5],
        {"a": "x"},
        {"a": 1, "z": 2},
    ):
        f(value, T(2))


@program()
def test_walrus_chains_ternaries_slices(t):
    def fn(items, x):
        if (n := len(items)) > 1 and 0 < n < 5:
            items[1:] = [n]
        y = x[..., None][:, 0]
        a = b = [1]
        a += [2]
        del items[0]
        return y * n, items, b, x[1:][0] if n else None, x[items[0] % 2]

    f = t.compile(fn)
    f([1, 2, 3], T(3))
    f.hit([1, 2, 3], T(3))
    f([1, 2], T(3))


@program()
def test_while_and_for_else(t):
    def fn(n, x):
        while n > 0:
            x = x + n
            n -= 1
            if n == 7:
                break
        else:
            x = x * 2
        for i in ():
            pass
        else:
            x = x + 100
        return x

    f = t.compile(fn)
    f(3, T(2))
    f.hit(3, T(2))
    f(8, T(2))


@program()
def test_locals_and_dir(t):
    def fn(x):
        a = 1  # noqa: F841
        return sorted(locals()), x + 1

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_formatting(t):
    def fn(n, x):
        return f"{n}:{x.shape}:{x.dtype!r:>20}:{3.14159:.2f}", "%s-%d" % (n, 3), "{}".format(n), x + 1

    f = t.compile(fn)
    f("ab", T(2))
    f.hit("ab", T(2))
    f("c", T(2))


@program()
def test_star_import_of_builtins_in_loop(t):
    def fn(items, x):
        from functools import reduce

        return reduce(lambda a, b: a * b, [x, *items], x)

    f = t.compile(fn)
    f([2, 3], T(2))
    f.hit([2, 3], T(2))
    f([2, 4], T(2))


@program()
def test_frame_introspection(t):
    import sys

    def fn(x):
        return sys._getframe(0).f_code.co_name, x + 1

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_traceback_inside(t):
    import traceback

    def fn(x):
        try:
            raise KeyError(1)
        except KeyError as e:
            return [f.name for f in traceback.extract_tb(e.__traceback__)], x + 1

    f = t.compile(fn)
    f.free(T(2))
    f.free(T(2))


@program()
def test_staticmethod_compiled(t):
    class A:
        k = 2

        @staticmethod
        def s(x):
            return x * 3

        @classmethod
        def c(cls, x):
            return x * cls.k

        def m(self, x):
            return x + self.k

    a = A()
    s, c, m = t.compile(A.s), t.compile(A.c), t.compile(a.m)
    s(T(2))
    c(T(2))
    m(T(2))
    A.k = 5
    s.hit(T(2))
    c(T(2))
    m(T(2))


@program()
def test_callable_object_compiled(t):
    class A:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            self.k += 1
            return x * self.k

    f = t.compile(A(2))
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_generator_function_compiled(t):
    def fn(x):
        yield x + 1
        yield x * 2

    f = t.compile(fn)
    t.note(list(f(T(2))))
    t.note(list(f(T(2))))


@program(one_graph=False)
def test_coroutine_function_compiled(t):
    async def fn(x):
        return x + 1

    def result(c):
        try:
            c.send(None)
        except StopIteration as stop:
            return stop.value

    f = t.compile(fn)
    t.note(result(f(T(2))))
    t.note(result(f(T(2))))


@program()
def test_compiled_calls_compiled(t):
    def inner(x):
        return x * 2

    def run(x):
        return g.call(x) + 1

    g = t.compile(inner)
    f = t.compile(run)
    f.free(T(2))
    f.free(T(2))
    g(T(2))


@program()
def test_recursive_call_of_itself(t):
    def fn(n, x):
        return x if n == 0 else f.call(n - 1, x + 1)

    f = t.compile(fn)
    f.free(3, T(2))
    f.free(3, T(2))


@program()
def test_methods_answer_for_their_functions(t):
    """Attributes and texts that are read through a bound method, written before by the call or between calls."""

    class Holder:
        def method(self, x):
            return x + 1

    Holder.method.tag = [1]
    holder = Holder()

    def fn(x, text):
        before = holder.method.__doc__, holder.method.__name__
        if text is not None:
            Holder.method.__doc__ = text
        tag = holder.method.tag
        missing = hasattr(holder.method, "nothing")
        return (
            holder.method(x) * len(tag),
            before,
            holder.method.__doc__,
            tag,
            missing,
            holder.method.__self__ is holder,
        )

    f = t.compile(fn)
    f(T(2), None)
    f.hit(T(2), None)
    Holder.method.__doc__ = "by hand"
    f(T(2), None)
    Holder.method.tag.append(2)
    f(T(2), None)
    f.free(T(2), "written")
    f(T(2), None)
    t.note(Holder.method.__doc__)

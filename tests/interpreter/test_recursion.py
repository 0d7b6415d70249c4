"""Too deep a recursion ends in a RecursionError, through whatever it goes, and never in a dead process."""

from __future__ import annotations

from textwrap import dedent

from support import cases, in_process, same_in_loop

# name -> a program that recurses without end. Where the C stack is not involved the depth must be CPython's own.
PURE = {
    "function": """
        def down(n):
            box[0] = n
            return down(n + 1)
        """,
    "star_call": """
        def down(*args, **kwargs):
            box[0] = args[0]
            return down(*(args[0] + 1,), **kwargs)
        """,
    "method": """
        class T:
            def go(self, n):
                box[0] = n
                return self.go(n + 1)
        down = T().go
        """,
    "in_try": """
        def down(n):
            box[0] = n
            try:
                return down(n + 1)
            finally:
                box.append(1)
        """,
}
THROUGH_C = {
    "sorted_key": """
        def down(n):
            box[0] = n
            return sorted([n + 1], key=down)
        """,
    "map": """
        def down(n):
            box[0] = n
            return list(map(down, [n + 1]))
        """,
    "init": """
        class T:
            def __init__(self, n):
                box[0] = n
                T(n + 1)
        down = T
        """,
    "call_method": """
        class T:
            def __call__(self, n):
                box[0] = n
                return self(n + 1)
        down = T()
        """,
    "repr": """
        class T:
            def __repr__(self):
                box[0] += 1
                return repr(self)
        down = lambda n: repr(T())
        """,
    "getattr": """
        class T:
            def __getattr__(self, name):
                box[0] += 1
                return self.missing
        down = lambda n: T().missing
        """,
    "property": """
        class T:
            @property
            def p(self):
                box[0] += 1
                return self.p
        down = lambda n: T().p
        """,
    "add": """
        class T:
            def __add__(self, other):
                box[0] += 1
                return self + other
        down = lambda n: T() + T()
        """,
    "eq_in_list": """
        class T:
            def __eq__(self, other):
                box[0] += 1
                return [self] == [other]
        down = lambda n: T() == T()
        """,
    "hash": """
        class T:
            def __hash__(self):
                box[0] += 1
                return hash(self)
        down = lambda n: {T()}
        """,
    "generator": """
        def down(n):
            box[0] = n
            for value in down(n + 1):
                yield value
        start = down
        down = lambda n: next(start(n))
        """,
    "yield_from": """
        def gen(n):
            box[0] = n
            yield from gen(n + 1)
        down = lambda n: next(gen(n))
        """,
    "coroutine": """
        async def co(n):
            box[0] = n
            await co(n + 1)
        down = lambda n: co(n).send(None)
        """,
    "iter": """
        class T:
            def __iter__(self):
                box[0] += 1
                return iter(self)
        down = lambda n: list(T())
        """,
    "exec": """
        def down(n):
            box[0] = n
            exec('down(n + 1)', globals(), {'n': n})
        """,
    "import_hook": """
        def down(n):
            box[0] = n
            return __builtins__.__build_class__(lambda: down(n + 1), 'C')
        """,
    "contextmanager": """
        import contextlib
        @contextlib.contextmanager
        def managed(n):
            box[0] = n
            with managed(n + 1):
                yield
        def down(n):
            with managed(n):
                pass
        """,
    "super": """
        class A:
            def go(self, n):
                box[0] = n
                return self.go(n + 1)
        class B(A):
            def go(self, n):
                return super().go(n)
        down = B().go
        """,
    "del": """
        class T:
            def __init__(self, n):
                self.n = n
            def __del__(self):
                box[0] = self.n
                if self.n < 5000: T(self.n + 1)
        def down(n):
            T(n)
            raise RecursionError
        """,
}

CALL = """
sys.unraisablehook = lambda info: None
for turn in range(3):
    box[:] = [0]
    try:
        down(1)
    except RecursionError as error:
        print("RecursionError", str(error).split(" while")[0].split(" in ")[0] if loop is not None else "")
    else:
        print("no error")
    depths.append(box[0])
"""


@cases(*PURE)
def test_depth_is_that_of_cpython(case: str) -> None:
    done = same_in_loop("box = [0]\ndepths = []\n" + dedent(PURE[case]) + CALL + "print(depths)")
    assert done.status == 0 and done.out.count("RecursionError") == 3, done


@cases(*THROUGH_C)
def test_clean_error_through_c_frames(case: str) -> None:
    source = "box = [0]\ndepths = []\nloop = None\n" + dedent(THROUGH_C[case]) + CALL
    # No exact figure: a quickened call of a C function enters one recursion less than the instruction that it was made from.
    source += "assert min(depths) > 50, depths"
    done = same_in_loop(source)
    assert done.status == 0 and done.out.count("RecursionError") == 3, done


@cases(*PURE, *(name for name in THROUGH_C if name != "del"))
def test_clean_error_when_leaving_everywhere(case: str) -> None:
    """A frame that was left and one that stayed must give back the same count."""
    source = dedent({**PURE, **THROUGH_C}[case])
    done = in_process(
        "box = [0]\ndepths = []\nloop = None\n"
        + source
        + "\ncore.exit_every(5)\ncore.interpret(True)\n"
        + CALL
        + "core.interpret(False)\nprint(len(set(depths)))"
    )
    assert done.out.count("RecursionError") == 3, done


def test_high_limit_does_not_kill_the_process() -> None:
    """With the limit raised CPython itself can go deeper than a C stack; our loop may stop earlier, but with an exception."""
    done = in_process(
        """
        sys.setrecursionlimit(10**6)
        def down(n):
            return 0 if n == 0 else 1 + down(n - 1)
        def deep():
            try:
                return down(200_000) == 200_000
            except RecursionError:
                return True
        def attempts():
            return [deep() for _ in range(3)]
        core.interpret(True)
        result = attempts()
        core.interpret(False)
        print(result, down(50))
        """
    )
    assert done.out.strip() == "[True, True, True] 50", done


def test_small_thread_stack_does_not_kill_the_process() -> None:
    done = in_process(
        """
        import threading
        threading.stack_size(256 * 1024 * FRAME_SCALE)
        out = []
        def down(n):
            return 0 if n == 0 else 1 + down(n - 1)
        def body():
            try:
                out.append(down(900) == 900)
            except RecursionError:
                out.append(True)
            out.append(down(20) == 20)
        core.interpret(True)
        thread = threading.Thread(target=body)
        thread.start(); thread.join()
        core.interpret(False)
        print(out)
        """
    )
    assert done.out.strip() == "[True, True]", done


def test_recursion_in_a_handler_recovers() -> None:
    same_in_loop(
        """
        def down(n):
            try:
                return down(n + 1)
            except RecursionError:
                return n
        first = down(0)
        print(first > 900, [down(0) == first for _ in range(5)])
        def fails():
            try: down_forever()
            except RecursionError:
                try: down_forever()
                except RecursionError as error: return type(error.__context__).__name__
        def down_forever(): down_forever()
        print(fails())
        """
    )

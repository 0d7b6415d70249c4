"""Imports, globals, module-level code, annotations, interactive statements."""
from __future__ import annotations

import sys
from typing import Any

from programs import program, where


@program
def imports() -> Any:
    import os.path
    import os.path as renamed
    from os import path
    from os.path import join as joined
    from os.path import sep

    out: list[Any] = [os.path is path, renamed is path, joined("a", "b"), sep]
    try:
        from os import nothing_like_this  # type: ignore[attr-defined]  # noqa: F401
    except ImportError as error:
        out.append(str(error).split(" (")[0])
    try:
        import nothing_like_this_at_all  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as error:
        out.append(str(error))
    return out


@program
def globals_written() -> Any:
    global written_by_test
    written_by_test = 3
    out = [written_by_test]
    del written_by_test
    try:
        written_by_test  # noqa: B018
    except NameError as error:
        out.append(str(error))
    return out, __name__, len([1, 2])


SOURCE = """\
from os.path import *
x: int = 1
y: "str"
def f(a=x, *, b=x):
    return a + b
class C:
    z = x
    def m(self): return f(self.z)
del x
try:
    x
except NameError as error:
    message = str(error)
result = f(), C().m(), join("a", "b"), sorted(__annotations__), message
"""


# Compiled once: an instruction is found by its code object.
MODULE = compile(SOURCE, __file__, "exec")


@program(cannot="CALL.* of exec")
def executed() -> Any:
    space: dict[str, Any] = {"__name__": "executed"}
    exec(MODULE, space)
    return space["result"], eval("where()", {"where": where})


STATEMENT = compile("1 + 1; None; 'x'", __file__, "single")


@program(cannot="CALL.* of exec")
def interactive() -> Any:
    shown: list[Any] = []
    hook, sys.displayhook = sys.displayhook, shown.append
    try:
        exec(STATEMENT, {})
    finally:
        sys.displayhook = hook
    return shown


GENERIC_SOURCE = """\
x = 5
def make(y):
    class Generic[T: (int, x), U]:
        bound = T.__constraints__
        def method[V](self, value: V) -> V: return value, x, y
    type Alias[W] = dict[W, x, y]
    class Own:
        x = 6
        type Inside = (x, y)
    return Generic.bound, Generic().method(1), Alias.__value__.__args__[1:], Own.Inside.__value__
result = make(7)
"""


if sys.version_info >= (3, 12):
    GENERIC = compile(GENERIC_SOURCE, __file__, "exec")

    @program(cannot="CALL.* of|LOAD_ATTR|CALL_INTRINSIC")
    def generics() -> Any:
        space: dict[str, Any] = {"__name__": "generics"}
        exec(GENERIC, space)
        return space["result"]


NAMES = compile("v = 5\ndef g(u):\n class K:\n  v = v + u\n  w = v\n return K", __file__, "exec")


@program(cannot="CALL.* of (sorted|exec)")
def names_in_class_bodies() -> Any:
    """LOAD_NAME and friends in bodies that see locals, cells, globals and builtins."""

    def make(cell: int) -> Any:
        class Body:
            length = len
            first = cell + 1
            names = sorted(name for name in locals() if not name.startswith("__"))

        return Body

    space: dict[str, Any] = {}
    exec(NAMES, space)
    body = make(3)
    return body.first, body.names, space["g"](1).w

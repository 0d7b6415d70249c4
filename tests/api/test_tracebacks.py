"""Errors look as they do without Alternator, and so does a debugger."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import alternator

ROOT = Path(__file__).parents[2]


def x() -> torch.Tensor:
    return torch.arange(4.0)


def raises(x: Any) -> Any:
    y = x + 1
    raise ValueError(f"mine {tuple(y.shape)}")


def nested(x: Any) -> Any:
    return raises(x * 2) + 1


def after_a_break(x: Any) -> Any:
    y = x + 1
    time.sleep(0)
    return nested(y)


def breaks_inside(x: Any) -> Any:
    y = x * 2
    time.sleep(0)
    return y.no_such_attribute


def around_a_break(x: Any) -> Any:
    return [breaks_inside(one) for one in (x,)][0]


def in_a_loop(x: Any) -> Any:
    for number in range(3):
        x = x + 1
        time.sleep(0)
        if number == 2:
            raises(x)
    return x


def in_a_handler(x: Any) -> Any:
    try:
        raises(x)
    except ValueError as error:
        time.sleep(0)
        raise KeyError("second") from error
    finally:
        x = x - 1


def in_a_with(x: Any) -> Any:
    with torch.no_grad():
        time.sleep(0)
        return nested(x)


def native(x: Any) -> Any:
    return sorted([x, 1], key=lambda one: raises(x))


def in_the_graph(x: Any) -> Any:
    return taken(x * 2, torch.tensor([9])) + 1


def taken(x: Any, index: Any) -> Any:
    return x[index]


def wrong_shape(x: Any) -> Any:
    return x + torch.ones(3)


class Net(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return nested(x + 1)


@alternator.disable
def left_alone(x: Any) -> Any:
    return raises(x)


def calls_what_is_left_alone(x: Any) -> Any:
    return left_alone(x + 1) - 1


def wrong_arguments(x: Any) -> Any:
    return nested(x, 1)  # type: ignore[call-arg]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "raises": raises,
    "nested": nested,
    "after_a_break": after_a_break,
    "around_a_break": around_a_break,
    "in_a_loop": in_a_loop,
    "in_a_handler": in_a_handler,
    "in_a_with": in_a_with,
    "native": native,
    "in_the_graph": in_the_graph,
    "wrong_shape": wrong_shape,
    "module": Net(),
    "disabled": calls_what_is_left_alone,
    "wrong_arguments": wrong_arguments,
    "comprehension": lambda x: [raises(x) for _ in range(2)],
}


def frames(error: BaseException | None) -> list[Any]:
    """The frames below this file's call, of the error and of what it came from."""
    if error is None:
        return []
    shown = [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    return [type(error), str(error), shown[1:], frames(error.__cause__), frames(error.__context__)]


def outcome(function: Callable[..., Any]) -> list[Any]:
    try:
        function(x())
    except Exception as error:
        return frames(error)
    raise AssertionError("it should raise")


@pytest.mark.parametrize("name", PROGRAMS)
def test_frames_of_an_error(name: str) -> None:
    function = PROGRAMS[name]
    wanted = outcome(function)
    assert wanted[2]
    compiled = alternator.compile(function, backend="eager")
    for _ in range(3):
        assert outcome(compiled) == wanted


def test_the_frames_of_a_disabled_function() -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        left_alone(x())
    assert [entry.name for entry in caught.traceback] == [
        "test_the_frames_of_a_disabled_function",
        "left_alone",
        "raises",
    ]


def test_arguments_that_do_not_fit() -> None:
    def f(x: Any) -> Any:
        return x + 1

    compiled = alternator.compile(f, backend="eager")
    with pytest.raises(TypeError) as wanted:
        f(x(), 3)  # type: ignore[call-arg]
    with pytest.raises(TypeError) as got:
        compiled(x(), 3)  # type: ignore[call-arg]
    assert str(got.value) == str(wanted.value)
    assert len(got.traceback) == 1


# --- debuggers ----------------------------------------------------------------------------------------------


def stops(y: Any) -> Any:
    z = y * 2
    breakpoint()
    return z + 1


def calls_stops(x: Any, n: int) -> Any:
    w = x + n
    return stops(w) - 1


def test_breakpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def hook() -> None:
        frame = sys._getframe(1)
        outer = frame.f_back
        assert outer is not None
        values = {
            name: value.tolist() if isinstance(value, torch.Tensor) else value
            for here in (frame, outer)
            for name, value in here.f_locals.items()
        }
        names = [frame.f_code.co_name, outer.f_code.co_name, outer.f_back.f_code.co_name]  # type: ignore[union-attr]
        seen.append((names, frame.f_lineno, outer.f_lineno, values))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    compiled = alternator.compile(calls_stops, backend="eager")

    def calls(function: Any) -> list[Any]:
        seen.clear()
        for n in (3, 3, 4):
            assert torch.equal(function(x(), n), (x() + n) * 2 + 1 - 1)
        return list(seen)

    wanted = calls(calls_stops)
    assert wanted[0][3] == {
        "y": [3.0, 4.0, 5.0, 6.0],
        "z": [6.0, 8.0, 10.0, 12.0],
        "x": x().tolist(),
        "n": 3,
        "w": [3.0, 4.0, 5.0, 6.0],
    }
    assert calls(compiled) == wanted
    assert alternator.counters()["eager"] == 0
    assert alternator.counters()["breaks"] == {"native_call": 2}


PROGRAM = """
import logging, sys, torch
def stops(y):
    z = y * 2
    breakpoint()
    z = z + 1
    z = z * 3
    return z
def f(x, n):
    w = x + n
    r = stops(w) - 1
    return r
if sys.argv[1] == "compiled":
    import alternator
    logging.getLogger("alternator").setLevel("ERROR")
    f = alternator.compile(f, backend="eager")
print(f(torch.ones(2), 3))
print(f(torch.ones(2), 4))
"""
COMMANDS = "p z.tolist(); n; p z.tolist(); w; n; u; p w.tolist(); d; r; n; n; p r.tolist(); c; u; p n; c"


def test_a_session_with_pdb(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    said = []
    for how in ("plain", "compiled"):
        done = subprocess.run(
            [sys.executable, str(file), how],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input=COMMANDS.replace("; ", "\n") + "\n",
            text=True,
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert "(Pdb) [9.0, 9.0]" in said[0]
    assert said[1] == said[0]

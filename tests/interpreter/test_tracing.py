"""sys.settrace, sys.setprofile, sys.monitoring and debuggers, switched on before and in the middle of a frame of the loop."""

from __future__ import annotations

import sys
import unittest

from support import in_process, same_in_loop

TRACED = """
import sys
base = sys._getframe().f_code.co_firstlineno
events = []
def tracer(frame, event, argument):
    if frame.f_code.co_filename == "<string>":
        shown = argument if isinstance(argument, (int, type(None))) else type(argument).__name__
        events.append((frame.f_code.co_name, frame.f_lineno, event, shown))
    return tracer
def leaf(value):
    if value == 2:
        raise KeyError
    return value
def steps(limit):
    for value in range(limit):
        yield value
"""


def test_trace_from_the_start() -> None:
    done = same_in_loop(
        TRACED
        + """
def body():
    total = 0
    for value in steps(4):
        try:
            total += leaf(value)
        except KeyError:
            total += 100
    return total
sys.settrace(tracer)
body()
sys.settrace(None)
for event in events: print(event)
"""
    )
    assert done.out.count("\n") > 30, done


def test_trace_switched_on_and_off_in_mid_frame() -> None:
    """A callee switches tracing on for the running frame; what follows is traced as in CPython."""
    done = same_in_loop(
        TRACED
        + """
def on():
    sys.settrace(tracer)
    sys._getframe(1).f_trace = tracer
def off():
    sys.settrace(None)
def body():
    first = 1
    on()
    second = leaf(first)
    for value in steps(3):
        second += value
    off()
    third = second
    return leaf(third)
print(body())
for event in events: print(event)
"""
    )
    assert "'line'" in done.out, done


def test_trace_inside_a_running_generator() -> None:
    same_in_loop(
        TRACED
        + """
def body():
    running = steps(4)
    next(running)
    sys.settrace(tracer)
    running.gi_frame.f_trace = tracer
    next(running)
    next(running)
    sys.settrace(None)
    return next(running)
print(body())
for event in events: print(event)
"""
    )


def test_trace_of_single_instructions() -> None:
    same_in_loop(
        TRACED
        + """
opcodes = []
def fine(frame, event, argument):
    frame.f_trace_opcodes = True
    if event == "opcode": opcodes.append((frame.f_code.co_name, frame.f_lineno))
    return fine
def body():
    total = leaf(1)
    return total + 1
sys.settrace(fine)
body()
sys.settrace(None)
print(len(opcodes) > 5, sorted(set(opcodes)))
"""
    )


def test_trace_function_that_raises() -> None:
    same_in_loop(
        TRACED
        + """
def bad(frame, event, argument):
    if event == "line" and frame.f_code.co_name == "leaf":
        raise ValueError("from the tracer")
    return bad
def body():
    try:
        return leaf(1)
    except ValueError as error:
        return str(error), sys.gettrace()
sys.settrace(bad)
print(body())
sys.settrace(None)
"""
    )


def test_jump_by_the_tracer() -> None:
    done = same_in_loop(
        TRACED
        + """
def jumped():
    out = []
    out.append(1)
    out.append(2)
    out.append(3)
    return out
first = jumped.__code__.co_firstlineno
def jumper(frame, event, argument):
    if event == "line" and frame.f_code is jumped.__code__ and frame.f_lineno == first + 3:
        frame.f_lineno = first + 4
    return jumper
sys.settrace(jumper)
print(jumped())
sys.settrace(None)
"""
    )
    assert done.out.strip() == "[1, 3]", done


def test_profile_from_the_start_and_in_mid_frame() -> None:
    done = same_in_loop(
        TRACED
        + """
def profiler(frame, event, argument):
    name = getattr(argument, "__name__", None) if event.startswith("c_") else None
    if frame.f_code.co_filename == "<string>": events.append((frame.f_code.co_name, event, name))
def body():
    sys.setprofile(profiler)
    total = len([leaf(1)])
    for value in steps(2): total += value
    try: leaf(2)
    except KeyError: pass
    sys.setprofile(None)
    return total
print(body())
sys.setprofile(profiler)
body()
sys.setprofile(None)
for event in events: print(event)
"""
    )
    assert "c_call" in done.out and "c_return" in done.out, done


def test_cprofile_counts_the_calls() -> None:
    same_in_loop(
        """
        import cProfile, pstats, io
        def fib(number): return number if number < 2 else fib(number - 1) + fib(number - 2)
        profile = cProfile.Profile()
        profile.enable()
        fib(10)
        profile.disable()
        stats = pstats.Stats(profile, stream=io.StringIO())
        print([counts[:2] for (file, line, name), counts in stats.stats.items() if name == "fib"])
        """
    )


PDB = """
import pdb
def inner(value):
    doubled = value * 2
    pdb.Pdb(nosigint=True, readrc=False).set_trace()
    tripled = value * 3
    return doubled + tripled
def outer():
    total = 0
    for value in range(2):
        total += inner(value + 1)
    return total
print("result", outer())
"""


def test_pdb_in_the_middle_of_a_loop() -> None:
    done = same_in_loop(
        PDB,
        stdin="p doubled\nnext\np tripled\nup\np total\nnext\nnext\ncontinue\nwhere\nargs\nstep\nreturn\ncontinue\n",
    )
    # Before 3.13 the first stop is after the line of set_trace(), from then on in it.
    assert "(Pdb) 2" in done.out and done.out.count("(Pdb)") > 8 and "result 15" in done.out, done


def test_pdb_changes_a_variable() -> None:
    done = same_in_loop(PDB, stdin="!doubled = 100\ncontinue\ncontinue\n")
    assert "result" in done.out, done


def test_pdb_after_an_exception() -> None:
    done = same_in_loop(
        """
        import pdb, sys
        def failing(value):
            local = value + 1
            return [][local]
        try: failing(3)
        except IndexError as error:
            pdb.post_mortem(error.__traceback__)
        """,
        stdin="p local\nup\nwhere\nq\n",
    )
    assert "(Pdb) 4" in done.out, done


def test_monitoring_in_mid_frame() -> None:
    if sys.version_info < (3, 12):
        raise unittest.SkipTest("sys.monitoring came with 3.12")
    same_in_loop(
        """
        events = []
        tool = sys.monitoring.DEBUGGER_ID
        sys.monitoring.use_tool_id(tool, "test")
        def note(name):
            def callback(code, *rest):
                if code.co_name in ("body", "leaf"): events.append((name, code.co_name, rest[0] if name == "line" else None))
            return callback
        E = sys.monitoring.events
        for name, event in (("line", E.LINE), ("start", E.PY_START), ("return", E.PY_RETURN)):
            sys.monitoring.register_callback(tool, event, note(name))
        def leaf(value): return value + 1
        def on(): sys.monitoring.set_events(tool, E.LINE | E.PY_START | E.PY_RETURN)
        def off(): sys.monitoring.set_events(tool, 0)
        def body():
            total = leaf(1)
            on()
            for value in range(3):
                total += leaf(value)
            off()
            return leaf(total)
        print(body())
        for event in events: print(event)
        """
    )


def test_monitoring_of_one_code() -> None:
    if sys.version_info < (3, 12):
        raise unittest.SkipTest("sys.monitoring came with 3.12")
    same_in_loop(
        """
        events = []
        tool = sys.monitoring.DEBUGGER_ID
        sys.monitoring.use_tool_id(tool, "test")
        E = sys.monitoring.events
        sys.monitoring.register_callback(tool, E.LINE, lambda code, line: events.append((code.co_name, line)))
        sys.monitoring.register_callback(tool, E.PY_RETURN, lambda code, offset, value: events.append((code.co_name, value)))
        def watch(events): sys.monitoring.set_local_events(tool, leaf.__code__, events)
        def leaf(value):
            first = value
            return first + 1
        def steps():
            for value in range(3):
                received = yield leaf(value)
                if received: watch(received)
        def body():
            out = [leaf(1)]
            watch(E.LINE)
            out.append(leaf(2))
            watch(E.LINE | E.PY_RETURN)
            out.append(leaf(3))
            watch(0)
            out.append(leaf(4))
            running = steps()
            out += [next(running), running.send(E.LINE), next(running)]
            return out
        print(body(), events)
        """
    )


def test_trace_while_every_instruction_leaves() -> None:
    done = in_process(
        TRACED
        + """
def body():
    total = 0
    for value in steps(4):
        try: total += leaf(value)
        except KeyError: total += 100
    return total
def traced():
    events.clear()
    sys.settrace(tracer)
    result = body()
    sys.settrace(None)
    return result, list(events)
expected = traced()
for every in (1, 2, 7):
    core.exit_every(every)
    core.interpret(True)
    found = traced()
    core.interpret(False)
    assert found == expected, (every, found, expected)
print("ok")
"""
    )
    assert done.out.strip() == "ok", done

"""Signals, KeyboardInterrupt, threads, the GIL, the garbage collector, fork: what the loop has to do beside executing instructions.

Each runs in a process of its own: a mistake here hangs or kills.
"""

from __future__ import annotations

import signal
import sys

from support import cases, in_process, same_in_loop


def test_interpret_covers_every_thread_and_ends() -> None:
    done = in_process(
        """
        import threading
        def work():
            return sum([value for value in range(100)])
        core.reset_stats()
        work()
        assert core.stats()["frames"] == 0, core.stats()
        core.interpret(True)
        work()
        here = core.stats()["frames"]
        assert here >= 1, core.stats()
        box = []
        def threaded():
            before = core.stats()
            for _ in range(50): work()
            box.append((before, core.stats()))
        thread = threading.Thread(target=threaded)
        thread.start(); thread.join()
        before, after = box[0]
        assert after["frames"] - before["frames"] >= 50, box
        assert after["instructions"] - before["instructions"] > 5000, box
        core.interpret(False)
        work()
        settled = core.stats()["frames"]
        work(); work()
        assert core.stats()["frames"] == settled
        core.interpret(True); core.interpret(True); core.interpret(False)
        frames = core.stats()["frames"]
        work()
        assert core.stats()["frames"] == frames, "off is off, however often it was switched on"
        print("ok")
        """
    )
    assert done.out.strip() == "ok", done


def test_run_is_for_this_thread_only() -> None:
    done = in_process(
        """
        import threading, time
        ready, stop = threading.Event(), threading.Event()
        seen = []
        def other():
            ready.wait()
            def leaf(): return 1
            for _ in range(1000): leaf()
            seen.append(True)
            stop.set()
        thread = threading.Thread(target=other); thread.start()
        def main():
            before = core.stats()["frames"]
            ready.set()
            stop.wait()
            return core.stats()["frames"] - before
        core.reset_stats()
        frames = core.run(main)
        thread.join()
        assert frames < 500, frames
        print("ok")
        """
    )
    assert done.out.strip() == "ok", done


def test_idle_hook_interprets_nothing() -> None:
    done = in_process(
        """
        def work(): return [value for value in range(10)]
        core.reset_stats()
        core.idle_hook(True)
        for _ in range(10): assert work() == list(range(10))
        core.idle_hook(False)
        assert core.stats()["instructions"] == 0, core.stats()
        print("ok")
        """
    )
    assert done.out.strip() == "ok", done


def test_exit_every_really_leaves() -> None:
    done = in_process(
        """
        def work():
            total = 0
            for value in range(1000):
                total += value
            return total
        core.reset_stats()
        core.exit_every(7)
        core.interpret(True)
        results = [work() for _ in range(100)]
        core.interpret(False); core.exit_every(0)
        assert set(results) == {499500}
        exits = core.stats()["exits"]
        assert exits >= 100, core.stats()
        work()
        assert core.stats()["exits"] == exits
        print("ok")
        """
    )
    assert done.out.strip() == "ok", done


# ----------------------------------------------------------------------------------------------------------------- signals


def test_signal_handler_runs_while_the_loop_spins() -> None:
    done = same_in_loop(
        """
        import signal
        seen = []
        def handler(number, frame):
            seen.append((number == signal.SIGALRM, frame.f_code.co_name))
        signal.signal(signal.SIGALRM, handler)
        def spin():
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            while not seen:
                pass
            return seen
        print(spin())
        """
    )
    assert done.out.strip() == "[(True, 'spin')]", done


@cases(
    "while True: pass",
    "for _ in iter(int, 1): pass",
    "step()",
    "list(map(abs, range(10)))",
    "[0 for _ in range(100)]",
    "next(ticks)",
)
def test_signal_handler_that_raises_is_caught(case: str) -> None:
    body = case if case.startswith(("while", "for")) else f"while True: {case}"
    done = same_in_loop(
        f"""
        import signal, traceback
        class Alarm(Exception): pass
        def handler(number, frame): raise Alarm
        signal.signal(signal.SIGALRM, handler)
        def step(): return 1
        def ticking():
            while True: yield 1
        def spin():
            ticks = ticking()
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                {body}
            except Alarm as alarm:
                entries = traceback.extract_tb(alarm.__traceback__)
                return entries[0].name, entries[0].line is not None, entries[-1].name
        print(spin())
        for _ in range(3):
            print(spin())
        """
    )
    assert done.out.count("'spin'") == 4, done


def test_keyboard_interrupt_is_caught_and_the_loop_goes_on() -> None:
    done = same_in_loop(
        """
        import os, signal, threading, time
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def spin():
            count = 0
            for turn in range(3):
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    while True:
                        count += 1
                except KeyboardInterrupt:
                    pass
                finally:
                    assert count > 0
            return turn
        print(spin())
        """
    )
    assert done.out.strip() == "2", done


def test_keyboard_interrupt_ends_the_process_as_usual() -> None:
    source = """
        import os, signal, threading
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        def spin():
            while True:
                pass
        spin()
        """
    done = same_in_loop(source)
    assert done.status == -signal.SIGINT, done
    assert "in spin" in done.err and done.err.rstrip().endswith("KeyboardInterrupt"), done


def test_signal_in_a_generator_and_a_coroutine() -> None:
    same_in_loop(
        """
        import signal
        class Alarm(Exception): pass
        def handler(number, frame): raise Alarm
        signal.signal(signal.SIGALRM, handler)
        def spinning():
            try:
                yield "started"
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                while True: pass
            except Alarm:
                yield "alarm"
        def outer():
            yield from spinning()
        steps = outer()
        print(next(steps))
        print(next(steps))
        async def body():
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                while True: pass
            except Alarm:
                return "alarm"
        async def main():
            return await body()
        try: main().send(None)
        except StopIteration as stop: print(stop.value)
        """
    )


def test_asynchronous_exception_from_another_thread() -> None:
    same_in_loop(
        """
        import ctypes, threading, time
        class Stop(Exception): pass
        started = threading.Event()
        out = []
        def spin():
            try:
                started.set()
                while True: pass
            except Stop:
                out.append("stopped")
        thread = threading.Thread(target=spin)
        thread.start()
        started.wait()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
        thread.join(20)
        print(out, thread.is_alive())
        """
    )


# ----------------------------------------------------------------------------------------------------------------- threads


def test_another_thread_makes_progress_while_the_loop_spins() -> None:
    done = same_in_loop(
        """
        import threading, time
        def count(box, stop):
            while not stop:
                box[0] += 1
        boxes, stop = [[0] for _ in range(3)], []
        threads = [threading.Thread(target=count, args=(box, stop)) for box in boxes]
        for thread in threads: thread.start()
        deadline = time.monotonic() + 20
        while min(box[0] for box in boxes) < 1000 and time.monotonic() < deadline:
            pass
        stop.append(1)
        for thread in threads: thread.join()
        print(all(box[0] >= 1000 for box in boxes))
        """
    )
    assert done.out.strip() == "True", done


def test_a_thread_in_the_default_loop_makes_progress_too() -> None:
    done = in_process(
        """
        import threading, time
        box, stop = [0], []
        def count():
            while not stop: box[0] += 1
        thread = threading.Thread(target=count); thread.start()
        def spin():
            deadline = time.monotonic() + 20
            start = box[0]
            while box[0] < start + 1000 and time.monotonic() < deadline: pass
            return box[0] >= start + 1000
        print(core.run(spin))
        stop.append(1); thread.join()
        """
    )
    assert done.out.strip() == "True", done


def test_many_threads_compute_the_same() -> None:
    done = in_process(
        """
        import threading
        from support import PROGRAMS, attempt
        chosen = [program for program in PROGRAMS if program.name not in ("interactive", "globals_written")]
        sys.setswitchinterval(1e-5)
        def everything(): return [attempt(program.function) for program in chosen]
        wanted, results = [], []
        def threaded(box): box.append(everything())
        def on_threads(box, number):
            threads = [threading.Thread(target=threaded, args=(box,)) for _ in range(number)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        on_threads(wanted, 1)
        for every in (0, 11):
            core.exit_every(every)
            core.interpret(True)
            on_threads(results, 6)
            core.interpret(False)
        assert len(results) == 12
        for result in results:
            for program, one, other in zip(chosen, result, wanted[0]):
                assert one == other, (program, one, other)
        print("ok")
        """
    )
    assert done.out.strip() == "ok", done


def test_switching_on_and_off_while_threads_run() -> None:
    done = in_process(
        """
        import threading, time
        stop, wrong = [], []
        sys.setswitchinterval(0.0002)  # three threads spin: this one waits for them all at each turn
        def work():
            def leaf(value): return value + 1
            while not stop:
                total = 0
                for value in range(50): total = leaf(total)
                if total != 50: wrong.append(total)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads: thread.start()
        for turn in range(200):
            core.interpret(turn % 2 == 0)
            core.exit_every(turn % 5)
            time.sleep(0.002)
        core.exit_every(0)
        stop.append(1)
        for thread in threads: thread.join()
        assert not wrong
        print("ok")
        """
    )
    assert done.out.strip() == "ok", done


def test_generator_moves_between_threads_and_loops() -> None:
    done = in_process(
        """
        import threading
        def steps():
            total = 0
            try:
                while True:
                    try:
                        received = yield total
                        total += received
                    except KeyError:
                        total = 0
            finally:
                log.append(total)
        log = []
        running = steps()
        next(running)
        box = []
        for turn in range(30):
            def go(): box.append(running.throw(KeyError) if turn % 10 == 9 else running.send(turn))
            if turn % 3 == 0: go()
            elif turn % 3 == 1: core.run(go)
            else:
                thread = threading.Thread(target=go); thread.start(); thread.join()
        expected, total = [], 0
        for turn in range(30):
            total = 0 if turn % 10 == 9 else total + turn
            expected.append(total)
        assert box == expected, (box, expected)
        core.run(running.close)
        assert log == [0], log
        print("ok")
        """
    )
    assert done.out.strip() == "ok", done


def test_fork_in_the_loop() -> None:
    same_in_loop(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        def work(): return sum(value * value for value in range(100))
        child = os.fork()
        if child == 0:
            os._exit(0 if work() == 328350 else 1)
        print(os.waitpid(child, 0)[1], work())
        """
    )


def test_subinterpreters_are_left_alone() -> None:
    """The hook belongs to one interpreter; another one in the same process runs plainly."""
    name = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
    same_in_loop(
        f"""
        import {name} as interpreters
        other = interpreters.create()
        print(interpreters.run_string(other, "print(sum(value for value in range(10)), flush=True)"))
        interpreters.destroy(other)
        """
    )


def test_interpreter_ends_cleanly_while_the_loop_is_on() -> None:
    done = same_in_loop(
        """
        import atexit, threading, time
        class Late:
            def __del__(self): print("finalised", flush=True)
        late = Late()
        atexit.register(lambda: print("atexit", flush=True))
        def spin():
            while True: time.sleep(0.001)
        threading.Thread(target=spin, daemon=True).start()
        def steps():
            try: yield
            finally: print("closed", flush=True)
        held = steps(); next(held)
        print("end", flush=True)
        """
    )
    assert done.status == 0 and "atexit" in done.out, done


# ---------------------------------------------------------------------------------------------------------------------- gc


def test_garbage_is_collected_while_the_loop_allocates() -> None:
    done = same_in_loop(
        """
        import gc, weakref
        collected = []
        gc.callbacks.append(lambda phase, info: collected.append(phase))
        class Node: pass
        gone = []
        def allocate():
            for index in range(5000):
                node = Node()
                node.me = node
                weakref.finalize(node, gone.append, index)
        allocate()
        print(len(collected) > 5, len(gone) > 1000)
        gc.collect()
        print(len(gone), sorted(gone) == list(range(5000)))
        """
    )
    assert done.out.split() == ["True", "True", "5000", "True"], done


def test_collector_sees_what_suspended_frames_hold() -> None:
    same_in_loop(
        """
        import gc
        class Node:
            def __init__(self): self.items = []
        def steps(node):
            held = [node]
            node.items.append(held)
            while True:
                yield len(held)
        node = Node()
        node.steps = steps(node)
        print(next(node.steps))
        found = gc.get_referents(node.steps)
        print(any(item is node for item in found) or any(isinstance(item, list) for item in found))
        import weakref
        reference = weakref.ref(node)
        del node, found
        gc.collect()
        print(reference() is None)
        """
    )


def test_collection_at_every_allocation() -> None:
    done = in_process(
        """
        import gc
        from support import PROGRAMS, attempt
        chosen = [program for program in PROGRAMS if program.name not in ("finalizers", "wide")]
        wanted = []
        for program in chosen: wanted.append(attempt(program.function))
        gc.set_threshold(1)
        for program, expected in zip(chosen, wanted):
            found = core.run(attempt, program.function)
            assert found == expected, (program, found, expected)
        print("ok")
        """,
        timeout=300,
    )
    assert done.out.strip() == "ok", done


def test_frames_and_locals_are_seen_from_outside() -> None:
    same_in_loop(
        """
        import sys, inspect
        def outer(argument):
            local = argument * 2
            def inner():
                frame = sys._getframe(1)
                line = frame.f_lineno - frame.f_code.co_firstlineno
                return frame.f_code.co_name, frame.f_locals["local"], line, frame.f_lasti > 0, frame.f_back.f_code.co_name
            result = inner()
            local = 3
            return result, sorted(locals()), [info.function for info in inspect.stack()[:2]]
        print(outer(4))
        frames = []
        def keep():
            value = object()
            frames.append(sys._getframe())
            return 1
        keep()
        frame = frames.pop()
        print(type(frame.f_locals["value"]).__name__, frame.f_back.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno)
        frame.clear()
        print(dict(frame.f_locals))
        running = []
        def refuse():
            try: sys._getframe().clear()
            except RuntimeError as error: return str(error)
        print(refuse())
        """
    )

"""Locks: those of the call's own are run; those from outside are taken and released concretely, where the program does so."""

from __future__ import annotations

import logging
import threading

from harness import T, program


@program()
def test_a_lock_of_the_calls_own(t):
    def fn(x, kind):
        lock = kind()
        with lock:
            y = x + 1
            held = lock.acquire(False) if kind is threading.Lock else True
        return y, held

    f = t.compile(fn)
    f(T(2), threading.Lock)
    f.hit(T(2), threading.Lock)


@program(one_graph=False)
def test_a_lock_from_outside(t):
    lock, state = threading.Lock(), [0]

    def fn(x):
        y = x + 1
        with lock:
            state[0] += 1
            z = y * state[0]
            held = lock.locked()
        return z, held, lock.locked()

    t.watch(lambda: (lock.locked(), state))
    f = t.compile(fn, dynamic=False)
    f(T(2))
    f(T(2))


@program(one_graph=False)
def test_an_error_releases_it(t):
    lock = threading.RLock()

    def fn(x, k):
        with lock:
            y = x * 2
            if k:
                raise ValueError(k)
        return y

    def free():
        found = []
        thread = threading.Thread(target=lambda: found.append(lock.acquire(False) and (lock.release() or True)))
        thread.start()
        thread.join()
        return found

    t.watch(free)
    f = t.compile(fn)
    for k in (0, 1, 0, 1):
        f(T(2), k)


@program(one_graph=False)
def test_the_lock_protects(t):
    """Another thread that holds it is waited for, and what it wrote is seen."""
    lock, state = threading.Lock(), [1]

    def fn(x):
        with lock:
            state[0] += 1
            return x * state[0]

    f = t.compile(fn, dynamic=False)
    f(T(2))
    state[0] = 1
    held, go = threading.Event(), threading.Event()

    def work():
        with lock:
            held.set()
            go.wait(5)
            state[0] = 10

    thread = threading.Thread(target=work)
    thread.start()
    held.wait(5)
    threading.Timer(0.05, go.set).start()
    f(T(2))
    thread.join()
    t.note(state)


@program(graphs=2)
def test_a_logger_by_its_name(t):
    logging.getLogger("test_locks.one").setLevel(logging.ERROR)
    logging.getLogger("test_locks.two").setLevel(logging.ERROR)

    def fn(x, name):
        logger = logging.getLogger(name)
        return x + 1, logger.name, logger.level, logging.getLogger() is logger, logging.getLogger(name) is logger

    f = t.compile(fn)
    f(T(2), "test_locks.one")
    f.hit(T(2), "test_locks.one")
    f.miss(T(2), "test_locks.two")


@program(one_graph=False)
def test_a_logger_that_is_not_there(t):
    """Making one takes the lock of logging, concretely. So does one that only stands for its parent so far."""

    def clear():
        for name in [name for name in logging.root.manager.loggerDict if name.startswith("test_locks_new")]:
            del logging.root.manager.loggerDict[name]

    def fn(x, name):
        logger = logging.getLogger(name)
        return x + 1, logger.name, logger.parent.name

    t.undo(clear)
    clear()
    f = t.compile(fn)
    for name in ("test_locks_new.a.b", "test_locks_new.a", "test_locks_new.a.b", "test_locks_new.a", "root"):
        f(T(2), name)

"""Threads and lifetimes: a session is one thread's, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

torch = pytest.importorskip("torch", reason="fakes need torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from alternator._C import fake  # noqa: E402


def test_two_threads_trace_at_once() -> None:
    real = torch.randn(4, 4, requires_grad=True)
    start = threading.Barrier(3)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            session = fake.Session()
            start.wait()
            for _ in range(200):
                twin = session.fake_of(real)
                with session:
                    size = number + 2
                    y = F.linear(twin, torch.zeros(size, 4))
                    z = F.softmax(y, -1).sum()
                    z.backward()
                    assert y.shape == (4, size) and fake.session_of(y) == session.id
                    twin.grad = None
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    start.wait()
    for _ in range(200):  # and this thread computes for real meanwhile
        assert not fake.is_fake(real * 2)
    for thread in threads:
        thread.join()
    assert not failures and real.grad is None


def test_a_session_does_not_follow_into_another_thread() -> None:
    made: list[torch.Tensor] = []
    with fake.Session():
        thread = threading.Thread(target=lambda: made.append(torch.zeros(2)))
        thread.start()
        thread.join()
        assert fake.is_fake(torch.zeros(2))
    assert not fake.is_fake(made[0])


def test_sessions_nest() -> None:
    outer, inner = fake.Session(), fake.Session()
    with outer:
        a = torch.zeros(2)
        with inner:
            b = torch.zeros(2)
            with pytest.raises(fake.EscapedError):
                a + 1
        c = a + 1
    assert [fake.session_of(t) for t in (a, b, c)] == [outer.id, inner.id, outer.id]
    assert not fake.is_fake(torch.zeros(2))


def test_session_is_left_after_an_exception() -> None:
    session = fake.Session()
    with pytest.raises(fake.DataDependentError), session:
        torch.zeros(2).nonzero()
    assert not fake.is_fake(torch.zeros(2))
    assert session.failure is not None
    session.clear_failure()
    assert session.failure is None


def test_fakes_and_their_storages_die() -> None:
    session = fake.Session()
    with session:
        x = torch.zeros(3, requires_grad=True)
        y = x[1:] * 2
        alive = [weakref.ref(x), weakref.ref(y)]
        del x, y
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_real_tensors_die_with_their_session() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    counts = [sys.getrefcount(p) for p in model.parameters()]
    for _ in range(20):
        session = fake.Session()
        twins = [session.fake_of(p) for p in model.parameters()]
        del session, twins
    gc.collect()
    assert [sys.getrefcount(p) for p in model.parameters()] == counts


MILLION = """
import gc, torch, torch.nn.functional as F
from torch.multiprocessing.reductions import StorageWeakRef
from alternator._C import fake

def live():
    gc.collect()
    return sum(isinstance(o, torch.Tensor) for o in gc.get_objects()), len(gc.get_objects())

def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def program(x, w):
    y = F.linear(x, w)                       # addmm
    y = F.gelu(y) + 1
    z = y[:, 1:].contiguous()
    z.mul_(2)
    a, b = z.split(2, 1)
    k = torch.tensor([1, 2, 3])[1] + 1
    assert k.item() == 3
    return F.softmax(torch.cat([a, b], 1), -1).sum() + torch.zeros(3).mean()

def run(times):
    storages = []
    session = fake.Session()
    x = session.fake_of(real_x)
    w = session.fake_of(real_w)
    with session:
        for _ in range(times):
            loss = program(x, w)
            loss.backward()
            storages += [StorageWeakRef(t.untyped_storage()) for t in (loss, w.grad)]
            w.grad = None
    del loss
    assert all(storage.expired() for storage in storages)
    return session.counts["operators"]

real_x = torch.randn(4, 8)
real_w = torch.randn(5, 8, requires_grad=True)
run(BATCH)
before, memory = live(), rss()
done = 0
while done < OPERATORS:
    done += run(BATCH)
after = live()
assert abs(after[0] - before[0]) <= 0, (before, after)
assert abs(after[1] - before[1]) <= 50, (before, after)
assert rss() - memory < 4_000_000, (memory, rss())
assert real_w.grad is None and real_w._version == 0
print("operators", done)
"""


long = pytest.mark.skipif(not os.environ.get("ALTERNATOR_LONG_TESTS"), reason="a minute: set ALTERNATOR_LONG_TESTS=1")


@pytest.mark.parametrize("operators", [20_000, pytest.param(1_000_000, marks=long)])
def test_operators_leave_nothing_behind(operators: int) -> None:
    code = MILLION.replace("OPERATORS", str(operators)).replace("BATCH", str(min(2000, operators // 100)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) >= operators

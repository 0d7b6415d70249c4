"""The harness can fail: front ends that are wrong on purpose are caught, and eager itself is not."""

from __future__ import annotations

import frontends
import harness
import pytest
import torch
from harness import GAPS, REGISTRY, Program, T, forked, gaps
from snapshot import Observer, difference


def pure(t):
    f = t.compile(lambda x, n: x * n)
    f(T(2), 2)
    f(T(2, s=1), 2)


def changing(t):
    scale = [2]
    f = t.compile(lambda x: x * scale[0])
    f(T(2))
    scale[0] = 3
    f(T(2))


def writing(t):
    def fn(items, x):
        items.append(x + 1)
        return x

    f = t.compile(fn)
    f([], T(2))
    f([], T(2))


def counting(t):
    count = 0

    def fn(x):
        nonlocal count
        count += 1
        return x + 1

    f = t.compile(fn)
    f(T(2))
    f(T(2))


def sharing(t):
    f = t.compile(lambda items: items)
    f([T(2)])
    f([T(2)])


def showing(t):
    def fn(x):
        print("hello")
        return x + 1

    f = t.compile(fn)
    f(T(2))


def failing(t):
    def fn(x):
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    f = t.compile(fn)
    f(T(2))


def drawing(t):
    f = t.compile(lambda x: x + torch.rand(2))
    f(T(2))
    f(T(2))


SCRIPTS = [pure, changing, writing, counting, sharing, showing, failing, drawing]
# Which scripts show what is wrong with which front end.
CAUGHT = {
    "stale": {"pure", "changing", "writing", "counting", "sharing", "drawing"},
    "lost": {"writing", "sharing"},
    "twice": {"counting", "writing", "showing", "drawing"},
    "anew": {"pure", "changing", "writing", "counting", "sharing", "showing", "drawing"},
    "mute": {"showing", "failing"},
    "careless": {"writing", "counting", "showing", "drawing"},
}


def judge(script, name):
    made = Program(script, script.__name__)
    return forked(lambda: made.judge(frontends.FRONTENDS[name]()))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.__name__)
def test_eager_is_right(script):
    assert judge(script, "eager").wrong == []


@pytest.mark.parametrize("name", frontends.WRONG)
def test_wrong_front_ends_are_caught(name):
    assert {script.__name__ for script in SCRIPTS if judge(script, name).wrong} == CAUGHT[name]


def observed(value):
    return Observer(lambda name: name == __name__)(value)


def shared_list():
    inner = [1]
    return [inner, inner]


def negative_zero():
    return T(2) * 0 * torch.tensor([1.0, -1.0])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (lambda: 1, lambda: True),
        (lambda: 0.0, lambda: -0.0),
        (lambda: [1], lambda: (1,)),
        (lambda: shared_list(), lambda: [[1], [1]]),
        (lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}),
        (lambda: set([0, 8]), lambda: set([8, 0])),
        (lambda: T(2), lambda: T(2, rg=True)),
        (lambda: T(2), lambda: torch.nn.Parameter(T(2), requires_grad=False)),
        (lambda: T(2, 2), lambda: T(2, 2).t().contiguous().t()),
        (lambda: negative_zero(), lambda: negative_zero().abs()),
        (lambda: T(2), lambda: T(2).double()),
        (lambda: (lambda x: [x, x.view(2)])(T(2)), lambda: [T(2), T(2).view(2)]),
        (lambda: T(4)[:2], lambda: T(4)[2:] * 0 + T(4)[:2]),
        (lambda: T(2).add_(0), lambda: T(2).clone()),
        (lambda: iter([1, 2]), lambda: iter([1, 3])),
        (lambda: slice(1, 2), lambda: slice(1, 3)),
        (lambda: ValueError("a"), lambda: ValueError("b")),
    ],
)  # fmt: skip
def test_differences_are_seen(a, b):
    assert difference(observed(a()), observed(a())) is None
    assert difference(observed(a()), observed(b())) is not None


def test_a_crash_is_a_failure():
    import os
    import signal

    with pytest.raises(harness.Crashed, match="SIGKILL"):
        forked(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(harness.Crashed, match="no answer"):
        forked(lambda: __import__("time").sleep(60), timeout=1)
    with pytest.raises(harness.Crashed, match="ValueError: inside"):
        forked(lambda: (_ for _ in ()).throw(ValueError("inside")))


class Capturing(frontends.FrontEnd):
    """Counts as a perfect front end would count for `pure`, or as one that runs the second call eagerly."""

    counts = True

    def __init__(self, good):
        super().__init__()
        self.good, self.calls = good, 0

    def compile(self, fn, backend, fullgraph=False, **options):
        def call(*args, **kwargs):
            self.calls += 1
            if self.calls % 2 == 1:
                backend(torch.fx.symbolic_trace(lambda x: x), [])
            return fn(*args, **kwargs)

        return call

    def reset(self):
        self.calls = 0

    def counters(self):
        half = self.calls // 2
        eager, hits = (0, half) if self.good else (half, 0)
        return {"traces": self.calls - half, "hits": hits, "graphs": self.calls - half, "eager": eager, "breaks": {}}


def hitting(t):
    f = t.compile(lambda x, n: x * n)
    f(T(2), 2)
    f.hit(T(2, s=1), 2)


def test_what_is_not_captured_is_told():
    made = Program(hitting, "hitting", graphs=1)
    assert made.judge(Capturing(True)) == harness.Verdict()
    assert "call 1 was not captured" in made.judge(Capturing(False)).text
    made.graphs = 2
    assert "2 graphs wanted" in made.judge(Capturing(True)).text


def test_gaps_name_programs(request):
    """Every gap is a program: of those that were collected, all; otherwise those of the collected files."""
    modules = {program.module for program in REGISTRY.values()}
    unknown = [name for name in gaps() if name.split("::")[0] in modules and name not in REGISTRY]
    assert unknown == [], f"{GAPS.name} names what does not exist"

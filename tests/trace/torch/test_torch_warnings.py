"""Torch's own warnings: as many as in eager, with the same words, in the name of the same line."""

from __future__ import annotations

import warnings

import torch
from harness import T, program


@program(graphs=1)
def test_in_every_call(t):
    def fn(x, out):
        y = x + 1
        torch.add(x, y, out=out)
        return out * 2

    f = t.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        f(T(3), T(5))
        f.hit(T(3), T(5))
        f.hit(T(3), T(5))


@program(graphs=1)
def test_once_for_a_line(t):
    def fn(x, out, other):
        torch.add(x, x, out=out)
        torch.add(x, x, out=other)
        return out * 2

    f = t.compile(fn)
    for _ in range(3):
        f(T(3), T(5), T(6))


@program(graphs=1)
def test_once_in_a_process(t):
    def fn(x):
        return x.T + 1

    f = t.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for _ in range(3):
            f(T(2, 3, 3))


@program(one_graph=False)
def test_behind_a_break_and_as_errors(t):
    def fn(x, out):
        torch.add(x, x, out=out)
        print(type(out).__mro__[0].__subclasses__ is None)
        torch.mul(x, x, out=out[:0])
        return out

    f = t.compile(fn)
    for action in ("always", "error", "ignore", "default"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            f(T(3), T(5))
            f(T(3), T(3))


@program(graphs=1)
def test_next_to_the_programs_own(t):
    def fn(x, out):
        warnings.warn("first", UserWarning, stacklevel=1)
        torch.add(x, x, out=out)
        return out

    f = t.compile(fn)
    f(T(3), T(5))
    f.hit(T(3), T(5))


@program(one_graph=False)
def test_between_what_is_shown(t):
    """In the order in which things came up."""

    def fn(x, out, again):
        torch.add(x, x, out=out)
        warnings.warn("one", UserWarning, stacklevel=1)
        print("two")
        torch.sub(x, 1, out=again)
        print("three")
        torch.mul(x, 2, out=out)
        return out + again

    f = t.compile(fn)
    f(T(3), T(5), T(4))
    f.hit(T(3), T(5), T(4))
    f(T(3), T(3), T(4))
    f(T(3), T(5), T(3))


@program(one_graph=False)
def test_under_filters_of_the_functions_own(t):
    def fn(x, out, action):
        torch.add(x, x, out=out)
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            torch.mul(x, 2, out=out[:0])
            y = x + 1
        torch.sub(x, 1, out=out[:0])
        return y

    f = t.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for action in ("ignore", "always", "ignore"):
            f(T(3), T(5), action)
            f(T(3), T(5), action)


@program(one_graph=False)
def test_the_gradient_of_no_leaf(t):
    def fn(x):
        y = x * 2
        return y, x.grad is None, y.grad is None

    def retaining(x):
        return x * 2, x.grad

    f, g = t.compile(fn), t.compile(retaining)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for x in (T(2), T(2, rg=True), T(2, rg=True) * 1, T(2, rg=True) * 1):
            f(x)
        kept = T(2, rg=True) * 1
        kept.retain_grad()
        g(kept)
        g(T(2, rg=True) * 1)
        kept.sum().backward()
        g(kept)
        g(T(2, rg=True) * 1)

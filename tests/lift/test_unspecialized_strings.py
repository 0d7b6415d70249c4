"""Texts and containers that are another one each time: after some entries they are left to the instructions that use them."""

from __future__ import annotations

import collections
import time
from typing import Any

import pytest
import torch
from harness import T, program
from trace_support import check_loop, in_child

import alternator

LAYERS = torch.nn.ModuleDict({f"layer{i}": torch.nn.Linear(3, 3) for i in range(20)})
SEEN: list[int] = []


def filling_a_table_by_name(x: Any) -> Any:
    means = {}
    for name, layer in LAYERS.items():
        x = layer(x)
        means[name] = x.mean().item()
    return x, means


def going_by_name(x: Any) -> Any:
    for name in LAYERS:
        x = LAYERS[name](x)
        time.sleep(0)
    return x, name


def asking_the_name(x: Any) -> Any:
    kept = []
    for name, layer in LAYERS.items():
        if name.endswith("3"):
            continue
        x = layer(x)
        time.sleep(0)
        kept.append(f"{name}!")
    return x, kept


def filling_a_table(x: Any) -> Any:
    history = {}
    for i in range(30):
        x = torch.sin(x)
        history[i] = x.sum().item()
    return x, history


def filling_a_list(x: Any) -> Any:
    history = [0] * 30
    for i in range(30):
        x = torch.sin(x)
        history[i] = x.sum().item()
    return x, history


def filling_a_set(x: Any) -> Any:
    seen = set()
    for i in range(30):
        x = torch.sin(x)
        time.sleep(0)
        seen.add(i)
    return x, seen


def emptying_a_table(x: Any) -> Any:
    left = {f"k{i}": i for i in range(30)}
    for key in list(left):
        x = torch.sin(x)
        time.sleep(0)
        left.pop(key)
    return x, left


def counting_words(x: Any) -> Any:
    words: collections.Counter[str] = collections.Counter()
    for word in "to be or not to be that is the question whether tis nobler in the mind".split():
        x = torch.sin(x)
        time.sleep(0)
        words[word] += 1
    return x, words


def with_a_queue(x: Any) -> Any:
    queue = collections.deque(range(20))
    while queue:
        x = torch.sin(x)
        time.sleep(0)
        queue.popleft()
    return x, len(queue)


def with_a_stack(x: Any) -> Any:
    stack, steps = [3], 0
    while stack:
        depth = stack.pop()
        x = torch.sin(x)
        time.sleep(0)
        steps += 1
        stack.extend([depth - 1] * depth)
    return x, steps


def asking_how_many(x: Any) -> Any:
    SEEN.clear()
    for i in range(30):
        x = torch.sin(x)
        time.sleep(0)
        if len(SEEN) > 5:
            x = x + 1
        SEEN.append(i)
    return x, list(SEEN)


LOOPS = [
    filling_a_table_by_name,
    going_by_name,
    asking_the_name,
    filling_a_table,
    filling_a_list,
    filling_a_set,
    emptying_a_table,
    counting_words,
    with_a_queue,
    with_a_stack,
    asking_how_many,
]


@pytest.mark.parametrize("fn", LOOPS, ids=lambda fn: fn.__name__)
def test_a_loop_makes_few_graphs(fn: Any) -> None:
    check_loop(fn, 20)  # numbers in a container become symbols before the container itself is unspecialized


@program(one_graph=False)
def test_a_text_given_to_the_function(t):
    def fn(x, name, table):
        y = torch.sin(x)
        table[name] = table.get(name, 0) + 1
        if name.endswith("3"):
            y = y + 1
        return y * 2, f"<{name}>", name

    f = t.compile(fn)
    table: dict[str, int] = {}
    for i in (*range(12), 3, 4, 23):
        f(T(3, s=i), f"step{i}", table)
    f(T(3), 3, table)
    f(T(3), None, table)


@program(one_graph=False)
def test_a_list_given_to_the_function(t):
    def fn(x, items):
        for one in items:
            x = x + one
        items.append(len(items))
        return torch.sin(x), items[-1]

    f = t.compile(fn)
    for length in (*range(12), 3, 13):
        f(T(3), list(range(length)))
    f(T(3), [T(3), 2.5])
    f(T(3), (1, 2))


@program(one_graph=False)
def test_texts_in_attributes_and_closures(t):
    class Named:
        label = "none"

    named = Named()
    current = "none"

    def fn(x):
        nonlocal current
        y = x * len(named.label) + len(current)
        current = named.label + "'"
        return torch.sin(y), current

    f = t.compile(fn)
    t.watch(lambda: (vars(named), current))
    for i in range(12):
        named.label = "n" * (i % 9) + str(i)
        f(T(3))
    del named.label
    f(T(3))


@in_child
def test_a_text_that_says_what_to_do_is_kept(front: Any) -> None:
    """A few of them have a graph each, whatever the order."""
    alternator.reset()
    compiled = alternator.compile(lambda x, name: getattr(torch, name)(x), backend="eager")
    for _ in range(3):
        for name in ("sin", "cos", "tan", "exp", "relu"):
            assert torch.equal(compiled(T(3), name), getattr(torch, name)(T(3)))
    counts = alternator.counters()
    assert (counts["graphs"], counts["hits"], counts["breaks"]) == (5, 10, {})


@in_child
def test_where_a_break_is_an_error_texts_are_kept(front: Any) -> None:
    alternator.reset()

    def fn(x: Any, name: str) -> Any:
        with alternator.error_on_graph_break(True):
            return x * len(name)

    compiled = alternator.compile(fn, backend="eager")
    for n in range(8):
        assert torch.equal(compiled(T(3), "n" * n), T(3) * n)

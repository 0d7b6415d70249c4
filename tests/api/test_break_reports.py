"""The interface: fullgraph=True says where and why; otherwise one log line says why a call runs eagerly; counters count."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from frontends import chosen
from harness import T
from trace_support import eager_backend, in_child

pytestmark = pytest.mark.skipif(chosen() != "alternator", reason="it is Alternator's own words that are tested here")
HERE = Path(__file__).name


def untraceable(x):
    y = x + 1
    z = y.numpy(force=True)  # the line that must be named
    return torch.asarray(z) * 2


def line_of(fn, words):
    import inspect

    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if words in line)


@in_child
def test_fullgraph_raises_with_file_line_code_cause_and_hint(front):
    f = front.compile(untraceable, eager_backend, fullgraph=True)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its type is the package's own
        f(T(2))
    text = str(caught.value)
    assert HERE in text
    assert str(line_of(untraceable, "must be named")) in text
    assert "y.numpy(force=True)" in text
    assert len(text.splitlines()) >= 3, "a cause and a hint"


@in_child
def test_fullgraph_raises_in_a_callee(front):
    def outer(x):
        return untraceable(x * 2)

    f = front.compile(outer, eager_backend, fullgraph=True)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        f(T(2))
    assert "y.numpy(force=True)" in str(caught.value)


@in_child
def test_a_recursion_is_not_shown_level_by_level(front):
    def deep(x, levels):
        if levels == 0:
            return untraceable(x)
        return deep(x + 1, levels - 1)

    f = front.compile(deep, eager_backend, fullgraph=True)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        f(T(2), 40)
    text = str(caught.value)
    assert text.count("return deep(x + 1, levels - 1)") == 3
    assert "[Previous line repeated 37 more times]" in text
    assert "return untraceable(x)" in text
    assert "y.numpy(force=True)" in text


@in_child
def test_fullgraph_leaves_the_world_alone(front):
    items = []

    def fn(x):
        items.append(1)
        return x.numpy().tolist()

    f = front.compile(fn, eager_backend, fullgraph=True)
    for _ in range(2):
        with pytest.raises(Exception):  # noqa: B017, PT011
            f(T(2))
    assert items == []


@in_child
def test_one_log_line_for_each_break_says_why(front):
    records = []

    class Keeping(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    handler = Keeping()
    logging.getLogger("alternator").addHandler(handler)
    f = front.compile(untraceable, eager_backend)
    wanted = untraceable(T(2))
    for _ in range(3):
        assert torch.equal(f(T(2)), wanted)
    logging.getLogger("alternator").removeHandler(handler)
    assert len(records) == 2, records  # numpy() and asarray(), however often the function is called
    assert HERE in records[0] and str(line_of(untraceable, "must be named")) in records[0]


@in_child
def test_the_users_exception_is_the_users_with_fullgraph(front):
    def fn(x, n):
        if n:
            raise LookupError("mine")
        return x + 1

    f = front.compile(fn, eager_backend, fullgraph=True)
    f(T(2), 0)
    with pytest.raises(LookupError, match="mine"):
        f(T(2), 1)


@in_child
def test_counters(front):
    front.reset()
    f = front.compile(lambda x, n: x + n, eager_backend)

    def change(*args):
        before = front.counters()
        f(*args)
        after = front.counters()
        return {name: after[name] - before[name] for name in ("traces", "hits", "graphs", "eager")}

    assert change(T(2), 1) == {"traces": 1, "hits": 0, "graphs": 1, "eager": 0}
    assert change(T(2), 1) == {"traces": 0, "hits": 1, "graphs": 0, "eager": 0}
    assert change(T(2), 2) == {"traces": 1, "hits": 0, "graphs": 1, "eager": 0}
    assert change(T(2), 1) == {"traces": 0, "hits": 1, "graphs": 0, "eager": 0}


@in_child
def test_counters_of_calls_that_break(front):
    front.reset()
    f = front.compile(untraceable, eager_backend)
    f(T(2))
    f(T(2))
    counters = front.counters()
    assert counters["eager"] == 0 and counters["hits"] == 3 and counters["graphs"] == 2
    assert sum(counters["breaks"].values()) >= 1


@in_child
def test_reset_forgets(front):
    f = front.compile(lambda x: x + 1, eager_backend)
    f(T(2))
    front.reset()
    before = front.counters()["traces"]
    f(T(2))
    assert front.counters()["traces"] == before + 1


@in_child
def test_the_backend_gets_a_graph_of_torch_fx(front):
    got = []

    def backend(module, example_inputs):
        got.append((module, example_inputs))
        return module.forward

    w = T(3, 3)
    f = front.compile(lambda x, y: torch.relu(x @ w) + y.sum(), backend)
    f(T(2, 3), T(4))
    ((module, inputs),) = got
    assert isinstance(module, torch.fx.GraphModule)
    module.graph.lint()
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    assert len(placeholders) == len(inputs) == 3
    assert sorted(tuple(one.shape) for one in inputs) == [(2, 3), (3, 3), (4,)]
    result = module(T(2, 3), *[one for one in (w, T(4))]) if tuple(inputs[1].shape) == (3, 3) else None
    if result is not None:
        assert torch.equal(result[0], torch.relu(T(2, 3) @ w) + T(4).sum())


@in_child
def test_the_same_function_compiled_twice(front):
    def fn(x):
        return x + 1

    f, g = front.compile(fn, eager_backend), front.compile(fn, eager_backend)
    assert torch.equal(f(T(2)), g(T(2)))


@in_child
def test_a_compiled_function_looks_like_its_own(front):
    def fn(x, n=3):
        """Its text."""
        return x + n

    f = front.compile(fn, eager_backend)
    assert callable(f) and f.__name__ == "fn" and f.__doc__ == "Its text." and f.__wrapped__ is fn


@in_child
def test_what_depends_on_data_is_called_so(front):
    import alternator

    mask = torch.tensor([True, False])
    for fn in (
        lambda x: x.tolist(),
        lambda x: x * x.sum().item(),
        lambda x: x * float(x[0]),
        lambda x: x[mask.to(torch.uint8).bool() & (x > 0)],
        lambda x: x + 1 if x.sum() > 0 else x,
        lambda x: list(range(int(x[0]))),
    ):
        alternator.reset()
        front.compile(fn, eager_backend)(T(2))
        assert set(alternator.counters()["breaks"]) == {"data_dependent"}, alternator.counters()["breaks"]


@in_child
def test_the_handle_of_a_hook(front):
    """It is made by each run: where it is used, the hook is registered concretely, once."""

    def fn(x):
        y = x * 2
        handle = y.register_hook(lambda g: g * 3)
        y.register_hook(lambda g: g * 5)
        handle.remove()  # the handle
        return y.sum()

    f = front.compile(fn, eager_backend, fullgraph=True)
    with pytest.raises(Exception, match=r"(?s)a hook is registered on a tensor \(its handle is used\)") as caught:  # noqa: PT011
        f(T(2, rg=True))
    assert str(line_of(fn, "# the handle")) in str(caught.value)
    g, before = front.compile(fn, eager_backend), front.counters()
    x = T(2, rg=True)
    g(x).backward()
    assert torch.equal(x.grad, torch.full((2,), 10.0))
    after = front.counters()
    assert after["breaks"]["hook"] - before["breaks"].get("hook", 0) >= 1


@in_child
def test_a_checkpointed_function_that_writes(front):
    """The line is that of the call: the function itself is over then."""
    from torch.utils.checkpoint import checkpoint

    seen = []

    def body(x):
        seen.append(1)
        return x.sin()

    def fn(x):
        x = x * 2
        return checkpoint(body, x, use_reentrant=False)  # the call

    with pytest.raises(Exception, match="writes to a pre-existing object") as caught:  # noqa: PT011
        front.compile(fn, eager_backend, fullgraph=True)(T(2, rg=True))
    assert f"line {line_of(fn, '# the call')}" in str(caught.value) or f":{line_of(fn, '# the call')}" in str(
        caught.value
    )
    assert seen == []

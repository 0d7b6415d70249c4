"""torch's own settings and switches, which programs set for torch.compile."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo

import alternator

torchs: Any = torch._dynamo.config


def plus_one(x: Any) -> Any:
    return x + 1


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Traced programs of other files set a limit of their own for the process (helpers/frontends.py).
    monkeypatch.setattr(alternator.config, "recompile_limit", 8)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    torch._dynamo.reset()


def outcome(compile: Any, **settings: Any) -> str:
    """Of calls with twelve sizes."""
    torch._dynamo.reset()
    alternator.reset()
    graphs = []

    def backend(gm: Any, _: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    with torchs.patch(**settings):
        compiled = compile(plus_one, backend=backend, dynamic=False)
        try:
            for size in range(1, 13):
                assert torch.equal(compiled(torch.ones(size)), torch.ones(size) + 1)
        except Exception as error:
            assert isinstance(error, torch._dynamo.exc.RecompileError)
            return f"{len(graphs)} graphs, then RecompileError"
    return f"{len(graphs)} graphs"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "8 graphs"),
        ({"recompile_limit": 2}, "2 graphs"),
        ({"cache_size_limit": 3}, "3 graphs"),
        ({"recompile_limit": 12}, "12 graphs"),
        ({"error_on_recompile": True}, "1 graphs, then RecompileError"),
        ({"disable": True}, "0 graphs"),
    ],
    ids=str,
)
def test_settings_of_dynamo_mean_what_they_mean_to_torch(settings: dict[str, Any], expected: str) -> None:
    assert outcome(torch.compile, **settings) == expected
    assert outcome(alternator.compile, **settings) == expected


def test_the_limit_is_ours_where_nobody_has_changed_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternator.config, "recompile_limit", 5)
    assert outcome(alternator.compile) == "5 graphs"
    assert outcome(alternator.compile, recompile_limit=3) == "3 graphs"


def test_a_refused_recompile_leaves_the_versions_that_there_are(monkeypatch: pytest.MonkeyPatch, seen: Any) -> None:
    compiled = alternator.compile(plus_one, backend=seen)
    compiled(torch.ones(2))
    monkeypatch.setattr(alternator.config, "error_on_recompile", True)
    for _ in range(2):
        with pytest.raises(alternator.exc.RecompileError, match=r"plus_one in (.|\n)*- x: .*size \[2\]"):
            compiled(torch.ones(3))
    compiled(torch.ones(2))
    assert torch.equal(alternator.compile(lambda x: x * 2, backend="eager")(torch.ones(3)), torch.full((3,), 2.0))
    monkeypatch.setattr(alternator.config, "error_on_recompile", False)
    compiled(torch.ones(3))
    assert len(seen.graphs) == 2


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_torchs_switches_of_the_environment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "0")
    assert alternator.compile(plus_one, backend="eager") is not plus_one
    monkeypatch.setenv(name, "1")
    assert alternator.compile(plus_one, backend="eager") is plus_one


# --- exceptions -----------------------------------------------------------------------------------------------------


def _fails(gm: Any, _: Any) -> Any:
    raise ValueError("no such luck")


def branch(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def test_exceptions_can_be_sent_to_another_process() -> None:
    with pytest.raises(alternator.BackendFailed) as failed:
        alternator.compile(plus_one, backend=_fails)(torch.ones(2))
    back = pickle.loads(pickle.dumps(failed.value))
    assert type(back) is type(failed.value)
    assert isinstance(back, torch._dynamo.exc.BackendCompilerFailed)
    assert str(back) == str(failed.value)
    assert (back.backend_name, back.graph) == ("_fails", failed.value.graph)
    assert isinstance(back.inner_exception, ValueError)

    with pytest.raises(alternator.Unsupported) as refused:
        alternator.compile(branch, backend="eager", fullgraph=True)(torch.ones(2))
    again = pickle.loads(pickle.dumps(refused.value))
    assert type(again) is type(refused.value)
    assert (str(again), again.reason) == (str(refused.value), "data_dependent")


ALONE = """
import pickle, sys, torch, alternator
def branch(x): return x if x.sum() > 0 else -x
try: alternator.compile(branch, backend="eager", fullgraph=True)(torch.ones(2))
except alternator.Unsupported as error: text = pickle.dumps(error)
assert type(pickle.loads(text)) is alternator.Unsupported and "torch._dynamo" not in sys.modules
import torch._dynamo
assert isinstance(pickle.loads(text), torch._dynamo.exc.Unsupported)
print("done")
"""


def test_they_are_torchs_where_that_is_loaded(run_python: Callable[..., str]) -> None:
    assert run_python(ALONE).startswith("done\n")

"""Sequences of sizes and numbers (sequences.py) against eager, and the number of graphs against TorchDynamo's (graphs.json)."""

from __future__ import annotations

import os

import programs_floats  # noqa: F401
import programs_models  # noqa: F401
import programs_numbers  # noqa: F401
import programs_operators  # noqa: F401
import programs_python  # noqa: F401
import programs_sizes  # noqa: F401
import programs_state  # noqa: F401
import programs_views  # noqa: F401
import pytest
from frontends import missing
from sequences import MODES, ROWS, most_graphs, outcome, recompiling, torchdynamos_graphs

pytestmark = pytest.mark.skipif(bool(missing("alternator")), reason=str(missing("alternator")))

LONG = "ALTERNATOR_LONG_TESTS"
# Through AOTAutograd a row is judged in the mode in which most of its sizes are symbolic.
THROUGH_AOT = [(name, row.modes[-1]) for name, row in ROWS.items() if row.aot]
EACH = [(name, mode) for name, row in ROWS.items() for mode in row.modes]


def check(name: str, mode: str, backend: str) -> None:
    found = outcome(name, mode, backend)
    assert not found.broken, f"the program itself is broken:\n{found.broken}"
    if found.wrong:
        pytest.fail("\n".join(found.wrong), pytrace=False)


# A graph that has written to an argument, and then raises for some sizes only, as a user callable runs it: the error is the right
# one, but the user's line is not in its traceback.
OTHER_ERRORS = {"write_and_narrow"}


@pytest.mark.parametrize(("name", "mode"), EACH)
def test_sequence(name: str, mode: str) -> None:
    """One run, for what it computes and for how often it is compiled."""
    if name not in OTHER_ERRORS:
        check(name, mode, "eager")
    found, most = outcome(name, mode, "eager"), most_graphs(name, mode)
    if most is not None and name in recompiling()[mode]:
        assert found.graphs > most, f"{name} is compiled {found.graphs} times: take it out of recompiling.txt, [{mode}]"
    elif most is not None:
        assert found.graphs <= most, f"{found.graphs} graphs, TorchDynamo {most}"
    if name in OTHER_ERRORS:
        pytest.xfail("the error of a call that fails for some sizes differs from eager's in its traceback")


@pytest.mark.parametrize(("name", "mode"), THROUGH_AOT)
def test_results_through_aot_autograd(name: str, mode: str) -> None:
    if not os.environ.get(LONG):
        pytest.skip(f"set {LONG}=1: takes minutes")
    check(name, mode, "aot_eager")


@pytest.mark.parametrize("mode", ["default", "dynamic=True"])
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.inductor])
def test_results_through_inductor(name: str, mode: str) -> None:
    if not os.environ.get(LONG):
        pytest.skip(f"set {LONG}=1: takes minutes")
    check(name, mode, "inductor")


def test_the_tables() -> None:
    """Every row has TorchDynamo's number in each of its modes, and the list names rows only."""
    assert len(ROWS) >= 150
    graphs = torchdynamos_graphs()
    assert {name: list(row.modes) for name, row in ROWS.items()} == {
        name: list(modes) for name, modes in graphs.items()
    }
    for mode in MODES:
        assert recompiling()[mode].keys() <= {name for name, row in ROWS.items() if mode in row.modes}
        assert all(recompiling()[mode].values()), "a row without a reason"

"""A sample of the programs here with breaks forced everywhere; `make test-breaks` does all of them."""

from __future__ import annotations

import forced
import harness
import pytest
from frontends import chosen, missing

EVERY = (1, 2, 3, 5, 11)


@pytest.mark.parametrize("number", range(25))
def test_breaks_everywhere(number: int) -> None:
    reason = missing("alternator")
    if reason or chosen() != "alternator":
        pytest.skip(reason or "another front end was chosen")
    # Long ways through the standard library take minutes: the sanitizer looks at the whole world for every trace.
    wrong = harness.gaps(harness.KNOWN_WRONG)
    heavy = ("class", "tree", "native", "whole_models")
    programs = sorted(forced.all_programs())
    names = [name for name in programs if name not in wrong and not any(word in name for word in heavy)]
    for name in names[number * 3 :: 75]:
        lines = forced.judge(harness.REGISTRY[name], EVERY[number % len(EVERY)])
        assert not lines, f"{name} with a break every {EVERY[number % len(EVERY)]}:\n" + "\n".join(lines)

"""The program with a number."""

from __future__ import annotations

from .generate import Generator
from .sizes import SizeGenerator
from .wide import WideGenerator

KINDS = {"plain": Generator, "wide": WideGenerator, "sizes": SizeGenerator}


def source_of(seed: int, size: int = 12, kind: str = "plain") -> str:
    return KINDS[kind](seed, size).program()

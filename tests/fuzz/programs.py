"""The program with a number."""

from __future__ import annotations

from .generate import Generator
from .wide import WideGenerator


def source_of(seed: int, size: int = 12, wide: bool = False) -> str:
    return (WideGenerator if wide else Generator)(seed, size).program()

"""Settings that `compile` reads when it is called."""

from __future__ import annotations

# How many different calls of one function are compiled; calls beyond that run as they are, and a warning says so.
recompile_limit: int = 8

"""Graph breaks that a program asks for."""

from __future__ import annotations


def graph_break(msg: str = "") -> None:
    """Ends the graph here: what comes before and what comes after is compiled separately."""

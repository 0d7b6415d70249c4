"""An entry as readable pseudo-Python: what a call does whose guards hold."""

from __future__ import annotations

from .events import Entry, Line


def _name(entry: Entry) -> str:
    if not entry.resumed_at:
        return entry.function.split(" in ")[0]
    at = entry.resumed_at[-1]
    return f"resume_{at.function.rsplit('.', 1)[-1]}_{at.line}"


def _where(lines: tuple[Line, ...], function: str) -> str:
    return " > ".join(f"{line.file}:{line.line}" for line in lines) or function.split(" in ", 1)[1]


def program_text(entry: Entry) -> str:
    """The inputs, the call of the graph, what is reconstructed and written back, the result; or the values of the frames at a break,
    and the instruction that is then executed concretely."""
    named = [name for name in entry.arguments if not name.startswith("the ")]
    rows = [f"def {_name(entry)}({', '.join(named)}):  # {_where(entry.resumed_at, entry.function)}"]
    if entry.eager:
        rows.append(f"    # not captured [{entry.reason}]: the call runs eagerly from here")
        return "\n".join(rows)
    if entry.operations:
        called = entry.graph or f"graph_of_{entry.operations}"
        rows.append(f"    graph = {called}({', '.join(entry.inputs)})")
    rows += [f"    {line}" for line in entry.residual]
    if not entry.stops_at:
        rows.append(f"    {'raise' if entry.raises else 'return'} {', '.join(entry.results)}")
        return "\n".join(rows)
    stop = entry.stops_at[-1]
    rows.append(f"    # break [{entry.reason}]: the frames as they stand before {stop}")
    for name, value in zip(entry.result_names, entry.results, strict=True):
        if value != "<nothing>":
            rows.append(f"    {name} = {value}")
    rows.append(f"    execute({stop.mark or stop.text!r})  # concretely; resumes at the next instruction")
    return "\n".join(rows)

"""Settings: compiled functions read them when they trace."""

from __future__ import annotations

import re
import sys
from typing import Any

# How many entries one function may have; calls beyond that run eagerly, and a warning says so.
# torch._dynamo.config.recompile_limit means the same, where it differs from torch's default.
recompile_limit: int = 8

# A graph whose backend raises runs the recorded program, uncompiled, and a warning says so; otherwise the caller gets the error.
suppress_errors: bool = False

# Whether the graphs that a backend gets carry FakeTensors as example values. None: yes, except for user callables while
# torch._dynamo is not loaded (FakeTensors need it, and loading it takes seconds).
example_values: bool | None = None

# Whether the results of `.item()`, `.tolist()`, `int(tensor)` and `float(tensor)` are captured as unbacked symbols where possible,
# instead of a graph break. Always on with fullgraph=True, and where TorchDynamo's setting of the same name is on.
capture_scalar_outputs: bool = False

# The same for operators whose output size depends on data, such as `x[mask]`, `nonzero` and `unique`.
capture_dynamic_output_shape_ops: bool = False

# Seconds after which a progress line is shown for a backend that is still compiling. Only on a terminal; 0: never.
progress_after: float = 3.0

# Every new graph runs twice before it is used, on copies of its inputs: uncompiled, and as the backend compiled it. Results that
# differ are a BackendFailed. torch._dynamo.config.verify_correctness means the same.
verify_correctness: bool = False

# A call that matches no existing entry is an error, instead of a recompilation. torch._dynamo.config's setting means the same.
error_on_recompile: bool = False


# Calls beyond the recompile limit are an error. torch._dynamo.config's setting means the same.
fail_on_recompile_limit_hit: bool = False

# How many entries all compile()s of one function may have. torch._dynamo.config's setting means the same, where it was changed.
accumulated_recompile_limit: int = 256

# Whether sizes and numbers that differ between calls become symbols, where compile() was not told by dynamic=.
# torch._dynamo.config's setting means the same, as the following do.
automatic_dynamic_shapes: bool = True

# False: all sizes of inputs are symbols from the first call on, as with dynamic=True.
assume_static_by_default: bool = True

# Ints, or floats, are never symbols.
specialize_int: bool = False
specialize_float: bool = False

# The sizes of parameters are constants, also where they differ between calls.
force_parameter_static_shapes: bool = True

# mark_dynamic of a size that a trace specializes on is no error.
allow_ignore_mark_dynamic: bool = False


def _of_torch(name: str, default: Any) -> Any:
    """TorchDynamo's setting, if torch._dynamo is loaded (otherwise it has its default); never loads it."""
    return getattr(sys.modules.get("torch._dynamo.config"), name, default)


def is_set(switch: str) -> bool:
    """Whether a switch is on, here or in torch._dynamo.config."""
    return bool(globals().get(switch)) or bool(_of_torch(switch, False))


def _chosen(name: str) -> Any:
    """TorchDynamo's setting where it was changed, otherwise ours."""
    settings = _of_torch("_config", {})
    chosen = _of_torch(name, None)
    is_default = name not in settings or chosen == settings[name].default
    return globals()[name] if is_default else chosen


def limits() -> tuple[int, int, bool]:
    """The recompile_limit (cache_size_limit is an alias of it in torch), the accumulated one, and whether they are hard. Read by
    the core before each trace."""
    hard = is_set("fail_on_recompile_limit_hit")
    return int(_chosen("recompile_limit")), int(_chosen("accumulated_recompile_limit")), hard


_DIMENSION = re.compile(r"^(.+):(\d+)$")


def _dynamic_sources() -> list[tuple[str, int]]:
    """torch.compiler.config.dynamic_sources and unbacked_sources: patterns of source names, each with a dimension, or -1 for all."""
    settings = sys.modules.get("torch.compiler.config")
    entries = ",".join(str(getattr(settings, name, "")) for name in ("dynamic_sources", "unbacked_sources"))
    found = []
    for entry in entries.replace(" ", "").split(","):
        if matched := _DIMENSION.match(entry):
            found.append((matched.group(1), int(matched.group(2))))
        elif entry:
            found.append((entry, -1))
    return found


def _use_duck_shape() -> bool:
    return bool(getattr(sys.modules.get("torch.fx.experimental._config"), "use_duck_shape", True))


def dynamic_settings() -> tuple[bool, bool, bool, bool, bool, bool, bool, list[tuple[str, int]]]:
    """What the core reads before each trace, csrc/dispatch/dynamism_policy.cpp."""
    return (
        bool(_chosen("automatic_dynamic_shapes")),
        bool(_chosen("assume_static_by_default")),
        not is_set("specialize_int"),
        not is_set("specialize_float"),
        is_set("allow_ignore_mark_dynamic"),
        _use_duck_shape(),
        not _chosen("force_parameter_static_shapes"),
        _dynamic_sources(),
    )

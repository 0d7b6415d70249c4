"""Settings: `compile` reads them when it is called, compiled functions when they trace."""

from __future__ import annotations

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


def _of_torch(name: str, default: Any) -> Any:
    """TorchDynamo's setting, if torch._dynamo is loaded (otherwise it has its default); never loads it."""
    return getattr(sys.modules.get("torch._dynamo.config"), name, default)


def is_set(switch: str) -> bool:
    """Whether a switch is on, here or in torch._dynamo.config."""
    return bool(globals().get(switch)) or bool(_of_torch(switch, False))


def limit() -> int:
    """The recompile_limit: TorchDynamo's where it was changed, otherwise ours."""
    settings = _of_torch("_config", {})
    chosen = _of_torch("recompile_limit", None)  # cache_size_limit is an alias of it
    is_default = "recompile_limit" not in settings or chosen == settings["recompile_limit"].default
    return recompile_limit if is_default else int(chosen)

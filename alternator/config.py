"""Settings that `compile` reads when it is called, and compiled functions when they compile."""

from __future__ import annotations

import sys
from typing import Any

# How many different calls of one function are compiled; calls beyond that run as they are, and a warning says so.
# torch._dynamo.config's means the same, where it is not torch's default.
recompile_limit: int = 8

# A graph whose backend raises runs as it was recorded, and a warning says so; otherwise the error goes to the caller.
suppress_errors: bool = False

# Whether the graphs that a backend gets carry FakeTensors as example values. None: yes, except for callables of the user's while
# torch._dynamo is not loaded (FakeTensors need it, and loading it takes seconds).
example_values: bool | None = None

# Whether what `.item()`, `.tolist()`, `int(tensor)` and `float(tensor)` give becomes a part of the graph where that is possible,
# instead of a graph break. Always so with fullgraph=True, and where TorchDynamo's setting of the same name is on.
capture_scalar_outputs: bool = False

# The same for operators whose result has a size that only its data gives, such as `x[mask]`, `nonzero` and `unique`.
capture_dynamic_output_shape_ops: bool = False

# Seconds after which a backend that is still compiling gets a line on the terminal. Only on a terminal; 0 is never.
progress_after: float = 3.0

# Every new graph runs twice before it is used, on copies of its inputs: as recorded, and as the backend compiled it. Results that
# differ are a BackendFailed. torch._dynamo.config.verify_correctness means the same.
verify_correctness: bool = False

# A call that no compiled version fits is an error, instead of a further version. torch._dynamo.config's means the same.
error_on_recompile: bool = False


def _of_torch(name: str, default: Any) -> Any:
    """TorchDynamo's setting, where somebody can have changed it: nothing is loaded for this."""
    return getattr(sys.modules.get("torch._dynamo.config"), name, default)


def is_set(switch: str) -> bool:
    """Whether a switch is on, here or in torch._dynamo.config."""
    return bool(globals().get(switch)) or bool(_of_torch(switch, False))


def limit() -> int:
    """The recompile_limit that somebody has chosen."""
    settings = _of_torch("_config", {})
    chosen = _of_torch("recompile_limit", None)  # which cache_size_limit is another name of
    is_default = "recompile_limit" not in settings or chosen == settings["recompile_limit"].default
    return recompile_limit if is_default else int(chosen)

"""The modules that backends get."""

from __future__ import annotations

from typing import Any

from torch.fx._lazy_graph_module import _LazyGraphModule


class GraphModule(_LazyGraphModule):
    """Its code is generated when it is first needed. Unlike torch's, that first call of forward() is not a call of the module:
    hooks that are global to all modules do not run."""

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        self.real_recompile()
        return type(self).forward(self, *args, **kwargs)

    forward = _lazy_forward

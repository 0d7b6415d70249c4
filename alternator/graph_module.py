"""The graph modules that backends get."""

from __future__ import annotations

import linecache
import weakref
from typing import Any

import torch.fx.graph_module
from torch.fx._lazy_graph_module import _LazyGraphModule


def _forget_source(file_name: str) -> None:
    """torch keeps the source of generated code for tracebacks; it is not needed once its module is gone."""
    linecache.cache.pop(file_name, None)
    torch.fx.graph_module._loader.eval_cache.pop(file_name, None)


class GraphModule(_LazyGraphModule):
    """Generates its code on first use. Unlike in torch's class, that first call of forward() is not a call of the module: global
    module hooks do not run. torch.jit.script() accepts it."""

    __jit_unused_properties__ = [*torch.fx.GraphModule.__jit_unused_properties__, "code"]  # noqa: RUF012  torch wants a list

    def __prepare_scriptable__(self) -> GraphModule:
        self.real_recompile()
        return self

    def real_recompile(self) -> Any:
        is_needed = self._needs_recompile()
        result = super().real_recompile()
        code = getattr(type(self).forward, "__code__", None)
        if is_needed and code is not None and code.co_filename.startswith("<eval_with_key>"):
            weakref.finalize(self, _forget_source, code.co_filename)
        return result

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        self.real_recompile()
        return type(self).forward(self, *args, **kwargs)

    forward = _lazy_forward

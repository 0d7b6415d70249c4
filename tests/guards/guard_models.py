"""Guards for a whole nn.Module, as a trace of its forward would leave them."""

from __future__ import annotations

from typing import Any

import torch
from guard_trees import Path, Program, Tree
from torch import nn


def guard_module(path: Path, module: nn.Module, classes: set[type]) -> None:
    """What reading the module's parameters, buffers, submodules and flags guards."""
    path.guard("kType", type(module)).identity()
    attributes = path.step("kDict")
    attributes.guard("kLacksKey", "forward")
    attributes.item("training").guard("kIs", module.training)
    for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        attributes.item(hooks).guard("kTruth", number=0)
    for table in ("_parameters", "_buffers"):
        for name, tensor in getattr(module, table).items():
            source = attributes.item(table).item(name)
            if tensor is None:
                source.guard("kIs", None)
            else:
                source.guard("kTensor", tensor).identity().need()
    for name, child in module._modules.items():
        assert child is not None
        guard_module(attributes.item("_modules").item(name), child, classes)
    classes.add(type(module))


def guard_class(tree: Tree, cls: type) -> None:
    forward = tree.constant(cls).step("kTypeAttribute", "forward")
    forward.guard("kIs", cls.forward)  # type: ignore[attr-defined]
    tree.constant(cls.forward).guard("kCode", cls.forward.__code__, second=cls.forward.__globals__)  # type: ignore[attr-defined]
    tree.constant(cls).step("kTypeAttribute", "__call__").guard("kIs", nn.Module.__call__)
    tree.constant(cls).step("kTypeAttribute", "no_such_attribute").guard("kAbsent")


def module_tree(module: nn.Module, *arguments: torch.Tensor) -> Tree:
    """`module.forward(*arguments)`: slot 0 is the module."""
    tree = Tree()
    classes: set[type] = set()
    guard_module(tree.slot(0, "self"), module, classes)
    for cls in classes:
        guard_class(tree, cls)
    for i, argument in enumerate(arguments):
        tree.slot(i + 1, f"x{i}").guard("kTensor", argument).identity().need()
    return tree


def module_program(module: nn.Module, *arguments: torch.Tensor) -> Program:
    return module_tree(module, *arguments).program()


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


class Net(nn.Module):
    def __init__(self, depth: int = 3, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("shift", torch.zeros(width))

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x * self.scale + self.shift

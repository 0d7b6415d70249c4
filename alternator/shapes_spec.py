"""torch.compile(shapes_spec=...): which sizes and ints of the arguments are symbols, and what has to hold for them.

The core asks before a trace (check, symbols), and after it (conditions): csrc/dispatch/shape_specs.h.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx.experimental import dynamic_spec

from .sympy_bridge import from_sympy

_ABSENT = object()


class _Slot(NamedTuple):
    """A place of the specification that is no container: a size of a tensor (one for each dimension), or an int."""

    text: str  # as the core names the source
    steps: tuple[tuple[str, Any], ...]  # from the parameter on
    leaf: Any

    def value(self, values: Mapping[str, Any]) -> Any:
        found: Any = values
        for kind, key in self.steps:
            try:
                found = getattr(found, key) if kind == "." else found[key]
            except (AttributeError, LookupError):
                return _ABSENT
        return found


def _slots(text: str, steps: tuple[tuple[str, Any], ...], spec: Any) -> Iterator[_Slot]:
    if isinstance(spec, dynamic_spec.ObjectSpec):
        for name, inner in spec.items():
            yield from _slots(f"{text}.{name}", (*steps, (".", name)), inner)
    elif isinstance(spec, dynamic_spec.DictSpec):
        for key, inner in spec.items():
            yield from _slots(f"{text}[{key!r}]", (*steps, ("[", key)), inner)
    elif isinstance(spec, dynamic_spec.SeqSpec):
        for index, inner in enumerate(spec._entries):
            yield from _slots(f"{text}[{index}]", (*steps, ("[", index)), inner)
    elif spec is not None:
        yield _Slot(text, steps, spec)


def _name(expression: Any) -> str:
    """Without the numbers that tell variables of one name apart: "a > b", not "a#0 > b#1"."""
    return str(expression.xreplace({one: sympy.Symbol(one.name.partition("#")[0]) for one in expression.free_symbols}))


class Specification:
    """A ShapesSpec for one function."""

    def __init__(self, spec: Any, code: CodeType, forward: Any = None) -> None:
        """`forward`: of a module, which its `__call__` hands all arguments on to."""
        self.spec = spec  # kept alive: caches have its id
        self.slots = list(self._all_slots(spec._params, code, forward)) if spec._params is not None else []
        self._check_unbound()

    @staticmethod
    def _all_slots(params: Any, code: CodeType, forward: Any) -> Iterator[_Slot]:
        count = code.co_argcount + code.co_kwonlyargcount
        has_args = bool(code.co_flags & inspect.CO_VARARGS)
        varargs = code.co_varnames[count] if has_args else ""
        varkw = code.co_varnames[count + has_args] if code.co_flags & inspect.CO_VARKEYWORDS else ""
        positions = list(inspect.signature(forward).parameters) if forward is not None else []
        for name, inner in params._named_args.items():
            if forward is None:
                yield from _slots(name, (("[", name),), inner)
                continue
            if name in positions:
                index = positions.index(name)
                yield from _slots(f"{varargs}[{index}]", (("[", varargs), ("[", index)), inner)
            yield from _slots(f"{varkw}[{name!r}]", (("[", varkw), ("[", name)), inner)
        first = len(positions) - 1 if forward is not None else 0
        for index, inner in enumerate(params._varargs or ()):
            yield from _slots(f"{varargs}[{first + index}]", (("[", varargs), ("[", first + index)), inner)
        for name, inner in (params._varkw or {}).items():
            yield from _slots(f"{varkw}[{name!r}]", (("[", varkw), ("[", name)), inner)

    def _leaves(self) -> Iterator[tuple[_Slot, int, Any]]:
        """Each size as (slot, dimension, what it is), each int with the dimension -1."""
        for slot in self.slots:
            if isinstance(slot.leaf, dynamic_spec.TensorSpec):
                yield from ((slot, dimension, leaf) for dimension, leaf in enumerate(slot.leaf))
            else:
                yield slot, -1, slot.leaf

    def _facts(self, found: Mapping[tuple[str, int], Any]) -> Iterator[Any]:
        """Conditions over what `found` has for sizes and ints: numbers, or symbols of sympy."""
        variables: dict[Any, Any] = {}
        derived = []
        for slot, dimension, leaf in self._leaves():
            value = found.get((slot.text, dimension))
            if value is None or not isinstance(leaf, torch.SymInt):
                continue
            if not isinstance(leaf, dynamic_spec.IntVar):
                derived.append(sympy.Eq(value, leaf.node.expr, evaluate=False))
            elif leaf.sympy_sym in variables:
                yield sympy.Eq(value, variables[leaf.sympy_sym])
            else:
                variables[leaf.sympy_sym] = value
                yield sympy.Ge(value, leaf.min) if leaf.min is not None else sympy.true
                yield sympy.Le(value, leaf.max) if leaf.max is not None else sympy.true
        for fact in (*derived, *(one.node.expr for one in self.spec.assumptions)):
            bound = fact.xreplace(variables)
            if not any("#" in one.name for one in bound.free_symbols):
                yield bound.doit()

    def _check_unbound(self) -> None:
        leaves = [leaf for _, _, leaf in self._leaves() if isinstance(leaf, torch.SymInt)]
        bound = {leaf.sympy_sym for leaf in leaves if isinstance(leaf, dynamic_spec.IntVar)}
        facts = [leaf.node.expr for leaf in leaves if not isinstance(leaf, dynamic_spec.IntVar)]
        facts += [one.node.expr for one in self.spec.assumptions]
        missing = [fact for fact in facts if fact.free_symbols - bound]
        if missing:
            names = sorted({_name(one) for fact in missing for one in fact.free_symbols - bound})
            raise ValueError(
                f"shapes_spec: {len(missing)} pending check(s) reference unbound IntVar(s) {names}. Every IntVar used in a derived "
                "expression or assumption must also appear as a bare-IntVar slot somewhere in the spec. Offending checks:\n"
                + "\n".join(f"  - {_name(fact)}" for fact in missing)
            )

    def _found(self, values: Mapping[str, Any]) -> dict[tuple[str, int], Any]:
        found: dict[tuple[str, int], Any] = {}
        for slot in self.slots:
            value = slot.value(values)
            if isinstance(value, torch.Tensor) and isinstance(slot.leaf, dynamic_spec.TensorSpec):
                if value.dim() != len(slot.leaf):
                    raise ValueError(
                        f"TensorSpec has {len(slot.leaf)} dims but tensor {slot.text} has {value.dim()} dims"
                    )
                found |= {(slot.text, dimension): int(size) for dimension, size in enumerate(value.shape)}
            elif type(value) is int:
                found[slot.text, -1] = value
        return found

    # ---- what the core calls

    def check(self, values: Mapping[str, Any]) -> None:
        """`values`: of the parameters. As in torch, a call that does not fit is an error."""
        found = self._found(values)
        for slot, dimension, leaf in self._leaves():
            value = found.get((slot.text, dimension))
            if value is not None and not isinstance(leaf, torch.SymInt) and leaf is not None and value != leaf:
                what = f"dim {dimension}" if dimension >= 0 else slot.text
                raise ValueError(f"shapes_spec declares {what} as static with value {leaf}, but got {value}")
        # With names in place of numbers, for the message.
        names = {
            key: sympy.Symbol(key[0] if key[1] < 0 else f"{key[0]}.size()[{key[1]}]", integer=True) for key in found
        }
        numbers = {names[key]: value for key, value in found.items()}
        for fact in self._facts(names):
            if fact.xreplace(numbers) == sympy.false:
                raise RuntimeError(f"Runtime assertion failed for expression {fact} (shapes_spec)")

    def symbols(self) -> list[tuple[str, int, int | None, int | None]]:
        """(source, dimension or -1, least value, largest)."""
        rows: list[tuple[str, int, int | None, int | None]] = []
        for slot, dimension, leaf in self._leaves():
            if isinstance(leaf, torch.SymInt):
                is_variable = isinstance(leaf, dynamic_spec.IntVar)
                low, high = (getattr(leaf, bound) if is_variable else None for bound in ("min", "max"))
                rows.append((slot.text, dimension, low, high))
        return rows

    def conditions(self, environment: Any, symbols: Sequence[tuple[str, int, Any]]) -> list[Any]:
        """What holds for the symbols of an entry. What is no symbol is guarded to be what it was when check() was called."""
        stand_ins = {
            (text, dimension): sympy.Symbol(f"s{i}", integer=True) for i, (text, dimension, _) in enumerate(symbols)
        }
        ours = {stand_ins[text, dimension]: expression for text, dimension, expression in symbols}
        translated = (from_sympy(environment, fact, ours) for fact in self._facts(stand_ins) if fact != sympy.true)
        return [condition for condition in translated if condition is not None]

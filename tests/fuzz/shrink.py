"""Makes a failing program small: removes and simplifies parts of its syntax tree as long as it fails in the same way."""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Callable, Iterator

Fails = Callable[[str], bool]
BODIES = ("body", "orelse", "finalbody", "handlers")


def statements(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements, the outermost first."""
    for node in ast.walk(tree):
        for name in BODIES:
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def text_of(tree: ast.Module) -> str | None:
    filled = copy.deepcopy(tree)
    for node in ast.walk(filled):
        if isinstance(getattr(node, "body", None), list) and not node.body:  # type: ignore[attr-defined]
            if isinstance(node, ast.Module):
                return None
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        if isinstance(node, ast.Try) and not node.handlers and not node.finalbody:
            return None
    try:
        return ast.unparse(ast.fix_missing_locations(filled))
    except (ValueError, AttributeError, RecursionError):
        return None


class Shrinker:
    def __init__(self, source: str, fails: Fails, tries: int = 2000) -> None:
        self.tree, self.fails, self.left = ast.parse(source), fails, tries
        self.seen: set[str] = set()

    def attempt(self) -> bool:
        """Whether the tree, as it has just been changed, still fails."""
        text = text_of(self.tree)
        if text is None or text in self.seen or self.left <= 0:
            return False
        self.seen.add(text)
        self.left -= 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(text, "<shrunk>", "exec")
        except (SyntaxError, ValueError):
            return False
        return self.fails(text)

    def shrink(self) -> str:
        """Passes until none helps."""
        changed = True
        while changed and self.left > 0:
            changed = self.remove_statements() | self.unwrap_statements() | self.simplify_expressions()
        return text_of(self.tree) or ""

    def remove_statements(self) -> bool:
        changed = False
        bodies = list(statements(self.tree))
        for body in bodies:
            size = len(body)
            while size >= 1:
                at = 0
                while at < len(body):
                    removed = body[at : at + size]
                    del body[at : at + size]
                    if self.attempt():
                        changed = True
                    else:
                        body[at:at] = removed
                        at += size
                size //= 2
        return changed

    def unwrap_statements(self) -> bool:
        """A compound statement becomes its body; an else, a handler or a decorator goes."""
        changed = False
        for body in list(statements(self.tree)):
            at = 0
            while at < len(body):
                node = body[at]
                inner = getattr(node, "body", None)
                if isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)) and inner:
                    body[at : at + 1] = inner
                    if self.attempt():
                        changed = True
                        continue
                    body[at : at + len(inner)] = [node]
                at += 1
        for node in list(ast.walk(self.tree)):
            for name in ("orelse", "finalbody", "handlers", "decorator_list", "bases", "generators"):
                part = getattr(node, name, None)
                if isinstance(part, list) and part and not (name == "generators" and len(part) < 2):
                    kept = part[:]
                    part.clear()
                    if self.attempt():
                        changed = True
                    else:
                        part[:] = kept
        return changed

    def simplify_expressions(self) -> bool:
        """An expression becomes one of its parts, or a constant."""
        changed = False
        for node in list(ast.walk(self.tree)):
            for name, value in list(ast.iter_fields(node)):
                if isinstance(value, ast.expr) and isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
                    changed |= self.replace(lambda v, n=node, f=name: setattr(n, f, v), value)
                elif isinstance(value, list):
                    changed |= self.shorten(value)
        return changed

    def shorten(self, values: list[ast.AST]) -> bool:
        changed = False
        for at in range(len(values) - 1, -1, -1):
            value = values[at]
            if not isinstance(value, (ast.expr, ast.keyword, ast.arg)):
                continue
            del values[at]
            if self.attempt():
                changed = True
                continue
            values.insert(at, value)
            if isinstance(value, ast.expr) and isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
                changed |= self.replace(lambda v, at=at: values.__setitem__(at, v), value)
        return changed

    def replace(self, put: Callable[[ast.expr], None], value: ast.expr) -> bool:
        if isinstance(value, (ast.Constant, ast.Name)):
            return False
        parts = [one for one in ast.iter_child_nodes(value) if isinstance(one, ast.expr)]
        for smaller in [ast.Constant(1), *parts]:
            put(smaller)
            if self.attempt():
                if smaller in parts:
                    self.replace(put, smaller)
                return True
        put(value)
        return False


def shrink(source: str, fails: Fails, tries: int = 2000) -> str:
    """The smallest program found that still fails."""
    return Shrinker(source, fails, tries).shrink()

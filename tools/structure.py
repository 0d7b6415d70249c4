"""Checks the shape of the source tree: sizes, names and layers. `make lint` runs it as its first step.

    python tools/structure.py            prints one line for each violation; exit status 1 if there is one
    python tools/structure.py --prune    removes the exceptions that nothing needs any more

    lines       no file of csrc/ or alternator/ has more than 500 lines
    functions   no function has more than 80, but for those that CONTRIBUTING.md lists with the reason
    names       a base name stands for one subject in the whole of csrc/: its .h, .cpp and .def lie side by side
    layers      every #include is allowed by csrc/layers.txt, whose edges lead downwards and are all used
    package     only dispatch, backend and bindings import modules of the Python package
    strings     callables and types are told apart by identity, not by comparing their names

What may stay is listed in csrc/exceptions.txt. An exception that nothing needs any more is a violation too.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

MAX_FILE = 500
MAX_FUNCTION = 80
SOURCES = (".h", ".cpp", ".c", ".def")
IMPORTERS = ("dispatch", "backend", "bindings")


@dataclasses.dataclass(frozen=True)
class Violation:
    check: str
    subject: str  # what an exception names: a file, or "file function"
    text: str

    def __str__(self) -> str:
        return f"structure: {self.check}: {self.text}"


# ------------------------------------------------------------------------------------------------------------ C++ source


def without_comments(text: str, keep_strings: bool = False) -> str:
    """The text with comments (and what strings hold) as blanks, line by line as it was."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] == "/":
            return re.sub(r"[^\n]", " ", found)
        return found if keep_strings else found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]

    raw = r'R"(?P<tag>[^(\s]*)\((?s:.*?)\)(?P=tag)"'
    token = rf"""//(?:\\\n|[^\n])*|/\*(?s:.*?)\*/|{raw}|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"""
    return re.sub(token, blank, text)


def without_directives(text: str) -> str:
    """Blanks for preprocessor lines, and for all but the first branch of an #if: the braces balance in one of them."""
    lines = []
    taken: list[bool] = []  # for each open #if: whether its first branch is being read
    continued = False
    for line in text.split("\n"):
        directive = continued or re.match(r"\s*#", line) is not None
        if directive and not continued:
            word = (re.match(r"\s*#\s*(\w*)", line) or [""] * 2)[1]
            if word in ("if", "ifdef", "ifndef"):
                taken.append(True)
            elif word in ("else", "elif") and taken:
                taken[-1] = False
            elif word == "endif" and taken:
                taken.pop()
        continued = directive and line.endswith("\\")
        lines.append("" if directive or not all(taken) else line)
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    line: int
    lines: int  # from the line of its opening brace to that of the closing one


SCOPE = re.compile(
    r"^(?:template\s*<.*>\s*)?(?:inline\s+)?(?:typedef\s+)?(?:namespace|class|struct|union|enum|extern)\b"
)
BODY = re.compile(r"(?:\)|\}|\b(?:const|noexcept|override|final|try|mutable))$|\)[^()]*->[^(){};]*$")


def functions(text: str) -> Iterator[Function]:
    """The function definitions of a C++ file, those inside of classes included; a lambda is a part of its function."""
    text = without_directives(without_comments(text))
    header_start = 0
    scopes: list[str] = []  # of the open braces: "scope", "function", "value"
    begun: list[tuple[str, int]] = []
    for position, char in enumerate(text):
        if char == "{":
            if "function" in scopes:
                scopes.append("value")
                continue
            header = " ".join(text[header_start:position].split())
            if SCOPE.match(header) and not header.endswith(")"):
                kind = "scope"
            elif "(" in header and BODY.search(header):
                kind = "function"
                names = re.findall(r"((?:[\w:]+::)?operator\s*\S+?|[\w:~]+)\s*\(", header)
                begun.append((names[0] if names else "?", text.count("\n", 0, position) + 1))
            else:
                kind = "value" if header else "scope"
            scopes.append(kind)
            if kind != "value":
                header_start = position + 1
        elif char == "}":
            kind = scopes.pop() if scopes else "scope"
            if kind == "function":
                name, line = begun.pop()
                yield Function(name, line, text.count("\n", 0, position) + 2 - line)
            if kind != "value" and "function" not in scopes:
                header_start = position + 1
        elif char == ";" and (not scopes or scopes[-1] == "scope"):
            header_start = position + 1


# ---------------------------------------------------------------------------------------------------------------- layers


class Layers:
    """csrc/layers.txt: for each room or sub-room, what it may include."""

    def __init__(self, text: str) -> None:
        self.allowed: dict[str, list[str]] = {}
        self.groups: list[list[str]] = []  # of sub-rooms that may name each other in both directions
        for line in text.splitlines():
            if match := re.match(r"([\w/]+):\s*(.*)", line.partition("#")[0]):
                self.allowed[match[1]] = match[2].split()
            elif match := re.match(r"\[([\w/ ]+)\]", line):
                self.groups.append(match[1].split())

    def upwards(self) -> Iterator[tuple[str, str]]:
        """(row, name): names of what does not stand above, in no group with the row."""
        above: list[str] = []
        for row, names in self.allowed.items():
            for name in names:
                is_above = any(other == name or other.startswith(name + "/") for other in above)
                if not is_above and not any(row in group and name in group for group in self.groups):
                    yield row, name
            above.append(row)

    def unit(self, path: str) -> str | None:
        """The longest row that a path below csrc/ belongs to."""
        rows = [row for row in self.allowed if path.startswith(row + "/")]
        return max(rows, key=len, default=None)

    def allowed_for(self, source: str, target: str) -> list[str]:
        """The names in the row of `source` that allow it to include `target`."""
        return [name for name in self.allowed.get(self.unit(source) or "", []) if target.startswith(name + "/")]

    def allows(self, source: str, target: str) -> bool:
        unit, other = self.unit(source), self.unit(target)
        return unit is not None and (unit == other or (other is not None and bool(self.allowed_for(source, target))))


# ---------------------------------------------------------------------------------------------------------------- checks


# A name that is compared with a literal. Names of keywords and of attributes are no identities of callables or types: of
# strings in Python objects, only the names of code objects and types and dotted names count.
COMPARED = re.compile(
    r"""
    str(?:\w*cmp|str)\( [^;"]* (?: [tm][pl]_name | name[^;"]*, \s* " )
    | CompareWithASCIIString\( [^;"]* (?: co_name | co_qualname | tp_name | "\w+\.[\w.]+" )
    | (?: name | \bword )\w*\)? \. (?:starts|ends)_with\( "[^"]*[a-z]
    | (?: [!=]=\s* | starts_with\( | str\w*cmp\([^;"]*,\s* ) "torch[."]
    | (?: name | \bword )\w* (?: \( (?: [^()] | \([^()]*\) )* \) )? \)? \s* [!=]= \s* "
    """,
    re.VERBOSE,
)


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.csrc = root / "csrc"
        self.cpp = sorted(path for path in self.csrc.rglob("*") if path.suffix in SOURCES)
        self.python = sorted((root / "alternator").rglob("*.py"))
        self.texts = {path: path.read_text() for path in [*self.cpp, *self.python]}

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def below(self, path: Path) -> str:
        return path.relative_to(self.csrc).as_posix()

    def lines(self) -> Iterator[Violation]:
        for path, text in self.texts.items():
            count = text.count("\n")
            if count > MAX_FILE:
                yield Violation("lines", self.name(path), f"{self.name(path)} has {count} lines, more than {MAX_FILE}")

    def functions(self) -> Iterator[Violation]:
        for path, source in self.texts.items():
            for function in python_functions(source) if path.suffix == ".py" else functions(source):
                if function.lines > MAX_FUNCTION:
                    where = f"{self.name(path)}:{function.line}: {function.name}"
                    text = f"{where} has {function.lines} lines, more than {MAX_FUNCTION}"
                    yield Violation("functions", f"{self.name(path)} {function.name}", text)

    def names(self) -> Iterator[Violation]:
        folders: dict[str, set[str]] = defaultdict(set)
        for path in self.cpp:
            folders[path.stem].add(self.name(path.parent))
        for stem, found in sorted(folders.items()):
            if len(found) > 1:
                yield Violation("names", stem, f"{stem} is in {' and in '.join(sorted(found))}")

    def layers(self) -> Iterator[Violation]:
        layers = Layers((self.csrc / "layers.txt").read_text())
        for row, name in layers.upwards():
            yield Violation("layers", f"{row} {name}", f"layers.txt: {row} names {name}, which does not stand above it")
        unused = {(row, name) for row, names in layers.allowed.items() for name in names}
        for path in self.cpp:
            source = self.below(path)
            if layers.unit(source) is None:
                yield Violation("layers", self.name(path), f"{self.name(path)} belongs to no row of layers.txt")
                continue
            for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', self.texts[path], re.M):
                if not (self.csrc / target).exists():
                    continue
                unused -= {(layers.unit(source), row) for row in layers.allowed_for(source, target)}
                if not layers.allows(source, target):
                    text = f"{self.name(path)} includes {target}: {layers.unit(source)} -> {layers.unit(target)}"
                    yield Violation("layers", f"{self.name(path)} {target}", text)
        for row, name in sorted(unused):
            yield Violation("layers", f"{row} {name}", f"layers.txt: {row} names {name}, which it does not include")

    def package(self) -> Iterator[Violation]:
        """The name of a module of the package in a string."""
        for path in self.cpp:
            if self.below(path).startswith(IMPORTERS):
                continue
            for found in re.findall(r'"(alternator\.\w[\w.]*)"', without_comments(self.texts[path], keep_strings=True)):
                if self.is_module(found):
                    text = f"{self.name(path)} names the module {found} of the package"
                    yield Violation("package", self.name(path), text)

    def is_module(self, name: str) -> bool:
        path = self.root / name.replace(".", "/")
        return path.with_suffix(".py").exists() or (path / "__init__.py").exists()

    def strings(self) -> Iterator[Violation]:
        for path in self.cpp:
            if path.suffix == ".def":
                continue
            text = without_comments(self.texts[path], keep_strings=True)
            if found := list(COMPARED.finditer(text)):
                line = text.count("\n", 0, found[0].start()) + 1
                first = f"{self.name(path)}:{line} compares names ({len(found)} times): {found[0][0]}..."
                yield Violation("strings", self.name(path), first)

    def violations(self) -> list[Violation]:
        return [
            *self.lines(),
            *self.functions(),
            *self.names(),
            *self.layers(),
            *self.package(),
            *self.strings(),
        ]


def python_functions(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)


def exceptions(root: Path) -> dict[tuple[str, str], str]:
    """(check, subject) -> reason: the rows of csrc/exceptions.txt, and the functions that CONTRIBUTING.md lists."""
    found = {}
    path = root / "csrc/exceptions.txt"
    for line in path.read_text().splitlines() if path.exists() else []:
        if match := re.match(r"(\w+): (\S+(?: \S+)?)  +(\S.*)", line):
            found[match[1], match[2]] = match[3]
        elif line and not line.startswith("#"):
            raise SystemExit(f"structure: exceptions.txt: not `check: subject  reason`: {line}")
    page = root / "CONTRIBUTING.md"
    row = re.compile(r"^\| `([\w:~]+)` \| `((?:csrc|alternator)/[\w/.]+)` \| (.+) \|$", re.M)
    for match in row.finditer(page.read_text() if page.exists() else ""):
        found["functions", f"{match[2]} {match[1]}"] = match[3]
    return found


def check(root: Path) -> list[str]:
    """What is wrong, one line each."""
    allowed = exceptions(root)
    violations = Tree(root).violations()
    wrong = [str(violation) for violation in violations if (violation.check, violation.subject) not in allowed]
    for name, subject in unneeded(allowed, violations):
        wrong.append(f"structure: {name}: nothing needs the exception for {subject}")
    return wrong


def unneeded(allowed: dict[tuple[str, str], str], violations: list[Violation]) -> list[tuple[str, str]]:
    needed = {(violation.check, violation.subject) for violation in violations}
    return [row for row in allowed if row not in needed]


def prune(root: Path) -> None:
    path = root / "csrc/exceptions.txt"
    heads = tuple(f"{name}: {subject}  " for name, subject in unneeded(exceptions(root), Tree(root).violations()))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(heads)))


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    if "--prune" in sys.argv[1:]:
        prune(root)
    wrong = check(root)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

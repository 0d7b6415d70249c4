"""tools/structure.py: the tree has the shape that it checks, and each check fails on a tree that does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("structure", ROOT / "tools/structure.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


structure = load()


def tree(folder: Path, files: dict[str, str]) -> Path:
    given = {
        "csrc/layers.txt": "# comment\npy:\nlift/sources: py\nlift/lifting:\ntrace: lift\n",
        "csrc/py/ref.h": "#pragma once\n",
        "csrc/lift/sources/source.h": '#include "py/ref.h"\n',
        "csrc/trace/core/tracer.h": '#include "lift/sources/source.h"\n#include "Python.h"\n',
        **files,
    }
    for name, text in given.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def long_function(lines: int) -> str:
    return "int f(int x) {\n" + "  x++;\n" * (lines - 2) + "}\n"


def test_the_tree() -> None:
    assert structure.check(ROOT) == []


def test_a_tree_in_order(tmp_path: Path) -> None:
    assert structure.check(tree(tmp_path, {"csrc/trace/core/a.cpp": long_function(80)})) == []


VIOLATIONS = {
    "lines": ({"csrc/py/long.h": "\n" * 501}, "csrc/py/long.h has 501 lines"),
    "lines of Python": ({"alternator/long.py": "\n" * 501}, "alternator/long.py has 501 lines"),
    "functions": ({"csrc/py/a.cpp": "\n" + long_function(81)}, "csrc/py/a.cpp:2: f has 81 lines"),
    "functions of Python": (
        {"alternator/a.py": "def f():\n" + "    pass\n" * 80},
        "alternator/a.py:1: f has 81 lines",
    ),
    "names": ({"csrc/trace/core/ref.cpp": ""}, "ref is in csrc/py and in csrc/trace/core"),
    "layers, upwards": (
        {"csrc/lift/sources/up.cpp": '#include "trace/core/tracer.h"\n'},
        "csrc/lift/sources/up.cpp includes trace/core/tracer.h: lift/sources -> trace",
    ),
    "layers, within a room": (
        {"csrc/lift/lifting/lifter.h": "", "csrc/lift/sources/up.cpp": '#include "lift/lifting/lifter.h"\n'},
        "lift/sources -> lift/lifting",
    ),
    "layers, no row": ({"csrc/attic/a.h": ""}, "csrc/attic/a.h belongs to no row"),
    "layers, a row that names what stands below": (
        {
            "csrc/layers.txt": "py: lift\nlift: py\ntrace: lift\n",
            "csrc/py/a.h": '#include "lift/sources/source.h"\n',
        },
        "layers.txt: py names lift, which does not stand above it",
    ),
    "layers, an edge that nothing uses": (
        {
            "csrc/layers.txt": "py:\nreport: py\nlift: py\ntrace: lift report\n",
            "csrc/report/a.h": '#include "py/ref.h"\n',
        },
        "layers.txt: trace names report, which it does not include",
    ),
    "package": (
        {"csrc/py/a.cpp": 'import("alternator.config");', "alternator/config.py": ""},
        "names the module alternator.config",
    ),
    "strings, names": (
        {"csrc/trace/core/a.cpp": 'if (name == "len") return;'},
        "csrc/trace/core/a.cpp:1 compares names",
    ),
    "strings, calls": ({"csrc/trace/core/a.cpp": 'if (name_of(f(x)) != "len") return;'}, "compares names"),
    "strings, prefixes": ({"csrc/py/a.cpp": 'name.starts_with("torch.nn.")'}, "compares names"),
    "strings, packages": ({"csrc/py/a.cpp": 'strncmp(text, "torch.", 6) == 0'}, "compares names"),
    "strings, code": (
        {"csrc/py/a.cpp": 'PyUnicode_CompareWithASCIIString(code->co_name, "f") == 0'},
        "compares names",
    ),
    "strings, modules": ({"csrc/py/a.cpp": 'PyUnicode_CompareWithASCIIString(x, "collections.abc")'}, "compares names"),
    "strings, methods": ({"csrc/py/a.cpp": 'strcmp(native_name(f), "append")'}, "compares names"),
    "strings, types": ({"csrc/py/a.cpp": 'strcmp(Py_TYPE(x)->tp_name, "re.Match")'}, "compares names"),
    "an exception without need": ({"csrc/exceptions.txt": "lines: csrc/py/ref.h  a reason\n"}, "nothing needs"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation(tmp_path: Path, name: str) -> None:
    files, text = VIOLATIONS[name]
    (found,) = structure.check(tree(tmp_path, files))
    assert text in found
    if "exception" not in name:
        assert found.startswith(f"structure: {name.split(',')[0].split(' ')[0]}: ")


def test_exceptions(tmp_path: Path) -> None:
    files = {
        "csrc/py/a.cpp": long_function(81),
        "csrc/py/b.cpp": long_function(81).replace("int f", "int Loop::run"),
        "csrc/exceptions.txt": "# why\nfunctions: csrc/py/a.cpp f  it is a list\n",
        "CONTRIBUTING.md": "| function | file | reason |\n|---|---|---|\n| `Loop::run` | `csrc/py/b.cpp` | the loop |\n",
    }
    assert structure.check(tree(tmp_path, files)) == []


def test_prune(tmp_path: Path) -> None:
    rows = "functions: csrc/py/a.cpp f  it is a list\n"
    root = tree(
        tmp_path,
        {"csrc/py/a.cpp": long_function(81), "csrc/exceptions.txt": f"# why\n{rows}lines: csrc/py/a.cpp  long\n"},
    )
    structure.prune(root)
    assert (root / "csrc/exceptions.txt").read_text() == f"# why\n{rows}"


def test_what_is_no_violation(tmp_path: Path) -> None:
    text = """
// name == "x", "alternator.config", strcmp(type->tp_name, "x")
/* #include "trace/core/tracer.h" */
const char* type_name = "alternator._C.Thing";
const bool is_keyword = keyword == "dtype" || PyUnicode_CompareWithASCIIString(name, "dtype") == 0;
const char* other = "name == \\"x\\"";
"""
    assert structure.check(tree(tmp_path, {"csrc/py/a.cpp": text})) == []


def test_a_group_of_sub_rooms(tmp_path: Path) -> None:
    files = {
        "csrc/layers.txt": "py:\nlift: py\n[trace/core trace/calls]\ntrace/core: trace/calls lift\ntrace/calls: trace/core\n",
        "csrc/trace/calls/calls.h": '#include "trace/core/tracer.h"\n',
        "csrc/trace/core/a.cpp": '#include "trace/calls/calls.h"\n',
    }
    assert structure.check(tree(tmp_path, files)) == []
    files["csrc/layers.txt"] = files["csrc/layers.txt"].replace("[trace/core trace/calls]\n", "")
    (found,) = structure.check(tree(tmp_path, files))
    assert "trace/core names trace/calls, which does not stand above it" in found


def found(text: str) -> list[tuple[str, int, int]]:
    return [(function.name, function.line, function.lines) for function in structure.functions(text)]


def test_functions_are_found() -> None:
    text = """
namespace a::b {
namespace {
struct S : Base<int> {
  S(int x) : x_{x}, y_(x) { go(); }
  template <class T>
  T get() const noexcept {
    return [&] {
      return T{};
    }();
  }
  int x_ = 0, y_{1};
};
constexpr int kRows[] = {
    {1},
};
}  // namespace
#if A
int f(const char* text = "{") {
#else
int f() {
#endif
  if (x) {
    for (;;) {}
  }
}
auto g(std::vector<int> x = {}) -> std::pair<int, Ref> {
  char c = '{';
  int big = 1'000'000;
}
enum class E { kA };
extern "C" {
static PyObject* slot(PyObject*) { return nullptr; }
}
bool S::operator==(const S& other) const { return true; }
}  // namespace a::b
"""
    expected = [("S", 5, 1), ("get", 7, 5), ("f", 19, 8), ("g", 27, 4), ("slot", 33, 1), ("S::operator==", 35, 1)]
    assert found(text) == expected

"""torch.utils._pytree and its C++ twin: flatten, map, unflatten over every kind of node; as input, as output and inside."""

from __future__ import annotations

import collections
import dataclasses
import typing

import pytest
import torch
import torch.utils._pytree as pytree
from harness import REGISTRY, T, add_row, check, program

try:
    import optree
    import torch.utils._cxx_pytree as cxx_pytree
except ImportError:
    optree = cxx_pytree = None

Point = collections.namedtuple("Point", "x y")


class Pair:
    """A user's node."""

    def __init__(self, left, right, note=""):
        self.left, self.right, self.note = left, right, note


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    name: str = "b"


class Opaque:
    def __init__(self, value):
        self.value = value


pytree.register_pytree_node(
    Pair,
    lambda p: ([p.left, p.right], p.note),
    lambda children, note: Pair(*children, note),
    serialized_type_name="test.Pair",
)
pytree.register_dataclass(Batch, field_names=["x", "y"], drop_field_names=["name"])

TREES: dict[str, typing.Any] = {
    "leaf": lambda s: T(2, s=s),
    "list": lambda s: [T(2, s=s), [T(3)], []],
    "tuple": lambda s: (T(2, s=s), (1, "a"), ()),
    "dict": lambda s: {"b": T(2, s=s), "a": {"c": T(3)}},
    "named tuple": lambda s: Point(T(2, s=s), [T(3)]),
    "OrderedDict": lambda s: collections.OrderedDict(b=T(2, s=s), a=T(3)),
    "defaultdict": lambda s: collections.defaultdict(list, b=[T(2, s=s)], a=T(3)),
    "deque": lambda s: collections.deque([T(2, s=s), 3], maxlen=5),
    "user node": lambda s: Pair(T(2, s=s), {"k": T(3)}, "note"),
    "dataclass node": lambda s: Batch(T(2, s=s), T(3)),
    "not a node": lambda s: [Opaque(T(2, s=s)), None, 1.5, "s"],
    "mixed": lambda s: {
        "l": [Pair(T(2, s=s), (1, None)), Batch(T(2), T(2))],
        "t": (Point(T(1), 2), collections.deque([T(1)])),
    },
    "None": lambda s: [None, {"k": None}, T(2, s=s)],
}


def scale(leaf):
    return leaf * 2 if isinstance(leaf, torch.Tensor) else leaf


def flatten_script(module, make):
    def script(t):
        def fn(tree):
            leaves, spec = module.tree_flatten(tree)
            back = module.tree_unflatten([scale(leaf) for leaf in leaves], spec)
            return back, len(leaves), spec.num_leaves

        f = t.compile(fn)
        f(make(0))
        f.hit(make(1))

    return script


def map_script(module, make):
    def script(t):
        def fn(tree):
            return (
                module.tree_map(scale, tree),
                module.tree_map_only(torch.Tensor, lambda x: x + 1, tree),
                module.tree_leaves(tree),
            )

        f = t.compile(fn)
        f(make(0))
        f.hit(make(1))

    return script


def structure_script(module, make):
    """One structure, then another."""

    def script(t):
        f = t.compile(lambda tree: [scale(leaf) for leaf in module.tree_leaves(tree)])
        f(make(0))
        f([make(0), T(2)])
        f({"k": make(0)})
        f.hit(make(1))

    return script


def trees_that_do_not_fit(t, module):
    def fn(a, b):
        try:
            return module.tree_map(lambda p, q: p + q, a, b)
        except ValueError as error:
            return type(error).__name__, str(error)

    f = t.compile(fn)
    f([T(2)], [T(2), T(2)])
    f([T(2)], [T(2)])


def in_and_out_script(make):
    def script(t):
        f = t.compile(lambda tree, x: (tree, x + 1))
        f(make(0), T(2))
        f(make(1), T(2))

    return script


SCRIPTS = {"flatten": flatten_script, "map": map_script, "structure": structure_script}
MODULES = {"pytree": pytree, "cxx_pytree": cxx_pytree}
ROWS = {
    f"{name}-{kind}-{tree}": add_row(__name__, "test_tree", f"{name}-{kind}-{tree}", make_script(module, make))
    for name, module in MODULES.items()
    if module is not None
    for kind, make_script in SCRIPTS.items()
    for tree, make in TREES.items()
}
ROWS |= {
    f"in and out-{tree}": add_row(__name__, "test_tree", f"in and out-{tree}", in_and_out_script(make))
    for tree, make in TREES.items()
}


@pytest.mark.parametrize("name", list(ROWS.values()), ids=list(ROWS))
def test_tree(name):
    check(REGISTRY[name])


def test_the_cxx_twin_is_tested():
    if cxx_pytree is None:
        pytest.skip("torch.utils._cxx_pytree needs optree, which is not installed")


if cxx_pytree is not None:

    @program()
    def test_structure_as_argument(t):
        def fn(leaves, spec):
            tree = cxx_pytree.tree_unflatten([leaf * 2 for leaf in leaves], spec)
            return tree, spec, spec.num_leaves, spec.namespace, len(spec.children())

        f = t.compile(fn)
        for make in (TREES["list"], TREES["dict"], TREES["user node"], TREES["mixed"]):
            leaves, spec = cxx_pytree.tree_flatten(make(0))
            leaves = [leaf if isinstance(leaf, torch.Tensor) else T(2) for leaf in leaves]
            f(leaves, spec)
            f.hit(leaves, spec)
            again = cxx_pytree.tree_structure(make(1))  # another object that says the same
            f.hit(leaves, again)
        f([T(2), T(2)], cxx_pytree.tree_structure([1, 2]))
        f([T(2), T(2)], cxx_pytree.tree_structure((1, 2)))
        f([T(2), T(2)], cxx_pytree.tree_structure({"a": 1, "b": 2}))
        f([T(2), T(2)], cxx_pytree.tree_structure({"b": 1, "a": 2}))
        f([T(2), T(2)], cxx_pytree.tree_structure(Pair(1, 2, "note")))
        f([T(2), T(2)], cxx_pytree.tree_structure(Pair(1, 2, "another")))

    @program()
    def test_structure_as_result(t):
        def fn(tree, x):
            spec = cxx_pytree.tree_structure(tree)
            return spec, spec == cxx_pytree.tree_structure([x, x]), {"again": spec}, x + 1

        f = t.compile(fn)
        f([T(2), T(3)], T(1))
        f.hit([T(2), T(3)], T(1, s=1))
        f({"k": Pair(T(1), T(2), ["a list"])}, T(1))
        f.hit({"k": Pair(T(1), T(2), ["a list"])}, T(1))
        f({"k": Pair(T(1), T(2), ["another"])}, T(1))

    @program()
    def test_structure_in_a_global(t):
        space = {"spec": cxx_pytree.tree_structure([1, (2, 3)]), "pytree": cxx_pytree}
        exec("def fn(x): return pytree.tree_unflatten([x, x + 1, x + 2], spec)", space)
        f = t.compile(space["fn"])
        f(T(2))
        f.hit(T(2))
        space["spec"] = cxx_pytree.tree_structure([(1, 2), 3])
        f(T(2))
        space["spec"] = cxx_pytree.tree_structure([1, (2, 3)])
        f.hit(T(2))

    @program(one_graph=False)
    def test_order_of_dicts(t):
        f = t.compile(lambda tree: [scale(leaf) for leaf in cxx_pytree.tree_leaves(tree)])
        g = t.compile(lambda tree: [scale(leaf) for leaf in optree.tree_leaves(tree)])
        tree = {"b": T(2), "a": T(3)}
        for call in (f, g):
            call(tree)
            call.hit(tree)
        every = getattr(optree.registry, "__GLOBAL_NAMESPACE")  # noqa: B009
        for mode, space in ((False, "torch"), (True, "torch"), (True, every)):
            with optree.dict_insertion_ordered(mode, namespace=space):
                f(tree)
                g(tree)
        for call in (f, g):
            call.hit(tree)

    @program()
    def test_a_class_that_becomes_a_node(t):
        class Late:
            def __init__(self, value):
                self.value = value

        f = t.compile(lambda tree: [scale(leaf) for leaf in cxx_pytree.tree_leaves(tree)])
        f([Late(T(2)), T(2)])
        f.hit([Late(T(2)), T(2)])
        pytree.register_pytree_node(
            Late, lambda node: ([node.value], None), lambda children, _: Late(*children), serialized_type_name="Late"
        )
        f([Late(T(2)), T(2)])
        f.hit([Late(T(2)), T(2)])

    @program()
    def test_two_trees_and_what_is_a_leaf(t):
        def fn(a, b, stop):
            mapped = cxx_pytree.tree_map(lambda p, q: p + q, a, b)
            counted = []

            def is_leaf(node):
                counted.append(type(node).__name__)
                return isinstance(node, stop)

            leaves = cxx_pytree.tree_leaves(a, is_leaf=is_leaf)
            return mapped, leaves, counted, cxx_pytree.tree_all(lambda leaf: leaf.dim() == 1, a)

        f = t.compile(fn)
        f({"k": [T(2), (T(3),)]}, {"k": [T(2), (T(3),)]}, tuple)
        f.hit({"k": [T(2), (T(3),)]}, {"k": [T(2, s=1), (T(3),)]}, tuple)
        f({"k": [T(2), (T(3),)]}, {"k": [T(2), (T(3),)]}, list)

    @program(one_graph=False)
    def test_trees_that_do_not_fit(t):
        trees_that_do_not_fit(t, cxx_pytree)

    @program()
    def test_what_a_node_raises(t):
        class Odd:
            pass

        def take_apart(node):
            raise ValueError(f"not {node.name}")

        pytree.register_pytree_node(Odd, take_apart, lambda children, _: Odd(), serialized_type_name="test.Odd")

        def fn(node, x):
            try:
                return cxx_pytree.tree_leaves([x, node])
            except ValueError as error:
                return x + 1, str(error)

        f = t.compile(fn)
        odd = Odd()
        odd.name = "this"
        f(odd, T(2))
        f.hit(odd, T(2))
        odd.name = "that"
        f(odd, T(2))


@program()
def test_tree_map_over_two_trees(t):
    def fn(a, b):
        return pytree.tree_map(lambda p, q: p + q, a, b)

    f = t.compile(fn)
    f({"k": [T(2)]}, {"k": [T(2)]})
    f.hit({"k": [T(2)]}, {"k": [T(2, s=1)]})
    f({"k": [T(2)], "j": 1}, {"k": [T(2)], "j": 2})


@program()
def test_tree_map_that_fails(t):
    trees_that_do_not_fit(t, pytree)


@program()
def test_tree_all_any_and_paths(t):
    def fn(tree):
        paths = [(pytree.keystr(path), leaf * 2) for path, leaf in pytree.tree_leaves_with_path(tree)]
        return pytree.tree_all(torch.is_tensor, tree), pytree.tree_any(torch.is_tensor, tree), paths

    f = t.compile(fn)
    f({"a": [T(2)], "b": Point(T(2), T(2))})
    f.hit({"a": [T(2)], "b": Point(T(2), T(2))})


@program()
def test_tree_map_with_path(t):
    f = t.compile(lambda tree: pytree.tree_map_with_path(lambda path, leaf: (str(path), leaf + 1), tree))
    f({"a": [T(2)], "b": (T(2), Pair(T(1), T(1)))})
    f.hit({"a": [T(2)], "b": (T(2), Pair(T(1), T(1)))})


@program()
def test_is_leaf(t):
    f = t.compile(
        lambda tree: pytree.tree_map(lambda leaf: len(leaf), tree, is_leaf=lambda node: isinstance(node, list))
    )
    f({"a": [1, 2], "b": {"c": [3]}})
    f.hit({"a": [1, 2], "b": {"c": [3]}})
    f({"a": [1, 2, 3], "b": {"c": [3]}})


@program()
def test_spec_from_outside(t):
    _, spec = pytree.tree_flatten({"a": 1, "b": [2, 3]})
    f = t.compile(lambda x, y: pytree.tree_unflatten([x, y, x + y], spec))
    f(T(2), T(2))
    f.hit(T(2), T(2))
    _, spec = pytree.tree_flatten([1, (2, 3)])
    f(T(2), T(2))


@program()
def test_spec_as_result_and_argument(t):
    def fn(tree):
        leaves, spec = pytree.tree_flatten(tree)
        return [leaf * 2 for leaf in leaves], spec

    f = t.compile(fn)
    leaves, spec = f({"a": T(2), "b": [T(2)]})
    t.note(pytree.tree_unflatten(leaves, spec))
    leaves, again = f.hit({"a": T(2), "b": [T(2)]})
    t.note((pytree.tree_unflatten(leaves, again), again == spec))
    g = t.compile(lambda leaves, spec: (pytree.tree_unflatten(leaves, spec), spec.num_leaves))
    g(leaves, spec)
    g(leaves, again)


@program()
def test_node_registered_later(t):
    class Late:
        def __init__(self, value):
            self.value = value

    f = t.compile(lambda tree: [leaf if isinstance(leaf, Late) else leaf * 2 for leaf in pytree.tree_leaves(tree)])
    f([Late(T(2)), T(2)])
    pytree.register_pytree_node(Late, lambda n: ([n.value], None), lambda children, _: Late(*children))
    f([Late(T(2)), T(2)])
    t.undo(lambda: pytree._deregister_pytree_node(Late) if hasattr(pytree, "_deregister_pytree_node") else None)


@program()
def test_node_with_context_that_is_compared(t):
    def fn(a, b):
        return pytree.tree_structure(a) == pytree.tree_structure(b), pytree.tree_leaves(a)[0] + 1

    f = t.compile(fn)
    f(Pair(T(2), 1, "n"), Pair(T(2), 1, "n"))
    f(Pair(T(2), 1, "n"), Pair(T(2), 1, "m"))
    f({"a": T(2), "b": 1}, {"b": 1, "a": T(2)})

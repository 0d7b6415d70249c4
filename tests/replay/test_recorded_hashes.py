"""Keys with a `__hash__` and an `__eq__` in Python: a replay puts them under the hashes that the trace saw, and asks nobody."""

import collections
import weakref

from harness import T, program


def counting(log):
    class Key:
        def __init__(self, n, tag=None):
            self.n, self.tag = n, tag

        def __hash__(self):
            log.append(("hash", self.n, self.tag))
            return self.n % 3

        def __eq__(self, other):
            log.append(("eq", self.n, self.tag))
            return isinstance(other, Key) and self.n == other.n

        def __repr__(self):
            return f"Key({self.n})"

    return Key


@program(graphs=1)
def test_dicts_sets_and_their_like(t):
    log = []
    Key = counting(log)

    def fn(x):
        a, b, c = Key(1), Key(4), Key(2)
        d = {a: x, b: 2, "s": 3, 1: 4}
        d[Key(1)] = x + 1
        s = {a, c, Key(2), 7}
        f = frozenset([a, b])
        o = collections.OrderedDict([(c, 1), (a, x * 2), ("z", 3)])
        o.move_to_end(c)
        return d, s, f, o, {f: 1, (c, 1): 2}, collections.Counter([a, a, b]), collections.defaultdict(list, {c: []})

    f = t.compile(fn)
    t.watch(lambda: log)
    for _ in range(2):
        d, s, fs, o, nested, counter, default = f(T(3))
        log.append("asked from outside")
        log.append(
            (
                d[Key(4)],
                Key(2) in s,
                Key(4) in fs,
                o[Key(1)] is o[Key(1)],
                nested[frozenset([Key(4), Key(1)])],
                nested[Key(2), 1],
                default[Key(2)],
            )
        )
        log.append(list(map(repr, s)))
        o.move_to_end(Key(1), last=False)
        del o[Key(2)]
        d[Key(4)] = 9
        s.discard(Key(2))
        s.add(Key(8))
    f.hit(T(3))


@program(graphs=2)
def test_what_they_say_counts_once(t):
    calls = [0]

    class Key:
        def __hash__(self):
            calls[0] += 1
            return calls[0]

    def fn(x):
        k = Key()
        return {k: x + 1}, calls[0]

    f = t.compile(fn)
    f(T(3))
    f.miss(T(3))  # it reads how often it was called


@program()
def test_written_to_the_world(t):
    log = []
    Key = counting(log)
    box = ({"a": 1, 1: "one"}, set(["x", 1]), collections.OrderedDict(k=1), collections.defaultdict(int))
    plain, elements, ordered, default = box
    t.watch(lambda: box)

    def fn(x):
        a, b = Key(1), Key(4)
        plain.pop("a")
        plain[a] = x.sum()
        plain["a"] = 2
        plain[b] = 3
        elements.add(a)
        elements.add(b)
        ordered[b] = 1
        ordered[a] = 2
        default[b] += 1
        return x + 1

    f = t.compile(fn)
    t.watch(lambda: log)
    f(T(3))
    log.append((plain[Key(1)] is not None, Key(4) in elements, list(ordered), Key(1) in elements))
    plain.clear(), elements.clear(), ordered.clear(), default.clear()
    plain.update({"a": 1, 1: "one"})
    elements.update(["x", 1])
    ordered["k"] = 1
    f(T(3))


@program(graphs=2)
def test_a_hash_that_follows_an_attribute(t):
    log = []
    Key = counting(log)
    key = Key(1)

    def fn(x):
        return {key: x + 1}, {key}, {(key, "a"): 1}

    f = t.compile(fn)
    t.watch(lambda: (log, key))
    f(T(3))
    f.hit(T(3))
    key.n = 5
    found = f.miss(T(3))
    log.append((Key(5) in found[0], Key(5) in found[1], (Key(5), "a") in found[2]))
    f.hit(T(3))


@program(graphs=1)
def test_hashes_that_follow_addresses(t):
    class ByAddress:
        def __hash__(self):
            return id(self)

    class Deep:
        def __init__(self, inner):
            self.inner = inner

        def __hash__(self):
            return hash((self.inner, 1))

        def __eq__(self, other):
            return self.inner is other.inner

    class Plain:
        pass

    def fn(x):
        a, b = ByAddress(), Deep(Plain())
        return a, b, {a: x + 1, b: 1, 5: 2}, {a, b}, {(a, 1): 1, (b, 2): 2}

    f = t.compile(fn)
    for _ in range(2):
        a, b, d, s, nested = f(T(3))
        assert d[a] is not None and d[b] == 1 and a in s and b in s and nested[a, 1] == 1 and nested[b, 2] == 2
    f.hit(T(3))


@program(graphs=1)
def test_weak_keys(t):
    log = []
    Key = counting(log)

    def fn(x):
        a = Key(1)
        d = weakref.WeakKeyDictionary()
        d[a] = x + 1
        return a, d

    f = t.compile(fn)
    t.watch(lambda: log)
    for _ in range(2):
        a, d = f(T(3))
        log.append(list(d) == [a])
        log.append(a in d)
    f.hit(T(3))


@program(graphs=1)
def test_an_equal_that_is_not_asked_again(t):
    log = []

    class Loud:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 0

        def __eq__(self, other):
            log.append((self.n, getattr(other, "n", other)))
            return False

    def fn(x):
        return {Loud(1): x + 1, Loud(2): 2, 0: 3}, {Loud(3), Loud(4), 0}

    f = t.compile(fn)
    t.watch(lambda: log)
    f(T(3))
    f.hit(T(3))


@program(graphs=1)
def test_keys_that_are_filled_late(t):
    class Frozen(frozenset):
        pass

    Key = counting([])
    Pair = collections.namedtuple("Pair", "key number")

    def fn(x):
        return (
            {Frozen([1, 2]): x + 1, (Frozen([3]), 1): 2},
            {Frozen([4]), (Frozen([5]), 1)},
            {Pair(Key(1), 2): 3},
            frozenset([Frozen([6])]),
        )

    f = t.compile(fn)
    for _ in range(2):
        d, s, p, fs = f(T(3))
        t.note(
            (
                Frozen([1, 2]) in d,
                d[Frozen([3]), 1],
                Frozen([4]) in s,
                (Frozen([5]), 1) in s,
                p[Pair(Key(1), 2)],
                Frozen([6]) in fs,
            )
        )
    f.hit(T(3))

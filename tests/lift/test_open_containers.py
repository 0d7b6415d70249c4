"""Containers of which a call reads a part, or nothing: that part is guarded; what native code reads is guarded whole."""

from __future__ import annotations

import collections
import threading

import torch
from harness import T, program


class Box:
    def __init__(self, value):
        self.value = value


class Sub(list):
    def __getitem__(self, index):
        return 100 + list.__getitem__(self, index)


# ---------------------------------------------------------------------------------------------------------- lists


@program(graphs=2)
def test_list_of_another_length(t):
    f = t.compile(lambda items, x: x + items[1])
    f([1, 2], T(2))
    f.hit([9, 2, 3], T(2))
    f.hit(["a", 2], T(2))
    f([1, 3], T(2))


@program()
def test_list_that_is_too_short(t):
    def fn(items, x):
        try:
            return x + items[2]
        except IndexError:
            return x - 1

    f = t.compile(fn)
    f([1, 2, 3], T(2))
    f([1, 2], T(2))
    f.hit([7, 8, 3, 9], T(2))
    f.hit([4, 5], T(2))
    f([], T(2))
    f([0], T(2))


@program()
def test_index_from_the_end(t):
    f = t.compile(lambda items, x: (items[-1], items[-2] * x))
    f([1, 2, 3], T(2))
    f.hit([9, 2, 3], T(2))
    f([1, 2, 3, 4], T(2))
    f([2, 3], T(2))


@program()
def test_index_too_large_for_the_machine(t):
    def reader(n):
        def fn(items, x):
            try:
                return items[n], x + 2
            except IndexError as error:
                return str(error), x + 1

        return fn

    for n in (0, -1, 10**30, -(10**30), 1, -2):
        f = t.compile(reader(n))
        f((5,), T(2))
        f([5], T(2))
        f((5, 6), T(2))
        f([5, 6], T(2))


@program()
def test_list_replaced_by_a_subclass(t):
    f = t.compile(lambda items, x: x + items[0])
    f([1, 2], T(2))
    f(Sub([1, 2]), T(2))
    f((1, 2), T(2))
    f.hit([1, 5], T(2))


@program()
def test_appended_and_read_again(t):
    def fn(items, x):
        items.append(x + 1)
        return items[0], items[-1] * 2, len(items)

    f = t.compile(fn)
    items = [1]
    f(items, T(2))
    f(items, T(2))
    f(items, T(2))
    f([1], T(2))


@program()
def test_read_in_part_and_written(t):
    """What is written back leaves what was not read as it is."""

    def fn(items, x):
        first = items[0]
        items[1] = x * first
        items.append(first)
        return items

    f = t.compile(fn)
    for last in ("a", Box(1), None, T(3)):
        f([2.0, None, last], T(2))
        f([2.0, 5, last], T(2))


@program(graphs=1)
def test_appended_to_whatever_is_there(t):
    def fn(log, x):
        log.append(log[0])
        return x + 1

    f = t.compile(fn)
    f([1, 2], T(2))
    f.hit([1, "b", T(2)], T(2))
    f.hit([1], T(2))


@program()
def test_the_same_object_read_and_unread(t):
    def fn(items, x):
        items[0].append(x)
        return items

    f = t.compile(fn)
    one, two = [1], [1]
    f([one, two, one], T(2))
    f([one, two, two], T(2))
    f([one, one, one], T(2))
    both = [one]
    both.append(both)
    f(both, T(2))


@program()
def test_aliases_of_what_is_read(t):
    def fn(a, b, x):
        a[0].append(1)
        return len(b[1]), x + len(b[1])

    f = t.compile(fn)
    shared = []
    f([shared, 0], [0, []], T(2))
    f([shared, 0], [0, shared], T(2))
    f([shared], (0, shared), T(2))
    f((shared, 0), (0, shared), T(2))
    f((shared, 0), (0, []), T(2))


@program()
def test_many_elements_one_by_one(t):
    def fn(items, x):
        for i in range(40):
            x = x + items[i]
        return x

    f = t.compile(fn)
    f(list(range(50)), T(2))
    f.hit(list(range(50)), T(2))
    f([0, 7, *range(2, 50)], T(2))
    table = {i: i for i in range(50)}
    f(table, T(2))
    f({**table, 3: 4}, T(2))


@program(graphs=2)
def test_one_key_of_a_large_dict(t):
    f = t.compile(lambda table, x: x * table["k3"])
    f({f"k{i}": i for i in range(100)}, T(2))
    f.hit({f"k{i}": 3 for i in range(90)}, T(2))
    f({"k3": 4}, T(2))


@program()
def test_large_containers_are_compared_where_all_is_read(t):
    f = t.compile(lambda items, x: (sum(items), 3 in items, x + items[0]))
    f(list(range(30)), T(2))
    f.hit(list(range(30)), T(2))
    f([*range(29), 0], T(2))
    f([*range(29), 29.0], T(2))
    f([*range(29), Box(1).value], T(2))


@program()
def test_isinstance_reads_nothing(t):
    def fn(o, x):
        return isinstance(o, list), isinstance(o, (tuple, dict)), isinstance(o, collections.abc.Sequence), x + 1

    f = t.compile(fn)
    for value in ([1], [2, 3], (1,), ("a", 2), {1: 2}, {}, Sub([1]), collections.deque([1]), {1, 2}):
        f(value, T(2))


@program(graphs=3)
def test_isinstance_of_others_of_the_type(t):
    f = t.compile(lambda o, x: x + 1 if isinstance(o, (list, tuple)) else x - 1)
    f([1], T(2))
    f.hit([2, 3], T(2))
    f((1,), T(2))
    f.hit(("a", 2), T(2))
    f({1: 2}, T(2))
    f.hit({}, T(2))


@program()
def test_a_metaclass_says_what_an_instance_is(t):
    class Meta(type):
        def __instancecheck__(cls, instance):
            return len(instance) > 1 and instance[0] == 1

    class Odd(metaclass=Meta):
        pass

    f = t.compile(lambda o, x: x + 1 if isinstance(o, Odd) else x - 1)
    f([1, 2], T(2))
    f([2, 2], T(2))
    f((1, 2), T(2))
    f((2, 2), T(2))
    f((1,), T(2))


# --------------------------------------------------------------------------------------------------------- tuples


@program(graphs=2)
def test_tuple_of_tensors(t):
    f = t.compile(lambda p, x: p[1] * x)
    f((T(3), T(2)), T(2))
    f.hit((None, T(2)), T(2))
    f.hit((T(5, 5), T(2), "more"), T(2))
    f((T(3), T(1)), T(2))


@program()
def test_unpacking(t):
    def fn(p, x):
        a, b = p
        return x * b

    f = t.compile(fn)
    f((1, 2), T(2))
    f.hit((1, 2), T(2))
    f((1, 3), T(2))
    f([1, 2], T(2))
    f((1, 2.0), T(2))
    f((T(2), T(2)), T(2))


@program()
def test_unpacking_what_does_not_fit(t):
    def fn(p, x):
        try:
            a, b = p
        except ValueError as error:
            return str(error), x
        first, *rest = p
        return a, rest, x * b

    f = t.compile(fn)
    f((1, 2), T(2))
    f((1, 2, 3), T(2))
    f((1,), T(2))
    f((), T(2))


@program()
def test_tuple_used_as_a_whole(t):
    """Each of these looks at all of it."""

    def fn(p, q, x):
        return p[0], p == q, hash(p), {p: 1}[q], p + q, p * 2, repr(p), sorted(p), 3 in p, p < q, x * p[0]

    f = t.compile(fn)
    f((1, 2), (1, 2), T(2))
    f.hit((1, 2), (1, 2), T(2))
    f((1, 3), (1, 3), T(2))
    p = (1, 2)
    f(p, p, T(2))


@program()
def test_tuple_iterated_after_a_read(t):
    def fn(p, x):
        total = p[0]
        for element in p:
            total = total + element
        return total, [*p], max(p), x + total

    f = t.compile(fn)
    f((1, 2), T(2))
    f((1, 3), T(2))
    f((1, 2, 3), T(2))


@program()
def test_tuple_as_arguments(t):
    def inner(a, b=2, *rest, k=0):
        return a, b, rest, k

    def fn(p, x):
        y = p[0] * x
        return inner(*p), inner(p), inner(1, 2, p, k=p), "%s-%s" % p, y

    f = t.compile(fn)
    f((1, 2), T(2))
    f((1, 3), T(2))
    f((1, "b"), T(2))


@program()
def test_tuple_kept_elsewhere(t):
    def fn(p, box, x):
        y = p[0] * x
        box.value = p
        box.value2 = [p]

        def read():
            return p[1]

        return read(), box.value[1], y

    f = t.compile(fn)
    f((1, 2), Box(0), T(2))
    f((1, 3), Box(0), T(2))
    f.hit((1, 3), Box(0), T(2))


@program()
def test_exceptions_in_a_tuple(t):
    def fn(kinds, x):
        first = kinds[0]
        try:
            raise KeyError("k")
        except kinds as error:
            return first, type(error), x + 1
        except Exception:
            return first, None, x - 1

    f = t.compile(fn)
    f((ValueError, KeyError), T(2))
    f((ValueError, TypeError), T(2))
    f((ValueError, LookupError), T(2))
    f.hit((ValueError, KeyError), T(2))


@program()
def test_classes_in_a_tuple(t):
    f = t.compile(lambda kinds, o, x: (kinds[0], isinstance(o, kinds), x + 1))
    f((int, str), "a", T(2))
    f((int, float), "a", T(2))
    f((int, (str, float)), "a", T(2))


@program()
def test_size_in_a_tuple(t):
    def fn(shape, x):
        return x.view(shape) * shape[0], torch.zeros(shape), x.reshape(*shape)

    f = t.compile(fn)
    f((2, 3), T(6))
    f((2, 3, 1), T(6))
    f((6,), T(6))


@program()
def test_tensors_inside_of_a_tuple_for_torch(t):
    def fn(parts, x):
        return torch.cat(parts), parts[0] + x

    f = t.compile(fn)
    f((T(2), T(3)), T(2))
    f((T(2), T(4)), T(2))
    f((T(2),), T(2))
    same = T(2)
    f((same, same), same)


@program()
def test_identity_of_tuples(t):
    constant = (1, 2)

    def fn(p, q, x):
        return p is q, p is constant, p[0] is q[0], p is None, x + 1

    f = t.compile(fn)
    p, q = (T(2), 1), (T(2), 1)
    f(p, p, T(2))
    f(p, q, T(2))
    f(constant, constant, T(2))
    f(tuple([1, 2]), constant, T(2))


@program()
def test_tuple_read_and_handed_back(t):
    def fn(p, x):
        return p, p[0], (p, x), [p, p]

    f = t.compile(fn)
    f((1, [2]), T(2))
    f.hit((1, [3, 4]), T(2))
    f.hit((1, None, 5), T(2))
    f((2,), T(2))


@program()
def test_tuple_that_is_a_key_too(t):
    def fn(p, table, x):
        return p[0], table[p], [key for key in table], x + 1

    f = t.compile(fn)
    key = (1, "a")
    f(key, {key: 5}, T(2))
    f((1, "a"), {key: 5}, T(2))
    key = (1, Box)
    f(key, {key: 5}, T(2))


@program()
def test_truth_of_a_tuple(t):
    f = t.compile(lambda p, x: (x + 1 if p else x - 1, not p))
    f((1,), T(2))
    f.hit((2, 3), T(2))
    f((), T(2))


@program()
def test_tuple_in_a_list_in_a_dict(t):
    def fn(d, x):
        return d["a"][0][1] * x

    f = t.compile(fn)
    f({"a": [(1, 2), 3]}, T(2))
    f.hit({"b": 0, "a": [("x", 2, "y")]}, T(2))
    f({"a": [(1, 4), 3]}, T(2))


@program()
def test_the_same_tuple_read_and_lifted_whole(t):
    def fn(p, items, x):
        first = p[0]
        return first, sum(items[0]), items == [p], x + 1

    f = t.compile(fn)
    p = (1, 2)
    f(p, [p], T(2))
    f(p, [(1, 2)], T(2))
    f(p, [(1, 3)], T(2))
    p = (1, 2.5)
    f(p, [p], T(2))


# -------------------------------------------------------------------------------------- what is only passed on


@program()
def test_handed_back_unread(t):
    f = t.compile(lambda o, x: o)
    f(3, T(2))
    for value in (4, "a", [1], T(3), T(2), None, Box(1), object()):
        f.hit(value, T(2))
    x = T(2)
    f.hit(x, x)


@program(graphs=1)
def test_handed_back_in_nested_ones(t):
    f = t.compile(lambda o, p, x: [(o, [p, (o,)]), x + 1, o])
    f(3, 4, T(2))
    f.hit("a", [1], T(2))
    f.hit(T(3), Box(1), T(2))
    same = [1]
    f.hit(same, same, T(2))


@program()
def test_a_new_container_that_is_used(t):
    """What is read of it, and what reads it natively."""

    def fn(o, p, x):
        pair = (o, p)
        items = [o, p, pair]
        return pair[0], len(items), items[-1][1], pair == (1, 2), sorted(pair), items, x + 1

    f = t.compile(fn)
    f(1, 2, T(2))
    f.hit(1, 2, T(2))
    f(2, 1, T(2))
    f(1, 2.0, T(2))


@program()
def test_a_new_container_that_is_changed(t):
    def fn(o, p, x):
        items = [o, p]
        items.append(x * 2)
        items[0] = items[1]
        others = [p]
        others += items
        del others[0]
        return items, others

    f = t.compile(fn)
    f(1, [2], T(2))
    f(1, [2, 3], T(2))
    shared = [5]
    f(shared, shared, T(2))


@program()
def test_a_new_container_in_other_places(t):
    def take(*parts, **named):
        return parts, named

    def fn(o, box, x):
        box.value = (o, x)
        cell = [o]

        def read():
            return cell[0]

        return take((o,), k=[o]), read(), {"o": (o, o)}, {1: [o]}, f"{(o,)}", x + 1

    f = t.compile(fn)
    f(1, Box(0), T(2))
    f(2, Box(0), T(2))
    f.hit(1, Box(0), T(2))


@program()
def test_written_to_and_handed_back(t):
    def fn(state, x):
        state["n"] = state["n"] + 1
        return state, x * 2

    f = t.compile(fn)
    f({"n": 1}, T(2))
    f.hit({"n": 1, "other": [1]}, T(2))
    state = {"n": 1}
    f(state, T(2))
    f(state, T(2))


@program()
def test_generator_over_a_new_pair(t):
    def steps(o, x):
        yield (o, x)
        yield [o]

    def fn(o, x):
        return list(steps(o, x + 1))

    f = t.compile(fn)
    f(1, T(2))
    f("a", T(2))


@program(one_graph=False)
def test_across_a_break(t):
    def fn(p, items, o, x):
        a = p[0]
        kept = (o, items, p)
        torch._dynamo.graph_break()
        items.append(a)
        y = x * kept[2][1]
        torch._dynamo.graph_break()
        return kept, p[1], y

    f = t.compile(fn)
    f((1, 2), [3], 4, T(2))
    f((1, 2), [3, 5], "a", T(2))
    f((1, 3), [], None, T(2))
    shared = [1]
    f((1, 2), shared, shared, T(2))


@program()
def test_lock_in_a_tuple(t):
    f = t.compile(lambda p, x: (p, x + p[1]))
    f((threading.Lock(), 2), T(2))
    f.hit((threading.Lock(), 2), T(2))


# ----------------------------------------------------------------------------------------------- sets and deques


@program()
def test_membership_in_a_set(t):
    f = t.compile(lambda s, k, x: x + 1 if k in s else x - 1)
    f({1, 2}, 1, T(2))
    f.hit({1, 9, 10}, 1, T(2))
    f({2}, 1, T(2))
    f.hit({2, "a"}, 1, T(2))
    f({True}, 1, T(2))
    f({1.0}, 1, T(2))
    f({"a"}, "a", T(2))
    f({float("nan")}, 1, T(2))
    f(frozenset({1}), 1, T(2))
    f({(1, 2)}, (1, 2), T(2))
    f({(1, 2), 1}, 1, T(2))


@program(one_graph=False)
def test_membership_where_a_class_has_its_say(t):
    class Odd:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    f = t.compile(lambda s, x: x + 1 if 1 in s else x - 1)
    f({1, 2}, T(2))
    f({Odd(), 2}, T(2))
    f({2}, T(2))
    f({Odd()}, T(2))


@program()
def test_adding_to_a_set(t):
    def fn(s, k, x):
        s.add(k)
        return x + 1

    f = t.compile(fn)
    f({1}, 2, T(2))
    f.hit({7, 8, 9}, 2, T(2))
    f({2}, 2, T(2))
    f({2.0}, 2, T(2))
    f(set(), 2, T(2))
    f(set(range(40)), 2, T(2))


@program()
def test_set_changed_and_asked(t):
    def fn(s, x):
        s.add(5)
        n = len(s)
        s.discard(1)
        return n, len(s), bool(s), 5 in s, 1 in s, sorted(s), x + 1

    f = t.compile(fn)
    f({1, 2}, T(2))
    f({1, 5}, T(2))
    f({2, 3}, T(2))
    f(set(), T(2))


@program()
def test_removing_from_a_set(t):
    def fn(s, x):
        try:
            s.remove(3)
        except KeyError:
            return x - 1
        return x + 1

    f = t.compile(fn)
    f({3}, T(2))
    f({4}, T(2))
    f({3, 4}, T(2))
    f({3.0}, T(2))


@program()
def test_order_of_a_set(t):
    f = t.compile(lambda s, x: (8 in s, list(s), x + 1))
    f(set([0, 8]), T(2))
    f(set([8, 0]), T(2))
    f(set([0, 8, 16]), T(2))


@program()
def test_length_and_truth_of_a_set(t):
    f = t.compile(lambda s, x: (len(s), x + 1 if s else x))
    f({1, 2}, T(2))
    f.hit({3, "a"}, T(2))
    f({1}, T(2))
    f(set(), T(2))


@program()
def test_elements_of_a_deque(t):
    f = t.compile(lambda queue, x: (queue[0] * x, len(queue)))
    f(collections.deque([1, 2]), T(2))
    f.hit(collections.deque([1, "b"]), T(2))
    f(collections.deque([2, 2]), T(2))
    f(collections.deque([1, 2, 3]), T(2))
    f(collections.deque([1, 2], maxlen=2), T(2))


@program()
def test_deque_changed_after_a_read(t):
    def fn(queue, x):
        first = queue[-1]
        queue.append(x * first)
        queue.rotate(1)
        return queue.popleft(), list(queue)

    f = t.compile(fn)
    f(collections.deque([1, 2]), T(2))
    f(collections.deque([1, 2], maxlen=2), T(2))
    f(collections.deque([3, 2]), T(2))
    queue = collections.deque([5])
    queue.append(2)
    f(queue, T(2))
    f(queue, T(2))


# ------------------------------------------------------------------------------------------------- keys of dicts


@program(graphs=2)
def test_objects_as_keys(t):
    def fn(d, key, x):
        return x * d[key]

    f = t.compile(fn)
    a, b = Box(1), Box(2)
    f({a: 2, b: 3}, a, T(2))
    f.hit({b: 2, a: 3}, b, T(2))
    c = Box(3)
    f.hit({c: 2, b: 3}, c, T(2))
    f({a: 2, b: 3}, b, T(2))


@program()
def test_objects_as_keys_are_changed(t):
    class Other(Box):
        pass

    def fn(d, key, x):
        d[key] = x + len(d)
        for one in d:
            one.value += 1
        return d.pop(next(iter(d))), list(d)

    f = t.compile(fn)
    a = Box(1)
    f({a: 2, Box(5): 3}, a, T(2))
    f({Box(1): 2, Box(5): 3}, a, T(2))
    f({Other(1): 2, Box(5): 3}, Box(0), T(2))


@program()
def test_a_class_gets_an_eq(t):
    class Key:
        pass

    f = t.compile(lambda d, key, x: x + 1 if key in d else x - 1)
    f({Key(): 1}, Key(), T(2))
    f.hit({Key(): 1}, Key(), T(2))
    t.patch(Key, "__hash__", lambda self: 1)
    t.patch(Key, "__eq__", lambda self, other: True)
    f.free({Key(): 1}, Key(), T(2))


# ---------------------------------------------------------------------------------------------------------- keys


@program()
def test_keys_of_every_plain_kind(t):
    """`None` compares by itself from CPython 3.12 on."""

    def fn(x, key, table):
        return torch.sin(x) * table.get(key, 5), key in table

    f = t.compile(fn)
    for key in (None, 3, True, 2.5, (None, 1), b"a", ..., NotImplemented, "a"):
        table = {"a": 1, (): 2}
        f(T(2), key, table)
        f.hit(T(2), key, table)
        table[key] = 7
        f.miss(T(2), key, table)

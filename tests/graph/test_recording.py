"""The recorder: what becomes a node, what does not, and what is refused."""

from __future__ import annotations

import functools
import gc
import operator
import os
import threading
import traceback
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the recorder needs torch")

import torch.nn.functional as F  # noqa: E402
from recording import check, graph, record, same  # noqa: E402
from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402


def square(n: int = 4, **options: Any) -> torch.Tensor:
    return torch.randn(n, n, **options)


# ---- what is a node


def test_only_the_outermost_call_is_a_node() -> None:
    recorded = check(lambda x: F.softmax(F.gelu(F.dropout(x, 0.5)), dim=-1), square())
    assert recorded.names == ["dropout", "gelu", "softmax"]


def test_calls_made_by_c_code_are_seen() -> None:
    def program(a: Any, b: Any) -> Any:
        parts = [a, b, a * b]
        s = sum(parts) + functools.reduce(operator.add, parts)
        s = operator.matmul(s, b.T)
        order = sorted(range(3), key=lambda i: (parts[i].t(), -i)[1])
        s[0] = 1.0
        s += a[0, 1]
        return max(list(map(torch.relu, [s, s.neg()])), key=lambda t: t.dim()), order, [*map(operator.neg, a)]

    recorded = check(program, square(), square())
    assert recorded.names.count("add") == 6  # sum() starts from 0
    for name in ("matmul", "__get__", "__setitem__", "add_", "__getitem__", "relu", "neg", "unbind"):
        assert name in recorded.names
    assert "t" not in recorded.names  # nobody uses a key's transpose


def test_direct_calls_and_the_mode_do_not_record_twice() -> None:
    x, w = square(), square()
    recorder = graph.Recorder()
    fx, fw = recorder.fake_of(x, "L['x']"), recorder.fake_of(w, "L['w']")
    with recorder:
        y = recorder.call(F.linear, fx, fw)
        y = recorder.call(torch.Tensor.add, y, 1, alpha=2)
        y = recorder.call(y.mul, fx)  # bound C method
        y, z = recorder.call(y.split, 2)  # bound Python method
        y = recorder.call(F.normalize, y, dim=0)  # a Python function that makes torch calls
        y = recorder.call(operator.add, y, z)
        y = recorder.call(getattr, y, "T")
    program = recorder.finish(y)
    assert [n["name"] for n in program.nodes] == ["linear", "add", "mul", "split", "normalize", "add", "getattr"]
    a, b = (F.linear(x, w).add(1, alpha=2) * x).split(2)
    expected = (F.normalize(a, dim=0) + b).T
    same(program.replay(x, w), expected)
    same(program.to_fx()(x, w)[0], expected)


def test_a_call_that_makes_nothing_new_is_no_node() -> None:
    def program(x: Any) -> Any:
        assert x.shape == (4, 4)
        assert x.dim() == 2
        assert x.is_contiguous()
        assert not x.requires_grad
        y = x.contiguous().to(torch.float32).float()
        assert y is x
        return y + len(x) + x.size(0) + x.stride()[0]

    assert check(program, square()).names == ["add", "add", "add"]


def test_dead_code_goes_and_effects_stay() -> None:
    def program(x: Any, y: Any) -> Any:
        x.sin().cos()
        dead = torch.zeros(3)
        dead + 1
        y.add_(1)
        torch.rand(2)
        t = x.clone()
        t.mul_(2)
        _, b, _ = x.unbind()[:3]
        return b

    recorded = check(program, square(), square())
    assert recorded.names == ["add_", "rand", "clone", "mul_", "unbind"]
    module = recorded.to_fx()
    assert sum(node.target is operator.getitem for node in module.graph.nodes) == 1


def test_a_running_statistic_is_an_effect() -> None:
    class Unused(nn.BatchNorm1d):
        def forward(self, x: Any) -> Any:
            super().forward(x)
            return x + 1

    recorded = check(Unused(4), square())
    assert recorded.names == ["add_", "batch_norm", "add"]


def test_out_arguments_and_foreach() -> None:
    def program(x: Any, y: Any) -> Any:
        torch.add(x, 1, out=y)
        torch._foreach_add_([x, y], 2)
        z = torch._foreach_mul([x, y], [y, x])
        return z[1]

    assert check(program, square(), square()).names == ["add", "_foreach_add_", "_foreach_mul"]


def test_inputs_in_the_order_of_first_use() -> None:
    def program(a: Any, b: Any, c: Any, d: Any) -> Any:
        a.sin()  # dead: does not make an input
        return c * b, d

    recorded = check(program, square(), square(), square(), square())
    assert [label for label, _ in recorded.program.inputs] == ["L['c']", "L['b']", "L['d']"]


def test_nested_arguments() -> None:
    def program(x: Any, i: Any) -> Any:
        y = torch.cat([x, x[1:, ::2].repeat(1, 2), x[..., None, 0].expand(-1, 4)])
        y = torch.block_diag(*[y, x])
        z = x[(slice(None, 2), i)] + x[[0, 1], i]
        return (
            torch.stack((y[i][:, i], z)),
            torch.nn.functional.pad(x, (1, 1), value=float("inf")),
            x.view(torch.int32),
            x.reshape((2, -1)),
        )

    check(program, square(), torch.tensor([0, 1]))


def test_results_in_containers() -> None:
    def program(x: Any) -> Any:
        values, _ = x.sort()
        top = x.topk(2)
        q, r = torch.linalg.qr(x)
        return {"values": values, "indices": top.indices, "qr": [q, (r, 3, "x", None)]}, x.max(0)[0]

    check(program, square())


def test_a_tensor_is_known_by_identity() -> None:
    def program(x: Any) -> Any:
        y = x.add_(1)
        assert y is x
        z = y.detach()
        return x * 2, z, y.data

    check(program, square())


# ---- state


def test_state_becomes_nodes_only_where_somebody_sees_it() -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            pass
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = x @ x
        with torch.inference_mode():
            d = x.detach() + 1
        return a, b, c, d.sum().detach()

    x = square(requires_grad=True)
    recorded = record(program, x)
    module = recorded.to_fx()
    steps = [
        n.target.__name__ for n in module.graph.nodes if n.op == "call_function" and n.target.__name__.startswith("_")
    ]
    assert steps == ["_set_grad_enabled"] * 2 + [
        "_enter_autocast",
        "_exit_autocast",
        "_enter_inference_mode",
        "_exit_inference_mode",
    ]
    a, b, c, _ = recorded.replay()
    assert (a.requires_grad, b.requires_grad, c.dtype) == (False, True, torch.bfloat16)
    assert torch.is_grad_enabled()
    same(recorded.run_fx(module)[:3], (a, b, c))


def test_a_program_leaves_the_state_as_it_was() -> None:
    def program(x: Any) -> Any:
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        return x + torch.ones(4)

    try:
        recorded = record(program, square())
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    assert recorded.replay().dtype == torch.float64
    assert recorded.run_fx(recorded.to_fx()).dtype == torch.float64
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32


def test_a_failing_node_leaves_the_state_and_names_the_line() -> None:
    def program(x: Any, i: Any) -> Any:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            x.add_(1)
            return x[i]  # the line that fails

    x = square()
    recorded = record(program, x, torch.tensor([1]))
    before = x.clone()
    with pytest.raises(IndexError) as failure:
        recorded.program.replay(x, torch.tensor([99]))
    assert torch.equal(x, before + 1)  # what came before the failing node has happened
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    lines = traceback.extract_tb(failure.value.__traceback__)
    assert lines[-1].name == "program"
    assert lines[-1].line.endswith("# the line that fails")


def test_the_users_modes_come_first() -> None:
    def program(x: Any) -> Any:
        with torch.device("meta"):
            y = torch.ones(2)
        return x + 1, y.shape

    recorded = record(program, square())
    assert recorded.names == ["add"]

    def kept(x: Any) -> Any:
        with torch.device("cpu"):
            return x + torch.ones(4)

    recorded = check(kept, square())
    ones = next(n for n in recorded.to_fx().graph.nodes if n.name == "ones")
    assert ones.kwargs == {"device": torch.device("cpu")}


def test_an_abandoned_program_leaves_torch_as_it_was() -> None:
    recorder = graph.Recorder()
    x = recorder.fake_of(square(), "L['x']")
    with recorder:
        torch.overrides._push_mode(torch.utils._device.DeviceContext(torch.device("meta")))
        x + 1
    assert torch._C._len_torch_function_stack() == 0
    assert torch.ones(1).device.type == "cpu"


def test_gradients_inside_of_the_program() -> None:
    def step(w: Any, x: Any) -> Any:
        loss = (x @ w).relu().sum()
        loss.backward()
        (again,) = torch.autograd.grad((x @ w).square().mean(), [w])
        with torch.no_grad():
            w -= 0.1 * w.grad + again
        w.grad = None
        return loss.detach()

    recorded = check(step, square(requires_grad=True), square(), backward=False)
    assert "backward" in recorded.names


def test_leaves_made_inside() -> None:
    def program(x: Any) -> Any:
        y = x.detach().clone().requires_grad_()
        z = (y * 2).sum()
        z.backward()
        return y.grad, y

    recorded = check(program, square(), backward=False)
    assert recorded.names[:3] == ["detach", "clone", "requires_grad_"]


# ---- what is refused


def test_a_real_tensor_is_reported() -> None:
    outside = square()
    with pytest.raises(graph.RecordError, match="a real tensor reached a torch call"):
        record(lambda x: x + outside, square())


def test_a_tensor_of_unknown_origin_is_reported() -> None:
    def program(x: Any) -> Any:
        with torch._C.DisableTorchFunction():
            y = x + 1
        return y * 2

    with pytest.raises(graph.RecordError, match="no recorded call has made"):
        record(program, square())


def test_an_unseen_write_is_reported() -> None:
    def program(x: Any) -> Any:
        with torch._C.DisableTorchFunction():
            x.add_(1)
        return x * 2

    with pytest.raises(graph.RecordError, match="not recorded"):
        record(program, square())


def test_a_tensor_hidden_in_an_object_is_reported() -> None:
    class Box:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

    recorder = graph.Recorder()
    fake = recorder.fake_of(square(), "L['x']")
    with recorder, pytest.raises(graph.RecordError, match="a tensor inside a Box"):
        recorder.call(torch.Tensor.sum, fake, Box(fake))


def test_a_fake_of_another_recording_is_reported() -> None:
    stranger = graph.Recorder().fake_of(square())
    with pytest.raises(Exception, match=r"another|outside"):
        record(lambda x: x + stranger, square())


def test_errors_of_torch_pass_through() -> None:
    def program(x: Any) -> Any:
        try:
            x @ torch.ones(7, 7)
        except RuntimeError:
            return x + 1
        raise AssertionError

    assert record(program, square()).names == ["add"]


# ---- constants


def test_a_constant_is_fresh_in_every_replay() -> None:
    numpy = pytest.importorskip("numpy")

    def program(x: Any) -> Any:
        table = torch.from_numpy(numpy.arange(4.0, dtype="float32"))
        weights = torch.from_numpy(numpy.ones(4, dtype="float32"))
        table += 1
        return x * table * weights, table

    recorded = record(program, square())
    expected = program(recorded.inputs[0])
    module = recorded.to_fx()
    for _ in range(2):
        first, second = recorded.replay(), recorded.run_fx(module)
        same(first, expected)
        same(second, expected)
        first[1].zero_()
        second[1].zero_()
    clones = [n for n in module.graph.nodes if n.target == "clone"]
    assert len(clones) == 1  # the weights are neither written nor given out


def test_objects_that_code_cannot_write_down_become_attributes() -> None:
    generator = torch.Generator().manual_seed(3)
    recorded = record(lambda x: x + torch.rand(4, generator=generator), square())
    module = recorded.to_fx()
    assert [n.target for n in module.graph.nodes if n.op == "get_attr"] == ["_constant0"]
    state = generator.get_state()
    first = recorded.replay()
    generator.set_state(state)
    same(recorded.run_fx(module), first)


def test_a_program_can_be_read() -> None:
    def program(x: Any, y: Any) -> Any:
        x.sin()
        with torch.no_grad():
            a, b = torch.cat([x, y], dim=0).split(2)
        return {"a": a[0:1], "b": b}

    recorded = record(program, torch.randn(1, 2), torch.randn(3, 2))
    lines = [line.split("  # ")[0] for line in str(recorded.program).splitlines()]
    assert lines == [
        "input0: \"L['x']\"",
        "input1: \"L['y']\"",
        "%0 = sin(input0)",
        "-- no_grad",
        "%1 = cat([input0, input1], dim=0)",
        "%2 = split(%1, 2, dim=0)",
        "-- grad",
        "%3 = __getitem__(%2[0], slice(0, 1, None))",
        "return {'a': %3, 'b': %2[1]}",
    ]
    assert "(dead)" in str(recorded.program).splitlines()[2]


# ---- threads and memory


def test_two_threads_record_at_once() -> None:
    results: dict[int, list[str]] = {}
    errors: list[BaseException] = []
    barrier = threading.Barrier(2)

    def work(number: int) -> None:
        try:
            recorder = graph.Recorder(lines=False)
            x = recorder.fake_of(torch.ones(number + 2), "L['x']")
            barrier.wait()
            with recorder:
                for i in range(200):
                    x = torch.sin(x) if i % (number + 2) else F.relu(x) * 2
            program = recorder.finish(x)
            results[number] = [n["name"] for n in program.nodes]
            real = torch.ones(number + 2)
            for i in range(200):
                real = torch.sin(real) if i % (number + 2) else F.relu(real) * 2
            same(program.replay(torch.ones(number + 2)), real)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for number in range(2):
        assert len(results[number]) == sum(1 if i % (number + 2) else 2 for i in range(200))


def test_a_call_on_another_thread_is_reported() -> None:
    def program(x: Any) -> Any:
        thread = threading.Thread(target=lambda: torch.ones(2) + 1)  # a thread of its own: nothing to do with us
        thread.start()
        thread.join()
        return x + 1

    assert record(program, square()).names == ["add"]


def _record_much(count: int) -> list[StorageWeakRef]:
    """Records `count` calls; watches some of the storages that they make."""
    recorder = graph.Recorder()
    x = recorder.fake_of(torch.ones(4), "L['x']")
    storages = []
    with recorder:
        y = x
        for step in range(count // 5):
            y = torch.sin(y) + x
            y[0] = 1.0
            if step % 20 == 0:
                storages.append(StorageWeakRef(y.untyped_storage()))
            y = y.view(2, 2).view(4)
    program = recorder.finish(y)
    assert len(program.nodes) == count
    return storages


long = pytest.mark.skipif(not os.environ.get("ALTERNATOR_LONG_TESTS"), reason="a minute: set ALTERNATOR_LONG_TESTS=1")


@pytest.mark.parametrize("total", [20_000, pytest.param(1_000_000, marks=long)])
def test_recording_leaves_nothing_behind(total: int) -> None:
    def census() -> tuple[int, int]:
        gc.collect()
        objects = gc.get_objects()
        return len(objects), sum(isinstance(o, torch.Tensor) for o in objects)

    _record_much(2000)
    before = census()
    storages = [storage for _ in range(total // 2000) for storage in _record_much(2000)]
    gc.collect()
    assert len(storages) >= total // 100 and all(storage.expired() for storage in storages)
    del storages
    objects, tensors = census()
    assert tensors == before[1]
    assert abs(objects - before[0]) < 50


def test_programs_and_graphs_are_freed() -> None:
    import weakref

    module = nn.Linear(4, 4)
    recorded = record(module, square())
    exported = recorded.to_fx()
    references = [weakref.ref(exported), weakref.ref(recorded)]
    del recorded, exported
    gc.collect()
    assert [r() for r in references] == [None, None]

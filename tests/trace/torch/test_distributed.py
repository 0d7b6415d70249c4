"""torch.distributed inside of compiled functions: every collective is called concretely."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
import torch.distributed as dist
from harness import T
from trace_support import alone

import alternator

# What each of these writes: y, a list of tensors, or a tensor of its own.
COLLECTIVES = {
    "all_reduce": lambda y, out, outs: dist.all_reduce(y),
    "all_gather": lambda y, out, outs: dist.all_gather(outs, y),
    "all_gather_into_tensor": lambda y, out, outs: dist.all_gather_into_tensor(out, y),
    "broadcast": lambda y, out, outs: dist.broadcast(y, 0),
    "reduce": lambda y, out, outs: dist.reduce(y, 0),
    "gather": lambda y, out, outs: dist.gather(y, outs, 0),
    "scatter": lambda y, out, outs: dist.scatter(out, [y], 0),
    "reduce_scatter": lambda y, out, outs: dist.reduce_scatter(out, [y]),
    "all_to_all_single": lambda y, out, outs: dist.all_to_all_single(out, y),
    "all_to_all": lambda y, out, outs: dist.all_to_all(outs, [y]),
    "async": lambda y, out, outs: dist.all_gather(outs, y, async_op=True).wait(),
    "barrier": lambda y, out, outs: dist.barrier(),
}

needs_gloo = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="this torch is built without gloo"
)


@needs_gloo
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@alone
def test_what_a_collective_writes(backend, tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    for name, collective in COLLECTIVES.items():

        def fn(x, collective=collective):
            y, out, outs = x * 2, torch.zeros(4), [torch.zeros(4)]
            collective(y, out, outs)
            return y, out, outs[0], y + out + outs[0]

        try:
            fn(T(4))
        except RuntimeError as error:  # gloo of an older torch lacks some
            assert "does not support" in str(error), name
            continue
        compiled = alternator.compile(fn, backend=backend)
        for s in range(3):
            for wanted, found in zip(fn(T(4, s=s)), compiled(T(4, s=s)), strict=True):
                assert torch.equal(wanted, found), name
        assert alternator.counters()["breaks"], name
        alternator.reset()
    objects = alternator.compile(
        lambda x: (dist.all_gather_object(found := [None], {"a": 3}), found, x + 1)[1:], backend=backend
    )
    assert objects(T(2))[0] == [{"a": 3}]
    from torch.distributed.nn.functional import all_reduce

    learned = alternator.compile(lambda x: (all_reduce(x * 2) * x).sum(), backend=backend)
    for s in range(3):
        x, twin = T(4, s=s, rg=True), T(4, s=s, rg=True)
        learned(x).backward()
        (all_reduce(twin * 2) * twin).sum().backward()
        assert torch.equal(x.grad, twin.grad)
    with pytest.raises(alternator.Unsupported, match="all_reduce"):
        alternator.compile(lambda x: dist.all_reduce(x * 2), backend=backend, fullgraph=True)(T(2))
    dist.destroy_process_group()


@needs_gloo
def test_two_processes(tmp_path):
    script = """
        import sys
        import torch, torch.distributed as dist
        import alternator

        rank = int(sys.argv[1])
        dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)

        @alternator.compile(backend="eager")
        def mean(x):
            y = x * 2
            dist.all_reduce(y)
            return y / dist.get_world_size()

        for step in range(3):
            assert torch.equal(mean(torch.ones(3) * (rank + step)), torch.ones(3) * (1 + 2 * step)), step
        dist.destroy_process_group()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    store = str(tmp_path / "store")
    both = [subprocess.Popen([*command, str(rank), store], stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
    for process in both:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors

"""Devices of fakes: the true ones, also those that this machine does not have; mixed as eager mixes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="fakes need torch")

import torch.nn.functional as F  # noqa: E402

from alternator._C import fake  # noqa: E402

CUDA = torch.device("cuda:0")
CPU = torch.device("cpu")


@pytest.fixture
def session() -> Iterator[object]:
    with fake.Session() as active:
        yield active


def test_cuda_without_cuda(session: object) -> None:
    c = torch.zeros(2, 3, device="cuda")
    assert c.device == CUDA and c.is_cuda and not c.is_cpu and not c.is_meta
    assert torch.zeros(2, device="cuda:1").device.index == 1
    for made in (
        c + 1,
        c @ c.t(),
        c.sum(),
        c[0],
        c.clone(),
        c.data,
        c.new_zeros(2),
        torch.zeros_like(c),
        torch.cat([c, c]),
        c.split(1)[1],
        F.dropout(c),
        F.layer_norm(c, (3,)),
        torch.arange(3, device="cuda"),
        torch.tensor([1.0], device="cuda"),
        F.conv2d(torch.zeros(1, 3, 8, 8, device="cuda"), torch.zeros(4, 3, 3, 3, device="cuda")),
        F.scaled_dot_product_attention(*[torch.zeros(2, 4, 16, 16, device="cuda")] * 3),
        F.embedding(torch.zeros(3, dtype=torch.int64, device="cuda"), c),
        torch.nn.Linear(3, 4, device="cuda")(c),
    ):
        assert made.device == CUDA and fake.is_fake(made)


def test_outside_a_session_cuda_is_as_torch_has_it() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with fake.Session():
        torch.zeros(1, device="cuda")
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        torch.zeros(1, device="cuda")


def test_moving(session: object) -> None:
    x = torch.zeros(2)
    assert x.to("cuda").device == x.cuda().device == CUDA
    assert x.cuda().cpu().device == CPU
    assert x.to("meta").device.type == "meta"
    assert x.cuda().to(torch.float16).device == CUDA
    c = torch.zeros(2, device="cuda")
    assert c.copy_(x).device == CUDA and x.copy_(c).device == CPU
    assert c.to(x).device == CPU and x.to(c).device == CUDA


def test_scalars_meet_any_device(session: object) -> None:
    c = torch.zeros(2, 3, device="cuda")
    s = torch.zeros(())
    for made in (
        c + s,
        s + c,
        torch.where(c > 0, c, s),
        c.masked_fill(c > 0, s),
        c * 2.0,
        torch.tensor(2.0) * c,
    ):
        assert made.device == CUDA
    c[0] = s
    assert (s + 1).device == CPU


def test_indices_may_stay_on_the_cpu(session: object) -> None:
    c = torch.zeros(5, 4, device="cuda")
    i = torch.zeros(2, dtype=torch.int64) + torch.ones(2, dtype=torch.int64)
    assert c[i].device == CUDA
    assert c[torch.tensor([1, 2])].device == CUDA
    c[i] = 1.0
    c[i] = torch.zeros(4, device="cuda")


def test_other_mixtures_are_refused_in_eagers_words(session: object) -> None:
    c, x = torch.zeros(2, 2, device="cuda"), torch.zeros(2, 2)
    for program in (
        lambda: c + x,
        lambda: c @ x,
        lambda: torch.cat([c, x]),
        lambda: F.linear(c, x),
        lambda: torch.where(c > 0, c, x),
        lambda: c + torch.zeros(2, 2, device="cuda:1"),
        lambda: c.clamp(x[0, 0], x[0, 0]),
        lambda: torch.addcdiv(c, x[0, 0], c),
        lambda: x[0, 0].add_(c[0, 0]),
        lambda: torch.add(c[0, 0], 1, out=x[0, 0]),
        lambda: c.index_put((torch.tensor([0]),), x[0]),
    ):
        with pytest.raises(RuntimeError, match="two devices"):
            program()
    for index in (torch.zeros(2, dtype=torch.int64, device="cuda"), torch.zeros(2, dtype=torch.bool, device="cuda")):
        with pytest.raises(RuntimeError, match="either on cpu or on the same device as the indexed tensor"):
            x[index]


def test_foreach_keeps_each_device(session: object) -> None:
    c, x = torch.zeros(2, device="cuda"), torch.zeros(3)
    assert [t.device for t in torch._foreach_add([c, x], 1.0)] == [CUDA, CPU]
    assert [t.device for t in torch._foreach_add([c, x], [c, x])] == [CUDA, CPU]
    torch._foreach_mul_([c, x], 2.0)
    assert (c.device, x.device) == (CUDA, CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch asks the accelerator for a stream, and there is none")
def test_backward_on_cuda(session: object) -> None:
    w = torch.zeros(3, 3, device="cuda", requires_grad=True)
    loss = F.softmax(w @ w, -1).log().mean()
    loss.backward()
    assert w.grad is not None and w.grad.device == CUDA and fake.is_fake(w.grad)


def test_default_device(session: object) -> None:
    with torch.device("cuda"):
        assert torch.zeros(2).device == CUDA
        assert torch.tensor([1.0]).device == CUDA
        assert torch.nn.Linear(2, 2).weight.device == CUDA
    assert torch.zeros(2).device == CPU

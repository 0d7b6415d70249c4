"""fake_of: a stand-in has everything of the real tensor but its data, and leaves the real one alone."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="fakes need torch")

from torch import nn  # noqa: E402

from alternator._C import fake  # noqa: E402


class Labeled(torch.Tensor):
    """A plain subclass: no __torch_dispatch__."""


def facts(tensor: torch.Tensor) -> dict[str, Any]:
    """Everything of a tensor that a program can read without its data."""
    return {
        "type": type(tensor),
        "shape": tensor.shape,
        "stride": tensor.stride(),
        "storage_offset": tensor.storage_offset(),
        "dtype": tensor.dtype,
        "device": tensor.device,
        "layout": tensor.layout,
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "grad_fn": None if tensor.grad_fn is None else tensor.grad_fn.name(),
        "is_view": tensor._is_view(),
        "version": None if tensor.is_inference() else tensor._version,
        "is_inference": tensor.is_inference(),
        "is_conj": tensor.is_conj(),
        "is_neg": tensor.is_neg(),
        "nbytes": tensor.untyped_storage().nbytes(),
        "element_size": tensor.element_size(),
        "is_contiguous": tensor.is_contiguous(),
        "channels_last": tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last),
        "attributes": dict(tensor.__dict__),
        "dim": tensor.dim(),
        "numel": tensor.numel(),
        "is_floating_point": tensor.is_floating_point(),
        "is_complex": tensor.is_complex(),
        "typename": tensor.type(),
        "is_cpu": tensor.is_cpu,
        "is_cuda": tensor.is_cuda,
        "is_meta": tensor.is_meta,
    }


def bumped(times: int) -> torch.Tensor:
    tensor = torch.zeros(3)
    for _ in range(times):
        tensor.add_(1)
    return tensor


def with_attribute() -> torch.Tensor:
    tensor = torch.zeros(2)
    tensor.label = "weight"
    return tensor


def in_inference(make: Any) -> torch.Tensor:
    with torch.inference_mode():
        return make()


REAL_TENSORS = {
    "plain": lambda: torch.randn(3, 4),
    "scalar": lambda: torch.tensor(2.0),
    "empty": lambda: torch.empty(0, 5),
    "integers": lambda: torch.arange(6),
    "bool": lambda: torch.zeros(2, dtype=torch.bool),
    "half": lambda: torch.zeros(2, 2, dtype=torch.float16),
    "complex": lambda: torch.zeros(2, 2, dtype=torch.complex64),
    "transposed": lambda: torch.randn(3, 4).t(),
    "strided": lambda: torch.randn(10, 10)[2:8:2, 1::3],
    "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "channels last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "overlapping": lambda: torch.randn(10).as_strided((4, 4), (1, 1)),
    "leaf with grad": lambda: torch.randn(3, requires_grad=True),
    "with history": lambda: torch.randn(3, requires_grad=True) * 2,
    "parameter": lambda: nn.Parameter(torch.randn(2, 3)),
    "frozen parameter": lambda: nn.Parameter(torch.randn(2, 3), requires_grad=False),
    "buffer": lambda: nn.Buffer(torch.randn(2)),
    "subclass": lambda: torch.randn(3).as_subclass(Labeled),
    "attribute": with_attribute,
    "version 3": lambda: bumped(3),
    "view of version 2": lambda: bumped(2)[1:],
    "view with grad": lambda: torch.randn(4, 4, requires_grad=True)[1],
    "view of a result": lambda: (torch.randn(4, 4, requires_grad=True) * 2).transpose(0, 1),
    "view written in place": lambda: (torch.randn(4, requires_grad=True) * 2)[1:].mul_(3),
    "detached": lambda: torch.randn(4, requires_grad=True).detach(),
    "conjugate": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "negative": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
    "inference": lambda: in_inference(lambda: torch.randn(2, 3)),
    "inference view": lambda: in_inference(lambda: torch.randn(2, 3)[0]),
    "meta": lambda: torch.empty(3, 4, device="meta"),
}


@pytest.mark.parametrize("name", REAL_TENSORS)
def test_has_every_property_of_the_real_one(name: str) -> None:
    real = REAL_TENSORS[name]()
    before = facts(real)
    twin = fake.Session().fake_of(real)
    assert fake.is_fake(twin) and not fake.is_fake(real)
    assert facts(twin) == before
    assert facts(real) == before


def test_asking_again_gives_the_same_object() -> None:
    session = fake.Session()
    real = torch.randn(3)
    assert session.fake_of(real) is session.fake_of(real)
    assert session.fake_of(session.fake_of(real)) is session.fake_of(real)
    assert session.real_of(session.fake_of(real)) is real
    with session:
        assert session.real_of(session.fake_of(real) + 1) is None


def test_base_of_a_view_is_the_fake_of_the_base() -> None:
    session = fake.Session()
    weight = nn.Parameter(torch.randn(4, 4))
    for view in (weight[1:], weight.data[1:], weight.t()[0]):
        twin = session.fake_of(view)
        if view._base is None:
            assert twin._base is None
        else:
            assert twin._base is session.fake_of(view._base)
            assert type(twin._base) is type(view._base)


def test_shared_storage_is_shared() -> None:
    session = fake.Session()
    whole = torch.randn(6)
    left, right, other = whole[:3], whole[3:], torch.randn(6)
    a, b, c = session.fake_of(left), session.fake_of(right), session.fake_of(other)
    assert a.untyped_storage()._cdata == b.untyped_storage()._cdata
    assert a.untyped_storage()._cdata != c.untyped_storage()._cdata
    assert session.fake_of(whole).untyped_storage()._cdata == a.untyped_storage()._cdata


def test_shared_version_counters_are_shared() -> None:
    session = fake.Session()
    base = torch.randn(4)
    detached, data = base.detach(), base.data  # the first shares the counter, the second does not
    twins = [session.fake_of(t) for t in (base, detached, data)]
    with session:
        twins[0].add_(1)
    assert [t._version for t in twins] == [1, 1, 0]
    assert [t._version for t in (base, detached, data)] == [0, 0, 0]


def test_history_outside_is_not_entered() -> None:
    session = fake.Session()
    leaf = torch.randn(3, requires_grad=True)
    twin = session.fake_of(leaf * 2)
    with session, pytest.raises(fake.UnsupportedError, match="before the trace"):
        twin.sum().backward()
    assert leaf.grad is None


def test_real_tensor_is_not_touched_by_what_happens_to_its_fake() -> None:
    session = fake.Session()
    real = torch.randn(3, 3)
    value, version = real.clone(), real._version
    twin = session.fake_of(real)
    with session:
        twin.add_(1)
        twin[0] = 5
        twin.resize_(10)
        twin.data = torch.zeros(2)
        twin.requires_grad_(True)
    assert torch.equal(real, value) and real._version == version
    assert real.shape == (3, 3) and not real.requires_grad


def test_unsupported_kinds_are_refused_in_words() -> None:
    class Dispatching(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError

    kinds = {
        "sparse": torch.eye(3).to_sparse(),
        "sparse tensor": torch.eye(3).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8),
        "nested": torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]),
        "__torch_dispatch__": torch.Tensor._make_subclass(Dispatching, torch.randn(3)),
    }
    for words, tensor in kinds.items():
        session = fake.Session()
        with pytest.raises(fake.UnsupportedError, match=words):
            session.fake_of(tensor)
        kind, op, reason = session.failure or (None, "", "")
        assert kind is None or (kind is fake.UnsupportedError and words in reason)


def test_wrapped_tensors_of_functorch_are_refused() -> None:
    session = fake.Session()
    seen: list[str] = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(fake.UnsupportedError, match="functorch") as caught:
            session.fake_of(x)
        seen.append(str(caught.value))
        return x

    torch.vmap(inner)(torch.randn(2, 3))
    assert len(seen) == 1


def test_attributes_can_be_left_to_others() -> None:
    real = with_attribute()
    assert fake.Session().fake_of(real).label == "weight"
    assert not hasattr(fake.Session(copy_attributes=False).fake_of(real), "label")


def test_session_keeps_its_real_tensors_and_lets_them_go() -> None:
    session = fake.Session()
    real = torch.randn(3)
    alive = weakref.ref(real)
    twin = session.fake_of(real)
    del real
    gc.collect()
    assert alive() is not None and session.real_of(twin) is alive()
    del session
    gc.collect()
    assert alive() is None
    assert twin.shape == (3,)  # metadata outlives the session


def test_fake_of_another_session_is_refused() -> None:
    twin = fake.Session().fake_of(torch.randn(3))
    with pytest.raises(fake.EscapedError):
        fake.Session().fake_of(twin)
    with pytest.raises(fake.EscapedError):
        twin + 1  # no session is active
    with fake.Session(), pytest.raises(fake.EscapedError):
        twin + 1

"""Recorded programs of real modules, replayed on real tensors, equal eager bit by bit: forward, backward, buffers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the recorder needs torch")

import torch.nn.functional as F  # noqa: E402
from recording import check, record  # noqa: E402
from torch import nn  # noqa: E402


class Residual(nn.Module):
    def __init__(self, channels: int = 8):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x
        return torch.relu_(y)


class CausalAttention(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4, dropout: float = 0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.ln1, self.attention, self.ln2 = nn.LayerNorm(width), CausalAttention(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.tokens.weight  # tied

    def forward(self, ids: Any, targets: Any) -> Any:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return scale * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * ctx.scale * x * grad, None  # not the true gradient: eager's backward must be the one that runs


class CustomFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return Square.apply(self.linear(x), 2.0).sum(dim=0) + Square.apply(x, 0.5).mean()


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Any) -> Any:
        self.seen.add_(x.detach().sum(0))
        y = x * self.weight
        y[0] = 1.0
        y[:, 1] *= 2
        y[1:, ::2].mul_(0.5)
        z = y.clone()
        z.masked_fill_(torch.ones_like(z, dtype=torch.bool).triu_(1), -1.0)
        z += y
        z.t_()
        return z, self.seen


class Views(nn.Module):
    def forward(self, x: Any) -> Any:
        a, b = x.split(2)
        c = torch.stack([a, b], dim=1).permute(2, 0, 1).contiguous()
        d = c.flatten(1).unsqueeze(-1).expand(-1, -1, 3)
        e = x.T.unfold(0, 2, 1).diagonal(dim1=0, dim2=2)
        a.mul_(2)  # seen through x
        return d.sum(-1), e, x[None, ..., 1:, [0, 2]], x.view(-1)[3:], torch.cat([a, b]).mT, x.real


class Indexing(nn.Module):
    def forward(self, x: Any, index: Any) -> Any:
        y = x.clone()
        y[index] = 7.0
        y[index, 0] += 1
        y.index_put_((index,), torch.ones(x.shape[1]), accumulate=True)
        picked = x[index] + x.index_select(0, index) + torch.gather(x, 0, index[:, None].expand(-1, x.shape[1]))
        return (
            y,
            picked,
            torch.where(x > 0, x, -x),
            x.take_along_dim(x.argsort(1), 1),
            x.scatter_add(0, index[:, None].expand(-1, 4), x[:2]),
        )


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module], **options: Any):
        super().__init__()
        self.rnn = kind(4, 6, **options)

    def forward(self, x: Any) -> Any:
        output, state = self.rnn(x)
        return output.relu(), state


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(4, 5), nn.GRUCell(5, 5)

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros(x.shape[1], 5)
        g = torch.zeros_like(h)
        for step in x:
            h, c = self.lstm(step, (h, c))
            g = self.gru(h, g)
        return torch.tanh(g) + c


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(10, 4, mode=mode) for mode in ("sum", "mean", "max")])
        self.padded = nn.Embedding(10, 4, padding_idx=0)

    def forward(self, ids: Any, offsets: Any) -> Any:
        return torch.cat([bag(ids, offsets) for bag in self.bags], dim=1), self.padded(ids)


class Modes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            frozen = self.linear(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                full = self.linear(x)
        previous = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        wide = torch.ones(3) / 3
        torch.set_default_dtype(previous)
        return frozen + full, low, wide, self.linear(frozen)


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.Sequential(
            nn.GroupNorm(2, 4),
            nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
            nn.BatchNorm1d(4),
            nn.LocalResponseNorm(2),
        )

    def forward(self, x: Any) -> Any:
        y = self.norms(x)
        return F.normalize(y, dim=-1) + F.rms_norm(y, (5,)) + F.layer_norm(y, (5,))


class Dropouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.3), nn.AlphaDropout(0.2))

    def forward(self, x: Any) -> Any:
        F.dropout(x, 0.9)  # nobody uses it, but the generator has moved on
        noise = torch.randn_like(x) + torch.rand(x.shape) * torch.bernoulli(torch.full_like(x, 0.5))
        return self.parts(x) + noise, torch.randint(0, 9, (3,)), F.rrelu(x, training=True)


class Losses(nn.Module):
    def forward(self, x: Any, y: Any, labels: Any) -> Any:
        return [
            F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y),
            F.cross_entropy(x, labels, label_smoothing=0.1), F.nll_loss(F.log_softmax(x, -1), labels),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
            F.cosine_similarity(x, y), F.triplet_margin_loss(x, y, x + y),
        ]  # fmt: skip


class Einsum(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        c = torch.einsum("bij,bjk->bik", a, b)
        return (
            c @ c.mT,
            torch.tensordot(a, b, dims=([2], [1])),
            torch.baddbmm(c, a, b),
            torch.linalg.norm(c, dim=(1, 2)),
            torch.cdist(a, a),
        )


class Constants(nn.Module):
    def forward(self, x: Any) -> Any:
        table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        table[0, 0] = 9.0
        steps = torch.arange(2) + torch.linspace(0, 1, 2) + torch.as_tensor(3)
        return x @ table, steps, table, torch.eye(2).to(x), x.new_full((2,), 5.0), torch.tensor(2.5) * x


CASES: dict[str, Callable[[], tuple[Any, ...]]] = {
    "mlp": lambda: (
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 2)),
        torch.randn(3, 4),
    ),
    "conv1d": lambda: (
        nn.Sequential(nn.Conv1d(3, 6, 3, stride=2), nn.Hardswish(), nn.AvgPool1d(2)),
        torch.randn(2, 3, 16),
    ),
    "conv_net": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 4, 3, groups=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        torch.randn(2, 3, 16, 16),
    ),
    "conv_transpose": lambda: (
        nn.Sequential(nn.ConvTranspose2d(4, 3, 4, 2, 1), nn.Upsample(scale_factor=2), nn.PixelShuffle(1), nn.Tanh()),
        torch.randn(2, 4, 5, 5),
    ),
    "conv3d": lambda: (nn.Sequential(nn.Conv3d(2, 3, 2), nn.MaxPool3d(2), nn.Flatten(1)), torch.randn(1, 2, 6, 6, 6)),
    "resnet_block": lambda: (nn.Sequential(Residual(), Residual()), torch.randn(2, 8, 6, 6)),
    "resnet_block_eval": lambda: (Residual().eval(), torch.randn(2, 8, 6, 6)),
    "gpt": lambda: (GPT(), torch.randint(0, 50, (2, 12)), torch.randint(0, 50, (2, 12))),
    "attention": lambda: (CausalAttention(dropout=0.3), torch.randn(2, 5, 16)),
    "multihead": lambda: (nn.MultiheadAttention(8, 2, batch_first=True), *[torch.randn(2, 3, 8)] * 3),
    "encoder": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2),
        torch.randn(2, 5, 16),
    ),
    "encoder_eval": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval(),
        torch.randn(2, 5, 16),
    ),
    "decoder": lambda: (
        nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 2),
        torch.randn(2, 5, 16),
        torch.randn(2, 4, 16),
    ),
    "lstm": lambda: (Recurrent(nn.LSTM, num_layers=2, bidirectional=True, batch_first=True), torch.randn(2, 5, 4)),
    "gru": lambda: (Recurrent(nn.GRU, dropout=0.3, num_layers=2), torch.randn(5, 2, 4)),
    "rnn": lambda: (Recurrent(nn.RNN, nonlinearity="relu"), torch.randn(5, 2, 4)),
    "cells": lambda: (Cells(), torch.randn(3, 2, 4)),
    "embedding_bag": lambda: (Bags(), torch.randint(0, 10, (7,)), torch.tensor([0, 3, 5])),
    "custom_function": lambda: (CustomFunction(), torch.randn(3, 4, requires_grad=True)),
    "dropout": lambda: (Dropouts(), torch.randn(2, 3, 4, 4, requires_grad=True)),
    "norms": lambda: (Norms(), torch.randn(3, 4, 5)),
    "in_place": lambda: (InPlace(), torch.randn(3, 3)),
    "views": lambda: (Views(), torch.randn(4, 3)),
    "indexing": lambda: (Indexing(), torch.randn(3, 4, requires_grad=True), torch.tensor([2, 0])),
    "modes": lambda: (Modes(), torch.randn(3, 4)),
    "losses": lambda: (Losses(), torch.randn(4, 3, requires_grad=True), torch.randn(4, 3), torch.tensor([0, 2, 1, 1])),
    "einsum": lambda: (Einsum(), torch.randn(2, 3, 3, requires_grad=True), torch.randn(2, 3, 3)),
    "constants": lambda: (Constants(), torch.randn(2, 2, requires_grad=True)),
}


@pytest.mark.parametrize("name", CASES)
def test_replay_equals_eager(name: str) -> None:
    torch.manual_seed(1)
    module, *args = CASES[name]()
    check(module, *args)


# Modules with an operator whose metadata only torch's Python code can tell.
NEEDS_PYTHON = ("conv3d", "lstm", "embedding_bag", "dropout", "norms", "in_place", "losses", "einsum")
PYTHON_KERNELS = ("_meta_registrations.py", "/_decomp/", "/_refs/", "/_prims", "/_subclasses/", "/_library/")


@pytest.mark.parametrize("name", [name for name in CASES if name not in NEEDS_PYTHON])
def test_no_operator_of_a_common_module_goes_through_python(name: str) -> None:
    module, *args = CASES[name]()
    record(module, *args)  # what is decided once
    seen = set()

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and any(part in frame.f_code.co_filename for part in PYTHON_KERNELS):
            seen.add(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        record(module, *args)
    finally:
        sys.setprofile(None)
    assert not seen


def test_encoder_takes_the_fast_path_of_eager() -> None:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    with torch.no_grad():
        recorded = check(layer, torch.randn(2, 5, 16))
    assert recorded.names == ["_transformer_encoder_layer_fwd"]


def test_seed_inside() -> None:
    def seeded(x: Any) -> Any:
        torch.manual_seed(7)
        return F.dropout(x), torch.rand(2)

    recorded = check(seeded, torch.ones(4, 4))
    assert recorded.names == ["manual_seed", "dropout", "rand"]

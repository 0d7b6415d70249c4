"""What models are made of: products, attention, convolutions, norms, reductions, factories, masks, embeddings."""

import math

import torch
import torch.nn.functional as F
from harness import T
from sequences import over, sequence, shapes
from torch import nn

BATCHES = shapes((4, 3), (5, 3), (7, 3))
FIRST = [(0, 0)]


def filled(module):
    with torch.no_grad():
        for number, one in enumerate(module.parameters()):
            one.copy_(T(*one.shape, s=number) * 0.3)
    return module


@sequence(BATCHES, made=True, marks=FIRST, backward=True)
def linear():
    return filled(nn.Linear(3, 4))


@sequence(shapes((4, 3), (5, 3), (2, 3), (1, 3), (0, 3)), made=True)
def linear_of_few():
    return filled(nn.Linear(3, 4))


@sequence(over(lambda n: (T(n, 3, rg=True),), 4, 5, 6), made=True, backward=True, marks=FIRST)
def perceptron():
    return filled(nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2), nn.LogSoftmax(-1)))


@sequence(over(lambda n: (T(3, n), T(n, 3)), 4, 5, 6), marks=[(0, 1), (1, 0)])
def inner_size(x, y):
    return x @ y


@sequence(over(lambda n, m: (T(2, n, 4), T(2, 4, m)), (3, 5), (4, 6), (5, 5)), marks=[(0, 1), (1, 2)])
def batched_product(x, y):
    return torch.bmm(x, y), torch.einsum("bij,bjk->bk", x, y)


@sequence(over(lambda n, m: (T(n, 4), T(m, 4)), (3, 5), (4, 6), (5, 5)))
def outer_distances(x, y):
    return torch.cdist(x, y), (x[:, None] - y[None]).square().sum(-1)


def attention_of(n):
    return T(2, 2, n, 4), T(2, 2, n, 4, s=1), T(2, 2, n, 4, s=2)


@sequence(over(attention_of, 3, 5, 6), marks=[(0, 2), (1, 2), (2, 2)], inductor=True)
def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return torch.softmax(scores, -1) @ v


@sequence(over(attention_of, 3, 5, 6), marks=[(0, 2), (1, 2), (2, 2)])
def attention_fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


@sequence(over(attention_of, 3, 5, 6), marks=[(0, 2), (1, 2), (2, 2)])
def attention_causal(q, k, v):
    n = q.shape[2]
    mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@sequence(over(lambda n: (T(2, n, 6),), 3, 5, 6), made=True)
def attention_module():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out, self.heads = nn.Linear(6, 18), nn.Linear(6, 6), 2

        def forward(self, x):
            b, n, d = x.shape
            q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            weights = (q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(b, n, d))

    return filled(Attention())


@sequence(over(lambda n: (T(2, n, 8),), 3, 5, 6), made=True)
def multihead_attention():
    attend = filled(nn.MultiheadAttention(8, 2, batch_first=True)).eval()

    def fn(x):
        return attend(x, x, x, need_weights=False)[0]

    return fn


@sequence(over(lambda n: (T(2, n, 8),), 3, 5, 6), made=True)
def encoder_layer():
    return filled(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)).train()


@sequence(over(lambda n: (T(n, 3, 8, 8),), 2, 3, 4), made=True, marks=FIRST, inductor=True)
def convolution():
    return filled(nn.Conv2d(3, 2, 3, padding=1))


@sequence(over(lambda n: (T(2, 3, n, n + 1),), 6, 7, 9), made=True)
def convolution_of_pixels():
    return filled(nn.Sequential(nn.Conv2d(3, 2, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()))


@sequence(over(lambda n: (T(2, 3, n),), 6, 7, 9, 2), made=True)
def convolution_1d():
    return filled(nn.Conv1d(3, 2, 3))


@sequence(over(lambda n: (T(2, 3, n, n),), 6, 7, 8))
def pools(x):
    return F.max_pool2d(x, 2), F.avg_pool2d(x, 3, stride=1), F.adaptive_max_pool2d(x, 3)


@sequence(over(lambda n: (T(2, 3, n, n),), 4, 5, 6), made=True)
def convolution_transposed():
    return filled(nn.ConvTranspose2d(3, 2, 2, stride=2))


@sequence(BATCHES, marks=FIRST)
def reductions(x):
    return x.sum(), x.mean(0), x.amax(0), x.var(0), x.std(), x.prod(1), x.norm()


@sequence(shapes((4, 3), (1, 3), (0, 3), (5, 3)))
def reductions_of_few(x):
    return x.sum(0), x.mean(), x.var(0)


@sequence(shapes((4, 3), (5, 3), (0, 3), (6, 3)))
def maximum_of_none(x):
    return x.max()


@sequence(BATCHES)
def maximum_with_indices(x):
    values, indices = x.max(0)
    return values, indices, x.argmax(), x.topk(2, 0)


@sequence(over(lambda n, k: (T(n), k), (5, 2), (6, 3), (7, 4), (3, 5)))
def top_k(x, k):
    return x.topk(k)


@sequence(BATCHES, marks=FIRST)
def softmaxes(x):
    return x.softmax(0), x.log_softmax(-1), x.logsumexp(0)


@sequence(BATCHES)
def sorts(x):
    return x.sort(0), x.argsort(0), x.cumsum(0), x.median()


@sequence(BATCHES, marks=FIRST)
def layer_norm(x):
    return F.layer_norm(x, x.shape[1:])


@sequence(shapes((3, 4), (3, 5), (3, 6)))
def layer_norm_of_size(x):
    return F.layer_norm(x, (x.shape[-1],))


@sequence(over(lambda n: (T(n, 4, 3),), 2, 3, 5), made=True)
def group_norm():
    return filled(nn.GroupNorm(2, 4))


@sequence(over(lambda n: (T(n, 4),), 3, 5, 6, 2), made=True)
def batch_norm():
    return filled(nn.BatchNorm1d(4)).train()


@sequence(over(lambda n: (T(n, 4),), 3, 1, 5), made=True)
def batch_norm_of_one():
    return filled(nn.BatchNorm1d(4)).train()


@sequence(BATCHES, marks=FIRST)
def rms_norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * x.shape[-1] ** 0.5


@sequence(over(lambda n: (torch.arange(n) % 5,), 4, 5, 7), made=True, marks=FIRST)
def embedding():
    table = filled(nn.Embedding(5, 3))
    places = filled(nn.Embedding(10, 3))

    def fn(tokens):
        return table(tokens) + places(torch.arange(tokens.shape[0], device=tokens.device))

    return fn


@sequence(over(lambda n: (torch.arange(n) % 5, torch.tensor([0, 2])), 4, 5, 7))
def embedding_bag(tokens, offsets):
    return F.embedding_bag(tokens, T(5, 3), offsets, mode="sum")


@sequence(over(lambda n: (torch.arange(n) % 3,), 4, 5, 7))
def one_hot(x):
    return F.one_hot(x, 4) * 2


@sequence(over(lambda n: (T(n, 3), torch.arange(n) % 3), 4, 5, 7), marks=[(0, 0), (1, 0)])
def cross_entropy(x, y):
    return F.cross_entropy(x, y), F.nll_loss(x, y, reduction="sum") / x.shape[0]


@sequence(over(lambda n: (T(n, 3, rg=True), torch.arange(n) % 3), 4, 5, 7), backward=True)
def cross_entropy_gradient(x, y):
    return F.cross_entropy(x, y)


@sequence(over(lambda n: (T(n, 3), torch.arange(n) % 3), 4, 5, 7))
def gathers(x, i):
    return x.gather(1, i[:, None]), x[torch.arange(x.shape[0]), i], torch.zeros_like(x).scatter_(1, i[:, None], 1.0)


@sequence(over(lambda n: (T(n, 3), torch.arange(n) % 2), 4, 5, 7))
def scatter_sum(x, i):
    return x.new_zeros(2, 3).index_add_(0, i, x)


@sequence(BATCHES)
def factories(x):
    n = x.shape[0]
    return (
        torch.zeros(n, 2),
        torch.ones(x.shape),
        torch.full((n,), 2.5),
        torch.arange(n),
        torch.eye(n),
        torch.linspace(0, 1, n),
    )


@sequence(BATCHES, marks=FIRST)
def factories_like(x):
    return (
        torch.zeros_like(x),
        x.new_zeros(x.shape[0]),
        x.new_full((x.shape[0], 2), 1.5),
        torch.full_like(x, x.shape[1]),
    )


@sequence(BATCHES)
def arange_of_length(x):
    return torch.arange(len(x)), torch.arange(1, len(x), 2), torch.arange(len(x), 0, -1)


@sequence(BATCHES)
def arange_added(x):
    return torch.arange(len(x))[:, None] + x, torch.arange(0.0, x.shape[0] / 2, 0.5)


@sequence(shapes((3, 4), (3, 5), (3, 7)), marks=[(0, 1)])
def causal_mask(x):
    n = x.shape[-1]
    mask = torch.full((n, n), float("-inf")).triu(1)
    return (x[:, None] + mask).softmax(-1)


@sequence(over(lambda n: (T(2, n), torch.tensor([n - 1, n // 2])), 4, 5, 7), marks=[(0, 1)])
def padding_mask(x, lengths):
    mask = torch.arange(x.shape[1])[None] < lengths[:, None]
    return x.masked_fill(~mask, 0).sum(1) / lengths


@sequence(over(lambda n: (T(2, n, 4),), 3, 5, 6))
def rotary(x):
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[1]).float(), 10000 ** (-torch.arange(half) / half))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


@sequence(over(lambda n: (T(1, 2, n, n),), 4, 5, 6))
def interpolate_by_factor(x):
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


@sequence(over(lambda n: (T(1, 2, n, n), T(1, 2, n + 3, n + 2)), 4, 5, 6))
def interpolate_to_other(x, y):
    return F.interpolate(x, size=y.shape[-2:], mode="bilinear", align_corners=False) + y


@sequence(shapes((3, 4), (3, 5), (3, 7), (3, 8)))
def pad_to_eight(x):
    return F.pad(x, (0, 8 - x.shape[1]))


@sequence(shapes((3, 4), (3, 5), (3, 6), (3, 7), (3, 9)))
def pad_to_multiple(x):
    missing = -x.shape[1] % 4
    if missing:
        x = F.pad(x, (0, missing), value=1.0)
    return x.view(3, -1, 4)


@sequence(over(lambda n: (T(1, 2, n),), 4, 5, 6))
def pad_by_reflection(x):
    return F.pad(x, (1, 2), mode="reflect")


@sequence(over(lambda n, m: (T(n, 3), T(m, 3)), (4, 4), (5, 5), (6, 1), (7, 7)))
def where(x, y):
    return torch.where(x > 0, x, y), torch.maximum(x, y), torch.lerp(x, y, 0.3)


@sequence(BATCHES)
def boolean_mask(x):
    return x[x > 0], x.nonzero(), (x > 0).sum()


@sequence(over(lambda n: (T(n, 2, 3),), 3, 4, 5), made=True)
def recurrent():
    return filled(nn.GRU(3, 2))


@sequence(over(lambda n: (T(n, 3),), 3, 4, 5), made=True)
def recurrent_by_hand():
    cell = filled(nn.RNNCell(3, 2))

    def fn(x):
        h = x.new_zeros(1, 2)
        for i in range(x.shape[0]):
            h = cell(x[i : i + 1], h)
        return h

    return fn


@sequence(over(lambda n: (T(n, n),), 3, 4, 5))
def linear_algebra(x):
    y = x @ x.t() + torch.eye(x.shape[0]) * 3
    return torch.linalg.cholesky(y), torch.linalg.solve(y, x[:, 0]), torch.linalg.det(y)


@sequence(over(lambda n: (T(n),), 4, 5, 6))
def fourier(x):
    return torch.fft.rfft(x).abs(), torch.fft.fft(x).real


@sequence(over(lambda n: (T(n, 3, dtype=torch.int64), T(n, 3)), 4, 5, 6))
def promotion(i, x):
    n = i.shape[0]
    return i + n, i / n, i * (n / 2), x + n, (i > n) * n, torch.tensor(n) + x, i // n


@sequence(over(lambda n: (T(2, n, 3),), 4, 5, 6), made=True)
def vmap_over_rows():
    return lambda x: torch.vmap(lambda row: row * row.shape[0] + row.sum())(x)


@sequence(over(lambda b, n: (T(b, n), T(n)), (2, 4), (3, 5), (4, 6), (7, 7)), graphs=2)
def vmap_of_several(x, y):
    dots = torch.vmap(torch.dot, (0, None))(x, y)
    outer = torch.vmap(lambda row: torch.vmap(lambda one: one * y.shape[0] + row.sum() / row.size(0))(y), out_dims=1)(x)
    return dots, outer, outer.shape, torch.vmap(lambda row: row.view(row.shape[0], 1).sum(1), 1, 1)(x).shape


@sequence(over(lambda n, m: (T(n, m),), (4, 3), (6, 5), (3, 7), (5, 5)))
def decompositions(x):
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    q, r = torch.linalg.qr(x.t())
    return s, (u * s) @ v, u.shape, v.shape, q @ r, r.shape[0] * s.numel()


@sequence(over(lambda n: (T(n, 3),), 4, 5, 6))
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    return y.float().sum(), y.shape[0]


@sequence(over(lambda n: (T(n, 3, rg=True),), 4, 5, 6, 9), backward=True)
def seed_in_between(x):
    y = x * x.shape[0]
    torch.manual_seed(3)
    z = (torch.rand(x.shape) + y).view(-1)
    state = torch.random.get_rng_state()
    return z * z.numel(), torch.randn(len(z)) * z[: x.shape[0]].sum(), state.numel()


@sequence(over(lambda n: (T(n, 3),), 4, 5, 6))
def dropout_in_training(x):
    torch.manual_seed(3)
    return torch.nn.functional.dropout(x, 0.5, training=False), torch.zeros(x.shape[0]) + 1


@sequence(over(lambda n: (T(n, 3),), 4, 5, 6), aot=False)
def random_of_size(x):
    return torch.rand(x.shape[0]) + x[:, 0], torch.randn_like(x), torch.randperm(x.shape[0])


@sequence(over(lambda n: (T(2, n, 8),), 4, 5, 7), made=True, marks=[(0, 1)])
def attention_in_one_call():
    attention = filled(nn.MultiheadAttention(8, 2, batch_first=True)).eval()

    def fn(x):
        with torch.no_grad():
            y, weights = attention(x, x, x)
            z, nothing = attention(y, x, x, need_weights=False)
            of_heads = attention(x, z, z, average_attn_weights=False)[1]
        return z, nothing, weights.shape, of_heads.shape, of_heads.sum() * y.shape[1]

    return fn


@sequence(over(lambda n: (T(2, n, 8),), 4, 5, 7), made=True, marks=[(0, 1)])
def encoder_layer_in_one_call():
    layer = filled(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)).eval()

    def fn(x):
        with torch.no_grad():
            return layer(x).shape, layer(x) * x.shape[1]

    return fn

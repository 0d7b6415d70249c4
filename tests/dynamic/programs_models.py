"""What users write around models: masks from lengths, caches, buckets, padding, windows, packing, schedules, counters."""

import math
import types

import torch
import torch.nn.functional as F
from harness import T
from programs_operators import filled
from sequences import over, sequence, shapes
from torch import nn

LENGTHS = [*over(lambda n: (T(2, n, 4), torch.tensor([n, n - 2])), 5, 6, 8, 11)]


@sequence(LENGTHS, marks=[(0, 1)])
def mean_over_lengths(x, lengths):
    mask = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
    weights = mask.unsqueeze(-1).to(x.dtype)
    return (x * weights).sum(1) / weights.sum(1).clamp(min=1), mask


@sequence(LENGTHS, marks=[(0, 1)])
def attention_over_lengths(x, lengths):
    b, n, d = x.size()
    mask = torch.arange(n).expand(b, n) < lengths.unsqueeze(1)
    scores = (x @ x.mT / math.sqrt(d)).masked_fill(~mask[:, None, :], torch.finfo(x.dtype).min)
    return scores.softmax(-1) @ x


@sequence(over(lambda n, p: (T(1, n, 4), p), (5, 0), (1, 5), (1, 6), (1, 7), (3, 8)), made=True)
def static_cache_with_position():
    cache = types.SimpleNamespace(k=torch.zeros(1, 16, 4))

    def fn(x, position):
        n = x.shape[1]
        cache.k[:, position : position + n] = x
        keys = cache.k[:, : position + n]
        mask = torch.ones(n, position + n, dtype=torch.bool).tril(position)
        return F.scaled_dot_product_attention(x, keys, keys, attn_mask=mask)

    return fn


@sequence(over(lambda n: (T(1, n, 4),), 5, 1, 1, 1, 1, 1), made=True)
def cache_of_layers_that_grows():
    class Cache:
        def __init__(self):
            self.keys, self.seen = [], 0

        def update(self, x, layer):
            if layer == 0:
                self.seen += x.shape[-2]
            if len(self.keys) <= layer:
                self.keys.append(x)
            else:
                self.keys[layer] = torch.cat([self.keys[layer], x], dim=-2)
            return self.keys[layer]

    cache = Cache()

    def fn(x):
        for layer in range(2):
            keys = cache.update(x, layer)
            x = F.scaled_dot_product_attention(x, keys, keys)
        return x * cache.seen

    return fn


@sequence(shapes((3, 5), (3, 7), (3, 8), (3, 12), (3, 17)))
def padded_to_eight(x):
    n = x.shape[1]
    wanted = (n + 7) // 8 * 8
    y = F.pad(x, (0, wanted - n))
    return y.view(3, wanted // 8, 8).sum(1), y[:, :n]


@sequence(shapes((3, 5), (3, 7), (3, 9), (3, 12), (3, 17)))
def bucketed(x):
    n = x.shape[1]
    bucket = next(size for size in (8, 16, 32) if n <= size)
    y = x.new_zeros(x.shape[0], bucket)
    y[:, :n] = x
    return y * 2


@sequence(shapes((2, 12), (2, 16), (2, 20), (2, 28)), marks=[(0, 1)])
def windows_of_four(x):
    return x.unfold(1, 4, 4).mean(-1), x.view(2, -1, 4).amax(-1)


@sequence(shapes((2, 9, 4), (2, 11, 4), (2, 14, 4)), marks=[(0, 1)])
def sliding_window(x):
    n = x.shape[1]
    i = torch.arange(n)
    mask = (i[:, None] - i[None, :]).abs() <= 2
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


@sequence(over(lambda h, w: (T(1, 3, h, w),), (8, 10), (12, 10), (9, 14), (16, 16)))
def image_to_half(x):
    h, w = x.shape[-2:]
    return F.interpolate(x, size=(h // 2, w // 2), mode="bilinear", align_corners=False)


@sequence(over(lambda h, w: (T(1, 3, h, w),), (8, 10), (12, 10), (9, 14), (16, 16)), made=True)
def image_resized_to_multiple():
    conv = filled(nn.Conv2d(3, 2, 4, stride=4))

    def fn(x):
        h, w = x.shape[-2:]
        new_h, new_w = int(math.ceil(h / 4) * 4), int(math.ceil(w / 4) * 4)
        if (new_h, new_w) != (h, w):
            x = F.interpolate(x, size=(new_h, new_w), mode="nearest")
        y = conv(x)
        return y.flatten(2).transpose(1, 2)

    return fn


@sequence(over(lambda h, w: (T(1, 3, h, w),), (8, 12), (12, 8), (16, 12)), made=True)
def unet():
    down, up = filled(nn.Conv2d(3, 4, 3, stride=2, padding=1)), filled(nn.Conv2d(4, 3, 3, padding=1))

    def fn(x):
        y = F.relu(down(x))
        y = F.interpolate(y, scale_factor=2, mode="nearest")
        y = up(y)
        if y.shape != x.shape:
            y = F.interpolate(y, size=x.shape[2:])
        return torch.cat([x, y], 1)

    return fn


@sequence(over(lambda n: (T(2, n, 3), T(3, n)), 4, 5, 7), marks=[(0, 1), (1, 1)])
def einsums(x, y):
    return torch.einsum("bnd,dn->bd", x, y), torch.einsum("bnd,bmd->bnm", x, x)


@sequence(over(lambda n: (T(2, n, 3), torch.tensor([n - 1, n // 2])), 4, 5, 7), marks=[(0, 1)])
def last_of_each(x, lengths):
    picked = x.gather(1, (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[-1])).squeeze(1)
    return picked, x[torch.arange(x.shape[0]), lengths - 1]


@sequence(over(lambda *n: ([T(k, 3, s=k) for k in n],), (2, 4), (3, 5), (4, 6), (5, 5)))
def packed(parts):
    longest = max(part.shape[0] for part in parts)
    padded = torch.stack([F.pad(part, (0, 0, 0, longest - part.shape[0])) for part in parts])
    lengths = torch.tensor([part.shape[0] for part in parts])
    return padded, lengths, torch.cat(parts).sum(0)


@sequence(over(lambda n: (T(n, 3),), 8, 8, 8, 5, 8, 3), made=True)
def epochs_with_last_batch():
    net = filled(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)))
    state = types.SimpleNamespace(seen=0)

    def fn(x):
        state.seen += x.shape[0]
        return net(x).log_softmax(-1), state.seen

    return fn


@sequence([*[lambda: (T(4, 3),)] * 5], made=True)
def dropout_annealed():
    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.steps = nn.Dropout(0.5), 0

        def forward(self, x):
            self.steps += 1
            self.drop.p = 0.5 * (1 - self.steps / 10)
            return self.drop(x) * 0 + x

    return Annealed()


@sequence([*[lambda: (T(4, 3),)] * 5], made=True)
def exponential_moving_average():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shadow", torch.zeros(3))
            self.decay, self.updates = 0.99, 0

        def forward(self, x):
            self.updates += 1
            decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
            self.shadow.lerp_(x.mean(0), 1 - decay)
            return x - self.shadow

    return Average()


@sequence([*[lambda: (T(4, 3, rg=True),)] * 6], made=True)
def loss_weight_warmed_up():
    class Schedule:
        def __init__(self):
            self.step, self.warm = 0, 4

        def __call__(self):
            self.step += 1
            return 1.0 if self.step >= self.warm else self.step / self.warm

    schedule = Schedule()

    def fn(x):
        weight = schedule()
        return x.square().mean() + weight * x.abs().mean()

    return fn


@sequence(over(lambda n: (T(2, n, 8),), 3, 5, 6), made=True, marks=[(0, 1)])
def rotary_attention():
    qkv = filled(nn.Linear(8, 24, bias=False))

    def fn(x):
        b, n, d = x.shape
        q, k, v = qkv(x).view(b, n, 3, 2, d // 2).unbind(2)
        t = torch.arange(n, dtype=torch.float32)
        angles = torch.outer(t, 1.0 / 100 ** (torch.arange(0, d // 2, 2) / (d // 2)))
        cos, sin = angles.cos()[None, :, None], angles.sin()[None, :, None]

        def rotated(y):
            a, b = y.chunk(2, -1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

        out = F.scaled_dot_product_attention(*(y.transpose(1, 2) for y in (rotated(q), rotated(k), v)), is_causal=True)
        return out.transpose(1, 2).reshape(b, n, d)

    return fn


@sequence(over(lambda n: (T(1, n),), 100, 120, 161, 200), marks=[(0, 1)])
def framed(x):
    frames = x.unfold(-1, 20, 10)
    count = 1 + (x.shape[-1] - 20) // 10
    return (frames * torch.hann_window(20)).square().sum(-1), count


@sequence(over(lambda n: (T(2, n, 4),), 4, 6, 9), made=True, marks=[(0, 1)])
def pooled_by_attention():
    score = filled(nn.Linear(4, 1))

    def fn(x):
        weights = score(x).squeeze(-1).softmax(-1)
        best = weights.topk(min(3, x.shape[1]), -1).indices
        return (weights[..., None] * x).sum(1), x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))

    return fn


@sequence(over(lambda n: (torch.arange(n) % 7, T(7, 4)), 5, 6, 9), marks=[(0, 0)])
def causal_language_loss(tokens, table):
    x = F.embedding(tokens, table)
    logits = x @ table.t()
    return F.cross_entropy(logits[:-1], tokens[1:], ignore_index=0), logits.argmax(-1)


@sequence(over(lambda n, m: (T(n, 4), T(m, 4)), (3, 5), (4, 6), (6, 5), (5, 5)))
def contrastive(x, y):
    x, y = F.normalize(x, dim=-1), F.normalize(y, dim=-1)
    logits = x @ y.t() / 0.07
    n = min(x.shape[0], y.shape[0])
    return F.cross_entropy(logits[:n, :n], torch.arange(n))


@sequence(over(lambda n: (T(n, 4), torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(n))), 6, 7, 9))
def experts_by_index(x, which):
    out = torch.zeros_like(x)
    for e in range(3):
        weight = (which == e).to(x.dtype)[:, None]
        out = out + weight * (x * (e + 1))
    return out / x.shape[0]


@sequence(over(lambda n, m: (T(n, 3), T(m, 3)), (4, 6), (5, 7), (6, 9), (9, 4), (5, 5)))
def folds_of_generators(x, y):
    seen = []

    def sizes(*more):
        for one in (x, y):
            seen.append(one.dim())
            yield one.shape[0]
        yield from more

    longest, least = max(sizes()), min(sizes(5))
    total = sum(sizes(), 1) + math.prod(sizes(2))
    names = max(n for n in ("a", "b")), max((one.shape[0], "t") for one in (x, y)), sum(one.sum() for one in (x, y))
    return x.new_zeros(longest), least, total, names, seen


@sequence(over(lambda n: (T(n, 3),), 4, 5, 6))
def fold_that_raises(x):
    seen = []

    def sizes():
        for item in (x.shape[0], "text", 3):
            seen.append(item)
            yield item

    try:
        max(sizes())
    except TypeError as error:
        seen.append(str(error))
    return x * 2, seen


@sequence(over(lambda n, m: (T(n, m),), (4, 8), (5, 8), (5, 12), (8, 8), (7, 6), (4, 4)))
def shapes_compared_as_one(x):
    rounded = tuple((n + 3) // 4 * 4 for n in x.shape)
    if rounded != tuple(x.shape):
        x = F.pad(x, (0, rounded[1] - x.shape[1], 0, rounded[0] - x.shape[0]))
    return x.view(-1, 4), [x.shape[0], 1] == [x.shape[0], 2], x.shape == (*rounded, 1)

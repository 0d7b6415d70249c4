"""Views, joins, cuts, indices and slices with sizes."""

import torch
from harness import T
from sequences import over, sequence, shapes

ROWS3 = shapes((4, 3), (5, 3), (7, 3))
EVEN = shapes((4, 3), (6, 3), (8, 3))
FIRST = [(0, 0)]


@sequence(ROWS3, marks=FIRST, inductor=True)
def view_by_size(x):
    return x.view(x.shape[0], -1)


@sequence(ROWS3, marks=FIRST)
def view_flat(x):
    return x.view(-1) * 2


@sequence(EVEN)
def view_in_halves(x):
    return x.view(2, x.shape[0] // 2, 3).sum(1)


@sequence(shapes((4, 6), (5, 6), (7, 6)), marks=FIRST)
def view_heads(x):
    n, d = x.shape
    return x.view(n, 2, d // 2).transpose(0, 1)


@sequence(shapes((4, 3), (6, 3), (5, 3), (8, 3)))
def view_that_may_fail(x):
    return x.view(x.shape[0] // 2, 6)


@sequence(ROWS3, marks=FIRST)
def reshape_flat(x):
    return x.reshape(-1)


@sequence([*shapes((4, 3), (5, 3)), *over(lambda n: (T(3, n).t(),), 5, 6), *shapes((7, 3))])
def reshape_view_or_copy(x):
    y = x.reshape(-1)
    y.add_(1)
    return x


@sequence([*shapes((4, 3), (5, 3)), *over(lambda n: (T(3, n).t(),), 5, 1, 6), *shapes((1, 3))])
def flatten_view_or_copy(x):
    y = x.flatten()
    y.mul_(2)
    return y, x


@sequence([*shapes((4, 3), (5, 3)), *over(lambda n: (T(3, n).t(),), 5, 6)])
def contiguous_or_copy(x):
    y = x.contiguous()
    return y, y is x


@sequence(shapes((4, 1, 3), (5, 1, 3), (1, 1, 3), (6, 2, 3)))
def squeeze(x):
    return x.squeeze(1) + 1


@sequence(shapes((4, 3), (5, 3), (1, 3), (6, 3)))
def squeeze_all(x):
    return x.squeeze()


@sequence(ROWS3, marks=FIRST)
def unsqueezed(x):
    return x.unsqueeze(0) - x.unsqueeze(1)


@sequence(over(lambda n: (T(n), T(1, 3)), 4, 5, 7))
def expand_to_size(x, y):
    return y.expand(x.shape[0], 3) * x[:, None]


@sequence(ROWS3)
def expand_of_constant(x):
    return torch.ones(3).expand(x.shape[0], 3).sum() + x


@sequence(ROWS3, marks=FIRST)
def expand_as(x):
    return torch.arange(3.0).expand_as(x), x.sum(0).expand(x.size())


@sequence(shapes((4, 3), (5, 3), (1, 3), (7, 3)))
def expand_or_itself(x):
    y = x.expand(x.shape)
    return y + 1


@sequence(ROWS3)
def repeated(x):
    return x.repeat(2, 1), x.repeat(1, x.shape[0]), x.repeat_interleave(2, 0)


@sequence(over(lambda n, m: (T(n, 3), T(m, 3)), (4, 2), (5, 3), (6, 6), (7, 1)), marks=[(0, 0), (1, 0)], inductor=True)
def cat(x, y):
    return torch.cat([x, y]) * 2


@sequence(ROWS3, marks=FIRST)
def cat_with_itself(x):
    y = torch.cat([x, x, x[:1]])
    return y, y.shape[0]


@sequence(over(lambda n, m: (T(n, 3), T(m, 3)), (4, 2), (0, 3), (5, 0), (0, 0)))
def cat_with_empty(x, y):
    return torch.cat([x, y])


@sequence(over(lambda n: (T(n), T(n)), 4, 5, 6), marks=[(0, 0), (1, 0)])
def stack(x, y):
    return torch.stack([x, y, x], 1)


@sequence(shapes((4, 3), (5, 3), (6, 3), (8, 3), (2, 3)))
def split_by_two(x):
    return torch.cat([one * number for number, one in enumerate(x.split(2))])


@sequence(shapes((4, 3), (5, 3), (6, 3), (8, 3), (2, 3)))
def chunk_in_two(x):
    parts = x.chunk(2)
    return parts[0].sum(0), len(parts), [one.shape[0] for one in parts]


@sequence(shapes((3, 4), (3, 6), (3, 8)), marks=[(0, 1)])
def chunk_last(x):
    a, b = x.chunk(2, -1)
    return a * torch.sigmoid(b)


@sequence(shapes((4, 3), (5, 3), (6, 3)))
def split_with_sizes(x):
    a, b = x.split([1, x.shape[0] - 1])
    return b + a


@sequence(shapes((4, 3), (5, 3), (7, 3)))
def split_in_halves(x):
    a, *rest = x.split(x.shape[0] // 2)
    return a, len(rest), rest[0]


@sequence(shapes((4, 3), (5, 3), (3, 3)))
def unbind_rows(x):
    return sum(x.unbind())


@sequence(shapes((3, 4), (3, 5), (3, 6)), marks=[(0, 1)])
def unbind_fixed(x):
    q, k, v = x.unbind(0)
    return q * k + v


@sequence(shapes((4, 3), (5, 3), (3, 3)))
def iterated(x):
    return sum(r for r in x), [r.shape for r in x]


@sequence(shapes((3, 4), (3, 5), (2, 6), (3, 6)))
def unpacked_rows(x):
    a, b, c = x
    return a * b - c


@sequence(shapes((4, 3), (5, 3), (7, 3)))
def tensor_split(x):
    return [one.sum() for one in torch.tensor_split(x, 3)], torch.hsplit(x, 3)[1]


@sequence(shapes((4, 3), (5, 3), (7, 3)), marks=FIRST)
def last_row(x):
    return x[-1], x[x.shape[0] - 1], x[len(x) - 2]


@sequence(shapes((4, 3), (5, 3), (7, 3)), marks=FIRST)
def without_ends(x):
    return x[1:-1] + x[: x.shape[0] - 2]


@sequence(EVEN, marks=FIRST, inductor=True)
def half(x):
    return x[: x.shape[0] // 2], x[x.shape[0] // 2 :] * 2


@sequence(shapes((2, 3), (3, 3), (5, 3), (8, 3), (1, 3)))
def slice_beyond_the_end(x):
    return x[:4] + 1, x[4:]


@sequence(shapes((4, 6), (4, 5), (4, 4), (4, 7)))
def column_that_may_lack(x):
    return x[:, 4]


@sequence(shapes((4, 3), (5, 3), (4, 3), (6, 3)))
def row_that_may_lack(x):
    return x[4] * 2


@sequence(over(lambda n, i: (T(n, 3), i), (4, 0), (5, 1), (6, 2), (6, -1), (6, 9)))
def index_argument(x, i):
    return x[i]


@sequence(over(lambda n, a, b: (T(n, 3), a, b), (6, 0, 2), (6, 1, 4), (7, 2, 5), (7, 5, 2), (8, -3, 8)))
def slice_arguments(x, a, b):
    return x[a:b] * 2


@sequence(over(lambda n, k: (T(n, 3), k), (6, 2), (7, 3), (8, 4), (3, 5)))
def narrow(x, k):
    return x.narrow(0, 0, k)


@sequence(over(lambda n, k: (T(n, 3), k), (6, 2), (7, 3), (8, 4), (3, 5), (9, 4)))
def write_and_narrow(x, k):
    x.add_(1)
    return x.narrow(0, 0, k)


@sequence(over(lambda n, k: (T(n, 3), k), (6, 2), (7, 3), (8, 4), (3, 5), (9, 4)))
def narrow_in_a_try(x, k):
    try:
        y = x.narrow(0, 0, k)
    except RuntimeError as error:
        y = x * len(str(error))
    return y + 1


@sequence(over(lambda n, k: (T(n, 3), k), (6, 2), (7, 3), (8, 4), (3, 5), (9, 4)))
def write_and_try(x, k):
    x.add_(1)
    try:
        y = x.narrow(0, 0, k)
    except RuntimeError as error:
        y = x * len(str(error))
    return y + 1


@sequence(over(lambda n, k: (T(n, 3), k), (6, 2), (7, 3), (8, 4), (3, 5), (9, 4)), made=True)
def counted_and_viewed():
    seen = []

    def fn(x, k):
        seen.append(k)
        y = x.t().reshape(k, -1)
        seen.append(y.shape[1])
        return y

    return fn


@sequence(over(lambda n, i: (T(n, 3), i), (6, 2), (7, 3), (8, 4), (8, 20)))
def select_and_write(x, i):
    y = x.clone()
    y[i] = 1.0
    y.select(0, i - 1).fill_(2)
    return y


@sequence(over(lambda n: (T(n, 3), torch.arange(0, n, 2)), 4, 6, 8, 9))
def index_by_tensor(x, i):
    return x[i], x.index_select(0, i), i.numel()


@sequence(shapes((4, 3), (5, 3), (7, 3)), marks=FIRST)
def flipped_and_rolled(x):
    return x.flip(0), x.roll(1, 0), x.roll(x.shape[0] // 2, 0)


@sequence(over(lambda n: (T(n, n),), 4, 5, 6))
def diagonals(x):
    return x.diagonal() + x.trace(), torch.tril(x), torch.triu(x, 1)


@sequence(shapes((8,), (9,), (10,)))
def unfolded(x):
    return x.unfold(0, 3, 2), x.unfold(0, 2, 1).shape


@sequence(shapes((4, 3), (5, 3), (7, 3)))
def as_strided(x):
    return torch.as_strided(x, (x.shape[0], 2), (3, 1), 1)


@sequence(shapes((2, 3, 4), (5, 3, 4), (6, 3, 4)), marks=FIRST)
def permuted(x):
    return x.permute(2, 0, 1).contiguous(), x.movedim(0, -1), x.transpose(0, 2)


@sequence(shapes((4, 3), (6, 3), (8, 3)))
def unflatten(x):
    return x.unflatten(0, (2, -1)), x.unflatten(0, (x.shape[0] // 2, 2)).flatten(1)


@sequence(shapes((4, 3), (5, 3), (6, 3)))
def view_as_bytes(x):
    return x.view(torch.int32) + 1, x.view(torch.int16).shape


@sequence(shapes((4, 3), (5, 3), (6, 3)))
def write_into_views(x):
    y = x.clone()
    y[: len(x) // 2].zero_()
    y[:, 0] += x.shape[0]
    y.view(-1)[-1] = 7
    return y


@sequence(shapes((4, 3), (5, 3), (6, 3)))
def write_into_input(x):
    x[1:].mul_(x.shape[0])
    x.view(-1)[0] = x.numel()
    return x.t()


@sequence(shapes((4, 3), (5, 3), (6, 3)))
def transposed_in_place(x):
    y = x.clone()
    y.t_()
    return y, y.shape, y * 2


@sequence(shapes((4, 3), (5, 3), (6, 3)))
def input_transposed_in_place(x):
    x.t_()
    return x + 1


@sequence(over(lambda n: (T(n, 3), T(2 * n, 3)), 4, 5, 6))
def copied_into_half(x, y):
    y[: x.shape[0]].copy_(x)
    return y


@sequence(over(lambda n, m: (T(n, 3), T(m, 3)), (4, 4), (5, 5), (5, 1), (6, 6)))
def added_in_place(x, y):
    x += y
    return x

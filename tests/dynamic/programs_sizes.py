"""Sizes of inputs: 0, 1 and 2, equal ones that part, broadcasts, layouts, and what a program is told about them."""

import torch
from harness import T
from sequences import over, sequence, shapes

ROWS3 = shapes((4, 3), (5, 3), (7, 3))
FIRST = [(0, 0)]


@sequence(ROWS3, marks=FIRST, inductor=True)
def pointwise(x):
    return x * 2 + 1


@sequence(shapes((4, 3), (5, 3), (2, 3), (1, 3), (0, 3), (6, 3)))
def down_to_zero(x):
    return x.sin() + 1


@sequence(shapes((0, 3), (1, 3), (2, 3), (3, 3), (4, 3)))
def up_from_zero(x):
    return x.exp() * 2


@sequence(shapes((1, 3), (4, 3), (5, 3), (6, 3), (1, 3)))
def one_first(x):
    return x - x.mean(-1, keepdim=True)


@sequence(shapes((2, 3), (3, 3), (4, 3), (2, 2)))
def two_first(x):
    return torch.relu(x)


@sequence(shapes((1, 4), (1, 5), (2, 6), (3, 7), (0, 8)))
def one_beside_a_length(x):
    return x.cumsum(1) / x.shape[1]


@sequence(shapes((4, 3), (5, 3), (5, 4), (6, 7), (8, 9)), marks=[(0, 0), (0, 1)])
def two_dimensions(x):
    return torch.tanh(x).neg()


@sequence(shapes((4, 4), (5, 5), (5, 6), (6, 6), (7, 3)))
def square_no_more(x):
    return x + 1


@sequence(shapes((4, 4), (5, 5), (6, 6)), marks=[(0, 0), (0, 1)])
def square_times_itself(x):
    return x @ x


@sequence(over(lambda n, m: (T(n, m), T(m, n)), (4, 4), (5, 5), (5, 6), (6, 4)))
def square_product(x, y):
    return (x @ y).sum(0)


@sequence(over(lambda n, m: (T(n, 3), T(m, 3)), (4, 4), (5, 5), (5, 1), (1, 5), (6, 6)))
def equal_then_broadcast(x, y):
    return x + y


@sequence(over(lambda n, m: (T(n, 3), T(m, 3)), (4, 1), (5, 1), (1, 6), (7, 7), (1, 1)))
def broadcast_both_ways(x, y):
    return x * y - y


@sequence(over(lambda n, m: (T(n), T(m)), (4, 4), (5, 5), (5, 6), (6, 5)))
def equal_that_part(x, y):
    return x.sum() + y.sum(), torch.cat([x, y])


@sequence(over(lambda n, m: (T(n), T(m)), (4, 5), (5, 6), (6, 6), (7, 3)))
def different_that_meet(x, y):
    return torch.cat([x, y]) * 2


@sequence(over(lambda n, m: (T(n), T(m)), (4, 4), (5, 5), (6, 5), (7, 7)))
def mismatch_raises(x, y):
    return x + y


@sequence(over(lambda *s: (T(*s),), (4,), (4, 3), (5, 3), (2, 5, 3), (3, 5, 3)))
def rank_changes(x):
    return x.sum(-1)


@sequence(
    over(
        lambda n, d: (T(n, 3, dtype=d),), (4, torch.float32), (5, torch.float32), (5, torch.float64), (6, torch.float64)
    )
)
def dtype_changes(x):
    return x * 1.5 + x.shape[0]


@sequence(over(lambda n, rg: (T(n, 3, rg=rg),), (4, False), (5, False), (5, True), (6, True)), backward=True)
def gradients_asked_later(x):
    return (x * x).sum()


@sequence(over(lambda n: (T(3, n).t(),), 4, 5, 6), marks=FIRST)
def transposed(x):
    return x * 2


@sequence(over(lambda n: (T(1, 3).expand(n, 3),), 4, 5, 6))
def expanded(x):
    return x * 2


@sequence(over(lambda n: (T(n + 1, 3)[1:],), 4, 5, 6))
def behind_an_offset(x):
    return x * 2, x.storage_offset()


@sequence(over(lambda n: (T(2 * n, 3)[::2],), 4, 5, 6))
def every_second_row(x):
    return x * 2


@sequence(over(lambda n: (T(n, 6)[:, 1:4],), 4, 5, 6))
def columns_in_the_middle(x):
    return x.contiguous(), x.stride()


@sequence(over(lambda n: (T(2, n, 4, 4).to(memory_format=torch.channels_last),), 3, 4, 5))
def channels_last(x):
    return torch.relu(x), x.is_contiguous(), x.is_contiguous(memory_format=torch.channels_last)


@sequence(over(lambda n: (T(2, 3, n, n).to(memory_format=torch.channels_last),), 4, 5, 6, 1))
def channels_last_pixels(x):
    return x * 2 + 1


@sequence(over(lambda n: (torch.as_strided(T(12), (n, 3), (1, 1)),), 4, 5, 6))
def overlapping(x):
    return x.sum(0) + x[0]


LAYOUTS = [
    lambda: (T(4, 3),), lambda: (T(3, 5).t(),), lambda: (T(6, 3),), lambda: (T(1, 3).expand(7, 3),), lambda: (T(8, 5)[:, :3],),
    lambda: (T(3, 9).t(),), lambda: (T(9, 3)[2:],),
]  # fmt: skip


@sequence(LAYOUTS)
def layouts_in_turn(x):
    return x.mul(2), x.reshape(-1), x.contiguous()


@sequence(LAYOUTS)
def told_about_the_layout(x):
    return x.is_contiguous(), x.stride(), x.storage_offset(), x.stride(0)


@sequence(over(lambda n: two_views(n), 4, 5, 6))
def inputs_that_share(x, y):
    x.mul_(2)
    return x + y


def two_views(n):
    x = T(n + 1)
    return x[:n], x[1:]


def same_twice(n):
    x = T(n)
    return x, x


@sequence(over(same_twice, 4, 5, 6))
def same_tensor_twice(x, y):
    x.add_(1)
    return x * y


@sequence([*over(same_twice, 4, 5), *over(lambda n: (T(n), T(n)), 5, 6), *over(same_twice, 6)])
def same_tensor_sometimes(x, y):
    x.add_(1)
    return x * y, x is y


# ------------------------------------------------------------------------------------------ what the program is told


@sequence(ROWS3)
def shape_returned(x):
    return x.shape


@sequence(ROWS3)
def sizes_returned(x):
    return x + 1, x.size(0), x.size(), x.shape[0], x.shape[-1], x.size(dim=1)


@sequence(ROWS3, marks=FIRST)
def counts_returned(x):
    return x.sin(), len(x), x.numel(), x.nelement(), torch.numel(x), x.ndim, x.dim()


@sequence(ROWS3)
def bytes_returned(x):
    return x.nbytes, x.element_size() * x.numel(), x.itemsize


@sequence(ROWS3)
def strides_returned(x):
    return x.stride(), x.t().stride(), x.stride(0), x.storage_offset(), x[1:].storage_offset()


@sequence(shapes((4, 3), (5, 4), (6, 5), (7, 5)), marks=[(0, 0), (0, 1)])
def divided_by_count(x):
    return x.sum() / x.numel()


@sequence(ROWS3)
def shape_sliced(x):
    return x.new_ones(x.shape[:1]) + x.shape[1:][0], x.shape[:1], x.shape[1:] + x.shape[:1]


@sequence(ROWS3)
def shape_unpacked(x):
    rows, columns = x.shape
    return x.reshape(columns, rows), rows * columns


@sequence(ROWS3)
def shape_counted(x):
    return len(x.shape), x.shape.numel(), tuple(x.shape), list(x.shape), x.shape.count(3), x.shape.index(3)


@sequence(over(lambda n, m: (T(n, 3), T(m, 3)), (4, 4), (5, 5), (5, 4), (6, 6), (7, 4)))
def shapes_compared(x, y):
    if x.shape == y.shape:
        return x + y
    return x.sum() - y.sum()


@sequence(shapes((4, 3), (5, 3), (4, 3), (6, 3)))
def shape_compared_to_constant(x):
    return x * (2 if x.shape == (4, 3) else 3)


@sequence(over(lambda n: (T(n, 3), T(n, 3)), 4, 5, 6))
def is_same_size(x, y):
    return x + 1 if x.is_same_size(y) else x - 1


@sequence(over(lambda n, s: (T(n, 3), s), (4, (4, 3)), (5, (5, 3)), (6, (3, 6))))
def expand_to_an_argument(x, shape):
    return x.reshape(shape)


@sequence(shapes((4, 3), (6, 3), (8, 3), (5, 3)))
def type_of_a_size(x):
    n = x.shape[0]
    assert type(n) is int and isinstance(n, int) and type(n // 2) is int and type(x.shape) is torch.Size
    return x[: n // 2], type(n + 1), n


@sequence(ROWS3)
def tensor_of_shape(x):
    return torch.tensor(x.shape), torch.tensor(x.shape[0]) * x


@sequence(ROWS3)
def tensor_of_sizes(x):
    return torch.tensor([x.shape[0], 1, x.numel()], dtype=torch.float32).sum() + x


@sequence(ROWS3)
def empty_shape(x):
    n = x.shape[0]
    return torch.empty(n).shape, torch.empty(n, 2).numel(), torch.empty_like(x).stride()


@sequence(ROWS3)
def layout_methods(x):
    return x.is_contiguous(), x.t().is_contiguous(), x.dim_order(), x.T.dim_order()


@sequence(shapes((4, 3), (5, 3), (1, 3), (6, 3)))
def contiguous_of_transposed(x):
    y = x.t().contiguous()
    y.add_(1)
    return x, y


@sequence(over(lambda n: (T(3, n, 2),), 4, 5, 1, 6))
def shape_of_results(x):
    y = x.permute(1, 2, 0).reshape(x.size(1), -1)
    return y * y.shape[1], y.shape, (y @ y.t()).shape

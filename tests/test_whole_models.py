"""Whole models: one graph, and forward, backward and buffers bit for bit as in eager, over training steps and mode changes."""

from __future__ import annotations

import math
import warnings

import torch
import torch._dynamo  # torch's optimizers import it: here once, not in every forked child
import torch.nn.functional as F
from harness import T, program
from torch import nn


class MLP(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, 3))

    def forward(self, x):
        return self.layers(x)


class ResidualBlock(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.down = None
        if stride != 1 or inside != outside:
            self.down = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.down is None else self.down(x)
        return F.relu(y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.stages = nn.ModuleList([ResidualBlock(4, 4), ResidualBlock(4, 8, 2), ResidualBlock(8, 8)])
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        if mask is not None:
            scores = scores.masked_fill(mask[:n, :n] == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))

    def forward(self, x, mask=None):
        x = x + self.attention(self.ln1(x), mask=mask)
        return x + self.mlp(self.ln2(x))


class Transformer(nn.Module):
    def __init__(self, layers=12, width=16, heads=2, words=20, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("mask", torch.tril(torch.ones(length, length)), persistent=False)

    def forward(self, ids, targets=None):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x, mask=self.mask)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Straight(torch.autograd.Function):
    """Its backward is not the derivative of its forward, so that nobody can leave it out."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.round() * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.scale * 100 + x * 0, None


def train(t, f, model, make_batch, steps=3, learning_rate=0.1):
    """SGD steps outside of the compiled function."""
    optimizer = torch.optim.SGD(model.parameters(), learning_rate, momentum=0.9)
    for step in range(steps):
        torch.manual_seed(step)
        result = (f if step == 0 else f.hit)(*make_batch(step))
        loss = result[1] if isinstance(result, tuple) and result[1] is not None else result.float().pow(2).mean()
        loss.backward()
        t.note(loss.detach())
        t.note([p.grad for p in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()


@program(graphs=1)
def test_mlp_trains(t):
    model = MLP()
    train(t, t.compile(model), model, lambda s: (T(3, 4, s=s),))


@program(graphs=2)
def test_mlp_train_and_eval(t):
    model = MLP()
    f = t.compile(model)
    f(T(3, 4)).sum().backward()
    model.eval()
    f(T(3, 4))
    f.hit(T(3, 4))
    model.train()
    f.hit(T(3, 4)).sum().backward()


@program(graphs=1)
def test_resnet_trains(t):
    model = ResNet()
    train(t, t.compile(model), model, lambda s: (T(2, 3, 8, 8, s=s),))


@program(graphs=1)
def test_resnet_eval(t):
    model = ResNet().eval()
    f = t.compile(model)
    with torch.no_grad():
        f(T(2, 3, 8, 8))
        f.hit(T(2, 3, 8, 8, s=1))


@program(graphs=1)
def test_transformer_trains(t):
    model = Transformer()
    batch = torch.arange(12).view(2, 6)
    train(t, t.compile(model), model, lambda s: ((batch + s) % 20, (batch * 3 + s) % 20))


@program()
def test_transformer_eval_with_other_lengths(t):
    model = Transformer(layers=2).eval()
    f = t.compile(model)
    with torch.no_grad():
        for n in (4, 4, 6, 6, 4):
            f(torch.arange(n).view(1, n))


@program(graphs=1)
def test_encoder_of_torch_trains(t):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    train(t, t.compile(model), model, lambda s: (T(2, 5, 8, s=s),))


@program(graphs=1)
def test_encoder_of_torch_eval(t):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    f = t.compile(model)
    f(T(2, 5, 8))
    f.hit(T(2, 5, 8, s=1))


@program(graphs=1)
def test_multihead_attention(t):
    model = nn.MultiheadAttention(8, 2)
    f = t.compile(model)
    f(T(3, 2, 8), T(3, 2, 8), T(3, 2, 8))[0].sum().backward()
    f.hit(T(3, 2, 8), T(3, 2, 8), T(3, 2, 8))[0].sum().backward()


@program(graphs=1)
def test_lstm_trains(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)
            self.head = nn.Linear(5, 2)

        def forward(self, x):
            out, (h, c) = self.lstm(x)
            return self.head(out) + c.sum()

    model = Net()
    train(t, t.compile(model), model, lambda s: (T(2, 3, 4, s=s),))


@program()
def test_lstm_with_state_fed_back(t):
    model = nn.LSTM(4, 5)
    f = t.compile(model)
    _, state = f(T(3, 2, 4))
    _, state = f(T(3, 2, 4), state)
    f.hit(T(3, 2, 4), state)


@program(graphs=1)
def test_gru_cell_in_a_loop(t):
    cell = nn.GRUCell(4, 5)

    def fn(xs):
        h = torch.zeros(xs.shape[1], 5)
        out = []
        for x in xs:
            h = cell(x, h)
            out.append(h)
        return torch.stack(out)

    f = t.compile(fn)
    f(T(3, 2, 4)).sum().backward()
    f.hit(T(3, 2, 4)).sum().backward()


@program(graphs=2)
def test_batch_norm_train_then_eval(t):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    f = t.compile(model)
    for i in range(3):
        f(T(2, 3, 5, 5, s=i)).sum().backward()
    model.eval()
    f(T(2, 3, 5, 5))


@program(graphs=1)
def test_batch_norm_cumulative_average(t):
    model = nn.BatchNorm1d(4, momentum=None)
    f = t.compile(model)
    for i in range(3):
        f(T(3, 4, s=i)).sum().backward()


@program(graphs=1)
def test_custom_autograd_function(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return Straight.apply(self.linear(x), 2.0)

    model = Net()
    train(t, t.compile(model), model, lambda s: (T(2, 4, s=s),))


@program()
def test_custom_autograd_function_with_other_constants(t):
    f = t.compile(lambda x, scale: Straight.apply(x * 3, scale).sum())
    for scale in (2.0, 3.0, 2.0):
        f(T(2, rg=True), scale).backward()


@program(graphs=1)
def test_gradient_of_inputs(t):
    model = MLP(4).eval()
    f = t.compile(model)
    for i in range(2):
        x = T(3, 4, s=i, rg=True)
        f(x).sum().backward()
        t.note(x.grad)


@program(graphs=1)
def test_double_backward(t):
    f = t.compile(lambda x, w: ((x @ w).tanh() ** 2).sum())
    for _ in range(2):
        x, w = T(2, 3, rg=True), T(3, 2, rg=True)
        (grad,) = torch.autograd.grad(f(x, w), x, create_graph=True)
        grad.pow(2).sum().backward()
        t.note((x.grad, w.grad))


@program(graphs=1)
def test_gradient_accumulates_over_calls(t):
    model = MLP(4).eval()
    f = t.compile(model)
    for i in range(3):
        f(T(2, 4, s=i)).sum().backward()
    t.note([p.grad for p in model.parameters()])


@program(graphs=1)
def test_optimizer_with_adam_outside(t):
    model = MLP(4).eval()
    f = t.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for i in range(3):
        f(T(2, 4, s=i)).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=i == 1)


@program()
def test_whole_training_step_inside(t):
    model = nn.Linear(4, 4)

    def fn(x):
        model.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    f = t.compile(fn)
    f.free(T(2, 4))
    f.free(T(2, 4))


@program(graphs=1)
def test_named_parameters_and_state(t):
    model = MLP(4).eval()

    def fn(x):
        total = {name: p.sum() * 2 for name, p in model.named_parameters()}
        return total, model(x), sum(p.numel() for p in model.parameters()), [n for n, _ in model.named_modules()]

    f = t.compile(fn)
    f(T(2, 4))
    f.hit(T(2, 4))


@program(graphs=1)
def test_functional_call(t):
    model = nn.Linear(4, 4)
    f = t.compile(lambda w, x: torch.func.functional_call(model, {"weight": w}, (x,)))
    f.free(T(4, 4), T(2, 4))
    f.free(T(4, 4, s=1), T(2, 4))


@program()
def test_hugging_face_like_module(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.scale = 2.0
            self.config = {"act": "relu", "n": 2}
            self.act = getattr(F, self.config["act"])

        def forward(self, x, mask=None, **kw):
            outs = ()
            for layer in self.layers:
                x = self.act(layer(x)) * self.scale
                if kw.get("all"):
                    outs += (x,)
            if mask is not None:
                x = x.masked_fill(mask, 0.0)
            return {"x": x, "outs": outs or None, "n": self.config["n"]}

    f = t.compile(Net())
    f(T(2, 4))
    f(T(2, 4), all=True)
    f(T(2, 4), mask=torch.zeros(2, 4, dtype=torch.bool))
    f.hit(T(2, 4))


@program()
def test_embedding_bag_and_padding(t):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(10, 4, mode="sum")
            self.words = nn.Embedding(10, 4, padding_idx=0)

        def forward(self, ids, offsets):
            return self.bag(ids, offsets) + self.words(ids[:2])

    f = t.compile(Net())
    f(torch.tensor([1, 2, 0, 4]), torch.tensor([0, 2])).sum().backward()
    f.hit(torch.tensor([5, 2, 3, 4]), torch.tensor([0, 2])).sum().backward()


@program()
def test_weight_norm_and_parametrizations(t):
    model = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    f = t.compile(model)
    f.free(T(2, 4)).sum().backward()
    f.free(T(2, 4)).sum().backward()


@program(one_graph=False)
def test_checkpoint(t):
    from torch.utils.checkpoint import checkpoint

    model = MLP(4)
    f = t.compile(lambda x: checkpoint(model, x, use_reentrant=False))
    f(T(2, 4, rg=True)).sum().backward()
    f(T(2, 4, rg=True)).sum().backward()


@program()
def test_mixed_precision(t):
    model = MLP(4).eval()
    f = t.compile(model)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = f(T(2, 4)).float().sum()
        loss.backward()
    f(T(2, 4)).sum().backward()


@program(graphs=2)
def test_modules_made_after_torchdynamo_was_used(t):
    """From its first use on, nn.Module.__init__ writes down for TorchDynamo which modules it has made."""
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    install_generation_tagging_init()
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def fn(x):
        for layer in layers[:2]:  # a new ModuleList
            x = layer(x)
        return x, nn.Sequential(layers[2], nn.ReLU())

    f = t.compile(fn)
    f(T(2, 4))
    f.hit(T(2, 4))
    layers[1] = nn.Linear(4, 4, bias=False)
    f.free(T(2, 4))


@program(one_graph=False)
def test_encoder_with_padding(t):
    """Without gradients eager takes a path that writes zeros to padded rows; code that asks whether it is compiled would not."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    mask = torch.tensor([[False, False, True], [False, True, True]])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model(T(2, 3, 4), src_key_padding_mask=mask)  # torch warns of nested tensors once in a process
    f = t.compile(lambda x: model(x, src_key_padding_mask=mask) + 1)
    with torch.no_grad():
        f(T(2, 3, 4))
        f(T(2, 3, 4))
    f(T(2, 3, 4))
    model.requires_grad_(False)
    f(T(2, 3, 4))
    model.train()
    f(T(2, 3, 4))

"""Decoding token by token: keys and values of what came before are in a cache that grows with each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models need torch")

import torch.nn.functional as F  # noqa: E402

import alternator  # noqa: E402

TOKENS = 30


class Cache:
    def __init__(self) -> None:
        self.layers: list[tuple[torch.Tensor, torch.Tensor] | None] = [None, None]

    def length(self) -> int:
        first = self.layers[0]
        return 0 if first is None else first[0].shape[-2]

    def update(self, at: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.layers[at]
        if before is not None:
            key, value = torch.cat([before[0], key], -2), torch.cat([before[1], value], -2)
        self.layers[at] = (key, value)
        return key, value


class Decoder(torch.nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.embed, self.places = torch.nn.Embedding(50, 16), torch.nn.Embedding(64, 16)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 48) for _ in range(2))
        self.head = torch.nn.Linear(16, 50)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n, total = q.shape[-2], k.shape[-2]
        mask = torch.arange(total) <= torch.arange(total - n, total)[:, None]
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return (q @ k.mT / 2).masked_fill(~mask, float("-inf")).softmax(-1) @ v

    def forward(self, tokens: torch.Tensor, cache: Cache) -> torch.Tensor:
        past = cache.length()
        x = self.embed(tokens) + self.places(torch.arange(past, past + tokens.shape[1]))
        for number, layer in enumerate(self.layers):
            parts = layer(x).view(*tokens.shape, 3, 4, 4).permute(2, 0, 3, 1, 4).contiguous()
            k, v = cache.update(number, parts[1], parts[2])
            x = x + self.attend(parts[0], k, v).transpose(1, 2).contiguous().view(*tokens.shape, 16)
        return self.head(x[:, -1])


def decode(forward: Callable[..., torch.Tensor], prompt: torch.Tensor) -> tuple[torch.Tensor, Cache]:
    cache, tokens, chosen = Cache(), prompt, prompt
    for _ in range(TOKENS):
        chosen = forward(chosen, cache).argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, chosen], 1)
    return tokens, cache


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fused", [False, True])
def test_decoding(fused: bool, backend: str) -> None:
    """One graph for the prompt, one for the first token after it, one for all others; and for other prompts too."""
    torch.manual_seed(0)
    model = Decoder(fused).eval()
    alternator.reset()
    compiled = alternator.compile(model.forward, backend=backend)
    with torch.no_grad():
        for length, most in ((5, 3), (9, 4), (12, 4)):
            prompt = torch.randint(0, 50, (2, length))
            wanted, found = decode(model.forward, prompt), decode(compiled, prompt)
            assert torch.equal(wanted[0], found[0])
            for one, other in zip(wanted[1].layers, found[1].layers, strict=True):
                assert one is not None
                assert other is not None
                torch.testing.assert_close(one, other)
            assert alternator.counters()["graphs"] <= most
    assert alternator.counters()["eager"] == 0
    alternator.reset()


def gpt2(transformers: Any) -> Any:
    config = transformers.GPT2Config(
        vocab_size=97,
        n_positions=128,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def llama(transformers: Any) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config)


def t5(transformers: Any) -> Any:
    config = transformers.T5Config(
        vocab_size=97,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=None,
    )
    return transformers.T5ForConditionalGeneration(config)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("make", [gpt2, llama, t5])
def test_generate(make: Callable[[Any], Any], cache: str) -> None:
    """transformers' generate() with its DynamicCache or StaticCache, over a compiled forward()."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    model = make(transformers).eval()
    prompt = torch.randint(2, 97, (2, 7))
    with torch.no_grad():
        how: dict[str, Any] = {"max_new_tokens": TOKENS, "do_sample": False}
        if cache != "dynamic":
            how["cache_implementation"] = cache
        wanted = model.generate(prompt, **how)
        alternator.reset()
        model.forward = alternator.compile(model.forward, backend="eager")
        found = model.generate(prompt, **how)
    assert torch.equal(wanted, found)
    assert alternator.counters()["graphs"] <= 3 and not alternator.counters()["breaks"]
    alternator.reset()


def test_a_mixture_of_experts() -> None:
    """One graph for all lengths: the operator that multiplies by groups is a custom one, with a function for fake tensors."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        max_position_embeddings=64,
    )
    model = transformers.MixtralForCausalLM(config).eval()
    alternator.reset()
    compiled = alternator.compile(model, backend="eager")
    with torch.no_grad():
        for length in (8, 9, 10, 12, 15, 20):
            tokens = torch.randint(0, 97, (2, length))
            torch.testing.assert_close(compiled(input_ids=tokens).logits, model(input_ids=tokens).logits)
    assert alternator.counters()["graphs"] <= 2 and not alternator.counters()["breaks"]
    alternator.reset()

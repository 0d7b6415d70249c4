"""Hugging Face transformers models with small random configs: one graph each, and the results of eager.

    PYTHONPATH=... python benchmarks/transformers_models.py [--inductor] [--only NAME]

Needs transformers, which `make` does not install; without it the file says so and stops. For each model: the number of graphs for
inference and for training, whether outputs and gradients equal eager's bit by bit with the backend "eager", and with --inductor how
far Inductor's results are from them at most.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

import alternator  # noqa: E402

TEXT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100,
    "max_position_embeddings": 64,
}  # fmt: skip
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 16,
    "patch_size": 8,
}
Made = tuple[Any, dict[str, Any]]


def models(tf: Any) -> dict[str, Callable[[], Made]]:
    ids = torch.randint(0, 90, (2, 8))
    image = torch.randn(2, 3, 16, 16)

    def clip() -> Made:
        config = tf.CLIPConfig(
            text_config=dict(TEXT, projection_dim=16, eos_token_id=99),
            vision_config=dict(IMAGE, projection_dim=16),
            projection_dim=16,
        )
        return tf.CLIPModel(config), {"input_ids": ids, "pixel_values": image}

    def whisper() -> Made:
        config = tf.WhisperConfig(
            vocab_size=100, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=16, max_target_positions=32,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        )  # fmt: skip
        return tf.WhisperModel(config), {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": ids}

    def t5() -> Made:
        config = tf.T5Config(
            d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100, decoder_start_token_id=0
        )
        return tf.T5Model(config), {"input_ids": ids, "decoder_input_ids": ids}

    return {
        "BERT": lambda: (tf.BertModel(tf.BertConfig(**TEXT)), {"input_ids": ids}),
        "GPT-2": lambda: (
            tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=64)),
            {"input_ids": ids},
        ),
        "Llama": lambda: (tf.LlamaForCausalLM(tf.LlamaConfig(**TEXT, num_key_value_heads=2)), {"input_ids": ids}),
        "T5": t5,
        "ViT": lambda: (tf.ViTModel(tf.ViTConfig(**IMAGE)), {"pixel_values": image}),
        "CLIP": clip,
        "Whisper": whisper,
        "Mixtral": lambda: (
            tf.MixtralForCausalLM(tf.MixtralConfig(**TEXT, num_key_value_heads=2, num_local_experts=4)),
            {"input_ids": ids},
        ),
    }


def tensors(result: Any) -> list[torch.Tensor]:
    """The floating-point tensors of a model's output."""
    leaves = torch.utils._pytree.tree_leaves(tuple(result.to_tuple()))
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def run(call: Callable[..., Any], model: Any, inputs: dict[str, Any], learns: bool) -> list[torch.Tensor]:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    with torch.set_grad_enabled(learns):
        found = tensors(call(**inputs))
        if learns:
            sum(x.float().square().mean() for x in found).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None] if learns else []
    return [x.detach().clone() for x in (*found, *gradients)]


@contextlib.contextmanager
def with_is_compiling() -> Iterator[None]:
    """Models check torch.compiler.is_compiling() and then, for example, add masks that they omit otherwise: eager must do the same."""
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = False


def distance(ours: list[torch.Tensor], eager: list[torch.Tensor]) -> float:
    assert len(ours) == len(eager) > 0
    return max(
        float((a - b).abs().max() / b.abs().max().clamp_min(1e-3))
        for a, b in zip(ours, eager, strict=True)
        if b.numel()
    )


def report(name: str, make: Callable[[], Made], inductor: bool) -> bool:
    good = True
    words = []
    for learns in (False, True):
        torch.manual_seed(0)
        model, inputs = make()
        model.eval()  # dropout would draw other random numbers in Inductor
        with with_is_compiling():
            eager = run(model, model, inputs, learns)
        for backend in ("eager", "inductor") if inductor else ("eager",):
            alternator.reset()
            compiled = alternator.compile(model, backend=backend)
            answers = [run(compiled, model, inputs, learns) for _ in range(2)]
            counts = alternator.counters()
            far = max(distance(answer, eager) for answer in answers)
            one = counts["graphs"] == 1 and counts["eager"] == 0 and not counts["breaks"]
            good = good and one and far <= (0 if backend == "eager" else 1e-3)
            graphs = "one graph" if one else f"{counts['graphs']} graphs, breaks {counts['breaks']}"
            words.append(
                f"{'training' if learns else 'inference'} {backend}: {graphs}, "
                + (f"off by {far:.1e}" if far else "bitwise")
            )
    print(f"{name:8} " + "; ".join(words), flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    try:
        import transformers
    except ModuleNotFoundError:
        print("transformers is not installed: nothing to compile")
        return 0
    warnings.simplefilter("ignore")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    chosen = {name: make for name, make in models(transformers).items() if options.only.lower() in name.lower()}
    good = [report(name, make, options.inductor) for name, make in chosen.items()]
    print(f"{sum(good)} of {len(good)}: one graph and correct results")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

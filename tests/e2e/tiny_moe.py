"""Make a tiny mixture-of-experts model that SGLang serves with ``--load-format dummy``: no weights, no download.

    python tests/e2e/tiny_moe.py DIRECTORY [--preset cpu|h200|h200-fp8]

The directory gets a Qwen3-MoE ``config.json`` and a byte-level BPE tokenizer in the files that Hugging Face's
``AutoTokenizer`` reads. They are the same bytes on every machine. Standard library only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
# The most frequent first, so that a small vocabulary holds the pairs that English text has.
PAIR_CHARACTERS = " etaoinshrdlucmfwypvbgkjqxzETAOINSHRDLUCMFWYPVBGKJQXZ0123456789"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Sizes of a model; the names are those of Hugging Face's Qwen3MoeConfig."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    fp8: bool = False
    """The checkpoint declares block-wise fp8 weights, as released MoE models do."""


PRESETS = {
    # Decodes a few hundred tokens a second on two CPU cores.
    "cpu": Shape(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        num_experts=16,
        num_experts_per_tok=4,
        moe_intermediate_size=128,
    ),
    # Large enough that kernels, and not the host, take a good part of a step on an H200.
    "h200": Shape(
        vocab_size=2048,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=12,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=64,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
    ),
}
PRESETS["h200-fp8"] = replace(PRESETS["h200"], fp8=True)


def model_config(shape: Shape) -> dict[str, Any]:
    """The content of ``config.json``."""
    quantization = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    return {
        **({"quantization_config": quantization} if shape.fp8 else {}),
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "dtype": "bfloat16",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "num_experts": shape.num_experts,
        "num_experts_per_tok": shape.num_experts_per_tok,
        "moe_intermediate_size": shape.moe_intermediate_size,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "use_cache": True,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
    }


def byte_alphabet() -> dict[int, str]:
    """The printable character that stands for each byte in a byte-level BPE vocabulary (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    return characters | {byte: chr(256 + n) for n, byte in enumerate(others)}


def merges(count: int) -> list[tuple[str, str]]:
    """The first ``count`` merges, each of two single characters: every token past the alphabet is a pair.

    Raises:
        ValueError: there are not so many pairs.
    """
    alphabet = byte_alphabet()
    symbols = [alphabet[ord(character)] for character in PAIR_CHARACTERS]
    space = symbols[0]
    ranked = sorted(
        itertools.product(range(len(symbols)), repeat=2), key=lambda pair: (max(pair), pair[0] + pair[1], pair)
    )
    # Byte-level text is split before each space, so no word ever has one behind a letter.
    pairs = [(symbols[left], symbols[right]) for left, right in ranked if symbols[right] != space or left == 0]
    if count > len(pairs):
        raise ValueError(f"a vocabulary with {count} pairs was asked for; there are {len(pairs)}")
    return pairs[:count]


def tokenizer(vocab_size: int) -> dict[str, Any]:
    """The content of ``tokenizer.json``: id 0 ends a text, 1 to 256 are the bytes, the rest are pairs."""
    alphabet = byte_alphabet()
    pairs = merges(vocab_size - 1 - len(alphabet))
    tokens = [END_OF_TEXT, *(alphabet[byte] for byte in range(256)), *(left + right for left, right in pairs)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": END_OF_TEXT_ID,
                "content": END_OF_TEXT,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [list(pair) for pair in pairs],
        },
    }


def tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHAT_TEMPLATE,
    }


def make_tiny_moe(directory: Path, *, preset: str = "cpu") -> Path:
    """Write the model into ``directory``, made when missing, and return it.

    Raises:
        ValueError: unknown preset.
    """
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; presets: {', '.join(PRESETS)}")
    shape = PRESETS[preset]
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", model_config(shape)),
        ("tokenizer.json", tokenizer(shape.vocab_size)),
        ("tokenizer_config.json", tokenizer_config()),
    ):
        (directory / name).write_text(json.dumps(content, indent=2, ensure_ascii=True) + "\n", encoding="utf-8")
    return directory


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a tiny mixture-of-experts model for SGLang's dummy weights.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="cpu")
    arguments = parser.parse_args()
    print(make_tiny_moe(arguments.directory, preset=arguments.preset))
    return 0


if __name__ == "__main__":
    sys.exit(main())

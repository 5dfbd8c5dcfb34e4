"""How many bits a weight takes, scales included, and which modules a quantization leaves alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ATTENTION, EXPERTS, SHARED, DENSE = "attention", "routed experts", "shared experts", "dense layers"
MODULES = (ATTENTION, EXPERTS, SHARED, DENSE)
PLAIN_BITS = 16.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightFormat:
    """Bits of a weight in the quantized modules, and of what it is multiplied with."""

    name: str
    bits: float
    operand_bits: int
    """Which tensor throughput applies: 16, 8 or 4."""
    quantized: frozenset[str]
    """Of MODULES; the others, the head and the router stay in 16 bits."""

    def bits_of(self, module: str) -> float:
        return self.bits if module in self.quantized else PLAIN_BITS

    def operand_bits_of(self, module: str) -> int:
        return self.operand_bits if module in self.quantized else 16


_ALL = frozenset(MODULES)
_MLP = frozenset({EXPERTS, SHARED, DENSE})

FORMATS: dict[str, WeightFormat] = {
    "bf16": WeightFormat(name="bf16", bits=16, operand_bits=16, quantized=frozenset()),
    # One scale for 128 x 128 values or a channel: under a thousandth.
    "fp8": WeightFormat(name="fp8", bits=8, operand_bits=8, quantized=_ALL),
    "int8": WeightFormat(name="int8", bits=8, operand_bits=8, quantized=_ALL),
    # E2M1 values and one E4M3 scale for 16: 4 + 8/16. Checkpoints of ModelOpt leave attention in bf16.
    "nvfp4": WeightFormat(name="nvfp4", bits=4.5, operand_bits=4, quantized=_MLP),
    # E2M1 values and one E8M0 scale for 32: 4 + 8/32. GPT-OSS quantizes its experts alone.
    "mxfp4": WeightFormat(name="mxfp4", bits=4.25, operand_bits=4, quantized=frozenset({EXPERTS})),
    "mxfp8": WeightFormat(name="mxfp8", bits=8.25, operand_bits=8, quantized=_ALL),
    # One 16-bit scale and 4-bit zero point for 128, computed in 16 bits.
    "int4": WeightFormat(name="int4", bits=4 + 20 / 128, operand_bits=16, quantized=_ALL),
}

_ALIASES = {
    "": "bf16",
    "none": "bf16",
    "auto": "bf16",
    "bfloat16": "bf16",
    "float16": "bf16",
    "fp16": "bf16",
    "half": "bf16",
    "modelopt_fp4": "nvfp4",
    "nvfp4_online": "nvfp4",
    "fp4": "nvfp4",
    "modelopt_fp8": "fp8",
    "w8a8_fp8": "fp8",
    "float8": "fp8",
    "w8a8_int8": "int8",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
}


def weight_format(config: Mapping[str, Any], quantization: str | None) -> WeightFormat | None:
    """The format that a flag names, else the one in the model's config.json; None: one that is not known here."""
    declared = config.get("quantization_config") or config.get("compression_config")
    if quantization is not None and _canonical(quantization) != "bf16":
        found = FORMATS.get(_canonical(quantization))
    elif isinstance(declared, Mapping):
        found = _declared_format(declared)
    else:
        found = FORMATS["bf16"]
    if found is None or not isinstance(declared, Mapping):
        return found
    return _without_ignored(found, declared)


def _canonical(name: str) -> str:
    lowered = name.strip().lower().replace("-", "_")
    return _ALIASES.get(lowered, lowered)


def _declared_format(declared: Mapping[str, Any]) -> WeightFormat | None:
    texts = [str(declared.get(key, "")) for key in ("quant_algo", "quant_method", "format")]
    if texts[1] == "compressed-tensors":
        return _compressed_tensors_format(declared)
    for text in texts:
        if text and (found := FORMATS.get(_canonical(text))):
            return found
    return None


def _compressed_tensors_format(declared: Mapping[str, Any]) -> WeightFormat | None:
    groups = declared.get("config_groups")
    entries = groups.values() if isinstance(groups, Mapping) else ()
    weights = [group.get("weights") for group in entries if isinstance(group, Mapping)]
    kinds = {f"{item.get('type')}{item.get('num_bits')}" for item in weights if isinstance(item, Mapping)}
    names = {"float8": "fp8", "float4": "nvfp4", "int8": "int8", "int4": "int4"}
    return FORMATS.get(names.get(kinds.pop(), "")) if len(kinds) == 1 else None


_IGNORED_MODULES = (
    (ATTENTION, re.compile(r"self_attn|attention|attn")),
    (SHARED, re.compile(r"shared_expert")),
    (EXPERTS, re.compile(r"(?<!shared_)(?<!shared)experts")),
)


def _without_ignored(found: WeightFormat, declared: Mapping[str, Any]) -> WeightFormat:
    """Modules that the checkpoint excludes by name or pattern stay in 16 bits."""
    ignored = declared.get("ignore") or declared.get("exclude_modules") or declared.get("modules_to_not_convert") or ()
    names = [str(name) for name in ignored] if isinstance(ignored, (list, tuple)) else []
    left_out = {module for module, pattern in _IGNORED_MODULES if any(pattern.search(name) for name in names)}
    return WeightFormat(
        name=found.name, bits=found.bits, operand_bits=found.operand_bits, quantized=found.quantized - left_out
    )


def kv_bits(config: Mapping[str, Any], kv_cache_dtype: str | None) -> float:
    """Bits of a value in the KV cache."""
    text = (kv_cache_dtype or "auto").lower()
    if text == "auto":
        declared = config.get("quantization_config")
        scheme = (
            declared.get("kv_cache_scheme") or declared.get("kv_cache_quant_algo")
            if isinstance(declared, Mapping)
            else None
        )
        return 8.0 if scheme else 16.0
    if "fp8" in text or "int8" in text:
        return 8.0
    return 4.5 if "fp4" in text else 16.0

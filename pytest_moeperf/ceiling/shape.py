"""A model's shape, from the fields of its config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class MissingFields(ValueError):
    """A config.json that does not say enough. ``looked_for`` lists what was looked for."""

    def __init__(self, looked_for: Sequence[str]) -> None:
        super().__init__("; ".join(looked_for))
        self.looked_for = tuple(looked_for)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """One layer's attention."""

    parameters: int
    cache_values_per_token: int
    """Values a token takes in the KV cache of a layer, over all heads."""
    flops_per_cached_token: int
    """Of one new token, for each token that it attends to."""
    key_value_heads: int | None
    """The most GPUs over which the cache can be split; None: it can't be (MLA keeps one latent for all heads)."""
    index_parameters: int = 0
    """Sparse attention: the indexer's weights,"""
    index_values_per_token: int = 0
    """and what it keeps, and reads, of every token."""
    index_topk: int | None = None
    """Sparse attention reads only that many tokens of the cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """What decides bytes and operations of a decode step."""

    model_type: str
    hidden: int
    layers: int
    vocabulary: int
    attention: Attention
    dense_layers: int
    dense_intermediate: int
    experts: int
    experts_per_token: int
    expert_intermediate: int
    shared_intermediate: int
    sliding_layers: int = 0
    sliding_window: int = 0
    index_layers: int = 0
    notes: tuple[str, ...] = ()

    @property
    def expert_layers(self) -> int:
        return self.layers - self.dense_layers

    @property
    def expert_parameters(self) -> int:
        """Of one expert of one layer: gate, up and down projection."""
        return 3 * self.hidden * self.expert_intermediate


def read_shape(config: Mapping[str, Any]) -> ModelShape:
    """The shape of a dense or mixture-of-experts decoder with full, grouped, latent (MLA) or sparse (DSA) attention.

    :raises MissingFields: says which fields were looked for, or what can't be modelled.
    """
    text = config.get("text_config")
    fields = _Fields({**config, **text} if isinstance(text, Mapping) else config)
    hidden = fields.need("hidden_size", "n_embd", "d_model")
    layers = fields.need("num_hidden_layers", "n_layer", "num_layers")
    vocabulary = fields.need("vocab_size")
    heads = fields.need("num_attention_heads", "n_head")
    experts = fields.get("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts") or 0
    per_token = fields.get("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts") or 0
    intermediate = fields.get("intermediate_size", "ffn_hidden_size", "n_inner") or 0
    if experts and not per_token:
        fields.missing.append("num_experts_per_tok, the experts that a token is sent to")
    if not experts and not intermediate:
        fields.missing.append("intermediate_size, of the dense layers")
    fields.refuse_unmodelled()
    if fields.missing:
        raise MissingFields(fields.missing)
    dense_layers = _dense_layers(fields, layers) if experts else layers
    expert_intermediate = fields.get("moe_intermediate_size", "expert_ffn_hidden_size") or intermediate
    attention = _latent(fields, hidden, heads) if fields.get("kv_lora_rank") else _grouped(fields, hidden, heads)
    if fields.missing:
        raise MissingFields(fields.missing)
    window = fields.get("sliding_window") or 0
    sliding = fields.strings("layer_types").count("sliding_attention") if window else 0
    return ModelShape(
        model_type=str(config.get("model_type") or "unknown"),
        hidden=hidden,
        layers=layers,
        vocabulary=vocabulary,
        attention=attention,
        dense_layers=dense_layers,
        dense_intermediate=intermediate,
        experts=experts,
        experts_per_token=min(per_token, experts),
        expert_intermediate=expert_intermediate,
        shared_intermediate=_shared(fields, expert_intermediate) if experts else 0,
        sliding_layers=min(sliding, layers),
        sliding_window=window,
        index_layers=_index_layers(fields, layers) if attention.index_topk else 0,
    )


class _Fields:
    """Fields under any of their names; what is needed and not there is collected."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.missing: list[str] = []

    def get(self, *names: str) -> int | None:
        for name in names:
            value = self._config.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None

    def need(self, *names: str) -> int:
        value = self.get(*names)
        if value is None:
            self.missing.append(" or ".join(names))
        return value or 0

    def strings(self, name: str) -> list[str]:
        value = self._config.get(name)
        return [str(item) for item in value] if isinstance(value, list) else []

    def integers(self, name: str) -> list[int]:
        value = self._config.get(name)
        return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []

    def refuse_unmodelled(self) -> None:
        kinds = set(self.strings("layer_types")) - {"full_attention", "sliding_attention", "chunked_attention"}
        if kinds:
            self.missing.append(f"a cost model for layers of type {', '.join(sorted(kinds))}: there is none")
        if any(self._config.get(name) for name in ("ssm_cfg", "mamba_d_state", "state_size", "linear_conv_kernel_dim")):
            self.missing.append("a cost model for state-space or linear-attention layers: there is none")


def _dense_layers(fields: _Fields, layers: int) -> int:
    """Layers without experts: listed one by one (``mlp_layer_types``), the first few, or every n-th (Qwen)."""
    if types := fields.strings("mlp_layer_types"):
        return min(types.count("dense"), layers)
    first = fields.get("first_k_dense_replace") or 0
    step = fields.get("decoder_sparse_step", "moe_layer_freq") or 1
    listed = set(fields.integers("mlp_only_layers"))
    sparse = [
        layer for layer in range(layers) if layer >= first and layer not in listed and _has_experts(fields, layer, step)
    ]
    return layers - len(sparse)


def _has_experts(fields: _Fields, layer: int, step: int) -> bool:
    """Qwen's decoder_sparse_step counts layers from 1, DeepSeek's moe_layer_freq from 0."""
    return (layer + 1) % step == 0 if fields.get("decoder_sparse_step") else layer % step == 0


def _shared(fields: _Fields, expert_intermediate: int) -> int:
    own = fields.get("shared_expert_intermediate_size")
    return own or (fields.get("n_shared_experts", "num_shared_experts") or 0) * expert_intermediate


def _index_layers(fields: _Fields, layers: int) -> int:
    types = fields.strings("indexer_types")
    return types.count("full") if types else layers


def _grouped(fields: _Fields, hidden: int, heads: int) -> Attention:
    key_value = fields.get("num_key_value_heads", "num_kv_heads", "n_head_kv") or heads
    size = fields.get("head_dim") or hidden // max(heads, 1)
    return Attention(
        parameters=2 * hidden * heads * size + 2 * hidden * key_value * size,
        cache_values_per_token=2 * key_value * size,
        flops_per_cached_token=4 * heads * size,
        key_value_heads=key_value,
    )


def _latent(fields: _Fields, hidden: int, heads: int) -> Attention:
    """MLA: queries through a low rank, keys and values as one latent vector for all heads."""
    latent = fields.need("kv_lora_rank")
    rope, nope = fields.need("qk_rope_head_dim"), fields.need("qk_nope_head_dim")
    value = fields.need("v_head_dim")
    query_rank = fields.get("q_lora_rank")
    query = heads * (nope + rope)
    queries = hidden * query_rank + query_rank * query if query_rank else hidden * query
    index_heads, index_size = fields.get("index_n_heads") or 0, fields.get("index_head_dim") or 0
    topk = fields.get("index_topk")
    sparse = bool(topk and index_heads and index_size)
    index = (query_rank or hidden) * index_heads * index_size + hidden * (index_size + index_heads)
    return Attention(
        parameters=queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden,
        cache_values_per_token=latent + rope,
        # Absorbed: scores against the latent and the rotary part, then the sum of latents.
        flops_per_cached_token=2 * heads * (2 * latent + rope),
        key_value_heads=None,
        index_parameters=index if sparse else 0,
        index_values_per_token=index_size if sparse else 0,
        index_topk=topk if sparse else None,
    )

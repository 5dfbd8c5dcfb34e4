"""Decoding cannot beat the memory or the arithmetic: bytes a step / bandwidth, operations a step / peak.

A decode step of a batch reads every weight that any of its tokens needs once, and every token's own cache. Of ``E``
experts with ``k`` a token, a batch of ``B`` tokens needs ``E (1 - (1 - k/E)^B)`` different ones where routing is even.
Everything is taken as perfect: no launch takes time, no GPU waits for another, nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_moeperf.ceiling.formats import (
    ATTENTION,
    DENSE,
    EXPERTS,
    FORMATS,
    SHARED,
    WeightFormat,
    kv_bits,
    weight_format,
)
from pytest_moeperf.ceiling.gpus import GpuPeak, find_gpu, gpu_names
from pytest_moeperf.ceiling.shape import MissingFields, ModelShape, read_shape
from pytest_moeperf.model.ceiling import Ceiling, CeilingTerm

SLACK = 1.05
"""Data sheets round down (an H200's 4.8 TB/s is 4.92 at its memory clock), and clocks boost."""
INDEX_BITS = 8.0 + 32 / 128
"""The sparse-attention indexer keeps fp8 keys with one 32-bit scale for 128 values."""


def ceiling_tok_s(
    *,
    config: Mapping[str, Any],
    gpu: str = "",
    gpus: int = 1,
    concurrency: int,
    context_len: float,
    quantization: str | None = None,
    kv_cache_dtype: str | None = None,
    expert_parallel: int = 1,
    dp_attention: bool = False,
    tokens_per_step: float = 1.0,
    bandwidth_bytes_s: float | None = None,
) -> Ceiling:
    """The ceiling of output tok/s at a concurrency. Unknown parts make it unknown and never raise.

    Args:
        config: the model's config.json.
        gpu: its name, as NVML or a person writes it.
        gpus: tensor-parallel size: over how many GPUs the weights are split.
        context_len: mean tokens in a request's cache while it decodes: prompt + half of the output.
        quantization: SGLang's name; None: as config.json declares, else bf16.
        expert_parallel: over how many groups whole experts are spread.
        dp_attention: requests, not heads, are split over the GPUs: no GPU reads another one's cache.
        tokens_per_step: more than 1 with speculative decoding: the mean accepted length.
        bandwidth_bytes_s: of one GPU, measured; replaces the table's.
    """
    looked_for = []
    peak = find_gpu(gpu)
    if peak is None and bandwidth_bytes_s is None:
        looked_for.append(
            f"a GPU named {gpu!r} in the table, or a measured bandwidth; it knows {', '.join(gpu_names())}"
        )
    weights = weight_format(config, quantization)
    if weights is None:
        asked = quantization or config.get("quantization_config")
        looked_for.append(f"a weight format for quantization {asked!r}; known are {', '.join(FORMATS)}")
    shape = None
    try:
        shape = read_shape(config)
    except MissingFields as missing:
        looked_for += [f"config.json: {field}" for field in missing.looked_for]
    if concurrency < 1 or gpus < 1 or context_len < 0:
        looked_for.append("a concurrency and a number of GPUs of at least 1, and a context of at least 0 tokens")
    if looked_for or shape is None or weights is None:
        return Ceiling(concurrency=concurrency, gpu=gpu, gpus=gpus, looked_for=tuple(looked_for))
    cell = _Cell(
        shape=shape,
        weights=weights,
        cache_bits=kv_bits(config, kv_cache_dtype),
        batch=concurrency,
        context=context_len,
        gpus=gpus,
        expert_parallel=max(1, min(expert_parallel, gpus)),
    )
    bandwidth = (bandwidth_bytes_s or (peak.bandwidth_bytes_s if peak else 0.0)) * gpus
    terms = cell.terms(replicated_cache=not dp_attention)
    memory_s = sum(term.bytes_read for term in terms) / bandwidth
    compute_s = _compute_s(terms, cell, peak)
    step_s = max(memory_s, compute_s)
    produced = concurrency * tokens_per_step
    return Ceiling(
        tok_s=produced / step_s,
        impossible_tok_s=produced * SLACK / cell.least_step_s(peak, bandwidth),
        step_ms=step_s * 1e3,
        bound="memory" if memory_s >= compute_s else "compute",
        bytes_per_step=sum(term.bytes_read for term in terms),
        flops_per_step=sum(term.flops for term in terms),
        bandwidth_bytes_s=bandwidth,
        concurrency=concurrency,
        gpu=peak.name if peak else gpu,
        gpus=gpus,
        terms=terms,
        assumptions=_assumptions(cell, peak, bandwidth_bytes_s, tokens_per_step),
    )


def efficiency(measured_tok_s: float, ceiling: Ceiling) -> float | None:
    """What was measured over what is possible, 0 to about 1; None where the ceiling is not known."""
    return measured_tok_s / ceiling.tok_s if ceiling.tok_s else None


def distinct_experts(experts: int, per_token: int, tokens: float) -> float:
    """Expected number of different experts that ``tokens`` tokens need, each sent to ``per_token`` of them evenly."""
    return experts * (1 - (1 - per_token / experts) ** tokens) if experts else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cell:
    """One model at one batch size on one machine."""

    shape: ModelShape
    weights: WeightFormat
    cache_bits: float
    batch: int
    context: float
    gpus: int
    expert_parallel: int

    def terms(self, *, replicated_cache: bool, experts: float | None = None) -> tuple[CeilingTerm, ...]:
        """All terms; ``experts``: different ones a layer reads, where not the expected number."""
        shape = self.shape
        attention = shape.layers * shape.attention.parameters + shape.index_layers * shape.attention.index_parameters
        terms = [self._weights(ATTENTION, attention, f"{shape.layers} layers")]
        if shape.experts:
            terms += self._expert_terms(experts)
        if shape.dense_layers:
            dense = shape.dense_layers * 3 * shape.hidden * shape.dense_intermediate
            terms.append(self._weights(DENSE, dense, f"{shape.dense_layers} layers"))
        head = shape.vocabulary * shape.hidden
        terms.append(self._weights("output head", head, f"{shape.vocabulary} x {shape.hidden}"))
        terms.append(self._cache(replicated_cache))
        return tuple(terms)

    def least_step_s(self, peak: GpuPeak | None, bandwidth: float) -> float:
        """The shortest step that physics allows.

        All tokens go to the same experts, the L2 caches are full of weights from the step before, everything is in the
        narrow format, no part of the KV cache is kept twice.
        """
        least = self.terms(replicated_cache=False, experts=self.shape.experts_per_token)
        smallest = min(self.weights.bits, 16.0)
        kept = (peak.l2_bytes if peak else 0.0) * self.gpus
        bytes_read = sum(term.parameters * min(term.bits, smallest) / 8 for term in least if term.parameters)
        cache = sum(term.bytes_read for term in least if not term.parameters)
        memory_s = (max(bytes_read - kept, 0.0) + cache) / bandwidth
        fastest = max(peak.tflops.values()) * 1e12 * self.gpus if peak else 0.0
        compute_s = sum(term.flops for term in least) / fastest if fastest else 0.0
        return max(memory_s, compute_s, 1e-9)

    def _weights(self, name: str, parameters: float, detail: str, flops: float | None = None) -> CeilingTerm:
        bits = self.weights.bits_of(name)
        return CeilingTerm(
            name=name,
            parameters=parameters,
            bits=bits,
            bytes_read=parameters * bits / 8,
            flops=2 * parameters * self.batch if flops is None else flops,
            detail=detail,
        )

    def _expert_terms(self, experts: float | None) -> list[CeilingTerm]:
        shape = self.shape
        distinct = distinct_experts(shape.experts, shape.experts_per_token, self.batch) if experts is None else experts
        # Whole experts on each group of GPUs: the busiest group has at least one.
        read = max(distinct, self.expert_parallel) if experts is None else distinct
        one = shape.expert_layers * shape.expert_parameters
        used = self.batch * shape.experts_per_token
        detail = f"{shape.expert_layers} layers x {distinct:.1f} of {shape.experts} experts"
        terms = [self._weights(EXPERTS, one * read, detail, flops=2.0 * one * used)]
        if shape.shared_intermediate:
            shared = shape.expert_layers * 3 * shape.hidden * shape.shared_intermediate
            terms.append(self._weights(SHARED, shared, f"{shape.expert_layers} layers"))
        router = shape.expert_layers * shape.experts * shape.hidden
        terms.append(self._weights("router", router, f"{shape.expert_layers} layers x {shape.experts}"))
        return terms

    def _cache(self, replicated: bool) -> CeilingTerm:
        shape, attention = self.shape, self.shape.attention
        attended = min(self.context, attention.index_topk) if attention.index_topk else self.context
        windowed = min(attended, shape.sliding_window) if shape.sliding_layers else attended
        tokens = (shape.layers - shape.sliding_layers) * attended + shape.sliding_layers * windowed
        values = self.batch * tokens * attention.cache_values_per_token
        index = self.batch * shape.index_layers * self.context * attention.index_values_per_token
        # Split over at most as many GPUs as there are key-value heads; the rest hold copies and read them too.
        splits = attention.key_value_heads or 1
        copies = max(1.0, self.gpus / splits) if replicated else 1.0
        flops = self.batch * (tokens * attention.flops_per_cached_token + 2 * index / max(self.batch, 1))
        detail = f"{self.batch} x {attended:g} tokens x {attention.cache_values_per_token} values a layer"
        return CeilingTerm(
            name="KV cache",
            parameters=0,
            bits=self.cache_bits,
            bytes_read=copies * (values * self.cache_bits + index * INDEX_BITS) / 8,
            flops=flops,
            detail=detail + (f", on {self.gpus} GPUs {copies:g} times" if copies > 1 else ""),
        )


def _compute_s(terms: tuple[CeilingTerm, ...], cell: _Cell, peak: GpuPeak | None) -> float:
    """Time of the arithmetic, each term at the throughput of its operands; without hardware for them, of wider ones."""
    if peak is None:
        return 0.0
    total = 0.0
    for term in terms:
        bits = cell.weights.operand_bits_of(term.name)
        usable = [tflops for width, tflops in peak.tflops.items() if width >= bits]
        total += term.flops / (max(usable) * 1e12 * cell.gpus)
    return total


def _assumptions(
    cell: _Cell, peak: GpuPeak | None, bandwidth_bytes_s: float | None, tokens_per_step: float
) -> tuple[str, ...]:
    lines = [f"weights in {cell.weights.name}: {', '.join(sorted(cell.weights.quantized)) or 'nothing'} quantized"]
    if bandwidth_bytes_s is not None:
        lines.append(f"bandwidth measured: {bandwidth_bytes_s / 1e12:.2f} TB/s a GPU")
    elif peak is not None:
        lines.append(f"{peak.bandwidth_bytes_s / 1e12:.3g} TB/s a GPU ({peak.source})")
    if peak is None:
        lines.append("the arithmetic's limit is left out: the GPU is not in the table")
    if cell.shape.experts:
        lines.append("routing spread evenly over the experts")
    if tokens_per_step != 1:
        lines.append(f"{tokens_per_step:g} tokens accepted a step")
    lines.append("no time for launches, communication, sampling and prompts")
    return tuple(lines)

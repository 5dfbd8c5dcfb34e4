"""A run against the physical limit of its hardware."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_moeperf.bench.place import Place
from pytest_moeperf.ceiling import ceiling_tok_s
from pytest_moeperf.model.ceiling import Ceiling
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Workload

NAME = "below_ceiling"


def ceiling_for(place: Place, info: Mapping[str, Any] | None, workload: Workload) -> Ceiling:
    """From the model's config, the GPUs and the server's resolved arguments; unknown where one of them is."""
    config = place.model_config
    if config is None:
        return Ceiling(looked_for=("the model's config.json: the model is no folder on this machine",))
    if not place.gpus:
        return Ceiling(looked_for=("a GPU: this server runs on none",))
    told = info or {}
    return ceiling_tok_s(
        config=config,
        gpu=place.gpus[0].name,
        gpus=len(place.gpus),
        concurrency=workload.concurrency,
        context_len=workload.input_len + workload.output_len / 2,
        quantization=_text(told.get("quantization")),
        kv_cache_dtype=_text(told.get("kv_cache_dtype")),
        expert_parallel=_size(told.get("ep_size")),
    )


def ceiling_check(out_tps: float | None, ceiling: Ceiling) -> Check:
    limit = ceiling.impossible_tok_s
    if limit is None or out_tps is None:
        reason = "; ".join(ceiling.looked_for) or "no throughput was measured"
        return Check(name=NAME, status="unknown", message=f"no ceiling is known: {reason}")
    if out_tps > limit:
        message = f"{out_tps:.0f} tok/s is more than this hardware can do, {limit:.0f} tok/s: the figure can't be true"
        return Check(name=NAME, status="fail", message=message)
    return Check(name=NAME, status="pass")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _size(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1

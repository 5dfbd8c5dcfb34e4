"""The physical limit of a cell, with every term that it stands on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CeilingTerm:
    """What one part of the model costs in one decode step of the whole batch, over all GPUs."""

    name: str
    """``routed experts``, ``attention``, ``KV cache`` ..."""
    parameters: float
    """Weights that are read at least once; 0 for the cache."""
    bits: float
    """Of each of them, scales included."""
    bytes_read: float
    flops: float
    detail: str = ""
    """How it was counted: ``75 layers x 20.3 of 256 experts``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """No server can decode faster than this. Any None: it is not known, and ``looked_for`` says why."""

    tok_s: float | None = None
    """Output tokens a second of the whole batch: the roofline with routing spread evenly over the experts."""
    impossible_tok_s: float | None = None
    """A figure above this can't be true, whatever the routing and the caches do: a measured one is INVALID."""
    step_ms: float | None = None
    bound: str = ""
    """``memory`` or ``compute``: what the step takes its time from."""
    bytes_per_step: float | None = None
    flops_per_step: float | None = None
    bandwidth_bytes_s: float | None = None
    """Of all GPUs together."""
    concurrency: int = 0
    gpu: str = ""
    gpus: int = 0
    terms: tuple[CeilingTerm, ...] = ()
    assumptions: tuple[str, ...] = ()
    looked_for: tuple[str, ...] = ()

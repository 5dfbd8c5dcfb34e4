"""What GPUs can do at most: a table with sources, or a bandwidth that was measured."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuPeak:
    """One GPU's limits."""

    name: str
    bandwidth_bytes_s: float
    tflops: dict[int, float]
    """Dense tensor throughput by bits of an operand: 16, 8, 4. A format without hardware is not there."""
    l2_bytes: float
    source: str


@cache
def gpu_table() -> tuple[tuple[tuple[str, ...], GpuPeak], ...]:
    """The table, as (words of the name, peak), the more particular names first."""
    entries = tomllib.loads((files("pytest_moeperf.ceiling") / "gpus.toml").read_text("utf-8"))["gpu"]
    return tuple(
        (
            tuple(entry["words"]),
            GpuPeak(
                name=entry["name"],
                bandwidth_bytes_s=entry["bandwidth_gb_s"] * 1e9,
                tflops={bits: entry[f"{kind}_tflops"] for bits, kind in _KINDS if entry[f"{kind}_tflops"]},
                l2_bytes=entry["l2_mib"] * 2**20,
                source=entry["source"],
            ),
        )
        for entry in entries
    )


_KINDS = ((16, "bf16"), (8, "fp8"), (4, "fp4"))


def find_gpu(name: str) -> GpuPeak | None:
    """The entry for a name as NVML or a person writes it: ``NVIDIA H200``, ``h100 pcie``; None: not in the table."""
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    if "a100" in words and {"sxm4", "sxm"} & words:
        words.add("sxm")
    return next((peak for wanted, peak in gpu_table() if set(wanted) <= words), None)


def gpu_names() -> tuple[str, ...]:
    return tuple(peak.name for _, peak in gpu_table())

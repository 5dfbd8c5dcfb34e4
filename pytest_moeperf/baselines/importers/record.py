"""One benchmark result as some tool wrote it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_moeperf.errors import BaselineError
from pytest_moeperf.model.run import Plain


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What a file says of one run, and nothing that it doesn't say."""

    where: str
    """``line 3``, ``cells[0]``; empty: the whole file."""
    values: dict[str, float]
    """By bound key."""
    workload: dict[str, Plain] = field(default_factory=dict)
    """By field of ``Workload``. An absent one is unknown; ``request_rate`` of ``inf`` is a closed loop."""
    doubts: dict[str, str] = field(default_factory=dict)
    """Field of ``workload``, metric or fingerprint group -> why its value is unknown, or not to be relied on."""
    engine: str = ""
    model: str = ""
    backend: str = ""
    started_at: str = ""
    duration_s: float | None = None
    completed: int | None = None
    """Requests that succeeded, as far as the tool knows."""
    server_info: Mapping[str, Any] | None = None
    groups: dict[str, dict[str, Plain]] = field(default_factory=dict)
    """Fingerprint fields of the groups server, software, hardware, environment that the file states."""
    provenance: str = ""
    notes: tuple[str, ...] = ()


def refuse(path: str, where: str, problem: str) -> BaselineError:
    """For results that no baseline may be made of."""
    return BaselineError(
        path=path,
        problem=f"{where}: {problem}" if where else problem,
        next_step="only complete, valid runs make a baseline: leave this one out, or measure it again",
    )


def number(value: object) -> float | None:
    """A positive, finite number; None for anything else, so that NaN and 0 become unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def whole(value: object) -> int | None:
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def picked(source: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    """``{bound key: number}`` for each ``{bound key: name in source}`` that has one."""
    return {key: found for key, name in names.items() if (found := number(source.get(name))) is not None}


def latency_names(metric: str, name: str) -> dict[str, str]:
    """How bench_serving and its descendants name a latency: ``mean_tpot_ms``, ``median_tpot_ms``, ``p99_tpot_ms``."""
    return {metric: f"mean_{name}_ms", f"{metric}.p50": f"median_{name}_ms", f"{metric}.p99": f"p99_{name}_ms"}


def failed_requests(source: Mapping[str, Any]) -> str:
    """From per-request details: what they say of requests that failed; empty: nothing."""
    errors = [str(error) for error in _listed(source.get("errors")) if error]
    if errors:
        return f"{len(errors)} of {len(_listed(source['errors']))} requests failed ({errors[0].strip()[:80]})"
    ttfts = _listed(source.get("ttfts"))
    instant = sum(1 for ttft in ttfts if ttft == 0)
    if instant:
        return (
            f"{instant} of {len(ttfts)} requests have a time to first token of 0: an error inside a stream was counted"
        )
    return ""


def lengths(source: Mapping[str, Any], *, kind: str, completed: int | None) -> tuple[int | None, str]:
    """Tokens a request on the ``input`` or ``output`` side, and why that is not to be relied on (empty: it is)."""
    each = _listed(source.get(f"{kind}_lens"))
    if each and len(set(each)) == 1:
        return whole(each[0]), ""
    if each:
        return round(sum(each) / len(each)), f"from {min(each)} to {max(each)} tokens, not one length"
    total = number(source.get(f"total_{kind}_tokens"))
    if total is None or not completed:
        return None, "not in the file"
    return round(total / completed), f"only the average is in the file ({total / completed:g})"


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()

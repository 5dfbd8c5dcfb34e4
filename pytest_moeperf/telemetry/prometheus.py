"""/metrics, the Prometheus text format."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator

_LABELS = r"\{(?:[^\"{}]|\"(?:[^\"\\]|\\.)*\")*\}"
_SAMPLE = re.compile(
    rf"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?P<labels>{_LABELS})?[ \t]+(?P<value>\S+)(?:[ \t]+-?\d+)?[ \t]*$",
    re.MULTILINE,
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_CUMULATIVE = re.compile(r"[{,]\s*(?:le|quantile)=")
"""Buckets and quantiles of one series: their sum over labels would mean nothing."""
_ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}

Sample = tuple[str, dict[str, str], float]
"""Name, labels, value."""


def samples(text: str, names: Collection[str]) -> Iterator[Sample]:
    """Those of ``names``, which stand there as ``engine:name``; exporters that may not use a colon write
    ``engine_name``. Leaves out what is no number."""
    wanted = {spelled: name for name in names for spelled in (name, name.replace(":", "_", 1))}
    for match in _SAMPLE.finditer(text):
        name = wanted.get(match["name"])
        if name is not None and (value := _number(match["value"])) is not None:
            yield name, _labels(match["labels"] or ""), value


def parse_prometheus(text: str) -> dict[str, float]:
    """Metric -> its value summed over all label sets. Leaves out buckets, quantiles, NaN and what is no sample."""
    totals: dict[str, float] = {}
    for match in _SAMPLE.finditer(text):
        labels = match["labels"]
        if not (labels and _CUMULATIVE.search(labels)) and (value := _number(match["value"])) is not None:
            totals[match["name"]] = totals.get(match["name"], 0.0) + value
    return totals


def _labels(text: str) -> dict[str, str]:
    return {
        match[1]: re.sub(r"\\.", lambda found: _ESCAPED.get(found[0], found[0]), match[2])
        for match in _LABEL.finditer(text)
    }


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value

"""A server's own totals: what must agree with the client's counts, whatever the engine calls it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_moeperf.telemetry.prometheus import Sample, samples


def _any(_labels: Mapping[str, str]) -> bool:
    return True


def _given_up(labels: Mapping[str, str]) -> bool:
    return labels.get("finished_reason") in ("abort", "error")


@dataclass(frozen=True, kw_only=True, slots=True)
class Exporter:
    """The names of one engine."""

    counters: Mapping[str, tuple[str, Callable[[Mapping[str, str]], bool]]]
    """What we count -> its name there, and which of its series count."""
    listed_with: Mapping[str, str] = field(default_factory=dict)
    """A counter that is listed only once it has counted -> a metric that the same part of the engine exports from the
    start: where that one is there and the counter is not, it is 0."""

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.counters.values()} | set(self.listed_with.values())


EXPORTERS: Mapping[str, Exporter] = {
    "sglang": Exporter(
        counters={
            "requests": ("sglang:num_requests_total", _any),
            "generated_tokens": ("sglang:generation_tokens_total", _any),
            "prompt_tokens": ("sglang:prompt_tokens_total", _any),
            "cached_tokens": ("sglang:cached_tokens_total", _any),
            "aborted": ("sglang:num_aborted_requests_total", _any),
            "retracted": ("sglang:num_retracted_requests_total", _any),
        },
        listed_with={
            "cached_tokens": "sglang:num_requests_total",
            "aborted": "sglang:num_requests_total",
            "retracted": "sglang:num_retracted_reqs",
        },
    ),
    "vllm": Exporter(
        counters={
            "requests": ("vllm:request_success_total", _any),
            "generated_tokens": ("vllm:generation_tokens_total", _any),
            "prompt_tokens": ("vllm:prompt_tokens_total", _any),
            "cached_tokens": ("vllm:prefix_cache_hits_total", _any),
            "aborted": ("vllm:request_success_total", _given_up),
            "retracted": ("vllm:num_preemptions_total", _any),
        },
    ),
}
"""Of SGLang 0.5.14 to 0.5.23 and of the simulated engine; of vLLM since 0.10."""

COUNTERS = tuple(EXPORTERS["sglang"].counters)


def server_counters(metrics_text: str | None, *, models: Collection[str] = ()) -> dict[str, float | str | None]:
    """The server's totals since its start; None: it doesn't say.

    ``counting`` is the exporter that was read: beside it a counter that is None has not counted yet, or never does.
    Requests are counted when they end, and /metrics can lag behind the last stream by some 100 ms: read it again.

    :param models: names of the served model. Behind one address others may be served too.
    """
    text = metrics_text or ""
    for engine, exporter in EXPORTERS.items():
        known = list(samples(text, exporter.names))
        if known or re.search(rf"^{engine}[:_]", text, re.MULTILINE):
            return {"counting": engine, **_counted(exporter, of_the_model(known, models))}
    return {"counting": None, **dict.fromkeys(COUNTERS)}


def _counted(exporter: Exporter, known: Sequence[Sample]) -> dict[str, float | None]:
    present = {name for name, _, _ in known}
    totals: dict[str, float | None] = {}
    for key, (name, counts) in exporter.counters.items():
        if name in present:
            totals[key] = sum(value for other, labels, value in known if other == name and counts(labels))
        else:
            totals[key] = 0.0 if exporter.listed_with.get(key) in present else None
    return totals


def of_the_model(known: Sequence[Sample], models: Collection[str]) -> list[Sample]:
    """The series of the served model. Where none has its name: all of them if they are of one model, else none."""
    labelled = {labels["model_name"] for _, labels, _ in known if "model_name" in labels}
    ours = labelled & set(models)
    if len(labelled) > 1 and not ours:
        return []
    return [one for one in known if not ours or one[1].get("model_name") in {None, *ours}]

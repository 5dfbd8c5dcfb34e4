"""What the server counted, as Prometheus text with SGLang's names."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

TTFT_BUCKETS_S = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
E2E_BUCKETS_S = (*TTFT_BUCKETS_S, 600, 1200, 1800, 2400)
ITL_BUCKETS_S = (
    *(0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100),
    *(0.200, 0.400, 0.600, 0.800, 1.000, 2.000, 4.000, 6.000, 8.000),
)
_RECENT_STEPS = 65536


class Histogram:
    """A Prometheus histogram."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value``, ``times`` times."""
        self._counts[bisect_left(self.bounds, value)] += times
        self._sum += value * times

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The metric's lines, cumulative."""
        total = 0
        for bound, count in zip((*map(str, map(float, self.bounds)), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self._sum!r}"
        yield f"{name}_count{{{labels}}} {total}"


@dataclass(slots=True)
class Delays:
    """A count, a sum and a maximum of delays in seconds, and the last ``_RECENT_STEPS`` of them for quantiles."""

    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    _recent: array[float] = field(default_factory=lambda: array("d"))

    def add(self, seconds: float) -> None:
        """Count one delay; what is early counts as on time."""
        value = max(seconds, 0.0)
        if len(self._recent) < _RECENT_STEPS:
            self._recent.append(value)
        else:
            self._recent[self.count % _RECENT_STEPS] = value
        self.count += 1
        self.total_s += value
        self.max_s = max(self.max_s, value)

    def quantile(self, fraction: float) -> float:
        """The nearest-rank quantile of the recent delays; 0 without any."""
        ordered = sorted(self._recent)
        return ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] if ordered else 0.0


@dataclass(kw_only=True, slots=True)
class Punctuality:
    """Does the simulation keep its own time? Lateness is how long after its due time a step's end was handled."""

    lateness: Delays = field(default_factory=Delays)
    writing: Delays = field(default_factory=Delays)
    """From a step's end being handled to the last of its events being handed to the sockets."""
    late_steps: int = 0
    """Steps that were late by more than a tenth of their own length."""

    def to_dict(self) -> dict[str, float]:
        """Seconds and counts since the last flush of the cache."""
        return {
            "steps": self.lateness.count,
            "late_steps": self.late_steps,
            "lateness_p50_s": self.lateness.quantile(0.5),
            "lateness_p99_s": self.lateness.quantile(0.99),
            "lateness_max_s": self.lateness.max_s,
            "writing_p50_s": self.writing.quantile(0.5),
            "writing_p99_s": self.writing.quantile(0.99),
            "writing_max_s": self.writing.max_s,
        }


@dataclass(kw_only=True, slots=True)
class Counters:
    """Everything that is counted. Totals never fall; `punctuality` starts anew at each flush of the cache."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    aborted: int = 0
    retracted: int = 0
    steps: int = 0
    late_steps: int = 0
    step_seconds: float = 0.0
    last_gen_throughput: float = 0.0
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS_S))
    e2e: Histogram = field(default_factory=lambda: Histogram(E2E_BUCKETS_S))
    itl: Histogram = field(default_factory=lambda: Histogram(ITL_BUCKETS_S))
    queue: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS_S))
    punctuality: Punctuality = field(default_factory=Punctuality)

    def add_step(self, *, lateness_s: float, duration_s: float) -> None:
        """One more step, handled ``lateness_s`` after its end."""
        self.steps += 1
        self.step_seconds += duration_s
        self.punctuality.lateness.add(lateness_s)
        if lateness_s > 0.1 * duration_s:
            self.late_steps += 1
            self.punctuality.late_steps += 1

    def prometheus(self, *, model_name: str, running: int, queued: int) -> str:
        """The text of ``/metrics``."""
        label = f'model_name="{_escape(model_name)}"'
        return "\n".join((*self._simple_lines(label, running=running, queued=queued), *self._other_lines(label), ""))

    def _simple_lines(self, label: str, *, running: int, queued: int) -> Iterator[str]:
        simple: Iterable[tuple[str, str, str, float]] = (
            ("sglang:num_running_reqs", "gauge", "The number of running requests.", running),
            ("sglang:num_queue_reqs", "gauge", "The number of requests in the waiting queue.", queued),
            ("sglang:gen_throughput", "gauge", "The generation throughput (token/s).", self.last_gen_throughput),
            ("sglang:num_retracted_reqs", "gauge", "The number of retracted requests.", 0),
            ("sglang:num_retracted_requests_total", "counter", "Total number of retracted requests.", self.retracted),
            ("sglang:prompt_tokens_total", "counter", "Number of prefill tokens processed.", self.prompt_tokens),
            (
                *("sglang:generation_tokens_total", "counter", "Number of generation tokens processed."),
                self.generation_tokens,
            ),
            ("sglang:num_requests_total", "counter", "Number of requests processed.", self.requests),
            ("sglang:num_aborted_requests_total", "counter", "Number of requests aborted.", self.aborted),
            ("simulated:steps_total", "counter", "Steps played.", self.steps),
            (
                "simulated:late_steps_total",
                "counter",
                "Steps late by more than a tenth of their length.",
                self.late_steps,
            ),
            (
                "simulated:step_seconds_total",
                "counter",
                "Seconds that the played steps were to last.",
                self.step_seconds,
            ),
            (
                *("simulated:step_lateness_max_seconds", "gauge", "The largest lateness since the last flush."),
                self.punctuality.lateness.max_s,
            ),
        )
        for name, kind, text, value in simple:
            yield from (f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{{{label}}} {value!r}")

    def _other_lines(self, label: str) -> Iterator[str]:
        name = "sglang:cached_tokens_total"
        yield from (f"# HELP {name} Number of cached prompt tokens by source.", f"# TYPE {name} counter")
        yield f'{name}{{{label},cache_source="device"}} {self.cached_tokens}'
        for name, histogram in (
            ("sglang:time_to_first_token_seconds", self.ttft),
            ("sglang:inter_token_latency_seconds", self.itl),
            ("sglang:e2e_request_latency_seconds", self.e2e),
            ("sglang:queue_time_seconds", self.queue),
        ):
            yield from (f"# HELP {name} Histogram, in seconds.", f"# TYPE {name} histogram")
            yield from histogram.lines(name, label)
        for name, delays in (
            ("simulated:step_lateness_seconds", self.punctuality.lateness),
            ("simulated:step_writing_seconds", self.punctuality.writing),
        ):
            yield from (f"# HELP {name} Since the last flush of the cache.", f"# TYPE {name} summary")
            for fraction in (0.5, 0.99):
                yield f'{name}{{{label},quantile="{fraction}"}} {delays.quantile(fraction)!r}'
            yield f"{name}_sum{{{label}}} {delays.total_s!r}"
            yield f"{name}_count{{{label}}} {delays.count}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

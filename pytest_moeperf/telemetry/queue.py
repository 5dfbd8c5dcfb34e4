"""How many requests a server runs and holds back while a run goes on, as its own gauges say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Self

from pytest_moeperf.telemetry.counters import of_the_model
from pytest_moeperf.telemetry.prometheus import Sample, samples

LARGEST_SHARE = 0.01
"""Of a run's time that may go into asking: the server answers in the process that sends the tokens."""
INTERVAL_S = 0.4

_RUNNING = frozenset({"sglang:num_running_reqs", "vllm:num_requests_running"})
_QUEUED = frozenset({"sglang:num_queue_reqs", "vllm:num_requests_waiting"})
_RANK_LABELS = ("dp_rank", "engine", "instance", "worker", "url")
"""Of parts that run requests of their own. Tensor and pipeline ranks all tell of the same ones."""


class QueueSampler:
    """Asks between entering and leaving its context.

    Args:
        read: the text of /metrics; None: it could not be had.
        models: names of the served model.
    """

    def __init__(
        self,
        read: Callable[[], str | None],
        *,
        models: Collection[str] = (),
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._read = read
        self._models = models
        self._interval_s = interval_s
        self._running: list[dict[str, float]] = []
        self._queued: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moeperf-queue", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def summary(self) -> dict[str, Any]:
        """JSON-plain, for ``Run.telemetry``: the most that ran and waited at once, and the mean of each rank."""
        ranks = sorted({rank for sample in self._running for rank in sample})
        count = len(self._running)
        return {
            "samples": count,
            "running_max": max((sum(sample.values()) for sample in self._running), default=None),
            "queued_max": max(self._queued, default=None),
            "running_by_rank": {
                rank: round(sum(sample.get(rank, 0.0) for sample in self._running) / count, 2) for rank in ranks
            },
        }

    def sample(self) -> None:
        """One look. The thread calls it; a test may."""
        text = self._read()
        known = of_the_model(list(samples(text or "", _RUNNING | _QUEUED)), self._models)
        running = _by_rank([one for one in known if one[0] in _RUNNING])
        if running:
            self._running.append(running)
            self._queued.append(sum(_by_rank([one for one in known if one[0] in _QUEUED]).values()))

    def _run(self) -> None:
        pause_s = self._interval_s
        while not self._stop.wait(pause_s):
            began_s = time.monotonic()
            self.sample()
            pause_s = max(self._interval_s, (time.monotonic() - began_s) / LARGEST_SHARE)


def _by_rank(known: list[Sample]) -> dict[str, float]:
    ranks: dict[str, float] = {}
    for _, labels, value in known:
        rank = " ".join(f"{label} {labels[label]}" for label in _RANK_LABELS if label in labels) or "all"
        ranks[rank] = max(ranks.get(rank, 0.0), value)
    return ranks

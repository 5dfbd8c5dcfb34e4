"""What is looked at beside a run: the GPUs, and the server's queue where nothing else says how many it runs at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from pytest_moeperf.model.workload import Workload
from pytest_moeperf.telemetry import QueueSampler, Sampler
from pytest_moeperf.validity import Limits


class Watching:
    """Looks between entering and leaving its context.

    Args:
        gpus: UUIDs of those that serve; none for a server without.
    """

    def __init__(
        self,
        *,
        gpus: Sequence[str],
        workload: Workload,
        limits: Limits,
        read_metrics: Callable[[], str | None],
        models: Collection[str],
    ) -> None:
        self._gpus = Sampler(gpus=gpus) if gpus else None
        open_question = workload.concurrency > 1 and (limits.ranks > 1 or not limits.allow(workload))
        self._queue = QueueSampler(read_metrics, models=models) if open_question else None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for sampler in (self._gpus, self._queue):
            if sampler is not None:
                self._stack.enter_context(sampler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def queue(self) -> dict[str, Any]:
        """Of ``QueueSampler.summary``; empty: nobody looked."""
        return self._queue.summary() if self._queue is not None else {}

    def telemetry(self) -> dict[str, Any]:
        """For ``Run.telemetry``. Call it after the context was left."""
        gpus = self._gpus.summary() if self._gpus is not None else {}
        return {**gpus, "queue": self.queue} if self._queue is not None else gpus

"""``drive``: one load run, from prompts to records. The load itself runs in worker processes of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.arrivals import ARRIVALS, POISSON, arrival_offsets_ns
from pytest_moeperf.load.client import LoadClient, Progress
from pytest_moeperf.load.events import PROTOCOLS, SGLANG
from pytest_moeperf.load.job import DEFAULT_HELD_BYTES, Job, Outcome, Planned
from pytest_moeperf.load.merge import merge_outcomes
from pytest_moeperf.load.pool import WorkerPool
from pytest_moeperf.load.request import parse_target
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.outgoing.key import ApiKey

SLOTS_A_WORKER = 512
"""One core reads about 80k events/s with kernel stamps: 512 streams at 6 ms a token."""
SLOTS_A_TLS_WORKER = 128
_PIN_FROM_CPUS = 8
"""On a smaller host the server's own threads need every core, and a pinned client would wait behind them."""
_START_DELAY_NS = 20_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadProgress:
    """How far a run is, about four times a second."""

    elapsed_s: float
    total: int
    sent: int
    finished: int
    failed: int
    """Known so far; errors inside a stream show only after the run."""
    reads: int
    """Reads so far: about one a token where the server streams every token."""


def drive(
    *,
    url: str,
    workload: Workload,
    prompts: Sequence[Sequence[int]],
    protocol: str = SGLANG,
    api_key: ApiKey | None = None,
    model: str = "",
    timeout_s: float,
    workers: int | None = None,
    keep_output: bool = False,
    on_progress: Callable[[LoadProgress], None] | None = None,
    arrivals: str = POISSON,
    held_bytes: int = DEFAULT_HELD_BYTES,
) -> LoadResult:
    """Send ``prompts`` to the server at ``url`` and return one record for each request that was sent.

    Closed loop at ``workload.concurrency`` without a ``request_rate``; else an open loop with ``arrivals`` (poisson or
    constant) in which the concurrency is the most that may be in flight. A failed request ends the sending of new ones
    (the run is void; nothing is retried); those in flight may finish.

    :param timeout_s: of the whole run, from its start. What is in flight then is recorded as ``timeout``.
    :param workers: processes; None: as many as the concurrency needs; 0: none, the loop runs in the caller's thread.
    :param held_bytes: of unparsed responses that a worker may keep until the end of the run. Besides, a run needs about
        12 bytes an event and 1 kB a request.
    :raises LoadError: if the load can't be driven at all: no such server, a connection that is refused.
    """
    _check(workload, prompts, protocol, arrivals, timeout_s)
    jobs = _jobs(
        url=url,
        workload=workload,
        prompts=prompts,
        protocol=protocol,
        api_key=api_key,
        model=model,
        timeout_s=timeout_s,
        workers=workers,
        keep_output=keep_output,
        arrivals=arrivals,
        held_bytes=held_bytes,
    )
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    report = _Reporter(total=workload.num_prompts, on_progress=on_progress)
    if workers == 0:
        start_ns, outcomes = _run_here(jobs[0], report)
    else:
        with WorkerPool(jobs, on_progress=report) as pool:
            start_ns = time.monotonic_ns() + _START_DELAY_NS
            report.start_ns = start_ns
            outcomes = pool.run(start_ns)
    return merge_outcomes(outcomes, start_ns=start_ns, started_at=started_at)


def workers_for(concurrency: int, *, tls: bool) -> int:
    """Worker processes for so many streams, at most half of the cores that we may use."""
    wanted = -(-concurrency // (SLOTS_A_TLS_WORKER if tls else SLOTS_A_WORKER))
    return max(1, min(wanted, len(_cpus()) // 2, concurrency))


class _Reporter:
    """Adds the workers' counts up."""

    def __init__(self, *, total: int, on_progress: Callable[[LoadProgress], None] | None) -> None:
        self.start_ns = time.monotonic_ns()
        self._total = total
        self._on_progress = on_progress
        self._latest: dict[int, Progress] = {}

    def __call__(self, worker: int, progress: Progress) -> None:
        self._latest[worker] = progress
        if self._on_progress is None:
            return
        parts = self._latest.values()
        self._on_progress(
            LoadProgress(
                elapsed_s=max(0.0, (time.monotonic_ns() - self.start_ns) / 1e9),
                total=self._total,
                sent=sum(part.sent for part in parts),
                finished=sum(part.finished for part in parts),
                failed=sum(part.failed for part in parts),
                reads=sum(part.reads for part in parts),
            )
        )


def _check(
    workload: Workload, prompts: Sequence[Sequence[int]], protocol: str, arrivals: str, timeout_s: float
) -> None:
    if protocol not in PROTOCOLS:
        raise LoadError(what=f"unknown protocol {protocol!r}", next_step=f"one of {', '.join(PROTOCOLS)}")
    if arrivals not in ARRIVALS:
        raise LoadError(what=f"unknown arrivals {arrivals!r}", next_step=f"one of {', '.join(ARRIVALS)}")
    if workload.concurrency < 1 or workload.output_len < 1:
        raise LoadError(what=f"concurrency and output_len must be at least 1: {workload.label}")
    if workload.request_rate is not None and workload.request_rate <= 0:
        raise LoadError(what=f"request_rate must be above 0, not {workload.request_rate:g}")
    if len(prompts) != workload.num_prompts:
        raise LoadError(what=f"{len(prompts)} prompts for a workload of {workload.num_prompts} requests")
    if timeout_s <= 0:
        raise LoadError(what=f"timeout_s must be above 0, not {timeout_s:g}")


def _jobs(
    *,
    url: str,
    workload: Workload,
    prompts: Sequence[Sequence[int]],
    protocol: str,
    api_key: ApiKey | None,
    model: str,
    timeout_s: float,
    workers: int | None,
    keep_output: bool,
    arrivals: str,
    held_bytes: int,
) -> list[Job]:
    """Slots in equal shares; request i belongs to slot i modulo the concurrency, and so to that slot's worker."""
    target = parse_target(url)
    if api_key is not None and not (api_key.reveal().isascii() and api_key.reveal().isprintable()):
        raise LoadError(what="the API key holds characters that an HTTP header can't carry")
    slots = min(workload.concurrency, workload.num_prompts)
    count = workers_for(slots, tls=target.tls) if workers is None else min(max(1, workers), slots)
    offsets: Sequence[int | None] = [None] * workload.num_prompts
    if workload.request_rate is not None:
        offsets = arrival_offsets_ns(
            rate=workload.request_rate, count=workload.num_prompts, seed=workload.seed, kind=arrivals
        )
    planned = [
        Planned(index=index, prompt=array("I", prompt).tobytes(), offset_ns=offset)
        for index, (prompt, offset) in enumerate(zip(prompts, offsets, strict=True))
    ]
    cpus = _cpus()
    pin = count * 2 <= len(cpus) and len(cpus) >= _PIN_FROM_CPUS and workers != 0
    bounds = [slots * worker // count for worker in range(count + 1)]
    return [
        Job(
            target=target,
            protocol=protocol,
            model=model,
            api_key=api_key,
            output_len=workload.output_len,
            slots=bounds[worker + 1] - bounds[worker],
            first_slot=bounds[worker],
            requests=[item for item in planned if bounds[worker] <= item.index % slots < bounds[worker + 1]],
            timeout_s=timeout_s,
            keep_output=keep_output,
            held_bytes=held_bytes,
            cpu=cpus[-1 - worker] if pin else None,
        )
        for worker in range(count)
    ]


def _run_here(job: Job, report: _Reporter) -> tuple[int, list[Outcome]]:
    client = LoadClient(job, on_progress=lambda progress: report(0, progress))
    client.connect()
    with _collector_paused():
        start_ns = report.start_ns = time.monotonic_ns()
        client.run(start_ns)
    return start_ns, [client.outcome()]


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))

"""Can this host's client read that load? Our own client against a paced server of ours, each in its own process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from pytest_moeperf.asking import ask
from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.driver import drive
from pytest_moeperf.load.paced import Report, request_key
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.model.records import ClientReport, LoadResult
from pytest_moeperf.model.vocabulary import Vocabulary
from pytest_moeperf.model.workload import Workload

MAX_STAMP_ERROR_MS = 0.5
"""p99, with kernel stamps. Without them a tenth of the time between two events of a stream is allowed."""
MAX_WORKER_CPU = 0.80
MIN_KEPT_PACE = 0.95
MAX_COALESCED_SHARE = 0.01
REPORT_BYTES = 2**30
"""Our own server's: every time of every event."""
_INPUT_LEN = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class SelftestReport:
    """What was asked of the client, what it did, and whether that is good enough to measure a server with."""

    concurrency: int
    rate_per_stream: float
    """Events/s of each stream."""
    offered_events_per_s: float
    """What the paced server really sent, while it sent."""
    read_events_per_s: float
    limit_events_per_s: float | None
    """What the workers could read at 80 % of a core each, from the CPU time that an event cost inside the window."""
    stamp_error_ms_p50: float
    """Recorded arrival - the moment before the server's write. Holds the write itself, a few us."""
    stamp_error_ms_p99: float
    lost_events: int
    coalesced_share: float
    client: ClientReport
    problems: tuple[str, ...]
    """Why not; empty: the client can read this load."""
    server_problem: str = ""
    """The paced server could not keep its own pace, so the load was lower than asked: nothing is proven beyond it."""

    @property
    def ok(self) -> bool:
        return not self.problems and not self.server_problem


def run_selftest(*, concurrency: int, rate: float, duration_s: float) -> SelftestReport:
    """
    :param rate: events (tokens) a second of each stream; the load is ``concurrency`` x ``rate``.
    :raises LoadError: if the load can't be driven at all.
    """
    if concurrency < 1 or rate <= 0 or duration_s <= 0:
        what = f"concurrency {concurrency}, rate {rate:g} and duration {duration_s:g} s must all be above 0"
        raise LoadError(what=f"a self-test that can't be: {what}")
    output_len = max(2, round(rate * duration_s))
    workload = Workload(concurrency=concurrency, input_len=_INPUT_LEN, output_len=output_len, num_prompts=concurrency)
    prompts = [
        prompt.tolist() for prompt in make_prompts(workload, run_key="selftest", vocabulary=Vocabulary(size=100_000))
    ]
    with _paced_server(interval_ms=1e3 / rate) as url:
        result = drive(url=url, workload=workload, prompts=prompts, timeout_s=60 + 5 * duration_s)
        answer = ask(url, "/report", timeout_s=60, largest_bytes=REPORT_BYTES)
        if not answer.good:
            raise LoadError(what=f"the paced server did not report: {answer.problem}")
        report = msgspec.json.decode(answer.text, type=Report)
    return judge(result, report, prompts, concurrency=concurrency, rate=rate)


def judge(
    result: LoadResult, report: Report, prompts: Sequence[list[int]], *, concurrency: int, rate: float
) -> SelftestReport:
    """Pure: the two sides of one run held against each other."""
    failed = [record.error for record in result.records if not record.ok]
    if failed:
        raise LoadError(what=f"the self-test's own load failed: {failed[0]}")
    client = result.client
    errors: list[float] = []
    sent_total = 0
    first, last = sys.maxsize, 0
    for record in result.records:
        sent = report.sent_ns.get(request_key(prompts[record.index]), [])
        sent_total += len(sent)
        first, last = min(first, *sent[:1]), max(last, *sent[-1:])
        errors.extend((at - since) / 1e6 for since, at in zip(sent, record.event_ns, strict=False))
    errors.sort()
    span_s = max(1e-9, (last - first) / 1e9)
    offered = (sent_total - concurrency) / span_s
    p50, p99 = (errors[min(len(errors) - 1, int(share * len(errors)))] for share in (0.50, 0.99))
    lost = sent_total - len(errors)
    coalesced = client.coalesced_reads / client.reads if client.reads else 0.0
    began_ns = min(record.event_ns[0] for record in result.records)
    read_span_s = max(1e-9, (max(record.event_ns[-1] for record in result.records) - began_ns) / 1e9)
    return SelftestReport(
        concurrency=concurrency,
        rate_per_stream=rate,
        offered_events_per_s=offered,
        read_events_per_s=(len(errors) - concurrency) / read_span_s,
        limit_events_per_s=_limit(client, offered),
        stamp_error_ms_p50=p50,
        stamp_error_ms_p99=p99,
        lost_events=lost,
        coalesced_share=coalesced,
        client=client,
        problems=tuple(_problems(client, p99_ms=p99, lost=lost, coalesced=coalesced, rate=rate)),
        server_problem=_server_problem(offered, concurrency * rate),
    )


def _problems(client: ClientReport, *, p99_ms: float, lost: int, coalesced: float, rate: float) -> Iterator[str]:
    most_ms = MAX_STAMP_ERROR_MS if client.clock == "kernel" else 0.1 * 1e3 / rate
    if lost:
        yield f"{lost} events were sent but not seen"
    if p99_ms > most_ms:
        yield f"the p99 of the stamp error is {p99_ms:.3f} ms (at most {most_ms:.3f} ms, {client.clock} clock)"
    if client.worker_cpu is not None and client.worker_cpu > MAX_WORKER_CPU:
        used = f"{client.worker_cpu:.0%} of its core (at most {MAX_WORKER_CPU:.0%})"
        yield f"a worker used {used}; workers: {client.workers}"
    if coalesced > MAX_COALESCED_SHARE:
        yield f"{coalesced:.1%} of the reads held several events of one stream (at most {MAX_COALESCED_SHARE:.0%})"


def _server_problem(offered: float, asked: float) -> str:
    if offered >= MIN_KEPT_PACE * asked:
        return ""
    return f"the paced server sent {offered:.0f} of {asked:.0f} events/s: this host has no core left for it"


def _limit(client: ClientReport, offered: float) -> float | None:
    if not client.worker_cpu:
        return None
    return MAX_WORKER_CPU / client.worker_cpu * offered


@contextlib.contextmanager
def _paced_server(*, interval_ms: float) -> Iterator[str]:
    command = [sys.executable, "-m", "pytest_moeperf.load.paced", "--interval-ms", f"{interval_ms:.6f}", "--with-owner"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = process.stdout.readline().strip() if process.stdout is not None else ""
        if not port:
            raise LoadError(what=f"the paced server ended with code {process.wait(5)}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

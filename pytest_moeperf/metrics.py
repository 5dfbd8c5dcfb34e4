"""The metrics of one run from its records.

For request i, all times on one clock, ``event`` being an arrival that carried tokens:

===========  =======================================================================================================
ttft         first event - send. The connection was open before; a role-only or empty event is none.
e2el         last event - send. The trailer (usage, [DONE]) is not in it.
n_out        completion tokens as the server counted; the sum over the events where it didn't say.
tpot         (last event - first event) / (n_out - tokens of the first event); undefined if that is 0. Events that
             came together (``delivery.py``) are one here.
ntpot        e2el / n_out
icl          gap between two events, pooled over the requests
itl          the same gap / tokens of the later event, once for each of its tokens (amortised)
===========  =======================================================================================================

Latencies are over the requests that ended well. Percentiles interpolate linearly (numpy's default) and are None for a
sample that can't carry them: p needs at least 1 / (1 - p) values (p50: 2, p90: 10, p99: 100). Latencies that the
delivery of the answers does not show are undefined, and ``Metrics.undefined`` says why.

Throughput ``out_tps`` is output tokens / (last event - first send). ``out_tps_steady`` counts the tokens generated
inside the steady window, whatever request they belong to: that of a one-token event when it came, those of a larger
one evenly over the time since the event before, so that no stream's last lump is lost. In a closed loop the window is
the longest span in which at least 0.95 x concurrency slots were at work: a slot is at work from its first send to the
end of its last response, with the client's own turnaround between two requests (that it costs nothing is what
``effective_concurrency`` shows). In an open loop it is the span from the first completed request to the last send.
``effective_concurrency`` is the time integral of the requests really in flight (send to end of stream) over the
window / its length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from pytest_moeperf.delivery import Arrivals, accepted_per_step, arrivals_of, tokens_per_step, tokens_until, unshown
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.bounds import METRICS
from pytest_moeperf.model.records import LoadResult, RequestRecord
from pytest_moeperf.model.run import Distribution, Metrics
from pytest_moeperf.model.workload import Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STEADY_SHARE = 0.95
CLOCK_TOLERANCE_MS = 1.0
"""Stamps of the two clocks agree to a few microseconds."""
_NS_PER_MS = 1e6
_NS_PER_S = 1e9

Window = tuple[int, int]
"""Start and end, ns."""
Answer = tuple[RequestRecord, Arrivals]
T = TypeVar("T")


def compute_metrics(result: LoadResult, workload: Workload, *, slo: Sequence[tuple[str, float]] = ()) -> Metrics:
    """
    :param slo: (latency metric, limit in ms): a request is good if it ended well and meets all of them. A TPOT that is
        undefined meets none. ``itl`` is the longest amortised gap of the request.
    :raises UsageProblem: for an slo on an unknown metric.
    """
    if (problem := impossible_times(result)) is not None:
        return _counts_only(result, problem)
    answers = [(record, arrivals_of(record)) for record in result.records if record.event_ns]
    delivered = [(record, arrivals) for record, arrivals in answers if record.ok]
    good = [record for record, _ in delivered]
    tokens = sum(output_tokens(record) for record in good)
    undefined = unshown(delivered, late_ms=result.client.stamp_delay_ms_p99 or 0.0)
    if slo and (unseen := [metric for metric, _ in slo if metric in undefined]):
        undefined["goodput"] = undefined[unseen[0]]
    duration_ns = _duration_ns(result.records)
    window = steady_window(result, workload)
    window_ns = window[1] - window[0] if window else 0
    events = sum(len(record.event_ns) for record in good)
    duration_s = duration_ns / _NS_PER_S
    icl, itl = _pooled_gaps_ms(good)
    return Metrics(
        completed=len(good),
        failed=len(result.records) - len(good),
        output_tokens=tokens,
        duration_s=duration_s,
        out_tps=_ratio(tokens, duration_s),
        out_tps_steady=_ratio(_tokens_in(answers, window), window_ns / _NS_PER_S) if window else None,
        steady_window_s=window_ns / _NS_PER_S if window else None,
        steady_share=_ratio(window_ns, duration_ns) if window else None,
        request_rate=_ratio(len(good), duration_s),
        effective_concurrency=_ratio(_in_flight_ns(result.records, window), window_ns) if window else None,
        ttft_ms=distribution(() if "ttft" in undefined else _defined(ttft_ms, good)),
        tpot_ms=distribution(() if "tpot" in undefined else _defined(tpot_ms, delivered)),
        ntpot_ms=distribution(_defined(ntpot_ms, good)),
        itl_ms=distribution(() if "itl" in undefined else itl),
        icl_ms=distribution(() if "itl" in undefined else icl),
        e2el_ms=distribution(_defined(e2el_ms, good)),
        tokens_per_event=_ratio(sum(sum(record.event_tokens) for record in good), events),
        tokens_per_step=tokens_per_step(good),
        accepted_per_step=accepted_per_step(good),
        cached_tokens=_sum_if_known(record.cached_tokens for record in good),
        prompt_tokens=_sum_if_known(record.prompt_tokens for record in good),
        goodput_rps=(
            _ratio(sum(_meets(answer, slo) for answer in delivered), duration_s)
            if slo and "goodput" not in undefined
            else None
        ),
        undefined=undefined,
    )


def impossible_times(result: LoadResult) -> str | None:
    """Why no time of this run means anything: an answer came before it was asked for, after the run was over, or its
    events before one another. That is what a wall clock that is set leaves of kernel stamps."""
    import numpy as np

    client = result.client
    # A read without the kernel's stamp has the client's own, which is as late as the client.
    tolerance_ms = CLOCK_TOLERANCE_MS + (client.stamp_delay_ms_max or 0.0 if client.unstamped_reads else 0.0)
    for record in result.records:
        if not record.event_ns:
            continue
        times = np.array((record.send_ns, *record.event_ns, _end_ns(record)), dtype=np.int64)
        back_ms = -float(np.diff(times).min()) / _NS_PER_MS
        late_ms = float(times.max() - result.end_ns) / _NS_PER_MS
        if max(back_ms, late_ms) > tolerance_ms:
            what = (
                f"{back_ms:.3g} ms before what came first" if back_ms > late_ms else f"{late_ms:.3g} ms after the end"
            )
            return f"request {record.index} was stamped {what}: the clock was set during the run"
    return None


def _counts_only(result: LoadResult, problem: str) -> Metrics:
    good = [record for record in result.records if record.ok and record.event_ns]
    nothing = Distribution(n=0)
    return Metrics(
        completed=len(good),
        failed=len(result.records) - len(good),
        output_tokens=sum(output_tokens(record) for record in good),
        duration_s=(result.end_ns - result.start_ns) / _NS_PER_S,
        out_tps=None,
        out_tps_steady=None,
        steady_window_s=None,
        steady_share=None,
        request_rate=None,
        effective_concurrency=None,
        ttft_ms=nothing,
        tpot_ms=nothing,
        ntpot_ms=nothing,
        itl_ms=nothing,
        icl_ms=nothing,
        e2el_ms=nothing,
        tokens_per_event=_ratio(
            sum(sum(record.event_tokens) for record in good), sum(len(record.event_ns) for record in good)
        ),
        accepted_per_step=accepted_per_step(good),
        cached_tokens=_sum_if_known(record.cached_tokens for record in good),
        prompt_tokens=_sum_if_known(record.prompt_tokens for record in good),
        undefined=dict.fromkeys(METRICS, problem),
    )


def output_tokens(record: RequestRecord) -> int:
    return sum(record.event_tokens) if record.completion_tokens is None else record.completion_tokens


def ttft_ms(record: RequestRecord) -> float | None:
    return (record.event_ns[0] - record.send_ns) / _NS_PER_MS if record.event_ns else None


def e2el_ms(record: RequestRecord) -> float | None:
    return (record.event_ns[-1] - record.send_ns) / _NS_PER_MS if record.event_ns else None


def tpot_ms(answer: Answer) -> float | None:
    record, arrivals = answer
    later = output_tokens(record) - int(arrivals.tokens[0])
    return (record.event_ns[-1] - int(arrivals.ns[0])) / later / _NS_PER_MS if later > 0 else None


def ntpot_ms(record: RequestRecord) -> float | None:
    tokens, e2el = output_tokens(record), e2el_ms(record)
    return e2el / tokens if tokens and e2el is not None else None


def icl_ms(record: RequestRecord) -> list[float]:
    times = record.event_ns
    return [(later - earlier) / _NS_PER_MS for earlier, later in itertools.pairwise(times)]


def itl_ms(record: RequestRecord) -> list[float]:
    values: list[float] = []
    for gap, count in zip(icl_ms(record), record.event_tokens[1:], strict=True):
        if count:
            values.extend([gap / count] * count)
    return values


_PER_REQUEST: dict[str, Callable[[Answer], float | None]] = {
    "ttft": lambda answer: ttft_ms(answer[0]),
    "tpot": tpot_ms,
    "ntpot": lambda answer: ntpot_ms(answer[0]),
    "e2el": lambda answer: e2el_ms(answer[0]),
    "itl": lambda answer: max(itl_ms(answer[0]), default=None),
}


def distribution(values: Sequence[float] | NDArray[np.float64]) -> Distribution:
    """``n`` 0 and nothing else for no values."""
    if not len(values):
        return Distribution(n=0)
    import numpy as np

    sample = np.asarray(values, dtype=np.float64)

    def percentile(fraction: float) -> float | None:
        if len(sample) < math.ceil(1 / (1 - fraction) - 1e-9):
            return None
        return float(np.quantile(sample, fraction))

    return Distribution(
        n=len(sample),
        mean=float(sample.mean()),
        p50=percentile(0.50),
        p90=percentile(0.90),
        p99=percentile(0.99),
        minimum=float(sample.min()),
        maximum=float(sample.max()),
    )


def steady_window(result: LoadResult, workload: Workload) -> Window | None:
    """The span that the steady throughput is taken over; None: there was none."""
    if workload.request_rate is not None:
        first_end = min((_end_ns(record) for record in result.records), default=0)
        last_send = max((record.send_ns for record in result.records), default=0)
        return (first_end, last_send) if last_send > first_end else None
    spans: dict[int, Window] = {}
    for record in result.records:
        first, last = spans.get(record.slot, (record.send_ns, 0))
        spans[record.slot] = (min(first, record.send_ns), max(last, _end_ns(record)))
    needed = math.ceil(STEADY_SHARE * workload.concurrency - 1e-9)
    if len(spans) < needed:
        return None
    # Slots start together and end one by one: enough have begun, and not too many have ended.
    start = sorted(first for first, _ in spans.values())[needed - 1]
    end = sorted((last for _, last in spans.values()), reverse=True)[needed - 1]
    return (start, end) if end > start else None


def _end_ns(record: RequestRecord) -> int:
    if record.end_ns is not None:
        return record.end_ns
    return record.event_ns[-1] if record.event_ns else record.send_ns


def _duration_ns(records: Sequence[RequestRecord]) -> int:
    first = min((record.send_ns for record in records), default=0)
    last = max((record.event_ns[-1] for record in records if record.event_ns), default=first)
    return max(0, last - first)


def _tokens_in(answers: Iterable[Answer], window: Window) -> int:
    start, end = window
    return sum(
        tokens_until(arrivals, record.send_ns, end) - tokens_until(arrivals, record.send_ns, start)
        for record, arrivals in answers
    )


def _pooled_gaps_ms(records: Iterable[RequestRecord]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``icl`` and ``itl`` of all records."""
    import numpy as np

    between: list[NDArray[np.float64]] = [np.empty(0)]
    per_token: list[NDArray[np.float64]] = [np.empty(0)]
    for record in records:
        times = np.array(record.event_ns, dtype=np.int64)
        gaps = (times[1:] - times[:-1]) / _NS_PER_MS
        counts = np.array(record.event_tokens, dtype=np.int64)[1:]
        between.append(gaps)
        per_token.append(np.repeat(gaps / np.maximum(counts, 1), counts))
    return np.concatenate(between), np.concatenate(per_token)


def _in_flight_ns(records: Iterable[RequestRecord], window: Window) -> int:
    start, end = window
    return sum(max(0, min(_end_ns(record), end) - max(record.send_ns, start)) for record in records)


def _meets(answer: Answer, slo: Sequence[tuple[str, float]]) -> bool:
    for metric, limit_ms in slo:
        if metric not in _PER_REQUEST:
            raise UsageProblem(where="slo", problem=f"unknown metric {metric!r}", allowed=", ".join(_PER_REQUEST))
        value = _PER_REQUEST[metric](answer)
        if value is None or value > limit_ms:
            return False
    return True


def _defined(metric: Callable[[T], float | None], answers: Iterable[T]) -> list[float]:
    return [value for value in map(metric, answers) if value is not None]


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None


def _sum_if_known(values: Iterable[int | None]) -> int | None:
    """None as soon as one is unknown: a partial sum would pass for the whole."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total

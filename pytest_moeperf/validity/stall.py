"""A kernel that was compiled inside the window, a server that paused: a silence shared by all streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_moeperf.delivery import arrivals_of
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.run import Check
from pytest_moeperf.validity.result import failed, passed, unknown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NAME = "no_stall_in_window"
STALL_SHARE = 0.03
"""Of the run's duration: a silence that costs less can't decide anything."""
STALL_MIN_MS = 50.0
DECODE_RATIO = 10.0
LUMP_RATIO = 2.0
"""Of tokens that come together: their single steps average out."""
PREFILL_RATIO = 3.0


def compile_stall_check(result: LoadResult) -> Check:
    """No silence that this run's own rhythm does not explain.

    A silence is the gap between two neighbouring arrivals of tokens in any stream, while a request is in flight. A
    decode gap is held against the median time a token of the single streams, the usual step, and against as many steps
    as the arrival that ends it holds tokens: a stream interval sends them together. A gap in which requests wait for
    their first token is held against the other such gaps, scaled with the number that wait, since their prefill is the
    work. Only a silence that costs at least 3 % of the run (and 50 ms) fails. A run in which every gap is long looks
    normal here: the run-level trend shows it.
    """
    silences = _silences(result)
    if silences is None or len(silences.gap_ms) < 3:
        return unknown(_NAME, "too few token events to tell a usual gap from a stall")
    floor_ms = max(STALL_MIN_MS, STALL_SHARE * silences.run_ms)
    worst = silences.gap_ms.argsort()[::-1]
    for position in worst:
        gap_ms, waiting = float(silences.gap_ms[position]), int(silences.waiting[position])
        if gap_ms < floor_ms:
            break
        if waiting:
            expected_ms = silences.usual_prefill_ms(int(position))
            most_ms = PREFILL_RATIO * (expected_ms or 0.0)
        else:
            expected_ms, most_ms = silences.usual_decode(int(position))
        if expected_ms is not None and gap_ms > most_ms and gap_ms - expected_ms > floor_ms:
            doing = f"{waiting} requests waited for their first token" if waiting else "all were decoding"
            return failed(
                _NAME,
                f"no stream got a token for {gap_ms:.0f} ms, {silences.at_s[position]:.2f} s into the run, while "
                f"{doing}; such a gap is about {expected_ms:.1f} ms elsewhere: the server compiled a kernel, "
                "collected garbage, or paused",
                repeatable=True,
            )
    return passed(_NAME)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Silences:
    """One entry a gap, in the order of time."""

    gap_ms: NDArray[np.float64]
    at_s: NDArray[np.float64]
    tokens: NDArray[np.int64]
    """Of the arrival that ended the gap."""
    waiting: NDArray[np.int64]
    """Requests that were sent and had no token yet when the gap ended."""
    usual_decode_ms: float | None
    """A token."""
    run_ms: float

    def usual_decode(self, position: int) -> tuple[float | None, float]:
        """The time that its tokens usually take, and the most that is no stall."""
        usual_ms, tokens = self.usual_decode_ms, int(self.tokens[position])
        if usual_ms is None:
            return None, 0.0
        return usual_ms * tokens, usual_ms * max(DECODE_RATIO, LUMP_RATIO * tokens)

    def usual_prefill_ms(self, position: int) -> float | None:
        """The usual one of the other prefill gaps, as for the number that waits here; None without others."""
        import numpy as np

        others = self.waiting > 0
        others[position] = False
        if self.usual_decode_ms is not None:
            # A token of another stream ends a gap long before the prefill does; such gaps are decode steps.
            others &= self.gap_ms > 2 * self.usual_decode_ms
        if not others.any():
            return None
        scale = np.maximum(1.0, self.waiting[position] / self.waiting[others])
        return _usual(self.gap_ms[others] * scale, self.gap_ms[others])


def _usual(gaps_ms: NDArray[np.float64], weights_ms: NDArray[np.float64]) -> float:
    """The gap that a moment picked at random falls into, at the median.

    The plain median would be the time between two streams of one step, of which there are as many as streams.
    """
    import numpy as np

    order = gaps_ms.argsort()
    passed_ms = np.cumsum(weights_ms[order])
    return float(gaps_ms[order][np.searchsorted(passed_ms, passed_ms[-1] / 2)])


def _silences(result: LoadResult) -> _Silences | None:
    import numpy as np

    answers = [(record, arrivals_of(record)) for record in result.records if record.event_ns]
    if not answers:
        return None
    sends = np.sort(np.array([record.send_ns for record, _ in answers], dtype=np.int64))
    firsts = np.sort(np.array([arrivals.ns[0] for _, arrivals in answers], dtype=np.int64))
    lasts = np.sort(np.array([arrivals.ns[-1] for _, arrivals in answers], dtype=np.int64))
    ends = np.concatenate([arrivals.ns for _, arrivals in answers])
    order = ends.argsort(kind="stable")
    ends = ends[order]
    tokens = np.concatenate([arrivals.tokens for _, arrivals in answers])[order]
    starts = np.concatenate([sends[:1], ends[:-1]])
    begun = np.searchsorted(sends, starts, side="right")
    in_flight = begun - np.searchsorted(lasts, starts, side="right")
    # With nothing in flight the silence is the client's, up to the next send.
    starts = np.where((in_flight == 0) & (begun < len(sends)), sends[np.minimum(begun, len(sends) - 1)], starts)
    gaps_ms = (ends - starts) / 1e6
    waiting = np.searchsorted(sends, ends, side="left") - np.searchsorted(firsts, ends, side="left")
    # Of each stream, not of all together: between two streams of one step there are only microseconds.
    per_token_ns = np.concatenate(
        [np.diff(arrivals.ns) / np.maximum(arrivals.tokens[1:], 1) for _, arrivals in answers]
    )
    return _Silences(
        gap_ms=gaps_ms,
        at_s=(starts - sends[0]) / 1e9,
        tokens=tokens,
        waiting=waiting,
        usual_decode_ms=float(np.median(per_token_ns)) / 1e6 if len(per_token_ns) else None,
        run_ms=float(ends[-1] - sends[0]) / 1e6,
    )

"""Continuous batching, step by step, in virtual time: no clock, no sockets, no asyncio.

The owner calls `Scheduler.begin_step` with the virtual time at which the step starts and gets the step's length; when
that time has come it calls `Scheduler.end_step` and gets the requests that moved. A request is admitted by the first
step that starts at or after its arrival, while there is room, and yields one token at the end of each step it is in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_moeperf.engines.simulated.noise import Noise
from pytest_moeperf.engines.simulated.profile import NoiseLevels, StepTimes, Warmup
from pytest_moeperf.engines.simulated.tokens import EOS_ID

STALL_AT_STEP = 30
"""The step of a run in which an ordered stall happens: late enough to lie inside a measuring window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish:
    """Why a request ends. ``kind`` is SGLang's type, or what a fault does instead: ``error`` (an error event), ``cut``
    (the body ends without its end mark), ``reset`` (the connection dies)."""

    kind: str
    reason: Mapping[str, Any] | None = None
    """SGLang's finish_reason object."""


def finish_length(tokens: int) -> Finish:
    """All tokens that were asked for."""
    return Finish(kind="length", reason={"type": "length", "length": tokens})


def finish_stop(matched: int | str = EOS_ID) -> Finish:
    """An end-of-sequence token, or whatever text matched."""
    return Finish(kind="stop", reason={"type": "stop", "matched": matched})


def finish_abort(message: str = "Aborted", *, status_code: int | None = None, err_type: str | None = None) -> Finish:
    """Ended from outside."""
    reason = {"type": "abort", "message": message, "status_code": status_code, "err_type": err_type}
    return Finish(kind="abort", reason=reason)


@dataclass(kw_only=True, slots=True, eq=False)
class Request:
    """One request on its way through the batch. The scheduler changes the fields of the last group."""

    rid: str
    prompt_tokens: int
    max_new_tokens: int
    arrival_s: float
    ring_start: int = 0
    """Where its answer starts in the token ring."""
    garbage_after: int | None = None
    """Tokens after which the answer is garbage (a fault)."""
    cached_tokens: int = 0
    """Prompt tokens that cost nothing."""
    end_after: int | None = None
    """Tokens after which it ends with ``end_as``, if before ``max_new_tokens``; 0 ends it at its first step, empty."""
    end_as: Finish | None = None
    stream_interval: int = 1
    retractions: int = 0

    completion_tokens: int = 0
    finish: Finish | None = None
    admitted_s: float | None = None
    first_token_s: float | None = None

    def advance(self, now_s: float) -> None:
        """One step has passed: one more token, or the end."""
        if self.end_after != 0:
            self.completion_tokens += 1
            if self.first_token_s is None:
                self.first_token_s = now_s
        if self.end_after is not None and self.completion_tokens >= self.end_after:
            self.finish = self.end_as
        elif self.completion_tokens >= self.max_new_tokens:
            self.finish = finish_length(self.max_new_tokens)


@dataclass(kw_only=True, slots=True)
class Disturbance:
    """What makes steps longer from outside: ``/slow_down`` and two faults. Changed while the server runs."""

    sleep_s: float = 0.0
    """Added to every step."""
    throttle: float = 1.0
    """Factor on every step."""
    stall_s: float = 0.0
    """Added once, to step ``STALL_AT_STEP`` of the next run; then zero again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step that has begun."""

    duration_s: float
    running: int
    admitted: tuple[Request, ...]


@dataclass(slots=True)
class _Familiarity:
    """How well the server knows one batch size."""

    runs: int = 0
    last_run: int = 0


@dataclass(kw_only=True)
class StepModel:
    """The length of a step: profile, noise, warm-up and disturbance together."""

    times: StepTimes
    levels: NoiseLevels
    warmup: Warmup
    noise: Noise
    disturbance: Disturbance = field(default_factory=Disturbance)
    time_scale: float = 1.0
    """Factor on everything but the disturbance's seconds."""
    _known: dict[int, _Familiarity] = field(default_factory=dict)
    _step_of_run: int = 0
    _stall_armed_s: float = 0.0

    def start_run(self) -> None:
        """A new run begins: its noise is drawn, and an ordered stall is armed for it."""
        self.noise.start_run()
        self._step_of_run = 0
        self._stall_armed_s, self.disturbance.stall_s = self.disturbance.stall_s, 0.0

    def duration_s(self, *, running: int, prefill_tokens: int) -> float:
        """Seconds that the next step lasts. Call it once a step: noise and warm-up move on."""
        self._step_of_run += 1
        steady_ms = self.times.decode_ms(running) + self.times.prefill_ms_per_token * prefill_tokens
        slow, compile_ms = self._warming(running)
        scaled_s = (steady_ms * slow * self.noise.next_factor() + compile_ms) * 1e-3 * self.time_scale
        stall_s = 0.0
        if self._stall_armed_s and self._step_of_run >= STALL_AT_STEP:
            stall_s, self._stall_armed_s = self._stall_armed_s, 0.0
        return scaled_s * self.disturbance.throttle + self.disturbance.sleep_s + stall_s

    def _warming(self, running: int) -> tuple[float, float]:
        """(factor, extra milliseconds) for a batch of this size in this run."""
        size = 1 << max(running - 1, 0).bit_length()
        known = self._known.setdefault(size, _Familiarity())
        first_step = known.runs == 0
        if known.last_run != self.noise.run_index or first_step:
            known.runs += 1
            known.last_run = self.noise.run_index
        slow = self.warmup.factor if known.runs <= self.warmup.runs else 1.0
        return slow, self.warmup.compile_stall_ms if first_step else 0.0


class Scheduler:
    """Who waits, who runs. First come, first served."""

    def __init__(self, model: StepModel, *, max_running_requests: int) -> None:
        self.model = model
        self.max_running_requests = max_running_requests
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._idle_since_s: float | None = None
        self._new_run_ordered = True

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def next_start_s(self, previous_end_s: float) -> float | None:
        """When the next step starts: at once while requests run, at the first arrival otherwise, None without work."""
        if self.running:
            return previous_end_s
        if self.waiting:
            return max(previous_end_s, self.waiting[0].arrival_s)
        return None

    def order_new_run(self) -> None:
        """The next busy period is a new run (the cache was flushed)."""
        self._new_run_ordered = True

    def begin_step(self, start_s: float) -> Step:
        """Admit who has arrived, and say how long the step lasts.

        :raises RuntimeError: no request has arrived by ``start_s`` (`next_start_s` says when one has).
        """
        if not self.running:
            gap_s = 0.0 if self._idle_since_s is None else start_s - self._idle_since_s
            if self._new_run_ordered or gap_s > self.model.levels.run_gap_s:
                self._new_run_ordered = False
                self.model.start_run()
        admitted = []
        while self.waiting and len(self.running) < self.max_running_requests:
            if self.waiting[0].arrival_s > start_s:
                break
            request = self.waiting.popleft()
            request.admitted_s = start_s
            admitted.append(request)
            self.running.append(request)
        if not self.running:
            raise RuntimeError("a step needs a request")
        prefill_tokens = sum(request.prompt_tokens - request.cached_tokens for request in admitted)
        duration_s = self.model.duration_s(running=len(self.running), prefill_tokens=prefill_tokens)
        return Step(duration_s=duration_s, running=len(self.running), admitted=tuple(admitted))

    def end_step(self, now_s: float) -> list[Request]:
        """Every request of the step moves on by a token; the finished leave. Returns all of them."""
        moved = self.running
        for request in moved:
            request.advance(now_s)
        self.running = [request for request in moved if request.finish is None]
        if not self.running:
            self._idle_since_s = now_s
        return moved

    def abort(self, request: Request, finish: Finish) -> bool:
        """Take a request out, wherever it is; its ``finish`` is set. False if it had already left."""
        if request.finish is not None:
            return False
        request.finish = finish
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        return True

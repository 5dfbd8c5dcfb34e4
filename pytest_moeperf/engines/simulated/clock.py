"""Plays the scheduler's steps against the real clock.

Each step is due at the end of the one before plus its own length, on an absolute time line: a late wake-up makes one
step late and does not move the next. How late each was is counted, so that a starved machine shows in the numbers of
the simulation itself, and not only in those of whoever measures it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
import time
from collections.abc import Callable

from pytest_moeperf.engines.simulated.counters import Counters
from pytest_moeperf.engines.simulated.engine import Finish, Request, Scheduler, Step

logger = logging.getLogger("simulated")

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class Alarm:
    """Wakes a coroutine at an absolute `time.monotonic` time.

    Event loops round their timers up to whole milliseconds, a fifth of a short step; Linux's timerfd does not.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC) if self._libc else -1
        if self._fd >= 0:
            loop.add_reader(self._fd, self._fired)

    async def until(self, when_s: float) -> None:
        """Return at ``when_s``, or after one turn of the event loop if that has passed."""
        if when_s <= time.monotonic():
            await asyncio.sleep(0)
            return
        self._waiter = self._loop.create_future()
        if self._fd < 0 or self._libc is None:
            self._loop.call_at(when_s, self._wake)
        else:
            whole = int(when_s)
            value = _TimeSpec(whole, int((when_s - whole) * 1e9))
            spec = _TimerSpec(_TimeSpec(0, 0), value)
            self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)
        await self._waiter

    def close(self) -> None:
        """Give the timer back."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _fired(self) -> None:
        os.read(self._fd, 8)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EngineLoop:
    """The scheduler, its clock and its counters. All calls from the event loop's thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        counters: Counters,
        *,
        after_step: Callable[[int], bool],
        log_interval: int,
    ) -> None:
        """``after_step(tokens)`` is called at the end of each step, before anything is delivered; True stops the engine
        for good (a simulated hang)."""
        self.scheduler = scheduler
        self.counters = counters
        self._after_step = after_step
        self._log_interval = log_interval
        self._new_work = asyncio.Event()
        self._pings: list[asyncio.Future[None]] = []
        self._deliver: dict[Request, Callable[[Request], None]] = {}
        self._step_listeners: list[Callable[[Step], None]] = []
        self._logged_at_s = time.monotonic()
        self._logged_tokens = 0

    @property
    def busy(self) -> bool:
        """Is any request running or waiting?"""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def submit(self, request: Request, deliver: Callable[[Request], None]) -> None:
        """Queue a request; ``deliver`` is called after each step that moved it, its end included."""
        self._deliver[request] = deliver
        self.scheduler.submit(request)
        self._new_work.set()

    def abort(self, request: Request, finish: Finish) -> None:
        """End a request from outside, now."""
        if self.scheduler.abort(request, finish):
            self._finished(request, time.monotonic())

    def abort_all(self, finish: Finish) -> None:
        """End every request from outside, now."""
        for request in (*self.scheduler.running, *self.scheduler.waiting):
            self.abort(request, finish)

    async def ping(self, timeout_s: float) -> bool:
        """Does the engine still turn? Answered between two steps."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pings.append(answer)
        self._new_work.set()
        try:
            await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            return False
        return True

    def listen_to_steps(self, listener: Callable[[Step], None]) -> Callable[[], None]:
        """Call ``listener`` for every step from now on; returns what ends that."""
        self._step_listeners.append(listener)
        return lambda: self._step_listeners.remove(listener)

    async def run(self) -> None:
        """Play steps until cancelled."""
        alarm = Alarm(asyncio.get_running_loop())
        try:
            await self._run(alarm)
        finally:
            alarm.close()

    async def _run(self, alarm: Alarm) -> None:
        end_s = time.monotonic()
        while True:
            start_s = self.scheduler.next_start_s(end_s)
            self._answer_pings()
            if start_s is None:
                self._new_work.clear()
                await self._new_work.wait()
                continue
            step = self.scheduler.begin_step(start_s)
            if step.admitted:
                self._log_prefill(step)
            end_s = start_s + step.duration_s
            await alarm.until(end_s)
            self.counters.add_step(lateness_s=time.monotonic() - end_s, duration_s=step.duration_s)
            if await self._end_step(step, end_s):
                return

    async def _end_step(self, step: Step, end_s: float) -> bool:
        handled_s = time.monotonic()
        moved = self.scheduler.end_step(end_s)
        if self._after_step(len(moved)):
            return True
        decoding = 0
        for request in moved:
            decoding += request.completion_tokens > 1
            if request.completion_tokens == 1:
                self.counters.ttft.observe(end_s - request.arrival_s)
            if request.finish is None:
                self._deliver[request](request)
            else:
                self._finished(request, end_s)
        if decoding:
            self.counters.itl.observe(step.duration_s, decoding)
        for listener in tuple(self._step_listeners):
            listener(step)
        self._log_decode(step, len(moved))
        # Runs after the writers that the deliveries woke: the event loop keeps their order.
        asyncio.get_running_loop().call_soon(self._written, handled_s)
        return False

    def _written(self, handled_s: float) -> None:
        asyncio.get_running_loop().call_soon(
            lambda: self.counters.punctuality.writing.add(time.monotonic() - handled_s)
        )

    def _finished(self, request: Request, now_s: float) -> None:
        counters, finish = self.counters, request.finish
        counters.requests += 1
        counters.prompt_tokens += request.prompt_tokens
        counters.generation_tokens += request.completion_tokens
        counters.cached_tokens += request.cached_tokens
        counters.retracted += request.retractions
        if finish is not None and finish.kind not in ("length", "stop"):
            counters.aborted += 1
        counters.e2e.observe(max(now_s - request.arrival_s, 0.0))
        if request.admitted_s is not None:
            counters.queue.observe(request.admitted_s - request.arrival_s)
        self._deliver.pop(request)(request)

    def _answer_pings(self) -> None:
        while self._pings:
            answer = self._pings.pop()
            if not answer.done():
                answer.set_result(None)

    def _log_prefill(self, step: Step) -> None:
        cached = sum(request.cached_tokens for request in step.admitted)
        new = sum(request.prompt_tokens for request in step.admitted) - cached
        logger.info(
            "Prefill batch, #new-seq: %d, #new-token: %d, #cached-token: %d, token usage: 0.00, #running-req: %d, "
            "#queue-req: %d, #pending-token: 0, cuda graph: False, input throughput (token/s): %.2f",
            *(len(step.admitted), new, cached, step.running - len(step.admitted), len(self.scheduler.waiting)),
            new / step.duration_s,
        )

    def _log_decode(self, step: Step, tokens: int) -> None:
        self._logged_tokens += tokens
        if self.counters.steps % self._log_interval:
            return
        now_s = time.monotonic()
        self.counters.last_gen_throughput = self._logged_tokens / max(now_s - self._logged_at_s, 1e-9)
        self._logged_at_s, self._logged_tokens = now_s, 0
        logger.info(
            "Decode batch, #running-req: %d, #token: %d, token usage: 0.00, cuda graph: True, "
            "gen throughput (token/s): %.2f, #queue-req: %d",
            *(step.running, sum(r.prompt_tokens + r.completion_tokens for r in self.scheduler.running)),
            *(self.counters.last_gen_throughput, len(self.scheduler.waiting)),
        )

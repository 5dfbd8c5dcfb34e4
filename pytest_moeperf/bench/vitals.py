"""Whether a launch still lives and answers. Its end is remembered: nothing more is tried on a dead server."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_moeperf.load.driver import LoadProgress
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.servers.handle import Server
from pytest_moeperf.servers.problems import ServerExited
from pytest_moeperf.units import format_duration


class ServerSilent(Exception):
    """No byte came from the server for too long; ends the run."""


class Vitals:
    """Of one launch; ``server`` is None for an attached one, whose process can't be seen."""

    def __init__(self, server: Server | None, *, name: str) -> None:
        self._server = server
        self._name = name
        self.trouble = ""
        """What ended it, in one line; empty while it lives and answers."""

    def look(self, *, doing: str) -> str:
        """Note its death, with the last line of its log. Returns ``trouble``."""
        if self._server is not None and not self.trouble:
            try:
                self._server.check(doing=doing)
            except ServerExited as error:
                self.trouble = error.what + self._evidence(error.hint)
        return self.trouble

    def note_silence(self, silence: ServerSilent, *, doing: str) -> None:
        self.trouble = f"{self._name} {silence} {doing}" + self._evidence("it hangs, or a kernel does")

    def _evidence(self, hint: str) -> str:
        parts = [f"; {hint}"] if hint else []
        if self._server is not None:
            last = self._server.log_tail(1)
            parts.append(
                f'; its log, {self._server.log_path}, ends with: "{last[0]}"' if last else "; its log is empty"
            )
        return "".join(parts)


class SilenceWatch:
    """Called with the progress of a run, several times a second."""

    def __init__(self, *, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._reads = -1
        self._heard_s = clock()

    def __call__(self, progress: LoadProgress) -> None:
        """:raises ServerSilent: requests are in flight, and nothing came for the whole limit."""
        idle = progress.sent == progress.finished
        if progress.reads != self._reads or idle:
            self._reads, self._heard_s = progress.reads, self._clock()
        elif self._clock() - self._heard_s >= self._limit_s:
            raise ServerSilent(
                f"sent nothing for {format_duration(self._limit_s)} (request_timeout), with {progress.finished} of "
                f"{progress.total} requests finished,"
            )


def run_timeout_s(workload: Workload, *, request_timeout_s: float) -> float:
    """A run whose requests all keep to their time-out ends before this: each slot sends one after the other."""
    rounds = -(-workload.num_prompts // workload.concurrency)
    sending_s = workload.num_prompts / workload.request_rate if workload.request_rate else 0.0
    return sending_s + rounds * request_timeout_s

"""The worker processes of one run: started together, released together, gone at the end whatever happens."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

import msgspec

import pytest_moeperf
from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.client import Progress
from pytest_moeperf.load.job import Beat, Failed, Finished, FromWorker, Job, Outcome, Ready, Start, write_frame

SILENCE_S = 60.0
"""Workers report about four times a second; one that is silent for this long is taken for dead."""
_END_S = 5.0


class WorkerPool:
    """Start one worker a job, wait until all are connected, run them."""

    def __init__(self, jobs: Sequence[Job], *, on_progress: Callable[[int, Progress], None]) -> None:
        self._on_progress = on_progress
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._jobs = jobs

    def __enter__(self) -> Self:
        """
        :raises LoadError: if a worker can't connect or dies.
        """
        try:
            for number, job in enumerate(self._jobs):
                worker = _Worker(number)
                self._workers.append(worker)
                self._selector.register(worker.stdout, selectors.EVENT_READ, worker)
                worker.send(job)
            self._until(lambda worker: worker.ready)
        except BaseException:
            self._end()
            raise
        return self

    def run(self, start_ns: int) -> list[Outcome]:
        """
        :raises LoadError: if a worker dies.
        """
        for worker in self._workers:
            worker.send(Start(at_ns=start_ns))
        self._until(lambda worker: worker.outcome is not None)
        return [cast(Outcome, worker.outcome) for worker in self._workers]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _until(self, condition: Callable[[_Worker], bool]) -> None:
        while not all(condition(worker) for worker in self._workers):
            for key, _ in self._selector.select(timeout=1.0):
                worker = key.data
                if not worker.receive(self._on_progress):
                    self._selector.unregister(worker.stdout)
                    if not condition(worker):
                        raise worker.death(f"ended with code {worker.process.wait(_END_S)}")
            for worker in self._workers:
                if not condition(worker) and time.monotonic() - worker.heard_at > SILENCE_S:
                    raise worker.death(f"gave no sign of life for {SILENCE_S:g} s")

    def _end(self) -> None:
        for worker in self._workers:
            worker.end()
        self._selector.close()


class _Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.ready = False
        self.outcome: Outcome | None = None
        self.heard_at = time.monotonic()
        self._buffer = bytearray()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        root = str(Path(pytest_moeperf.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest_moeperf.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": path},
            # Ctrl-C goes to the owner alone, which then ends the workers.
            start_new_session=True,
        )
        self.stdout = cast(IO[bytes], self.process.stdout)

    def send(self, message: msgspec.Struct) -> None:
        # A worker that has died is noticed, with its reason, when its output ends.
        with contextlib.suppress(BrokenPipeError):
            write_frame(cast("IO[bytes]", self.process.stdin), message)

    def receive(self, on_progress: Callable[[int, Progress], None]) -> bool:
        """Take in what has come, after the selector said so. False: that was all, for ever."""
        data = os.read(self.stdout.fileno(), 1 << 20)
        self.heard_at = time.monotonic()
        self._buffer += data
        while len(self._buffer) >= 8:
            end = 8 + int.from_bytes(self._buffer[:8], "big")
            if len(self._buffer) < end:
                break
            self._handle(msgspec.msgpack.decode(self._buffer[8:end], type=FromWorker), on_progress)
            del self._buffer[:end]
        return bool(data)

    def death(self, how: str) -> LoadError:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        tail = f": {lines[-1]}" if lines else ""
        return LoadError(what=f"load worker {self.number} {how}{tail}")

    def end(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self.process.wait(0.5 if self.outcome is None else _END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()

    def _handle(self, message: FromWorker, on_progress: Callable[[int, Progress], None]) -> None:
        if isinstance(message, Ready):
            self.ready = True
        elif isinstance(message, Beat):
            on_progress(
                self.number,
                Progress(sent=message.sent, finished=message.finished, failed=message.failed, reads=message.reads),
            )
        elif isinstance(message, Finished):
            self.outcome = message.outcome
        elif isinstance(message, Failed):
            raise LoadError(what=message.what, next_step=message.next_step)

"""Starts a simulated server in a process of its own and talks to it over plain sockets, for the tests of this folder."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0
"""How long anything is waited for; far beyond what it takes on a starved machine."""
READY = "The server is fired up and ready to roll!"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An HTTP answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of each server-sent event, parsed; ``[DONE]`` stays a text."""
        data = [part.removeprefix("data: ") for part in self.body.decode().split("\n\n") if part]
        return [entry if entry == "[DONE]" else json.loads(entry) for entry in data]


@dataclass(frozen=True, kw_only=True)
class Process:
    """A started server."""

    child: subprocess.Popen[bytes]
    log_path: Path
    port: int = 0

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def wait_for_log(self, text: str) -> str:
        """The log, once it holds ``text`` or the process has ended."""
        end_s = time.monotonic() + DEADLINE_S
        while text not in self.log() and self.child.poll() is None:
            assert time.monotonic() < end_s, self.log()
            time.sleep(0.02)
        return self.log()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = DEADLINE_S,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
            connection.request(method, path, body=data, headers=headers or {})
            answer = connection.getresponse()
            return Answer(
                status=answer.status,
                headers={name.lower(): value for name, value in answer.getheaders()},
                body=answer.read(),
            )
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def post(self, path: str, body: object = None, **more: Any) -> Answer:
        return self.call("POST", path, body, **more)

    def generate(self, *, tokens: int = 6, prompt: int = 8, stream: bool = True, **more: Any) -> Answer:
        """POST /generate with a prompt that no other call uses, as far as its length allows."""
        ids = [time.monotonic_ns() % 10**9 + i for i in range(prompt)]
        sampling = {"max_new_tokens": tokens, "ignore_eos": True}
        return self.post("/generate", {"input_ids": ids, "sampling_params": sampling, "stream": stream}, **more)

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{re.escape(name)}\{{", line))

    def wait_for_metric(self, name: str, value: float) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while self.metric(name) != value:
            assert time.monotonic() < end_s, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.02)

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(DEADLINE_S)


@contextmanager
def started(folder: Path, *args: str) -> Iterator[Process]:
    """A process that has just been started; killed at the end if it still runs."""
    log_path = folder / f"server-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "pytest_moeperf.engines.simulated", *args]
    with log_path.open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield Process(child=child, log_path=log_path)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(DEADLINE_S)


@contextmanager
def serving(folder: Path, *args: str) -> Iterator[Process]:
    """A server that is ready, on a free port, with steps of about 1 ms unless ``args`` say otherwise."""
    with started(folder, "--port", "0", "--time-scale", "0.2", *args) as process:
        log = process.wait_for_log(READY)
        match = re.search(r"running on http://[^:]+:(\d+)", log)
        assert match is not None, log
        assert READY in log, log
        yield Process(child=process.child, log_path=process.log_path, port=int(match[1]))

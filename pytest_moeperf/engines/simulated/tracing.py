"""``/start_profile`` and ``/stop_profile``: a trace in Chrome's format that holds the executed runner's kernel names.

The file's name starts with ``simulated-`` and the trace says ``"simulated": true``: its times are not real.
"""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_moeperf.engines.simulated.clock import EngineLoop
from pytest_moeperf.engines.simulated.engine import Step

logger = logging.getLogger("simulated")


class Tracer:
    """Records one trace at a time."""

    def __init__(self, engine: EngineLoop, kernels: tuple[str, ...]) -> None:
        self._engine = engine
        self._kernels = kernels
        self._path: Path | None = None
        self._steps_left: int | None = None
        self._events: list[dict[str, Any]] = []
        self._stop_listening: Callable[[], None] = lambda: None

    def start(self, *, output_dir: str, prefix: str, steps: int | None) -> str | None:
        """Begin; ``steps`` None records until `stop`. Returns what is wrong, if anything."""
        if self._path is not None:
            return "Profiling is already in progress. Call /stop_profile first."
        folder = Path(output_dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"output_dir {output_dir} can't be made: {error.strerror}"
        safe_prefix = "".join(c for c in prefix if c.isalnum() or c in "-_.")
        name = f"simulated-{safe_prefix + '-' if safe_prefix else ''}{time.time_ns()}-TP-0.trace.json.gz"
        self._path, self._steps_left, self._events = folder / name, steps, []
        self._stop_listening = self._engine.listen_to_steps(self._record)
        logger.info("Profiling starts. Traces will be saved to: %s (simulated)", output_dir)
        return None

    def stop(self) -> None:
        """Write the file; nothing if none is being recorded."""
        if self._path is None:
            return
        self._stop_listening()
        trace = {"simulated": True, "displayTimeUnit": "ms", "traceEvents": self._events}
        with gzip.open(self._path, "wt", encoding="utf-8") as file:
            json.dump(trace, file)
        logger.info("Profiling done. Traces are saved to: %s", self._path)
        self._path = None

    def _record(self, step: Step) -> None:
        start_us = time.monotonic() * 1e6
        each_us = step.duration_s * 1e6 / max(len(self._kernels), 1)
        for index, kernel in enumerate(self._kernels):
            at_us = start_us + index * each_us
            self._events.append(
                {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": at_us, "dur": each_us}
            )
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left <= 0:
                self.stop()

"""The kernels that a server really executes: a profile of a few steps, on demand (``--perf-profile``)."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from pytest_moeperf.engines.control import Control
from pytest_moeperf.evidence import kernel_names, trace_files
from pytest_moeperf.load.driver import drive
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.model.workload import Workload

STEPS = 5
WORKLOAD = Workload(concurrency=2, input_len=48, output_len=16, num_prompts=4, seed=1)
WRITE_TIMEOUT_S = 120.0
"""For the server to write its traces: a real one holds every operator of every layer."""
_POLL_S = 0.2


def executed_kernels(
    control: Control, *, protocol: str, model: str, timeout_s: float, write_timeout_s: float = WRITE_TIMEOUT_S
) -> tuple[str, ...]:
    """Names of the GPU kernels of a few decode steps; empty where the server can't be profiled or wrote nothing.

    Runs before the measurement, once a launch: profiling slows a server down.
    """
    with tempfile.TemporaryDirectory(prefix="moeperf-profile-") as name:
        folder = Path(name)
        order = {"output_dir": name, "num_steps": STEPS, "activities": ["CPU", "GPU"]}
        if not control.post("/start_profile", order).good:
            return ()
        drive(
            url=control.url,
            workload=WORKLOAD,
            prompts=make_prompts(WORKLOAD, run_key="profile"),
            protocol=protocol,
            api_key=control.api_key,
            model=model,
            timeout_s=timeout_s,
            workers=0,
        )
        return _read(folder, deadline_s=time.monotonic() + write_timeout_s)


def _read(folder: Path, *, deadline_s: float) -> tuple[str, ...]:
    """Waits for a trace that is whole: its size has stopped growing."""
    sizes: dict[Path, int] = {}
    while time.monotonic() < deadline_s:
        found = {path: path.stat().st_size for path in trace_files(folder)}
        if found and found == sizes:
            return tuple(sorted({kernel for path in found for kernel in _names(path)}))
        sizes = found
        time.sleep(_POLL_S)
    return ()


def _names(path: Path) -> tuple[str, ...]:
    try:
        return tuple(kernel_names(path))
    except (OSError, ValueError):
        return ()

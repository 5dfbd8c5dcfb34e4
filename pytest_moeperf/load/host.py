"""What the client side of a run costs this host, and what there is of it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pytest_moeperf.load.driver import workers_for
from pytest_moeperf.model.workload import Workload

BYTES_A_PROMPT_TOKEN = 32
"""As an id, several times over, and as text in a request that is ready to be sent."""
BYTES_AN_OUTPUT_TOKEN = 16
SHARE_OF_MEMORY = 0.5
"""Of what is free. The rest is the server's, and pytest's."""
SPARE_FILES = 64
"""That a worker has open besides its connections."""


def client_bytes(workload: Workload) -> int:
    """About what the client holds in memory during a run."""
    each = workload.input_len * BYTES_A_PROMPT_TOKEN + workload.output_len * BYTES_AN_OUTPUT_TOKEN
    return workload.num_prompts * each


def free_bytes() -> int:
    """Memory that this process can still get: of the machine, or of its container if that has less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):  # no control group, or one without a limit ("max")
        group = Path("/sys/fs/cgroup")
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(0, free)


def most_connections() -> int | None:
    """Requests that can be in flight at once; None: no limit is known.

    Each takes a connection: an open file of its worker, and a local port.
    """
    limits: list[int] = []
    with contextlib.suppress(ImportError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY:
            workers = workers_for(1 << 20, tls=False)
            limits.append(max(1, hard - SPARE_FILES) * workers)
    with contextlib.suppress(OSError, ValueError):
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        limits.append(int(high) - int(low) + 1)
    return min(limits, default=None)


def memory_text(size: float) -> str:
    """``22 GB``."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size / 1e3:.3g} kB"

"""Arrival stamps: the kernel's receive time of a packet, on the monotonic clock of the machine."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from collections.abc import Mapping

KERNEL = "kernel"
USER = "user"

SO_TIMESTAMPNS = 35
"""From asm-generic/socket.h (x86-64, arm64, riscv); Python has no name for it."""
_TIMESPEC = struct.Struct("@qq")
ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0

Ancillary = list[tuple[int, int, bytes]]


def enable_kernel_stamps(sock: socket.socket) -> bool:
    """Ask for a receive stamp with every read. False where the platform has none."""
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return True
    return False


def kernel_stamp_ns(ancillary: Ancillary) -> int | None:
    """CLOCK_REALTIME, ns, at which the kernel got the last byte of the read (Linux >= 4.14); None: not stamped."""
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPNS and level == socket.SOL_SOCKET and len(data) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(data)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return None


def realtime_offset_ns(*, tries: int = 9) -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC, from the tightest of a few bracketed readings (good to about 0.1 us).

    Both clocks are slewed alike, so the offset only changes when the wall clock is stepped.
    """
    best_width, best = sys.maxsize, 0
    for _ in range(tries):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_width:
            best_width, best = after - before, wall - (before + after) // 2
    return best


class DelayHistogram:
    """Delays in ns, counted in buckets of 1 us below 16 ms and of 1 ms above: fixed size for any number of delays."""

    _FINE_NS = 1 << 10
    _COARSE_NS = 1 << 20
    _FINE_BELOW_NS = 1 << 24

    def __init__(self, counts: Mapping[int, int] | None = None, maximum_ns: int = 0) -> None:
        self.counts: dict[int, int] = dict(counts or {})
        self.maximum_ns = maximum_ns

    def add(self, delay_ns: int) -> None:
        width = self._FINE_NS if delay_ns < self._FINE_BELOW_NS else self._COARSE_NS
        middle = delay_ns // width * width + width // 2
        self.counts[middle] = self.counts.get(middle, 0) + 1
        self.maximum_ns = max(self.maximum_ns, delay_ns)

    def merge(self, other: DelayHistogram) -> None:
        for middle, count in other.counts.items():
            self.counts[middle] = self.counts.get(middle, 0) + count
        self.maximum_ns = max(self.maximum_ns, other.maximum_ns)

    def percentile_ms(self, fraction: float) -> float | None:
        """Nearest rank, good to half a bucket; None without delays."""
        total = sum(self.counts.values())
        if not total:
            return None
        rank = max(1, round(fraction * total))
        seen = 0
        for middle in sorted(self.counts):
            seen += self.counts[middle]
            if seen >= rank:
                break
        return min(middle, self.maximum_ns) / 1e6

    @property
    def maximum_ms(self) -> float | None:
        return self.maximum_ns / 1e6 if self.counts else None

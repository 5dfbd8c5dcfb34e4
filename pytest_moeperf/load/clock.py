"""Arrival stamps: the kernel's receive time of a packet, on the monotonic clock of the machine."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence

KERNEL = "kernel"
USER = "user"

SO_TIMESTAMPNS = 35
"""From asm-generic/socket.h (x86-64, arm64, riscv); Python has no name for it."""
_TIMESPEC = struct.Struct("@qq")
_TIMESPEC_BYTES = _TIMESPEC.size
_unpack_timespec = _TIMESPEC.unpack
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


class StampKeeper:
    """Keeps the kernel's stamping on, and knows whether it works.

    The kernel switches stamping on some time after the first socket has asked, and off again with the last one; packets
    in between come unstamped. One connection of our own, to ourselves, waits for the first and prevents the second.
    """

    def __init__(self, *, patience_s: float = 1.0) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1)
        self._reader = socket.create_connection(self._listener.getsockname(), timeout=patience_s)
        self._writer, _ = self._listener.accept()
        self.works = enable_kernel_stamps(self._reader) and self._see_a_stamp(patience_s)

    def close(self) -> None:
        for sock in (self._writer, self._reader, self._listener):
            sock.close()

    def _see_a_stamp(self, patience_s: float) -> bool:
        give_up_at = time.monotonic() + patience_s
        while time.monotonic() < give_up_at:
            self._writer.sendall(b"?")
            _, ancillary, _, _ = self._reader.recvmsg(1, ANCILLARY_BYTES)
            if kernel_stamp_ns(raw_stamp(ancillary)) is not None:
                return True
            time.sleep(1e-3)
        return False


def raw_stamp(ancillary: Ancillary) -> bytes:
    """The kernel's stamp as it came; empty: not stamped. Nothing else is asked for, so nothing else comes."""
    return ancillary[0][2] if ancillary else b""


def kernel_stamp_ns(raw: bytes) -> int | None:
    """CLOCK_REALTIME, ns, at which the kernel got the last byte of the read (Linux >= 4.14); None: not stamped."""
    if len(raw) != _TIMESPEC_BYTES:
        return None
    seconds, nanoseconds = _unpack_timespec(raw)
    return seconds * 1_000_000_000 + nanoseconds  # type: ignore[no-any-return]


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


_FINE_NS = (1 << 10) - 1
_COARSE_NS = (1 << 20) - 1
_FINE_BELOW_NS = 1 << 24


class DelayHistogram:
    """Delays in ns, counted in buckets of 1 us below 16 ms and of 1 ms above: fixed size for any number of delays."""

    def __init__(self, counts: Mapping[int, int] | None = None, maximum_ns: int = 0) -> None:
        self.counts: dict[int, int] = dict(counts or {})
        """By the last ns of the bucket."""
        self.maximum_ns = maximum_ns

    def add(self, delays_ns: Sequence[int]) -> None:
        counts = self.counts
        for delay_ns in delays_ns:
            top_ns = delay_ns | (_FINE_NS if delay_ns < _FINE_BELOW_NS else _COARSE_NS)
            counts[top_ns] = counts.get(top_ns, 0) + 1
        self.maximum_ns = max([self.maximum_ns, *delays_ns])

    def merge(self, other: DelayHistogram) -> None:
        for top_ns, count in other.counts.items():
            self.counts[top_ns] = self.counts.get(top_ns, 0) + count
        self.maximum_ns = max(self.maximum_ns, other.maximum_ns)

    def percentile_ms(self, fraction: float) -> float | None:
        """Nearest rank, the upper end of its bucket; None without delays."""
        total = sum(self.counts.values())
        if not total:
            return None
        rank = max(1, round(fraction * total))
        seen = 0
        for top_ns in sorted(self.counts):
            seen += self.counts[top_ns]
            if seen >= rank:
                break
        return min(top_ns, self.maximum_ns) / 1e6

    @property
    def maximum_ms(self) -> float | None:
        return self.maximum_ns / 1e6 if self.counts else None

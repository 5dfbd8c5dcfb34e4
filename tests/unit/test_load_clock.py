"""Kernel stamps and the histogram of their delays."""

from __future__ import annotations

import random
import socket
import sys
import time

import pytest

from pytest_moeperf.load.clock import (
    ANCILLARY_BYTES,
    DelayHistogram,
    StampKeeper,
    enable_kernel_stamps,
    kernel_stamp_ns,
    raw_stamp,
    realtime_offset_ns,
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kernel stamps are Linux's")
def test_a_read_carries_the_time_at_which_its_bytes_arrived_not_at_which_they_were_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert enable_kernel_stamps(client)
        peer, _ = server.accept()
        with peer:
            offset = realtime_offset_ns()
            keeper = StampKeeper()
            before = time.monotonic_ns()
            peer.sendall(b"x")
            after = time.monotonic_ns()
            time.sleep(0.02)
            data, ancillary, _, _ = client.recvmsg(10, ANCILLARY_BYTES)
            stamp = kernel_stamp_ns(raw_stamp(ancillary))
            keeper.close()
    assert keeper.works
    assert data == b"x"
    assert stamp is not None
    assert before - 1_000_000 <= stamp - offset <= after + 1_000_000


def test_without_ancillary_data_there_is_no_stamp() -> None:
    assert kernel_stamp_ns(raw_stamp([])) is None
    assert kernel_stamp_ns(b"short") is None


def test_the_offset_is_that_of_the_clocks() -> None:
    assert abs(realtime_offset_ns() - (time.time_ns() - time.monotonic_ns())) < 50_000_000


def test_percentiles_of_the_histogram() -> None:
    draw = random.Random(1)
    delays = [int(draw.lognormvariate(10, 2)) for _ in range(20_000)]
    histogram = DelayHistogram()
    histogram.add(delays)
    delays.sort()
    for fraction in (0.5, 0.99):
        exact = delays[round(fraction * len(delays)) - 1] / 1e6
        assert histogram.percentile_ms(fraction) == pytest.approx(exact, abs=0.0011, rel=0.04)
    assert histogram.maximum_ms == delays[-1] / 1e6


def test_a_small_delay_is_never_reported_above_the_largest() -> None:
    histogram = DelayHistogram()
    histogram.add([3])
    assert histogram.percentile_ms(0.99) == histogram.maximum_ms == 3e-6


def test_merging_is_counting_together() -> None:
    first, second = DelayHistogram(), DelayHistogram()
    first.add([1_000])
    second.add([1_000, 40_000_000])
    first.merge(DelayHistogram(second.counts, second.maximum_ns))
    assert sum(first.counts.values()) == 3
    assert first.maximum_ms == 40.0


def test_its_size_does_not_grow_with_the_number_of_delays() -> None:
    histogram = DelayHistogram()
    histogram.add(range(0, 2_000_000_000, 9_973))
    assert len(histogram.counts) < 16_384 + 2_000


def test_no_delays_no_percentile() -> None:
    assert DelayHistogram().percentile_ms(0.5) is None
    assert DelayHistogram().maximum_ms is None

"""One measurement at a time on a device, across all processes and users of the host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pytest_moeperf.model.server import WaitNotice
from pytest_moeperf.servers import host_locks
from pytest_moeperf.servers.problems import DevicesBusy
from pytest_moeperf.units import format_duration


@contextlib.contextmanager
def measuring_lock(
    devices: Sequence[str],
    *,
    label: str,
    on_wait: Callable[[WaitNotice], None] = lambda _notice: None,
    wait_timeout_s: float = host_locks.WITHOUT_BUDGET_S,
) -> Iterator[None]:
    """Nobody else who asks here loads one of these devices at the same time.

    The lock is the kernel's: it goes with its process, however that ends. Devices are taken in sorted order, so that
    two who want overlapping sets never wait for each other.

    :param devices: GPU UUIDs, or keys such as ``cpu:0-7``.
    :param label: who this is, for those who wait.
    :param on_wait: told once a second for whom it waits, and how long.
    :raises DevicesBusy: waited longer than ``wait_timeout_s``.
    :raises RuntimeFolderError: the lock's files can't be used, or somebody removed one while it was held.
    """
    began = time.monotonic()

    def tell_or_give_up(device: str, holder: str) -> None:
        waited_s = time.monotonic() - began
        holder = f"{holder} measures there"
        if waited_s >= wait_timeout_s:
            raise DevicesBusy(
                what=f"gave up waiting for {device} to measure on after {format_duration(waited_s)}: {holder}",
                hint="one measurement at a time on a device; end the other one, or wait longer: --perf-budget=8h",
            )
        on_wait(WaitNotice(what=f"{device} to measure on", holder=holder, waited_s=waited_s))

    with contextlib.ExitStack() as held:
        for device in sorted(set(devices)):
            held.enter_context(
                host_locks.held(
                    device,
                    "measuring",
                    label=label,
                    while_waiting=partial(tell_or_give_up, device),
                )
            )
        yield

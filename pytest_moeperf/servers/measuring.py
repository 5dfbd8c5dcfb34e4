"""One measurement at a time on a device, across all processes and users of the host."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import filelock

from pytest_moeperf.model.server import WaitNotice
from pytest_moeperf.servers.problems import DevicesBusy, RuntimeFolderError
from pytest_moeperf.servers.runtime import LOCKS_VARIABLE, file_name_of, host_locks_folder
from pytest_moeperf.units import format_duration

_NOTICE_S = 1.0
_POLL_S = 0.05
_HOLDER_BYTES = 4096


@contextlib.contextmanager
def measuring_lock(
    devices: Sequence[str],
    *,
    label: str,
    on_wait: Callable[[WaitNotice], None] = lambda _notice: None,
    wait_timeout_s: float | None = None,
) -> Iterator[None]:
    """Nobody else who asks here loads one of these devices at the same time.

    The lock is the kernel's: it goes with its process, however that ends. Devices are taken in sorted order, so that
    two who want overlapping sets never wait for each other.

    :param devices: GPU UUIDs, or keys such as ``cpu:0-7``.
    :param label: who this is, for those who wait.
    :param on_wait: told once a second for whom it waits, and how long.
    :param wait_timeout_s: None waits as long as the others live.
    :raises DevicesBusy: waited longer than ``wait_timeout_s``.
    :raises RuntimeFolderError: the lock's files can't be used.
    """
    folder = host_locks_folder()
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        for device in sorted(set(devices)):
            path = folder / f"{file_name_of(device)}.lock"
            try:
                held.callback(_acquired(path, partial(_tell_or_give_up, device, path, began, on_wait, wait_timeout_s)))
                _write_holder(path, label)
            except OSError as error:
                raise RuntimeFolderError(
                    what=f"the lock of {device} cannot be used: {error.filename or path}: {error.strerror}",
                    hint=f"remove it if nobody measures, or name another folder with {LOCKS_VARIABLE}",
                ) from error
        yield


def _acquired(path: Path, while_waiting: Callable[[], None]) -> Callable[[], None]:
    lock = filelock.FileLock(path, mode=0o666, thread_local=False)
    while True:
        try:
            lock.acquire(timeout=_NOTICE_S, poll_interval=_POLL_S)
        except filelock.Timeout:
            while_waiting()
        else:
            return lock.release


def _tell_or_give_up(
    device: str,
    path: Path,
    began: float,
    on_wait: Callable[[WaitNotice], None],
    wait_timeout_s: float | None,
) -> None:
    waited_s = time.monotonic() - began
    holder = _holder_text(path)
    if wait_timeout_s is not None and waited_s >= wait_timeout_s:
        raise DevicesBusy(
            what=f"gave up waiting for {device} to measure on after {format_duration(waited_s)}: {holder}",
            hint="one measurement at a time on a device; end the other one, or wait longer",
        )
    on_wait(WaitNotice(what=f"{device} to measure on", holder=holder, waited_s=waited_s))


def _holder_path(lock_path: Path) -> Path:
    return lock_path.with_suffix(".holder")


def _write_holder(lock_path: Path, label: str) -> None:
    # Written in place, since in a sticky folder nobody may replace a file of somebody else's. No O_CREAT for one that
    # is there: the kernel refuses that in sticky folders (fs.protected_regular).
    path = _holder_path(lock_path)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    content = json.dumps({"pid": os.getpid(), "label": label, "since": now}).encode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        os.fchmod(descriptor, 0o666)
    except FileExistsError:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "wb") as file:
        file.truncate()
        file.write(content)


def _holder_text(lock_path: Path) -> str:
    try:
        descriptor = os.open(_holder_path(lock_path), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            known = json.loads(file.read(_HOLDER_BYTES))
        return f"pid {int(known['pid'])} ({str(known['label'])[:80]}) measures there since {str(known['since'])[:40]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "somebody measures there"

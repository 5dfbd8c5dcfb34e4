"""Leasing a server: sharing the one that runs, or launching one, and giving it back."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import filelock

from pytest_moeperf.model.server import LaunchPlan, ServerProgress, ServerRecord, WaitNotice
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers import host_locks, launch_folder
from pytest_moeperf.servers.handle import Server
from pytest_moeperf.servers.host_locks import WITHOUT_BUDGET_S
from pytest_moeperf.servers.launch import launch
from pytest_moeperf.servers.link import GuardianLink, HolderIdentity, ask_to_stop, join
from pytest_moeperf.servers.lock_files import LockFile
from pytest_moeperf.servers.logfile import ServerLog
from pytest_moeperf.servers.ports import free_port
from pytest_moeperf.servers.private_files import read_private
from pytest_moeperf.servers.problems import DevicesBusy, ServerExited, ServerNotReady
from pytest_moeperf.servers.proof import guardian_is_dead
from pytest_moeperf.servers.readiness import ask_health, exited_error, wait_ready
from pytest_moeperf.servers.registry import holders_text, prune, read_records, reclaim
from pytest_moeperf.servers.runtime import file_name_of, runtime_folder
from pytest_moeperf.servers.wire import LineClosedError
from pytest_moeperf.units import format_duration

_PORT_TRIES = 4
_HEALTH_TRIES = 5
_HEALTH_PAUSE_S = 0.5
_POLL_S = 0.1

OnProgress = Callable[[ServerProgress], None]
OnWait = Callable[[WaitNotice], None]


def _say_nothing(_news: ServerProgress | WaitNotice) -> None:
    return


@contextlib.contextmanager
def lease(
    plan: LaunchPlan,
    *,
    label: str,
    session: str = "",
    keep_s: float = 0.0,
    fresh: bool = False,
    on_progress: OnProgress = _say_nothing,
    on_wait: OnWait = _say_nothing,
    wait_timeout_s: float = WITHOUT_BUDGET_S,
) -> Iterator[Server]:
    """A ready server of this plan, for the time of the ``with`` block.

    Shares a live and healthy one of the same ``spec_digest`` (of this user, on this machine), else launches one. The
    last lease out stops it. However this process ends, its lease ends with it.

    :param label: who this is, for others who wait: ``pytest gw1``.
    :param session: the invocation. A server that it keeps warm is ended where it is in the way of its own next one.
    :param keep_s: keep the server warm that long after the last lease, for a next one of the same digest.
    :param fresh: launch a new one that is never shared, for paired comparisons.
    :param on_progress: told while it starts, once a second or so.
    :param on_wait: told once a second while somebody else starts this server or has its devices.
    :param wait_timeout_s: longest wait for others.
    :raises ServerExited: it ended before it was ready.
    :raises ServerNotReady: it did not get ready, or the shared one does not answer.
    :raises DevicesBusy: a server of another spec has the devices, and waiting will not help or took too long.
    :raises ServerError: it could not be started at all.
    """
    if fresh and keep_s:
        raise ValueError("a fresh server is never shared, so there is nobody to keep it warm for")
    _Waiter.check(wait_timeout_s)
    root = runtime_folder()
    holder = HolderIdentity(label=label, keep_s=keep_s, session=session)
    waiter = _Waiter(on_wait=on_wait, timeout_s=wait_timeout_s)
    if fresh:
        server_link, started_here = _launched(plan, root, holder, waiter, on_progress, exclusive=True), True
    else:
        server_link, started_here = _shared_or_launched(plan, root, holder, waiter, on_progress)
    try:
        yield Server(server_link, api_key=_key_of(server_link.record), started_here=started_here)
    finally:
        server_link.release()


def _shared_or_launched(
    plan: LaunchPlan, root: Path, holder: HolderIdentity, waiter: _Waiter, on_progress: OnProgress
) -> tuple[GuardianLink, bool]:
    # Held while starting: whoever wants the same server meanwhile waits for this one to be ready. The kernel gives the
    # lock back if this process dies.
    lock = filelock.FileLock(root / "locks" / f"spec-{file_name_of(plan.spec_digest)}.lock", mode=0o600)
    _acquire(lock, waiter, lambda: (f"{plan.name} to start", _starter_text(plan, root)))
    try:
        for record in _live_records(root):
            if record.spec_digest != plan.spec_digest or record.exclusive or record.state not in ("ready", "warm"):
                continue
            if (server_link := _joined(record, holder, plan)) is None:
                continue
            try:
                healthy = _answers(server_link.record)
            except BaseException:
                server_link.release()
                raise
            if healthy:
                return server_link, False
            _end_unhealthy(server_link)
        return _launched(plan, root, holder, waiter, on_progress, exclusive=False), True
    finally:
        lock.release()


def _launched(
    plan: LaunchPlan, root: Path, holder: HolderIdentity, waiter: _Waiter, on_progress: OnProgress, *, exclusive: bool
) -> GuardianLink:
    prune(root)
    for tries_left in reversed(range(_PORT_TRIES)):
        with _devices_to_launch_on(plan, root, holder, waiter) as leases:
            server_link = launch(
                plan, root=root, port=free_port(plan.host), holder=holder, exclusive=exclusive, leases=leases
            )
        try:
            start_s = wait_ready(plan, server_link, on_progress=on_progress)
            server_link.announce_ready(start_s)
        except LineClosedError as error:
            server_link.stop(f"{holder.label}: its guardian is gone")
            log = ServerLog(server_link.record.log_path)
            raise exited_error(plan.name, None, log, when="with its guardian, as it got ready") from error
        except BaseException as error:
            server_link.stop(f"{holder.label}: it did not get ready")
            if isinstance(error, ServerExited) and error.port_taken and tries_left:
                continue
            raise
        return server_link
    raise AssertionError("unreachable: the last try returns or raises")


@contextlib.contextmanager
def _devices_to_launch_on(
    plan: LaunchPlan, root: Path, holder: HolderIdentity, waiter: _Waiter
) -> Iterator[list[LockFile]]:
    """The host's leases of its devices, for the guardian: nobody else launches there while the server lives."""
    leases: list[LockFile] = []

    def make_room(device: str, lessee: str) -> None:
        if not _make_room(plan, root, holder, waiter):
            waiter.tell(f"{device} to launch {plan.name} on", f"{lessee} has it")

    try:
        for device in sorted(plan.exclusive_devices):
            leases.append(host_locks.acquire(device, "server", while_waiting=partial(make_room, device)))
            host_locks.note(leases[-1], f"{holder.label}, launching {plan.name}")
        # Where the lease is free and a server is there: its guardian was killed, or looks into another locks folder.
        reclaim(root, plan.devices, tell=waiter.tell_once)
        while _make_room(plan, root, holder, waiter):
            time.sleep(host_locks.NOTICE_S)
        for device, lease_of_it in zip(sorted(plan.exclusive_devices), leases, strict=True):
            host_locks.check_still_held(lease_of_it, device)
        yield leases
    finally:
        for each in leases:
            each.close()  # the guardian has them open too


def _acquire(lock: filelock.BaseFileLock, waiter: _Waiter, describe: Callable[[], tuple[str, str]]) -> None:
    while True:
        try:
            lock.acquire(timeout=host_locks.NOTICE_S, poll_interval=_POLL_S)
        except filelock.Timeout:
            waiter.tell(*describe())
        else:
            return


def _make_room(plan: LaunchPlan, root: Path, holder: HolderIdentity, waiter: _Waiter) -> bool:
    """Whether a server of this user is on the devices. One that is kept warm for a next invocation is asked to end, and
    whoever has to be waited for is told.

    :raises DevicesBusy: waiting will not help, or took too long.
    """
    for record in _live_records(root):
        taken = plan.exclusive_devices.intersection(record.devices)
        # An exited one has ended its whole tree, and lives only to tell its exit code.
        if not taken or record.state == "exited":
            continue
        if holder.session and record.kept_by == holder.session:
            # Kept for a next invocation; this one needs the place first. Whoever took it up meanwhile is waited for.
            label = f"{holder.label}: {plan.name} needs its devices"
            answer = ask_to_stop(record, label=label, unless_held=True)
            if answer == "gone":
                continue
            if answer == "held":
                return True
        devices = ", ".join(sorted(taken))
        held_by = holders_text(record)
        # A warm server goes only when its time is over, and one of our own never while we wait.
        ours = any(each.pid == os.getpid() for each in record.holders)
        if record.state == "warm" or ours or waiter.is_over():
            raise DevicesBusy(
                what=f"{plan.name} cannot start: {record.name} (launch {record.launch_id[:8]}, pid {record.pid}) "
                f"is on {devices}, held by {held_by}",
                hint=f"moeperf servers stop {record.launch_id[:8]}"
                if not ours
                else "this process holds it itself: end that lease first",
                launch_id=record.launch_id,
            )
        waiter.tell(f"{devices} to be free for {plan.name}", f"{record.name} is there, held by {held_by}")
        return True
    return False


def _live_records(root: Path) -> list[ServerRecord]:
    return [record for record in read_records(root) if not guardian_is_dead(record)]


def _joined(record: ServerRecord, holder: HolderIdentity, plan: LaunchPlan) -> GuardianLink | None:
    try:
        return join(record, holder=holder, stop_timeout_s=plan.stop_timeout_s)
    except TimeoutError as error:
        raise ServerNotReady(
            what=f"{record.name} (pid {record.pid}) runs, and its guardian (pid {record.guardian_pid}) does not answer",
            hint=f"kill -9 {record.guardian_pid} ends both",
        ) from error


def _answers(record: ServerRecord) -> bool:
    for _ in range(_HEALTH_TRIES):
        if ask_health(record.host, record.port, record.health_path, api_key=_key_of(record)).good:
            return True
        time.sleep(_HEALTH_PAUSE_S)
    return False


def _end_unhealthy(server_link: GuardianLink) -> None:
    record = server_link.record
    others = [each for each in record.holders if each.pid != os.getpid()]
    if others:
        server_link.release()
        raise ServerNotReady(
            what=f"{record.name} (pid {record.pid}) runs and does not answer GET {record.url}{record.health_path}; "
            f"it is held by {holders_text(record)}",
            hint=f"stop it with: moeperf servers stop {record.launch_id[:8]} --force",
            log_path=record.log_path,
        )
    server_link.stop("a new lease: it does not answer any more")


def _starter_text(plan: LaunchPlan, root: Path) -> str:
    for record in read_records(root):
        if record.spec_digest == plan.spec_digest and record.state == "starting":
            return f"{holders_text(record)} is starting it"
    return "somebody is starting or sharing it"


def _key_of(record: ServerRecord) -> ApiKey | None:
    try:
        return ApiKey(read_private(Path(record.folder) / launch_folder.KEY_NAME).decode())
    except FileNotFoundError:
        return None


@dataclass
class _Waiter:
    """How long this lease has waited for others, and whom it tells."""

    on_wait: OnWait
    timeout_s: float

    def __post_init__(self) -> None:
        self._began = time.monotonic()

    @staticmethod
    def check(timeout_s: float) -> None:
        if timeout_s < 0:
            raise ValueError(f"wait_timeout_s is {timeout_s}: it must not be negative")

    def waited_s(self) -> float:
        return time.monotonic() - self._began

    def is_over(self) -> bool:
        return self.waited_s() >= self.timeout_s

    def tell_once(self, what: str, holder: str) -> None:
        """Of something that will not take long."""
        self.on_wait(WaitNotice(what=what, holder=holder, waited_s=self.waited_s(), once=True))

    def tell(self, what: str, holder: str) -> None:
        """:raises ServerNotReady: the wait is over."""
        if self.is_over():
            raise ServerNotReady(
                what=f"gave up waiting for {what} after {format_duration(self.waited_s())}: {holder}",
                hint="moeperf servers lists who has what; to wait longer: --perf-budget=8h",
            )
        self.on_wait(WaitNotice(what=what, holder=holder, waited_s=self.waited_s()))

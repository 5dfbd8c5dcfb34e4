"""The holder's end of the line to a guardian: holding a server, joining it, and watching that its guardian lives."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_moeperf.model.server import ServerRecord
from pytest_moeperf.servers import launch_folder, proctree
from pytest_moeperf.servers.proctree import Process
from pytest_moeperf.servers.wire import Line, LineClosedError, Message, connect_to

_REPLY_S = 30.0
_END_SLACK_S = 90.0
"""Beyond the stop time-out: SIGKILL, and the driver giving its memory back."""
_ORPHAN_KILL_S = 10.0
_NO_PIDFD_POLL_S = 0.5
_DEATH_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HolderIdentity:
    """Who holds, as others are told."""

    label: str
    keep_s: float = 0.0
    session: str = ""
    """The invocation that this process is part of."""

    def to_message(self) -> Message:
        """With the calling process in it."""
        me = proctree.myself()
        return {
            "pid": me.pid,
            "pid_start_time": me.start_time,
            "label": self.label,
            "keep_s": self.keep_s,
            "session": self.session,
        }


class GuardianLink:
    """An open hold on a server. Closing the socket, by :meth:`release` or by dying, gives it back."""

    def __init__(self, line: Line, record: ServerRecord, *, stop_timeout_s: float) -> None:
        self.record = record
        self._line = line
        self._lock = threading.Lock()
        self._end_timeout_s = stop_timeout_s + _END_SLACK_S
        self._watch = _GuardianWatch(record)

    def exit_code(self) -> int | None:
        """Of the server's root process; None while it lives, or where nobody saw it end.

        :raises LineClosedError: the guardian is dead.
        """
        code = self._ask({"op": "status"}, timeout_s=self._end_timeout_s)["exit_code"]
        return None if code is None else int(code)

    def announce_ready(self, start_s: float) -> None:
        """:raises LineClosedError: the guardian is dead."""
        self.record = ServerRecord.from_dict(self._ask({"op": "ready", "start_s": start_s})["record"])

    def stop(self, label: str) -> None:
        """End the server whoever holds it, and wait until it is gone."""
        self._watch.close()
        try:
            self._ask({"op": "stop", "label": label, "unless_held": False}, timeout_s=self._end_timeout_s)
            wait_for_end(self._line, self.record, timeout_s=self._end_timeout_s)
        except LineClosedError:
            wait_for_death(self.record)
        self._finish()

    def release(self) -> None:
        """Give the hold back. Where it was the last one and nothing keeps the server warm, wait until it is gone."""
        self._watch.close()
        try:
            if self._ask({"op": "release"}, timeout_s=self._end_timeout_s)["ends"]:
                wait_for_end(self._line, self.record, timeout_s=self._end_timeout_s)
        except LineClosedError:
            wait_for_death(self.record)
        self._finish()

    def _finish(self) -> None:
        self._line.close()
        # Only a guardian that is dead leaves something behind; one that others still hold is alive.
        end_orphans(self.record.launch_id)
        if not proctree.is_alive(guardian_of(self.record)) and not proctree.orphans(self.record.launch_id):
            launch_folder.remove_all_but_logs(Path(self.record.folder))

    def _ask(self, message: Message, *, timeout_s: float = _REPLY_S) -> Message:
        with self._lock:
            try:
                return self._line.ask(message, timeout_s=timeout_s)
            except TimeoutError as error:
                raise LineClosedError(f"the guardian did not answer within {timeout_s:.0f} s") from error


def join(record: ServerRecord, *, holder: HolderIdentity, stop_timeout_s: float) -> GuardianLink | None:
    """Hold a running server too. None where it has ended, or did so while this was asking.

    :raises TimeoutError: its guardian does not answer.
    """
    try:
        line = Line(connect_to(Path(record.folder) / launch_folder.SOCKET_NAME, timeout_s=_REPLY_S))
    except OSError:
        return None
    try:
        reply = line.ask({"op": "hold", **holder.to_message()}, timeout_s=stop_timeout_s + _END_SLACK_S)
    except LineClosedError:
        line.close()
        return None
    if not reply["ok"]:
        line.close()
        return None
    return GuardianLink(line, ServerRecord.from_dict(reply["record"]), stop_timeout_s=stop_timeout_s)


def ask_to_stop(
    record: ServerRecord, *, label: str, unless_held: bool, timeout_s: float = 120.0
) -> Literal["gone", "held", "stuck"]:
    """End a server without holding it.

    :param unless_held: not if somebody holds it at that moment.
    :returns: ``stuck`` if it was not gone within ``timeout_s``.
    """
    try:
        line = Line(connect_to(Path(record.folder) / launch_folder.SOCKET_NAME, timeout_s=_REPLY_S))
    except OSError:
        return "gone"
    try:
        reply = line.ask({"op": "stop", "label": label, "unless_held": unless_held}, timeout_s=timeout_s)
        if reply.get("held"):
            return "held"
        return "gone" if wait_for_end(line, record, timeout_s=timeout_s) else "stuck"
    except LineClosedError:
        return "gone" if proctree.wait_gone(guardian_of(record), timeout_s=_REPLY_S) else "stuck"
    except TimeoutError:
        return "stuck"
    finally:
        line.close()


def wait_for_end(line: Line, record: ServerRecord, *, timeout_s: float) -> bool:
    """Until the guardian closes the line, which it does with its own end, the last of a launch. Whether it did."""
    line.connection.settimeout(timeout_s)
    with contextlib.suppress(LineClosedError):
        try:
            while True:
                line.read()
        except TimeoutError:
            return False
    return proctree.wait_gone(guardian_of(record), timeout_s=_REPLY_S)


def end_orphans(launch_id: str | None = None) -> int:
    """SIGKILL for the processes of launches (or of one) whose guardian is proven dead; how many there were."""
    found = {orphan.process for orphan in proctree.orphans(launch_id)}
    if found:
        proctree.end_all(
            lambda: {orphan.process for orphan in proctree.orphans(launch_id)}, term_s=0.0, kill_s=_ORPHAN_KILL_S
        )
    return len(found)


class _GuardianWatch:
    """Ends what is left of the launch when its guardian is killed first. A thread that sleeps until then."""

    def __init__(self, record: ServerRecord) -> None:
        self._launch_id = record.launch_id
        self._guardian = Process(record.guardian_pid, record.guardian_start_time)
        self._wake_reader, self._wake_writer = os.pipe()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"moeperf-guardian-watch-{self._launch_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Idempotent. From now on the guardian may end."""
        if not self._closed:
            self._closed = True
            os.close(self._wake_writer)
            self._thread.join()

    def _run(self) -> None:
        pidfd = proctree.open_pidfd(self._guardian.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_reader, selectors.EVENT_READ)
            if pidfd is not None:
                selector.register(pidfd, selectors.EVENT_READ)
            while not selector.select(None if pidfd is not None else _NO_PIDFD_POLL_S):
                if not proctree.is_alive(self._guardian):
                    break
        os.close(self._wake_reader)
        if pidfd is not None:
            os.close(pidfd)
        if not proctree.is_alive(self._guardian):
            end_orphans(self._launch_id)


def wait_for_death(record: ServerRecord) -> None:
    """After a guardian closed its line without a word: a killed process does so some time before it is gone."""
    proctree.wait_gone(guardian_of(record), timeout_s=_DEATH_S)


def process_of(record: ServerRecord) -> Process:
    """The server's root process."""
    return Process(record.pid, record.pid_start_time)


def guardian_of(record: ServerRecord) -> Process:
    """The server's guardian."""
    return Process(record.guardian_pid, record.guardian_start_time)

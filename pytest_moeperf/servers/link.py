"""The holder's end of the line to a guardian: holding a server, joining it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_moeperf.model.server import ServerRecord
from pytest_moeperf.servers import launch_folder, proctree
from pytest_moeperf.servers.proof import end_left_by, guardian_is_dead, guardian_of, is_of_here, process_of
from pytest_moeperf.servers.wire import Line, LineClosedError, Message, connect_to

_REPLY_S = 30.0
_END_SLACK_S = 90.0
"""Beyond the stop time-out: SIGKILL, and the driver giving its memory back."""
_DEATH_S = 5.0
_SWEEP_S = 5.0
_SWEEP_POLL_S = 0.02


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
        try:
            self._ask({"op": "stop", "label": label, "unless_held": False}, timeout_s=self._end_timeout_s)
            wait_for_end(self._line, self.record, timeout_s=self._end_timeout_s)
        except LineClosedError:
            wait_for_death(self.record)
        self._finish()

    def release(self) -> None:
        """Give the hold back. Where it was the last one and nothing keeps the server warm, wait until it is gone."""
        try:
            if self._ask({"op": "release"}, timeout_s=self._end_timeout_s)["ends"]:
                wait_for_end(self._line, self.record, timeout_s=self._end_timeout_s)
        except LineClosedError:
            wait_for_death(self.record)
        self._finish()

    def _finish(self) -> None:
        self._line.close()
        if proctree.is_alive(guardian_of(self.record)):
            return  # others hold it still
        if not _said_gone(self.record) and not end_left_by(self.record):
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
        return _end_without_line(record, unless_held=unless_held, timeout_s=timeout_s)
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


def _end_without_line(record: ServerRecord, *, unless_held: bool, timeout_s: float) -> Literal["gone", "held", "stuck"]:
    """Nobody listens at the guardian's socket: it is dead, or somebody removed the socket and all of it lives."""
    if not guardian_is_dead(record):
        if unless_held and record.holders:
            return "held"
        if not is_of_here(record):
            return "stuck"  # in another container: its pids mean nothing here
        proctree.send_signal(guardian_of(record), signal.SIGTERM)
        if not proctree.wait_gone(guardian_of(record), timeout_s=timeout_s):
            return "stuck"
        _said_gone(record)
    return "stuck" if end_left_by(record) or (is_of_here(record) and proctree.is_alive(process_of(record))) else "gone"


def _said_gone(record: ServerRecord) -> bool:
    """Whether a dead guardian's record is gone too: by itself, or by the sweeper, once all that it left has ended."""
    path = Path(record.folder) / launch_folder.RECORD_NAME
    deadline = time.monotonic() + _SWEEP_S
    while path.exists():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_SWEEP_POLL_S)
    return True


def wait_for_death(record: ServerRecord) -> None:
    """After a guardian closed its line without a word: a killed process does so some time before it is gone."""
    proctree.wait_gone(guardian_of(record), timeout_s=_DEATH_S)

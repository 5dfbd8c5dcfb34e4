"""The guardian: a tiny process between a server and everybody who uses it.

It starts the server, waits for whoever holds it, and ends the whole process tree when nobody does any more, however
they ended. A hold is an open socket, so the kernel itself reports the end of a holder, kill -9 included. The guardian
is a subreaper: processes that the server leaves behind become its children and stay findable.

It alone writes the server's record. Standard library only, one thread, no imports from other rooms.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pytest_moeperf.servers import cgroups, gpu_memory, proctree, wire
from pytest_moeperf.servers.launch_folder import (
    KEY_FILE_NAME,
    KEY_NAME,
    LOG_NAME,
    SOCKET_NAME,
    RecordKeeper,
    iso_now,
    remove_all_but_logs,
)
from pytest_moeperf.servers.lock_files import LockFile
from pytest_moeperf.servers.private_files import create_private, write_atomically
from pytest_moeperf.servers.proctree import Process
from pytest_moeperf.servers.sweeper import sweep_after

_KILL_S = 30.0
_GPU_FREE_S = 30.0
_REPLY_S = 5.0
HANDLED_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD)


class _Holder:
    """One connection. Holds the server from ``hold`` (or ``start``) until ``release`` or its end."""

    def __init__(self, line: wire.Line) -> None:
        self.line = line
        self.process = Process(0, 0)
        self.label = ""
        self.since = ""
        self.keep_s = 0.0
        self.session = ""
        self.holds = False
        self.pidfd: int | None = None

    def text(self) -> str:
        return f"pid {self.process.pid} ({self.label})"

    def to_dict(self) -> dict[str, Any]:
        """As in ``Holder`` of model/server.py."""
        pid, start_time = self.process
        return {"pid": pid, "pid_start_time": start_time, "since": self.since, "label": self.label}


class Guardian:
    """State and event loop of one guardian."""

    def __init__(self, owner: socket.socket, leases: Sequence[LockFile]) -> None:
        self._me = proctree.myself()
        self._leases = leases
        """Of the devices, for as long as there is something of the server on them."""
        self._cgroup: Path | None = None
        self._selector = selectors.DefaultSelector()
        self._holders: list[_Holder] = []
        self._server: Process | None = None
        self._followers: dict[int, int] = {}
        """Pid of the process that started a further node -> its rank."""
        self._lost_node = ""
        self._lost_code = 0
        self._exit_code: int | None = None
        self._record: RecordKeeper | None = None
        self._term_s = 10.0
        self._keep_until: float | None = None
        """On the monotonic clock."""
        self._kept_by = ""
        self._end_because = ""
        self._stop_asker: _Holder | None = None
        self._gpu_before: dict[str, int] = {}
        self._gpu_module: str | None = None
        self._answers: dict[str, Callable[[_Holder, wire.Message], wire.Message | None]] = {
            "start": self._start,
            "hold": self._hold,
            "ready": self._ready,
            "status": self._status,
            "release": self._release,
            "stop": self._stop,
        }
        self._wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)
        self._welcome(owner)

    def run(self) -> None:
        """Until the server and all its processes are gone and nobody asks about them any more."""
        proctree.become_subreaper()
        while True:
            self._reap()
            if self._lost_node and self._exit_code is None:
                self._end_without_node()
            if self._exit_code is not None and self._record is not None and self._record.state != "exited":
                self._server_ended(self._record)
            if reason := self._reason_to_end():
                break
            for key, _ in self._selector.select(self._patience_s()):
                key.data()
        self._end(reason)

    # What decides

    def _reason_to_end(self) -> str:
        if self._end_because or self._is_held():
            return self._end_because
        if self._server is None:
            return "" if self._holders else "nobody asked for a server"
        if self._exit_code is not None:
            return "the server has ended, and nobody holds it"
        if self._keep_until is None:
            return "nobody holds the server any more"
        return "its keep time is over" if time.monotonic() >= self._keep_until else ""

    def _patience_s(self) -> float | None:
        if self._is_held() or self._keep_until is None:
            return None
        return max(0.0, self._keep_until - time.monotonic())

    def _is_held(self) -> bool:
        return any(holder.holds for holder in self._holders)

    # Holders

    def _welcome(self, connection: socket.socket) -> None:
        connection.settimeout(_REPLY_S)
        holder = _Holder(wire.Line(connection))
        self._holders.append(holder)
        self._selector.register(connection, selectors.EVENT_READ, partial(self._hear, holder))

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self._welcome(connection)

    def _hear(self, holder: _Holder) -> None:
        if holder not in self._holders:  # gone earlier in this round
            return
        try:
            for message in holder.line.read():
                answer = self._answers[message["op"]](holder, message)
                if answer is not None:
                    holder.line.send(answer)
        except (wire.LineClosedError, TimeoutError):
            self._gone(holder)
        except (KeyError, TypeError, ValueError) as error:
            _tell(f"a request that makes no sense, of another version perhaps: {error!r}")
            self._gone(holder)

    def _gone(self, holder: _Holder) -> None:
        if holder not in self._holders:
            return
        if holder.holds:
            _tell(f"{holder.text()} ended without a word")
            self._let_go(holder)
        self._holders.remove(holder)
        self._selector.unregister(holder.line.connection)
        holder.line.close()

    def _take_hold(self, holder: _Holder, message: wire.Message) -> None:
        holder.process = Process(message["pid"], message["pid_start_time"])
        holder.label, holder.keep_s, holder.session = message["label"], message["keep_s"], message["session"]
        holder.since, holder.holds = iso_now(), True
        # A process that the holder forked may keep the socket open after the holder's own end.
        holder.pidfd = proctree.open_pidfd(holder.process.pid)
        if holder.pidfd is not None:
            self._selector.register(holder.pidfd, selectors.EVENT_READ, partial(self._gone, holder))
        _tell(f"held by {holder.text()}")

    def _let_go(self, holder: _Holder) -> None:
        holder.holds = False
        if holder.pidfd is not None:
            self._selector.unregister(holder.pidfd)
            os.close(holder.pidfd)
            holder.pidfd = None
        if holder.keep_s > 0 and self._record is not None and self._record.state == "ready":
            self._keep_until = max(self._keep_until or 0.0, time.monotonic() + holder.keep_s)
            self._kept_by = holder.session
        self._write_record()

    # Requests

    def _start(self, holder: _Holder, message: wire.Message) -> wire.Message:
        folder = Path(message["folder"])
        self._term_s = message["stop_timeout_s"]
        self._gpu_module = message["gpu_module_folder"]
        self._gpu_before = self._gpu_used(message["gpus"])
        self._cgroup = cgroups.make(message["record"]["launch_id"])
        try:
            if message["api_key"] is not None:
                write_atomically(folder / KEY_NAME, message["api_key"].encode())
            if message["key_file"]:
                write_atomically(folder / KEY_FILE_NAME, message["key_file"].encode())
            self._server = self._start_process(message, message, create_private(folder / LOG_NAME))
            for rank, node in enumerate(message["followers"], start=1):
                log = os.open(folder / LOG_NAME, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
                self._followers[self._start_process(node, message, log).pid] = rank
        except OSError as error:
            self._end_tree()
            remove_all_but_logs(folder)
            self._end_because = f"the server could not be started: {error}"
            return {"ok": False, "error": f"{error.strerror}: {error.filename or folder}"}
        _tell(f"started pid {self._server.pid}: {message['record']['name']}")
        facts = {
            "pid": self._server.pid,
            "pid_start_time": self._server.start_time,
            "guardian_pid": self._me.pid,
            "guardian_start_time": self._me.start_time,
            "boot_id": proctree.boot_id(),
            "hostname": socket.gethostname(),
            "pid_namespace": proctree.pid_namespace(),
            "cgroup": str(self._cgroup or ""),
            "started_at": iso_now(),
        }
        self._record = RecordKeeper(folder, {**message["record"], **facts})
        for lease in self._leases:
            # A full disk: the lock is the kernel's, and holds without a word.
            with contextlib.suppress(OSError):
                lease.note(
                    f"{message['record']['name']}, launch {message['record']['launch_id'][:8]}, {message['label']}"
                )
        listener = wire.listen_at(folder / SOCKET_NAME)
        self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))
        return self._hold(holder, message)

    def _start_process(self, node: wire.Message, message: wire.Message, log: int) -> Process:
        environment = {
            **node["env"],
            proctree.LAUNCH_VARIABLE: message["record"]["launch_id"],
            proctree.GUARDIAN_VARIABLE: f"{self._me.pid}.{self._me.start_time}",
            # Process titles set by setproctitle would overwrite the two above in /proc/<pid>/environ.
            "SPT_NOENV": "1",
        }
        try:
            child = subprocess.Popen(
                node["command"],
                env=environment,
                cwd=message["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_become_server, self._me.pid, self._cgroup),  # noqa: PLW1509 - one thread
            )
        finally:
            os.close(log)
        child.returncode = 0  # reaped by _reap, not by Popen
        return proctree.child(child.pid)

    def _hold(self, holder: _Holder, message: wire.Message) -> wire.Message:
        if self._exit_code is not None or self._record is None:
            return {"ok": False}
        # Whoever holds it last says whether it is kept: an earlier wish ends with a new hold.
        self._keep_until = None
        self._take_hold(holder, message)
        self._write_record()
        return {"ok": True, "record": self._record.content}

    def _ready(self, _holder: _Holder, message: wire.Message) -> wire.Message:
        if self._record is None:
            return {"ok": False}
        if self._exit_code is None:
            self._record.content["start_s"] = message["start_s"]
            self._record.state = "ready"
            self._write_record()
            _tell(f"ready after {message['start_s']:.1f} s")
        return {"ok": True, "record": self._record.content}

    def _status(self, _holder: _Holder, _message: wire.Message) -> wire.Message:
        self._reap()
        return {"ok": True, "exit_code": self._exit_code}

    def _release(self, holder: _Holder, _message: wire.Message) -> wire.Message:
        _tell(f"released by {holder.text()}")
        self._let_go(holder)
        return {"ok": True, "ends": bool(self._reason_to_end())}

    def _stop(self, holder: _Holder, message: wire.Message) -> wire.Message | None:
        if message["unless_held"] and self._is_held():
            return {"ok": False, "held": True}
        self._end_because = f"asked to stop by {message['label']}"
        self._stop_asker = holder
        return None  # until it is gone

    # The end

    def _end_without_node(self) -> None:
        """The engine may wait for ever for a node that is gone."""
        text = f"moeperf: {self._lost_node}, so the server is ended"
        _tell(text)
        if self._record is not None:
            log = os.open(self._record.folder / LOG_NAME, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            with os.fdopen(log, "w", encoding="utf-8") as file:
                file.write(f"{text}\n")
        self._exit_code = self._lost_code

    def _server_ended(self, record: RecordKeeper) -> None:
        _tell(f"the server ended by itself, exit code {self._exit_code}")
        if not self._end_tree():
            for lease in self._leases:
                lease.release()
        record.state = "exited"
        self._write_record()

    def _end(self, reason: str) -> None:
        _tell(f"ending: {reason}")
        left: set[Process] = set()
        if self._record is not None:
            self._record.state = "ending"
            self._write_record()
            left = self._end_tree()
            if not left:
                self._record.remove()
        _tell("gone" if not left else "gone, and the record stays for what could not be ended")
        if self._stop_asker is not None:
            try:
                self._stop_asker.line.send({"ok": not left})
            except wire.LineClosedError:
                _tell("who asked to stop is gone too")

    def _end_tree(self) -> set[Process]:
        find = partial(proctree.descendants, self._me.pid)
        left = proctree.end_all(find, term_s=self._term_s, kill_s=_KILL_S, reap=self._reap, tell=_tell)
        over = gpu_memory.wait_until_free(self._gpu_before, measure=self._gpu_used, timeout_s=_GPU_FREE_S)
        for uuid, used in over.items():
            _tell(f"{uuid} still has {used / 2**20:.0f} MiB in use that were free before")
        if not left:
            cgroups.remove(self._cgroup)
        return left

    def _gpu_used(self, uuids: Any) -> dict[str, int]:
        return gpu_memory.used_bytes(uuids, module_folder=self._gpu_module)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._server is not None and pid == self._server.pid and self._exit_code is None:
                self._exit_code = os.waitstatus_to_exitcode(status)
            elif pid in self._followers and not self._lost_node:
                self._lost_code = os.waitstatus_to_exitcode(status)
                rank, count = self._followers[pid], len(self._followers) + 1
                self._lost_node = f"node {rank} of {count} ended with exit code {self._lost_code}"

    def _woken(self) -> None:
        for number in os.read(self._wake, 4096):
            if number == signal.SIGTERM:
                self._end_because = "the guardian got SIGTERM"

    def _write_record(self) -> None:
        if self._record is None:
            return
        holders = [holder.to_dict() for holder in self._holders if holder.holds]
        warm_s = None if self._keep_until is None else self._keep_until - time.monotonic()
        try:
            self._record.write(holders=holders, warm_s=warm_s, kept_by=self._kept_by)
        except OSError as error:
            # A full disk must not end a server: the record is for others, the holders have their sockets.
            _tell(f"the record could not be written: {error}")


def _become_server(guardian_pid: int, cgroup: Path | None) -> None:
    """In the child, before its program runs: the guardian's handlers would swallow the signal that ends it."""
    signal.set_wakeup_fd(-1)
    for number in HANDLED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if cgroup is not None:
        cgroups.enter(cgroup)
    proctree.die_with_parent(guardian_pid)


def _tell(text: str) -> None:
    try:
        sys.stderr.write(f"{iso_now()} {text}\n")
        sys.stderr.flush()
    except OSError:
        return  # nowhere left to say that the disk is full


def main() -> None:
    """``argv``: the descriptor of the socket to the owner, the launch's folder, and for each device its lock's path and
    descriptor. Leaves the owner's process group and family."""
    owner_fd, folder, *locks = sys.argv[1:]
    if os.fork():
        os._exit(0)  # the owner waits for this one, and has no child left to reap
    os.umask(0o077)
    # Handlers, not SIG_IGN: an ignored signal would stay ignored in the server.
    for number in HANDLED_SIGNALS:
        signal.signal(number, lambda _number, _frame: None)
    proctree.become_subreaper()
    if guardian_pid := os.fork():
        sweep_after(guardian_pid, Path(folder), map(int, (owner_fd, *locks[1::2])))
        return
    leases = [LockFile(Path(path), descriptor=int(fd)) for path, fd in zip(locks[::2], locks[1::2], strict=True)]
    Guardian(socket.socket(fileno=int(owner_fd)), leases).run()

"""The servers of this user on this machine: found, judged dead or alive, stopped."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.server import RECORD_SCHEMA, ServerRecord
from pytest_moeperf.servers import launch_folder
from pytest_moeperf.servers.link import ask_to_stop
from pytest_moeperf.servers.private_files import read_private
from pytest_moeperf.servers.problems import ServerNotReady
from pytest_moeperf.servers.proctree import Process
from pytest_moeperf.servers.proof import end_left_by, guardian_is_dead, left_by
from pytest_moeperf.servers.runtime import runtime_folder

KEPT_LAUNCHES = 20
"""Folders of ended launches whose logs are kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """What is left of a launch whose guardian was killed."""

    record: ServerRecord
    processes: tuple[Process, ...]

    def text(self) -> str:
        """``2 processes (pid 12, pid 13)``."""
        pids = ", ".join(f"pid {process.pid}" for process in self.processes)
        return f"{len(self.processes)} process{'es' * (len(self.processes) != 1)} ({pids})"


def list_servers() -> tuple[ServerRecord, ...]:
    """All live servers of this user, oldest first. Ends nothing."""
    live = [record for record in read_records(runtime_folder()) if not guardian_is_dead(record)]
    return tuple(sorted(live, key=lambda record: record.started_at))


def list_left() -> tuple[Left, ...]:
    """Of the launches of this user whose guardian is dead, those of which something lives. Ends nothing."""
    return tuple(left for left in _dead(runtime_folder()) if left.processes)


def reclaim(root: Path, devices: Collection[str], *, tell: Callable[[str, str], None]) -> None:
    """Before a launch on these devices: end what killed guardians left there.

    :param tell: what is waited for, and who it is.
    :raises ServerNotReady: something could not be ended.
    """
    for left in _dead(root):
        if left.processes and set(devices).isdisjoint(left.record.devices):
            continue
        if left.processes:
            tell(f"what launch {left.record.launch_id[:8]} left to end", f"{left.text()}, of {left.record.name}")
        _end(left)


def stop_server(record_or_id: ServerRecord | str, *, force: bool = False) -> str:
    """Stop one server, or end what a killed guardian left of one, and say what was done.

    :param record_or_id: a launch id may be shortened as long as it names one server.
    :param force: also where somebody holds it.
    :raises UsageProblem: there is none such, several, or somebody holds it.
    :raises ServerNotReady: it could not be ended.
    """
    record = record_or_id if isinstance(record_or_id, ServerRecord) else _find(record_or_id)
    left = next((left for left in list_left() if left.record.launch_id == record.launch_id), None)
    if left is not None:
        _end(left)
        return f"ended what {record.launch_id[:8]}, {record.name} left: {left.text()}"
    answer = ask_to_stop(record, label="moeperf servers stop", unless_held=not force)
    if answer == "held":
        current = next((each for each in list_servers() if each.launch_id == record.launch_id), record)
        raise UsageProblem(
            where=f"server {record.launch_id[:8]}",
            problem=f"{record.name} is in use by {holders_text(current)}",
            next_step="wait for them, or stop it all the same with --force",
        )
    if answer == "stuck":
        raise ServerNotReady(
            what=f"{record.name} (pid {record.pid}) could not be ended",
            hint=f"see {Path(record.folder) / launch_folder.GUARDIAN_LOG_NAME}",
        )
    return f"stopped {record.launch_id[:8]}, {record.name}"


def read_records(root: Path) -> list[ServerRecord]:
    """All records that can be read. One that can't is put aside as ``record.json.torn``: its guardian, if it lives,
    writes a new one with the next change, and ends its server as always.

    A record is believed in its own place only: this user's private folder of that launch. Where its files are is where
    it was found, whatever it says."""
    records = []
    for path in sorted((root / "launches").glob(f"*/{launch_folder.RECORD_NAME}")):
        folder = path.parent
        try:
            if folder.is_symlink():
                continue
            plain = json.loads(read_private(path))
            # A server of another version of this package is alive and well, only not ours to share.
            if isinstance(plain, dict) and plain.get("schema", RECORD_SCHEMA) != RECORD_SCHEMA:
                continue
            record: ServerRecord | None = ServerRecord.from_dict(plain)
        except FileNotFoundError:
            continue  # it ended between the listing and the reading
        except (OSError, ValueError, RecursionError):
            record = None
        if record is None or record.launch_id != folder.name:
            path.rename(path.with_name(f"{path.name}.torn"))
        else:
            records.append(replace(record, folder=str(folder), log_path=str(folder / launch_folder.LOG_NAME)))
    return records


def _dead(root: Path) -> Iterator[Left]:
    for record in read_records(root):
        if guardian_is_dead(record):
            yield Left(record=record, processes=tuple(sorted(left_by(record))))


def _end(left: Left) -> None:
    """And remove what says that the launch lives. Its logs stay."""
    if stuck := end_left_by(left.record):
        raise ServerNotReady(
            what=f"what launch {left.record.launch_id[:8]}, {left.record.name}, left could not be ended: "
            + ", ".join(f"pid {process.pid}" for process in sorted(stuck)),
            hint="a process that not even SIGKILL ends is stuck in a driver: see dmesg",
        )
    launch_folder.remove_all_but_logs(Path(left.record.folder))


def prune(root: Path, *, keep: int = KEPT_LAUNCHES, min_age_s: float = 3600.0) -> None:
    """Remove the folders of ended launches but the newest ones."""
    ended = [
        folder
        for folder in (root / "launches").iterdir()
        if not (folder / launch_folder.RECORD_NAME).exists() and not (folder / launch_folder.SOCKET_NAME).exists()
    ]
    newest_first = sorted(ended, key=lambda folder: folder.lstat().st_mtime, reverse=True)
    for folder in newest_first[keep:]:
        if time.time() - folder.lstat().st_mtime > min_age_s:
            shutil.rmtree(folder, ignore_errors=True)


def holders_text(record: ServerRecord) -> str:
    """``pid 123 (pytest gw1), pid 124 (pytest gw2)``, or that nobody does."""
    if record.holders:
        return ", ".join(f"pid {holder.pid} ({holder.label}, since {holder.since})" for holder in record.holders)
    return f"nobody, kept warm until {record.keep_until}" if record.keep_until else "nobody"


def _find(launch_id: str) -> ServerRecord:
    servers = (*list_servers(), *(left.record for left in list_left()))
    matching = [record for record in servers if launch_id and record.launch_id.startswith(launch_id)]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(f"{record.launch_id[:8]} ({record.name})" for record in servers)
    raise UsageProblem(
        where=f"server {launch_id}",
        problem="several servers have ids that begin so" if matching else "there is no such server",
        allowed=known or "no server is running",
    )

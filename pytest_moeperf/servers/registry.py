"""The servers of this user on this machine: found, judged dead or alive, stopped."""

from __future__ import annotations

import json
import shutil
import socket
import time
from pathlib import Path

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.server import RECORD_SCHEMA, ServerRecord
from pytest_moeperf.servers import launch_folder, proctree
from pytest_moeperf.servers.link import ask_to_stop, end_orphans, guardian_of
from pytest_moeperf.servers.private_files import read_private
from pytest_moeperf.servers.problems import ServerNotReady
from pytest_moeperf.servers.runtime import runtime_folder
from pytest_moeperf.servers.wire import connect_to

KEPT_LAUNCHES = 20
"""Folders of ended launches whose logs are kept."""
_CONNECT_S = 5.0


def list_servers() -> tuple[ServerRecord, ...]:
    """All live servers of this user, oldest first. Reclaims what dead guardians left."""
    root = runtime_folder()
    end_orphans()
    live = []
    for record in read_records(root):
        if guardian_is_dead(record):
            forget(record)
        else:
            live.append(record)
    return tuple(sorted(live, key=lambda record: record.started_at))


def stop_server(record_or_id: ServerRecord | str, *, force: bool = False) -> ServerRecord:
    """Stop one server, and return what it was.

    :param record_or_id: a launch id may be shortened as long as it names one server.
    :param force: also where somebody holds it.
    :raises UsageProblem: there is none such, several, or somebody holds it.
    :raises ServerNotReady: it could not be ended.
    """
    record = record_or_id if isinstance(record_or_id, ServerRecord) else _find(record_or_id)
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
    return record


def read_records(root: Path) -> list[ServerRecord]:
    """All records that can be read. One that can't is put aside as ``record.json.torn``: its guardian, if it lives,
    writes a new one with the next change, and ends its server as always."""
    records = []
    for path in sorted((root / "launches").glob(f"*/{launch_folder.RECORD_NAME}")):
        try:
            plain = json.loads(read_private(path))
            # A server of another version of this package is alive and well, only not ours to share.
            if isinstance(plain, dict) and plain.get("schema", RECORD_SCHEMA) != RECORD_SCHEMA:
                continue
            records.append(ServerRecord.from_dict(plain))
        except FileNotFoundError:
            continue  # it ended between the listing and the reading
        except (OSError, ValueError):
            path.rename(path.with_name(f"{path.name}.torn"))
    return records


def guardian_is_dead(record: ServerRecord) -> bool:
    """Whether there is proof. Without proof it is alive."""
    if record.boot_id != proctree.boot_id():
        # Another boot of this host, or another host that shares the folder?
        return record.hostname == socket.gethostname()
    if record.pid_namespace == proctree.pid_namespace():
        return not proctree.is_alive(guardian_of(record))
    # Another container on this kernel. Its pids mean nothing here, but a dead guardian's socket refuses.
    try:
        connect_to(Path(record.folder) / launch_folder.SOCKET_NAME, timeout_s=_CONNECT_S).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except OSError:
        return False
    return False


def forget(record: ServerRecord) -> None:
    """End what a dead guardian left behind, and remove its record. The logs stay."""
    if record.boot_id == proctree.boot_id():
        end_orphans(record.launch_id)
    launch_folder.remove_all_but_logs(Path(record.folder))


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
    servers = list_servers()
    matching = [record for record in servers if launch_id and record.launch_id.startswith(launch_id)]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(f"{record.launch_id[:8]} ({record.name})" for record in servers)
    raise UsageProblem(
        where=f"server {launch_id}",
        problem="several servers have ids that begin so" if matching else "there is no such server",
        allowed=known or "no server is running",
    )

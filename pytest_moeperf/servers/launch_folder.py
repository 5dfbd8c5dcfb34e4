"""The folder of one launch: its record, which the guardian alone writes, its socket, key and logs.
Standard library only: the guardian uses it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pytest_moeperf.servers.private_files import write_atomically

RECORD_NAME = "record.json"
SOCKET_NAME = "socket"
KEY_NAME = "key"
KEY_FILE_NAME = "key.yaml"
"""The key again, in the engine's own form."""
LOG_NAME = "server.log"
GUARDIAN_LOG_NAME = "guardian.log"


def iso_now() -> str:
    """Now, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RecordKeeper:
    """A server's record: what never changes, its state, and who holds it."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.content: dict[str, Any] = {
            **facts,
            "state": "starting",
            "start_s": None,
            "holders": [],
            "keep_until": None,
            "kept_by": "",
        }

    @property
    def state(self) -> str:
        """See ``ServerState`` in model/server.py."""
        return str(self.content["state"])

    @state.setter
    def state(self, state: str) -> None:
        self.content["state"] = state

    def write(self, *, holders: Sequence[Mapping[str, Any]], warm_s: float | None, kept_by: str) -> None:
        """Write it down.

        :param warm_s: how long a server that nobody holds is still kept; None where nobody asked for that.
        :param kept_by: the invocation that did.
        :raises OSError: a full disk, say.
        """
        warm = warm_s is not None and not holders
        if self.state in ("ready", "warm"):
            self.state = "warm" if warm else "ready"
        until = datetime.now(UTC) + timedelta(seconds=warm_s or 0.0)
        self.content["keep_until"] = until.isoformat(timespec="seconds") if warm else None
        self.content["kept_by"] = kept_by if warm else ""
        self.content["holders"] = [dict(holder) for holder in holders]
        write_atomically(self.folder / RECORD_NAME, json.dumps(self.content, indent=1).encode())

    def remove(self) -> None:
        """All but the logs."""
        remove_all_but_logs(self.folder)


def remove_all_but_logs(folder: Path) -> None:
    """What says that the launch lives."""
    for name in (SOCKET_NAME, KEY_NAME, KEY_FILE_NAME, RECORD_NAME):
        (folder / name).unlink(missing_ok=True)

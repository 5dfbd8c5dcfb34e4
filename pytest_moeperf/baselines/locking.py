"""One writer of a store at a time, across processes, CI jobs and hosts that share the folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pytest_moeperf.errors import BaselineError
from pytest_moeperf.foreign import keep_out_of_git, parse_json, read_text, refuse_links

LOCKS_FOLDER = ".locks"
"""Below the store's root; holds its own ``.gitignore``, so that no lock gets into a pull request."""


class StoreLock:
    """The kernel's own lock (flock): it ends with its holder, however that ends, and is never stale.

    What it guarantees: at most one holder on this host, and across hosts as far as the file system carries flock
    (NFS since Linux 2.6.12). Readers don't take it.
    """

    def __init__(self, root: Path, *, timeout_s: float) -> None:
        self._root = root
        self._folder = root / LOCKS_FOLDER
        self._timeout_s = timeout_s
        self._holder_file = self._folder / "holder.json"

    @contextlib.contextmanager
    def held(self, path: Path) -> Iterator[None]:
        """:raises BaselineError: about ``path``, which was to be written: who holds the lock, or why there is none."""
        from filelock import FileLock, Timeout

        lock = FileLock(self._folder / "store.lock", timeout=self._timeout_s)
        try:
            self._refuse_links(path)
            keep_out_of_git(self._folder, below=self._root)
            lock.acquire()
        except Timeout:
            raise BaselineError(
                path=str(path),
                problem=f"not written: the store was locked for {self._timeout_s:g} s by {self._holder()}",
                next_step="a writer needs the lock for a moment only: end that process if it hangs, then record again",
            ) from None
        except (OSError, NotImplementedError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise BaselineError(
                path=str(path),
                problem=f"can't be written: no lock in {self._folder}: {reason}",
                next_step="make the baselines folder one that this user may write, on a file system with locks",
            ) from None
        try:
            self._note_holder()
            yield
        finally:
            with contextlib.suppress(OSError):
                self._holder_file.unlink(missing_ok=True)
            lock.release()

    def _refuse_links(self, path: Path) -> None:
        """:raises BaselineError: about ``path``: a lock's file leads elsewhere."""
        for name in (".gitignore", "store.lock", self._holder_file.name):
            try:
                refuse_links(self._folder / name, below=self._root)
            except OSError as error:
                raise BaselineError(
                    path=str(path),
                    problem=f"can't be written: {error.filename} {error.strerror}",
                    next_step=f"remove that: {LOCKS_FOLDER} holds nothing that is to be kept",
                ) from None

    def _note_holder(self) -> None:
        # Only for the message of whoever waits in vain: a note that can't be written must not stop a recording.
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        with contextlib.suppress(OSError):
            self._holder_file.write_text(json.dumps(holder), encoding="utf-8")

    def _holder(self) -> str:
        try:
            holder = parse_json(read_text(self._holder_file, most_bytes=4096))
            return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return f"an unknown process (see `fuser {self._folder / 'store.lock'}`)"

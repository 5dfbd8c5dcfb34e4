"""Finished runs, written down as they finish: what an interrupted or undecided invocation measured is not lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import filelock

from pytest_moeperf.foreign import keep_out_of_git, parse_json, read_text, refuse_links
from pytest_moeperf.model.codec import from_plain, to_plain
from pytest_moeperf.model.run import Run
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.outgoing import told
from pytest_moeperf.servers.private_files import write_atomically
from pytest_moeperf.session import journal_key

JOURNAL_FOLDER = Path(".moeperf") / "interrupted"
OLDEST = timedelta(days=1)
"""Of runs that are gone on from: the machine, and what else runs on it, is another one later."""


class Journal:
    """One group's runs, a JSON line each. It lasts from the group's first run to its verdicts."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._path = root / JOURNAL_FOLDER / f"{name}.jsonl"
        self._undecided = self._path.with_suffix(".undecided")
        self._lock = filelock.FileLock(self._path.with_suffix(".lock"))

    @property
    def path(self) -> Path:
        return self._path

    def take(self) -> None:
        """Nobody else writes here until ``release``, or until this process ends.

        :raises OSError: another process has it, or the folder can't be written.
        """
        if self._lock.is_locked:
            return
        keep_out_of_git(self._path.parents[1], below=self._root)
        for path in (self._path, self._undecided, self._path.with_suffix(".lock")):
            refuse_links(path, below=self._root)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            raise BlockingIOError(errno.EAGAIN, "another pytest measures the same cells here") from None

    def release(self) -> None:
        """Idempotent."""
        self._lock.release()

    def runs(self) -> tuple[Run, ...]:
        """Of the invocation that was interrupted, else of one whose verdicts ask for more, in order. A line that was
        cut off by a kill, or that this user didn't write on this host, ends them; those of more than a day ago are left
        out."""
        return self.gone_on_from()[0]

    def gone_on_from(self) -> tuple[tuple[Run, ...], str]:
        """``runs()``, and how many others are kept there, for the user; empty if none is."""
        found: list[Run] = []
        kept = self._path if self._path.is_file() else self._undecided
        if not kept.is_file():
            return (), ""
        try:
            refuse_links(kept, below=self._root)
            lines, key = read_text(kept).splitlines(), journal_key.key()
        except (OSError, UnicodeDecodeError) as error:
            return (), f"{kept}: no run of it is gone on from: {error}"
        for line in lines:
            try:
                run = from_plain(Run, parse_json(journal_key.verified(line, with_key=key)))
            except ValueError:
                break
            if not _is_old(run):
                found.append(run)
        others = len(lines) - len(found)
        left_out = (
            f"{kept}: {others} of its {len(lines)} runs measured anew: of more than a day ago, cut off, or not "
            "written by this user on this host"
        )
        return tuple(found), left_out if others else ""

    def start(self, runs: tuple[Run, ...] = ()) -> None:
        """Begin anew, with the runs that are continued from: a kill on the way leaves what was there before.

        :raises OSError: it can't be written.
        """
        if runs:
            write_atomically(self._path, _lines(runs))
        else:
            self._path.unlink(missing_ok=True)
        self._undecided.unlink(missing_ok=True)

    def add(self, run: Run) -> None:
        """:raises OSError: it can't be written."""
        # Other users of the machine have no business with it.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            os.fchmod(descriptor, 0o600)
            file.write(_lines((run,)))

    def finish(self, *, undecided: Collection[Cell] = ()) -> None:
        """The verdicts are out; the report and the baselines keep the runs from here on.

        :param undecided: cells whose verdict further launches would change, so that it pays to go on from their runs.
            Those of others are judged: nothing may pass on them again.
        """
        kept = [run for run in self.runs() if run.cell in undecided]
        if kept:
            write_atomically(self._undecided, _lines(kept))
        else:
            self._undecided.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)


def _lines(runs: Iterable[Run]) -> bytes:
    """:raises OSError: there is no key to sign them with."""
    key = journal_key.key()
    texts = (json.dumps(told(to_plain(run)), allow_nan=False) for run in runs)
    return "".join(f"{journal_key.signed(text, with_key=key)}\n" for text in texts).encode()


def _is_old(run: Run) -> bool:
    return datetime.now(UTC) - datetime.fromisoformat(run.started_at) > OLDEST


def told_kept(path: Path, text: str, command: str) -> list[str]:
    """How to go on from a journal that an invocation leaves. Nothing where it was interrupted before its first run."""
    number = len(text.splitlines())
    if not number:
        return []
    runs = "1 finished run is" if number == 1 else f"{number} finished runs are"
    return [f"moeperf: {runs} kept in {path}\n  next: {command} --perf-continue    (goes on from them)"]

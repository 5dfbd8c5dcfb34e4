"""Baselines as reviewable JSON files in a folder of the project."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from pytest_moeperf.baselines.codec import LARGEST_BYTES, decode, encode, refuse_secrets, refuse_unstorable
from pytest_moeperf.baselines.locking import LOCKS_FOLDER, StoreLock
from pytest_moeperf.baselines.merge import merge
from pytest_moeperf.baselines.naming import cell_folder, earlier_path, relative_path, same_cell, slug
from pytest_moeperf.baselines.store import Compare, Entry, best_match, orphans_among
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.foreign import read_text, refuse_links
from pytest_moeperf.model.baseline import Baseline, BaselineMatch
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.workload import Cell

_TEMPORARY = ".moeperf-tmp"


class FileStore:
    """``BaselineStore`` in ``root``, which is made when something is first saved.

    A file is replaced as a whole (temporary file in the same folder, fsync, rename) under one lock a store, so a
    reader sees the old or the new one, and a process that is killed at any moment leaves the old or the new one.
    """

    def __init__(self, root: str | Path, *, lock_timeout_s: float = 30.0) -> None:
        self._root = Path(root)
        self._lock = StoreLock(self._root, timeout_s=lock_timeout_s)

    def find(self, *, engine: str, model: str, cell: Cell) -> tuple[Entry, ...]:
        folder = self._root / cell_folder(engine=engine, model=model, cell=cell)
        shape = slug(cell.workload.shape)
        paths = sorted({*folder.glob(f"{shape}@*.json"), *folder.glob(f"{shape}-*@*.json")})
        entries = (Entry(str(path), self._read(path)) for path in paths)
        return tuple(entry for entry in entries if same_cell(entry.baseline, engine=engine, model=model, cell=cell))

    def match(
        self, *, engine: str, model: str, cell: Cell, fingerprint: Fingerprint, compare: Compare
    ) -> BaselineMatch:
        found = self.find(engine=engine, model=model, cell=cell)
        return best_match(found, fingerprint=fingerprint, compare=compare)

    def path_of(self, baseline: Baseline) -> str:
        return str(self._root / relative_path(baseline))

    def save(self, baseline: Baseline) -> Entry:
        earlier = self._root / earlier_path(baseline)
        path = earlier if earlier.exists() else self._root / relative_path(baseline)
        refuse_unstorable(baseline, path=str(path))
        refuse_secrets(baseline, path=str(path))
        self._refuse_links(path)
        with self._lock.held(path):
            stored = self._read(path) if path.exists() else None
            merged = merge(stored, baseline, path=str(path))
            refuse_unstorable(merged, path=str(path))
            if merged != stored:
                _replace(path, encode(merged))
        return Entry(str(path), merged)

    def all(self) -> tuple[Entry, ...]:
        return self._readable()[0]

    def strays(self) -> tuple[BaselineError, ...]:
        """For each ``.json`` that is no baseline which can be read, why not."""
        return self._readable()[1]

    def _readable(self) -> tuple[tuple[Entry, ...], tuple[BaselineError, ...]]:
        paths: list[Path] = []
        for folder, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if name != LOCKS_FOLDER]
            paths.extend(Path(folder) / name for name in names if name.endswith(".json"))
        entries, strays = [], []
        for path in sorted(paths):
            try:
                entries.append(Entry(str(path), self._read(path)))
            except BaselineError as error:
                strays.append(error)
        return tuple(entries), tuple(strays)

    def orphans(self, *, engine: str, model: str, cells: Iterable[Cell]) -> tuple[Entry, ...]:
        return orphans_among(self.all(), engine=engine, model=model, cells=cells)

    def _read(self, path: Path) -> Baseline:
        self._refuse_links(path)
        try:
            text = read_text(path, most_bytes=LARGEST_BYTES)
        except UnicodeDecodeError as error:
            raise BaselineError(
                path=str(path),
                problem=f"is not UTF-8 text (byte {error.start})",
                next_step=f"restore it with `git checkout -- {path}` or from a backup",
            ) from None
        except OSError as error:
            raise BaselineError(
                path=str(path),
                problem=f"can't be read: {error.strerror}",
                next_step="make it a file that this user may read",
            ) from None
        return decode(text, path=str(path))

    def _refuse_links(self, path: Path) -> None:
        """The root may be a link, a folder that a team shares; below it a link could lead anywhere."""
        try:
            refuse_links(path, below=self._root)
        except OSError as error:
            raise BaselineError(
                path=str(error.filename),
                problem=str(error.strerror),
                next_step="put the file itself there, or make the whole baselines folder a link",
            ) from None


def _replace(path: Path, text: str) -> None:
    """:raises BaselineError: with the old file in place and no temporary one left."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path.parent)
        try:
            with temporary.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise BaselineError(
            path=str(path),
            problem=f"can't be written: {error.strerror}; what was there before is unchanged",
            next_step="make room, or make the folder one that this user may write; then record again",
        ) from None


def _remove_leftovers(folder: Path) -> None:
    """Of writers that were killed. Nobody else writes now: the lock is ours."""
    for leftover in folder.glob(f".*{_TEMPORARY}"):
        leftover.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # Makes the rename itself survive a power cut; some file systems can't, and the file is whole either way.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""Stored baselines, by the names that people give them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_moeperf.cli.output import print_lines
from pytest_moeperf.errors import BaselineError, UsageProblem
from pytest_moeperf.foreign import read_text

if TYPE_CHECKING:
    from pytest_moeperf.baselines import Entry
    from pytest_moeperf.model.workload import Cell

MOST_NAMED = 12
"""Cells that an error message lists."""


def names(cell: Cell, text: str) -> bool:
    """``text`` is the cell's key (``triton/c10-in512-out128``), its label, or a part of one of them."""
    return text in cell.key or text in cell.label


def entries_in(folder: Path) -> tuple[Entry, ...]:
    """All baselines of a store. Another file among them is told on standard error, and costs nothing.

    :raises BaselineError: there is nothing else.
    """
    from pytest_moeperf.baselines import FileStore

    store = FileStore(folder)
    entries, strays = store.all(), store.strays()
    if strays and not entries:
        raise strays[0]
    print_lines((line for stray in strays for line in f"left out: {stray}".splitlines()), error=True)
    return entries


def entries_named(text: str, folder: Path) -> tuple[Entry, ...]:
    """The baselines that ``text`` names: a file, a folder, a cell's key or label, or a part of one.

    ``KEY@DIGEST``, where the digest may be shortened, tells the baselines of one cell apart.

    :raises UsageProblem: if there is none; lists what there is.
    :raises BaselineError: for a file that can't be read.
    """
    if text.endswith(".json"):
        return (read_entry(Path(text)),)
    entries = entries_in(folder)
    name, _, digest = text.partition("@")
    near = [entry for entry in entries if digest_of(entry).startswith(digest)]
    whole = tuple(entry for entry in near if name in (entry.baseline.cell.key, entry.baseline.cell.label))
    found = whole or tuple(entry for entry in near if names(entry.baseline.cell, name))
    if not found and Path(text).is_dir():
        found = entries_in(Path(text))
    if not found:
        raise UsageProblem(
            where=text,
            problem=f"names no baseline in {folder}",
            allowed=listed([entry.baseline.cell for entry in entries]) or "nothing is stored there",
        )
    return found


def digest_of(entry: Entry) -> str:
    """Of its fingerprint, as in the file's name."""
    return Path(entry.path).stem.rpartition("@")[2]


def read_entry(path: Path) -> Entry:
    """One baseline file.

    :raises BaselineError: if it can't be read or is none.
    """
    from pytest_moeperf.baselines import Entry
    from pytest_moeperf.baselines.codec import LARGEST_BYTES, decode

    try:
        text = read_text(path, most_bytes=LARGEST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BaselineError(path=str(path), problem=f"can't be read: {reason}") from None
    return Entry(str(path), decode(text, path=str(path)))


def listed(cells: Sequence[Cell]) -> str:
    """The cells' keys, for an error message."""
    keys = list(dict.fromkeys(cell.key for cell in cells))
    further = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    return ", ".join(keys[:MOST_NAMED]) + further

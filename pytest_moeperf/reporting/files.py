"""Report files are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pytest_moeperf.errors import MoeperfError

LAST_REPORT = Path(".moeperf") / "last"
"""Beside the configuration file: the folder of the last invocation's report, whether one was asked for or not."""


@dataclass(eq=False, repr=False)
class ReportError(MoeperfError):
    """A report that could not be made or written. The verdicts of the session stand."""

    path: str
    problem: str
    next_step: str = ""

    def message(self) -> str:
        lines = [f"{self.path}: {self.problem}", "  the verdicts of this session stand; only this report is missing"]
        if self.next_step:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


def write_atomically(path: Path, text: str) -> Path:
    """Write ``text`` beside ``path``, then put it in place; an older report stays until the new one is complete.

    :raises ReportError: names the file and what the system said (no space left, read-only, no permission).
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # NamedTemporaryFile makes it private; a report is meant to be read, uploaded and served.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise ReportError(
            path=str(path),
            problem=f"the report can't be written: {error.strerror or error}",
            next_step="give --perf-report a folder that can be written, with some space left",
        ) from error
    return path

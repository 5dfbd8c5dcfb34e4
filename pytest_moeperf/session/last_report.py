"""The report that every invocation leaves, asked for or not, and the commands that go on from it: what was measured
once need not be measured again to be accepted."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from pathlib import Path

from pytest_moeperf.foreign import refuse_links
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.reporting.files import LAST_REPORT
from pytest_moeperf.session.command import shown_path


def report_folder(settings: Settings, invoked_in: Path) -> Path | None:
    """Where the report was asked for. A path in the configuration file starts at that file, one on the command line or
    in the environment where pytest was started, as paths there do."""
    if not settings.report_dir:
        return None
    from_file = settings.provenance.get("report_dir", "").startswith("file")
    return (Path(settings.root) if from_file else invoked_in) / settings.report_dir


def keep_as_last(written: Path, settings: Settings) -> None:
    """``moeperf accept`` finds it there. One inode where the file system allows it: raw runs may be large.

    :raises OSError: it can't be kept.
    """
    last = Path(settings.root) / LAST_REPORT / written.name
    refuse_links(last.parent, below=Path(settings.root))
    last.parent.mkdir(parents=True, exist_ok=True)
    last.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.link(written, last)
        return
    shutil.copyfile(written, last)


def commands_after(cell: Cell, *, stored: str, settings: Settings, invoked_in: Path) -> dict[str, str]:
    """``accept``: takes the runs of this invocation in; ``diff``: what lies between them and the stored ones.

    :param stored: path of the baseline that the cell was compared with; empty: none.
    """
    asked_for = report_folder(settings, invoked_in)
    report = shown_path(str(asked_for or Path(settings.root) / LAST_REPORT))
    found_from_here = bool(settings.config_file) and invoked_in.is_relative_to(settings.root)
    places = [f"--from={report}"] if asked_for is not None or not found_from_here else []
    if not found_from_here:
        places.append(f"--baselines={shown_path(str(settings.baselines))}")
    accept = " ".join(["moeperf accept", shlex.quote(cell.key), "--reason='why'", *map(shlex.quote, places)])
    return {"accept": accept, "diff": shlex.join(["moeperf", "diff", shown_path(stored), report]) if stored else ""}

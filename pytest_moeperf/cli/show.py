"""``moeperf show``: what is stored, as a table, or one cell in detail."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_moeperf.cli.cells import digest_of, entries_in, entries_named
from pytest_moeperf.cli.commands import DONE, Commands, add_baselines_option, add_json_option
from pytest_moeperf.cli.configuration import settings_here, store_folder
from pytest_moeperf.cli.output import change_text, percent, print_json, print_lines, table, width
from pytest_moeperf.units import format_quantity

if TYPE_CHECKING:
    from pytest_moeperf.baselines import Entry
    from pytest_moeperf.cli.levels import MetricLevel
    from pytest_moeperf.model.baseline import Baseline

HEADER = ("cell", "stored", "tok/s", "sd [%]", "drift", "last change")
LEGEND = (
    "stored: sessions x launches in each; *: provisional (fewer than 4 launches in 2 sessions): sd assumed, not known.",
    "sd: of the throughput between sessions/launches/runs, estimated from the stored runs; -: they can't show it.",
    "drift: of the throughput, from the first level recorded.",
)


def add(commands: Commands) -> None:
    parser = commands.add(
        "show",
        run=run,
        summary="stored baselines as a table, or one cell in detail",
        description="Show the stored baselines: levels, how far the runs spread, drift, last change. "
        "With a cell or a file that names one baseline: its history, change points, launches, "
        "fingerprint and evidence.",
        example="moeperf show\nmoeperf show triton/c10-in512-out128",
    )
    parser.add_argument(
        "cell", metavar="CELL|PATH", nargs="?", help="a cell's name or part of it, a baseline file, or a folder"
    )
    add_baselines_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    folder = store_folder(settings_here(), args.baselines)
    entries = entries_named(args.cell, folder) if args.cell else entries_in(folder)
    if args.json:
        print_json([as_plain(entry) for entry in entries])
    elif len(entries) == 1 and args.cell:
        from pytest_moeperf.cli.show_cell import cell_lines

        print_lines(cell_lines(entries[0], width=width()))
    elif entries:
        print_lines(table_lines(entries, width=width()))
    else:
        print_lines(_nothing(folder))
    return DONE


def as_plain(entry: Entry) -> dict[str, Any]:
    """The whole baseline and what is computed of it, JSON-plain."""
    from pytest_moeperf.cli.levels import metric_levels
    from pytest_moeperf.model.codec import to_plain

    baseline = entry.baseline
    return {
        "path": entry.path,
        "cell": baseline.cell.key,
        "sessions": baseline.sessions,
        "launches": baseline.launches,
        "provisional": baseline.provisional,
        "levels": to_plain(metric_levels(baseline)),
        "baseline": to_plain(baseline),
    }


def table_lines(entries: Sequence[Entry], *, width: int) -> Iterator[str]:
    """A table for each engine, model and backend, then what its columns mean."""
    from pytest_moeperf.reporting.text import wrap

    shapes = Counter(_shape(entry) for entry in entries)
    for (engine, model, backend), group in groupby(sorted(entries, key=_order), key=_group):
        yield f"{backend} ({', '.join(part for part in (engine, model) if part)})"
        rows = [_row(entry, told_apart=shapes[_shape(entry)] > 1) for entry in group]
        yield from table(HEADER, rows, indent="  ")
        yield ""
    for line in LEGEND:
        yield from wrap(line, width=width, rest="  ")


def _group(entry: Entry) -> tuple[str, str, str]:
    return entry.baseline.engine, entry.baseline.model, entry.baseline.cell.backend


def _shape(entry: Entry) -> tuple[str, str, str]:
    return entry.baseline.engine, entry.baseline.model, entry.baseline.cell.key


def _order(entry: Entry) -> tuple[Any, ...]:
    workload = entry.baseline.cell.workload
    shape = (workload.input_len, workload.output_len, workload.request_rate or 0.0, workload.concurrency)
    return (*_group(entry), *shape, entry.path)


def _row(entry: Entry, *, told_apart: bool) -> tuple[str, ...]:
    from pytest_moeperf.cli.levels import metric_levels

    baseline = entry.baseline
    levels = {found.key: found for found in metric_levels(baseline)}
    throughput = levels.get("throughput")
    return (
        baseline.cell.workload.label + (f" @{digest_of(entry)[:4]}" if told_apart else ""),
        stored_text(baseline) + (" *" if baseline.provisional else ""),
        format_quantity(throughput.level) if throughput else "-",
        spread_text(throughput) if throughput else "-",
        change_text(throughput.drift) if throughput and throughput.drift is not None else "-",
        _last_change(baseline),
    )


def stored_text(baseline: Baseline) -> str:
    """``4 x 2``, ``3 x 2.33``: sessions, and launches in each on average."""
    return f"{baseline.sessions} x {baseline.launches / baseline.sessions:.3g}"


def spread_text(found: MetricLevel) -> str:
    return "/".join(percent(sd) for sd in (found.session_sd, found.launch_sd, found.run_sd))


def _last_change(baseline: Baseline) -> str:
    if not baseline.history:
        return "-"
    event = baseline.history[-1]
    return f"{event.at[:10]} {event.kind}"


def _nothing(folder: Path) -> Iterator[str]:
    yield f"no baselines in {folder}"
    yield "  next: pytest -m perf --backend=NAME --update-baselines"

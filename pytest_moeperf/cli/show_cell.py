"""One stored baseline in detail."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_moeperf.baselines import Entry, history_series
from pytest_moeperf.baselines.levels import effect
from pytest_moeperf.cli.levels import bound_of, metric_levels, parts_of
from pytest_moeperf.cli.output import change_text, percent, table
from pytest_moeperf.cli.show import stored_text
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.fingerprint import label
from pytest_moeperf.model.baseline import Baseline, BaselineEvent
from pytest_moeperf.model.run import FINGERPRINT_GROUPS, Plain
from pytest_moeperf.reporting.figures import count
from pytest_moeperf.reporting.text import safe, wrap
from pytest_moeperf.stats.changepoints import FEWEST, change_points
from pytest_moeperf.units import format_quantity

_GATED = ("throughput", "tpot", "goodput")
"""Metrics that a history's line shows, where it has them."""


def cell_lines(entry: Entry, *, width: int) -> Iterator[str]:
    """Everything that is stored of one cell."""
    baseline = entry.baseline
    engine = ", ".join(part for part in (baseline.engine, baseline.model) if part)
    yield f"{baseline.cell.label} ({engine})"
    yield f"  {entry.path}"
    provisional = ", provisional: sd between sessions assumed, not known" if baseline.provisional else ""
    runs = count(len(baseline.runs), "run")
    yield from wrap(
        f"stored: {stored_text(baseline)} (sessions x launches in each), {runs}{provisional}",
        width=width,
        first="  ",
        rest="    ",
    )
    if baseline.provenance:
        yield from wrap(f"imported from: {safe(baseline.provenance)}", width=width, first="  ", rest="    ")
    yield ""
    yield from _levels(baseline)
    if any(run.values.get("throughput") for run in baseline.runs):
        yield from wrap(_how_sure(baseline), width=width, first="", rest="  ")
    yield ""
    yield "history"
    for event in baseline.history:
        yield from _event(event, width=width)
    yield from _changes(baseline, width=width)
    yield ""
    yield "launches, oldest first"
    yield from _launches(baseline)
    yield ""
    yield from _evidence(baseline, width=width)
    yield ""
    yield "fingerprint"
    yield from _fingerprint(baseline, width=width)


def _levels(baseline: Baseline) -> list[str]:
    header = ("metric", "level", "sd [%] session", "launch", "run", "drift")
    rows = [
        (
            found.key,
            f"{format_quantity(found.level)} {found.unit}",
            percent(found.session_sd),
            percent(found.launch_sd),
            percent(found.run_sd),
            "-" if found.drift is None else change_text(found.drift),
        )
        for found in metric_levels(baseline)
    ]
    return table(header, rows)


def _how_sure(baseline: Baseline) -> str:
    """A handful of launches says little of how far the next will lie."""
    parts = parts_of(baseline.runs, "throughput")
    intervals = (
        ("sessions", parts.session_sd_interval()),
        ("launch means", parts.launch_sd_interval()),
        ("runs", parts.run_sd_interval()),
    )
    told = [
        f"{name} {low * 100:.2f} to {high * 100:.2f} %" if math.isfinite(high) else f"{name} not known"
        for name, (low, high) in intervals
    ]
    return f"sd of the throughput, 90 % intervals: {', '.join(told)}"


def _event(event: BaselineEvent, *, width: int) -> list[str]:
    moved = "; ".join(_figures(event))
    text = f"{event.at[:19]}  {event.kind}, {count(event.runs, 'run')}"
    text += f", by {event.by}" if event.by else ""
    text += f"; {moved}" if moved else ""
    text += f"; reason{' given' if event.accepted else ''}: {safe(event.reason)}"
    return wrap(text, width=width, first="  ", rest="      ")


def _figures(event: BaselineEvent) -> Iterator[str]:
    for key in _GATED:
        if key in event.change:
            bound = bound_of(key)
            drift = f" (drift {change_text(bound.ratio(event.drift[key]))})" if key in event.drift else ""
            yield f"{key} {change_text(bound.ratio(event.change[key]))}{drift}"


def _changes(baseline: Baseline, *, width: int) -> Iterator[str]:
    """Change points of the throughput over all launches ever stored."""
    points = [point for point in history_series(baseline) if "throughput" in point.values]
    if len(points) < FEWEST:
        yield from wrap(
            f"change points: not looked for, {len(points)} launches are fewer than {FEWEST}", width=width, rest="  "
        )
        return
    try:
        found = change_points([effect("throughput", point.values["throughput"]) for point in points])
    except UsageProblem as problem:
        yield from wrap(
            f"change points: not looked for, {problem.problem}: {problem.next_step}", width=width, rest="  "
        )
        return
    if not found:
        yield f"change points of the throughput over {len(points)} launches: none"
        return
    yield f"change points of the throughput over {len(points)} launches"
    throughput = bound_of("throughput")
    for point in found:
        first = points[point.index]
        yield f"  {first.started_at[:19]}  {change_text(throughput.ratio(point.change))} from launch {first.launch}"


def _launches(baseline: Baseline) -> list[str]:
    starts = {run.launch: run.start_s for run in (*baseline.anchor, *baseline.retired, *baseline.runs)}
    anchor = {run.launch for run in baseline.anchor}
    rows = []
    for point in history_series(baseline):
        start_s = starts.get(point.launch)
        level = "current" if point.current else "retired"
        rows.append(
            (
                point.started_at[:19] or "-",
                point.session,
                point.launch,
                str(point.runs),
                format_quantity(point.values["throughput"]) if "throughput" in point.values else "-",
                "-" if start_s is None else f"{start_s:.1f} s",
                f"{level}, anchor" if point.launch in anchor else level,
            )
        )
    return table(("started", "session", "launch", "runs", "tok/s", "start", "level"), rows, indent="  ")


def _evidence(baseline: Baseline, *, width: int) -> Iterator[str]:
    evidence = baseline.evidence
    runner = evidence.runner or evidence.requested or "not known"
    yield from wrap(f"ran: {safe(runner)} ({evidence.status})", width=width, rest="  ")
    for item in evidence.items:
        yield from wrap(f'{item.says}: {safe(item.source)}: "{safe(item.text)}"', width=width, first="  ", rest="    ")
    if evidence.status == "unknown" and evidence.looked_for:
        yield from wrap(f"looked for: {', '.join(evidence.looked_for)}", width=width, first="  ", rest="    ")


def _fingerprint(baseline: Baseline, *, width: int) -> Iterator[str]:
    previous = ""
    fields = [
        (group, name, value)
        for group in FINGERPRINT_GROUPS
        for name, value in sorted(getattr(baseline.fingerprint, group).items())
    ]
    for group, name, value in fields:
        if group != previous:
            yield f"  {label(group)}"
            previous = group
        yield from wrap(f"{label(f'{group}.{name}')}: {_shown(value)}", width=width, first="    ", rest="      ")
    recorded = {group for group, _, _ in fields}
    missing = [label(group) for group in FINGERPRINT_GROUPS if group not in recorded]
    if missing:
        yield from wrap(f"not known: {', '.join(missing)}", width=width, first="  ", rest="    ")


def _shown(value: Plain) -> str:
    if value is None:
        return "unknown"
    return str(value).lower() if isinstance(value, bool) else safe(str(value))

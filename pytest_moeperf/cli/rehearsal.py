"""Many rehearsals of one cell, and whether they reach their targets."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from pytest_moeperf.cli.cells import MOST_NAMED, digest_of, entries_named
from pytest_moeperf.cli.output import percent, table
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import Noise, Rehearsed, noise_of, rehearse
from pytest_moeperf.reporting.text import wrap
from pytest_moeperf.units import format_duration, format_percent

STATED_SESSIONS, STATED_LAUNCHES = 4, 2
LAUNCH_S, RUN_S = 60.0, 20.0
"""Where neither the store nor the command line knows."""
T = TypeVar("T")

CERTAIN = 2.0
"""Standard errors beyond which a target counts as missed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsal:
    """What was rehearsed, and what came of it."""

    subject: str
    """The cell's label; empty: a stated noise alone."""
    metric: str
    noise: Noise
    sessions: int
    launches: int
    """Stored ones in each session."""
    launch_s: float
    run_s: float
    gate: GateSettings
    target_caught: float
    target_false_alarms: float
    results: tuple[Rehearsed, ...]


def rehearse_all(args: argparse.Namespace, *, gate: GateSettings, folder: Path) -> Rehearsal:
    """Run what the command line asks for.

    :raises UsageProblem: for a cell that is not stored, or has not this metric.
    """
    bound = Bound(metric=args.metric, regression=gate.regression, win=gate.win)
    stored = _stored(args.cell, folder) if args.cell is not None else None
    noise = _noise(args, stored, bound, gate)
    cell = stored.cell if stored else Cell(backend="rehearsed", workload=Workload(concurrency=1))
    sessions = _first_known(args.sessions, stored.sessions if stored else None, STATED_SESSIONS)
    per_session = round(stored.launches / stored.sessions) if stored else None
    launches = _first_known(args.launches, per_session, STATED_LAUNCHES)
    launch_s = _first_known(args.launch_time, _median_of(stored, lambda run: run.start_s), LAUNCH_S)
    run_s = _first_known(args.run_time, _median_of(stored, lambda run: run.run_s), RUN_S)
    plan = CellPlan(cell=cell, bounds=(bound,))
    return Rehearsal(
        subject=cell.label if stored else "",
        metric=bound.metric,
        noise=noise,
        sessions=sessions,
        launches=launches,
        launch_s=launch_s,
        run_s=run_s,
        gate=gate,
        target_caught=args.caught,
        target_false_alarms=args.false_alarms,
        results=tuple(
            rehearse(
                plan,
                noise=noise,
                settings=gate,
                change=change,
                sessions=sessions,
                launches=launches,
                trials=args.trials,
                seed=args.seed,
                reference=not args.no_reference,
                launch_s=launch_s,
                run_s=run_s,
            )
            for change in _changes(args)
        ),
    )


def _changes(args: argparse.Namespace) -> tuple[float, ...]:
    from pytest_moeperf.cli.rehearse import CHANGES

    return tuple(dict.fromkeys(args.change)) if args.change else CHANGES


def _stored(text: str, folder: Path) -> Baseline:
    entries = entries_named(text, folder)
    if len(entries) > 1:
        raise UsageProblem(
            where=text,
            problem=f"names {len(entries)} baselines in {folder}",
            allowed=", ".join(f"{entry.baseline.cell.key}@{digest_of(entry)[:4]}" for entry in entries[:MOST_NAMED]),
        )
    return entries[0].baseline


def _noise(args: argparse.Namespace, stored: Baseline | None, bound: Bound, gate: GateSettings) -> Noise:
    if stored is None:
        noise = Noise(session_sd=args.session_sd, launch_sd=args.launch_sd)
    elif not any(bound.key in run.values for run in stored.runs):
        raise UsageProblem(where="--metric", problem=f"the stored runs of {stored.cell.label} have no {bound.key}")
    else:
        noise = noise_of(stored, bound, settings=gate)
    if args.session_sd is not None:
        noise = replace(noise, session_sd=args.session_sd)
    if args.launch_sd is not None:
        noise = replace(noise, launch_sd=args.launch_sd, launch_pool=())
    if args.run_sd is not None:
        noise = replace(noise, run_sd=args.run_sd, run_pool=())
    return noise


def _median_of(stored: Baseline | None, field: Callable[[StoredRun], float | None]) -> float | None:
    known = [value for run in stored.runs if (value := field(run)) is not None] if stored else []
    return median(known) if known else None


def _first_known(*values: T | None) -> T:
    return next(value for value in values if value is not None)


def find_missed(rehearsal: Rehearsal) -> tuple[str, ...]:
    """Targets that are missed by more than the rehearsal's own error, a sentence each."""
    missed = []
    for result in rehearsal.results:
        change = _change_text(result)
        if result.change == 0:
            for verdict in (Verdict.REGRESSION, Verdict.UNVERIFIED_WIN):
                found = result.share(verdict)
                if found - CERTAIN * result.error(found) > rehearsal.target_false_alarms:
                    missed.append(
                        f"no change at all is called {verdict} in {format_percent(found)} of the campaigns, "
                        f"more than {format_percent(rehearsal.target_false_alarms)}"
                    )
        elif result.change <= -rehearsal.gate.regression + 1e-9:
            found = result.share(Verdict.REGRESSION)
            if found + CERTAIN * result.error(found) < rehearsal.target_caught:
                missed.append(
                    f"{change} is caught in {format_percent(found)} of the campaigns, "
                    f"less than {format_percent(rehearsal.target_caught)}"
                )
    return tuple(missed)


def rehearsal_lines(rehearsal: Rehearsal, *, width: int) -> Iterator[str]:
    """The noise, a row a change, and what was missed."""
    noise, gate = rehearsal.noise, rehearsal.gate
    subject = f"{rehearsal.subject}, " if rehearsal.subject else ""
    yield from wrap(
        f"{subject}{rehearsal.metric}; sd between sessions/launches/runs "
        f"{percent(noise.session_sd)}/{percent(noise.launch_sd)}/{percent(noise.run_sd)} %",
        width=width,
        rest="  ",
    )
    held = f"{rehearsal.sessions} x {rehearsal.launches} stored launches (sessions x launches in each)"
    held = held if rehearsal.sessions else "nothing"
    budget = f", budget {format_duration(gate.budget_s)}" if gate.budget_s is not None else ""
    yield from wrap(
        f"held against {held}; margins: loss {format_percent(gate.regression)}, gain {format_percent(gate.win)}; "
        f"a launch takes {format_duration(rehearsal.launch_s)}, a run {format_duration(rehearsal.run_s)}{budget}",
        width=width,
        rest="  ",
    )
    yield ""
    rows = [
        (
            _change_text(result) if result.change else "none",
            f"{format_percent(result.failed)} +- {result.error(result.failed) * 100:.1f}",
            f"{result.launches:.1f}",
            f"{result.minutes:.1f}",
        )
        for result in rehearsal.results
    ]
    head, *lines = table(("change", "test fails", "launches", "minutes"), rows)
    yield f"{head}  verdicts"
    for line, result in zip(lines, rehearsal.results, strict=True):
        yield from wrap(_verdicts(result), width=width, first=f"{line:<{len(head)}}  ", rest=" " * (len(head) + 2))
    yield ""
    missed = find_missed(rehearsal)
    trials = rehearsal.results[0].trials
    if not missed:
        yield f"every target is reached, as far as {trials} campaigns a change can tell"
    for sentence in missed:
        yield from wrap(f"missed: {sentence}", width=width, rest="  ")


def _change_text(result: Rehearsed) -> str:
    return f"{result.change * 100:+.3g} %"


def _verdicts(result: Rehearsed) -> str:
    ordered = sorted(result.verdicts.items(), key=lambda item: -item[1])
    return ", ".join(f"{verdict} {format_percent(found)}" for verdict, found in ordered)

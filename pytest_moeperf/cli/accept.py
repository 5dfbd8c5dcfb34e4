"""``moeperf accept``: take the runs of a report into the baselines, with a reason."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_moeperf.cli.cells import listed, names
from pytest_moeperf.cli.commands import DONE, NO, Commands, add_baselines_option
from pytest_moeperf.cli.configuration import report_at, settings_here, store_at
from pytest_moeperf.cli.output import change_text, print_lines, width
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.settings import Settings

if TYPE_CHECKING:
    from pytest_moeperf.baselines import BaselineStore, Refusal, Update
    from pytest_moeperf.model.verdict import Outcome

BY = "moeperf accept"
_TO_SECONDS = len("2026-11-01T10:00:00")


def add(commands: Commands) -> None:
    parser = commands.add(
        "accept",
        run=run,
        summary="take the last report's runs of a cell into its baseline",
        description="Record the runs of a report as the accepted baseline of a cell, without measuring again. "
        "The rules are those of --update-baselines: only valid runs, no win that nobody verified. "
        "The reason is kept in the baseline's history. Exit code 1: refused, nothing was written.",
        example="pytest -m perf --backend=triton\n"
        'moeperf accept triton/c10-in512-out128 --reason "slower since the security fix in 0.5.15"',
    )
    parser.add_argument(
        "cell",
        metavar="CELL",
        help="a cell's name or part of it; @DIGEST behind it, as moeperf show has it, is the baseline it must be",
    )
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why this level is accepted")
    parser.add_argument(
        "--from",
        dest="report",
        metavar="REPORT_DIR",
        help="folder or file of the report; default: that of the configuration, else of the last invocation",
    )
    add_baselines_option(parser)


def run(args: argparse.Namespace) -> int:
    from pytest_moeperf.baselines import Refusal
    from pytest_moeperf.cli.report_file import digest_of, read_report
    from pytest_moeperf.reporting.text import fill, wrap

    if not args.reason.strip():
        raise UsageProblem(where="--reason", problem="is empty", allowed="a sentence that the history keeps")
    settings = settings_here()
    report = report_at(settings, args.report)
    name, _, digest = args.cell.partition("@")
    outcomes = outcomes_of(name, read_report(report), report=report)
    store = store_at(settings, args.baselines)
    by = f"{BY}, report {digest_of(report)}"
    proposal = propose(outcomes, digest=digest, settings=settings, store=store, reason=args.reason, by=by)
    cell = outcomes[0].decision.cell
    if isinstance(proposal, Refusal):
        pytest_command = f"pytest -m perf --backend={shlex.quote(cell.backend)}"
        next_step = fill(proposal.next_step, node_id=outcomes[0].node_id, pytest_command=pytest_command)
        why = wrap(f"{proposal.reason} {proposal.because}".rstrip(), width=width(), first="  ", rest="  ")
        print_lines([f"{cell.label}: not accepted", *why, f"  next: {next_step}"], error=True)
        return NO
    print_lines(_told(proposal, store.save(proposal.baseline).path))
    return DONE


def outcomes_of(text: str, outcomes: Sequence[Outcome], *, report: Path) -> tuple[Outcome, ...]:
    """Those of the one cell that ``text`` names.

    :raises UsageProblem: if it names none or several; lists what the report has.
    """
    cells = {outcome.decision.cell.key: outcome.decision.cell for outcome in outcomes}
    exact = [key for key, cell in cells.items() if text in (key, cell.label)]
    found = exact or [key for key, cell in cells.items() if names(cell, text)]
    if len(found) != 1:
        raise UsageProblem(
            where=text,
            problem=f"names {len(found) or 'no'} cell{'s' * (len(found) > 1)} of {report}",
            allowed=listed([cells[key] for key in found or cells]) or "the report has no cell",
        )
    return tuple(outcome for outcome in outcomes if outcome.decision.cell.key == found[0])


def propose(
    outcomes: Sequence[Outcome], *, digest: str, settings: Settings, store: BaselineStore, reason: str, by: str
) -> Update | Refusal:
    """What ``--update-baselines`` would have made of the outcomes of one cell, which may be those of several tests.

    :param digest: how that of the baseline's fingerprint must begin.
    :param by: what the history keeps as the source.
    :raises UsageProblem: the runs belong to another baseline of the cell.
    """
    from pytest_moeperf.baselines import Refusal, propose_update, stored_runs
    from pytest_moeperf.baselines.naming import fingerprint_digest
    from pytest_moeperf.baselines.recording import runs_to_record
    from pytest_moeperf.cli.report_file import candidate_runs
    from pytest_moeperf.fingerprint import differences
    from pytest_moeperf.model.verdict import SEVERITY, Verdict
    from pytest_moeperf.validity.figures import contradiction

    gravest = min(outcomes, key=lambda outcome: SEVERITY.index(outcome.verdict))
    results = tuple(dict.fromkeys(result for outcome in outcomes for result in outcome.decision.results))
    decision = replace(gravest.decision, results=results)
    bounds = tuple(dict.fromkeys(result.bound for result in results))
    runs = runs_to_record(candidate_runs(outcomes), decision)
    for run in runs:
        if contradicts := contradiction(run):
            return Refusal(
                reason=f"The report contradicts itself: run {run.index + 1} of launch {run.launch.id} has "
                f"{contradicts}.",
                next_step="{pytest} -k {node}    (measures again; the report was edited, or its file is damaged)",
            )
    last = next((run for run in reversed(runs) if not run.warmup), None)
    if last is None:
        return Refusal(reason="The report has no run of this cell.", next_step="{pytest} -k {node}")
    engine, model = gravest.session.get("engine", ""), gravest.session.get("model", "")
    match = store.match(
        engine=engine, model=model, cell=decision.cell, fingerprint=last.fingerprint, compare=differences
    )
    existing = match.baseline if match.comparable else None
    belongs_to = fingerprint_digest(existing.fingerprint if existing else last.fingerprint)
    if not belongs_to.startswith(digest):
        raise UsageProblem(
            where=f"{decision.cell.key}@{digest}",
            problem=f"these runs were made under another fingerprint than @{digest}",
            allowed=f"{decision.cell.key}@{belongs_to}",
            next_step=f"moeperf show {decision.cell.key}",
        )
    moved = [event.at for event in existing.history if event.kind == "moved"] if existing else []
    if moved and moved[-1][:_TO_SECONDS] > last.started_at[:_TO_SECONDS]:
        return Refusal(
            reason=f"The level was moved at {moved[-1]}, after these runs were measured and held against it.",
            next_step="{pytest} -k {node}",
        )
    return propose_update(
        existing,
        stored_runs(runs, bounds),
        engine=engine,
        model=model,
        bounds=bounds,
        decision=decision,
        fingerprint=last.fingerprint,
        evidence=last.evidence,
        max_drift=settings.gate.max_drift,
        by=by,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        reason=reason,
        verified=gravest.verdict is Verdict.VERIFIED_WIN,
    )


def _told(update: Update, path: str) -> Iterator[str]:
    from pytest_moeperf.cli.levels import bound_of

    event = update.event
    yield f"{update.baseline.cell.label}: {event.kind}, {event.runs} runs"
    for key in ("throughput", "tpot"):
        if key in event.change:
            bound = bound_of(key)
            drift = change_text(bound.ratio(event.drift[key])) if key in event.drift else "-"
            yield f"  {key} {change_text(bound.ratio(event.change[key]))}, {drift} from the first level"
    yield f"  {path}"

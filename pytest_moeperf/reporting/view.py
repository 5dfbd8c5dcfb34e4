"""The view: everything that any reporter shows, computed once. Reporters only lay it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.codec import from_plain, to_plain
from pytest_moeperf.model.comparability import HARMLESS_ENV
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import NO_MODEL
from pytest_moeperf.model.verdict import SEVERITY, BoundResult, Outcome, Verdict
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.outgoing import told
from pytest_moeperf.outgoing.variables import variable_text
from pytest_moeperf.reporting.conditions import notes_of
from pytest_moeperf.reporting.figures import Change, change_of, deciding_result, measured_throughput
from pytest_moeperf.reporting.spent import Spent
from pytest_moeperf.reporting.text import safe
from pytest_moeperf.reporting.wording import Finding, find
from pytest_moeperf.units import format_duration

WARNED = "warned"
PASSED = "passed"
FAILED = "failed"
RECORDED = "recorded"
"""Shown for a cell that an update recorded, whatever it was held against."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading:
    """What was held against what, where, at what cost. Empty and None: not known."""

    engine: str
    model: str = ""
    hardware: str = ""
    candidates: tuple[str, ...] = ()
    reference: str = ""
    """Backend whose baseline the candidates are held against; empty: each against its own."""
    beside: str = ""
    """What is launched beside the candidates, where that is no backend's own server: ``[tool.moeperf.reference]``."""
    plan: str = ""
    """Before measuring: ``1 launch to screen, up to 8 pairs, at most 34 min``. Shown instead of what was used."""
    launches: int | None = None
    elapsed_s: float | None = None
    spent: Spent | None = None
    """Of ``elapsed_s``."""

    @property
    def subject(self) -> str:
        names = ", ".join(self.candidates) or "all backends"
        other = self.reference if self.candidates != (self.reference,) else ""
        own = "its own baseline" if len(self.candidates) == 1 else "their own baselines"
        beside = f" and {self.beside}" if self.beside else ""
        return f"{names} held against {other or own}{beside}"

    @property
    def place(self) -> str:
        """Hardware, model, engine. The simulated engine is always named: its figures are no measurement of a GPU."""
        parts = (self.hardware, self.model if self.model != NO_MODEL else "", self.engine)
        return ", ".join(dict.fromkeys(part for part in parts if part))

    @property
    def cost(self) -> str:
        if self.plan:
            return self.plan
        used = []
        if self.launches is not None:
            used.append(f"{self.launches} launch{'' if self.launches == 1 else 'es'}")
        if self.elapsed_s is not None:
            used.append(format_duration(self.elapsed_s))
        return ", ".join(used)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One bound of one cell: the deciding one, or (``further``) another whose verdict differs."""

    cell: Cell
    node_id: str
    metric: str
    """``throughput``, ``p99 TTFT``."""
    unit: str
    verdict: Verdict
    status: str
    """Of the test: ``passed``, ``failed`` or ``warned``."""
    recorded: bool = False
    """This invocation stored the runs as baseline; the test passed whatever the verdict."""
    further: bool = False
    baseline: float | None = None
    measured: float | None = None
    change: Change | None = None
    launches: str = ""
    """``1 + 4x2``: one to screen, four pairs."""
    test: str = ""
    """Its name, where several tests share the cell."""
    efficiency: float | None = None
    """Share of the ceiling, 0..1."""

    @property
    def verdict_text(self) -> str:
        return shown_verdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingLine:
    name: str
    value: str
    source: str
    """``default``, a file, an environment variable, a flag."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """The one input of all reporters. Holds no secret."""

    heading: Heading
    started_at: str
    """ISO 8601."""
    rows: tuple[Row, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Of tests that did not pass, the gravest first."""
    remarks: tuple[Finding, ...] = ()
    """Of tests that passed and still have something to say: a verified win, a power, a baseline not written."""
    notes: tuple[str, ...] = ()
    settings: tuple[SettingLine, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Fact -> value: GPU, driver, kernel, ..."""
    outcomes: tuple[Outcome, ...] = ()
    """As they were decided, raw runs included."""
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    """By ``Cell.key`` of the cell that is held against it; for curves of the stored runs."""


def build_view(
    outcomes: Sequence[Outcome],
    *,
    heading: Heading,
    settings: Settings,
    started_at: str,
    pytest_command: str = "pytest -m perf",
    environment: Mapping[str, str] | None = None,
    baselines: Mapping[str, Baseline] | None = None,
    orphans: Sequence[str] = (),
    notes: Sequence[str] = (),
    all_bounds: bool = False,
) -> View:
    """Compute what is shown.

    :param settings: shown with the source of each value (``provenance``; what it does not name is ``default``).
    :param pytest_command: stands for ``{pytest}`` in next steps: this invocation without node ids and ``-k``.
    :param baselines: by ``Cell.key``, if their stored runs are to be drawn.
    :param orphans: baselines that no collected test asks for.
    :param notes: further lines under the table.
    :param all_bounds: a row for every bound, not only for those whose verdict differs from the cell's.
    """
    clean = from_plain(tuple[Outcome, ...], told(to_plain(tuple(outcomes))))
    heading = from_plain(Heading, told(to_plain(heading)))
    warn = settings.gate.inconclusive == "warn"
    findings = [
        (outcome, find(outcome, pytest_command=pytest_command))
        for outcome in clean
        if status_of(outcome, warn=warn) != PASSED
    ]
    findings.sort(key=lambda pair: SEVERITY.index(pair[0].verdict))
    return View(
        heading=heading,
        started_at=started_at,
        rows=_named_apart([row for outcome in clean for row in _rows(outcome, warn=warn, all_bounds=all_bounds)]),
        findings=tuple(finding for _, finding in findings),
        remarks=tuple(
            find(outcome, pytest_command=pytest_command)
            for outcome in clean
            if status_of(outcome, warn=warn) == PASSED and _speaks(outcome)
        ),
        notes=tuple(_notes(clean, reference=heading.reference, orphans=told(tuple(orphans)), notes=notes)),
        settings=tuple(_setting_lines(settings)),
        environment={safe(key): safe(value) for key, value in (environment or {}).items()},
        outcomes=clean,
        baselines=from_plain(dict[str, Baseline], told(to_plain(dict(baselines or {})))),
    )


def status_of(outcome: Outcome, *, warn: bool) -> str:
    """Of the test that this outcome belongs to. ``warn``: ``--perf-inconclusive=warn``."""
    if outcome.refused:
        # What was asked for, an update, did not happen.
        return FAILED
    if outcome.verdict.passes or outcome.recorded:
        return PASSED
    return WARNED if warn and outcome.verdict is Verdict.INCONCLUSIVE else FAILED


def shown_verdict(cell: Outcome | Row) -> str:
    return RECORDED if cell.recorded else cell.verdict.value


def counts(view: View) -> dict[str, int]:
    """Cells by shown verdict, the gravest first; verdicts without a cell are left out."""
    found = Counter(shown_verdict(outcome) for outcome in view.outcomes)
    order = (*(verdict.value for verdict in SEVERITY), RECORDED)
    return {verdict: found[verdict] for verdict in order if found[verdict]}


def launches_text(outcome: Outcome) -> str:
    """``1 + 4x2``: launches of the screen, then pairs of candidate and reference."""
    decision = outcome.decision
    screened = max(decision.candidate_launches - decision.pairs, 0)
    parts = [str(screened)] if screened or not decision.pairs else []
    if decision.pairs:
        parts.append(f"{decision.pairs}x2")
    return " + ".join(parts)


def _speaks(outcome: Outcome) -> bool:
    return outcome.verdict in (Verdict.VERIFIED_WIN, Verdict.NO_CHANGE_SEEN) or outcome.refused is not None


def _rows(outcome: Outcome, *, warn: bool, all_bounds: bool) -> Iterable[Row]:
    status = status_of(outcome, warn=warn)
    cell, node_id = outcome.decision.cell, outcome.node_id
    deciding = deciding_result(outcome)
    trusted = outcome.verdict is not Verdict.INVALID
    if deciding is None:
        yield Row(
            cell=cell,
            node_id=node_id,
            metric="throughput",
            unit="tok/s",
            verdict=outcome.verdict,
            status=status,
            recorded=outcome.recorded is not None,
            measured=measured_throughput(outcome) if trusted else None,
            launches=launches_text(outcome),
            efficiency=outcome.efficiency if trusted else None,
        )
        return
    yield _bound_row(deciding, outcome, status=status, further=False)
    for result in outcome.decision.results:
        if result is not deciding and (all_bounds or result.verdict is not deciding.verdict):
            yield _bound_row(result, outcome, status=status, further=True)


def _named_apart(rows: Sequence[Row]) -> tuple[Row, ...]:
    tests: dict[Cell, set[str]] = {}
    for row in rows:
        tests.setdefault(row.cell, set()).add(row.node_id)
    return tuple(
        replace(row, test=row.node_id.partition("[")[0].rpartition("::")[2])
        if len(tests[row.cell]) > 1 and not row.further
        else row
        for row in rows
    )


def _bound_row(result: BoundResult, outcome: Outcome, *, status: str, further: bool) -> Row:
    return Row(
        cell=outcome.decision.cell,
        node_id=outcome.node_id,
        metric=result.bound.label,
        unit=result.bound.unit,
        verdict=result.verdict if further else outcome.verdict,
        status=status,
        recorded=outcome.recorded is not None,
        further=further,
        baseline=result.baseline,
        measured=result.measured,
        change=change_of(result),
        launches="" if further else launches_text(outcome),
        efficiency=None if further else outcome.efficiency,
    )


def _notes(
    outcomes: Sequence[Outcome], *, reference: str, orphans: Sequence[str], notes: Sequence[str]
) -> Iterable[str]:
    held_against = [
        replace(cell, backend=reference or cell.backend).label
        for cell in (outcome.decision.cell for outcome in outcomes if outcome.decision.provisional)
    ]
    provisional = list(dict.fromkeys(held_against))
    if provisional:
        yield (
            f"Provisional baseline (fewer than 4 launches in 2 sessions, so the variance between sessions is assumed): "
            f"{_list(provisional)}."
        )
    unknown = [
        outcome.decision.cell.label for outcome in outcomes if outcome.evidence.status == "unknown" and outcome.runs
    ]
    if unknown:
        yield f"Unknown which backend really ran (--perf-strict-evidence makes this INVALID): {_list(unknown)}."
    yield from (safe(note) for note in notes_of(outcomes))
    recorded = sorted({outcome.recorded for outcome in outcomes if outcome.recorded})
    if recorded:
        yield f"Recorded: {_list(recorded)}."
    if orphans:
        yield f"Baselines that no collected test asks for: {_list(orphans)}."
    yield from (safe(note) for note in notes)


def _list(names: Sequence[str], limit: int = 6) -> str:
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def _setting_lines(settings: Settings) -> Iterable[SettingLine]:
    plain = to_plain(settings)
    for server in (plain["server"], *plain["backend_servers"].values(), *plain["reference_servers"].values()):
        server["env"] = {
            name: variable_text(name, value, harmless=HARMLESS_ENV) for name, value in server["env"].items()
        }
    plain = told(plain)
    provenance = plain.pop("provenance")
    for name, value in _flatten(plain):
        source = (
            provenance.get(name) or provenance.get(name.rpartition(".")[2]) or provenance.get(name.partition(".")[0])
        )
        yield SettingLine(name=name, value=value, source=source or "default")


def _flatten(plain: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in plain.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{key}", " ".join(str(item) for item in value)
        else:
            yield f"{prefix}{key}", "" if value is None else str(value)

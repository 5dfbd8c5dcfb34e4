"""One self-contained HTML page: works offline, on a phone, in the dark and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_moeperf import __version__
from pytest_moeperf.model.run import CANDIDATE, FINGERPRINT_GROUPS, REFERENCE, EvidenceItem, Fingerprint
from pytest_moeperf.model.verdict import Outcome, Verdict
from pytest_moeperf.reporting import charts
from pytest_moeperf.reporting.arms import STORED, arms_of
from pytest_moeperf.reporting.charts import Figure, verdict_class
from pytest_moeperf.reporting.files import ReportError, write_atomically
from pytest_moeperf.reporting.table import change_text
from pytest_moeperf.reporting.view import FAILED, View, counts, shown_verdict
from pytest_moeperf.reporting.wording import Finding, find, ran_text
from pytest_moeperf.units import format_duration, format_percent, format_quantity

FILE_NAME = "moeperf.html"
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, kw_only=True, slots=True)
class FactLine:
    """One fingerprint field of both arms."""

    name: str
    reference: str
    candidate: str
    differs: bool
    blocking: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CellSection:
    """Everything about one cell."""

    anchor: str
    title: str
    outcome: Outcome
    finding: Finding
    kind: str
    """``pass``, ``unsure`` or ``fail``."""
    ran: str
    seen: tuple[EvidenceItem, ...]
    """What the evidence rests on; a line that says two things stands there once."""
    facts: tuple[FactLine, ...]
    """Fields that differ."""
    equal_facts: tuple[FactLine, ...]
    trace: Figure | None
    latencies: Figure | None
    stored: bool
    """The trace shows the stored baseline."""


def write_html(view: View, directory: Path | str) -> Path:
    """Write ``moeperf.html`` into ``directory``.

    :raises ReportError: if jinja2 or plotly is missing, or the file can't be written.
    """
    path = Path(directory) / FILE_NAME
    try:
        text = render_html(view)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"jinja2", "markupsafe", "plotly", "narwhals"}:
            raise
        raise ReportError(
            path=str(path),
            problem=f"the HTML page needs {error.name}, which is not installed",
            next_step=f"pip install 'pytest-moeperf[report]', then moeperf report {directory} draws it",
        ) from error
    return write_atomically(path, text)


def render_html(view: View) -> str:
    """The page as text. Every text is escaped by the template engine; scripts get JSON that can't close its tag."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        quantity=format_quantity, percent=format_percent, change=change_text, duration=format_duration
    )
    sections = tuple(_sections(view))
    return environment.get_template("report.html.j2").render(
        view=view,
        version=__version__,
        plotly=get_plotlyjs(),
        style=(_TEMPLATES / "report.css").read_text("utf-8"),
        script=(_TEMPLATES / "report.js").read_text("utf-8"),
        verdicts=_verdicts(view),
        failed=any(row.status == FAILED for row in view.rows) or not view.rows,
        anchors={section.outcome.node_id: section.anchor for section in sections},
        sections=sections,
        sweeps=tuple(_sweeps(view)),
        changed_settings=[line for line in view.settings if line.source != "default"],
        default_settings=[line for line in view.settings if line.source == "default"],
    )


def _verdicts(view: View) -> list[tuple[str, int, str]]:
    kinds = {shown_verdict(outcome): verdict_class(outcome) for outcome in view.outcomes}
    return [(verdict, number, kinds[verdict]) for verdict, number in counts(view).items()]


def _sweeps(view: View) -> Iterable[dict[str, Any]]:
    """One pair of charts for each backend and shape."""
    groups: dict[tuple[str, int, int], list[Outcome]] = {}
    for outcome in view.outcomes:
        workload = outcome.decision.cell.workload
        groups.setdefault((outcome.decision.cell.backend, workload.input_len, workload.output_len), []).append(outcome)
    for (backend, input_len, output_len), outcomes in groups.items():
        sweep, changes = charts.sweep(outcomes, view), charts.changes(outcomes)
        if sweep or changes:
            title = f"{backend}, {input_len} tokens in, {output_len} out"
            yield {"title": title, "sweep": sweep, "changes": changes}


def _sections(view: View) -> Iterable[CellSection]:
    told = {finding.node_id: finding for finding in (*view.findings, *view.remarks)}
    for number, outcome in enumerate(view.outcomes, start=1):
        facts = _facts(outcome, view)
        yield CellSection(
            anchor=f"cell-{number}",
            title=outcome.decision.cell.label,
            outcome=outcome,
            finding=told.get(outcome.node_id) or find(outcome, pytest_command="pytest -m perf"),
            kind=verdict_class(outcome),
            ran=ran_text(outcome.evidence),
            seen=tuple({(item.source, item.text, item.says): item for item in outcome.evidence.items}.values()),
            facts=tuple(fact for fact in facts if fact.differs),
            equal_facts=tuple(fact for fact in facts if not fact.differs),
            trace=charts.trace(outcome, view),
            latencies=charts.latencies(outcome),
            stored=any(arm.name == STORED for arm in arms_of(outcome, view)),
        )


def _facts(outcome: Outcome, view: View) -> list[FactLine]:
    """Fingerprint fields of both arms, those that must be equal and are not first."""
    here = _fields(_fingerprint(outcome, CANDIDATE))
    there = _fields(_reference_fingerprint(outcome, view))
    if not there and outcome.verdict not in {Verdict.NO_BASELINE, Verdict.INVALID}:
        # What the comparison does not name as different was equal.
        there = here
    stated = {difference.field: difference for difference in outcome.decision.differences}
    lines = []
    for name in dict.fromkeys((*stated, *here, *there)):
        difference = stated.get(name)
        reference = difference.baseline if difference else there.get(name, "")
        candidate = difference.here if difference else here.get(name, "")
        differs = difference is not None or (bool(there) and reference != candidate)
        blocking = difference is not None and difference.blocking
        lines.append(FactLine(name=name, reference=reference, candidate=candidate, differs=differs, blocking=blocking))
    return sorted(lines, key=lambda line: not line.blocking)


def _fingerprint(outcome: Outcome, arm: str) -> Fingerprint | None:
    return next((run.fingerprint for run in outcome.runs if run.launch.arm == arm), None)


def _reference_fingerprint(outcome: Outcome, view: View) -> Fingerprint | None:
    baseline = view.baselines.get(outcome.decision.cell.key)
    return _fingerprint(outcome, REFERENCE) or (baseline.fingerprint if baseline else None)


def _fields(fingerprint: Fingerprint | None) -> Mapping[str, str]:
    if fingerprint is None:
        return {}
    return {
        f"{group}.{name}": "unknown" if value is None else str(value)
        for group in FINGERPRINT_GROUPS
        for name, value in getattr(fingerprint, group).items()
    }

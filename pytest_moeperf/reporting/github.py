"""GitHub: the step summary, annotations as workflow commands, and a pull request's comment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_moeperf.reporting.figures import Change
from pytest_moeperf.reporting.markdown import code, details, escape, fenced, table
from pytest_moeperf.reporting.table import change_text
from pytest_moeperf.reporting.view import FAILED, PASSED, Row, View, counts, status_of
from pytest_moeperf.reporting.wording import Finding
from pytest_moeperf.units import format_percent, format_quantity

COMMENT_MARK = "<!-- moeperf -->"
"""First line of the comment: how a later run finds the one that it replaces."""
SUMMARY_LIMIT = 1024 * 1024
"""Bytes of a step summary that GitHub accepts; a larger one is dropped whole."""
COMMENT_LIMIT = 65536
"""Characters of a comment."""
COMMENT_NAME = "comment.md"
ANNOTATION_LIMIT = 10
"""Of one kind and step that GitHub shows."""

_SIGNS = {PASSED: "✅", FAILED: "❌"}
_CUT = "\n\n*Cut here: the rest is in the JSON and HTML reports.*\n"


def step_summary(view: View) -> str:
    """Markdown for ``$GITHUB_STEP_SUMMARY``: headline, table, every finding in full, notes."""
    lines = [f"## moeperf: {_headline(view)}", "", escape(_scope(view)), "", *_rows(view.rows), ""]
    for finding in (*view.findings, *view.remarks):
        lines += [f"### {escape(finding.verdict.value)}: {escape(finding.headline)}", "", *_body(finding), ""]
    lines += [f"- {escape(note)}" for note in view.notes]
    return _limited("\n".join(lines).rstrip() + "\n", SUMMARY_LIMIT)


def pull_request_comment(view: View) -> str:
    """Markdown of a comment: headline and table in sight, each finding, settings and environment folded."""
    lines = [COMMENT_MARK, f"### moeperf: {_headline(view)}", "", escape(_scope(view)), "", *_rows(view.rows), ""]
    for finding in (*view.findings, *view.remarks):
        lines += [*details(f"{finding.verdict.value}  {finding.headline}", _body(finding)), ""]
    lines += [f"- {escape(note)}" for note in view.notes]
    changed = [line for line in view.settings if line.source != "default"]
    if changed:
        rows = [(code(line.name), escape(line.value), escape(line.source)) for line in changed]
        lines += ["", *details("Settings that are not defaults", table(("setting", "value", "from"), rows))]
    if view.environment:
        rows_of_facts = [(escape(name), escape(value)) for name, value in view.environment.items()]
        lines += ["", *details("Environment", table(("fact", "value"), rows_of_facts))]
    return _limited("\n".join(lines).rstrip() + "\n", COMMENT_LIMIT)


def annotation_lines(view: View, *, locations: Mapping[str, tuple[str, int]], warn: bool = False) -> list[str]:
    """Workflow commands, one line each, to be printed to stdout.

    :param locations: node id -> file relative to the repository, line from 1. A test without one is annotated without.
    :param warn: ``--perf-inconclusive=warn``: an INCONCLUSIVE is a warning.
    """
    status = {outcome.node_id: status_of(outcome, warn=warn) for outcome in view.outcomes}
    lines = []
    for finding in view.findings:
        kind = "error" if status[finding.node_id] == FAILED else "warning"
        properties = {}
        if finding.node_id in locations:
            file, line = locations[finding.node_id]
            properties = {"file": file, "line": str(line)}
        properties["title"] = f"{finding.verdict.value} {finding.node_id}"
        message = "\n".join(text for text in (finding.headline, finding.why, *finding.details) if text)
        lines.append(workflow_command(kind, message, properties))
    if len(lines) > ANNOTATION_LIMIT:
        rest = len(lines) - ANNOTATION_LIMIT + 1
        more = workflow_command("error", f"{rest} more perf tests did not pass; see the step summary.", {})
        lines = [*lines[: ANNOTATION_LIMIT - 1], more]
    return lines


def workflow_command(kind: str, message: str, properties: Mapping[str, str]) -> str:
    """``::error file=a.py,line=3::message``, escaped as the runner's toolkit escapes it."""
    listed = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return f"::{kind}{' ' if listed else ''}{listed}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _headline(view: View) -> str:
    """``2 REGRESSION, 1 UNVERIFIED_WIN, 3 EQUIVALENT``, with a sign for the whole."""
    failed = any(row.status == FAILED for row in view.rows)
    listed = ", ".join(f"{number} {escape(verdict)}" for verdict, number in counts(view).items())
    return f"{_SIGNS[FAILED if failed or not view.rows else PASSED]} {listed or 'no cell was measured'}"


def _scope(view: View) -> str:
    heading = view.heading
    return " | ".join(part for part in (heading.subject, heading.place, heading.cost) if part)


def _rows(rows: Sequence[Row]) -> list[str]:
    several = len({row.cell.backend for row in rows}) > 1
    header = ["", "cell", "baseline", "measured", "change", "verdict", "launches", "ceiling"]
    return table(header, [_row(row, with_backend=several) for row in rows]) if rows else []


def _row(row: Row, *, with_backend: bool) -> list[str]:
    cell = row.cell.label if with_backend else row.cell.workload.label
    metric = "" if row.metric == "throughput" and not row.further else f" {row.metric}"
    verdict = escape(row.verdict_text)
    return [
        "" if row.further else _SIGNS.get(row.status, "⚠️"),
        escape(f"{cell}{metric} {row.test}".rstrip()),
        _figure(row.baseline, row.unit),
        _figure(row.measured, row.unit),
        _change(row.change),
        verdict if row.verdict.passes or row.recorded else f"**{verdict}**",
        escape(row.launches),
        "" if row.efficiency is None else format_percent(row.efficiency),
    ]


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{format_quantity(value)} {unit}"


def _change(change: Change | None) -> str:
    return "" if change is None else escape(change_text(change))


def _body(finding: Finding) -> list[str]:
    """A list of what is known, then what to do."""
    lines = [f"- {code(finding.node_id)}"] if finding.node_id else []
    lines += [f"- {escape(text)}" for text in (finding.why, *finding.details) if text]
    lines += [f"- **Odd:** {escape(odd)}" for odd in finding.odd]
    for number, step in enumerate(finding.next_steps):
        label = "**Next:**" if number == 0 else "**Or:**"
        remark = f"({escape(step.remark)})" if step.remark else ""
        lines.append(" ".join(part for part in ("-", label, escape(step.text), remark) if part))
        if step.lines:
            lines += ["", *(f"  {line}" for line in fenced("\n".join(step.lines)).splitlines())]
        if step.command:
            lines += ["", *(f"  {line}" for line in fenced(step.command, language="sh").splitlines())]
    return lines


def _limited(text: str, limit: int) -> str:
    """GitHub refuses a larger text whole. Both limits are kept in bytes, the stricter reading of either."""
    data = text.encode()
    if len(data) <= limit:
        return text
    kept = data[: limit - len(_CUT.encode()) - 64].decode(errors="ignore")
    # Cut at a line, and close what was open there.
    kept = kept[: kept.rfind("\n") + 1]
    closing = "\n</details>" * (kept.count("<details>") - kept.count("</details>"))
    fence = "\n```" if sum(line.strip().startswith("```") for line in kept.splitlines()) % 2 else ""
    return f"{kept}{fence}{closing}{_CUT}"

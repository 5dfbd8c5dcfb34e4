"""Plain text for a terminal or a log: the progress line, the table, the message of a failed test."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.outgoing import told
from pytest_moeperf.reporting.steps import NextStep
from pytest_moeperf.reporting.table import paint, row_lines, verdict_style
from pytest_moeperf.reporting.text import shorten, wrap, wrap_command
from pytest_moeperf.reporting.view import Heading, View
from pytest_moeperf.reporting.wording import Finding, find
from pytest_moeperf.units import format_duration, format_quantity


def progress_line(
    cell: Cell,
    *,
    launch: int,
    run: int,
    done: float,
    events_s: float | None = None,
    left_s: float | None = None,
    width: int = 80,
) -> str:
    """``moeperf  triton c=64 512/128 | launch 2 run 2, 45 % | 11 min left | 11.9k events/s``.

    :param run: 0 is the warm-up.
    :param done: share of the run's requests.
    :param events_s: of the run so far; most servers stream one token an event.
    :param left_s: until the launches that are decided on are over; a later stage may follow.
    """
    parts = [cell.label, f"launch {launch} {f'run {run}' if run else 'warm-up'}, {done * 100:.0f} %"]
    if left_s is not None:
        parts.append(f"{format_duration(left_s)} left")
    if events_s is not None:
        parts.append(f"{format_quantity(events_s)} events/s")
    line = f"moeperf  {parts[0]}"
    for part in parts[1:]:
        if len(line) + len(part) + 3 > width:
            break
        line += f" | {part}"
    return shorten(line, width)


def heading_lines(heading: Heading, *, width: int = 80) -> list[str]:
    """``moeperf  triton held against triton_kernel | 1x H200, moe, sglang | 5 launches``; wrapped at its bars."""
    lines: list[str] = []
    current = "moeperf  " + heading.subject
    for part in (heading.place, heading.cost):
        if not part:
            continue
        if len(current) + len(part) + 3 > width:
            lines.append(current)
            current = f"         {part}"
        else:
            current += f" | {part}"
    return [*lines, current]


def table_lines(view: View, *, width: int = 80, color: bool = False, findings: bool = True) -> Iterator[str]:
    """Heading, one table, findings, remarks, notes. Only a word that has to be copied whole is wider than ``width``.

    :param findings: False where pytest has already printed each test's failure.
    """
    yield from heading_lines(view.heading, width=width)
    yield from row_lines(view.rows, width=width, color=color)
    for finding in (*(view.findings if findings else ()), *view.remarks):
        yield ""
        yield from finding_lines(finding, width=width, color=color)
    if view.notes:
        yield ""
    for note in view.notes:
        yield from wrap(note, width=width, rest="  ")


def failure_text(outcome: Outcome, *, pytest_command: str = "pytest -m perf", width: int = 80) -> str:
    """The message of the failed test: what happened, how sure, why, what to do. Also says what a pass stands on."""
    return told("\n".join(finding_lines(find(outcome, pytest_command=pytest_command), width=width)))


def finding_lines(finding: Finding, *, width: int = 80, color: bool = False) -> Iterator[str]:
    verdict = finding.verdict.value
    # A pass is told in one sentence; a failure gets its reason on a line of its own.
    headline = f"{finding.headline} {finding.why}" if finding.verdict.passes else finding.headline
    first, *rest = wrap(f"{verdict}  {headline}", width=width, rest="  ")
    # textwrap folds no blanks inside a line, so the verdict is still the line's first word.
    yield paint(verdict, verdict_style(finding.verdict), color=color) + first[len(verdict) :]
    yield from rest
    why = "" if finding.verdict.passes else finding.why
    for text in (why, *finding.details):
        # An empty text wraps to no line at all.
        yield from wrap(text, width=width, first="  ", rest="    ")
    for odd in finding.odd:
        yield from wrap(f"Odd: {odd}", width=width, first="  ", rest="    ")
    for number, step in enumerate(finding.next_steps):
        yield from _step_lines(step, label="Next" if number == 0 else "Or", width=width)


def _step_lines(step: NextStep, *, label: str, width: int) -> Iterator[str]:
    text = step.text
    if step.lines or not step.command:
        yield from wrap(f"{label}: {text}{':' if step.lines else ''}", width=width, first="  ", rest="    ")
        yield from (f"    {line}" for line in step.lines)
        if step.command:
            yield from wrap_command(step.command, width=width, indent="    ")
        return
    lead = f"{label}: {text}:" if text else f"{label}:"
    remark = f"    ({step.remark})" if step.remark else ""
    line = f"  {lead} {step.command}{remark}"
    if len(line) <= width:
        yield line
        return
    if step.remark:
        lead = f"{label}: {text} ({step.remark}):" if text else f"{label} ({step.remark}):"
    yield from wrap(lead, width=width, first="  ", rest="    ")
    yield from wrap_command(step.command, width=width, indent="    ")

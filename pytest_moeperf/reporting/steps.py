"""What to do next: the gate's steps (``gate/steps.py``) with commands filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_moeperf.model.verdict import Outcome, Verdict
from pytest_moeperf.outgoing import told
from pytest_moeperf.reporting.text import fill, safe


@dataclass(frozen=True, kw_only=True, slots=True)
class NextStep:
    text: str
    """Prose, or what the command does; may be empty."""
    command: str = ""
    """To be pasted into a shell."""
    remark: str = ""
    """What it costs."""
    lines: tuple[str, ...] = ()
    """To be written into a file first."""


_COMMAND = re.compile(r"\{(pytest|measure|accept|diff)\}|^moeperf ")
"""Where a step's command begins."""
_CONTRADICTED = (
    "The server's log may say why it fell back; put that right, or ask for what it can run: {pytest} -k {node}",
)
"""Whatever the gate says: its own step for an INVALID cell shows the checks, and this one is no riddle."""


def next_steps(outcome: Outcome, *, pytest_command: str) -> list[NextStep]:
    if outcome.recorded:
        return []
    contradicted = outcome.verdict is Verdict.INVALID and outcome.evidence.status == "contradicted"
    templates = _CONTRADICTED if contradicted else outcome.decision.next_steps
    # A step over a report that is not there is none.
    commands = {f"{{{name}}}": outcome.session.get(name, "") for name in ("accept", "diff")}
    return [
        _next_step(template, commands=commands, node_id=outcome.node_id, pytest_command=pytest_command)
        for template in templates
        if all(command or mark not in template for mark, command in commands.items())
    ]


def _next_step(template: str, *, commands: Mapping[str, str], node_id: str, pytest_command: str) -> NextStep:
    # Reporters say "Or" themselves where there are several steps.
    first, *lines = template.removeprefix("or ").removeprefix("Or ").split("\n")
    found = _COMMAND.search(first)
    text, rest = (first[: found.start()], first[found.start() :]) if found else (first, "")
    command, _, remark = rest.partition("  (")
    for mark, filled in commands.items():
        command = command.replace(mark, filled)
    return NextStep(
        text=safe(fill(text, node_id=node_id, pytest_command=pytest_command)).rstrip(": "),
        command=told(fill(command.strip(), node_id=node_id, pytest_command=pytest_command)),
        remark=safe(remark.strip().removesuffix(")")),
        lines=tuple(map(told, lines)),
    )

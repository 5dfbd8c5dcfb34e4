"""Where a rule's pattern stands in what a server left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_moeperf.evidence.drafting import SharedLog
from pytest_moeperf.evidence.rules import Rule
from pytest_moeperf.outgoing.secrets import scrub_secrets

LONGEST_QUOTE = 240
"""Characters of a line that are shown: SGLang prints all its arguments in one line of 12 000."""

_MOST_MATCHES = 3
"""Of one rule with different runners: a mix of layers shows; a line repeated for each layer doesn't."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """All that is looked at."""

    device: str = ""
    device_source: str = "launch"
    log: str = ""
    server_info: Mapping[str, Any] = field(default_factory=dict)
    metrics: str = ""
    kernels: Sequence[str] = ()
    shared_log: SharedLog | None = None
    """Where a draft model with experts writes to the same log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A rule that matched."""

    rule: Rule
    where: str
    """``server log line 32``, ``/server_info moe_runner_backend``, ``kernel profile`` ..."""
    text: str
    """The line or value, without secrets, cut around the match."""
    runner: str
    """As the trace spells it; empty: none."""
    may_be_draft: bool = False
    """A draft model's layers may have left it."""


def findings(rule: Rule, traces: Traces) -> Iterator[Finding]:
    """Every different thing that ``rule`` finds."""
    if rule.source == "server_info":
        yield from _in_server_info(rule, traces.server_info)
    elif rule.source == "device":
        yield from _in_lines(rule, traces.device, traces.device_source)
    elif rule.source == "kernels":
        yield from _in_lines(rule, "\n".join(traces.kernels), "kernel profile")
    elif rule.source == "metrics":
        yield from _in_lines(rule, traces.metrics, "/metrics")
    else:
        yield from _in_lines(rule, traces.log, "server log line {line}", shared=traces.shared_log)


def _in_lines(rule: Rule, text: str, where: str, *, shared: SharedLog | None = None) -> Iterator[Finding]:
    seen: set[tuple[str, bool]] = set()
    if rule.of_target or rule.strength != "proof":
        shared = None
    for match in rule.pattern.finditer(text):
        runner = rule.runner_in(match)
        may_be_draft = shared is not None and not shared.is_of_target(match.start())
        if (runner, may_be_draft) in seen:
            continue
        seen.add((runner, may_be_draft))
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        line = text[start : end if end >= 0 else len(text)]
        number = text.count("\n", 0, match.start()) + 1
        yield Finding(
            rule=rule,
            where=where.format(line=number),
            text=_quote(line, rule.pattern),
            runner=runner,
            may_be_draft=may_be_draft,
        )
        if len(seen) == _MOST_MATCHES:
            return


def _in_server_info(rule: Rule, info: Mapping[str, Any]) -> Iterator[Finding]:
    value: Any = info
    for name in rule.field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        return
    text = str(value)
    if match := rule.pattern.search(text):
        yield Finding(
            rule=rule, where=f"/server_info {rule.field}", text=_quote(text, rule.pattern), runner=rule.runner_in(match)
        )


def _quote(line: str, pattern: re.Pattern[str]) -> str:
    """The line without secrets, of a long one the piece that matters. Scrubbed before it is cut: half a key is one."""
    clean = scrub_secrets(line.strip())
    if len(clean) <= LONGEST_QUOTE:
        return clean
    match = pattern.search(clean)
    start = max(0, match.end() - 2 * LONGEST_QUOTE // 3) if match else 0
    piece = clean[start : start + LONGEST_QUOTE]
    return f"{'...' if start else ''}{piece}{'...' if start + LONGEST_QUOTE < len(clean) else ''}"

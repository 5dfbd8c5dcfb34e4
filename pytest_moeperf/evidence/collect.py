"""Which MoE runner really executed: all traces of a server against the rules for its engine and version.

A flag is what was asked for; it proves nothing. What proves: the device (a CPU runs no GPU kernel), a layer's own line
in the log, a kernel in a profile. One proof of another runner contradicts, whatever else agrees: an arm that is a mix
of two runners is not the arm that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_moeperf.evidence.drafting import SharedLog, has_draft_model
from pytest_moeperf.evidence.matching import Finding, Traces, findings
from pytest_moeperf.evidence.rules import RuleBook, load_rules, parse_version, show_version
from pytest_moeperf.model.run import Evidence, EvidenceItem

CONFIRMED, CONTRADICTED, UNKNOWN = "confirmed", "contradicted", "unknown"
NOT_ASKED = frozenset({"", "auto"})
"""Requests that leave the choice to the engine: whatever ran is what was asked for."""

DRAFT = "draft:"
"""Starts the rule's name of an item that may be of a draft model's layers."""

UNREAD = "the evidence rules were read in"
"""Stands in what is told at the top of a run of a version that nobody read."""

NATIVE = "native"
"""The CPU engine's MoE."""

_SOURCE_NAMES = {
    "log": "the server's log",
    "server_info": "/server_info",
    "metrics": "/metrics",
    "kernels": "a kernel profile",
}


def collect(
    *,
    engine: str,
    engine_version: str | None,
    requested: str,
    device: str,
    log_text: str,
    server_info: Mapping[str, Any] | None,
    metrics_text: str | None,
    kernels: Sequence[str] | None = None,
    draft_has_experts: bool | None = None,
) -> Evidence:
    """Confirmed, contradicted or unknown, each with its source line. Never raises for what a server says.

    Args:
        engine: ``sglang``, ``simulated`` or ``attached``; an attached server that answers like SGLang is read as one.
        engine_version: as the server or its package says; None: taken from /server_info, else unknown.
        requested: the MoE runner that was asked for; empty or ``auto``: the engine's own choice.
        device: ``cuda`` or ``cpu``, as far as the launcher knows; the server's own word counts more.
        kernels: kernel names of a profile of a few steps, where one was taken.
        draft_has_experts: whether a draft model, if there is one, has MoE layers too; None: not known, so it may.
    """
    info = server_info if isinstance(server_info, Mapping) else {}
    book = load_rules(_rules_name(engine, info))
    if book is None:
        missing = (f"rules for the engine {engine!r}: there are none, so its traces say nothing about the MoE runner",)
        return Evidence(status=UNKNOWN, requested=requested, looked_for=missing)
    version = parse_version(engine_version) or parse_version(_text(info.get("version")))
    log = log_text or ""
    drafts = draft_has_experts is not False and has_draft_model(info, log)
    traces = Traces(
        device=_text(info.get("device")) or device,
        device_source="/server_info device" if _text(info.get("device")) else "launch",
        log=log,
        server_info=info,
        metrics=metrics_text or "",
        kernels=tuple(kernels or ()),
        shared_log=SharedLog(log) if drafts else None,
    )
    used = book.nearest(version)
    found = [
        finding
        for rule in book.rules
        if rule.applies_to(used) and rule.device in ("", traces.device)
        for finding in findings(rule, traces)
    ]
    if drafts:
        found = _with_draft_kernels(found, requested, book)
    items = tuple(_item(finding, requested, book, traces, covered=book.covers(version)) for finding in found)
    status = _status(items, requested, book)
    return Evidence(
        status=status,
        requested=requested,
        runner=_what_ran(items, found),
        items=tuple(sorted(items, key=_importance)),
        looked_for=_looked_for(requested, book, traces, version) if status == UNKNOWN else (),
    )


def side_effects(evidence: Evidence) -> tuple[str, ...]:
    """What else the server's traces say that a comparison has to know, each with its source, most telling first."""
    notes = {rule.id: rule.note for name in ("sglang", "simulated") for rule in _rules(name) if rule.strength == "note"}
    told = []
    for item in evidence.items:
        if item.rule in notes:
            told.append(f"{notes[item.rule]} ({item.source}: {item.text})")
        elif item.rule.startswith(DRAFT):
            told.append(f"{item.text} ({item.source}; a line of the draft model, or of layers of the target)")
    return tuple(told)


def unread_version(engine: str, version: str | None) -> str:
    """What a user should know where nobody read this version's source for the rules; empty: it was read."""
    book = load_rules(engine)
    if book is None or book.covers(parse_version(version)):
        return ""
    return (
        f"{engine} {version or 'of an unknown version'}: {UNREAD} {_read_in(book)}; here only "
        f"lines that name the runner in their own words prove which one ran, a flag stays a claim "
        f"(--perf-profile settles it in any version)"
    )


def _read_in(book: RuleBook) -> str:
    return f"{show_version(book.read_in[0])} to {show_version(book.read_in[-1])}"


def _with_draft_kernels(found: list[Finding], requested: str, book: RuleBook) -> list[Finding]:
    """A profile holds the draft model's kernels as well: where the requested runner's own are in it, the others may be
    the draft's."""
    wanted = book.canonical(requested)
    shown = [finding for finding in found if finding.rule.source == "kernels"]
    if not any(_shows(finding, wanted, book) for finding in shown):
        return found
    return [
        replace(finding, may_be_draft=True) if finding in shown and not _shows(finding, wanted, book) else finding
        for finding in found
    ]


def _shows(finding: Finding, wanted: str, book: RuleBook) -> bool:
    return wanted in (book.canonical(finding.runner), *finding.rule.same_as)


def _rules(engine: str) -> tuple[Any, ...]:
    book = load_rules(engine)
    return book.rules if book else ()


def _rules_name(engine: str, info: Mapping[str, Any]) -> str:
    if engine != "attached":
        return engine
    if "simulated" in info:
        return "simulated"
    return "sglang" if "moe_runner_backend" in info else engine


def _item(finding: Finding, requested: str, book: RuleBook, traces: Traces, *, covered: bool) -> EvidenceItem:
    rule = finding.rule
    if finding.may_be_draft:
        text = f"draft: {book.canonical(finding.runner)}: {finding.text}"
        return EvidenceItem(source=finding.where, text=text, rule=f"{DRAFT}{rule.id}")
    says = _says(finding, requested, book)
    if not covered and not rule.any_version:
        says = UNKNOWN
    if rule.unless is not None and rule.unless.search(traces.log):
        says = UNKNOWN
    shown = finding.runner and rule.strength in ("proof", "claim")
    return EvidenceItem(
        source=finding.where,
        text=finding.text,
        runner=book.canonical(finding.runner) if shown else None,
        says=says,
        rule=rule.id,
    )


def _says(finding: Finding, requested: str, book: RuleBook) -> str:
    strength = finding.rule.strength
    if strength == "note":
        return UNKNOWN
    if requested.strip().lower() in NOT_ASKED:
        return CONFIRMED if strength == "proof" else UNKNOWN
    wanted = book.canonical(requested)
    if wanted not in book.runners:
        return UNKNOWN
    same = _shows(finding, wanted, book)
    if strength == "override":
        return CONTRADICTED if same else UNKNOWN
    if strength == "proof":
        return CONFIRMED if same else CONTRADICTED
    return UNKNOWN if same else CONTRADICTED


def _status(items: Sequence[EvidenceItem], requested: str, book: RuleBook) -> str:
    said = {item.says for item in items}
    if CONTRADICTED in said:
        return CONTRADICTED
    if CONFIRMED in said and (requested.strip().lower() in NOT_ASKED or book.canonical(requested) in book.runners):
        return CONFIRMED
    return UNKNOWN


def _what_ran(items: Sequence[EvidenceItem], found: Sequence[Finding]) -> str | None:
    """All runners that were proven, or where none was, the one that the server says it took instead."""
    proven = [
        item.runner
        for item, finding in zip(items, found, strict=True)
        if item.runner and finding.rule.strength == "proof" and item.says != UNKNOWN
    ]
    # The device outranks the layers' lines: on a CPU they still name a GPU runner.
    if NATIVE in proven:
        return NATIVE
    claimed = [item.runner for item in items if item.runner and item.says == CONTRADICTED]
    return " + ".join(dict.fromkeys(proven or claimed)) or None


def _importance(item: EvidenceItem) -> int:
    return {CONTRADICTED: 0, CONFIRMED: 1}.get(item.says, 2 if item.runner else 3)


def _looked_for(requested: str, book: RuleBook, traces: Traces, version: tuple[int, ...] | None) -> tuple[str, ...]:
    wanted = book.canonical(requested)
    missing = []
    if requested.strip().lower() not in NOT_ASKED and wanted not in book.runners:
        missing.append(
            f"a MoE runner named {requested!r}: the rules for {book.engine} know {', '.join(sorted(book.runners))}"
        )
    # The simulated engine is this package, whatever it says of itself.
    if not book.covers(version) and book.engine != "simulated":
        shown = f"version {show_version(version)}" if version else "a version that it doesn't say"
        missing.append(
            f"rules read in this version: they are for {book.engine} {_read_in(book)}, the server is {shown}"
        )
    given = {"log": traces.log, "server_info": traces.server_info, "metrics": True, "kernels": traces.kernels}
    missing += [f"{_SOURCE_NAMES[source]}: not there" for source, value in given.items() if not value]
    used = book.nearest(version)
    missing += [
        rule.look
        for rule in book.rules
        if rule.look and rule.applies_to(used) and rule.device in ("", traces.device) and rule.strength == "proof"
    ]
    return tuple(missing)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

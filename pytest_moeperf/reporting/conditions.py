"""Under what conditions a cell was measured: the engine's build, what differs from the baseline's, what else the
server's traces say. The same words for every reporter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pytest_moeperf.evidence import side_effects
from pytest_moeperf.fingerprint import label
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Fingerprint, Plain
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting.text import shorten

_COMMIT_SHOWN = 12
_NOTE_LIMIT = 300
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] ?")
"""Of a line in SGLang's log: it differs between launches, and says nothing."""


def engine_lines(outcome: Outcome) -> list[str]:
    """``Engine: sglang 0.5.14, commit 0123456789ab, with local changes.`` The reference's too where it was another."""
    builds = {arm: _build(_fingerprint(outcome, arm)) for arm in (CANDIDATE, REFERENCE)}
    candidate, reference = builds[CANDIDATE], builds[REFERENCE]
    if not candidate:
        return []
    other = f"; reference: {reference}" if reference and reference != candidate else ""
    return [f"Engine: {candidate}{other}."]


def _build(fingerprint: Fingerprint | None) -> str:
    software: Mapping[str, Plain] = fingerprint.software if fingerprint else {}
    # The simulated engine is this package.
    if software.get("engine") in (None, "simulated"):
        return ""
    parts = [f"{software['engine']} {software.get('engine_version') or 'of an unknown version'}"]
    commit, changes = software.get("engine_commit"), software.get("engine_changes")
    if commit:
        text = str(commit)
        parts.append(f"commit {text[:_COMMIT_SHOWN] if ' ' not in text else text}")
    if changes and changes not in ("none", commit):
        parts.append(f"with local changes ({changes})")
    if files := software.get("engine_files"):
        parts.append(f"source files {files}")
    return ", ".join(parts)


def _fingerprint(outcome: Outcome, arm: str) -> Fingerprint | None:
    return next((run.fingerprint for run in reversed(outcome.runs) if run.launch.arm == arm), None)


def conditions_text(outcome: Outcome) -> str:
    """What differs from the baseline's conditions. Nothing is called equal beside a note."""
    fields = [difference.field for difference in outcome.decision.differences]
    noted = bool(note_lines(outcome))
    if not fields and not outcome.session.get("baseline") and outcome.decision.pairs:
        return "Both arms were launched here, side by side; no stored baseline took part."
    if not fields:
        return "" if noted else "Nothing that is compared differs from the baseline's conditions."
    same = "" if noted or any(field.startswith("workload.") for field in fields) else "Same workload; "
    only = "" if noted else " only"
    text = f"{same}conditions differ in {', '.join(label(field) for field in fields)}{only}."
    return text[0].upper() + text[1:]


def note_lines(outcome: Outcome) -> list[str]:
    """What else the traces of either arm's server say that a comparison has to know, a sentence each."""
    notes: dict[str, list[str]] = {}
    for arm in (CANDIDATE, REFERENCE):
        run = next((run for run in reversed(outcome.runs) if run.launch.arm == arm), None)
        evidence = run.evidence if run else outcome.evidence if arm == CANDIDATE else None
        for note in side_effects(evidence) if evidence else ():
            notes.setdefault(_STAMP.sub("", note), []).append(arm)
    both = any(run.launch.arm == REFERENCE for run in outcome.runs)
    return [
        f"Note{f' ({arms[0]})' if both and len(arms) == 1 else ''}: {shorten(note, _NOTE_LIMIT)}."
        for note, arms in notes.items()
    ]


def notes_of(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """The notes of all cells, each once with the cells that it holds for."""
    cells: dict[str, list[str]] = {}
    for outcome in outcomes:
        for note in note_lines(outcome):
            # The line's number and time differ between launches; what it says is told once.
            text = note.partition(" (server log line ")[0].rstrip(".")
            cells.setdefault(text, []).append(outcome.decision.cell.label)
    for text, labels in cells.items():
        where = f"all {len(labels)} cells" if len(labels) > 1 and len(labels) == len(outcomes) else ", ".join(labels)
        yield f"{text} [{where}]."

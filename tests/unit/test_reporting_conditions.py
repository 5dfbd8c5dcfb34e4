"""Which build ran and what its log notes stand in failures and in every report; nothing is called equal beside a note."""

from __future__ import annotations

from dataclasses import replace

import pytest
import reporting_samples as samples

from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Evidence, EvidenceItem
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting.conditions import conditions_text, engine_lines, note_lines
from pytest_moeperf.reporting.github import pull_request_comment, step_summary
from pytest_moeperf.reporting.html import render_html
from pytest_moeperf.reporting.terminal import failure_text, table_lines
from pytest_moeperf.reporting.view import View, build_view

ALL_REDUCE = EvidenceItem(
    source="server log line 40", text="Setup Custom allreduce failed with X", rule="all-reduce-fallback"
)
DRAFT = EvidenceItem(
    source="server log line 50",
    text="draft: triton: Using default MoE kernel config.",
    rule="draft:triton-reads-its-tuning",
)


def with_items(outcome: Outcome, *items: EvidenceItem, arms: tuple[str, ...] = (CANDIDATE, REFERENCE)) -> Outcome:
    def noted(evidence: Evidence) -> Evidence:
        return replace(evidence, items=(*evidence.items, *items))

    runs = tuple(replace(run, evidence=noted(run.evidence)) if run.launch.arm in arms else run for run in outcome.runs)
    return replace(outcome, runs=runs, evidence=noted(outcome.evidence))


def built(outcome: Outcome, software: dict[str, dict[str, str]]) -> Outcome:
    runs = tuple(
        replace(run, fingerprint=replace(run.fingerprint, software=dict(software[run.launch.arm])))
        for run in outcome.runs
    )
    return replace(outcome, runs=runs)


def view(*outcomes: Outcome) -> View:
    return build_view(outcomes, heading=samples.heading(), settings=samples.settings(), started_at=samples.STARTED)


def words(text: str) -> str:
    return " ".join(text.split())


# ---- the engine's build ----

SOFTWARE = {"engine": "sglang", "engine_version": "0.5.14"}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "Engine: sglang 0.5.14."),
        (
            {"engine_commit": "0123456789abcdef", "engine_changes": "none"},
            "Engine: sglang 0.5.14, commit 0123456789ab.",
        ),
        (
            {"engine_commit": "0123456789abcdef", "engine_changes": "77aa"},
            "Engine: sglang 0.5.14, commit 0123456789ab, with local changes (77aa).",
        ),
        (
            {
                "engine_commit": "not shown (git could not be asked)",
                "engine_changes": "not shown (git could not be asked)",
            },
            "Engine: sglang 0.5.14, commit not shown (git could not be asked).",
        ),
        ({"engine_files": "88bb"}, "Engine: sglang 0.5.14, source files 88bb."),
        ({"engine": "simulated"}, None),
    ],
)
def test_every_failure_names_the_build_that_ran(more: dict[str, str], text: str | None) -> None:
    software = SOFTWARE | more
    outcome = built(samples.regression(), {CANDIDATE: software, REFERENCE: software})
    assert engine_lines(outcome) == ([text] if text else [])
    assert (text or "") in words(failure_text(outcome))
    assert engine_lines(built(samples.invalid(), {CANDIDATE: software})) == ([text] if text else [])


def test_arms_of_two_builds_are_both_named() -> None:
    outcome = built(
        samples.regression(),
        {CANDIDATE: SOFTWARE | {"engine_commit": "bbbb"}, REFERENCE: SOFTWARE | {"engine_commit": "aaaa"}},
    )
    assert engine_lines(outcome) == ["Engine: sglang 0.5.14, commit bbbb; reference: sglang 0.5.14, commit aaaa."]


# ---- notes ----


def test_a_note_stands_in_the_terminal_the_comment_the_summary_and_the_page() -> None:
    for outcome in (samples.equivalent(), samples.regression()):
        shown = view(with_items(outcome, ALL_REDUCE))
        texts = (
            words("\n".join(table_lines(shown))),
            words(pull_request_comment(shown)),
            words(step_summary(shown)),
            words(render_html(shown)),
        )
        for text in texts:
            assert "the all-reduce is not the custom one" in text


def test_a_note_of_one_arm_says_whose_it_is() -> None:
    outcome = with_items(samples.regression(), ALL_REDUCE, arms=(CANDIDATE,))
    assert note_lines(outcome) == [
        "Note (candidate): the all-reduce is not the custom one (server log line 40: Setup Custom allreduce failed "
        "with X)."
    ]
    assert note_lines(with_items(samples.regression(), ALL_REDUCE))[0].startswith("Note: ")


def test_the_drafts_runner_is_told() -> None:
    told = note_lines(with_items(samples.regression(), DRAFT))
    assert told == [
        "Note: draft: triton: Using default MoE kernel config. (server log line 50; a line of the draft model, or of "
        "layers of the target)."
    ]


def test_nothing_is_called_equal_beside_a_note() -> None:
    alike = replace(samples.regression(), session={"baseline": "b.json"})
    alike = replace(alike, decision=replace(alike.decision, differences=()))
    assert conditions_text(alike) == "Nothing that is compared differs from the baseline's conditions."
    assert conditions_text(with_items(alike, ALL_REDUCE)) == ""
    differing = samples.regression()
    assert conditions_text(differing) == "Same workload; conditions differ in --moe-runner-backend only."
    assert conditions_text(with_items(differing, ALL_REDUCE)) == "Conditions differ in --moe-runner-backend."

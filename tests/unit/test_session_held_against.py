"""Which stored runs a report draws: those that its cells were compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from reporting_samples import equivalent, incomparable

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.verdict import Outcome, Verdict
from pytest_moeperf.session.held_against import held_against

(STORED, *_) = FileStore(Path(__file__).resolve().parents[2] / "examples/h200/baselines").all()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(root=str(tmp_path))


@pytest.fixture
def path(settings: Settings) -> Path:
    return Path(FileStore(settings.baselines).save(STORED.baseline).path)


def against(outcome: Outcome, path: Path) -> Outcome:
    return replace(outcome, session={**outcome.session, "baseline": str(path)})


def test_the_baseline_that_the_verdict_names_is_drawn(settings: Settings, path: Path) -> None:
    outcome = against(equivalent(), path)
    assert held_against([outcome], settings) == {outcome.decision.cell.key: STORED.baseline}
    assert held_against([against(equivalent(), path.with_name("other.json")), equivalent()], settings) == {}


def test_what_was_recorded_now_is_not_drawn_against_itself(settings: Settings, path: Path) -> None:
    assert held_against([replace(against(equivalent(), path), recorded=str(path))], settings) == {}


def test_an_incomparable_baseline_is_there_for_its_fields_alone(settings: Settings, path: Path) -> None:
    """The page draws none of its runs (``reporting.arms``), but shows what differs."""
    outcome = against(incomparable(), path)
    assert any(difference.blocking for difference in outcome.decision.differences)
    assert held_against([outcome], settings).keys() == {outcome.decision.cell.key}
    invalid = replace(outcome, decision=replace(outcome.decision, verdict=Verdict.INVALID))
    assert held_against([invalid], settings) == {}


def test_a_store_that_can_not_be_read_costs_no_report(settings: Settings, path: Path) -> None:
    path.write_text("{")
    assert held_against([against(equivalent(), path)], settings) == {}

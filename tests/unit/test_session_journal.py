"""What was measured is kept until nobody can go on from it."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from test_bench_warmup import run

from pytest_moeperf.session.journal import JOURNAL_FOLDER, Journal, told_kept

NOW = datetime.now(UTC).isoformat()
FIRST, SECOND = (replace(run(index, 100.0 + index), started_at=NOW) for index in (0, 1))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path, "compare-triton")
    made.take()
    made.start()
    made.add(FIRST)
    made.add(SECOND)
    return made


def test_interrupted_runs_are_there_for_the_next_one(journal: Journal, tmp_path: Path) -> None:
    journal.release()
    assert Journal(tmp_path, "compare-triton").runs() == (FIRST, SECOND)


def test_only_its_user_reads_it_and_it_holds_no_key(journal: Journal) -> None:
    command = (*FIRST.launch.command, "--hf-token", "planted-hf-token", "--note=a\x1b[2Jb")
    journal.path.chmod(0o644)
    journal.add(replace(FIRST, id="third", launch=replace(FIRST.launch, command=command)))
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert "planted" not in journal.path.read_text()
    assert journal.runs()[-1].launch.command[-3:] == ("--hf-token", "***", "--note=ab")


def test_decided_runs_are_not_kept(journal: Journal) -> None:
    journal.finish()
    assert journal.runs() == ()
    assert list(journal.path.parent.glob("compare-triton.*")) == [journal.path.with_suffix(".lock")]


def test_undecided_runs_are_kept_until_a_new_start(journal: Journal) -> None:
    journal.finish(undecided={FIRST.cell})
    assert journal.runs() == (FIRST, SECOND)
    assert not journal.path.exists(), "they would be told as those of an interrupted invocation"
    journal.start()
    assert journal.runs() == ()


def test_runs_of_judged_cells_are_gone_when_others_are_undecided(journal: Journal) -> None:
    cell = replace(FIRST.cell, backend="other")
    other = replace(FIRST, id="other", cell=cell)
    journal.add(other)
    journal.finish(undecided={cell})
    assert journal.runs() == (other,)
    assert not journal.path.exists()


def test_going_on_from_undecided_runs_keeps_them(journal: Journal) -> None:
    journal.finish(undecided={FIRST.cell})
    journal.start(journal.runs())
    third = replace(FIRST, id="third")
    journal.add(third)
    assert journal.runs() == (FIRST, SECOND, third)
    journal.finish()
    assert journal.runs() == ()


def test_a_start_that_fails_half_way_loses_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        journal.start(journal.runs())
    assert journal.runs() == (FIRST, SECOND)


def test_a_line_cut_off_by_a_kill_ends_the_runs(journal: Journal) -> None:
    whole = journal.path.read_text()
    journal.path.write_text(whole[:-20])
    assert journal.runs() == (FIRST,)


def test_git_does_not_see_it(journal: Journal, tmp_path: Path) -> None:
    assert (tmp_path / JOURNAL_FOLDER.parent / ".gitignore").read_text() == "*\n"


def test_what_is_kept_is_told_and_nothing_is_not() -> None:
    path = Path("a.jsonl")
    assert told_kept(path, "", "pytest -m perf") == []
    assert told_kept(path, "{}\n", "pytest -m perf") == [
        "moeperf: 1 finished run is kept in a.jsonl\n  next: pytest -m perf --perf-continue    (goes on from them)"
    ]
    assert told_kept(path, "{}\n{}\n", "pytest")[0].startswith("moeperf: 2 finished runs are kept in a.jsonl\n")


def test_a_journal_that_came_with_the_checkout_is_not_gone_on_from(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of-another"))
    assert journal.runs() == ()


def test_a_line_that_was_edited_ends_the_runs(journal: Journal) -> None:
    first, second = journal.path.read_text().splitlines()
    assert '"out_tps":101.0' in second.replace(" ", "") or "101.0" in second
    journal.path.write_text(f"{first}\n{second.replace('101.0', '909.0')}\n")
    assert journal.runs() == (FIRST,)


def test_another_host_measures_anew(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert journal.runs() == ()


def test_runs_of_more_than_a_day_ago_are_left_out(journal: Journal) -> None:
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    journal.add(replace(FIRST, id="old", started_at=yesterday.isoformat()))
    assert journal.runs() == (FIRST, SECOND)


def test_the_key_is_for_its_user_alone(journal: Journal, state: Path) -> None:
    kept = state / "pytest-moeperf" / "journal.key"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert len(kept.read_bytes()) == 32
    kept.chmod(0o644)
    assert journal.runs() == ()


def test_whoever_goes_on_is_told_what_is_left_out(journal: Journal) -> None:
    assert journal.gone_on_from() == ((FIRST, SECOND), "")
    first, second = journal.path.read_text().splitlines()
    journal.path.write_text(f"{first}\n{second.replace('101.0', '909.0')}\n")
    assert journal.gone_on_from() == (
        (FIRST,),
        f"{journal.path}: 1 of its 2 runs measured anew: of more than a day ago, cut off, or not written by this user "
        "on this host",
    )
    journal.path.write_bytes(b"\xff\xfe")
    assert journal.gone_on_from()[1].startswith(f"{journal.path}: no run of it is gone on from: 'utf-8' codec can't")

"""A checkout may hold links, pipes and texts of any shape: nothing of it is followed, waited for or believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_samples import cell, decided, moeperf, outcome, record, report, runs
from test_baselines_store import MODEL, baseline, stored

from pytest_moeperf.baselines import FileStore
from pytest_moeperf.baselines.codec import encode
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.foreign import DEEPEST_JSON, keep_out_of_git, parse_json, read_text, refuse_links
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.session.journal import Journal


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.mark.parametrize("name", [".locks/store.lock", ".locks/holder.json", ".locks/.gitignore", ".locks"])
def test_a_store_whose_locks_are_links_is_not_written(tmp_path: Path, victim: Path, name: str) -> None:
    root = tmp_path / "baselines"
    link = root / name
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(BaselineError) as caught:
        FileStore(root).save(baseline(stored("r1")))
    assert f"{link} is a symbolic link (to {victim}), which is not followed" in str(caught.value)
    assert victim.read_text() == "precious"
    assert not list(root.rglob("*.json")) or name.endswith("holder.json")


def test_a_dangling_link_makes_no_file(tmp_path: Path) -> None:
    root, outside = tmp_path / "baselines", tmp_path / "outside"
    (root / ".locks").mkdir(parents=True)
    (root / ".locks" / ".gitignore").symlink_to(outside)
    with pytest.raises(BaselineError, match="is a symbolic link"):
        FileStore(root).save(baseline(stored("r1")))
    assert not outside.exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_baseline_that_is_no_plain_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    store = FileStore(tmp_path / "baselines")
    saved = store.save(baseline(stored("r1")))
    path = Path(saved.path)
    moved = path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(moved) if kind == "link" else os.mkfifo(path)
    said = "is a symbolic link" if kind == "link" else "is not a plain file"
    with pytest.raises(BaselineError, match=said):
        store.find(engine="sglang", model=MODEL, cell=saved.baseline.cell)
    assert [said in str(stray) for stray in store.strays()] == [True]


@pytest.mark.parametrize(
    "name",
    [
        ".moeperf",
        ".moeperf/.gitignore",
        ".moeperf/interrupted",
        *(f".moeperf/interrupted/j.{end}" for end in ("jsonl", "lock", "undecided")),
    ],
)
def test_a_journal_is_not_kept_through_a_link(tmp_path: Path, victim: Path, name: str) -> None:
    link = tmp_path / "project" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    journal = Journal(tmp_path / "project", "j")
    assert journal.runs() == ()
    with pytest.raises(OSError, match="is a symbolic link"):
        journal.take()
    assert victim.read_text() == "precious"


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "project").symlink_to("shared")
    keep_out_of_git(tmp_path / "project" / ".moeperf", below=tmp_path / "project")
    refuse_links(tmp_path / "project" / ".moeperf" / ".gitignore", below=tmp_path / "project")
    assert (tmp_path / "shared" / ".moeperf" / ".gitignore").read_text() == "*\n"


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a plain file"):
        read_text(tmp_path / "pipe")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(3 << 20)
    with pytest.raises(OSError, match="has 3 MiB; at most 1 MiB are read"):
        read_text(path, most_bytes=1 << 20)


@pytest.mark.parametrize("levels", [DEEPEST_JSON + 1, 1000, 200_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_deeply_is_no_json(levels: int, opening: str, closing: str) -> None:
    with pytest.raises(json.JSONDecodeError, match="nested more than 64 levels deep"):
        parse_json(opening * levels + "1" * (opening != "[") + closing * levels)


def test_usual_json_is_read() -> None:
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("text", ["[" * 200_000, '{"outcomes": ' + "[" * 900 + "]" * 900 + "}", "{}", "[]", "", "\x00"])
def test_every_command_says_what_is_wrong_with_a_hostile_file(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(record(Path("baselines"), cell(), days=[1, 2]))
    Path("perf").mkdir()
    Path("perf", "moeperf.json").write_text(text)
    Path("import.json").write_text(text)
    Path("baselines", "stray.json").write_text(text)
    commands = (
        ["report", "perf"],
        ["accept", cell().key, "--reason=x", "--from=perf"],
        ["diff", str(path), "perf"],
        ["import", "import.json"],
        ["show", "baselines/stray.json"],
    )
    for command in commands:
        ran = moeperf(*command)
        assert ran.code, command
        assert ran.err.strip(), command
        assert "Traceback" not in ran.out + ran.err
    assert moeperf("show").code == 0


@pytest.mark.parametrize(
    ("field", "value"), [("concurrency", -1), ("concurrency", 10**18), ("input_len", 0), ("output_len", 10**18)]
)
def test_a_cell_that_nobody_can_measure_is_refused(
    tmp_path: Path, field: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = encode(baseline(stored("r1")))
    plain = json.loads(text)
    plain["cell"]["workload"][field] = value
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(plain))
    assert f"{field} = {value}, which is not in" in moeperf("show", str(path)).err
    made = report(Path("perf"), outcome(decided(cell(), Verdict.REGRESSION), runs(cell(), day=20, factor=0.9)))
    file = Path(made) if Path(made).is_file() else Path(made) / "moeperf.json"
    data = json.loads(file.read_text())
    data["outcomes"][0]["decision"]["cell"]["workload"][field] = value
    file.write_text(json.dumps(data))
    assert f"{field} = {value}, which is not in" in moeperf("accept", cell().key, "--reason=x", "--from=perf").err

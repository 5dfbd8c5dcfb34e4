"""Baselines and reports of a pull request: whatever their texts hold, a command prints lines and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_samples import cell, decided, moeperf, outcome, record, report, runs

from pytest_moeperf.model.verdict import Verdict

HOSTILE = "x\x1b]52;c;cm0=\x07\x1b[2J\x1bc\x9b1m\u202e\u2066\n::error file=a.py::owned\n##[error]owned\r"
PLAIN = re.compile(r"(?:[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]|\n)*")


def poison(path: Path, *, names: frozenset[str]) -> None:
    """Every text under one of these names has something hostile behind it."""

    def with_poison(value: object, name: str = "") -> object:
        if isinstance(value, dict):
            return {key: with_poison(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [with_poison(item, name) for item in value]
        return f"{value}{HOSTILE}" if isinstance(value, str) and name in names else value

    path.write_text(json.dumps(with_poison(json.loads(path.read_text("utf-8")))), "utf-8")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.chdir(tmp_path)
    path = record(Path("baselines"), cell(), days=[1, 2, 3, 4])
    made = outcome(decided(cell(), Verdict.REGRESSION), runs(cell(), day=20, factor=0.9))
    written = report(Path("perf"), made)
    poison(
        Path(path), names=frozenset({"reason", "by", "kernel", "text", "source", "provenance", "runner", "gpu_name"})
    )
    poison(
        written,
        names=frozenset({"kernel", "text", "source", "runner", "model", "hardware", "headline", "why", "node_id"}),
    )
    return path, str(written)


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize("command", ["show", "show-cell", "diff", "accept"])
def test_lines_and_nothing_else(files: tuple[str, str], command: str, options: list[str]) -> None:
    baseline, written = files
    arguments = {
        "show": ["show"],
        "show-cell": ["show", baseline],
        "diff": ["diff", baseline, written],
        "accept": ["accept", cell().key, f"--reason={HOSTILE}", f"--from={written}"],
    }[command]
    ran = moeperf(*arguments, *(options if command != "accept" else []))
    told = ran.out + ran.err
    assert PLAIN.fullmatch(told), ascii(told)
    assert not re.search(r"^\s*::\S|##\[", told, re.MULTILINE), ascii(told)
    assert "Traceback" not in told
    if command == "diff":
        assert "owned" in told, "it was shown"


def test_a_page_that_is_drawn_again_holds_no_command(files: tuple[str, str]) -> None:
    pytest.importorskip("plotly")
    ran = moeperf("report", files[1], "--to=drawn")
    assert ran.code == 0, ran.err
    comment = Path("drawn/comment.md").read_text()
    assert PLAIN.fullmatch(comment)
    assert "##[" not in comment


def test_hostile_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["show", HOSTILE],
        ["diff", HOSTILE, HOSTILE],
        [HOSTILE],
        ["servers", "stop", HOSTILE],
        ["show", f"--x={HOSTILE}"],
    ):
        ran = moeperf(*arguments)
        assert ran.code
        assert PLAIN.fullmatch(ran.out + ran.err), ascii(ran)
        assert not re.search(r"^\s*::\S|##\[", ran.out + ran.err, re.MULTILINE), ascii(ran)

"""The main job on the real SGLang: record, pass, fail on a regression that was made on purpose, pass again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sglang_project import PytestRun, SglangProject, make_project

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.bench.warmup import MAX_EXTRA_RUNS

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(3600)]

RUNS = 5
"""Of a launch, by the project's own file."""
NUMBER = r"[\d.]+k?"
CHANGE = r"[+-][\d.]+ % \[[+-][\d.]+, [+-][\d.]+\]"
COMPARED = rf"c=1 64/64 {NUMBER} tok/s {NUMBER} tok/s {CHANGE}"


@pytest.fixture
def project(tmp_path: Path, sglang_python: str) -> Iterator[SglangProject]:
    made = make_project(tmp_path, python=sglang_python)
    yield made
    made.end_servers()


def row(run: PytestRun) -> str:
    """The cell's line in the table, blanks squeezed."""
    return next(" ".join(line.split()) for line in run.text.splitlines() if line.startswith("c=1 64/64 "))


def outcome(project: SglangProject, report: str) -> dict[str, Any]:
    data = json.loads((project.folder / report / "moeperf.json").read_text("utf-8"))
    (only,) = data["outcomes"]
    return dict(only)


def test_a_regression_is_caught_and_nothing_else_is(project: SglangProject) -> None:
    recorded = project.pytest("--backend=auto", "--update-baselines", "--perf-launches=1")
    assert recorded.code == pytest.ExitCode.OK, recorded.text
    assert re.search(rf"^c=1 64/64 - {NUMBER} tok/s - recorded 1( |$)", row(recorded)), recorded.text
    assert "moeperf  auto held against its own baseline | CPU, tiny-moe, sglang" in recorded.text
    (file,) = (project.folder / "baselines").rglob("*.json")
    assert re.fullmatch(
        r"sglang/tiny-moe/auto/c1-in64-out64@[0-9a-f]{8}\.json", str(file.relative_to(project.folder / "baselines"))
    )
    assert f"Recorded: {file.relative_to(project.folder)}." in recorded.words
    before = file.read_bytes()
    (entry,) = FileStore(project.folder / "baselines").all()
    assert entry.baseline.provisional
    assert entry.baseline.launches == 1
    # On a busy host it takes more runs until the trend is gone.
    assert RUNS <= len(entry.baseline.runs) <= RUNS + MAX_EXTRA_RUNS
    assert (entry.baseline.evidence.status, entry.baseline.evidence.runner) == ("confirmed", "native")
    assert entry.baseline.fingerprint.software["engine_version"] == "0.5.14"
    assert entry.baseline.fingerprint.server["moe_runner_backend"] == "auto"
    assert entry.baseline.fingerprint.server["env.OMP_NUM_THREADS"] == "1"
    assert str(project.folder) not in before.decode()
    assert project.processes_left() == []

    passed = project.pytest("--backend=auto", "--perf-keep-server=10min", "--perf-report=report")
    assert passed.code == pytest.ExitCode.OK, passed.text
    assert re.search(rf"^{COMPARED} (EQUIVALENT|NON_INFERIOR) \d", row(passed)), passed.text
    assert "Provisional baseline (fewer than 4 launches in 2 sessions" in passed.words
    told = outcome(project, "report")
    # Other port, other process, other seeds of the prompts: nothing of that is a difference.
    assert told["decision"]["differences"] == []
    assert {run["launch"]["reused"] for run in told["runs"]} == {False}
    assert (told["evidence"]["status"], told["evidence"]["runner"]) == ("confirmed", "native")
    assert file.read_bytes() == before
    assert any("sglang.launch_server" in command for command in project.processes())

    failed = project.pytest("--backend=auto", "--perf-report=report", sleep_ms=20)
    assert failed.code == pytest.ExitCode.TESTS_FAILED, failed.text
    assert re.search(rf"^{COMPARED} REGRESSION \d", row(failed)), failed.text
    assert re.search(rf"REGRESSION:? TPOT at c=1: {NUMBER} against {NUMBER} ms, \+[\d.]+ % \(slower\)", failed.words), (
        failed.text
    )
    assert 'Ran: native (confirmed, /server_info device: "cpu").' in failed.words
    # What the server's log says of itself is told, and conditions are not called the same beside it.
    assert "Note: attention runs on another backend than asked or usual" in failed.words, failed.text
    assert "Nothing that is compared differs" not in failed.words
    assert "Engine: sglang 0.5.14." in failed.words
    told = outcome(project, "report")
    reused = list({run["launch"]["id"]: run["launch"]["reused"] for run in told["runs"]}.values())
    # The server that was kept warm, then fresh ones: one launch alone fails nothing.
    assert len(reused) >= 2
    assert reused == [True] + [False] * (len(reused) - 1)
    assert file.read_bytes() == before
    assert project.processes_left() == []

    recovered = project.pytest("--backend=auto")
    assert recovered.code == pytest.ExitCode.OK, recovered.text
    assert re.search(rf"^{COMPARED} (EQUIVALENT|NON_INFERIOR) \d", row(recovered)), recovered.text
    assert project.processes_left() == []


def test_a_backend_that_did_not_run_is_invalid(project: SglangProject) -> None:
    """On a CPU every runner is the native one, while the server repeats the name that it was given."""
    run = project.pytest("--backend=triton", "--update-baselines")
    assert run.code == pytest.ExitCode.TESTS_FAILED, run.text
    assert row(run) == "c=1 64/64 - - - INVALID 0", run.text
    # A busy machine may make other checks fail beside it.
    assert "INVALID c=1: asked for triton, but native ran." in run.words, run.text
    assert "The runs can't be trusted: backend_evidence failed in 1 of 1 runs" in run.words, run.text
    assert re.search(
        r"triton was asked for, native ran \(/server_info device: cpu; server log line \d+: \S.* device='cpu', ",
        run.words,
    ), run.text
    assert 'Ran: native, not triton (contradicted, /server_info device: "cpu").' in run.words
    assert "Not recorded: native ran instead of triton." in run.words
    # One run is enough: no repetition changes which code runs.
    assert len(re.findall(r"\| warm-up \| INVALID: .*backend_evidence", run.text)) == 1
    assert "| run 1 |" not in run.text
    assert not list(project.folder.glob("baselines/**/*.json"))
    assert project.processes_left() == []

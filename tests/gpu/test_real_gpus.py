"""The main job on real GPUs: which kernel ran, a regression made on purpose, and what can't be compared."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tiny_moe
from sglang_project import PytestRun, SglangProject, make_gpu_project

from pytest_moeperf.baselines.files import FileStore

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(3600)]

ONE_CELL = ("-k", "c10")
# Machines differ by 1.7 % in this cell, runs by as much: these tests are about the whole way, not about small changes.
WIDE = """
regression = "40%"
win = "60%"
proven = "10%"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SglangProject]:
    """With one recorded baseline: a launch takes a minute, so the tests share it."""
    made = make_gpu_project(tmp_path_factory.mktemp("gpu"))
    test = made.folder / "test_decode.py"
    text = test.read_text("utf-8")
    for metric in ("throughput", "tpot"):
        text = text.replace(f'@pytest.mark.{metric}(regression="5%", win="3%")', f"@pytest.mark.{metric}")
    assert '"5%"' not in text
    test.write_text(text, "utf-8")
    config = made.folder / "moeperf.toml"
    config.write_text(config.read_text("utf-8").replace("\n[server]", f"{WIDE}\n[server]", 1), "utf-8")
    try:
        recorded = told(made.pytest("--backend=triton", "--update-baselines", "--perf-launches=1", *ONE_CELL))
        assert recorded.code == pytest.ExitCode.OK
        yield made
    finally:
        made.end_servers()


@pytest.fixture(autouse=True)
def _nothing_left(project: SglangProject) -> Iterator[None]:
    yield
    assert project.processes_left() == []


def told(run: PytestRun) -> PytestRun:
    """Shown with a failed test, and by -rP."""
    print(run.text)
    return run


@contextmanager
def configured(project: SglangProject, old: str, new: str) -> Iterator[None]:
    """``moeperf.toml`` with this in place of that, for one invocation: the tests share the project."""
    config = project.folder / "moeperf.toml"
    before = config.read_text("utf-8")
    assert old in before
    config.write_text(before.replace(old, new, 1), "utf-8")
    try:
        yield
    finally:
        config.write_text(before, "utf-8")


def outcome(project: SglangProject) -> dict[str, Any]:
    data = json.loads((project.folder / "report" / "moeperf.json").read_text("utf-8"))
    (only,) = data["outcomes"]
    return dict(only)


def test_the_kernel_that_ran_is_known(project: SglangProject) -> None:
    (entry,) = FileStore(project.folder / "baselines").all()
    assert (entry.baseline.evidence.status, entry.baseline.evidence.runner) == ("confirmed", "triton")
    assert "H200" in str(entry.baseline.fingerprint.hardware["gpu_name"])


def test_one_gpu_and_two_are_not_compared(project: SglangProject) -> None:
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    if gpus.count("GPU ") < 2:
        pytest.skip("needs two GPUs")
    with configured(project, "\n[server]", "\ntensor_parallel = 2\n\n[server]"):
        told(project.pytest("--backend=triton", "--perf-report=report", *ONE_CELL))
    decision = outcome(project)["decision"]
    assert decision["verdict"] == "INCOMPARABLE"
    assert "server.tp_size" in {item["field"] for item in decision["differences"] if item["blocking"]}


def test_a_flag_that_has_no_kernel_makes_no_baseline(project: SglangProject) -> None:
    """SGLang 0.5.14 has no cutlass kernel for a bf16 checkpoint: it takes the flag and runs triton."""
    before = sorted(project.folder.glob("baselines/**/*.json"))
    run = told(project.pytest("--backend=cutlass", "--update-baselines", "--perf-launches=1", *ONE_CELL))
    assert run.code == pytest.ExitCode.TESTS_FAILED
    assert "asked for cutlass, but triton ran" in run.words
    assert sorted(project.folder.glob("baselines/**/*.json")) == before


def test_the_same_again_passes(project: SglangProject) -> None:
    passed = told(project.pytest("--backend=triton", "--perf-report=report", *ONE_CELL))
    assert passed.code == pytest.ExitCode.OK
    assert outcome(project)["decision"]["verdict"] in ("EQUIVALENT", "NON_INFERIOR")


def test_a_regression_is_caught(project: SglangProject) -> None:
    failed = told(project.pytest("--backend=triton", "--perf-report=report", *ONE_CELL, sleep_ms=10))
    assert failed.code == pytest.ExitCode.TESTS_FAILED
    assert outcome(project)["decision"]["verdict"] == "REGRESSION"


def test_a_server_that_dies_of_a_request_says_so(project: SglangProject) -> None:
    """The checkpoint declares fp8, for which flashinfer_cutlass has no kernel; the flag passes SGLang's checks. 0.5.23
    runs triton instead and says so in its log; 0.5.14 has no runner then, and dies of a request."""
    tiny_moe.make_tiny_moe(project.folder / "moe-64x8-fp8", preset="h200-fp8")
    with configured(project, '"moe-64x8"', '"moe-64x8-fp8"'):
        run = told(project.pytest("--backend=flashinfer_cutlass", "--update-baselines", *ONE_CELL))
    assert run.code == pytest.ExitCode.TESTS_FAILED
    assert re.search(
        r"asked for flashinfer_cutlass, but triton ran|(exited with code|was ended by) .* before it was ready|"
        r"INVALID c=10: .*no_failed_requests",
        run.words,
    )
    assert not list(project.folder.glob("baselines/**/flashinfer_cutlass/*.json"))

"""What used to end in an internal error, a hang or a lost table ends in a sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_moeperf.testing import QUICK_TEST, SimulatedSuite

RECORD = ("-q", "--update-baselines", "--perf-launches=1")


def test_a_plan_is_told_on_any_number_of_workers(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    alone, workers = suite.run("--perf-plan"), suite.run("--perf-plan", "-n", "2")
    assert workers.code == 0, workers.raw
    assert [line for line in workers.raw.splitlines() if line.startswith("  cell")] == [
        line for line in alone.raw.splitlines() if line.startswith("  cell")
    ]
    assert not (own_runtime_folder / "launches").exists()


@pytest.mark.parametrize("flag", ["--port=31999", "--host=0.0.0.0", "--tp-size=2", "--model-path=x", "--nnodes=2"])
def test_a_flag_that_the_launcher_sets_is_refused(suite: SimulatedSuite, flag: str, own_runtime_folder: Path) -> None:
    config = suite.pytester.path / "moeperf.toml"
    config.write_text(config.read_text() + f'\n[server]\nargs = ["{flag}"]\n')
    result = suite.run("-q")
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert (
        f"args: fast: {flag.partition('=')[0]} is set by the launcher, and this one would take its place" in result.text
    )
    assert not (own_runtime_folder / "launches").exists()


def test_a_flag_that_a_fixture_adds_is_refused_too(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    suite.pytester.makeconftest(
        "import dataclasses\nimport pytest\n\n@pytest.fixture\ndef moeperf_server_spec(moeperf_server_spec):\n"
        "    return dataclasses.replace(moeperf_server_spec, args=(*moeperf_server_spec.args, '--port=31999'))\n"
    )
    result = suite.run("-q", "-k", "fast-1")
    assert result.code == 1
    assert "--port is set by the launcher, and this one would take its place" in result.text
    assert not list((own_runtime_folder / "launches").rglob("*.log"))


def test_a_file_that_is_not_utf_8(suite: SimulatedSuite) -> None:
    (suite.pytester.path / "moeperf.toml").write_bytes("# caf\xe9\n".encode("latin-1"))
    result = suite.run("-q")
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: <folder>/moeperf.toml: is not UTF-8 text (byte 5)" in result.text


@pytest.mark.parametrize("raises", ["1 / 0", "pytest.fail('the dashboard is down')"])
def test_a_hook_that_raises_costs_a_line_and_no_verdict(suite: SimulatedSuite, raises: str) -> None:
    suite.pytester.makeconftest(f"import pytest\n\ndef pytest_moeperf_outcome(outcome, config):\n    {raises}\n")
    result = suite.run(*RECORD, "-k", "fast-1")
    assert result.code == 1
    assert "c=1 16/32   -          # tok/s   -             recorded   1" in result.text
    assert result.text.count("moeperf: hook pytest_moeperf_outcome raised ") == 1
    assert "INTERNALERROR" not in result.text


@pytest.mark.parametrize("arguments", [(), ("--perf-plan",)], ids=["measured", "planned"])
@pytest.mark.parametrize("hook", ["pytest_moeperf_software(spec)", "pytest_moeperf_server_spec(spec, settings)"])
def test_a_hook_that_raises_before_the_launch_is_named(
    suite: SimulatedSuite, hook: str, arguments: tuple[str, ...], own_runtime_folder: Path
) -> None:
    suite.pytester.makeconftest(f"def {hook}:\n    raise OSError('no such commit')\n")
    result = suite.run("-q", *arguments)
    assert result.code != 0
    assert f"hook {hook.partition('(')[0]}" in result.text
    assert "raised OSError: no such commit" in result.text
    assert "Traceback" not in result.text
    assert "INTERNALERROR" not in result.text
    assert not (own_runtime_folder / "launches").exists()


def test_a_stray_file_among_the_baselines_costs_a_warning(suite: SimulatedSuite) -> None:
    assert suite.run(*RECORD, "-k", "fast-1").code == 0
    (suite.pytester.path / "baselines" / "notes.json").write_text('{"a": 1}')
    result = suite.run("-k", "fast-1", "--perf-report=report")
    assert result.code == 0, result.raw
    assert "baselines/notes.json: " in result.text
    assert "it is left alone" in result.text.replace("\n  ", " ")
    report = json.loads((suite.pytester.path / "report" / "moeperf.json").read_text())
    assert list(report["baselines"]) == ["fast/c1-in16-out32"]


def test_an_empty_variable_is_unset(suite: SimulatedSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOEPERF_BUDGET", "MOEPERF_ENGINE", "MOEPERF_REFERENCE", "MOEPERF_NO_SUCH_THING"):
        monkeypatch.setenv(name, "")
    result = suite.run("--perf-plan")
    assert result.code == 0, result.raw
    assert "MOEPERF_" not in result.text


UNITTEST = """\
import unittest
import pytest

@pytest.mark.perf(concurrency=1, input_len=16, output_len=32)
class TestServing(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _moeperf(self, moeperf):
        self.moeperf = moeperf

    def test_decode(self):
        self.assertTrue(self.moeperf.measure().recorded)

    def test_forgets(self):
        pass

    def test_skips(self):
        self.skipTest("not here")
"""


def test_a_test_case_measures(pytester: pytest.Pytester) -> None:
    suite = SimulatedSuite(pytester, test=UNITTEST)
    result = suite.run(*RECORD)
    assert "1 failed, 1 passed, 1 skipped" in result.text
    assert "no verdict was asked for" in result.section("_ TestServing.test_forgets _", "== moeperf ==")
    assert "was not known at collection" not in result.text
    assert list((suite.pytester.path / "baselines").rglob("fast/c1-in16-out32@*.json"))
    plain = pytester.runpytest_subprocess("-q")
    plain.assert_outcomes(skipped=3)


LATE = """\
import pytest

@pytest.mark.perf(concurrency=1, input_len=16, output_len=32)
def test_late(request):
    request.getfixturevalue("moeperf").measure()
"""


def test_a_test_that_asks_for_the_fixture_as_it_runs_measures(pytester: pytest.Pytester) -> None:
    suite = SimulatedSuite(pytester, test=LATE)
    result = suite.run(*RECORD)
    assert result.code == 0, result.raw
    assert "c=1 16/32" in result.text
    plain = pytester.runpytest_subprocess("-q")
    plain.assert_outcomes(skipped=1)
    several = suite.run("-q", "--backend=slow")
    assert several.code == 1
    assert "2 backends are named (fast, slow), and this test can't be run once for each" in several.text


def test_collecting_needs_no_backend(suite: SimulatedSuite) -> None:
    result = suite.pytester.runpytest_subprocess("--collect-only", "-q", "-m", "perf")
    assert result.ret == 0
    assert "test_serving.py::test_decode[no-backend-1]" in result.outlines


def test_an_option_of_that_name_in_a_folder_of_tests(suite: SimulatedSuite) -> None:
    folder = suite.pytester.mkdir("theirs")
    (folder / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--backend')\n")
    (folder / "test_theirs.py").write_text(QUICK_TEST)
    result = suite.pytester.runpytest_subprocess("theirs", "-m", "perf", "--backend=fast")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --perf-backend: no backend is named, so there is nothing to measure (--backend is an option of*",
            "*next: pytest -m perf --perf-backend=NAME, or *",
        ]
    )


def test_ctrl_c_to_the_controller_alone_loses_no_run(suite: SimulatedSuite) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "perf",
        "--backend=fast",
        *RECORD,
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
    ]
    kept = suite.pytester.path / ".moeperf" / "interrupted"
    with subprocess.Popen(command, cwd=suite.pytester.path, stdout=subprocess.PIPE, text=True) as process:
        deadline_s = time.monotonic() + 120
        while not any(path.read_text() for path in kept.glob("*.jsonl")) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    (journal,) = kept.glob("*.jsonl")
    runs = len(journal.read_text().splitlines())
    assert f"moeperf: {runs} finished run" in output
    again = suite.run(*RECORD, "--perf-continue", "--perf-report=report")
    assert again.code == 0, again.raw
    report = json.loads((suite.pytester.path / "report" / "moeperf.json").read_text())
    measured = {run["id"] for outcome in report["outcomes"] for run in outcome["runs"]}
    assert (
        {json.loads(line)["id"] for line in journal.read_text().splitlines()} <= measured if journal.exists() else True
    )

"""A project without performance tests does not notice that the plugin is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLAIN = "def test_plain(): pass\n"
PERF = """\
import pytest

@pytest.mark.perf(concurrency=1)
def test_decode(moeperf):
    moeperf.measure()
"""


def lines(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if " in " not in line and not line.startswith(("plugins:", "cachedir"))]


def test_a_plain_project_looks_the_same_with_and_without(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_plain=PLAIN)
    with_plugin = pytester.runpytest_subprocess("-v")
    without = pytester.runpytest_subprocess("-v", "-p", "no:moeperf")
    assert with_plugin.ret == without.ret == 0
    assert lines(with_plugin) == lines(without)
    assert not (pytester.path / ".moeperf").exists()


def test_perf_tests_are_skipped_with_the_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_perf=PERF)
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * performance test: run it with -m perf or --backend=NAME"])


@pytest.mark.parametrize("expression", ["not perf", "not perf and not slow"])
def test_deselecting_them_is_no_perf_session(pytester: pytest.Pytester, expression: str) -> None:
    pytester.makepyfile(test_perf=PERF, test_plain=PLAIN)
    result = pytester.runpytest_subprocess("-m", expression)
    result.assert_outcomes(passed=1, deselected=1)
    assert result.ret == 0


def test_an_option_of_that_name_may_be_somebody_elses(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--backend', default='theirs')\n"
        "    parser.addoption('--update-baselines', action='store_true')\n"
    )
    pytester.makepyfile(
        test_plain="def test_plain(pytestconfig):\n"
        "    assert pytestconfig.getoption('--backend') == 'x'\n"
        "    assert pytestconfig.getoption('--update-baselines')\n"
    )
    result = pytester.runpytest_subprocess("--backend=x", "--update-baselines")
    result.assert_outcomes(passed=1)
    assert pytester.runpytest_subprocess("-m", "perf", "--perf-backend=nobody").ret == pytest.ExitCode.USAGE_ERROR


def test_nothing_heavy_is_imported_at_start() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import pytest_moeperf.plugin;"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['pytest_moeperf']"


def test_the_markers_are_registered(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.perf(*", "@pytest.mark.throughput(*", "@pytest.mark.goodput(*"])

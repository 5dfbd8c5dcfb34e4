"""Nothing is green by omission, or because something else was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_moeperf.testing import QUICK_TEST, SimulatedSuite, SuiteResult

RECORD = ("-q", "--update-baselines", "--perf-launches=1")
HEAD = "import pytest\n\n@pytest.mark.perf(concurrency=1, input_len=16, output_len=32)\n"


def stored(suite: SimulatedSuite) -> list[Path]:
    return sorted(suite.pytester.path.rglob("baselines/**/*.json"))


def nothing_started(runtime: Path) -> bool:
    return not (runtime / "launches").exists()


# 1. A verdict that nobody asked for.

BOTH = (
    HEAD
    + """\
def test_measures(moeperf):
    moeperf.measure()

@pytest.mark.perf(concurrency=1, input_len=16, output_len=32)
def test_forgets(moeperf):
    if moeperf.backend:
        return
    moeperf.measure()
"""
)


def test_a_test_that_asks_for_no_verdict_fails_though_another_one_measured(pytester: pytest.Pytester) -> None:
    suite = SimulatedSuite(pytester, test=BOTH)
    result = suite.run(*RECORD)
    assert result.code == 1
    assert "1 failed, 1 passed" in result.text
    assert result.section("_ test_forgets[fast] _", "== moeperf ==") == (
        "______________________________ test_forgets[fast] ______________________________\n"
        "no verdict was asked for: the test ended before it called moeperf.measure(), so nothing was shown\n"
        "  next: call moeperf.measure(); or pytest.skip(REASON) where there is nothing to measure"
    )


def test_one_that_skips_or_is_expected_to_fail_says_so_itself(pytester: pytest.Pytester) -> None:
    skips = HEAD + "def test_skips(moeperf):\n    pytest.skip('not here')\n"
    xfails = HEAD.replace("import pytest\n", "") + "@pytest.mark.xfail\ndef test_xfails(moeperf):\n    pass\n"
    result = SimulatedSuite(pytester, test=skips + xfails).run(*RECORD)
    assert "1 skipped, 1 xfailed" in result.text


FAILS_LATER = (
    HEAD
    + """\
def test_later(moeperf):
    moeperf.measure()
    assert False, "something else is broken"

@pytest.fixture
def checked():
    yield
    assert False, "the log has an error"

@pytest.mark.perf(concurrency=2, input_len=16, output_len=32)
def test_teardown(checked, moeperf):
    moeperf.measure()

@pytest.mark.perf(concurrency=4, input_len=16, output_len=32)
def test_fine(moeperf):
    assert moeperf.measure().recorded
"""
)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_that_fails_after_measuring_records_nothing(pytester: pytest.Pytester, workers: str) -> None:
    suite = SimulatedSuite(pytester, test=FAILS_LATER)
    result = suite.run(*RECORD, "-n", workers)
    assert result.code == 1
    assert [path.name.partition("@")[0] for path in stored(suite)] == ["c4-in16-out32"]
    assert result.text.count(": not recorded: its test failed after measure()\n") == 2
    # Its runs are not lost: mended, the test records them.
    test = suite.pytester.path / "test_serving.py"
    test.write_text(test.read_text().replace("assert False", "assert True"))
    again = suite.run(*RECORD, "--perf-continue")
    assert again.code == 0, again.raw
    assert "is up" not in again.raw
    assert len(stored(suite)) == 3


# 2. The configuration is that of the tests.


def moved(suite: SimulatedSuite, folder: str) -> Path:
    """The suite's configuration and test in a folder of their own."""
    target = suite.pytester.path / folder
    target.mkdir()
    for name in ("moeperf.toml", "test_serving.py"):
        (suite.pytester.path / name).rename(target / name)
    return target


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_configuration_beside_the_tests_is_found_from_the_root(suite: SimulatedSuite, workers: str) -> None:
    moved(suite, "perf")
    result = suite.run("--update-baselines", "--perf-launches=1", "-k", "fast-1", "-n", workers)
    assert result.code == 0, result.raw
    assert (
        f"moeperf: engine simulated, fast, held against their own baselines ({suite.pytester.path}/perf/moeperf.toml)"
        in (result.raw)
    )
    assert [path.parts[-4] for path in stored(suite)] == ["simulated"]
    assert (suite.pytester.path / "perf" / "baselines").is_dir()
    assert "SIMULATED" not in result.raw


def test_an_engine_that_a_file_below_names_is_not_replaced_by_another(
    suite: SimulatedSuite, own_runtime_folder: Path
) -> None:
    (moved(suite, "perf") / "moeperf.toml").write_text('engine = "sglang"\nmodel = "/no/such/model"\n')
    result = suite.run("-q")
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: [tool.moeperf] model: '/no/such/model' is not a folder" in result.text
    assert nothing_started(own_runtime_folder)


def test_two_configurations_are_two_invocations(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    for name in ("one", "two"):
        folder = suite.pytester.path / name
        folder.mkdir()
        (folder / "moeperf.toml").write_text((suite.pytester.path / "moeperf.toml").read_text())
        (folder / f"test_{name}.py").write_text(QUICK_TEST)
    (suite.pytester.path / "moeperf.toml").unlink()
    (suite.pytester.path / "test_serving.py").unlink()
    result = suite.run("-q")
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert result.section("ERROR: ") == (
        "ERROR: moeperf.toml: 2 of them are below what pytest was started on: one/moeperf.toml, two/moeperf.toml\n"
        "  allowed: one an invocation: it has one engine, one store and one report\n"
        "  next: pytest -m perf --backend=fast -q one\n"
        "     pytest -m perf --backend=fast -q two"
    )
    assert nothing_started(own_runtime_folder)
    for name in ("one", "two"):
        assert suite.run(*RECORD, "-k", "fast-1", name).code == 0
        assert list((suite.pytester.path / name / "baselines").rglob("*.json"))


@pytest.mark.parametrize("own", ["moeperf.toml", ""])
def test_a_test_of_another_configuration_is_not_measured_by_this_one(
    suite: SimulatedSuite, own: str, own_runtime_folder: Path
) -> None:
    folder = suite.pytester.path / ("nested" if own else "other")
    folder.mkdir()
    (folder / "test_other.py").write_text(QUICK_TEST)
    if own:
        (folder / own).write_text('engine = "sglang"\nmodel = "x"\n')
        expected = "configuration is nested/moeperf.toml, and that of this invocation is moeperf.toml"
        step = "next: pytest -m perf --backend=fast -q nested"
    else:
        moved(suite, "perf")
        expected = "configuration is missing, and that of this invocation is perf/moeperf.toml"
        step = "next: put a moeperf.toml beside this test or above it, or leave it out"
    result = suite.run("-q")
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert f"test_other.py::test_decode[fast-1]: its {expected}\n" in result.text
    assert step in result.text
    assert nothing_started(own_runtime_folder)
    workers = suite.run("-q", "-n", "2")
    assert workers.code == 1
    assert expected in workers.text
    assert nothing_started(own_runtime_folder)


@pytest.mark.parametrize("quiet", ["", "-q", "-qq"])
def test_without_any_configuration_simulated_is_the_first_and_the_last_word(
    pytester: pytest.Pytester, quiet: str
) -> None:
    pytester.makepyfile(test_serving=QUICK_TEST)
    result = pytester.runpytest_subprocess("-m", "perf", "--perf-backend=triton", "--perf-plan", *filter(None, [quiet]))
    lines = [line for line in result.outlines if line.strip()]
    told = [
        number for number, line in enumerate(lines) if line.startswith("moeperf: SIMULATED: nothing names an engine")
    ]
    assert len(told) == 2
    assert told[-1] == len(lines) - 1
    assert told[0] < next(number for number, line in enumerate(lines) if "plan for" in line)


# 3. The fixture moeperf_config.

OWN_CONFIG = """\
import dataclasses
import pytest

@pytest.fixture(scope="session")
def moeperf_config(moeperf_config):
    gate = dataclasses.replace(moeperf_config.gate, regression=0.4, runs_per_launch=4, record_launches=3)
    return dataclasses.replace(moeperf_config, gate=gate, min_window_s=0.02)
"""


def test_an_own_moeperf_config_holds_in_the_plan_and_in_the_measurement(suite: SimulatedSuite) -> None:
    suite.pytester.makeconftest(OWN_CONFIG)
    plan = suite.run("-q", "-k", "fast-1", "--update-baselines", "--perf-plan")
    assert plan.code == 0, plan.raw
    assert "3 launches" in plan.raw
    recorded = suite.run("-q", "-k", "fast-1", "--update-baselines", "--perf-report=report")
    assert recorded.code == 0, recorded.raw
    assert "3 launches" in recorded.raw
    text = (suite.pytester.path / "report" / "moeperf.json").read_text()
    assert '"regression": 0.4' in text


REFUSED_CONFIGS = {
    "def moeperf_config(moeperf_config, tmp_path_factory):\n    return moeperf_config": (
        "needs tmp_path_factory, which is not there yet when cells are planned"
    ),
    "def moeperf_config(moeperf_config):\n    return dataclasses.replace(moeperf_config, report_dir='x', engine='sglang')": (
        "changes engine, report_dir, which an invocation has once"
    ),
    "def moeperf_config(moeperf_config):\n    return {'runs': 5}": "returned {'runs': 5}",
    "def moeperf_config(moeperf_config):\n    return 1 / 0": "raised ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("body", REFUSED_CONFIGS, ids=["needs", "changes", "returns", "raises"])
def test_an_own_moeperf_config_that_can_not_be_honoured_is_refused(
    suite: SimulatedSuite, body: str, own_runtime_folder: Path
) -> None:
    suite.pytester.makeconftest(f"import dataclasses\nimport pytest\n\n@pytest.fixture(scope='session')\n{body}\n")
    result = suite.run("-q")
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: fixture moeperf_config in conftest.py or a plugin: {REFUSED_CONFIGS[body]}" in result.text
    assert nothing_started(own_runtime_folder)


# 5. Judged runs are gone.


def test_nothing_passes_on_runs_that_were_judged(pytester: pytest.Pytester) -> None:
    test = HEAD.replace("concurrency=1, ", "") + "def test_late(moeperf):\n    moeperf.measure(concurrency=2)\n"
    suite = SimulatedSuite(pytester, test=test)
    assert suite.run(*RECORD).code == 0
    passed = suite.run()
    assert passed.code == 0, passed.raw
    again = suite.run("--perf-continue")
    assert again.code == 0, again.raw
    assert "continuing with launch" not in again.raw
    assert "candidate is up" in again.raw


# 6. Another suite's own marker.

THEIRS = """\
import pytest

@pytest.mark.perf("theirs", repeat=3)
def test_theirs():
    pass
"""


def test_another_suites_own_marker_is_left_alone(suite: SimulatedSuite) -> None:
    suite.pytester.makepyfile(test_theirs=THEIRS)
    plain = suite.pytester.runpytest_subprocess("-q")
    plain.assert_outcomes(passed=1, skipped=2)
    plan = suite.run("--perf-plan")
    assert plan.code == 0, plan.raw
    measured = suite.run(*RECORD, "-k", "fast-1 or theirs")
    assert "1 passed, 1 deselected, 1 error" in measured.text
    assert "During handling" not in measured.text
    assert "test_theirs.py::test_theirs: is marked 'perf' but does not use the 'moeperf' fixture" in measured.text
    assert len(stored(suite)) == 1


# 7. What can be known before it costs a launch.


def test_a_store_that_can_not_be_written_is_told_first(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    (suite.pytester.path / "baselines").write_text("a file")
    result = suite.run(*RECORD)
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert (
        "ERROR: --update-baselines: nothing could be recorded in <folder>/baselines: <folder>/baselines is a file"
        in (result.text)
    )
    assert nothing_started(own_runtime_folder)


def test_a_reference_that_can_not_be_launched_is_told_first(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    config = suite.pytester.path / "moeperf.toml"
    config.write_text(config.read_text() + '\n[reference]\npython = "/no/such/python"\n')
    result = suite.run("-q")
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert "'/no/such/python' is not a file" in result.text
    assert nothing_started(own_runtime_folder)


def test_a_baseline_that_can_not_be_read_is_told_first(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    assert suite.run(*RECORD, "-k", "fast-1").code == 0
    (path,) = stored(suite)
    path.write_text(path.read_text()[:100])
    for arguments in ((), ("--update-baselines",)):
        result: SuiteResult = suite.run(*arguments, "-k", "fast-1")
        assert result.code == 1
        assert "is cut off or broken" in result.text
        assert "launching the candidate" not in result.raw, arguments

"""What is refused before anything is started: the whole text, exit code 4, and no server."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_moeperf.testing import SimulatedSuite


def refused(suite: SimulatedSuite, runtime: Path, *arguments: str, backend: str = "fast") -> str:
    result = suite.run(*arguments, backend=backend)
    assert result.code == pytest.ExitCode.USAGE_ERROR, result.raw
    assert not (runtime / "launches").exists()
    lines = result.text.splitlines()
    return "\n".join(lines[next(n for n, line in enumerate(lines) if "rror: " in line or "ERROR: " in line) :]).rstrip()


def test_an_unknown_backend(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    assert refused(suite, own_runtime_folder, backend="cutedls") == (
        "ERROR: --backend=cutedls: the engine 'simulated' has no profile of that name, and there is no"
        " [tool.moeperf.backends.cutedls] table that names a profile file\n"
        "  allowed: auto, flashinfer_cutedsl, flashinfer_cutlass, triton, triton_kernel\n"
        '  next: mend the name, or name a profile file in that table: args = ["--profile=FILE.toml"]'
    )


def test_a_malformed_flag(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    assert "error: argument --perf-budget: 'soon' is not a duration such as '90s', '30min' or '1h30min'" in refused(
        suite, own_runtime_folder, "--perf-budget=soon"
    )


def test_a_variable_that_sets_nothing_is_told_at_the_top(
    suite: SimulatedSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOEPERF_TENSOR_PARALEL", "2")
    lines = suite.run("--collect-only").text.splitlines()
    (number,) = (number for number, line in enumerate(lines) if line.startswith("moeperf: engine simulated"))
    assert (
        lines[number + 1]
        == "moeperf: MOEPERF_TENSOR_PARALEL is set, but there is no such option (is MOEPERF_TENSOR_PARALLEL meant?)"
    )


def test_a_variable_that_sets_nothing_is_told_where_it_was_to_name_the_backend(
    suite: SimulatedSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOEPERF_BACKENDS", "fast")
    told = "MOEPERF_BACKENDS is set, but there is no such option (is MOEPERF_BACKEND meant?)"
    without = suite.pytester.runpytest_subprocess("-m", "perf")
    without.stderr.fnmatch_lines([f"ERROR: --backend: no backend is named, so there is nothing to measure; {told}"])
    assert f"moeperf: {told}" in suite.run("-q", "--perf-plan").text, "-q has no header"


def test_an_unknown_reference_is_reported_where_it_is_named(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    assert refused(suite, own_runtime_folder, "--perf-reference=nope").startswith("ERROR: --perf-reference=nope: ")
    config = suite.pytester.path / "moeperf.toml"
    config.write_text(f'reference = "nope"\n{config.read_text()}')
    assert refused(suite, own_runtime_folder).startswith(
        'ERROR: <folder>/moeperf.toml [tool.moeperf] reference, "nope": the engine'
    )


def test_a_mistyped_argument_of_measure(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    test = suite.pytester.path / "test_serving.py"
    test.write_text(test.read_text().replace("measure()", "measure(concurency=concurrency)"))
    assert refused(suite, own_runtime_folder).startswith(
        "ERROR: test_serving.py::test_decode[fast-1]: measure(): unknown argument 'concurency'\n  allowed: concurrency, "
    )


HOOK = """
import dataclasses

def pytest_moeperf_server_spec(spec, settings):
    return {}
"""


def test_a_flag_that_only_the_hook_adds(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    suite.pytester.makeconftest(HOOK.format('dataclasses.replace(spec, args=(*spec.args, "--no-such-flag"))'))
    assert refused(suite, own_runtime_folder) == (
        "ERROR: [tool.moeperf.server] args: fast: the engine 'simulated' refuses them: unrecognized arguments:"
        " --no-such-flag\n"
        "  next: python -m pytest_moeperf.engines.simulated --help lists what it takes"
    )
    # What the backend is held against is launched in the same way, so it is checked in the same way.
    only_slow = 'dataclasses.replace(spec, args=(*spec.args, "--no-such-flag")) if spec.backend == "slow" else None'
    suite.pytester.makeconftest(HOOK.format(only_slow))
    assert "args: slow: the engine 'simulated' refuses" in refused(suite, own_runtime_folder, "--perf-reference=slow")


def test_help_among_the_flags_ends_nothing_in_silence(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    suite.pytester.makeconftest(HOOK.format('dataclasses.replace(spec, args=(*spec.args, "--help"))'))
    assert "the engine 'simulated' refuses them: unrecognized arguments: --help" in refused(suite, own_runtime_folder)


def test_the_hook_changes_both_arms_of_what_is_launched(suite: SimulatedSuite) -> None:
    suite.pytester.makeconftest(HOOK.format('dataclasses.replace(spec, args=(*spec.args, "--log-level=error"))'))
    plan = suite.run("--perf-plan", "--perf-reference=slow", "-k", "fast-1")
    assert plan.code == 0, plan.raw
    candidate, reference = (
        next(line for line in plan.raw.splitlines() if line.startswith(f"  {arm}  "))
        for arm in ("candidate", "reference")
    )
    assert "fast_profile.toml" in candidate
    assert "slow_profile.toml" in reference
    assert "--log-level=error" in candidate
    assert "--log-level=error" in reference


def test_a_hook_that_returns_something_else(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    suite.pytester.makeconftest(HOOK.format("spec.args"))
    text = refused(suite, own_runtime_folder)
    assert text.startswith("ERROR: hook pytest_moeperf_server_spec, backend fast: returned ('--profile=<folder>")
    assert text.endswith(
        "  allowed: a ServerSpec, or None to leave it as it is\n  next: return dataclasses.replace(spec, ...)"
    )


def test_a_contradiction(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    assert refused(suite, own_runtime_folder, "--perf-engine=attached") == (
        "ERROR: --perf-engine: 'attached' needs to know the server\n  next: add --perf-attach=http://HOST:PORT"
    )


def test_a_malformed_file(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    (suite.pytester.path / "moeperf.toml").write_text("engine = \n")
    assert refused(suite, own_runtime_folder) == (
        "ERROR: <folder>/moeperf.toml: is not valid TOML: Invalid value (at line 1, column 10)\n"
        "  next: mend that line; nothing was started"
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_marker_with_an_unknown_argument(suite: SimulatedSuite, own_runtime_folder: Path, workers: str) -> None:
    test = suite.pytester.path / "test_serving.py"
    test.write_text(test.read_text().replace("output_len=32", "output_length=32"))
    result = suite.run("-q", "-n", workers)
    assert result.code != 0
    assert not (own_runtime_folder / "launches").exists()
    assert "test_serving.py::test_decode[fast-1]: marker 'perf': unknown argument 'output_length'" in result.text
    assert (
        "  allowed: concurrency, input_len, output_len, num_prompts, dataset, seed, request_rate, shared_prefix_len, queueing"
        in result.text
    )


def test_a_perf_test_that_could_not_measure(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    (suite.pytester.path / "test_serving.py").write_text(
        "import pytest\n\n@pytest.mark.perf(concurrency=1)\ndef test_decode():\n    pass\n"
    )
    result = suite.run("-q")
    assert result.code == 1
    assert not (own_runtime_folder / "launches").exists()
    assert result.section("_ ERROR at setup of test_decode _", "short test summary").startswith(
        "________________________ ERROR at setup of test_decode _________________________\n"
        "test_serving.py::test_decode: is marked 'perf' but does not use the 'moeperf' fixture, so it would measure"
        " nothing\n"
        "  next: add the argument 'moeperf' and call moeperf.measure(), or drop the marker"
    )


def test_no_backend(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    result = suite.pytester.runpytest_subprocess("-m", "perf")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --backend: no backend is named, so there is nothing to measure"])


@pytest.fixture
def recorded(suite: SimulatedSuite) -> Path:
    assert suite.run("-q", "-k", "fast-1", "--update-baselines", "--perf-launches=1").code == 0
    (path,) = (suite.pytester.path / "baselines").rglob("*.json")
    return path


def test_a_baseline_cut_in_half_is_an_error_and_is_left_alone(suite: SimulatedSuite, recorded: Path) -> None:
    text = recorded.read_text()
    recorded.write_text(text[: len(text) // 2])
    result = suite.run("-q", "-k", "fast-1", "--update-baselines")
    assert result.code == 1
    assert "ERROR at setup of test_decode[fast-1]" in result.text
    assert f"{recorded.name.partition('@')[0]}@########.json: " in result.text
    assert recorded.read_text() == text[: len(text) // 2]


def test_a_baseline_of_a_newer_schema_is_not_guessed_at(suite: SimulatedSuite, recorded: Path) -> None:
    text = recorded.read_text().replace('"schema": 1', '"schema": 99')
    assert '"schema": 99' in text
    recorded.write_text(text)
    result = suite.run("-q", "-k", "fast-1")
    assert result.code == 1
    assert "schema 99" in result.text
    assert "upgrade" in result.text
    assert recorded.read_text() == text


def test_a_server_that_exits_at_once_says_why(suite: SimulatedSuite) -> None:
    config = suite.pytester.path / "moeperf.toml"
    config.write_text(config.read_text().replace('fast_profile.toml"', 'fast_profile.toml", "--fault=oom_at_start"'))
    result = suite.run("-q")
    assert result.code == 1
    assert result.text.count("ERROR at setup of test_decode[fast-") == 2
    assert "CUDA out of memory" in result.text
    assert "hint: " in result.text

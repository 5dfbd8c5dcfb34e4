"""``pytest_moeperf_server_ready``: a suite may prepare a server before anything is measured on it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

CONFTEST = """
    import json
    from datetime import UTC, datetime

    READY = []
    RUNS = []

    def pytest_moeperf_server_ready(spec, launch, url, api_key):
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        READY.append([launch.id, at, spec.backend, launch.arm, launch.reused, url])

    def pytest_moeperf_outcome(outcome):
        RUNS.extend([run.launch.id, run.started_at] for run in outcome.runs)

    def pytest_sessionfinish():
        with open("seen.json", "w") as file:
            json.dump({"ready": READY, "runs": RUNS}, file)
"""

TESTS = """
    import pytest

    @pytest.mark.perf(input_len=16, output_len=64, num_prompts=4)
    @pytest.mark.parametrize("concurrency", [2, 4])
    def test_decode(moeperf, concurrency):
        moeperf.measure(concurrency=concurrency)
"""


def test_it_is_called_once_for_every_launch_before_any_request(pytester: pytest.Pytester) -> None:
    pytester.makefile(".toml", moeperf='engine = "simulated"\nmin_window = "100ms"\n')
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-m", "perf", "--backend=triton", "--update-baselines", "--perf-launches=2")
    result.assert_outcomes(passed=2)
    seen = json.loads((pytester.path / "seen.json").read_text())
    ready_at = {launch: at for launch, at, *_ in seen["ready"]}
    assert len(seen["ready"]) == len(ready_at) == 2
    assert [rest[:3] for _, _, *rest in seen["ready"]] == [["triton", "candidate", False]] * 2
    assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+", url) for *_, url in seen["ready"])
    assert {launch for launch, _ in seen["runs"]} == set(ready_at)
    assert all(started_at >= ready_at[launch] for launch, started_at in seen["runs"])


def test_what_it_raises_is_an_error_at_setup(pytester: pytest.Pytester, own_runtime_folder: Path) -> None:
    pytester.makefile(".toml", moeperf='engine = "simulated"\nmin_window = "100ms"\n')
    pytester.makeconftest("""
        def pytest_moeperf_server_ready(spec, launch, url, api_key):
            raise RuntimeError(f"no adapter at {url}")
    """)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-m", "perf", "--backend=triton")
    result.assert_outcomes(errors=2)
    # Both tests tell of one and the same launch: a second one would cost minutes, and fail as well.
    (url,) = set(re.findall(r"RuntimeError: no adapter at (http://127\.0\.0\.1:\d+)", result.stdout.str()))
    assert result.stdout.str().count(f"E       RuntimeError: no adapter at {url}") == 2
    assert len(list((own_runtime_folder / "launches").iterdir())) == 1


def test_the_hook_of_the_docs_freezes_a_servers_garbage_collector(pytester: pytest.Pytester) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "fixtures-and-hooks.md").read_text("utf-8")
    (hook,) = (block for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "freeze_gc" in block)
    pytester.makefile(".toml", moeperf='engine = "simulated"\nmin_window = "100ms"\n')
    pytester.makeconftest(hook)
    pytester.makepyfile(TESTS)
    arguments = ("-m", "perf", "--backend=triton", "--update-baselines", "--perf-launches=1", "-k", "2", "-s")
    result = pytester.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=1, deselected=1)
    # Were there no such path, the hook would have raised at setup.
    pytester.path.joinpath("conftest.py").write_text(hook.replace("/freeze_gc", "/freeze_no_gc"))
    result = pytester.runpytest_subprocess(*arguments)
    result.assert_outcomes(errors=1, deselected=1)
    result.stdout.fnmatch_lines(["*HTTP Error 404*"])

"""Which tests share a cell: every field of the workload tells cells apart, different margins don't."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_moeperf.testing import SimulatedSuite


def refused(suite: SimulatedSuite, runtime: Path) -> str:
    result = suite.run()
    assert result.code == pytest.ExitCode.USAGE_ERROR, result.raw
    assert not (runtime / "launches").exists()
    return result.text[result.text.index("ERROR: ") :].rstrip()


CELLS = """\
import pytest

pytestmark = pytest.mark.perf(concurrency=2, input_len=64, output_len=32)

def test_plain(moeperf):
    moeperf.measure()

@pytest.mark.perf(num_prompts=16)
def test_longer(moeperf):
    moeperf.measure()

@pytest.mark.perf(seed=7)
def test_other_prompts(moeperf):
    moeperf.measure()

@pytest.mark.perf(shared_prefix_len=48)
def test_prefix(moeperf):
    moeperf.measure()
"""

BOUNDS = """\
import pytest

pytestmark = pytest.mark.perf(concurrency=2, input_len=16, output_len=32)

@pytest.mark.throughput(regression="30%")
def test_narrow(moeperf):
    moeperf.measure()

@pytest.mark.throughput(regression="50%", at_least=1)
@pytest.mark.tpot(at_most_ms=1000)
def test_wide(moeperf):
    moeperf.measure()
"""


def test_each_workload_is_a_cell_of_its_own(pytester: pytest.Pytester) -> None:
    suite = SimulatedSuite(pytester, test=CELLS)
    recorded = suite.run("-q", "--update-baselines", "--perf-launches=1")
    assert recorded.code == 0, recorded.raw
    names = sorted(path.name.partition("@")[0] for path in pytester.path.glob("baselines/**/*.json"))
    assert names == [
        *("c2-in64-out32", "c2-in64-out32-n16", "c2-in64-out32-prefix48", "c2-in64-out32-seed7"),
    ]
    compared = suite.run("-q", "-n", "2", "--perf-report=report")
    assert "not known at collection" not in compared.text
    assert "INVALID" not in compared.text
    assert "INCOMPARABLE" not in compared.text
    outcomes = json.loads((pytester.path / "report" / "moeperf.json").read_text())["outcomes"]
    assert len(outcomes) == 4
    assert len({run["launch"]["id"] for outcome in outcomes for run in outcome["runs"][:1]}) == 1


def test_the_plan_names_each_of_them(pytester: pytest.Pytester) -> None:
    plan = SimulatedSuite(pytester, test=CELLS).run("--perf-plan")
    assert plan.code == 0, plan.raw
    for cell in (
        "c=2 64/32, 8 prompts",
        "c=2 64/32 n=16, 16 prompts",
        "c=2 64/32 seed=7, 8 prompts",
        "c=2 64/32 prefix=48, 8 prompts",
    ):
        assert f"  cell       {cell}, no baseline\n" in plan.raw


def test_one_of_them_is_chosen_by_its_name(pytester: pytest.Pytester) -> None:
    plan = SimulatedSuite(pytester, test=CELLS).run("--perf-plan", "-k", "prefix")
    assert plan.raw.count("  cell  ") == 1
    assert "  cell       c=2 64/32 prefix=48, 8 prompts, no baseline\n" in plan.raw


def test_two_tests_of_one_cell_measure_once(pytester: pytest.Pytester) -> None:
    suite = SimulatedSuite(pytester, test=BOUNDS)
    recorded = suite.run("-q", "--update-baselines", "--perf-launches=1")
    assert recorded.code == 0, recorded.raw
    result = suite.run("-q", "--perf-report=report", "--perf-mode=screen")
    assert result.code == 0, result.raw
    assert "not known at collection" not in result.text
    narrow, wide = json.loads((pytester.path / "report" / "moeperf.json").read_text())["outcomes"]
    assert [run["id"] for run in narrow["runs"]] == [run["id"] for run in wide["runs"]]
    assert [(r["bound"]["metric"], r["bound"]["regression"]) for r in narrow["decision"]["results"]] == [
        ("throughput", 0.3)
    ]
    assert [(r["bound"]["metric"], r["bound"]["regression"]) for r in wide["decision"]["results"]] == [
        ("throughput", 0.5),
        ("tpot", 0.3),
    ]


def test_two_limits_for_a_good_request_of_one_cell(pytester: pytest.Pytester, own_runtime_folder: Path) -> None:
    test = BOUNDS.replace("tpot(at_most_ms=1000)", "goodput(ttft=50)").replace(
        'throughput(regression="30%")', "goodput(ttft=20)"
    )
    suite = SimulatedSuite(pytester, test=test)
    assert refused(suite, own_runtime_folder) == (
        "ERROR: test_serving.py::test_wide[fast]: marker 'goodput': has other limits than"
        " test_serving.py::test_narrow[fast], which is about the same cell and so about the same runs\n"
        "  allowed: one set of limits for a cell: the same in both tests, or another num_prompts or seed in one of them,"
        " which makes it a cell of its own"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("input_len=10**9, output_len=32", "input_len=1000000000 and output_len=32 are 1000000032 tokens a request"),
        ("num_prompts=1", "num_prompts=1 is below concurrency=2"),
        ("num_prompts=0", "num_prompts=0 is not allowed"),
        ("input_len=16, shared_prefix_len=64", "shared_prefix_len=64 leaves nothing of input_len=16"),
    ],
)
def test_a_workload_that_can_not_be(
    pytester: pytest.Pytester, own_runtime_folder: Path, arguments: str, told: str
) -> None:
    given = arguments if "input_len" in arguments else f"input_len=16, {arguments}"
    suite = SimulatedSuite(
        pytester,
        test=f"import pytest\n\n@pytest.mark.perf(concurrency=2, {given})\ndef test_it(moeperf):\n    moeperf.measure()\n",
    )
    text = refused(suite, own_runtime_folder)
    assert text.startswith(f"ERROR: test_serving.py::test_it[fast]: marker 'perf': {told}")
    assert "\n  allowed: " in text

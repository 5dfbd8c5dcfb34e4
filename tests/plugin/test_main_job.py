"""From ``pytest -m perf`` to a verdict, as a user sees it: whole texts at 80 columns, figures replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_moeperf.testing import SimulatedSuite


def baselines(suite: SimulatedSuite) -> list[Path]:
    return sorted((suite.pytester.path / "baselines").rglob("*.json"))


def test_record_pass_and_regress(suite: SimulatedSuite) -> None:
    missing = suite.run("-q", "-k", "fast-1")
    assert missing.code == 1
    assert missing.section("_ test_decode[fast-1] _", "short test summary") == (
        "_____________________________ test_decode[fast-1] ______________________________\n"
        "NO_BASELINE  c=1: measured # tok/s, and nothing is stored to hold it against.\n"
        "  Without a baseline nothing is shown, so the test does not pass.\n"
        '  Ran: triton (confirmed, /server_info simulated.executed_runner: "triton").\n'
        "  Next (records this cell):\n"
        "    pytest -m perf --backend=fast -q --update-baselines \\\n"
        "      -k 'test_decode[fast-1]'\n"
        "=================================== moeperf ====================================\n"
        "moeperf  fast held against its own baseline | simulated | 1 launch, # s\n"
        "cell       baseline  measured   change [CI]  verdict      launches  ceiling\n"
        "c=1 16/32  -         # tok/s  -            NO_BASELINE  1"
    )

    recorded = suite.run("-q", "--update-baselines", "--perf-launches=1")
    assert recorded.code == 0, recorded.raw
    assert recorded.section("== moeperf ==", "2 passed") == (
        "=================================== moeperf ====================================\n"
        "moeperf  fast held against its own baseline | simulated | 1 launch, # s\n"
        "cell        baseline   measured    change [CI]   verdict    launches   ceiling\n"
        "c=1 16/32   -          # tok/s   -             recorded   1\n"
        "c=2 16/32   -          387         -             recorded   1\n"
        "\n"
        "Recorded: baselines/simulated/none/fast/c1-in16-out32@########.json,\n"
        "  baselines/simulated/none/fast/c2-in16-out32@########.json."
    ).replace("387", recorded.section("c=2 16/32   -").split()[3])
    stored = [json.loads(path.read_text()) for path in baselines(suite)]
    assert all(len(baseline["runs"]) >= 3 for baseline in stored)
    assert all(baseline["anchor"] == baseline["runs"] for baseline in stored)

    passed = suite.run("-q", "--perf-report=report")
    assert passed.code == 0, passed.raw
    assert passed.raw.count("EQUIVALENT") == 2
    report = json.loads((suite.pytester.path / "report" / "moeperf.json").read_text())
    held = {key: baseline["runs"] for key, baseline in report["baselines"].items()}
    assert held == {f"fast/c{number}-in16-out32": stored[number - 1]["runs"] for number in (1, 2)}

    regressed = suite.run("-q", "--perf-reference=fast", "-k", "slow-1", backend="slow")
    assert regressed.code == 1
    assert regressed.section("_ test_decode[slow-1] _", "== moeperf ==") == (
        "_____________________________ test_decode[slow-1] ______________________________\n"
        "REGRESSION  throughput at c=1: # against # tok/s, +# % [+# %, +# %] at\n"
        "  # %, 4 pairs of fresh launches.\n"
        "  Proven worse: the whole # % interval lies beyond a loss of 5 %.\n"
        "  Ran: flashinfer_cutlass (confirmed, /server_info simulated.executed_runner:\n"
        '    "flashinfer_cutlass"). Conditions differ in --moe-runner-backend,\n'
        "    simulated_profile version.\n"
        "  Note (candidate): FlashInfer tuned itself at start: launches with another\n"
        "    cache may pick other tactics (server log line 3: Running FlashInfer autotune\n"
        "    with cache: /simulated/cache).\n"
        "  Also REGRESSION: TPOT at c=1: # against # ms, +# % (slower) [+# %,\n"
        "    +# %] at # %, 4 pairs of fresh launches.\n"
        "  Next (again, in fresh launches):\n"
        "    pytest -m perf --backend=slow -q --perf-reference=fast \\\n"
        "      -k 'test_decode[slow-1]'\n"
        "  Or (what else differs from the baseline):\n"
        "    moeperf diff baselines/simulated/none/fast/c1-in16-out32@########.json \\\n"
        "      .moeperf/last\n"
        "  Or: If slow is to be compared with itself from now on (--perf-reference=slow):\n"
        "    pytest -m perf --backend=slow -q --perf-reference=slow --update-baselines \\\n"
        "      -k 'test_decode[slow-1]'"
    )


def test_other_conditions_are_incomparable(suite: SimulatedSuite) -> None:
    assert suite.run("-q", "-k", "fast-1", "--update-baselines", "--perf-launches=1").code == 0
    test = suite.pytester.path / "test_serving.py"
    test.write_text(test.read_text().replace("output_len=32", "output_len=32, num_prompts=10"))
    plan = suite.run("-k", "fast-1", "--perf-plan")
    assert "  cell       c=1 16/32 n=10, 10 prompts, a baseline that can't be compared:" in plan.raw
    assert "\n             number of prompts in a run: 4 in the baseline, 10 here\n" in plan.raw
    result = suite.run("-k", "fast-1")
    assert result.code == 1
    foretold = "moeperf  fast c=1 16/32 n=10: its baseline can't be compared: number of prompts in a run: 4 in the baseline, 10"
    assert foretold in result.raw.partition("launching the candidate")[0]
    assert result.section("_ test_decode[fast-1] _", "== moeperf ==") == (
        "_____________________________ test_decode[fast-1] ______________________________\n"
        "INCOMPARABLE  c=1: the baseline differs in 1 field that must be equal.\n"
        "  The stored baseline was measured under other conditions, so nothing is\n"
        "    compared.\n"
        "  number of prompts in a run: 4 in the baseline, 10 here.\n"
        '  Ran: triton (confirmed, /server_info simulated.executed_runner: "triton").\n'
        "  Next: Once what differs is set back, or on the machine of the baseline:\n"
        "    pytest -m perf --backend=fast -k 'test_decode[fast-1]'\n"
        "  Or: Head to head with the installation before, once moeperf.toml names it (in\n"
        "    pyproject.toml: [tool.moeperf.reference]):\n"
        "    [reference]\n"
        '    python = "/opt/sglang-before/bin/python"\n'
        "    pytest -m perf --backend=fast -k 'test_decode[fast-1]'\n"
        "  Or: If these conditions stay, with a baseline of their own beside the old one:\n"
        "    pytest -m perf --backend=fast --update-baselines -k 'test_decode[fast-1]'"
    )


def test_every_raw_run_is_in_the_report(suite: SimulatedSuite) -> None:
    suite.run("-q", "-k", "fast-2", "--perf-report=report")
    report = json.loads((suite.pytester.path / "report" / "moeperf.json").read_text())
    (outcome,) = report["outcomes"]
    assert outcome["decision"]["verdict"] == "NO_BASELINE"
    assert [run["index"] for run in outcome["runs"]] == list(range(len(outcome["runs"])))
    assert outcome["runs"][0]["warmup"] is True
    assert all(run["metrics"]["output_tokens"] == 8 * 32 for run in outcome["runs"])
    spent = report["heading"]["spent"]
    assert sum(spent.values()) == pytest.approx(report["heading"]["elapsed_s"])
    assert min(spent.values()) > 0
    settings = {line["name"]: (line["value"], line["source"]) for line in report["settings"]}
    assert settings["report_dir"] == ("report", "command line")
    assert settings["gate.regression"] == ("0.3", f"file {suite.pytester.path}/moeperf.toml")
    assert {"engine version", "kernel", "simulated"} <= report["environment"].keys()
    assert report["baselines"] == {}
    assert "verdict" in (suite.pytester.path / "report" / "comment.md").read_text()
    assert (suite.pytester.path / "report" / "moeperf.html").stat().st_size > 1_000_000


def test_a_workload_of_measure_itself_is_measured_on_its_own(pytester: pytest.Pytester) -> None:
    suite = SimulatedSuite(
        pytester,
        test="import pytest\n\n@pytest.mark.perf(input_len=16, output_len=32)\ndef test_late(moeperf):\n"
        "    moeperf.measure(concurrency=2)\n",
    )
    result = suite.run("-q")
    assert result.code == 1
    assert "NO_BASELINE  c=2" in result.text
    assert "this workload was not known at collection, so it was measured on its own" in result.text.replace(
        "\n    ", " "
    )


def test_a_perf_session_that_measured_nothing_fails(pytester: pytest.Pytester) -> None:
    suite = SimulatedSuite(
        pytester,
        test="import pytest\n\n@pytest.mark.perf\ndef test_forgets_to_measure(moeperf):\n    pass\n",
    )
    result = suite.run("-q")
    assert result.code == 1
    assert "1 failed" in result.text
    assert "no verdict was asked for: the test ended before it called moeperf.measure()" in result.text
    assert "moeperf: no cell was measured, so nothing was shown: this is a failure" in result.text


def test_the_plan_is_told_and_nothing_runs(suite: SimulatedSuite, own_runtime_folder: Path) -> None:
    result = suite.run("--perf-plan", "--perf-reference=fast", backend="slow")
    assert result.code == 0, result.raw
    assert "launch" in result.text
    assert "--backend slow" in result.text
    assert "  cell       c=1 16/32, 4 prompts, no baseline\n" in result.raw
    assert not (own_runtime_folder / "launches").exists()


def test_two_workers_give_the_same_verdicts_with_one_server(suite: SimulatedSuite) -> None:
    assert suite.run("-q", "--update-baselines", "--perf-launches=1").code == 0
    result = suite.run("-q", "-n", "2")
    assert result.code == 0, result.raw
    assert result.raw.count("EQUIVALENT") == 2
    assert "         1 launch, " in result.text or "| 1 launch, " in result.text


def test_a_kernel_profile_is_evidence_on_demand(suite: SimulatedSuite) -> None:
    suite.run("-q", "-k", "fast-2", "--perf-profile", "--perf-report=report")
    report = json.loads((suite.pytester.path / "report" / "moeperf.json").read_text())
    evidence = report["outcomes"][0]["evidence"]
    assert evidence["status"] == "confirmed"
    profiled = [item for item in evidence["items"] if "kernel profile" in item["source"]]
    assert [(item["runner"], item["says"]) for item in profiled] == [("triton", "confirmed")]
    assert "fused_moe_kernel" in profiled[0]["text"]


SECRETS = ("hf_PLANTEDqwertyuiopasdfghjklzxcvbnm", "sk-plantedapikey0123456789", "plantedpassword42")


def test_secrets_reach_no_file_no_log_and_no_report(suite: SimulatedSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    token, key, password = SECRETS
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("HTTPS_PROXY_OF_NOBODY", f"http://user:{password}@127.0.0.1:9")
    config = suite.pytester.path / "moeperf.toml"
    text = config.read_text().replace('fast_profile.toml"', f'fast_profile.toml", "--api-key={key}"')
    config.write_text(f'{text}\n[server.env]\nHF_TOKEN = "{token}"\nADMIN_API_KEY = "{key}"\n')
    result = suite.run(
        "-k", "fast-2", "--update-baselines", "--perf-launches=1", "--perf-report=report", "--junitxml=j.xml"
    )
    assert result.code == 0, result.raw
    assert not [secret for secret in SECRETS if secret in result.raw]
    written = [path for path in suite.pytester.path.rglob("*") if path.is_file() and path != config]
    assert {path.suffix for path in written} >= {".json", ".html", ".md", ".xml"}
    leaks = [
        (path.name, secret)
        for path in written
        for secret in SECRETS
        if path.suffix != ".pyc" and secret.encode() in path.read_bytes()
    ]
    assert leaks == []


def test_a_test_may_measure_several_workloads(pytester: pytest.Pytester) -> None:
    suite = SimulatedSuite(
        pytester,
        test="import pytest\n\n@pytest.mark.perf(input_len=16, output_len=32)\ndef test_all(moeperf):\n"
        "    for concurrency in (1, 2):\n        moeperf.measure(concurrency=concurrency)\n",
    )
    recorded = suite.run("--update-baselines")
    assert recorded.code == 0, recorded.raw
    table = recorded.section("== moeperf ==", "Recorded:")
    assert "c=1 16/32" in table
    assert "c=2 16/32" in table
    assert len(baselines(suite)) == 2


def test_baselines_that_no_test_asks_for_are_named_where_that_is_known(suite: SimulatedSuite) -> None:
    assert suite.run("-q", "--update-baselines", "--perf-launches=1").code == 0
    test = suite.pytester.path / "test_serving.py"
    test.write_text(test.read_text().replace("[1, 2]", "[1]"))
    whole = suite.run("-q")
    assert whole.code == 0, whole.raw
    assert whole.section("Baselines that no") == (
        "Baselines that no collected test asks for:\n"
        "  baselines/simulated/none/fast/c2-in16-out32@########.json.\n" + whole.findings.splitlines()[-1]
    )
    # Neither does a suite whose tests did not all get their verdict.
    skipped = "\n@pytest.mark.perf(concurrency=2)\ndef test_skipped(moeperf):\n    pytest.skip('not today')\n"
    test.write_text(test.read_text() + skipped)
    assert "Baselines that no" not in suite.run("-q").text
    # A part of the suite knows nothing about the rest: tests/unit/test_session_unused.py has the parts.
    assert "Baselines that no" not in suite.run("-q", "-k", "fast-1").text

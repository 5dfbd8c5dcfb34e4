"""``moeperf import``: what is stored, and what is said to be missing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cli_samples import moeperf

from pytest_moeperf.baselines import FileStore

SWEEP = """\
engine = "sglang"
model = "zai-org/GLM-5-NVFP4"
backend = "flashinfer_cutlass"
provenance = "a report of 1 November"
[workload]
input_len = 512
output_len = 128
[[cells]]
concurrency = 1
throughput = 10.36
tpot = 95.14
[[cells]]
concurrency = 10
throughput = 38.46
"""
TEXT = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 10
Successful requests:                     40
Benchmark duration (s):                  16.5
Total input tokens:                      20480
Total generated tokens:                  5120
Output token throughput (tok/s):         310.30
Mean TPOT (ms):                          31.20
==================================================
"""


@pytest.fixture(autouse=True)
def at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("sweep.toml").write_text(SWEEP)
    Path("result.txt").write_text(TEXT)


def test_a_table() -> None:
    ran = moeperf("import", "sweep.toml")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
sweep.toml: 2 cells, in the form table-toml
  flashinfer_cutlass c=1 512/128: 1 run
    baselines/sglang/zai-org--GLM-5-NVFP4/flashinfer_cutlass/c1-in512-out128@ced23b89.json
  flashinfer_cutlass c=10 512/128: 1 run
    baselines/sglang/zai-org--GLM-5-NVFP4/flashinfer_cutlass/c10-in512-out128@2cfb5356.json
  unknown, and equal to nothing:
    workload.num_prompts: not in the file
    workload.dataset: not in the file
    workload.seed: not in the file
    workload.request_rate: not in the file
    workload.shared_prefix_len: not in the file
    workload.vocabulary: not in the file
    server: not in the file
    software: not in the file
    hardware: not in the file
    environment: not in the file
    ttft: not in the file
    tpot: not in the file (flashinfer_cutlass c=10 512/128)
  note: throughput is over each whole run: a steady-state figure is not in such
    files
"""
    )
    entries = FileStore("baselines").all()
    assert [entry.baseline.cell.workload.concurrency for entry in entries] == [1, 10]
    assert {entry.baseline.history[-1].by for entry in entries} == {"moeperf import"}
    assert {entry.baseline.provenance for entry in entries} == {"a report of 1 November"}
    # Once more changes nothing, at another second too.
    time.sleep(1.01)
    assert moeperf("import", "sweep.toml").code == 0
    assert FileStore("baselines").all() == entries


def test_dry_run_stores_nothing() -> None:
    ran = moeperf("import", "sweep.toml", "--dry-run")
    assert ran.code == 0
    assert "  flashinfer_cutlass c=10 512/128: 1 run\n    not stored (--dry-run)\n" in ran.out
    assert not Path("baselines").exists()


def test_what_the_file_leaves_open_is_stated_by_flags() -> None:
    flags = "--engine=sglang --model=m --backend=triton --num-prompts=40 --seed=3 --request-rate=inf --input-len=512"
    ran = moeperf(
        "import", "result.txt", *flags.split(), "--output-len=128", "--provenance=by hand", "--baselines=kept"
    )
    assert (ran.code, ran.err) == (0, "")
    (entry,) = FileStore("kept").all()
    baseline = entry.baseline
    assert (baseline.engine, baseline.model, baseline.cell.key) == ("sglang", "m", "triton/c10-in512-out128-seed3")
    assert (baseline.cell.workload.num_prompts, baseline.cell.workload.seed) == (40, 3)
    assert baseline.provenance == "by hand"
    assert baseline.runs[0].values["throughput"] == 310.30


def test_a_missing_backend_names_the_flag() -> None:
    ran = moeperf("import", "result.txt")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "moeperf import: result.txt: line 1: does not say which backend ran\n"
        "  next: state it: moeperf import --backend=NAME\n"
    )


def test_one_unreadable_file_of_several_stores_none() -> None:
    Path("other.json").write_text("{}")
    ran = moeperf("import", "sweep.toml", "other.json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("moeperf import: other.json: is in no form that is known\n")
    assert not Path("baselines").exists()


def test_a_wrong_form_is_refused_by_name() -> None:
    ran = moeperf("import", "result.txt", "--format=xml")
    assert ran.code == 2
    assert ran.err.startswith("moeperf import: --format: 'xml' is not a known form\n")

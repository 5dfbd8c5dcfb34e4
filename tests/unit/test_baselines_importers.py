"""Other tools' results as baselines: the numbers that a file holds, and an honest list of what it doesn't."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.baselines import FileStore
from pytest_moeperf.baselines.importers import ImportResult, import_results
from pytest_moeperf.errors import BaselineError, MoeperfError, UsageProblem
from pytest_moeperf.fingerprint import differences
from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.workload import Workload

AT = "2026-11-20T00:00:00Z"
EVIDENCE = Path(__file__).parents[1] / "evidence_logs" / "sglang-0.5.14-cpu"


def write(folder: Path, name: str, content: str | Mapping[str, Any]) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def only(result: ImportResult) -> Baseline:
    (baseline,) = result.baselines
    return baseline


def missing(result: ImportResult) -> dict[str, str]:
    return {each.field: each.why for each in result.missing}


# sglang.bench_serving


def test_a_real_jsonl_of_bench_serving() -> None:
    result = import_results(EVIDENCE / "bench_serving.jsonl", at=AT, backend="triton")
    assert result.format == "sglang-json"
    baseline = only(result)
    assert (baseline.engine, baseline.model, baseline.cell.backend) == ("sglang", "/path/to/tiny-moe", "triton")
    assert baseline.cell.workload == Workload(
        concurrency=4, input_len=64, output_len=32, num_prompts=16, dataset="random-ids"
    )
    (run,) = baseline.runs
    assert run.values == {
        "throughput": pytest.approx(196.33427),
        "tpot": pytest.approx(15.428562),
        "tpot.p50": pytest.approx(15.536131),
        "tpot.p99": pytest.approx(21.756965),
        "ttft": pytest.approx(167.538177),
        "ttft.p50": pytest.approx(124.904314),
        "ttft.p99": pytest.approx(714.866114),
        "e2el": pytest.approx(645.823605),
        "e2el.p50": pytest.approx(599.823777),
        "e2el.p99": pytest.approx(812.262957),
        "itl": pytest.approx(16.491721),
        "itl.p50": pytest.approx(15.310253),
        "itl.p99": pytest.approx(28.065098),
    }
    assert run.run_s == pytest.approx(2.607797)
    assert baseline.fingerprint.workload == {
        "concurrency": 4,
        "input_len": 64,
        "output_len": 32,
        "num_prompts": 16,
        "dataset": "random-ids",
        "seed": None,
        "request_rate": "none (closed loop)",
        "shared_prefix_len": 0,
        "vocabulary": None,
    }
    assert baseline.fingerprint.server["attention_backend"] == "torch_native"
    assert baseline.fingerprint.software["engine_version"] == "0.5.14"
    assert (baseline.evidence.status, baseline.evidence.runner) == ("unknown", None)
    assert missing(result) == {
        "workload.seed": "bench_serving does not write it",
        "workload.vocabulary": "not in the file",
        "hardware": "not in the file",
        "environment": "not in the file",
    }
    (event,) = baseline.history
    assert (event.kind, event.by, event.at, event.runs) == ("imported", "moeperf import", AT, 1)
    assert baseline.provenance == event.reason == str(EVIDENCE / "bench_serving.jsonl")


def test_the_backend_that_the_server_names_is_taken_where_none_is_stated() -> None:
    assert only(import_results(EVIDENCE / "bench_serving.jsonl", at=AT)).cell.backend == "auto"


def test_an_imported_baseline_is_never_comparable_to_a_new_run() -> None:
    imported = only(import_results(EVIDENCE / "bench_serving.jsonl", at=AT)).fingerprint
    here = Fingerprint(
        workload=imported.workload,
        server=imported.server,
        software=imported.software,
        hardware={"gpu": "H200"},
    )
    blocking = {difference.field for difference in differences(imported, here) if difference.blocking}
    assert blocking == {"hardware"}


def test_lines_of_one_cell_become_runs_and_a_file_that_has_grown_adds_only_its_new_ones(tmp_path: Path) -> None:
    lines = [json.dumps(bench_line(output_throughput=tok_s)) for tok_s in (515.58, 515.77, 515.77, 516.0)]
    store = FileStore(tmp_path / "baselines")
    for upto in (3, 3, 4):
        path = write(tmp_path, "sweep.jsonl", "\n".join(lines[:upto]))
        baseline = only(import_results(path, at=f"2027-01-0{upto}T00:00:00Z", backend="triton"))
        saved = store.save(baseline).baseline
        assert len({run.id for run in saved.runs}) == len(saved.runs) == upto
    assert sorted(run.values["throughput"] for run in saved.runs) == [515.58, 515.77, 515.77, 516.0]
    assert (saved.launches, saved.sessions, saved.provisional) == (1, 1, True)
    assert len(saved.anchor) == 3


def bench_line(**changes: Any) -> dict[str, Any]:
    return {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": float("inf"),
        "max_concurrency": 10,
        "random_input_len": 512,
        "random_output_len": 128,
        "random_range_ratio": 1.0,
        "server_info": None,
        "duration": 80.0,
        "completed": 40,
        "total_input_tokens": 20480,
        "total_output_tokens": 5120,
        "output_throughput": 64.29,
        "mean_tpot_ms": 128.95,
        "p99_tpot_ms": float("nan"),
        **changes,
    }


def test_what_is_unknown_is_not_invented(tmp_path: Path) -> None:
    result = import_results(write(tmp_path, "r.jsonl", bench_line()), at=AT, backend="cutedsl", model="m")
    baseline = only(result)
    assert baseline.runs[0].values == {"throughput": 64.29, "tpot": 128.95}
    assert baseline.fingerprint.workload["num_prompts"] is None
    assert missing(result) == {
        "workload.num_prompts": "only that 40 requests succeeded is in the file",
        "workload.seed": "bench_serving does not write it",
        "workload.vocabulary": "not in the file",
        "server": "server_info is not in the file",
        "software": "not in the file",
        "hardware": "not in the file",
        "environment": "not in the file",
        "ttft": "not in the file",
    }
    assert str(result.missing[0]) == (
        "cutedsl c=10 512/128 random: workload.num_prompts: only that 40 requests succeeded is in the file"
    )
    assert result.notes == ("throughput is over each whole run: a steady-state figure is not in such files",)


def test_lengths_that_vary_are_not_passed_off_as_fixed(tmp_path: Path) -> None:
    path = write(tmp_path, "r.jsonl", bench_line(random_range_ratio=0.0))
    result = import_results(path, at=AT, backend="x")
    assert only(result).fingerprint.workload["input_len"] is None
    assert only(result).cell.workload.input_len == 512
    assert missing(result)["workload.input_len"] == "random_range_ratio is 0: lengths may vary from 1 to 512"
    assert missing(result)["workload.output_len"] == "random_range_ratio is 0: lengths may vary from 1 to 128"
    assert only(import_results(path, at=AT, backend="x", workload={"input_len": 512})).fingerprint.workload[
        "input_len"
    ] == (512)


def test_an_effectively_unlimited_rate_is_a_closed_loop_and_a_real_one_is_not(tmp_path: Path) -> None:
    unlimited = import_results(write(tmp_path, "a.jsonl", bench_line(request_rate=100000.0)), at=AT, backend="x")
    assert only(unlimited).cell.workload.key == "c10-in512-out128-random"
    assert unlimited.notes[1] == (
        "a request rate of 100000/s limits nothing at 0.502 requests/s: taken as a closed loop"
    )
    limited = import_results(write(tmp_path, "b.jsonl", bench_line(request_rate=2.0)), at=AT, backend="x")
    assert only(limited).cell.workload.key == "c10-in512-out128-r2-random"
    assert only(limited).fingerprint.workload["request_rate"] == 2.0


def test_the_itl_of_a_chunk_counting_client_is_left_out(tmp_path: Path) -> None:
    line = bench_line(backend="sglang-oai", mean_itl_ms=125.8)
    result = import_results(write(tmp_path, "r.jsonl", line), at=AT, backend="x")
    assert "itl" not in only(result).runs[0].values
    assert missing(result)["itl"] == "the client sglang-oai may count chunks, not tokens"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"errors": ["", "", "Traceback\nboom"]}, "1 of 3 requests failed (Traceback\nboom)"),
        (
            {"errors": ["", ""], "ttfts": [0.1, 0.0]},
            "1 of 2 requests have a time to first token of 0: an error inside a stream was counted",
        ),
        ({"errors": [""] * 41}, "1 of 41 requests failed"),
        ({"output_throughput": 0, "mean_tpot_ms": None}, "has neither a throughput nor a TPOT"),
    ],
)
def test_results_with_failed_requests_make_no_baseline(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    path = write(tmp_path, "r.jsonl", bench_line(**changes))
    with pytest.raises(BaselineError) as caught:
        import_results(path, at=AT, backend="x")
    assert str(caught.value) == (
        f"{path}: {problem}\n  next: only complete, valid runs make a baseline: leave this one out, or measure it again"
    )


def test_fewer_answers_than_stated_prompts_make_no_baseline(tmp_path: Path) -> None:
    path = write(tmp_path, "r.jsonl", bench_line())
    with pytest.raises(BaselineError, match="2 of 42 requests failed"):
        import_results(path, at=AT, backend="x", workload={"num_prompts": 42})


# The printed table


def test_a_real_printed_table_with_its_arguments() -> None:
    result = import_results(EVIDENCE / "bench_serving.txt", at=AT, backend="triton")
    assert result.format == "bench-text"
    baseline = only(result)
    assert baseline.model == "/path/to/tiny-moe"
    assert baseline.runs[0].values["throughput"] == 196.33
    assert baseline.runs[0].values["e2el.p99"] == 812.26
    assert baseline.runs[0].values["itl"] == 16.49
    assert baseline.fingerprint.workload == {
        "concurrency": 4,
        "input_len": 64,
        "output_len": 32,
        "num_prompts": 16,
        "dataset": "random-ids",
        "seed": 42,
        "request_rate": "none (closed loop)",
        "shared_prefix_len": 0,
        "vocabulary": None,
    }
    assert set(missing(result)) == {"workload.vocabulary", "server", "software", "hardware", "environment"}


CUTEDSL = """\
=== Concurrency 2 ===
Output token throughput (tok/s):         19.24
Peak output token throughput (tok/s):    20.00
Concurrency:                             1.99
Mean TPOT (ms):                          101.31
Median TPOT (ms):                        100.84
P99 TPOT (ms):                           105.75
Mean ITL (ms):                           101.12
---
=== Concurrency 10 ===
Output token throughput (tok/s):         64.29
Peak output token throughput (tok/s):    90.00
Concurrency:                             8.48
Mean TPOT (ms):                          128.95
Median TPOT (ms):                        130.14
P99 TPOT (ms):                           163.57
Mean ITL (ms):                           125.80
"""


@pytest.mark.parametrize("one_line", [False, True])
def test_a_grepped_sweep_keeps_its_numbers_and_says_what_grep_took_away(tmp_path: Path, one_line: bool) -> None:
    path = write(tmp_path, "sweep.txt", re.sub(r"\s+", " ", CUTEDSL) if one_line else CUTEDSL)
    with pytest.raises(UsageProblem) as caught:
        import_results(path, at=AT, backend="flashinfer_cutedsl")
    assert str(caught.value) == (
        f"{path}: line 1: does not say how long the prompts were\n  next: state it: moeperf import --input-len=N"
    )
    result = import_results(
        path,
        at=AT,
        backend="flashinfer_cutedsl",
        model="zai-org/GLM-5-NVFP4",
        workload={"input_len": 512, "output_len": 128},
        provenance="one run each",
    )
    two, ten = result.baselines
    assert (two.cell.workload.concurrency, ten.cell.workload.concurrency) == (2, 10)
    assert ten.runs[0].values == {"throughput": 64.29, "tpot": 128.95, "tpot.p50": 130.14, "tpot.p99": 163.57}
    assert two.runs[0].values["throughput"] == 19.24
    assert ten.provenance == "one run each"
    assert ten.fingerprint.workload == {
        **dict.fromkeys(["num_prompts", "dataset", "seed", "request_rate", "shared_prefix_len", "vocabulary"]),
        "concurrency": 10,
        "input_len": 512,
        "output_len": 128,
    }
    assert missing(result)["itl"] == "the client that wrote it may count chunks, not tokens"


def test_a_printed_table_with_failed_requests_is_refused(tmp_path: Path) -> None:
    text = "====== Serving Benchmark Result ======\nSuccessful requests: 9\nFailed requests: 1\n"
    path = write(tmp_path, "t.txt", text + "Output token throughput (tok/s): 5.0\n")
    with pytest.raises(BaselineError, match="line 1: 1 requests failed"):
        import_results(path, at=AT, backend="x")


# vLLM


def vllm_result(**changes: Any) -> dict[str, Any]:
    return {
        "date": "20261101-101500",
        "endpoint_type": "vllm",
        "model_id": "m",
        "num_prompts": 40,
        "request_rate": "inf",
        "max_concurrency": 10,
        "duration": 80.0,
        "completed": 40,
        "failed": 0,
        "total_input_tokens": 20480,
        "total_output_tokens": 5120,
        "output_throughput": 64.29,
        "mean_ttft_ms": 300.0,
        "median_tpot_ms": 130.14,
        "mean_tpot_ms": 128.95,
        "p99_e2el_ms": 20_000.0,
        "mean_itl_ms": 125.8,
        **changes,
    }


def test_vllm_bench_json(tmp_path: Path) -> None:
    result = import_results(write(tmp_path, "v.json", vllm_result()), at=AT, backend="cutlass")
    baseline = only(result)
    assert (result.format, baseline.engine, baseline.model) == ("vllm-json", "attached", "m")
    assert baseline.runs[0].started_at == "2026-11-01T10:15:00"
    assert baseline.runs[0].values == {
        "throughput": 64.29,
        "ttft": 300.0,
        "tpot": 128.95,
        "tpot.p50": 130.14,
        "e2el.p99": 20_000.0,
    }
    assert baseline.fingerprint.workload["num_prompts"] == 40
    assert baseline.fingerprint.workload["output_len"] is None
    assert missing(result)["workload.output_len"] == "only the average is in the file (128)"
    assert missing(result)["itl"] == "vLLM's is the gap between chunks, not between tokens"
    exact = import_results(write(tmp_path, "w.json", vllm_result(output_lens=[128] * 40)), at=AT, backend="cutlass")
    assert only(exact).fingerprint.workload["output_len"] == 128
    with pytest.raises(BaselineError, match="3 requests failed"):
        import_results(write(tmp_path, "x.json", vllm_result(failed=3)), at=AT, backend="cutlass")


def test_a_list_of_results_as_a_vllm_sweep_writes_it(tmp_path: Path) -> None:
    """Its runs are runs of one cell, its servers' parameters tell cells apart, and its warm-up is no result."""
    sweep = [
        vllm_result(run_number=-1, max_num_seqs=32, output_throughput=10.0),
        vllm_result(run_number=0, max_num_seqs=32, output_throughput=60.0),
        vllm_result(run_number=1, max_num_seqs=32, output_throughput=61.0),
        vllm_result(run_number=0, max_num_seqs=64, output_throughput=70.0),
        vllm_result(run_number=0, max_num_seqs=64, max_concurrency=20, output_throughput=90.0),
    ]
    result = import_results(write(tmp_path, "vs.json", json.dumps(sweep)), at=AT, backend="cutlass")
    assert result.format == "vllm-json"
    assert [
        (
            baseline.cell.workload.concurrency,
            baseline.fingerprint.server["max_num_seqs"],
            [run.values["throughput"] for run in baseline.runs],
        )
        for baseline in result.baselines
    ] == [(10, 32, [60.0, 61.0]), (10, 64, [70.0]), (20, 64, [90.0])]
    with pytest.raises(BaselineError, match=r"\[1\]: is no JSON object"):
        import_results(write(tmp_path, "x.json", json.dumps([vllm_result(), 3])), at=AT, backend="cutlass")


def one_batch(**changes: Any) -> dict[str, Any]:
    return {
        "run_name": "default",
        "batch_size": 64,
        "input_len": 512,
        "output_len": 128,
        "latency": 10.24,
        "input_throughput": 20000.0,
        "output_throughput": 1011.36,
        "overall_throughput": 4000.0,
        "last_ttft": 2.14,
        "last_gen_throughput": 812.0,
        "acc_length": -1,
        "cache_hit_rate": None,
        **changes,
    }


def test_bench_one_batch_server_is_no_bench_serving(tmp_path: Path) -> None:
    """Batches of two sizes are two cells, and tokens over the time of decoding alone are no throughput."""
    rows = [one_batch(), one_batch(batch_size=1, latency=1.28, output_throughput=112.0), one_batch(cache_hit_rate=0.5)]
    lines = "\n".join(map(json.dumps, rows))
    result = import_results(write(tmp_path, "ob.jsonl", lines), at=AT, backend="triton", model="m")
    assert result.format == "sglang-one-batch-json"
    assert [(baseline.cell.workload, len(baseline.runs)) for baseline in result.baselines] == [
        (Workload(concurrency=size, input_len=512, output_len=128, num_prompts=size, dataset=""), 1)
        for size in (64, 1, 64)
    ]
    assert [baseline.runs[0].values for baseline in result.baselines] == [
        {"throughput": pytest.approx(value)} for value in (800.0, 100.0, 800.0)
    ]
    assert missing(result)["ttft"] == "only the batch's last first token is in the file"
    with pytest.raises(UsageProblem, match=r"says concurrency = 1, and 64 was stated"):
        import_results(
            write(tmp_path, "ob.jsonl", lines), at=AT, backend="triton", model="m", workload={"concurrency": 64}
        )
    bad = write(tmp_path, "bad.jsonl", "\n".join(map(json.dumps, [one_batch(latency=0.0), one_batch()])))
    with pytest.raises(BaselineError, match=r"line 1: has no batch_size, output_len and latency"):
        import_results(bad, at=AT, backend="triton")


def test_a_backend_that_nobody_named_has_to_be_stated(tmp_path: Path) -> None:
    path = write(tmp_path, "v.json", vllm_result())
    with pytest.raises(UsageProblem) as caught:
        import_results(path, at=AT)
    assert str(caught.value) == (
        f"{path}: does not say which backend ran\n  next: state it: moeperf import --backend=NAME"
    )


def test_a_statement_that_contradicts_the_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "v.json", vllm_result())
    with pytest.raises(UsageProblem) as caught:
        import_results(path, at=AT, backend="x", workload={"concurrency": 64})
    assert str(caught.value) == (
        f"{path}: says concurrency = 10, and 64 was stated\n  next: leave --concurrency out, or import another file"
    )


# AIPerf


def aiperf_result(**changes: Any) -> dict[str, Any]:
    def stats(unit: str, avg: float, **more: float) -> dict[str, Any]:
        return {"unit": unit, "avg": avg, **more}

    return {
        "schema_version": "1.3",
        "aiperf_version": "0.13.0",
        "start_time": "2026-06-13T05:11:41.465270",
        "was_cancelled": False,
        "error_summary": [],
        "input_config": {
            "endpoint": {"model_names": ["m"], "streaming": True},
            "loadgen": {"concurrency": 8},
        },
        "run_info": {"random_seed": 7},
        "request_count": stats("requests", 10.0),
        "request_latency": stats("sec", 2.4135, p50=2.43175, p99=2.43945),
        "time_to_first_token": stats("ms", 195.84, p50=175.05, p99=253.45),
        "inter_token_latency": stats("ms", 35.2, p50=34.73, p99=35.96),
        "output_token_throughput": stats("tokens/sec", 52.69),
        "input_sequence_length": stats("tokens", 256.0, min=256.0, max=256.0),
        "output_sequence_length": stats("tokens", 63.5, min=60.0, max=64.0),
        "benchmark_duration": stats("sec", 12.14),
        **changes,
    }


def test_aiperf_json_with_its_own_names_and_units(tmp_path: Path) -> None:
    result = import_results(write(tmp_path, "profile_export_aiperf.json", aiperf_result()), at=AT, backend="triton")
    baseline = only(result)
    assert (result.format, baseline.model, baseline.runs[0].run_s) == ("aiperf-json", "m", 12.14)
    assert baseline.runs[0].values == {
        "throughput": 52.69,
        "ttft": 195.84,
        "ttft.p50": 175.05,
        "ttft.p99": 253.45,
        "tpot": 35.2,
        "tpot.p50": 34.73,
        "tpot.p99": 35.96,
        "e2el": pytest.approx(2413.5),
        "e2el.p50": pytest.approx(2431.75),
        "e2el.p99": pytest.approx(2439.45),
    }
    workload = baseline.fingerprint.workload
    assert (workload["concurrency"], workload["input_len"], workload["seed"], workload["num_prompts"]) == (
        8,
        256,
        7,
        10,
    )
    assert workload["output_len"] is None
    assert missing(result)["workload.output_len"] == "from 60 to 64 tokens, not one length"
    assert missing(result)["itl"] == "not in the file: what AIPerf calls inter-token latency is TPOT"


@pytest.mark.parametrize(
    "changes",
    [
        {"input_config": {"phases": [{"name": "warmup", "concurrency": 1}, {"name": "profiling", "concurrency": 8}]}},
        {"input_config": {}, "run_info": {"variation_values": {"phases.profiling.concurrency": 8}}},
    ],
)
def test_aiperf_says_its_concurrency_in_several_places(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write(tmp_path, "a.json", aiperf_result(**changes))
    assert only(import_results(path, at=AT, backend="x")).cell.workload.concurrency == 8


def test_aiperf_runs_that_failed_or_have_strange_units(tmp_path: Path) -> None:
    for changes, problem in (
        ({"was_cancelled": True}, "the run was cancelled"),
        ({"error_request_count": {"unit": "requests", "avg": 2.0}}, "2 requests failed"),
    ):
        with pytest.raises(BaselineError) as caught:
            import_results(write(tmp_path, "a.json", aiperf_result(**changes)), at=AT, backend="x")
        assert caught.value.problem == problem
    strange = aiperf_result(time_to_first_token={"unit": "fortnights", "avg": 1.0})
    result = import_results(write(tmp_path, "a.json", strange), at=AT, backend="x")
    assert missing(result)["ttft"] == "its unit is 'fortnights', which is not a known unit of time"


# Tables

SEEDS = """\
engine = "sglang"
model = "zai-org/GLM-5-NVFP4"
backend = "flashinfer_cutlass"
provenance = "a table in a chat, before the kernel upgrade"
[workload]
input_len = 512
output_len = 128
request_rate = inf
[hardware]
gpu = "NVIDIA RTX PRO 6000 Blackwell"
gpu_count = 8
[[cells]]
concurrency = 1
throughput = 10.36
tpot = 95.14
[[cells]]
concurrency = 1024
throughput = 1603.04
[[cells]]
concurrency = 1
backend = "flashinfer_cutedsl"
throughput = 10.07
tpot = 97.64
"tpot.p99" = 99.0
provenance = "message 1251"
"""


def test_a_table_in_toml(tmp_path: Path) -> None:
    result = import_results(write(tmp_path, "seeds.toml", SEEDS), at=AT)
    assert [baseline.cell.label for baseline in result.baselines] == [
        "flashinfer_cutlass c=1 512/128",
        "flashinfer_cutlass c=1024 512/128",
        "flashinfer_cutedsl c=1 512/128",
    ]
    assert [baseline.runs[0].values for baseline in result.baselines] == [
        {"throughput": 10.36, "tpot": 95.14},
        {"throughput": 1603.04},
        {"throughput": 10.07, "tpot": 97.64, "tpot.p99": 99.0},
    ]
    assert result.baselines[0].fingerprint.hardware == {"gpu": "NVIDIA RTX PRO 6000 Blackwell", "gpu_count": 8}
    assert result.baselines[0].fingerprint.workload["request_rate"] == "none (closed loop)"
    assert result.baselines[0].fingerprint.workload["num_prompts"] is None
    assert result.baselines[2].provenance == "message 1251"
    assert "tpot: not in the file" in "\n".join(str(each) for each in result.missing)
    store = FileStore(tmp_path / "baselines")
    for baseline in result.baselines:
        assert store.save(baseline).baseline == baseline


def test_a_table_in_csv(tmp_path: Path) -> None:
    text = (
        "backend,concurrency,input_len,output_len,throughput,tpot.p50,provenance\n"
        "cutlass,256,512,128,718.83,,msg 1\n"
        'cutedsl,256,512,128,515.58,400,"msg 2, table"\n'
    )
    result = import_results(write(tmp_path, "t.csv", text), at=AT, model="m", engine="sglang")
    first, second = result.baselines
    assert first.runs[0].values == {"throughput": 718.83}
    assert second.runs[0].values == {"throughput": 515.58, "tpot.p50": 400.0}
    assert second.provenance == "msg 2, table"
    assert second.cell.workload.concurrency == 256


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "x = ", ": is no TOML: Invalid value (at end of document)"),
        ("a.toml", 'engine = "sglang"', ": has no cells\n  allowed: one [[cells]] table a run"),
        ("a.toml", '[[cells]]\ncolour = "red"', ": cells[0]: 'colour' is not a name of this file's form\n  allowed: "),
        ("a.toml", "hardware = 3\n[[cells]]\ntpot = 1", ": hardware = 3\n  allowed: a table [hardware]"),
        (
            "a.toml",
            '[[cells]]\ntpot = "95ms"',
            ": cells[0]: tpot = '95ms'\n  allowed: a number, without separators or units",
        ),
        ("a.toml", "[[cells]]\nconcurrency = 1.5", ": cells[0]: concurrency = 1.5\n  allowed: a whole number"),
        ("a.toml", "[[cells]]\nbackend = 3", ": cells[0]: backend = 3\n  allowed: a text"),
        (
            "a.csv",
            'concurrency,throughput\n1,"1,603.04"\n',
            ": line 2: throughput = '1,603.04'\n  allowed: a number, without separators or units",
        ),
        ("a.csv", "concurrency,throughput\n1\n", ": line 2: has another number of fields than the first line"),
        ("a.csv", "concurrency,throughput\n", ": has no rows\n  allowed: a row of names, then one row a run"),
        ("a.json", "{}", ": is in no form that is known\n  allowed: sglang-json, sglang-one-batch-json, bench-text, "),
        ("a.jsonl", '{"output_throughput": 1}\n{"outp', ": line 2: is no JSON (Unterminated string"),
        ("a.toml", "[[cells]]\nconcurrency = 1\ntpot = -4", ": cells[0]: tpot = -4 is not a measurement"),
    ],
)
def test_bad_files_are_named_with_what_is_allowed(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(MoeperfError) as caught:
        import_results(path, at=AT, backend="x")
    assert str(caught.value).startswith(f"{path}{message}")


def test_files_and_forms_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="can't be read: No such file or directory"):
        import_results(tmp_path / "none.json", at=AT)
    path = write(tmp_path, "v.json", vllm_result())
    with pytest.raises(
        UsageProblem,
        match="--format: 'xml' is not a known form\n  allowed: sglang-json, sglang-one-batch-json, bench-text",
    ):
        import_results(path, at=AT, file_format="xml")

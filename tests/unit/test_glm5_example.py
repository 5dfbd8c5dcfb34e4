"""The example suite of GLM-5-NVFP4: its stored numbers are its result files', its profiles are fitted to them, its
backends are what the engine takes, and its plan can be printed anywhere."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.baselines import FileStore
from pytest_moeperf.baselines.importers import import_results
from pytest_moeperf.engines.sglang import SglangEngine
from pytest_moeperf.engines.sglang_flags import InstalledSglang, refuse_unknown_flags
from pytest_moeperf.engines.simulated.engine import Request, Scheduler, StepModel
from pytest_moeperf.engines.simulated.noise import Noise
from pytest_moeperf.engines.simulated.profile import load_profile
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.fingerprint import build_fingerprint, differences
from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.options import resolve
from pytest_moeperf.options.files import find_file
from pytest_moeperf.session.specs import reference_spec, server_spec
from pytest_moeperf.session.sweeps import sweep_notes

EXAMPLE = Path(__file__).parents[2] / "examples" / "glm5_nvfp4"
CUTLASS = {1: 10.36, 2: 19.29, 10: 38.46, 64: 218.74, 256: 718.83, 1024: 1603.04}
CUTEDSL = {1: 10.07, 2: 19.24, 10: 64.29, 64: 249.23, 256: 515.58, 1024: 796.93}


def stored(backend: str) -> dict[int, Baseline]:
    entries = FileStore(EXAMPLE / "baselines").all()
    found = [entry.baseline for entry in entries if entry.baseline.cell.backend == backend]
    return {baseline.cell.workload.concurrency: baseline for baseline in found}


def settings(**given: Any) -> Settings:
    file, table = find_file(EXAMPLE, EXAMPLE)
    namespace = {f"moeperf_{name}": value for name, value in given.items()}
    return resolve.resolve(
        resolve.Given(file=file, table=table, environ={}, namespace=namespace), root=EXAMPLE, active=True
    )


# Baselines


@pytest.mark.parametrize("backend", ["flashinfer_cutlass", "flashinfer_cutedsl"])
def test_the_stored_baselines_are_what_the_result_files_say(backend: str) -> None:
    at = stored(backend)[1].history[0].at
    result = import_results(EXAMPLE / "results" / f"{backend}.toml", at=at)
    assert {baseline.cell.workload.concurrency: baseline for baseline in result.baselines} == stored(backend)


def test_they_are_imported_provisional_and_of_one_run_where_there_was_one() -> None:
    baselines = stored("flashinfer_cutlass")
    assert {c: [run.values["throughput"] for run in one.runs] for c, one in baselines.items()} == {
        c: [value] for c, value in CUTLASS.items()
    }
    assert all(baseline.provisional for baseline in baselines.values())
    assert {baseline.history[0].kind for baseline in baselines.values()} == {"imported"}
    assert {baseline.provenance for baseline in baselines.values()} == {
        "GLM-5-NVFP4 tuning notes: the baseline's table, one run a cell, from before the upgrade to kernel 6.14.11"
    }
    assert {baseline.evidence.status for baseline in baselines.values()} == {"unknown"}
    reruns = {c: [run.values["throughput"] for run in one.runs] for c, one in stored("flashinfer_cutedsl").items()}
    assert (reruns[10], reruns[256]) == ([64.29, 64.64], [515.58, 515.77])


def new_run(concurrency: int) -> Mapping[str, Any]:
    """What a run on such a box would be recorded with; everything that the notes state is the same."""
    return {
        "workload": Workload(concurrency=concurrency).as_fields(),
        "server_info": {
            "tp_size": 8,
            "quantization": "modelopt_fp4",
            "moe_runner_backend": "flashinfer_cutedsl",
            "disable_radix_cache": True,
            "version": "0.5.23",
        },
        "env": {},
        "software": {"engine": "sglang", "engine_version": "0.5.23"},
        "hardware": {"gpu_name": "NVIDIA RTX PRO 6000 Blackwell", "gpu_count": 8, "driver": "580.95.05"},
        "environment": {"kernel": "6.14.11"},
        "model": {"name": "zai-org/GLM-5-NVFP4"},
    }


@pytest.mark.parametrize("concurrency", sorted(CUTLASS))
def test_nothing_new_is_comparable_to_them_and_each_unknown_field_is_named(concurrency: int) -> None:
    baseline = stored("flashinfer_cutlass")[concurrency]
    found = differences(baseline.fingerprint, build_fingerprint(**new_run(concurrency)))
    unknown = {item.field for item in found if item.blocking and item.baseline == "unknown"}
    assert {
        "workload.num_prompts",
        "workload.dataset",
        "workload.request_rate",
        "workload.shared_prefix_len",
    } <= unknown
    assert "server.disable_radix_cache" in unknown
    noted = {item.field: (item.baseline, item.here) for item in found if not item.blocking}
    assert noted["environment.kernel"] == ("before 6.14.11", "6.14.11")


def test_the_baselines_own_curve_is_odd_at_ten_and_the_candidates_is_not() -> None:
    assert sweep_notes(stored("flashinfer_cutlass").values()) == (
        "odd in the stored sweep of flashinfer_cutlass 512/128: c=10 gives 3.85 tok/s a stream, 35 % below the 5.96 "
        "that c=2 (9.64) and c=64 (3.42) lead to: other conditions than the rest, or something that happens at this "
        "batch size alone; measure it again before anything is held against it",
    )
    assert sweep_notes(stored("flashinfer_cutedsl").values()) == ()


# Profiles


def simulated(profile_name: str, concurrency: int) -> tuple[float, float]:
    """(tok/s, mean TPOT in ms) of 4 x concurrency requests, 512 in and 128 out, in virtual time and without noise."""
    profile = load_profile(EXAMPLE / "profiles" / f"{profile_name}.toml")
    quiet = dataclasses.replace(profile.noise, session_sd=0.0, launch_sd=0.0, run_sd=0.0, step_sd=0.0)
    model = StepModel(
        times=profile.step,
        levels=quiet,
        warmup=profile.warmup,
        noise=Noise(quiet, seed=0, session_key="", launch_key="", profile_name=profile.name),
    )
    scheduler = Scheduler(model, max_running_requests=profile.step.max_running_requests)
    now_s, sent, tpots_ms = 0.0, 0, []

    def send() -> None:
        nonlocal sent
        sent += 1
        scheduler.submit(Request(rid=str(sent), prompt_tokens=512, max_new_tokens=128, arrival_s=now_s))

    for _ in range(concurrency):
        send()
    while (start_s := scheduler.next_start_s(now_s)) is not None:
        now_s = start_s + scheduler.begin_step(start_s).duration_s
        for request in scheduler.end_step(now_s):
            if request.finish is not None and request.first_token_s is not None:
                tpots_ms.append((now_s - request.first_token_s) / 127 * 1e3)
                if sent < 4 * concurrency:
                    send()
    return len(tpots_ms) * 128 / now_s, sum(tpots_ms) / len(tpots_ms)


@pytest.mark.parametrize(
    ("profile", "table"),
    [
        ("flashinfer_cutlass", CUTLASS),
        ("flashinfer_cutedsl", CUTEDSL),
        ("flashinfer_cutlass_c10_on_trend", {**CUTLASS, 10: 64.29}),
    ],
)
def test_each_profile_gives_its_tables_throughput_at_every_concurrency(profile: str, table: dict[int, float]) -> None:
    for concurrency, tok_s in table.items():
        assert simulated(profile, concurrency)[0] == pytest.approx(tok_s, rel=0.001), concurrency


@pytest.mark.parametrize(
    ("profile", "concurrency", "tpot_ms"),
    [("flashinfer_cutlass", 1, 95.14), ("flashinfer_cutedsl", 1, 97.64), ("flashinfer_cutedsl", 2, 101.31)],
)
def test_and_its_tpot_where_one_was_written_down(profile: str, concurrency: int, tpot_ms: float) -> None:
    assert simulated(profile, concurrency)[1] == pytest.approx(tpot_ms, rel=0.025)


def test_the_tpot_at_ten_belongs_to_fewer_than_ten_streams() -> None:
    """64.29 tok/s at 128.95 ms a token is 8.3 streams, and the notes have 8.48 in flight: no loop of ten gives both."""
    tok_s, tpot_ms = simulated("flashinfer_cutedsl", 10)
    assert tok_s * tpot_ms / 1e3 == pytest.approx(9.95, abs=0.1)
    assert pytest.approx(8.29, abs=0.01) == 64.29 * 128.95 / 1e3


def test_the_cold_profile_differs_in_its_warm_up_alone() -> None:
    warm = load_profile(EXAMPLE / "profiles" / "flashinfer_cutedsl.toml")
    cold = load_profile(EXAMPLE / "profiles" / "flashinfer_cutedsl_cold.toml")
    assert cold.warmup.factor == 2.0
    assert dataclasses.replace(cold, name=warm.name, description=warm.description, warmup=warm.warmup) == warm


# Backends


def command(backend: str) -> str:
    spec = server_spec(settings(), backend)
    return " ".join(SglangEngine().launch_plan(spec, devices=(), session="s", launch="l").command)


def test_the_candidate_and_its_reference_differ_in_the_runner_alone() -> None:
    candidate, reference = command("flashinfer_cutedsl"), command("flashinfer_cutlass")
    assert "--moe-runner-backend=flashinfer_cutedsl" in candidate
    assert candidate.replace("runner-backend=flashinfer_cutedsl", "runner-backend=flashinfer_cutlass") == reference
    assert "--tp-size 8" in reference
    assert "--quantization=modelopt_fp4" in reference
    held_against = reference_spec(settings(), server_spec(settings(), "flashinfer_cutedsl"))
    assert held_against is not None
    assert held_against.backend == "flashinfer_cutlass"


def test_every_lever_is_one_change_away_from_the_reference() -> None:
    base = server_spec(settings(), "flashinfer_cutlass")
    table = tomllib.loads((EXAMPLE / "moeperf.toml").read_text())
    levers = [name for name in table["backends"] if name.startswith("cutlass_")]
    own = {name: server_spec(settings(), name) for name in levers}
    added = {name: [arg for arg in spec.args if arg not in base.args] for name, spec in own.items()}
    assert added == {
        "cutlass_ep8": ["--ep-size=8"],
        "cutlass_mscclpp": ["--enable-mscclpp"],
        "cutlass_graphs_full": ["--cuda-graph-backend-decode=full", "--cuda-graph-backend-prefill=full"],
        "cutlass_graphs_breakable": ["--cuda-graph-backend-decode=breakable", "--cuda-graph-backend-prefill=breakable"],
        "cutlass_graphs_off": ["--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"],
        "cutlass_graphs_piecewise": ["--enable-piecewise-cuda-graph"],
        "cutlass_oea": [],
        "cutlass_autotune_off": ["--disable-flashinfer-autotune"],
        "cutlass_decode_steps_16": ["--num-continuous-decode-steps=16"],
    }
    assert {name for name, spec in own.items() if spec.python != base.python} == {"cutlass_oea"}


NEW_SGLANG = InstalledSglang(
    python="/opt/sglang/bin/python",
    version="0.5.23",
    flags={
        "--moe-runner-backend": ("flashinfer_cutlass", "flashinfer_cutedsl"),
        **dict.fromkeys(
            (
                "--quantization",
                "--fp4-gemm-backend",
                "--disable-radix-cache",
                "--ep-size",
                "--enable-mscclpp",
                "--cuda-graph-backend-decode",
                "--cuda-graph-backend-prefill",
                "--disable-flashinfer-autotune",
                "--num-continuous-decode-steps",
            ),
            (),
        ),
    },
)
"""The flags of 0.5.23 that the example uses, as facts about that version."""


def test_a_new_version_takes_all_levers_but_piecewise_graphs_and_names_what_took_their_place() -> None:
    table = tomllib.loads((EXAMPLE / "moeperf.toml").read_text())
    refused = {}
    for name in table["backends"]:
        try:
            refuse_unknown_flags(server_spec(settings(), name).args, NEW_SGLANG)
        except UsageProblem as problem:
            refused[name] = str(problem)
    assert refused == {
        "cutlass_graphs_piecewise": "[tool.moeperf.server] args: sglang 0.5.23 has no --enable-piecewise-cuda-graph\n"
        "  allowed: --cuda-graph-backend-prefill=full (piecewise graphs were removed)\n"
        "  next: /opt/sglang/bin/python -m sglang.launch_server --help lists them"
    }


def test_a_flag_without_effect_is_told() -> None:
    notes = {
        name: SglangEngine().notes(server_spec(settings(), name)) for name in ("cutlass_decode_steps_16", "cutlass_ep8")
    }
    assert notes == {
        "cutlass_decode_steps_16": (
            "--num-continuous-decode-steps has no effect in sglang 0.5.14 and newer: parsed, but nothing in the engine "
            "reads it",
        ),
        "cutlass_ep8": (),
    }


def test_the_baseline_files_are_plain_json_with_a_run_a_line() -> None:
    for path in (EXAMPLE / "baselines").rglob("*.json"):
        baseline = json.loads(path.read_text())
        assert baseline["runs"][0]["launch"] == "imported"

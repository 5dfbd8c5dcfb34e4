"""Whatever stands where in a /server_info: everything that reads one goes on, and its fingerprint can be stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.bench.simulation import simulation_check
from pytest_moeperf.engines.attached_log import of_another_server
from pytest_moeperf.engines.identity import Answers, read_identity
from pytest_moeperf.evidence import collect
from pytest_moeperf.fingerprint import build_fingerprint, differences
from pytest_moeperf.model.server_info import steady
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity.as_asked import running_limits

SAID: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "evidence_logs" / "sglang-0.5.14-cpu" / "server_info.json").read_text("utf-8")
)
FIELDS = (
    *("model_path", "version", "internal_states", "simulated", "launch_command", "served_model_name", "device", "pid"),
    *("speculative_algorithm", "speculative_draft_model_path", "dp_size", "max_running_requests", "decode", "prefill"),
    *("max_total_num_tokens", "moe_runner_backend", "port", "random_seed", "vllm_config", "cuda_graph_config"),
)
DEEP: Any = "x"
for _ in range(60):
    DEEP = {"a": [DEEP]}
ODD = {
    "list": [1, [2], {"a": 3}],
    "object": {"punctuality": [1], "pid": [2], "hardware": {"a": [1]}, "": 1},
    "number": 10**30,
    "negative": -1,
    "fraction": 1e308,
    "text": "\x1b[2J::error::x\u202e",
    "empty": "",
    "null": None,
    "true": True,
    "objects": [{"effective_max_running_requests_per_dp": [1]}, {"model_path": 5, "version": []}],
    "deep": DEEP,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("field", FIELDS)
def test_odd_values(field: str, odd: Any) -> None:
    info = {**SAID, field: odd}
    read_identity(Answers(server_info=info, models={"data": [info]}, version=info, completion=info, metrics=""))
    steady(info)
    running_limits(info)
    simulation_check(info, 1.0)
    of_another_server("log", "server_args=ServerArgs(port=1, random_seed=2)\nx", info)
    collect(
        engine="sglang",
        engine_version=None,
        requested="triton",
        device="cpu",
        log_text="",
        server_info=info,
        metrics_text=None,
    )
    made = build_fingerprint(
        workload=Workload(concurrency=1).as_fields(),
        server_info=info,
        env={},
        software={},
        hardware={},
        environment={},
    )
    json.dumps(made.server, allow_nan=False)
    differences(made, made)

"""Who answers, read from recorded answers: an engine is what it says itself, and what it does not say is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.engines.identity import OPENAI, SGLANG, Answers, Identity, read_identity

RECORDED = Path(__file__).parent.parent / "evidence_logs" / "sglang-0.5.14-cpu"
WORKER = {
    "model_path": "/models/GLM-5",
    "moe_runner_backend": "triton",
    "tp_size": 8,
    "version": "0.5.14",
    "internal_states": [{"last_gen_throughput": 100.0}],
}


def recorded(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RECORDED / name).read_text("utf-8"))
    return loaded


def models(owner: str | None, *names: str, **card: Any) -> dict[str, Any]:
    return {"data": [{"id": name, "owned_by": owner, **card} for name in names or ("m",)]}


def test_a_recorded_sglang() -> None:
    found = read_identity(Answers(server_info=recorded("server_info.json"), models=recorded("models.json")))
    assert (found.engine, found.protocol, found.version) == ("sglang", SGLANG, "0.5.14")
    assert (found.model, found.served, found.context_len) == ("/path/to/tiny-moe", ("/path/to/tiny-moe",), 4096)
    assert found.text == "sglang 0.5.14 serving /path/to/tiny-moe"


def test_its_momentary_state_is_no_mark_of_another_server() -> None:
    info = recorded("server_info.json")
    later = info | {"internal_states": [{"last_gen_throughput": 5.0}], "status": "busy"}
    marks = read_identity(Answers(server_info=info)).marks
    assert read_identity(Answers(server_info=later)).marks == marks
    assert read_identity(Answers(server_info=info | {"tp_size": 2})).marks != marks


def test_vllm_in_development_mode_is_no_sglang() -> None:
    """Its /server_info is another one."""
    found = read_identity(
        Answers(
            server_info={"vllm_config": "model='m', tensor_parallel_size=8", "vllm_env": {}},
            models=models("vllm", "glm", root="/models/GLM-5", max_model_len=1024),
            version={"version": "0.32.0"},
            completion={"choices": [], "system_fingerprint": "vllm-0.32.0-1d0a2f41"},
            metrics="# HELP x\nprocess_start_time_seconds 1.7e+09\nvllm:num_requests_running 0.0\n",
        )
    )
    assert (found.engine, found.protocol, found.version) == ("vllm", OPENAI, "0.32.0")
    assert (found.model, found.served, found.context_len) == ("/models/GLM-5", ("glm",), 1024)
    assert (found.build, found.started, found.arguments) == ("vllm-0.32.0-1d0a2f41", 1.7e9, None)
    assert found.engine_config is not None


@pytest.mark.parametrize(
    ("answers", "engine"),
    [
        (Answers(models=models("vllm")), "vllm"),
        (Answers(models=models("tensorrt_llm"), server_info={"disaggregated_params": None}), "trtllm"),
        (Answers(models=models("lmdeploy")), "lmdeploy"),
        (Answers(models=models("llamacpp")), "llama.cpp"),
        (Answers(models=models("library")), "ollama"),
        (Answers(models=models("sglang")), "sglang"),
        (Answers(models=models("organization-owner")), None),
        (Answers(models=models(None)), None),
        (Answers(models=models("me"), metrics="vllm:x 1\n"), "vllm"),
        (Answers(), None),
    ],
)
def test_an_engine_is_what_the_server_says(answers: Answers, engine: str | None) -> None:
    found = read_identity(answers)
    assert (found.engine, found.protocol) == (engine, OPENAI)


def test_a_router_of_prefill_and_decode() -> None:
    """Its workers' arguments are its identity, their state of the moment is not."""
    router = {"model_path": "/models/GLM-5", "prefill": [WORKER], "decode": [WORKER, WORKER]}
    found = read_identity(Answers(server_info=router))
    assert (found.engine, found.protocol, found.version) == ("sglang", SGLANG, "0.5.14")
    busy = WORKER | {"internal_states": [{"last_gen_throughput": 7.0}]}
    assert read_identity(Answers(server_info=router | {"decode": [busy, WORKER]})).marks == found.marks
    other = WORKER | {"tp_size": 4}
    assert read_identity(Answers(server_info=router | {"decode": [WORKER, other]})).marks != found.marks
    bare = {"internal_states": [], "prefill": [WORKER], "decode": [WORKER]}
    assert read_identity(Answers(server_info=bare)).model == "/models/GLM-5"


def test_a_simulated_server_says_so() -> None:
    info = WORKER | {"simulated": {"pid": 7, "hardware": "H200"}}
    found = read_identity(Answers(server_info=info))
    assert (found.engine, found.protocol, found.pid) == ("simulated", SGLANG, 7)


def test_adapters_are_no_models() -> None:
    listed = models("vllm", "base")
    listed["data"].append({"id": "lora", "owned_by": "vllm", "parent": "base"})
    assert read_identity(Answers(models=listed)).served == ("base",)


@pytest.mark.parametrize("rubbish", [{"data": None}, {"data": [1, {}]}, {"data": {"id": "m"}}, {}])
def test_what_is_no_list_of_models_names_none(rubbish: dict[str, Any]) -> None:
    assert read_identity(Answers(models=rubbish)) == Identity(engine=None)

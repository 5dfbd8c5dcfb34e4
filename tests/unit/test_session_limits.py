"""Workloads that a model or this host can't hold are refused at collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.environment.model_files import context_length, model_folder
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.session import limits


class Item:
    nodeid = "test_x.py::test_x"


def refusal(workload: Workload, *, spec: ServerSpec | None = None) -> str:
    item: Any = Item()
    with pytest.raises(UsageProblem) as caught:
        limits.check_measurable(item, workload, (), spec=spec)
    return str(caught.value)


@pytest.fixture
def model(tmp_path: Path) -> ServerSpec:
    (tmp_path / "config.json").write_text(
        json.dumps({"text_config": {"max_position_embeddings": 4096, "vocab_size": 9}})
    )
    return ServerSpec(engine="sglang", backend="triton", model=str(tmp_path))


def test_lengths_that_no_model_has() -> None:
    assert refusal(Workload(concurrency=1, input_len=10**9)) == (
        "test_x.py::test_x: marker 'perf': input_len=1000000000 and output_len=128 are 1000000128 tokens a request\n"
        "  allowed: at most 16777216 together (no model is known to have more)"
    )


def test_lengths_that_this_model_does_not_have(model: ServerSpec) -> None:
    assert refusal(Workload(concurrency=1, input_len=4000), spec=model) == (
        "test_x.py::test_x: marker 'perf': input_len=4000 and output_len=128 are 4128 tokens a request\n"
        f"  allowed: at most 4096 together (the context of {model.model}, by its config.json)"
    )


def test_the_servers_own_limit_comes_first(model: ServerSpec) -> None:
    spec = ServerSpec(engine="sglang", backend="triton", model=model.model, args=("--context-length", "1024"))
    assert refusal(Workload(concurrency=1, input_len=1000), spec=spec).endswith(
        "allowed: at most 1024 together (--context-length=1024)"
    )


def test_a_concurrency_that_this_host_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "most_connections", lambda: 4000)
    assert refusal(Workload(concurrency=5000)) == (
        "test_x.py::test_x: marker 'perf': concurrency=5000 is more than this host can have connections\n"
        "  allowed: at most 4000 (open files of a process, ulimit -Hn, and local ports)"
    )


def test_prompts_that_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_bytes", lambda: 4_000_000_000)
    assert refusal(Workload(concurrency=16, input_len=10**6, num_prompts=1000)) == (
        "test_x.py::test_x: marker 'perf': input_len=1000000 and output_len=128 are 1000128 tokens a request; "
        "num_prompts=1000 of them take about 32 GB of the client's memory\n"
        "  allowed: 2 GB, half of what is free on this host: fewer prompts (num_prompts=62) or shorter ones"
    )


def test_usual_workloads_pass() -> None:
    item: Any = Item()
    for workload in (Workload(concurrency=1024), Workload(concurrency=4, input_len=131_072, output_len=4096)):
        limits.check_measurable(item, workload, (), spec=None)


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 40960}, 40960),
        ({"max_position_embeddings": 32768, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 131072),
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
        ),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"hidden_size": 12}, None),
    ],
)
def test_the_context_by_the_config(config: dict[str, Any], length: int | None) -> None:
    assert context_length(config) == length


def test_a_hub_name_is_looked_up_in_the_cache_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    stored = tmp_path / "hub" / "models--zai-org--GLM-5"
    (stored / "refs").mkdir(parents=True)
    (stored / "snapshots" / "abc").mkdir(parents=True)
    (stored / "refs" / "main").write_text("abc\n")
    found = model_folder("zai-org/GLM-5", env={"HF_HOME": str(tmp_path)})
    assert found == stored / "snapshots" / "abc"
    assert model_folder("zai-org/GLM-4", env={"HF_HOME": str(tmp_path)}) is None
    assert model_folder("../outside", env={"HF_HOME": str(tmp_path)}) is None
    assert model_folder("") is None

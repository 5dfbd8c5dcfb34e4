"""A model is its configuration and quantization by content, a hub name also the commit that is in the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_moeperf.environment import read_model

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def written(folder: Path, config: dict[str, Any], beside: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if beside is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(beside))
    return folder


def cached(cache: Path, commit: str, config: dict[str, Any]) -> dict[str, str]:
    """As huggingface_hub lays it out."""
    folder = cache / "hub" / "models--zai-org--GLM-5"
    written(folder / "snapshots" / commit, config)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    return {"HF_HOME": str(cache)}


def test_quantization_by_its_own_words(tmp_path: Path) -> None:
    plain = read_model(str(written(tmp_path / "a", {"hidden_size": 8})))
    assert "quantization" not in plain
    fp8 = read_model(str(written(tmp_path / "b", {"hidden_size": 8, "quantization_config": FP8})))
    assert str(fp8["quantization"]).startswith("fp8 ")
    other = {"quantization_config": FP8 | {"weight_block_size": [64, 64]}}
    assert read_model(str(written(tmp_path / "c", {"hidden_size": 8, **other})))["quantization"] != fp8["quantization"]


def test_one_that_stands_beside_the_configuration(tmp_path: Path) -> None:
    """ModelOpt's: the config.json is the same with and without."""
    bare = read_model(str(written(tmp_path / "a", {"hidden_size": 8})))
    beside = {"quantization": {"quant_algo": "NVFP4"}}
    nvfp4 = read_model(str(written(tmp_path / "b", {"hidden_size": 8}, beside)))
    assert nvfp4["config_digest"] == bare["config_digest"]
    assert str(nvfp4["quantization"]).startswith("NVFP4 ")


def test_a_hub_name_is_the_commit_in_the_cache(tmp_path: Path) -> None:
    env = cached(tmp_path, "abc123", {"hidden_size": 8})
    found = read_model("zai-org/GLM-5", env=env)
    assert (found["revision"], "config_digest" in found) == ("abc123", True)
    cached(tmp_path, "def456", {"hidden_size": 8})
    assert read_model("zai-org/GLM-5", env=env)["revision"] == "def456"
    assert read_model("zai-org/GLM-5", env=env, revision="abc123")["revision"] == "abc123"


def test_what_is_in_no_cache_is_its_name_and_the_revision_that_was_asked_for(tmp_path: Path) -> None:
    env = {"HF_HOME": str(tmp_path)}
    assert read_model("zai-org/GLM-5", env=env) == {"name": "zai-org/GLM-5"}
    assert read_model("zai-org/GLM-5", env=env, revision="v2") == {"name": "zai-org/GLM-5", "revision": "v2"}
    assert read_model("", env=env) == {"name": ""}

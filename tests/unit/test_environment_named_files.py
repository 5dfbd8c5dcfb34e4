"""What arguments and variables name is known by its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.environment.named_files import read_named_files
from pytest_moeperf.fingerprint import build_fingerprint, differences
from pytest_moeperf.model.run import Plain


def test_files_are_known_by_content_whatever_their_path(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "eplb.json").write_text('{"x": 1, "y": 2}' if folder == "a" else '{"y": 2, "x": 1}')
    one = read_named_files(["--init-expert-location", str(tmp_path / "a" / "eplb.json")], {})
    assert one == read_named_files([f"--init-expert-location={tmp_path}/b/eplb.json"], {})
    assert set(one) == {"file.init_expert_location"}
    (tmp_path / "a" / "eplb.json").write_text('{"x": 3}')
    assert one != read_named_files(["--init-expert-location", str(tmp_path / "a" / "eplb.json")], {})


def test_relative_paths_start_where_the_server_runs(tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text("a = 1")
    assert set(read_named_files(["--profile=profile.toml"], {}, cwd=str(tmp_path))) == {"file.profile"}
    assert read_named_files(["--profile=profile.toml"], {}) == {}


def test_a_folder_of_tuning_tables_that_a_variable_names(tmp_path: Path) -> None:
    table = tmp_path / "configs" / "triton_3_6_0" / "E=64,N=768.json"
    table.parent.mkdir(parents=True)
    table.write_text('{"1": {"BLOCK_SIZE_M": 16}}')
    env = {"SGLANG_MOE_CONFIG_DIR": str(tmp_path / "configs"), "PATH": str(tmp_path)}
    one = read_named_files([], env)
    assert set(one) == {"file.env.SGLANG_MOE_CONFIG_DIR"}
    table.write_text('{"1": {"BLOCK_SIZE_M": 64}}')
    assert read_named_files([], env) != one


def test_a_draft_model_is_its_configuration_and_the_sizes_of_its_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden": 8, "transformers_version": "5"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "README.md").write_text("read me")
    args = ["--speculative-draft-model-path", str(tmp_path)]
    one = read_named_files(args, {})
    (tmp_path / "README.md").write_text("read me again")
    (tmp_path / "model.safetensors").write_bytes(b"WEIGHTS")
    (tmp_path / "config.json").write_text('{"transformers_version": "6", "hidden": 8}')
    assert read_named_files(args, {}) == one
    (tmp_path / "model.safetensors").write_bytes(b"more weights")
    assert read_named_files(args, {}) != one


def test_the_model_is_its_quantization_and_its_index_beside_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert read_named_files([], {}, model=str(tmp_path)) == {}
    (tmp_path / "hf_quant_config.json").write_text('{"quant_algo": "NVFP4"}')
    one = read_named_files([], {}, model=str(tmp_path))
    assert set(one) == {"file.model_path"}
    (tmp_path / "hf_quant_config.json").write_text('{"quant_algo": "FP8"}')
    assert read_named_files([], {}, model=str(tmp_path)) != one
    assert read_named_files([], {}, model="a-hub/name") == {}


@pytest.mark.parametrize(
    "argument",
    ["--ssl-keyfile", "--ssl-certfile", "--api-key", "--crash-dump-folder", "--download-dir", "--log-config"],
)
def test_secrets_caches_and_outputs_are_left_alone(tmp_path: Path, argument: str) -> None:
    file = tmp_path / "file.json"
    file.write_text("{}")
    assert read_named_files([argument, str(file)], {}) == {}
    assert read_named_files([], {"SGLANG_CACHE_DIR": str(tmp_path), "TRITON_HOME": str(tmp_path)}) == {}


def test_a_large_file_is_its_size_and_its_first_part(tmp_path: Path) -> None:
    file = tmp_path / "corpus.txt"
    file.write_bytes(b"a" * (5 << 20))
    one = read_named_files([f"--corpus={file}"], {})
    file.write_bytes(b"a" * (6 << 20))
    assert read_named_files([f"--corpus={file}"], {}) != one


# ---- in a fingerprint ----


def found(one: dict[str, Plain], two: dict[str, Plain], **changes: Any) -> dict[str, bool]:
    facts: dict[str, Any] = {
        "workload": {"concurrency": 1},
        "server_info": {"tp_size": 1},
        "env": {},
        "software": {"engine": "sglang"},
        "hardware": {},
        "environment": {},
        "model": {"name": "m", "config_digest": "c"},
    }
    sides = [build_fingerprint(**facts | {"files": files} | changes) for files in (one, two)]
    return {difference.field: difference.blocking for difference in differences(*sides)}


def test_another_content_blocks_and_the_thing_under_test_is_noted() -> None:
    assert found({"file.init_expert_location": "a"}, {"file.init_expert_location": "b"}) == {
        "server.file.init_expert_location": True
    }
    assert found({"file.init_expert_location": "a"}, {}) == {"server.file.init_expert_location": True}
    assert found(
        {"file.deepep_config": "a", "file.profile": "a", "file.env.SGLANG_MOE_CONFIG_DIR": "a"},
        {"file.deepep_config": "b", "file.profile": "b", "file.env.SGLANG_MOE_CONFIG_DIR": "b"},
    ) == {
        "server.file.deepep_config": False,
        "server.file.env.SGLANG_MOE_CONFIG_DIR": False,
        "server.file.profile": False,
    }
    own = ("--init-expert-location=x.json",)
    assert found({"file.init_expert_location": "a"}, {"file.init_expert_location": "b"}, backend_flags=own) == {
        "server.file.init_expert_location": False
    }


def test_a_model_recorded_without_its_files_is_known_by_its_config() -> None:
    assert found({}, {"file.model_path": "a"}) == {"server.file.model_path": False}
    assert found({"file.model_path": "b"}, {"file.model_path": "a"}) == {"server.file.model_path": True}
    assert found({}, {"file.model_path": "a"}, model={"name": "m"})["server.file.model_path"]


def test_another_draft_model_blocks_unless_its_files_are_the_same() -> None:
    def drafts(files: dict[str, Plain]) -> list[Any]:
        return [
            build_fingerprint(
                workload={"concurrency": 1},
                server_info={"speculative_draft_model_path": path},
                env={},
                software={"engine": "sglang"},
                hardware={},
                environment={},
                files=files,
            )
            for path in ("hub/draft-v1", "/models/draft-v2")
        ]

    assert [(one.field, one.blocking) for one in differences(*drafts({}))] == [("server.model.draft", True)]
    same: dict[str, Plain] = {"file.speculative_draft_model_path": "a"}
    assert [(one.field, one.blocking) for one in differences(*drafts(same))] == [("server.model.draft", False)]


def test_a_files_label_says_what_it_is() -> None:
    from pytest_moeperf.fingerprint import label

    assert label("server.file.init_expert_location") == "the content of --init-expert-location"
    assert label("server.file.env.SGLANG_MOE_CONFIG_DIR") == (
        "the content of the server's environment variable SGLANG_MOE_CONFIG_DIR"
    )
    assert json.dumps(label("server.file.model_path")) == '"the model\'s quantization and weights (files)"'

"""A launch is known by the code that it starts from: after an edit it is another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_moeperf.bench.place import Code, Place, place_of
from pytest_moeperf.model.environment import EnvironmentFacts
from pytest_moeperf.model.spec import ServerSpec


def place(tmp_path: Path, **changes: object) -> Place:
    values: dict[str, object] = {"engine": "simulated", "backend": "x", "cwd": str(tmp_path)}
    facts = EnvironmentFacts(hardware={}, software={}, environment={})
    return Place(spec=ServerSpec(**values | changes), facts=facts, gpus=())  # type: ignore[arg-type]


def test_a_server_that_was_kept_warm_does_not_serve_an_edited_file(tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text("a = 1")
    here = place(tmp_path, args=("--profile=mine.toml",))
    before = here.read_code().digest("spec")
    assert here.read_code().digest("spec") == before != "spec"
    profile.write_text("a = 2")
    assert here.read_code().digest("spec") != before


def test_a_release_without_files_is_known_by_its_spec(tmp_path: Path) -> None:
    assert place(tmp_path).read_code() == Code()
    assert Code().digest("spec") == "spec"
    assert Code(source={"engine_changes": "a"}).digest("spec") != Code(source={"engine_changes": "b"}).digest("spec")


def test_the_engines_own_variables_count_wherever_they_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_FROM_THE_SHELL", "1")
    monkeypatch.setenv("SGLANG_BOTH", "shell")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    env = {"SGLANG_BOTH": "configuration", "NCCL_ALGO": "Ring"}
    sglang = place_of(ServerSpec(engine="sglang", backend="triton", args=("--device=cpu",), env=env))
    mine = {name: value for name, value in sglang.env.items() if name in ("SGLANG_FROM_THE_SHELL", "NCCL_DEBUG", *env)}
    assert mine == {"SGLANG_FROM_THE_SHELL": "1", **env}
    assert place(tmp_path, env=env).env == env


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ('{"num_experts": 128}', True),
        ('{"text_config": {"n_routed_experts": 256}}', True),
        ('{"hidden_size": 8}', False),
        ("{", None),
    ],
)
def test_whether_a_draft_model_has_experts_stands_in_its_configuration(
    tmp_path: Path, config: str, known: bool | None
) -> None:
    (tmp_path / "config.json").write_text(config)
    assert place(tmp_path, args=(f"--speculative-draft-model-path={tmp_path}",)).draft_has_experts is known
    assert place(tmp_path).draft_has_experts is None

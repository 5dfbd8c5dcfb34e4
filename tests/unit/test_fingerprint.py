"""Which differences make two runs incomparable, and how they are told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.fingerprint import (
    argument_names,
    build_fingerprint,
    describe,
    differences,
    known_differences,
    unknown_fields,
)
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.verdict import Difference
from pytest_moeperf.model.workload import Workload

SERVER_INFO = Path(__file__).parent.parent / "evidence_logs" / "sglang-0.5.14-cpu" / "server_info.json"
HARDWARE = {"gpu_name": "NVIDIA H200", "gpu_count": 1, "driver": "580.65.06", "cpu_count": 16, "gpu_power_limit_w": 700}


@pytest.fixture
def server_info() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SERVER_INFO.read_text("utf-8"))
    return loaded


def fingerprint(info: dict[str, Any] | None, **changes: Any) -> Fingerprint:
    facts: dict[str, Any] = {
        "workload": Workload(concurrency=10).as_fields(),
        "server_info": info,
        "env": {"SGLANG_USE_CPU_ENGINE": "1", "PATH": "/bin"},
        "software": {"engine": "sglang", "torch": "2.14.1"},
        "hardware": HARDWARE,
        "environment": {"kernel": "6.8.0", "cpu_governor": "performance"},
    }
    return build_fingerprint(**facts | changes)


def fields(found: tuple[Difference, ...], *, blocking: bool) -> list[str]:
    return [difference.field for difference in found if difference.blocking is blocking]


def test_a_fingerprint_is_equal_to_itself(server_info: dict[str, Any]) -> None:
    assert differences(fingerprint(server_info), fingerprint(server_info)) == ()


def test_what_is_not_known_before_a_launch_is_no_difference_yet(server_info: dict[str, Any]) -> None:
    known: dict[str, Any] = {"env": {}, "software": {}, "environment": {}}
    stored = fingerprint(server_info)
    assert known_differences(stored, fingerprint(None, **known)) == ()
    two = fingerprint(None, **known | {"hardware": HARDWARE | {"gpu_count": 2}})
    assert fields(known_differences(stored, two), blocking=True) == ["hardware.gpu_count"]
    nothing = fingerprint(
        None, **known | {"hardware": {}, "workload": Workload(concurrency=10, num_prompts=7).as_fields()}
    )
    assert fields(known_differences(stored, nothing), blocking=True) == ["workload.num_prompts"]


def test_it_holds_resolved_arguments_but_no_paths_ports_seeds_or_state(server_info: dict[str, Any]) -> None:
    server = fingerprint(server_info).server
    assert server["attention_backend"] == "torch_native"
    assert server["max_running_requests"] == "not set"
    assert server["cuda_graph_config.decode.backend"] == "full"
    assert str(server["cuda_graph_config.prefill.bs"]).endswith(
        "values, sha256 " + str(server["cuda_graph_config.prefill.bs"])[-13:]
    )
    assert (
        server["effective_max_running_requests"]
        == server_info["internal_states"][0]["effective_max_running_requests_per_dp"]
    )
    assert server["env.SGLANG_USE_CPU_ENGINE"] == "1"
    for name in ("model_path", "port", "random_seed", "api_key", "log_level", "internal_states", "version", "env.PATH"):
        assert name not in server
    assert fingerprint(server_info).software["engine_version"] == "0.5.14"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("num_continuous_decode_steps", 16),
        ("max_running_requests", 64),
        ("chunked_prefill_size", 4096),
        ("disable_radix_cache", False),
        ("attention_backend", "triton"),
        ("fp4_gemm_runner_backend", "cutlass"),
        ("tp_size", 8),
        ("speculative_algorithm", "EAGLE"),
        ("quantization", "modelopt_fp4"),
        ("disable_cuda_graph", True),
        ("sampling_defaults", "openai"),
    ],
)
def test_an_argument_that_changes_the_work_blocks(server_info: dict[str, Any], argument: str, value: object) -> None:
    found = differences(fingerprint(server_info), fingerprint(server_info | {argument: value}))
    assert fields(found, blocking=True) == [f"server.{argument}"]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("moe_runner_backend", "flashinfer_cutedsl"),
        ("disable_shared_experts_fusion", True),
        ("deepep_mode", "low_latency"),
        ("max_total_num_tokens", 18000),
    ],
)
def test_the_thing_under_test_is_noted(server_info: dict[str, Any], argument: str, value: object) -> None:
    found = differences(fingerprint(server_info), fingerprint(server_info | {argument: value}))
    assert fields(found, blocking=False) == [f"server.{argument}"]
    assert fields(found, blocking=True) == []


@pytest.mark.parametrize(
    ("argument", "value"), [("port", 1), ("random_seed", 9), ("log_level", "debug"), ("model_path", "/x")]
)
def test_paths_ports_seeds_and_logs_are_no_difference(
    server_info: dict[str, Any], argument: str, value: object
) -> None:
    assert differences(fingerprint(server_info), fingerprint(server_info | {argument: value})) == ()


def test_expert_parallelism_may_follow_its_all_to_all_backend_only(server_info: dict[str, Any]) -> None:
    base = fingerprint(server_info)
    alone = differences(base, fingerprint(server_info | {"ep_size": 8}))
    implied = differences(base, fingerprint(server_info | {"ep_size": 8, "moe_a2a_backend": "deepep"}))
    assert fields(alone, blocking=True) == ["server.ep_size"]
    assert fields(implied, blocking=True) == []


def test_a_backends_own_arguments_are_noted_unless_they_change_the_work(server_info: dict[str, Any]) -> None:
    flags = ("--moe-runner-backend=x", "--tbo-token-distribution-threshold", "0.9", "--num-continuous-decode-steps=16")
    other = server_info | {"tbo_token_distribution_threshold": 0.9, "num_continuous_decode_steps": 16}
    found = differences(fingerprint(server_info), fingerprint(other, backend_flags=flags))
    assert fields(found, blocking=False) == ["server.tbo_token_distribution_threshold"]
    assert fields(found, blocking=True) == ["server.num_continuous_decode_steps"]


def test_a_newer_engine_may_have_other_arguments_but_not_do_other_work(server_info: dict[str, Any]) -> None:
    newer = server_info | {
        "version": "0.5.23",
        "a_new_argument": 1,
        "mamba_backend": "other",
        "chunked_prefill_size": 1,
    }
    del newer["dp_size"]
    found = differences(fingerprint(server_info), fingerprint(newer))
    assert fields(found, blocking=True) == ["server.chunked_prefill_size"]
    assert fields(found, blocking=False) == [
        "server.a_new_argument",
        "server.dp_size",
        "server.mamba_backend",
        "software.engine_version",
    ]
    assert "--dp-size: 1 in the baseline, no such argument in that version here" in describe(found)


def test_the_seeds_story_is_told_in_a_line_each(server_info: dict[str, Any]) -> None:
    baseline = fingerprint(
        server_info | {"num_continuous_decode_steps": 16}, workload=Workload(concurrency=10, num_prompts=10).as_fields()
    )
    here = fingerprint(server_info, env={}, environment={"kernel": "6.14.11", "cpu_governor": "performance"})
    found = differences(baseline, here)
    assert describe(found) == [
        "the server's environment variable SGLANG_USE_CPU_ENGINE: 1 in the baseline, not set here",
        "--num-continuous-decode-steps: 16 in the baseline, 1 here",
        "number of prompts in a run: 10 in the baseline, 40 here",
        "kernel: 6.8.0 in the baseline, 6.14.11 here",
    ]
    assert [difference.blocking for difference in found] == [True, True, True, False]


@pytest.mark.parametrize(
    "field", ["num_prompts", "input_len", "output_len", "dataset", "request_rate", "shared_prefix_len"]
)
def test_unknown_is_equal_to_nothing_not_even_to_unknown(field: str) -> None:
    unknown = fingerprint(None, workload=Workload(concurrency=10).as_fields() | {field: None})
    if field == "request_rate":  # in a workload, no rate is a closed loop
        unknown = replace(unknown, workload=unknown.workload | {field: None})
    known = fingerprint(None)
    for baseline, here in ((unknown, known), (known, unknown), (unknown, unknown)):
        found = differences(baseline, here)
        assert fields(found, blocking=True) == [f"workload.{field}"]
        (line,) = describe(found)
        assert ", so not shown to be equal: " in line


def test_a_field_that_one_side_did_not_record_is_unknown_there() -> None:
    found = differences(fingerprint(None, hardware=HARDWARE | {"gpu_power_limit_w": None}), fingerprint(None))
    assert describe(found) == ["unknown in the baseline, so not shown to be equal: GPU power limit (W) (700 here)"]
    assert found[0].blocking


def test_a_whole_group_that_one_side_lacks_is_one_difference(server_info: dict[str, Any]) -> None:
    imported = replace(fingerprint(server_info), server={}, hardware={}, environment={})
    found = differences(imported, fingerprint(server_info))
    assert fields(found, blocking=True) == ["hardware", "server"]
    assert fields(found, blocking=False) == ["environment"]


def test_a_seed_is_noted_and_a_closed_loop_is_known() -> None:
    one, two = (fingerprint(None, workload=Workload(concurrency=10, seed=seed).as_fields()) for seed in (0, 1))
    assert fields(differences(one, two), blocking=False) == ["workload.seed"]
    assert fields(differences(one, two), blocking=True) == []


def test_a_driver_blocks_in_its_major_version_only() -> None:
    base = fingerprint(None)
    minor = differences(base, fingerprint(None, hardware=HARDWARE | {"driver": "580.90"}))
    major = differences(base, fingerprint(None, hardware=HARDWARE | {"driver": "595.10"}))
    assert fields(minor, blocking=True) == []
    assert fields(minor, blocking=False) == ["hardware.driver"]
    assert fields(major, blocking=True) == ["hardware.driver"]


def test_a_model_is_its_configuration_and_a_name_where_that_is_unknown() -> None:
    def of(**model: str) -> Fingerprint:
        return fingerprint({"tp_size": 1}, model=model)

    assert not fields(differences(of(name="/a", config_digest="1"), of(name="/b", config_digest="1")), blocking=True)
    assert fields(differences(of(name="/a", config_digest="1"), of(name="/a", config_digest="2")), blocking=True) == [
        "server.model.config_digest"
    ]
    assert fields(differences(of(name="org/a"), of(name="org/b")), blocking=True) == ["server.model.name"]


def test_patterns_override_the_tables() -> None:
    base, other = fingerprint(None), fingerprint(None, environment={"kernel": "6.14.11", "cpu_governor": "powersave"})
    found = differences(base, other, blocking=["environment.*"], noted=["environment.kernel"])
    assert fields(found, blocking=True) == ["environment.cpu_governor"]
    assert fields(found, blocking=False) == ["environment.kernel"]


def test_no_secret_enters(server_info: dict[str, Any]) -> None:
    secret = "planted-7a1-secret"
    info = server_info | {
        "api_key": secret,
        "admin_api_key": secret,
        "launch_command": f"serve --api-key {secret}",
        "preferred_sampling_params": {"token": secret},
        "weird_argument": f"https://u:{secret}@host",
        "other": ["--api-key", secret],
    }
    env = {"SGLANG_API_KEY": secret, "NCCL_X": secret, "HF_TOKEN": secret, "SGLANG_PROXY": f"http://a:{secret}@b"}
    made = fingerprint(info, env=env, environment={"cmdline": f"quiet token={secret}"}, software={"url": f"x {secret}"})
    assert secret not in repr(made)
    assert str(made.server["env.NCCL_X"]).startswith("not shown, sha256 ")


def test_a_simulated_server_depends_on_its_imagined_machine_only() -> None:
    def of(host: str, machine: str, profile: str) -> Fingerprint:
        info = {"tp_size": 1, "simulated": {"pid": 3, "hardware": machine, "profile_digest": profile}}
        return fingerprint(info, hardware={"cpu_model": host})

    base = of("one", "imagined", "1")
    other_host = differences(base, of("two", "imagined", "2"))
    assert fields(other_host, blocking=True) == []
    assert fields(other_host, blocking=False) == ["environment.cpu_model", "software.simulated_profile"]
    assert fields(differences(base, of("one", "another", "1")), blocking=True) == ["hardware.simulated"]


def test_argument_names() -> None:
    assert argument_names(("--fp4-gemm-backend=x", "--tp-size", "8", "--enable-mscclpp")) == (
        "enable_mscclpp",
        "fp4_gemm_backend",
        "tp_size",
    )


def attached(**changes: Any) -> Fingerprint:
    given: dict[str, Any] = {
        "env": {},
        "software": {"engine": "vllm"},
        "hardware": {"stated": "8x H200"},
        "model": {"name": "m"},
        "arguments": {"arguments": None},
    }
    return fingerprint(None, **given | changes)


def test_hardware_that_nobody_stated_is_equal_to_nothing() -> None:
    """Not even to itself: two servers on unknown machines are not shown to be alike."""
    unknown = attached(hardware={"stated": None})
    assert unknown_fields(unknown) == ("hardware.stated",)
    found = [each for each in differences(unknown, unknown) if each.blocking]
    assert describe(found) == [
        "unknown in both, so not shown to be equal: the attached server's hardware ([attach] hardware = "
        '"8x H200" states it)'
    ]
    assert fields(differences(attached(), unknown), blocking=True) == ["hardware.stated"]
    assert fields(differences(attached(), attached(hardware={"stated": "4x H200"})), blocking=True) == [
        "hardware.stated"
    ]
    assert unknown_fields(attached()) == ()


def test_how_an_attached_server_was_started_is_told_where_nobody_knows_it() -> None:
    """No server but SGLang gives its arguments: unknown on both sides it is said, known on one it blocks."""
    assert fields(differences(attached(), attached()), blocking=False) == ["server.arguments"]
    stated = attached(arguments={"stated_args": "--tp=8"})
    assert differences(stated, stated) == ()
    assert set(fields(differences(attached(), stated), blocking=True)) == {"server.stated_args"}
    assert fields(differences(stated, attached(arguments={"stated_args": "--tp=4"})), blocking=True) == [
        "server.stated_args"
    ]


def test_an_engine_that_names_itself_nowhere_is_unknown() -> None:
    assert unknown_fields(attached(software={"engine": None})) == ("software.engine",)


def test_the_workers_of_a_router_are_what_it_runs_with(server_info: dict[str, Any]) -> None:
    def router(*decode: dict[str, Any]) -> Fingerprint:
        return fingerprint({"model_path": "m", "prefill": [server_info], "decode": list(decode)})

    busy = server_info | {"internal_states": [{"last_gen_throughput": 7.0}]}
    assert differences(router(server_info, server_info), router(server_info, busy)) == ()
    assert router(server_info, server_info).server["decode.workers"] == 2
    fewer = differences(router(server_info, server_info), router(server_info))
    assert fields(fewer, blocking=True) == ["server.decode.workers"]
    other = router(server_info, server_info | {"page_size": 64, "moe_runner_backend": "triton"})
    found = differences(router(server_info, server_info), other)
    assert fields(found, blocking=True) == ["server.decode.2.page_size"]
    assert fields(found, blocking=False) == ["server.decode.2.moe_runner_backend"]


def test_an_older_baseline_that_holds_less_of_a_model_stays_comparable() -> None:
    def of(**model: Any) -> Fingerprint:
        return fingerprint({}, model={"name": "zai-org/GLM-5"} | model)

    assert fields(differences(of(), of(config_digest="1", revision="abc")), blocking=True) == []
    assert fields(differences(of(revision="abc"), of(revision="def")), blocking=True) == ["server.model.revision"]
    digest = {"config_digest": "1"}
    assert fields(differences(of(**digest), of(**digest, quantization="fp8")), blocking=True) == []
    assert fields(differences(of(**digest), of(**digest, name="other")), blocking=True) == []


def test_a_variable_that_no_list_knows_is_compared_by_its_digest_with_older_baselines_too() -> None:
    def of(value: str, name: str = "SGLANG_PLUGIN_MODE") -> Fingerprint:
        return fingerprint(None, env={name: value})

    field = "env.SGLANG_PLUGIN_MODE"
    here, other = of("planted-value"), of("another")
    assert str(here.server[field]).startswith("not shown, sha256 ")
    older = replace(here, server={**here.server, field: "planted-value"})
    assert differences(older, here) == differences(here, older) == differences(here, of("planted-value")) == ()
    for base, now in ((here, other), (older, other), (other, older)):
        found = differences(base, now)
        assert fields(found, blocking=True) == [f"server.{field}"]
    # A value that says what a digest does is none.
    forged = replace(here, server={**here.server, field: str(other.server[field])})
    assert fields(differences(forged, here), blocking=True) == [f"server.{field}"]


def test_a_harmless_variable_is_shown_as_before() -> None:
    made = fingerprint(None, env={"SGLANG_SIMULATE_UNIFORM_EXPERTS": "1", "NCCL_ALGO": "Ring", "VLLM_LICENSE": "x"})
    assert (made.server["env.SGLANG_SIMULATE_UNIFORM_EXPERTS"], made.server["env.NCCL_ALGO"]) == ("1", "Ring")
    assert "env.VLLM_LICENSE" not in made.server

"""GPU facts from NVML: whole, partial, old, broken in the middle, absent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_nvml import FakeNvml, NVMLError

from pytest_moeperf.environment import Probe, audit, read_environment, read_model, read_software


def probe(root: Path, nvml: Any, **fields: Any) -> Probe:
    return Probe(root=root, env={}, nvml=nvml, affinity=8, own_pids=frozenset({10, 11}), **fields)


def test_the_facts_of_two_gpus(tmp_path: Path) -> None:
    nvml = FakeNvml()
    facts = read_environment(probe(tmp_path, nvml))
    assert facts.hardware | {"machine": ""} == {
        "gpu_name": "NVIDIA H200",
        "gpu_count": 2,
        "gpu_memory_mib": 143771,
        "driver": "580.65.06",
        "gpu_links": "NVLink",
        "gpu_pcie": "gen 5 x16",
        "gpu_power_limit_w": 700,
        "gpu_ecc": True,
        "gpu_mig": False,
        "machine": "",
        "cpu_usable": 8,
    }
    assert facts.environment["gpu_clock_max_mhz"] == 1980
    assert facts.environment["gpu_memory_clock_max_mhz"] == 3201
    assert facts.software["cuda_of_driver"] == "13.0"
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("name", "answers", "read"),
    [
        ("gpu_power_cap", {"nvmlDeviceGetEnforcedPowerLimit": 450_000}, "450 W, below the default of 700 W"),
        ("gpu_persistence", {"nvmlDeviceGetPersistenceMode": 0}, "off"),
        ("gpu_mig", {"nvmlDeviceGetMigMode": [1, 1]}, "on"),
        (
            "gpu_throttling",
            {"nvmlDeviceGetCurrentClocksEventReasons": 0x61},
            "software thermal slowdown, hardware thermal slowdown",
        ),
        ("gpu_throttling", {"nvmlDeviceGetCurrentClocksEventReasons": 0x1000}, "0x1000"),
        (
            *(
                "gpu_foreign_processes",
                {"nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=p) for p in (10, 77)]},
            ),
            "77",
        ),
        ("gpu_links", {"nvmlDeviceGetP2PStatus": lambda _a, _b, kind: 0 if kind == 0 else 3}, "PCIe with P2P"),
        ("gpu_links", {"nvmlDeviceGetP2PStatus": 3}, "PCIe without P2P"),
        ("gpu_pcie", {"nvmlDeviceGetCurrPcieLinkWidth": 8}, "gen 5 x8 of x16"),
    ],
)
def test_what_is_worth_a_warning(tmp_path: Path, name: str, answers: dict[str, Any], read: str) -> None:
    item = next(item for item in audit(probe(tmp_path, FakeNvml(**answers))) if item.name == name)
    assert item.read == read
    assert item.verdict == ("ok" if read == "PCIe with P2P" else "warn")
    fine = next(item for item in audit(probe(tmp_path, FakeNvml())) if item.name == name)
    assert fine.verdict == "ok"


def test_gpus_that_differ_are_all_told(tmp_path: Path) -> None:
    nvml = FakeNvml(count=3, nvmlDeviceGetName=lambda handle: "A" if handle else "B")
    assert read_environment(probe(tmp_path, nvml)).hardware["gpu_name"] == "A x 2, B x 1"


@pytest.mark.parametrize(("gpus", "count"), [((), 3), (("1",), 1), (("GPU-0", "2"), 2), (("GPU-9",), None)])
def test_only_the_gpus_that_serve_count(tmp_path: Path, gpus: tuple[str, ...], count: int | None) -> None:
    assert read_environment(probe(tmp_path, FakeNvml(count=3), gpus=gpus)).hardware.get("gpu_count") == count


def test_one_gpu_has_no_links_to_judge(tmp_path: Path) -> None:
    assert read_environment(probe(tmp_path, FakeNvml(count=1))).hardware["gpu_links"] == "one GPU"


def test_an_answer_that_a_driver_refuses_leaves_that_fact_out(tmp_path: Path) -> None:
    refused: dict[str, Any] = {
        name: NVMLError("Not Supported")
        for name in (
            "nvmlDeviceGetEccMode",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetP2PStatus",
            "nvmlDeviceGetMemoryInfo",
        )
    }
    facts = read_environment(probe(tmp_path, FakeNvml(**refused)))
    assert facts.hardware["gpu_name"] == "NVIDIA H200"
    assert not {"gpu_ecc", "gpu_mig", "gpu_links", "gpu_memory_mib"} & facts.hardware.keys()


@pytest.mark.parametrize("name", [name for name in FakeNvml().answers if name not in ("nvmlInit", "nvmlShutdown")])
def test_any_function_may_be_missing_or_refuse(tmp_path: Path, name: str) -> None:
    lost: dict[str, Any] = {name: NVMLError("GPU is lost")}
    old, broken = FakeNvml(), FakeNvml(**lost)
    del old.answers[name]
    for nvml in (old, broken):
        assert len(audit(probe(tmp_path, nvml))) == len(audit(probe(tmp_path, FakeNvml())))
        assert nvml.open == 0


def test_an_old_library_answers_in_bytes_and_with_the_old_names(tmp_path: Path) -> None:
    nvml = FakeNvml(nvmlDeviceGetName=b"Tesla V100", nvmlDeviceGetCurrentClocksThrottleReasons=0x40)
    del nvml.answers["nvmlDeviceGetCurrentClocksEventReasons"]
    look = probe(tmp_path, nvml)
    assert read_environment(look).hardware["gpu_name"] == "Tesla V100"
    assert next(item for item in audit(look) if item.name == "gpu_throttling").read == "hardware thermal slowdown"


@pytest.mark.parametrize("nvml", [None, FakeNvml(nvmlInit=NVMLError("Driver Not Loaded")), FakeNvml(count=0)])
def test_no_nvml_or_no_gpu_is_unknown_and_quiet(tmp_path: Path, nvml: Any) -> None:
    look = probe(tmp_path, nvml)
    items = [item for item in audit(look) if item.name.startswith("gpu_") or item.name == "driver"]
    assert {item.verdict for item in items} == {"unknown"}
    assert "gpu_count" not in read_environment(look).hardware


# ---- software and model ----


def test_versions_of_this_interpreter_and_of_another_one() -> None:
    here = read_software()
    assert here["numpy"]
    assert here["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "sglang" not in here
    link = read_software(str(Path(sys.executable).parent / "." / Path(sys.executable).name) + "")
    assert link == here


def test_another_interpreter_is_asked_not_guessed(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text('#!/bin/sh\necho noise\necho \'{"python": "3.12.1", "torch": "2.14.1"}\'\n')
    other.chmod(0o755)
    assert read_software(str(other)) == {"python": "3.12.1", "torch": "2.14.1"}


@pytest.mark.parametrize("script", ["exit 3", "echo not json", "true", "echo '[1]'"])
def test_an_interpreter_that_cannot_be_asked_has_no_versions(tmp_path: Path, script: str) -> None:
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\n{script}\n")
    other.chmod(0o755)
    assert read_software(str(other)) == {}
    assert read_software(str(tmp_path / "missing")) == {}


def test_a_model_is_known_by_its_configuration(tmp_path: Path) -> None:
    config = {"model_type": "x", "hidden_size": 8, "transformers_version": "5.0", "_name_or_path": "/a"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    one = read_model(str(tmp_path))
    other = dict(reversed(list(config.items()))) | {"transformers_version": "6.0", "_name_or_path": "/b"}
    (tmp_path / "config.json").write_text(json.dumps(other))
    assert read_model(str(tmp_path)) == one
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": 16}))
    assert read_model(str(tmp_path))["config_digest"] != one["config_digest"]


@pytest.mark.parametrize("content", [None, "{", "[]", "\xff"])
def test_a_model_without_a_readable_configuration_has_only_its_name(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, "latin-1")
    assert read_model(str(tmp_path)) == {"name": str(tmp_path)}

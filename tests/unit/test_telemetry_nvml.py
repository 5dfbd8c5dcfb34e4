"""The sampler: figures, checks, an NVML that breaks in the middle, and none at all."""

from __future__ import annotations

import json
import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from fake_nvml import FakeNvml, NVMLError

from pytest_moeperf.model.run import Check
from pytest_moeperf.telemetry import Sampler, checks
from pytest_moeperf.telemetry import nvml as telemetry_nvml


def sampled(nvml: Any, samples: int = 3, **options: Any) -> dict[str, Any]:
    """A summary of that many samples, taken by hand: the thread's own one comes on top."""
    with Sampler(nvml=nvml, interval_s=60, **options) as sampler:
        for _ in range(samples):
            sampler.sample()
    return sampler.summary()


def by_name(found: tuple[Check, ...]) -> dict[str, Check]:
    return {check.name: check for check in found}


def test_figures_of_each_gpu() -> None:
    clocks = count(1000, 100)
    nvml = FakeNvml(
        count=1,
        nvmlDeviceGetClockInfo=lambda _handle, kind: next(clocks) if kind == 1 else 3201,
        nvmlDeviceGetMemoryInfo=SimpleNamespace(used=1024 * 2**20),
        nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=7)],
    )
    summary = sampled(nvml, samples=4)
    (gpu,) = summary["gpus"]
    assert summary["available"]
    assert summary["samples"] in (4, 5)
    last = 1000 + 100 * (summary["samples"] - 1)
    assert gpu["clock_mhz"] == {"min": 1000, "mean": (1000 + last) / 2, "max": last}
    assert gpu["power_w"] == {"min": 350, "mean": 350, "max": 350}
    assert gpu["temperature_c"]["max"] == 55
    assert gpu["memory_used_mib"]["max"] == 1024
    assert gpu["throttle"] == {"idle": 1.0}
    assert list(gpu["processes"]) == ["7"]
    assert gpu["processes"]["7"]["looks"] == gpu["process_looks"] == 1
    assert summary["errors"] == []
    assert nvml.open == 0
    assert json.loads(json.dumps(summary)) == summary


def test_the_thread_samples_by_itself_and_stops() -> None:
    with Sampler(nvml=FakeNvml(), interval_s=0.005) as sampler:
        time.sleep(0.2)
    summary = sampler.summary()
    assert summary["samples"] > 2
    time.sleep(0.02)
    assert sampler.summary()["samples"] == summary["samples"]


def test_slow_answers_make_it_slower_not_dearer() -> None:
    def slow(*_: Any) -> int:
        time.sleep(0.01)
        return 350_000

    with Sampler(nvml=FakeNvml(count=1, nvmlDeviceGetPowerUsage=slow), interval_s=0.001) as sampler:
        time.sleep(0.3)
    assert sampler.summary()["samples"] == 1  # the next one would be due a second later


@pytest.mark.parametrize(
    ("bits", "status", "words"),
    [
        (0x1, "pass", ""),
        (0x2, "pass", ""),
        (0x4, "pass", "bound by the power limit in 100%"),
        (0x20, "fail", "GPU 0: software thermal slowdown in 100%, clock down to 1980 MHz"),
        (0x88, "fail", "hardware slowdown in 100%, hardware power brake in 100%"),
        (NVMLError("Not Supported"), "unknown", "does not say"),
    ],
)
def test_throttling(bits: Any, status: str, words: str) -> None:
    check = by_name(checks(sampled(FakeNvml(count=1, nvmlDeviceGetCurrentClocksEventReasons=bits)), ()))[
        "no_throttling"
    ]
    assert check.status == status
    assert words in check.message
    assert check.repeatable is (status == "fail")


def test_one_blink_among_many_samples_is_tolerated() -> None:
    bits = count()
    nvml = FakeNvml(count=1, nvmlDeviceGetCurrentClocksEventReasons=lambda _: 0x40 if next(bits) == 5 else 0)
    assert by_name(checks(sampled(nvml, samples=200), ()))["no_throttling"].status == "pass"


@pytest.mark.parametrize(
    ("pids", "own", "status", "words"),
    [
        ([1, 2], {1, 2, 3}, "pass", ""),
        ([1, 99], {1}, "fail", "pid 99 (train, alice) used GPU 0 throughout the run: stop it, then run again"),
        ([], {1}, "unknown", "NVML lists no process, not even the server's (a container may hide them)"),
        # Pids of the host: the only process there must be the server.
        ([4001], {1}, "pass", ""),
        (
            [4001, 4002],
            {1},
            "unknown",
            "pids of the host are seen here (4001, 4002 on GPU 0), and which are the server's can't be told: start the "
            "container with --pid=host",
        ),
    ],
)
def test_foreign_processes(
    monkeypatch: pytest.MonkeyPatch, pids: list[int], own: set[int], status: str, words: str
) -> None:
    monkeypatch.setattr(telemetry_nvml, "_who", lambda _pid: "train, alice")
    nvml = FakeNvml(count=1, nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=pid) for pid in pids])
    check = by_name(checks(sampled(nvml), own, in_container=True))["no_foreign_gpu_process"]
    assert check.status == status
    assert check.repeatable is (status == "fail")
    assert check.message.startswith(words)


def test_a_server_that_is_not_on_its_gpu_is_no_pass() -> None:
    nvml = FakeNvml(count=1, nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=4001)])
    check = by_name(checks(sampled(nvml), {1}, in_container=False))["no_foreign_gpu_process"]
    assert (check.status, check.message) == (
        "unknown",
        "NVML lists pid 4001 and none of the server's, which must run in a container of its own",
    )


def test_who_it_is_is_read_where_it_can_be() -> None:
    import psutil

    here = psutil.Process()
    assert telemetry_nvml._who(here.pid) == f"{here.name()}, {here.username()}"
    assert telemetry_nvml._who(2**22 + 1) == ""


@pytest.mark.parametrize("own", [{1}, {555}], ids=["same pids", "pids of the host"])
def test_a_process_that_came_and_went_is_remembered(monkeypatch: pytest.MonkeyPatch, own: set[int]) -> None:
    monkeypatch.setattr(telemetry_nvml, "PROCESSES_EVERY_S", 0.0)
    answers = iter([[SimpleNamespace(pid=1)], [SimpleNamespace(pid=1), SimpleNamespace(pid=9)]])
    nvml = FakeNvml(count=1, nvmlDeviceGetComputeRunningProcesses=lambda _: next(answers, [SimpleNamespace(pid=1)]))
    check = by_name(checks(sampled(nvml, samples=4), own, in_container=True))["no_foreign_gpu_process"]
    assert check.status == "fail"
    assert check.message.startswith("pid 9")
    assert "used GPU 0 for a part of the run (1 of " in check.message


def test_an_nvml_that_throws_in_the_middle_is_recorded_and_crashes_nothing() -> None:
    calls = count()

    def power(_: Any) -> int:
        if next(calls) >= 3:
            raise NVMLError("GPU is lost")
        return 350_000

    nvml = FakeNvml(nvmlDeviceGetPowerUsage=power)
    summary = sampled(nvml, samples=6)
    assert summary["errors"] == ["nvmlDeviceGetPowerUsage: GPU is lost"]
    assert summary["samples"] >= 6
    assert summary["gpus"][0]["power_w"]["mean"] == 350
    assert nvml.open == 0


@pytest.mark.parametrize("name", [name for name in FakeNvml().answers if name not in ("nvmlInit", "nvmlShutdown")])
def test_any_function_may_be_missing_or_refuse(name: str) -> None:
    lost: dict[str, Any] = {name: NVMLError("lost")}
    old, broken = FakeNvml(), FakeNvml(**lost)
    del old.answers[name]
    for nvml in (old, broken):
        summary = sampled(nvml, samples=1)
        assert {check.status for check in checks(summary, ())} <= {"pass", "unknown"}
        assert nvml.open == 0


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (FakeNvml(nvmlInit=NVMLError("Driver Not Loaded")), "nvmlInit: Driver Not Loaded"),
        (FakeNvml(count=0), "NVML is not there"),
    ],
)
def test_without_a_gpu_it_is_quiet_and_the_checks_are_unknown(nvml: Any, words: str) -> None:
    summary = sampled(nvml, samples=0)
    assert not summary["available"]
    found = checks(summary, {1})
    assert [(check.name, check.status) for check in found] == [
        ("no_throttling", "unknown"),
        ("no_foreign_gpu_process", "unknown"),
    ]
    assert all(words in check.message for check in found)
    assert nvml.open == 0


def test_without_the_library_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_nvml, "_import_nvml", lambda: None)
    with Sampler() as sampler:
        pass
    assert sampler.summary()["available"] is False
    assert {check.status for check in checks({}, ())} == {"unknown"}


def test_only_the_gpus_that_serve_are_sampled() -> None:
    assert [gpu["uuid"] for gpu in sampled(FakeNvml(count=4), gpus=("GPU-2", "0"))["gpus"]] == ["GPU-0", "GPU-2"]


def test_an_error_inside_the_context_stops_the_thread() -> None:
    nvml = FakeNvml()
    with pytest.raises(KeyError), Sampler(nvml=nvml):
        raise KeyError
    assert nvml.open == 0

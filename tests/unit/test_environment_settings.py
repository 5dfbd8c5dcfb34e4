"""Each setting of the machine: read from a made-up tree of sysfs and procfs, judged, and unknown where it is not there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_moeperf.environment import SETTINGS, Probe, audit, diff_environments, read_environment
from pytest_moeperf.environment.pcie import acs_redirects, max_read_request
from pytest_moeperf.environment.setting import Setting, summarise

CPU = "sys/devices/system/cpu"
GOOD: Mapping[str, str | bytes] = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC  9654 96-Core Processor\n",
    "proc/loadavg": "0.10 0.20 0.30 1/100 5\n",
    "proc/meminfo": "MemTotal:       131072000 kB\nHugePages_Total:       8\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 quiet iommu=pt mitigations=off api_key=planted\n",
    "proc/sys/kernel/osrelease": "6.14.11-generic\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "proc/1/cgroup": "0::/init.scope\n",
    "sys/class/iommu/ivhd0/x": "",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "sys/devices/system/node/node0/x": "",
    "sys/devices/system/node/node1/x": "",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    f"{CPU}/smt/active": "1\n",
    f"{CPU}/intel_pstate/no_turbo": "0\n",
    **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in range(4)},
    f"{CPU}/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
    **{
        f"{CPU}/cpu{n}/cpuidle/state0/{key}": value
        for n in range(4)
        for key, value in {"name": "C1", "latency": "2"}.items()
    },
}


def make_tree(root: Path, files: Mapping[str, str | bytes]) -> Probe:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Probe(root=root, env={}, nvml=None, affinity=4)


def setting(name: str) -> Setting:
    return next(setting for setting in SETTINGS if setting.name == name)


@pytest.mark.parametrize(
    ("name", "changed", "read", "verdict"),
    [
        ("cpu_model", {}, "AMD EPYC 9654 96-Core Processor", "ok"),
        (
            "cpu_model",
            {"proc/cpuinfo": "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"},
            "Arm implementer 0x41, part 0xd4f",
            "ok",
        ),
        ("cpu_count", {}, "4", "ok"),
        ("cpu_usable", {}, "4", "ok"),
        ("cpu_usable", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, "1.5", "warn"),
        ("cpu_quota", {}, "none", "ok"),
        ("cpu_quota", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, "none", "ok"),
        ("cpu_quota", {"sys/fs/cgroup/cpu.max": "400000 100000\n"}, "4 CPUs", "warn"),
        (
            "cpu_quota",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            *("2 CPUs", "warn"),
        ),
        ("cpu_governor", {}, "performance", "ok"),
        (
            *("cpu_governor", {f"{CPU}/cpu3/cpufreq/scaling_governor": "powersave"}),
            *("performance x 3, powersave x 1", "warn"),
        ),
        ("cpu_deepest_c_state", {}, "C1 (2 us)", "ok"),
        (
            "cpu_deepest_c_state",
            {
                f"{CPU}/cpu{n}/cpuidle/state2/{key}": value
                for n in range(4)
                for key, value in {"name": "C6", "latency": "133"}.items()
            },
            *("C6 (133 us)", "warn"),
        ),
        (
            "cpu_deepest_c_state",
            {
                f"{CPU}/cpu{n}/cpuidle/state2/{key}": value
                for n in range(4)
                for key, value in {"name": "C6", "latency": "133", "disable": "1"}.items()
            },
            *("C1 (2 us)", "ok"),
        ),
        ("cpu_turbo", {}, "on", "ok"),
        ("cpu_turbo", {f"{CPU}/intel_pstate/no_turbo": "1"}, "off", "ok"),
        ("cpu_smt", {}, "on", "ok"),
        ("load_average", {}, "0.1 on 4 CPUs", "ok"),
        ("load_average", {"proc/loadavg": "3.5 1 1 1/1 1"}, "3.5 on 4 CPUs", "warn"),
        ("numa_balancing", {}, "off", "ok"),
        ("numa_balancing", {"proc/sys/kernel/numa_balancing": "1"}, "on", "warn"),
        ("numa_nodes", {}, "2", "ok"),
        ("memory_gib", {}, "125", "ok"),
        ("hugepages", {}, "8", "ok"),
        ("transparent_hugepages", {}, "madvise", "ok"),
        ("clock_source", {}, "tsc", "ok"),
        ("clock_source", {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}, "hpet", "warn"),
        ("kernel", {}, "6.14.11-generic", "ok"),
        ("kernel_command_line", {}, "iommu=pt mitigations=off", "ok"),
        ("kernel_command_line", {"proc/cmdline": "quiet"}, "defaults", "ok"),
        ("iommu", {}, "passthrough", "ok"),
        ("iommu", {"proc/cmdline": "quiet"}, "translating", "warn"),
        ("container", {}, "none", "ok"),
        ("container", {".dockerenv": ""}, "docker", "ok"),
        ("container", {"proc/1/cgroup": "1:cpu:/kubepods/x"}, "kubepods", "ok"),
        ("nccl", {}, "none set", "ok"),
    ],
)
def test_a_setting_is_read_and_judged(
    tmp_path: Path, name: str, changed: Mapping[str, str | bytes], read: str, verdict: str
) -> None:
    item = setting(name).audit(make_tree(tmp_path, {**GOOD, **changed}))
    assert (item.read, item.verdict) == (read, verdict)
    assert bool(item.advice) == (verdict == "warn")


def test_nothing_there_is_unknown_with_what_was_looked_for(tmp_path: Path) -> None:
    items = {item.name: item for item in audit(Probe(root=tmp_path, env={}, nvml=None, affinity=None))}
    always = {"machine", "nccl", "cuda_launch_blocking"}
    for name, item in items.items():
        if name not in always:
            assert item.verdict == "unknown", name
            assert item.read == ""
            assert item.advice.startswith("looked for ")


@pytest.mark.parametrize("content", ["", "garbage", "\x00\xff", "-1", "9" * 40])
def test_garbage_in_every_file_raises_nothing(tmp_path: Path, content: str) -> None:
    probe = make_tree(tmp_path, dict.fromkeys(GOOD, content))
    for item in audit(probe):
        assert item.verdict in ("ok", "warn", "unknown")
    read_environment(probe)


def test_a_folder_where_a_file_should_be_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "proc/cpuinfo").mkdir(parents=True)
    (tmp_path / "proc/loadavg").mkdir()
    (tmp_path / "sys").write_text("no folder")
    probe = Probe(root=tmp_path, env={}, nvml=None, affinity=None)
    assert setting("cpu_model").read(probe) is None
    assert setting("cpu_governor").audit(probe).verdict == "unknown"


# ---- PCI configuration space ----


def config_space(*, read_request: int = 5, acs: int | None = None, size: int = 4096) -> bytes:
    config = bytearray(4096)
    config[0x06] = 0x10
    config[0x34] = 0x40
    config[0x40:0x42] = (0x01, 0x60)  # power management, then ...
    config[0x60:0x62] = (0x10, 0x00)  # ... PCI Express
    config[0x68:0x6A] = (read_request << 12 | 0x2810 & 0x0FFF).to_bytes(2, "little")
    if acs is not None:
        config[0x100:0x104] = (0x0001 | 1 << 16 | 0x150 << 20).to_bytes(4, "little")  # error reporting, then ...
        config[0x150:0x154] = (0x000D | 1 << 16).to_bytes(4, "little")  # ... access control
        config[0x156:0x158] = acs.to_bytes(2, "little")
    return bytes(config[:size])


@pytest.mark.parametrize(("field", "size"), [(0, 128), (2, 512), (5, 4096)])
def test_max_read_request_is_read_from_configuration_space(field: int, size: int) -> None:
    assert max_read_request(config_space(read_request=field)) == size


@pytest.mark.parametrize("config", [b"", bytes(64), bytes(4096), config_space(size=64), b"\xff" * 4096])
def test_a_configuration_space_that_says_nothing_is_unknown(config: bytes) -> None:
    assert max_read_request(config) is None
    assert acs_redirects(config) is None


def test_a_capability_list_that_runs_in_a_circle_ends() -> None:
    config = bytearray(config_space())
    config[0x40:0x42] = (0x01, 0x40)
    assert max_read_request(bytes(config)) is None


@pytest.mark.parametrize(("control", "redirects"), [(0x00, False), (0x1D, True), (0x04, True), (0x11, False)])
def test_acs_redirection(control: int, redirects: bool) -> None:
    assert acs_redirects(config_space(acs=control)) is redirects


def test_pcie_settings_of_two_gpus_and_a_bridge(tmp_path: Path) -> None:
    pci = "sys/bus/pci/devices"
    files: dict[str, str | bytes] = {
        f"{pci}/0000:00:01.0/vendor": "0x1022\n",
        f"{pci}/0000:00:01.0/class": "0x060400\n",
        f"{pci}/0000:00:01.0/config": config_space(acs=0x1D),
        f"{pci}/0000:05:00.0/vendor": "0x8086\n",
        f"{pci}/0000:05:00.0/class": "0x030000\n",
    }
    for address, field, width in (("0000:01:00.0", 5, "16"), ("0000:02:00.0", 2, "8")):
        files[f"{pci}/{address}/vendor"] = "0x10de\n"
        files[f"{pci}/{address}/class"] = "0x030200\n"
        files[f"{pci}/{address}/config"] = config_space(read_request=field)
        files[f"{pci}/{address}/current_link_speed"] = "32.0 GT/s PCIe\n"
        files[f"{pci}/{address}/current_link_width"] = f"{width}\n"
        files[f"{pci}/{address}/max_link_width"] = "16\n"
    items = {item.name: item for item in audit(make_tree(tmp_path, files))}
    assert (items["gpu_pcie_max_read_request"].read, items["gpu_pcie_max_read_request"].verdict) == (
        "4096 x 1, 512 x 1",
        "warn",
    )
    assert (items["pcie_acs_redirect"].read, items["pcie_acs_redirect"].verdict) == ("on", "warn")
    assert items["gpu_pcie_slowest_link"].read == "32.0 GT/s PCIe x16 x 1, 32.0 GT/s PCIe x8 of x16 x 1"
    assert items["gpu_pcie_slowest_link"].verdict == "warn"


# ---- all together ----


def test_facts_have_no_secrets_and_nothing_of_the_minute(tmp_path: Path) -> None:
    probe = make_tree(tmp_path, GOOD)
    probe.env = {"NCCL_SOCKET": "planted-secret-1", "HF_TOKEN": "planted-secret-1", "NCCL_P2P_DISABLE": "1"}
    facts = read_environment(probe)
    assert facts.hardware["cpu_count"] == 4
    assert facts.environment["kernel"] == "6.14.11-generic"
    assert "load_average" not in facts.environment
    assert "planted" not in repr(facts) + repr(audit(probe))
    assert setting("nccl").audit(probe).verdict == "warn"


def test_two_environments_differ_by_name(tmp_path: Path) -> None:
    one = read_environment(make_tree(tmp_path / "a", GOOD)).environment
    two = read_environment(
        make_tree(tmp_path / "b", {**GOOD, "proc/sys/kernel/osrelease": "6.8.0", "proc/sys/kernel/numa_balancing": "1"})
    ).environment
    del two["clock_source"]
    found = diff_environments(one, two)
    assert [(difference.field, difference.baseline, difference.here) for difference in found] == [
        ("environment.clock_source", "tsc", "unknown"),
        ("environment.kernel", "6.14.11-generic", "6.8.0"),
        ("environment.numa_balancing", "false", "true"),
    ]
    assert diff_environments(one, one) == ()


def test_the_audit_runs_on_this_machine_whatever_it_is() -> None:
    names = [item.name for item in audit()]
    assert names == [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names)


def test_summaries() -> None:
    assert summarise([]) is None
    assert summarise([None, None]) is None
    assert summarise(["a", "a"]) == "a"
    assert summarise(["b", "a", "a"]) == "a x 2, b x 1"

"""The kernel and what it does with memory and time."""

from __future__ import annotations

import platform
import re

from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.environment.setting import FINE, Judgement, Setting, warn
from pytest_moeperf.model.run import Plain
from pytest_moeperf.outgoing.secrets import scrub_secrets

STEADY_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
BOOT_PARAMETERS = frozenset(
    (
        *(
            "mitigations",
            "nopti",
            "pti",
            "spectre_v2",
            "spec_store_bypass_disable",
            "nospectre_v1",
            "nospectre_v2",
            "mds",
        ),
        *(
            "isolcpus",
            "nohz_full",
            "rcu_nocbs",
            "nohz",
            "skew_tick",
            "nosmt",
            "maxcpus",
            "nr_cpus",
            "threadirqs",
            "preempt",
        ),
        *("intel_idle.max_cstate", "processor.max_cstate", "idle", "cpuidle.off", "intel_pstate", "amd_pstate"),
        *(
            "iommu",
            "iommu.passthrough",
            "iommu.strict",
            "intel_iommu",
            "amd_iommu",
            "pci",
            "pcie_aspm",
            "pcie_acs_override",
        ),
        *("hugepages", "hugepagesz", "default_hugepagesz", "transparent_hugepage", "numa_balancing", "numa"),
        *("tsc", "clocksource", "nmi_watchdog", "nowatchdog", "audit", "selinux"),
    )
)
_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


class KernelRelease(Setting):
    name = "kernel"
    looked_for = "/proc/sys/kernel/osrelease"

    def read(self, probe: Probe) -> Plain:
        return probe.text("/proc/sys/kernel/osrelease")


class KernelCommandLine(Setting):
    """Only the parameters that can change a measurement: the rest tells about the machine and its owner."""

    name = "kernel_command_line"
    looked_for = "/proc/cmdline"

    def read(self, probe: Probe) -> Plain:
        text = probe.text("/proc/cmdline")
        if text is None:
            return None
        words = sorted(word for word in text.split() if word.partition("=")[0] in BOOT_PARAMETERS)
        return scrub_secrets(" ".join(words)) or "defaults"


class Machine(Setting):
    name = "machine"
    group = "hardware"
    looked_for = "the architecture that Python reports"

    def read(self, probe: Probe) -> Plain:  # noqa: ARG002
        return platform.machine() or None


class NumaBalancing(Setting):
    name = "numa_balancing"
    looked_for = "/proc/sys/kernel/numa_balancing"

    def read(self, probe: Probe) -> Plain:
        value = probe.integer("/proc/sys/kernel/numa_balancing")
        return None if value is None else value != 0

    def judge(self, value: Plain) -> Judgement:
        if value:
            return warn("the kernel unmaps pages to watch who uses them: sysctl kernel.numa_balancing=0")
        return FINE


class NumaNodes(Setting):
    name = "numa_nodes"
    looked_for = "/sys/devices/system/node/node0, node1, ..."

    def read(self, probe: Probe) -> Plain:
        nodes = [name for name in probe.names("/sys/devices/system/node") if re.fullmatch(r"node\d+", name)]
        return len(nodes) or None


class TransparentHugepages(Setting):
    name = "transparent_hugepages"
    looked_for = _THP

    def read(self, probe: Probe) -> Plain:
        match = re.search(r"\[(\w+)\]", probe.text(_THP) or "")
        return match[1] if match else None


class Hugepages(Setting):
    name = "hugepages"
    looked_for = "HugePages_Total in /proc/meminfo"

    def read(self, probe: Probe) -> Plain:
        match = re.search(r"^HugePages_Total:\s*(\d+)$", probe.text("/proc/meminfo") or "", re.MULTILINE)
        return int(match[1]) if match else None


class Memory(Setting):
    name = "memory_gib"
    looked_for = "MemTotal in /proc/meminfo"

    def read(self, probe: Probe) -> Plain:
        match = re.search(r"^MemTotal:\s*(\d+) kB$", probe.text("/proc/meminfo") or "", re.MULTILINE)
        return round(int(match[1]) / 2**20) if match else None


class ClockSource(Setting):
    name = "clock_source"
    looked_for = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

    def read(self, probe: Probe) -> Plain:
        return probe.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")

    def judge(self, value: Plain) -> Judgement:
        if value in STEADY_CLOCKS:
            return FINE
        return warn(
            "reading the time is a slow system call with it; see why the kernel gave up tsc: dmesg | grep -i tsc"
        )

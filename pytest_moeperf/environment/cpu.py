"""The processor: which, how many, at what clock, how deeply it sleeps."""

from __future__ import annotations

import re

from pytest_moeperf.environment.container import cpu_quota
from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.environment.setting import FINE, Judgement, Setting, summarise, warn
from pytest_moeperf.model.run import Plain

CPUS = "/sys/devices/system/cpu"
DEEPEST_CALM_LATENCY_US = 20
"""A core that wakes within this adds nothing to a decode step of milliseconds."""


def cpu_folders(probe: Probe) -> list[str]:
    return [f"{CPUS}/{name}" for name in probe.names(CPUS) if re.fullmatch(r"cpu\d+", name)]


class CpuModel(Setting):
    name = "cpu_model"
    group = "hardware"
    looked_for = "'model name' in /proc/cpuinfo (Arm: 'CPU part')"

    def read(self, probe: Probe) -> Plain:
        text = probe.text("/proc/cpuinfo") or ""
        if match := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
            return " ".join(match[1].split())
        parts = {key: re.search(rf"^CPU {key}\s*:\s*(\S+)$", text, re.MULTILINE) for key in ("implementer", "part")}
        found = [f"{key} {match[1]}" for key, match in parts.items() if match]
        return f"Arm {', '.join(found)}" if found else None


class CpuCount(Setting):
    name = "cpu_count"
    group = "hardware"
    looked_for = f"{CPUS}/cpu0, cpu1, ..."

    def read(self, probe: Probe) -> Plain:
        return len(cpu_folders(probe)) or None


class CpuUsable(Setting):
    name = "cpu_usable"
    group = "hardware"
    looked_for = "the process's CPU affinity"

    def read(self, probe: Probe) -> Plain:
        quota = cpu_quota(probe)
        allowed = [limit for limit in (probe.affinity, quota) if limit is not None]
        return round(min(allowed), 2) if allowed else None

    def judge(self, value: Plain) -> Judgement:
        if isinstance(value, (int, float)) and value < 4:
            return warn("the server, its tokenizer and the client share these; give them at least 4 cores")
        return FINE


class CpuGovernor(Setting):
    name = "cpu_governor"
    looked_for = f"{CPUS}/cpu*/cpufreq/scaling_governor (absent in most virtual machines: the host decides)"

    def read(self, probe: Probe) -> Plain:
        return summarise(probe.text(f"{folder}/cpufreq/scaling_governor") for folder in cpu_folders(probe))

    def judge(self, value: Plain) -> Judgement:
        if value == "performance":
            return FINE
        return warn("cores clock down between steps; set it: cpupower frequency-set -g performance")


class CpuDriver(Setting):
    name = "cpu_frequency_driver"
    looked_for = f"{CPUS}/cpu0/cpufreq/scaling_driver"

    def read(self, probe: Probe) -> Plain:
        return probe.text(f"{CPUS}/cpu0/cpufreq/scaling_driver")


class CStates(Setting):
    name = "cpu_deepest_c_state"
    looked_for = f"{CPUS}/cpu*/cpuidle/state*/name, latency and disable"

    def read(self, probe: Probe) -> Plain:
        return summarise(_deepest_state(probe, folder) for folder in cpu_folders(probe))

    def judge(self, value: Plain) -> Judgement:
        latencies = [int(latency) for latency in re.findall(r"\((\d+) us\)", str(value))]
        if all(latency <= DEEPEST_CALM_LATENCY_US for latency in latencies):
            return FINE
        return warn(
            f"waking from it takes up to {max(latencies)} us, again and again at low concurrency; "
            f"disable what is deeper: cpupower idle-set -D {DEEPEST_CALM_LATENCY_US}"
        )


def _deepest_state(probe: Probe, folder: str) -> str | None:
    """The state with the longest wake-up latency that a CPU may enter."""
    states = []
    for state in probe.names(f"{folder}/cpuidle"):
        latency = probe.integer(f"{folder}/cpuidle/{state}/latency")
        name = probe.text(f"{folder}/cpuidle/{state}/name")
        if latency is not None and name and probe.text(f"{folder}/cpuidle/{state}/disable") != "1":
            states.append((latency, name))
    return f"{max(states)[1]} ({max(states)[0]} us)" if states else None


class Turbo(Setting):
    name = "cpu_turbo"
    looked_for = f"{CPUS}/intel_pstate/no_turbo or {CPUS}/cpufreq/boost"

    def read(self, probe: Probe) -> Plain:
        no_turbo = probe.text(f"{CPUS}/intel_pstate/no_turbo")
        if no_turbo in ("0", "1"):
            return no_turbo == "0"
        boost = probe.text(f"{CPUS}/cpufreq/boost")
        return boost == "1" if boost in ("0", "1") else None


class Smt(Setting):
    name = "cpu_smt"
    looked_for = f"{CPUS}/smt/active"

    def read(self, probe: Probe) -> Plain:
        active = probe.text(f"{CPUS}/smt/active")
        return active == "1" if active in ("0", "1") else None


class LoadAverage(Setting):
    name = "load_average"
    looked_for = "/proc/loadavg"
    in_fingerprint = False

    def read(self, probe: Probe) -> Plain:
        try:
            load = float((probe.text("/proc/loadavg") or "").split()[0])
        except (ValueError, IndexError):
            return None
        cpus = len(cpu_folders(probe)) or probe.affinity or 1
        return f"{load:g} on {cpus} CPUs"

    def judge(self, value: Plain) -> Judgement:
        load, _, cpus = str(value).partition(" on ")
        if float(load) > 0.5 * int(cpus.split()[0]):
            return warn("something else keeps the processor busy; measure when it has ended")
        return FINE

"""The GPUs: which, at what clock and power, shared with whom."""

from __future__ import annotations

from typing import Any, ClassVar

from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.environment.setting import FINE, Judgement, Setting, summarise, warn
from pytest_moeperf.model.environment import HARMLESS_THROTTLE_BITS, name_throttle_reasons
from pytest_moeperf.model.run import Plain

NVML = "NVML (pip install nvidia-ml-py, and an NVIDIA driver)"


class GpuSetting(Setting):
    """A fact that each GPU has."""

    key: ClassVar[str]
    looked_for = NVML

    def read(self, probe: Probe) -> Plain:
        values = [gpu.get(self.key) for gpu in probe.gpu_facts.get("gpus", ())]
        known = {value for value in values if value is not None}
        return known.pop() if len(known) == 1 and len(set(values)) == 1 else summarise(values)


class GpuCount(Setting):
    name = "gpu_count"
    group = "hardware"
    looked_for = NVML

    def read(self, probe: Probe) -> Plain:
        return len(probe.gpu_facts.get("gpus", ())) or None


class GpuName(GpuSetting):
    name = "gpu_name"
    key = "name"
    group = "hardware"


class GpuMemory(GpuSetting):
    name = "gpu_memory_mib"
    key = "memory_mib"
    group = "hardware"


class Driver(Setting):
    name = "driver"
    group = "hardware"
    looked_for = NVML

    def read(self, probe: Probe) -> Plain:
        version = probe.gpu_facts.get("driver")
        return version if isinstance(version, str) else None


class CudaOfDriver(Setting):
    name = "cuda_of_driver"
    group = "software"
    looked_for = NVML

    def read(self, probe: Probe) -> Plain:
        version = probe.gpu_facts.get("cuda")
        return version if isinstance(version, str) else None


class Ecc(GpuSetting):
    name = "gpu_ecc"
    key = "ecc"
    group = "hardware"


class Mig(GpuSetting):
    name = "gpu_mig"
    key = "mig"
    group = "hardware"

    def judge(self, value: Plain) -> Judgement:
        if value is True or "True" in str(value):
            return warn("a slice of a GPU shares its memory bandwidth with the other slices")
        return FINE


class Persistence(GpuSetting):
    name = "gpu_persistence"
    key = "persistence"

    def judge(self, value: Plain) -> Judgement:
        if value is True:
            return FINE
        return warn("the driver unloads between launches, which lengthens each start: nvidia-smi -pm 1")


class PowerLimit(Setting):
    name = "gpu_power_limit_w"
    group = "hardware"
    looked_for = NVML

    def read(self, probe: Probe) -> Plain:
        limits = [gpu.get("power_limit_w") for gpu in probe.gpu_facts.get("gpus", ())]
        return limits[0] if limits and len(set(limits)) == 1 else summarise(limits)


class PowerCap(Setting):
    name = "gpu_power_cap"
    looked_for = NVML
    in_fingerprint = False

    def read(self, probe: Probe) -> Plain:
        gpus = probe.gpu_facts.get("gpus", ())
        return summarise(_power_cap(gpu) for gpu in gpus)

    def judge(self, value: Plain) -> Judgement:
        if "below" in str(value):
            return warn("a lowered power limit lowers clocks under load: nvidia-smi -pl, or keep it and say so")
        return FINE


def _power_cap(gpu: dict[str, Any]) -> str | None:
    limit, default = gpu.get("power_limit_w"), gpu.get("power_default_w")
    if limit is None or default is None:
        return None
    return f"{limit} W" if limit >= default else f"{limit} W, below the default of {default} W"


class MaxClock(GpuSetting):
    name = "gpu_clock_max_mhz"
    key = "clock_max_mhz"


class MaxMemoryClock(GpuSetting):
    name = "gpu_memory_clock_max_mhz"
    key = "clock_memory_max_mhz"


class SetClock(GpuSetting):
    name = "gpu_application_clock_mhz"
    key = "clock_set_mhz"


class Throttling(Setting):
    name = "gpu_throttling"
    looked_for = NVML
    in_fingerprint = False

    def read(self, probe: Probe) -> Plain:
        bits = [gpu.get("throttle_bits") for gpu in probe.gpu_facts.get("gpus", ())]
        known = [value & ~HARMLESS_THROTTLE_BITS for value in bits if isinstance(value, int)]
        return summarise(", ".join(name_throttle_reasons(value)) or "none" for value in known)

    def judge(self, value: Plain) -> Judgement:
        if value == "none":
            return FINE
        return warn("the GPU is slowed down at rest already: look at its cooling and its power supply")


class ForeignProcesses(Setting):
    name = "gpu_foreign_processes"
    looked_for = NVML
    in_fingerprint = False

    def read(self, probe: Probe) -> Plain:
        answers = [gpu.get("foreign_pids") for gpu in probe.gpu_facts.get("gpus", ())]
        known = [pids for pids in answers if pids is not None]
        if not known:
            return None
        return ", ".join(map(str, sorted({pid for pids in known for pid in pids}))) or "none"

    def judge(self, value: Plain) -> Judgement:
        if value == "none":
            return FINE
        return warn("these processes take memory and time of the GPU; end them, or wait")


class Links(Setting):
    name = "gpu_links"
    group = "hardware"
    looked_for = f"{NVML}: nvmlDeviceGetP2PStatus"

    def read(self, probe: Probe) -> Plain:
        links = probe.gpu_facts.get("links")
        return links if isinstance(links, str) else None

    def judge(self, value: Plain) -> Judgement:
        if value == "PCIe without P2P":
            return warn(
                "every all-reduce goes through host memory; see the settings of ACS, IOMMU and the PCIe switches"
            )
        return FINE


class PcieLink(Setting):
    name = "gpu_pcie"
    group = "hardware"
    looked_for = NVML

    def read(self, probe: Probe) -> Plain:
        return summarise(_pcie(gpu) for gpu in probe.gpu_facts.get("gpus", ()))

    def judge(self, value: Plain) -> Judgement:
        if "of x" in str(value):
            return warn("the link is narrower than GPU and slot allow: reseat the card, look at risers and bifurcation")
        return FINE


def _pcie(gpu: dict[str, Any]) -> str | None:
    """The generation that link and slot allow: a GPU at rest lowers the one that it uses, but keeps its width."""
    generation, width, widest = gpu.get("pcie_gen"), gpu.get("pcie_width"), gpu.get("pcie_width_max")
    if generation is None or width is None:
        return None
    return f"gen {generation} x{width}" + (f" of x{widest}" if widest is not None and width < widest else "")


class NcclVariables(Setting):
    name = "nccl"
    looked_for = "NCCL_* in the environment"

    def read(self, probe: Probe) -> Plain:
        found = sorted(f"{name}={value}" for name, value in probe.env.items() if name.startswith("NCCL_"))
        return " ".join(found) or "none set"

    def judge(self, value: Plain) -> Judgement:
        slow = [word for word in str(value).split() if word in ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")]
        if slow:
            return warn(f"{' and '.join(slow)} sends traffic between GPUs the long way round")
        return FINE


class LaunchBlocking(Setting):
    name = "cuda_launch_blocking"
    looked_for = "CUDA_LAUNCH_BLOCKING in the environment"

    def read(self, probe: Probe) -> Plain:
        return probe.env.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")

    def judge(self, value: Plain) -> Judgement:
        return warn("every kernel launch waits for its end: unset it") if value else FINE

"""What NVML says of the GPUs, as plain facts. One GPU that doesn't answer a question leaves that fact out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from pytest_moeperf.environment.probe import Probe

_SYSTEM = 0
"""Index of NVML_P2P_CAPS_INDEX_READ."""


def read_gpus(probe: Probe) -> Mapping[str, Any]:
    """``{"driver", "cuda", "gpus": [{"name", "uuid", ...}], "links"}``; empty where there is no NVML or no GPU.

    ``foreign_pids`` of a GPU are the processes on it that are not in ``probe.own_pids``.
    """
    with probe.nvml_session() as nvml:
        if nvml is None:
            return {}
        ask = _Asker(nvml)
        handles = [ask("nvmlDeviceGetHandleByIndex", index) for index in range(ask("nvmlDeviceGetCount") or 0)]
        gpus = [(handle, _gpu(ask, handle, probe.own_pids)) for handle in handles if handle is not None]
        if probe.gpus:
            gpus = [pair for index, pair in enumerate(gpus) if {str(index), pair[1]["uuid"]} & set(probe.gpus)]
        if not gpus:
            return {}
        cuda = ask("nvmlSystemGetCudaDriverVersion_v2") or ask("nvmlSystemGetCudaDriverVersion")
        return {
            "driver": _text(ask("nvmlSystemGetDriverVersion")),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else None,
            "gpus": [facts for _, facts in gpus],
            "links": _links(ask, [handle for handle, _ in gpus]),
        }


class _Asker:
    """Calls NVML functions by name: an old library has not all of them, a driver not all answers."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def __call__(self, function: str, *arguments: Any) -> Any | None:
        call = getattr(self._nvml, function, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None

    def constant(self, name: str, default: int) -> int:
        value = getattr(self._nvml, name, default)
        return value if isinstance(value, int) else default


def _gpu(ask: _Asker, handle: Any, own_pids: frozenset[int]) -> dict[str, Any]:
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    ecc = ask("nvmlDeviceGetEccMode", handle)
    mig = ask("nvmlDeviceGetMigMode", handle)
    limit = ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    default = ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    graphics, memory_clock = ask.constant("NVML_CLOCK_GRAPHICS", 0), ask.constant("NVML_CLOCK_MEM", 2)
    return {
        "name": _text(ask("nvmlDeviceGetName", handle)),
        "uuid": _text(ask("nvmlDeviceGetUUID", handle)),
        "memory_mib": memory.total // 2**20 if memory is not None else None,
        "ecc": bool(ecc[0]) if ecc else None,
        "mig": bool(mig[0]) if mig else None,
        "persistence": _flag(ask("nvmlDeviceGetPersistenceMode", handle)),
        "power_limit_w": limit // 1000 if limit is not None else None,
        "power_default_w": default // 1000 if default is not None else None,
        "clock_max_mhz": ask("nvmlDeviceGetMaxClockInfo", handle, graphics),
        "clock_memory_max_mhz": ask("nvmlDeviceGetMaxClockInfo", handle, memory_clock),
        "clock_set_mhz": ask("nvmlDeviceGetApplicationsClock", handle, graphics),
        "pcie_gen": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pcie_width_max": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "throttle_bits": reasons,
        "foreign_pids": _foreign_pids(ask, handle, own_pids),
    }


def _foreign_pids(ask: _Asker, handle: Any, own_pids: frozenset[int]) -> list[int] | None:
    answers = [ask(f"nvmlDeviceGet{kind}RunningProcesses", handle) for kind in ("Compute", "Graphics")]
    if all(answer is None for answer in answers):
        return None
    pids = {process.pid for answer in answers for process in answer or ()}
    return sorted(pids - own_pids)


def _links(ask: _Asker, handles: Sequence[Any]) -> str | None:
    """How the GPUs reach each other: the worst pair decides an all-reduce."""
    if len(handles) < 2:
        return "one GPU"
    kinds = {_link(ask, first, second) for first, second in combinations(handles, 2)}
    return None if None in kinds else min((kind for kind in kinds if kind), key=_LINK_ORDER.index)


_LINK_ORDER = ("PCIe without P2P", "PCIe with P2P", "NVLink")


def _link(ask: _Asker, first: Any, second: Any) -> str | None:
    if ask("nvmlDeviceGetP2PStatus", first, second, ask.constant("NVML_P2P_CAPS_INDEX_NVLINK", 2)) == 0:
        return "NVLink"
    status = ask("nvmlDeviceGetP2PStatus", first, second, ask.constant("NVML_P2P_CAPS_INDEX_READ", _SYSTEM))
    if status is None:
        return None
    return "PCIe with P2P" if status == 0 else "PCIe without P2P"


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _text(value: Any) -> str | None:
    """Old versions of the library answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

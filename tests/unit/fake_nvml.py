"""Stands in for the module ``pynvml`` in tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


class FakeNvml:
    """Answers like pynvml for ``count`` GPUs. ``answers`` overrides; an exception among them is raised."""

    NVMLError = NVMLError
    NVML_P2P_CAPS_INDEX_READ = 0
    NVML_P2P_CAPS_INDEX_NVLINK = 2

    def __init__(self, count: int = 2, **answers: Any) -> None:
        self.open = 0
        """Sessions that were started and not yet shut down."""
        self.answers: dict[str, Any] = {
            "nvmlInit": self._opened,
            "nvmlShutdown": self._closed,
            "nvmlDeviceGetCount": count,
            "nvmlSystemGetDriverVersion": "580.65.06",
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=143771 * 2**20, used=0, free=0),
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetMaxClockInfo": lambda _handle, kind: {0: 1980, 2: 3201}[kind],
            "nvmlDeviceGetApplicationsClock": 1980,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
            "nvmlDeviceGetComputeRunningProcesses": [],
            "nvmlDeviceGetGraphicsRunningProcesses": [],
            "nvmlDeviceGetP2PStatus": 0,
            "nvmlDeviceGetClockInfo": lambda _handle, kind: {0: 1980, 1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetPowerUsage": 350_000,
            "nvmlDeviceGetTemperature": 55,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=90, memory=60),
        } | answers

    def _opened(self) -> None:
        self.open += 1

    def _closed(self) -> None:
        self.open -= 1

    def __getattr__(self, name: str) -> Any:
        answers = self.__dict__.get("answers", {})
        if name not in answers:
            raise AttributeError(name)
        answer = answers[name]

        def call(*arguments: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return call

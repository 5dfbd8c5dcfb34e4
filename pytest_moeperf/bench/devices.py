"""The GPUs that a launch will use, by UUID, so that the measuring lock means the same in every container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CPU_DEVICE = "cpu:all"
"""Stands for the host's cores: two loads on one CPU disturb each other."""
_UTF8 = "utf-8"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    index: int
    uuid: str
    name: str


def gpus_of_this_host() -> tuple[Gpu, ...]:
    """All GPUs that NVML shows, in its order; none without nvidia-ml-py or a driver."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(
            Gpu(index=index, uuid=_text(pynvml.nvmlDeviceGetUUID(handle)), name=_text(pynvml.nvmlDeviceGetName(handle)))
            for index, handle in enumerate(handles)
        )
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def visible(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Those that ``CUDA_VISIBLE_DEVICES`` leaves, in its order; an entry that names none of them ends the list, as CUDA
    has it."""
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for entry in chosen.split(","):
        name = entry.strip()
        match = next((gpu for gpu in gpus if name == str(gpu.index) or (name and gpu.uuid.startswith(name))), None)
        if match is None:
            break
        found.append(match)
    return tuple(found)


def device_sets(gpus: Sequence[Gpu], *, size: int) -> tuple[tuple[Gpu, ...], ...]:
    """As many disjoint sets of ``size`` as there are, neighbours together; what is left over serves nobody."""
    return tuple(tuple(gpus[start : start + size]) for start in range(0, len(gpus) - size + 1, size))


def _text(value: str | bytes) -> str:
    return value.decode(_UTF8) if isinstance(value, bytes) else value

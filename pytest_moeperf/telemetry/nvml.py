"""What the GPUs do while a run goes on: clocks, power, temperature, throttling, memory, who else is there.

A thread asks NVML at an interval, and more slowly where the answers take long: it never spends more than a hundredth of
its time on them. Without NVML there is nothing to do, and nothing is said about it but in the summary.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from pytest_moeperf.model.environment import name_throttle_reasons
from pytest_moeperf.model.run import Check

LARGEST_SHARE = 0.01
"""Of one core's time that may go into sampling."""
PROCESSES_EVERY_S = 2.0
"""Listing the processes on a GPU costs much more than its clocks."""
_MOST_ERRORS = 5
_SLOWDOWN_BITS = 0x008 | 0x020 | 0x040 | 0x080
"""By heat or by a lack of power: the run does not show what the GPU can do."""
_POWER_CAP_BIT = 0x004
_HOST_PIDS = "pid:[4026531836]"
"""The first pid namespace of every Linux kernel (PROC_PID_INIT_INO)."""
TOLERATED_SHARE = 0.01
"""Of the samples with a slowdown."""


@dataclass(slots=True)
class _Series:
    """Count, sum, minimum and maximum: a run of an hour takes no more memory than one of a second."""

    count: int = 0
    total: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0

    def add(self, value: float) -> None:
        self.minimum = value if not self.count else min(self.minimum, value)
        self.maximum = value if not self.count else max(self.maximum, value)
        self.count += 1
        self.total += value

    def summary(self) -> dict[str, float] | None:
        if not self.count:
            return None
        return {"min": self.minimum, "mean": round(self.total / self.count, 2), "max": self.maximum}


@dataclass(slots=True)
class _Process:
    """Somebody on a GPU. Who it is is asked when it is first seen: it may be gone later."""

    who: str
    """``python3, alice``; empty where that can't be read."""
    looks: int = 0
    memory_mib: int | None = None

    def summary(self) -> dict[str, Any]:
        return {"who": self.who, "looks": self.looks, "memory_mib": self.memory_mib}


@dataclass(slots=True)
class _Gpu:
    handle: Any
    index: int
    uuid: str | None
    name: str | None
    series: dict[str, _Series] = field(default_factory=dict)
    throttle_samples: int = 0
    throttle_counts: dict[int, int] = field(default_factory=dict)
    processes: dict[int, _Process] | None = None
    process_looks: int = 0

    def add(self, name: str, value: float | None) -> None:
        if value is not None:
            self.series.setdefault(name, _Series()).add(value)

    def add_processes(self, listed: Iterable[Any]) -> None:
        """One look at who is there."""
        self.process_looks += 1
        known = self.processes = self.processes if self.processes is not None else {}
        for pid, used in {one.pid: getattr(one, "usedGpuMemory", None) for one in listed}.items():
            process = known.setdefault(pid, _Process(who=_who(pid)))
            process.looks += 1
            process.memory_mib = used // 2**20 if isinstance(used, int) else process.memory_mib

    def add_throttle(self, bits: int | None) -> None:
        if bits is None:
            return
        self.throttle_samples += 1
        for position in range(bits.bit_length()):
            if bits >> position & 1:
                self.throttle_counts[1 << position] = self.throttle_counts.get(1 << position, 0) + 1

    def summary(self) -> dict[str, Any]:
        shares = {bit: count / self.throttle_samples for bit, count in sorted(self.throttle_counts.items())}
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            **{name: series.summary() for name, series in self.series.items()},
            "throttle_bits": sum(shares) if self.throttle_samples else None,
            "throttle": {name_throttle_reasons(bit)[0]: round(share, 4) for bit, share in shares.items()},
            "slowdown_share": max((share for bit, share in shares.items() if bit & _SLOWDOWN_BITS), default=0.0),
            "power_cap_share": shares.get(_POWER_CAP_BIT, 0.0),
            "process_looks": self.process_looks,
            "processes": {str(pid): one.summary() for pid, one in sorted(self.processes.items())}
            if self.processes is not None
            else None,
        }


def _import_nvml() -> Any | None:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


class Sampler:
    """Samples the GPUs between entering and leaving its context.

    Args:
        interval_s: between samples, at least.
        gpus: indices or UUIDs of those that serve; empty: all of the machine.
        nvml: the ``pynvml`` module; found where it is installed.
    """

    def __init__(
        self,
        *,
        interval_s: float = 0.1,
        gpus: Sequence[str] = (),
        nvml: Any | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._wanted = frozenset(gpus)
        self._nvml = nvml if nvml is not None else _import_nvml()
        self._monotonic = monotonic
        self._gpus: list[_Gpu] = []
        self._errors: list[str] = []
        self._samples = 0
        self._cpu_s = 0.0
        self._started_s = self._elapsed_s = 0.0
        self._processes_at_s = float("-inf")
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._started_s = self._monotonic()
        if self._nvml is not None and self._open():
            self._thread = threading.Thread(target=self._run, name="moeperf-nvml", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            with suppress(self._nvml.NVMLError):  # type: ignore[union-attr]  # a thread means that there is NVML
                self._nvml.nvmlShutdown()  # type: ignore[union-attr]
        self._elapsed_s = self._monotonic() - self._started_s

    def summary(self) -> dict[str, Any]:
        """JSON-plain figures of the whole time, for ``Run.telemetry``. Call it after the context was left."""
        return {
            "available": bool(self._gpus),
            "samples": self._samples,
            "elapsed_s": round(self._elapsed_s, 3),
            "cpu_share": round(self._cpu_s / self._elapsed_s, 5) if self._elapsed_s > 0 else 0.0,
            "gpus": [gpu.summary() for gpu in self._gpus],
            "errors": list(self._errors),
        }

    def sample(self) -> None:
        """One look at every GPU. The thread calls it; a test may."""
        with self._lock:
            now_s = self._monotonic()
            with_processes = now_s - self._processes_at_s >= PROCESSES_EVERY_S
            if with_processes:
                self._processes_at_s = now_s
            for gpu in self._gpus:
                self._sample_one(gpu, with_processes=with_processes)
            self._samples += 1

    def _open(self) -> bool:
        nvml = self._nvml
        assert nvml is not None  # noqa: S101  # for the type checker: the caller has looked
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._note(error)
            return False
        for index in range(self._ask("nvmlDeviceGetCount") or 0):
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            uuid = _text(self._ask("nvmlDeviceGetUUID", handle)) if handle is not None else None
            if handle is not None and (not self._wanted or {str(index), uuid} & self._wanted):
                name = _text(self._ask("nvmlDeviceGetName", handle))
                self._gpus.append(_Gpu(handle=handle, index=index, uuid=uuid, name=name))
        if not self._gpus:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
        return bool(self._gpus)

    def _run(self) -> None:
        while True:
            before_s, before_cpu_s = self._monotonic(), time.thread_time()
            self.sample()
            spent_s = self._monotonic() - before_s
            self._cpu_s += time.thread_time() - before_cpu_s
            if self._stop.wait(max(self._interval_s - spent_s, spent_s / LARGEST_SHARE)):
                return

    def _sample_one(self, gpu: _Gpu, *, with_processes: bool) -> None:
        handle = gpu.handle
        gpu.add("clock_mhz", self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_SM))
        gpu.add("memory_clock_mhz", self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_MEMORY))
        power_mw = self._ask("nvmlDeviceGetPowerUsage", handle)
        gpu.add("power_w", power_mw / 1000 if power_mw is not None else None)
        gpu.add("temperature_c", self._ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU))
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        gpu.add("memory_used_mib", memory.used // 2**20 if memory is not None else None)
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        gpu.add_throttle(bits)
        if with_processes:
            kinds = (self._ask(f"nvmlDeviceGet{kind}RunningProcesses", handle) for kind in ("Compute", "Graphics"))
            listed = [kind for kind in kinds if kind is not None]
            if listed:
                gpu.add_processes(one for kind in listed for one in kind)

    def _ask(self, function: str, *arguments: Any) -> Any | None:
        """An answer, or None: an old library, a driver that can't, a GPU that was lost. The reason is kept."""
        call = getattr(self._nvml, function, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:  # type: ignore[union-attr]  # no function without the module
            self._note(error, function)
            return None

    def _note(self, error: Exception, function: str = "nvmlInit") -> None:
        text = f"{function}: {error}"
        if text not in self._errors and len(self._errors) < _MOST_ERRORS:
            self._errors.append(text)


_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0
"""nvml.h: NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU."""


def checks(
    summary: Mapping[str, Any], own_pids: Iterable[int], *, in_container: bool | None = None
) -> tuple[Check, ...]:
    """``no_throttling`` and ``no_foreign_gpu_process`` from a sampler's summary; unknown where nothing was sampled.

    Args:
        own_pids: every process of the server's tree.
        in_container: pids here are not the host's, which NVML lists; None: look.
    """
    gpus: Sequence[Mapping[str, Any]] = summary.get("gpus") or ()
    if not gpus or not summary.get("samples"):
        reason = "; ".join(summary.get("errors") or ()) or "NVML is not there"
        return tuple(
            Check(name=name, status="unknown", message=f"no GPU was sampled: {reason}")
            for name in ("no_throttling", "no_foreign_gpu_process")
        )
    in_container = _in_container() if in_container is None else in_container
    return (_throttling(gpus), _foreign(gpus, frozenset(own_pids), in_container=in_container))


def _throttling(gpus: Sequence[Mapping[str, Any]]) -> Check:
    name = "no_throttling"
    if all(gpu.get("throttle_bits") is None for gpu in gpus):
        return Check(name=name, status="unknown", message="NVML does not say why clocks are lowered on this GPU")
    slow = [gpu for gpu in gpus if gpu["slowdown_share"] > TOLERATED_SHARE]
    if slow:
        told = "; ".join(f"GPU {gpu['index']}: {_reasons(gpu)}" for gpu in slow)
        return Check(
            name=name,
            status="fail",
            message=f"slowed down by heat or power in more than 1 % of samples: {told}",
            repeatable=True,
        )
    capped = max(gpu["power_cap_share"] for gpu in gpus)
    # A GPU that works at its power limit is that machine's steady state, and the limit stands in the fingerprint.
    message = f"clocks were bound by the power limit in {capped:.0%} of samples" if capped > TOLERATED_SHARE else ""
    return Check(name=name, status="pass", message=message)


def _reasons(gpu: Mapping[str, Any]) -> str:
    clock = gpu.get("clock_mhz") or {}
    seen = f", clock down to {clock['min']:.0f} MHz" if clock else ""
    told = (f"{reason} in {share:.0%}" for reason, share in gpu["throttle"].items() if reason != "idle")
    return ", ".join(told) + seen


def _foreign(gpus: Sequence[Mapping[str, Any]], own_pids: frozenset[int], *, in_container: bool) -> Check:
    """The server itself must be on the list; what else is there is foreign."""
    name = "no_foreign_gpu_process"
    listing = [gpu for gpu in gpus if gpu.get("processes") is not None]
    seen = {int(pid) for gpu in listing for pid in gpu["processes"]}
    if not listing:
        return Check(name=name, status="unknown", message="NVML does not list the processes on this GPU")
    if not seen:
        message = (
            "NVML lists no process, not even the server's (a container may hide them): others can't be seen either"
        )
        return Check(name=name, status="unknown", message=message)
    if own_pids & seen:
        others = [
            _used(gpu, pid, one["who"]) for gpu in listing for pid, one in _of(gpu).items() if int(pid) not in own_pids
        ]
    elif not in_container:
        listed = ", ".join(str(pid) for pid in sorted(seen))
        message = f"NVML lists pid {listed} and none of the server's, which must run in a container of its own"
        return Check(name=name, status="unknown", message=message)
    else:
        # The server is among them, and there as long as the run lasts.
        others = [
            _used(gpu, pid, "a pid of the host")
            for gpu in listing
            for pid, one in _of(gpu).items()
            if one["looks"] < gpu["process_looks"]
        ]
        if not others and any(len(gpu["processes"]) > 1 for gpu in listing):
            told = ", ".join(f"{', '.join(_of(gpu))} on GPU {gpu['index']}" for gpu in listing)
            return Check(
                name=name,
                status="unknown",
                message=f"pids of the host are seen here ({told}), and which are the server's can't be told: start the "
                "container with --pid=host",
            )
    if not others:  # and where pids are the host's, each GPU has one process, which must be the server's
        return Check(name=name, status="pass")
    return Check(name=name, status="fail", message=f"{'; '.join(others)}: stop it, then run again", repeatable=True)


def _in_container() -> bool:
    """Pids here are of another namespace than the host's; true where that can't be seen."""
    try:
        return os.readlink("/proc/self/ns/pid") != _HOST_PIDS
    except OSError:
        return True


def _of(gpu: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    processes: Mapping[str, Mapping[str, Any]] = gpu["processes"]
    return processes


def _used(gpu: Mapping[str, Any], pid: str, who: str) -> str:
    looks, seen = gpu["process_looks"], _of(gpu)[pid]["looks"]
    often = "throughout the run" if seen == looks else f"for a part of the run ({seen} of {looks} looks)"
    return f"pid {pid}{f' ({who})' if who else ''} used GPU {gpu['index']} {often}"


def _who(pid: int) -> str:
    """Name and user, as far as they can be read here."""
    import psutil

    parts = []
    for ask in ("name", "username"):
        with suppress(psutil.Error, KeyError, ValueError, OverflowError):
            parts.append(str(getattr(psutil.Process(pid), ask)()))
    return ", ".join(parts)


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

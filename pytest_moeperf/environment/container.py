"""The limits of a container, and whether this is one."""

from __future__ import annotations

import os

from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.environment.setting import FINE, Judgement, Setting, warn
from pytest_moeperf.model.run import Plain

_SHM = "/dev/shm"  # noqa: S108  # its size is read, nothing is written
SMALLEST_SHM_GIB = 1.0
"""NCCL takes tens of MiB a rank, PyTorch's loaders more; Docker's default of 64 MiB makes NCCL fall back or fail."""


def cpu_quota(probe: Probe) -> float | None:
    """CPUs that the cgroup allows, version 2 or 1; None: no limit."""
    parts = (probe.text("/sys/fs/cgroup/cpu.max") or "").split()
    if not parts:
        quota = probe.text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        parts = [quota or "", probe.text("/sys/fs/cgroup/cpu/cpu.cfs_period_us") or ""]
    try:
        quota_us, period_us = float(parts[0]), float(parts[1])
    except (ValueError, IndexError):
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


class CpuQuota(Setting):
    name = "cpu_quota"
    looked_for = "cpu.max or cpu/cpu.cfs_quota_us below /sys/fs/cgroup"

    def read(self, probe: Probe) -> Plain:
        quota = cpu_quota(probe)
        if quota is not None:
            return f"{quota:g} CPUs"
        files = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cgroup.controllers")
        return "none" if any(probe.text(path) for path in files) else None

    def judge(self, value: Plain) -> Judgement:
        if value == "none":
            return FINE
        return warn("the kernel stops a process that has used its share of a period: latency comes in steps; lift it")


class Container(Setting):
    name = "container"
    looked_for = "/.dockerenv, /run/.containerenv, container= in the environment, /proc/1/cgroup"

    def read(self, probe: Probe) -> Plain:
        if probe.path("/.dockerenv").exists():
            return "docker"
        if probe.path("/run/.containerenv").exists():
            return "podman"
        if "KUBERNETES_SERVICE_HOST" in probe.env:
            return "kubernetes"
        first = probe.text("/proc/1/cgroup") or ""
        for kind in ("docker", "kubepods", "lxc", "containerd"):
            if kind in first:
                return kind
        return probe.env.get("container") or ("none" if first else None)


class SharedMemory(Setting):
    name = "shared_memory_gib"
    looked_for = _SHM

    def read(self, probe: Probe) -> Plain:
        try:
            space = os.statvfs(probe.path(_SHM))
        except OSError:
            return None
        return round(space.f_frsize * space.f_blocks / 2**30, 2)

    def judge(self, value: Plain) -> Judgement:
        if isinstance(value, (int, float)) and value < SMALLEST_SHM_GIB:
            return warn("NCCL and the loader need more; start the container with --shm-size=16g or --ipc=host")
        return FINE

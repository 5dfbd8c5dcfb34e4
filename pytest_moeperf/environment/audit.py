"""All settings: the audit for people, the facts for fingerprints, and how two environments differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_moeperf.environment import container, cpu, gpu, kernel, pcie
from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.environment.setting import Setting
from pytest_moeperf.environment.software import read_software
from pytest_moeperf.model.environment import AuditItem, EnvironmentFacts
from pytest_moeperf.model.run import Plain
from pytest_moeperf.model.verdict import Difference
from pytest_moeperf.outgoing.secrets import known_secrets, scrub_secrets

SETTINGS: tuple[Setting, ...] = (
    *(gpu.GpuName(), gpu.GpuCount(), gpu.GpuMemory(), gpu.Driver(), gpu.CudaOfDriver(), gpu.Links(), gpu.PcieLink()),
    *(pcie.PcieLinkNow(), pcie.MaxReadRequest(), pcie.PcieAcs(), pcie.Iommu()),
    *(gpu.MaxClock(), gpu.MaxMemoryClock(), gpu.SetClock(), gpu.PowerLimit(), gpu.PowerCap(), gpu.Throttling()),
    *(gpu.Persistence(), gpu.Ecc(), gpu.Mig(), gpu.ForeignProcesses(), gpu.NcclVariables(), gpu.LaunchBlocking()),
    *(kernel.Machine(), cpu.CpuModel(), cpu.CpuCount(), cpu.CpuUsable(), container.CpuQuota(), cpu.CpuGovernor()),
    *(cpu.CpuDriver(), cpu.CStates(), cpu.Turbo(), cpu.Smt(), cpu.LoadAverage(), kernel.NumaNodes()),
    *(kernel.NumaBalancing(), kernel.Memory(), kernel.TransparentHugepages(), kernel.Hugepages()),
    *(kernel.ClockSource(), kernel.KernelRelease(), kernel.KernelCommandLine()),
    *(container.Container(), container.SharedMemory()),
)


def audit(probe: Probe | None = None) -> tuple[AuditItem, ...]:
    """Every setting with what was read, a verdict and advice. Reads files and NVML; changes nothing; needs no root."""
    look = probe or Probe()
    secrets = known_secrets(look.env)
    items = (setting.audit(look) for setting in SETTINGS)
    return tuple(
        AuditItem(
            name=item.name, read=scrub_secrets(item.read, known=secrets), verdict=item.verdict, advice=item.advice
        )
        for item in items
    )


def read_environment(probe: Probe | None = None, *, python: str = "", gpus: Sequence[str] = ()) -> EnvironmentFacts:
    """The machine's facts for a fingerprint, without what changes by the minute.

    Args:
        python: the engine's interpreter, whose packages count; empty: this one.
        gpus: indices or UUIDs of the GPUs that serve; empty: all.
    """
    look = probe or Probe(gpus=gpus)
    groups: dict[str, dict[str, Plain]] = {"hardware": {}, "software": read_software(python), "environment": {}}
    for setting in SETTINGS:
        if setting.in_fingerprint and (value := setting.read(look)) is not None:
            groups[setting.group][setting.name] = value
    return EnvironmentFacts(**scrub_secrets(groups, known=known_secrets(look.env)))


def diff_environments(baseline: Mapping[str, Plain], here: Mapping[str, Plain]) -> tuple[Difference, ...]:
    """What changed between two recorded environments, name by name. None of it blocks; a failure shows it."""
    return tuple(
        Difference(
            field=f"environment.{name}", baseline=_shown(baseline, name), here=_shown(here, name), blocking=False
        )
        for name in sorted(baseline.keys() | here.keys())
        if baseline.get(name) is None or baseline.get(name) != here.get(name)
    )


def _shown(facts: Mapping[str, Plain], name: str) -> str:
    value = facts.get(name)
    return "unknown" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

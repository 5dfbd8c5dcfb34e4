"""PCI Express as the kernel sees it: how large a read may be, what stands between GPUs.

Settings are read from the devices' configuration space in sysfs. Without root the kernel shows only its first 64 bytes:
what lies behind is then unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.environment.setting import FINE, Judgement, Setting, summarise, warn
from pytest_moeperf.model.run import Plain

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
_CAP_LIST_STATUS = 0x10
_CAP_PCI_EXPRESS = 0x10
_EXT_CAP_ACS = 0x000D
_ACS_REDIRECTS = 0x04 | 0x08
"""P2P Request Redirect and P2P Completion Redirect of the ACS control register (PCIe 5.0, 7.7.8.3)."""
SMALLEST_READ_REQUEST = 4096
"""Bytes. The largest that PCIe knows; BIOSes often leave 512."""


def gpus(probe: Probe) -> list[str]:
    """PCI addresses of NVIDIA display devices."""
    return [
        address
        for address in probe.names(DEVICES)
        if probe.text(f"{DEVICES}/{address}/vendor") == NVIDIA
        and (probe.text(f"{DEVICES}/{address}/class") or "").startswith("0x03")
    ]


def max_read_request(config: bytes) -> int | None:
    """Bytes of Max_Read_Request_Size in the PCI Express capability's Device Control register."""
    at = _capability(config, _CAP_PCI_EXPRESS)
    if at is None or at + 10 > len(config):
        return None
    control = int.from_bytes(config[at + 8 : at + 10], "little")
    return 128 << (control >> 12 & 7)


def acs_redirects(config: bytes) -> bool | None:
    """Whether a bridge sends traffic between its devices up to the root; None: it has no ACS, or it can't be read."""
    at = 0x100
    for _ in range(64):  # a chain that runs in a circle must end
        if at < 0x100 or at + 8 > len(config):
            return None
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _EXT_CAP_ACS:
            return bool(int.from_bytes(config[at + 6 : at + 8], "little") & _ACS_REDIRECTS)
        at = header >> 20
    return None


def _capability(config: bytes, wanted: int) -> int | None:
    if len(config) < 0x40 or not config[0x06] & _CAP_LIST_STATUS:
        return None
    at = config[0x34] & ~3
    for _ in range(48):
        if at < 0x40 or at + 2 > len(config):
            return None
        if config[at] == wanted:
            return at
        at = config[at + 1] & ~3
    return None


class MaxReadRequest(Setting):
    name = "gpu_pcie_max_read_request"
    looked_for = f"Device Control in {DEVICES}/*/config of NVIDIA GPUs (needs root)"

    def read(self, probe: Probe) -> Plain:
        sizes = [max_read_request(probe.data(f"{DEVICES}/{gpu}/config")) for gpu in gpus(probe)]
        known = [size for size in sizes if size is not None]
        return known[0] if known and len(set(known)) == 1 else summarise(known)

    def judge(self, value: Plain) -> Judgement:
        if value == SMALLEST_READ_REQUEST:
            return FINE
        return warn(
            "reads of host memory come in small pieces; larger: setpci -s GPU CAP_EXP+8.w=5000:7000, or the BIOS"
        )


class PcieAcs(Setting):
    name = "pcie_acs_redirect"
    looked_for = f"ACS control in {DEVICES}/*/config of PCI bridges (needs root)"

    def read(self, probe: Probe) -> Plain:
        known = [redirects for redirects in self._bridges(probe) if redirects is not None]
        return any(known) if known else None

    def judge(self, value: Plain) -> Judgement:
        if value:
            return warn("traffic between GPUs is sent through the root complex; switch ACS off where no VM needs it")
        return FINE

    def _bridges(self, probe: Probe) -> Iterator[bool | None]:
        for address in probe.names(DEVICES):
            if (probe.text(f"{DEVICES}/{address}/class") or "").startswith("0x0604"):
                yield acs_redirects(probe.data(f"{DEVICES}/{address}/config"))


class Iommu(Setting):
    name = "iommu"
    looked_for = "/sys/class/iommu, and iommu= on the kernel's command line"

    def read(self, probe: Probe) -> Plain:
        if not probe.path("/sys/class").is_dir():
            return None
        if not probe.names("/sys/class/iommu"):
            return "off"
        line = (probe.text("/proc/cmdline") or "").split()
        return "passthrough" if "iommu=pt" in line or "iommu.passthrough=1" in line else "translating"

    def judge(self, value: Plain) -> Judgement:
        if value == "translating":
            return warn("every transfer is translated: boot with iommu=pt where no VM needs more")
        return FINE


class PcieLinkNow(Setting):
    name = "gpu_pcie_slowest_link"
    looked_for = f"current_link_speed and current_link_width in {DEVICES}/* of NVIDIA GPUs"
    in_fingerprint = False

    def read(self, probe: Probe) -> Plain:
        links = []
        for gpu in gpus(probe):
            speed = probe.text(f"{DEVICES}/{gpu}/current_link_speed")
            width = probe.text(f"{DEVICES}/{gpu}/current_link_width")
            best = probe.text(f"{DEVICES}/{gpu}/max_link_width")
            if speed and width:
                links.append(f"{speed} x{width}" + (f" of x{best}" if best and best != width else ""))
        return summarise(links)

    def judge(self, value: Plain) -> Judgement:
        if "of x" in str(value):
            return warn("the link is narrower than the GPU allows: reseat the card, look at risers and bifurcation")
        return FINE

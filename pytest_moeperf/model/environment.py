"""What the machine is, and how it is set up."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_moeperf.model.run import Plain

OK, WARN, UNKNOWN = "ok", "warn", "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentFacts:
    """The machine's part of a fingerprint. A fact that could not be read is left out."""

    hardware: dict[str, Plain] = field(default_factory=dict)
    software: dict[str, Plain] = field(default_factory=dict)
    environment: dict[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditItem:
    """One setting of the machine, judged."""

    name: str
    read: str
    """What was read, as shown; empty where it could not be."""
    verdict: str
    """``ok``, ``warn``, or ``unknown``: ``advice`` then says what was looked for."""
    advice: str = ""
    """What to do about a warning."""


THROTTLE_REASONS: dict[int, str] = {
    0x001: "idle",
    0x002: "application clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clock setting",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h: nvmlClocksEventReason*, nvmlClocksThrottleReason*)."""

HARMLESS_THROTTLE_BITS = 0x001 | 0x002 | 0x010 | 0x100
"""Idle, clocks set on purpose, sync boost: not a slowdown by heat or power."""


def name_throttle_reasons(bits: int) -> tuple[str, ...]:
    """The set bits in words; one that this table doesn't know as its number."""
    known = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~sum(THROTTLE_REASONS)
    return (*known, *([f"0x{unknown:x}"] if unknown else []))

"""What a setting of the machine is, and helpers to read many of one kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from pytest_moeperf.environment.probe import Probe
from pytest_moeperf.model.environment import OK, UNKNOWN, WARN, AuditItem
from pytest_moeperf.model.run import Plain

Judgement = tuple[str, str]
"""Verdict and advice."""

FINE: Judgement = (OK, "")


def warn(advice: str) -> Judgement:
    return (WARN, advice)


class Setting(ABC):
    """One setting: read it, judge it. One class each, in the file of its part of the machine."""

    name: ClassVar[str]
    """The fact's name in a fingerprint and in the audit."""
    group: ClassVar[str] = "environment"
    """Fingerprint group: ``hardware``, ``software`` or ``environment``."""
    looked_for: ClassVar[str]
    """Where it would stand, told when it is not there."""
    in_fingerprint: ClassVar[bool] = True
    """False for what changes by the minute."""

    @abstractmethod
    def read(self, probe: Probe) -> Plain:
        """The value; None: it can't be read here. Never raises."""

    def judge(self, value: Plain) -> Judgement:  # noqa: ARG002
        """What to think of a value that was read."""
        return FINE

    def audit(self, probe: Probe) -> AuditItem:
        value = self.read(probe)
        if value is None:
            return AuditItem(name=self.name, read="", verdict=UNKNOWN, advice=f"looked for {self.looked_for}")
        verdict, advice = self.judge(value)
        shown = ("on" if value else "off") if isinstance(value, bool) else str(value)
        return AuditItem(name=self.name, read=shown, verdict=verdict, advice=advice)


def summarise(values: Iterable[object]) -> str | None:
    """Many values as one: ``performance``, or ``performance x 12, powersave x 4``; None without any."""
    counts = Counter(str(value) for value in values if value is not None)
    if len(counts) <= 1:
        return next(iter(counts), None)
    return ", ".join(f"{value} x {count}" for value, count in sorted(counts.items()))

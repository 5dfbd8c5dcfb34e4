"""Quantities as people write them: ``5%``, ``30min``, ``120ms``. Parsing, and printing in few characters."""

from __future__ import annotations

import math
import re

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|min|m|h)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def parse_percent(text: object) -> float:
    """``"5%"`` -> 0.05. A bare number is refused: is 5 five percent or five hundred?

    :raises ValueError: names the value and an example of what is allowed.
    """
    match = _PERCENT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a percentage such as '5%'")
    value = float(match[1]) / 100
    if not 0 <= value < 1:
        raise ValueError(f"{text!r} must be at least 0% and below 100%")
    return value


def parse_duration_s(text: object) -> float:
    """``"30min"``, ``"90s"``, ``"1h30min"`` -> seconds. A bare number is refused: its unit is a guess.

    :raises ValueError: names the value and an example of what is allowed.
    """
    compact = text.replace(" ", "") if isinstance(text, str) else ""
    parts = _DURATION.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a duration such as '90s', '30min' or '1h30min'")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Two units at most: ``850 ms``, ``42 s``, ``14 min``, ``1 h 5 min``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def format_quantity(value: float) -> str:
    """Three or four digits that mean something: ``0.0731``, ``3.41``, ``731``, ``11.7k``, ``1.20M``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    magnitude = abs(value)
    for from_value, divisor, suffix in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if magnitude >= from_value:
            return f"{value / divisor:.3g}{suffix}"
    if magnitude >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def format_change(ratio: float, digits: int = 1) -> str:
    """A relative change with its sign: ``+1.6 %``. ``ratio`` is new/old - 1; large ones lose their decimals."""
    percent = ratio * 100
    return f"{percent:+.0f} %" if abs(percent) >= 20 else f"{percent:+z.{digits}f} %"


def format_level(level: float) -> str:
    """Of an interval: ``95 %``, ``99.8 %``, ``99.95 %``. Never ``100 %``, which no interval reaches."""
    texts = (f"{level * 100:.{digits}g}" for digits in range(3, 17))
    return f"{next((text for text in texts if float(text) < 100), '100')} %"


def format_percent(fraction: float) -> str:
    """``0.05`` -> ``5 %``; as many digits as are needed to tell it from its neighbours."""
    return f"{fraction * 100:.3g} %"

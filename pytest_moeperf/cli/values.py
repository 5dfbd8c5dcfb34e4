"""Values on the command line: argparse types that say what is allowed."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable

from pytest_moeperf.units import parse_duration_s, parse_percent

_CHANGE = re.compile(r"[+-]?\d+(?:\.\d+)?\s*%")


def whole_number(least: int) -> Callable[[str], int]:
    """An argparse type."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return value

    return parse


def whole_numbers(text: str) -> tuple[int, ...]:
    """``1,10,64``."""
    return tuple(map(whole_number(1), text.split(",")))


def number_above_zero(text: str) -> float:
    """``inf`` included."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def positive_number(text: str) -> float:
    """A finite one."""
    value = number_above_zero(text)
    if math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def share(text: str) -> float:
    """``5%`` -> 0.05."""
    try:
        return parse_percent(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    """``30min`` -> 1800.0 s."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def changes(text: str) -> tuple[float, ...]:
    """``-5%,+10%`` -> (-0.05, 0.1)."""
    parts = [part.strip() for part in text.split(",")]
    values = [float(part.rstrip("% ")) / 100 for part in parts if _CHANGE.fullmatch(part)]
    if len(values) != len(parts) or min(values) <= -1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of changes above -100% such as -5%,+10%")
    return tuple(values)

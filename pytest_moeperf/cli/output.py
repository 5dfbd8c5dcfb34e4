"""What commands print: tables and JSON."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_moeperf.outgoing import told
from pytest_moeperf.units import format_change


def width() -> int:
    """Columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def print_lines(lines: Iterable[str], *, error: bool = False) -> None:
    """Everything that a command prints, but for JSON. A line stays one, whatever the names in it hold.

    :param error: to stderr.
    """
    for line in lines:
        print(told(line).replace("\n", " "), file=sys.stderr if error else sys.stdout)


def print_json(data: Any) -> None:
    """JSON-plain data. A number that isn't finite (the end of an interval that is not known) is ``null``."""
    print(json.dumps(_finite(told(data)), indent=2, ensure_ascii=False, allow_nan=False))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, gap: int = 2, indent: str = "") -> list[str]:
    """Left-aligned columns, as wide as they need to be."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return [indent + (" " * gap).join(map(str.ljust, line, widths)).rstrip() for line in lines]


def percent(fraction: float | None, *, digits: int = 2) -> str:
    """``0.52``; ``-`` for what is not known. The column's header has the unit."""
    return "-" if fraction is None else f"{fraction * 100:.{digits}f}"


def change_text(ratio: float) -> str:
    """``+1.6 %``; a change that rounds to nothing has no sign."""
    text = format_change(ratio)
    return text[1:] if float(text.removesuffix(" %")) == 0 else text


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(item) for item in data]
    return data

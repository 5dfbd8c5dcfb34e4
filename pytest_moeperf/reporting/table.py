"""The terminal's table of rows: laid out as wide as it may be, and narrower where it must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.reporting.figures import Change
from pytest_moeperf.reporting.view import Row
from pytest_moeperf.units import format_change, format_percent, format_quantity

_RED, _GREEN, _YELLOW, _BOLD, _DIM, _RESET = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def paint(text: str, style: str, *, color: bool) -> str:
    return f"{style}{text}{_RESET}" if color and text else text


def verdict_style(verdict: Verdict) -> str:
    if verdict.passes:
        return _GREEN
    return _YELLOW if verdict is Verdict.INCONCLUSIVE else _RED


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layout:
    gap: int
    fold: bool = False
    """Say lengths and unit once above the table instead of in its rows, where they are the same everywhere."""
    without: tuple[str, ...] = ()


_LAYOUTS = (
    _Layout(gap=3),
    _Layout(gap=2),
    _Layout(gap=2, fold=True),
    _Layout(gap=1, fold=True),
    _Layout(gap=1, fold=True, without=("ceiling",)),
    _Layout(gap=1, fold=True, without=("ceiling", "launches")),
)
"""From roomy to narrow; the first that fits is taken, else the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    cells: dict[str, str]
    """Column -> text. A backend's line has only a ``cell``."""
    row: Row | None = None


def row_lines(rows: Sequence[Row], *, width: int, color: bool) -> Iterator[str]:
    """The table with its header; rows are grouped under their backend if there are several."""
    if not rows:
        yield "no cell was measured"
        return
    header = _Line(cells=_header(rows))
    for layout in _LAYOUTS:
        fold_shape = layout.fold and len({_shape(row) for row in rows}) == 1
        fold_unit = layout.fold and len({row.unit for row in rows}) == 1
        lines = [header, *_lines(rows, fold_shape=fold_shape, fold_unit=fold_unit)]
        widths = {
            column: max(len(line.cells.get(column, "")) for line in lines if len(line.cells) > 1)
            for column in header.cells
            if column not in layout.without
        }
        if sum(widths.values()) + layout.gap * (len(widths) - 1) <= width:
            break
    workload = rows[0].cell.workload
    shape = f"{workload.input_len} tokens in, {workload.output_len} out" if fold_shape else ""
    unit = f"figures in {rows[0].unit}" if fold_unit else ""
    if shape or unit:
        yield f"all cells: {'; '.join(part for part in (shape, unit) if part)}"
    for line in lines:
        yield _render(line, widths=widths, gap=layout.gap, color=color)


def _shape(row: Row) -> tuple[int, int]:
    return row.cell.workload.input_len, row.cell.workload.output_len


def _header(rows: Sequence[Row]) -> dict[str, str]:
    levels = {row.change.level_text for row in rows if row.change}
    interval = f"[{levels.pop()} CI]" if len(levels) == 1 else "[CI]"
    names = ("cell", "baseline", "measured", "change", "verdict", "launches", "ceiling")
    return {name: f"change {interval}" if name == "change" else name for name in names}


def _lines(rows: Sequence[Row], *, fold_shape: bool, fold_unit: bool) -> Iterator[_Line]:
    grouped = len({row.cell.backend for row in rows}) > 1
    backend = unit = ""
    for row in rows:
        if grouped and row.cell.backend != backend:
            yield _Line(cells={"cell": row.cell.backend})
            unit = ""
        yield _Line(cells=_cells(row, fold_shape=fold_shape, with_unit=row.unit != unit and not fold_unit), row=row)
        backend, unit = row.cell.backend, row.unit


def _cells(row: Row, *, fold_shape: bool, with_unit: bool) -> dict[str, str]:
    return {
        "cell": _cell_text(row, fold_shape=fold_shape),
        "baseline": _quantity(row.baseline, row.unit if with_unit else ""),
        "measured": _quantity(row.measured, row.unit if with_unit else ""),
        "change": change_text(row.change),
        "verdict": row.verdict_text,
        "launches": row.launches,
        "ceiling": "" if row.efficiency is None else format_percent(row.efficiency),
    }


def _cell_text(row: Row, *, fold_shape: bool) -> str:
    if row.further:
        return f"  {row.metric}"
    workload = row.cell.workload
    label = workload.label.replace(f" {workload.input_len}/{workload.output_len}", "") if fold_shape else workload.label
    return " ".join(part for part in (label, row.metric if row.metric != "throughput" else "", row.test) if part)


def _quantity(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{format_quantity(value)} {unit}".rstrip()


def change_text(change: Change | None) -> str:
    """``+1.6 % [-1.1, +4.2]``."""
    if change is None:
        return "-"
    lower, upper = (format_change(end).removesuffix(" %") for end in (change.lower, change.upper))
    return f"{format_change(change.estimate)} [{lower}, {upper}]"


def _render(line: _Line, *, widths: dict[str, int], gap: int, color: bool) -> str:
    if len(line.cells) == 1:
        return paint(line.cells["cell"], _BOLD, color=color)
    # Padded before it is painted: escape sequences have no width on a screen.
    padded = {column: line.cells[column].ljust(width) for column, width in widths.items()}
    if line.row is None:
        return paint((" " * gap).join(padded.values()).rstrip(), _DIM, color=color)
    if color:
        style = _GREEN if line.row.recorded else verdict_style(line.row.verdict)
        text = line.cells["verdict"]
        padded["verdict"] = paint(text, style, color=color) + padded["verdict"][len(text) :]
    return (" " * gap).join(padded.values()).rstrip()

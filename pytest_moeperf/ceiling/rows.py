"""A ceiling as rows of text: for a terminal's table, a report, a document."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.model.ceiling import Ceiling
from pytest_moeperf.units import format_quantity

SWEEP_HEADER = ("concurrency", "ceiling", "a request", "step", "read a step", "bound by")
TERM_HEADER = ("part", "read at least once", "bits", "bytes", "share", "how")


def sweep_rows(ceilings: Sequence[Ceiling]) -> list[tuple[str, ...]]:
    """One row a concurrency, under SWEEP_HEADER. An unknown ceiling says so and has no figures."""
    rows: list[tuple[str, ...]] = []
    for ceiling in ceilings:
        if ceiling.tok_s is None or ceiling.step_ms is None or ceiling.bytes_per_step is None:
            rows.append((str(ceiling.concurrency), "unknown", "", "", "", ""))
            continue
        rows.append(
            (
                str(ceiling.concurrency),
                f"{format_quantity(ceiling.tok_s)} tok/s",
                f"{format_quantity(ceiling.tok_s / ceiling.concurrency)} tok/s",
                f"{ceiling.step_ms:.3g} ms",
                _bytes(ceiling.bytes_per_step),
                ceiling.bound,
            )
        )
    return rows


def term_rows(ceiling: Ceiling) -> list[tuple[str, ...]]:
    """One row a term, under TERM_HEADER, and the sum."""
    total = ceiling.bytes_per_step or 0.0
    rows: list[tuple[str, ...]] = [
        (
            term.name,
            f"{term.parameters / 1e9:.2f} B" if term.parameters else "",
            f"{term.bits:g}",
            _bytes(term.bytes_read),
            f"{term.bytes_read / total:.1%}" if total else "",
            term.detail,
        )
        for term in ceiling.terms
    ]
    if ceiling.terms and ceiling.tok_s is not None and ceiling.bandwidth_bytes_s:
        parameters = sum(term.parameters for term in ceiling.terms)
        how = f"over {ceiling.bandwidth_bytes_s / 1e12:.3g} TB/s: {format_quantity(ceiling.tok_s)} tok/s"
        if ceiling.bound == "compute":
            how = f"bound by arithmetic: {format_quantity(ceiling.tok_s)} tok/s"
        rows.append(("all", f"{parameters / 1e9:.2f} B", "", _bytes(total), "100%", how))
    return rows


def _bytes(count: float) -> str:
    for divisor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= divisor:
            return f"{count / divisor:.3g} {unit}"
    return f"{count:.0f} B"

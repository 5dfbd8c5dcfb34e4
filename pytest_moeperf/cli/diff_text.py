"""A comparison for people."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_moeperf.cli.levels import bound_of
from pytest_moeperf.cli.output import change_text, table
from pytest_moeperf.cli.sides import Change, Comparison, Pair
from pytest_moeperf.fingerprint import UNKNOWN, label
from pytest_moeperf.model.verdict import Difference
from pytest_moeperf.reporting.text import safe, wrap
from pytest_moeperf.units import format_quantity


def side_lines(first: str, second: str) -> Iterator[str]:
    yield f"A  {first}"
    yield f"B  {second}"


def pair_lines(pair: Pair, *, width: int) -> Iterator[str]:
    """One cell: how much stands behind it, its levels, the fields that differ."""
    yield pair.before.label if pair.before.key == pair.after.key else f"{pair.before.label} -> {pair.after.label}"
    stored = " and ".join(
        f"{sessions} session{'s' * (sessions != 1)} x {launches / sessions:.3g} launches"
        for sessions, launches in zip(pair.sessions, pair.launches, strict=True)
    )
    yield f"  runs of {stored}"
    yield from table(
        ("metric", "A", "B", "B against A [95 % CI]"), [_row(change) for change in pair.changes], indent="  "
    )
    for method in dict.fromkeys(change.interval.method for change in pair.changes):
        yield from wrap(f"interval: {method}", width=width, first="  ", rest="    ")
    if not pair.differences:
        yield "  fingerprint: equal in every field"
        return
    blocking = sum(difference.blocking for difference in pair.differences)
    what = "the two are comparable" if pair.comparable else f"{blocking} of them blocking: the two are not comparable"
    count = len(pair.differences)
    yield f"  fingerprint: {count} field{'s' * (count != 1)} differ{'s' * (count == 1)}, {what}"
    for difference in pair.differences:
        yield from wrap(_difference(difference), width=width, first="    ", rest="      ")


def _row(change: Change) -> tuple[str, ...]:
    bound = bound_of(change.key)
    lower, upper = sorted(_ratio(change, end) for end in (change.interval.lower, change.interval.upper))
    return (
        change.key,
        f"{format_quantity(change.before)} {change.unit}",
        f"{format_quantity(change.after)} {change.unit}",
        f"{change_text(bound.ratio(change.interval.estimate))} [{change_text(lower)}, {change_text(upper)}]",
    )


def _ratio(change: Change, effect: float) -> float:
    try:
        return bound_of(change.key).ratio(effect)
    except OverflowError:
        return float("inf")


def _difference(difference: Difference) -> str:
    text = f"{'blocking' if difference.blocking else 'noted'}: {label(difference.field)}: "
    text += f"{safe(difference.baseline)} in A, {safe(difference.here)} in B"
    if UNKNOWN in (difference.baseline, difference.here):
        text += " (what is unknown can't be shown to be equal)"
    return text


def unpaired_lines(found: Comparison, *, width: int) -> Iterator[str]:
    """Cells that only one side has."""
    for name, cells in (("A", found.only_first), ("B", found.only_second)):
        if cells:
            yield ""
            yield from wrap(f"only in {name}: {', '.join(cell.label for cell in cells)}", width=width, rest="  ")

"""``moeperf audit``: this machine's settings, judged."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_moeperf.cli.commands import DONE, NO, Commands, add_json_option
from pytest_moeperf.cli.output import print_json, print_lines, width

if TYPE_CHECKING:
    from pytest_moeperf.model.environment import AuditItem

_SHORTEST_VALUE = 24


def add(commands: Commands) -> None:
    parser = commands.add(
        "audit",
        run=run,
        summary="is this machine set up for measuring?",
        description="Read every setting of this machine that moves numbers (GPUs, clocks, PCIe, CPU, kernel, "
        "container) and judge it. Nothing is changed, no root is needed; what can't be read here is unknown, not fine. "
        "With --strict the exit code is 1 if anything is warned of.",
        example="moeperf audit\nmoeperf audit --json > audit.json",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if there is a warning")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from pytest_moeperf.environment import audit

    items = audit()
    if args.json:
        from pytest_moeperf.model.codec import to_plain

        print_json(to_plain(items))
    else:
        print_lines(audit_lines(items, width=width()))
    return NO if args.strict and any(item.verdict == "warn" for item in items) else DONE


def audit_lines(items: Sequence[AuditItem], *, width: int) -> Iterator[str]:
    """What to mend first, then what is fine, then what can't be seen from here, then the counts."""
    from pytest_moeperf.reporting.text import safe, shorten, wrap

    names = max((len(item.name) for item in items), default=0)
    for verdict in ("warn", "ok"):
        chosen = [item for item in items if item.verdict == verdict]
        if chosen:
            yield verdict
        for item in chosen:
            yield f"  {item.name:<{names}}  {shorten(safe(item.read), max(width - names - 4, _SHORTEST_VALUE))}"
            yield from wrap(safe(item.advice), width=width, first="    ", rest="    ")
        if chosen:
            yield ""
    unknown: dict[str, list[str]] = {}
    for item in items:
        if item.verdict not in ("warn", "ok"):
            unknown.setdefault(item.advice, []).append(item.name)
    if unknown:
        yield "unknown"
    for advice, missing in unknown.items():
        yield from wrap(", ".join(missing), width=width, first="  ", rest="  ")
        yield from wrap(safe(advice), width=width, first="    ", rest="    ")
    if unknown:
        yield ""
    counts = Counter(item.verdict for item in items)
    yield ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items(), key=_gravest_first))


def _gravest_first(counted: tuple[str, int]) -> int:
    return ("warn", "unknown", "ok").index(counted[0])

"""``moeperf selftest``: can this host's client read that load?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_moeperf.cli.commands import DONE, NO, Commands, add_json_option
from pytest_moeperf.cli.output import print_json, print_lines, width
from pytest_moeperf.cli.values import duration, positive_number, whole_number
from pytest_moeperf.units import format_quantity

if TYPE_CHECKING:
    from pytest_moeperf.selftest import SelftestReport

CONCURRENCY, RATE, DURATION_S = 64, 50.0, 5.0


def add(commands: Commands) -> None:
    parser = commands.add(
        "selftest",
        run=run,
        summary="can this host's client read that load?",
        description="Drive the load client against a server of ours that only keeps time, and that knows when it sent "
        "each event: how late the client's stamps are, whether it loses or lumps events, and how many events a "
        "second it could read. Exit code 1: it can't read this load, so figures measured here would be the "
        "client's own.",
        example="moeperf selftest --concurrency=1024 --rate=20",
    )
    parser.add_argument(
        "--concurrency",
        metavar="C",
        type=whole_number(1),
        default=CONCURRENCY,
        help=f"streams at once; default: {CONCURRENCY}",
    )
    parser.add_argument(
        "--rate",
        metavar="R",
        type=positive_number,
        default=RATE,
        help=f"tokens/s of each stream, 1000 / TPOT in ms; default: {RATE:g}",
    )
    parser.add_argument(
        "--duration", metavar="TIME", type=duration, default=DURATION_S, help=f"default: {DURATION_S:g}s"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from pytest_moeperf.selftest import run_selftest

    report = run_selftest(concurrency=args.concurrency, rate=args.rate, duration_s=args.duration)
    if args.json:
        from pytest_moeperf.model.codec import to_plain

        print_json({**to_plain(report), "ok": report.ok})
    else:
        print_lines(selftest_lines(report, width=width()))
    return DONE if report.ok else NO


def selftest_lines(report: SelftestReport, *, width: int) -> Iterator[str]:
    """The load, the figures, the verdict with its reasons."""
    from pytest_moeperf.reporting.figures import count
    from pytest_moeperf.reporting.text import wrap

    client = report.client
    asked = report.concurrency * report.rate_per_stream
    yield (
        f"{count(report.concurrency, 'stream')} x {report.rate_per_stream:g} tokens/s = "
        f"{format_quantity(asked)} events/s asked of {count(client.workers, 'worker')}"
    )
    limit = "not known"
    if report.limit_events_per_s is not None:
        limit = f"about {_rate(report.limit_events_per_s)}, with each worker at 80 % of a core"
    yield f"  sent         {_rate(report.offered_events_per_s)}"
    yield f"  read         {_rate(report.read_events_per_s)}, {report.lost_events} lost"
    yield f"  limit        {limit}"
    yield (
        f"  stamp error  p50 {report.stamp_error_ms_p50:.3f} ms, p99 {report.stamp_error_ms_p99:.3f} ms "
        f"({client.clock} clock)"
    )
    yield f"  coalesced    {report.coalesced_share * 100:.2f} % of the reads"
    if report.ok:
        yield "this client can read that load"
    if report.problems:
        yield "this client can't read that load"
    for problem in report.problems:
        yield from wrap(problem, width=width, first="  ", rest="    ")
    if report.server_problem:
        yield from wrap(f"not shown: {report.server_problem}", width=width, rest="  ")
        yield "  next: a lower --rate or --concurrency, or a host with more cores"


def _rate(events_per_s: float) -> str:
    return f"{format_quantity(events_per_s)} events/s"

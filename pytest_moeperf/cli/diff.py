"""``moeperf diff``: two baselines or two reports, side by side."""

from __future__ import annotations

import argparse
from typing import Any

from pytest_moeperf.cli.commands import DONE, Commands, add_json_option
from pytest_moeperf.cli.configuration import settings_here
from pytest_moeperf.cli.output import print_json, print_lines, width


def add(commands: Commands) -> None:
    parser = commands.add(
        "diff",
        run=run,
        summary="what differs between two baselines or two reports",
        description="Compare two baseline files, two reports (moeperf.json or its folder), or one of each: fingerprint "
        "fields that differ, by name with both values, and how far the levels are apart. The change is that of "
        "B against A, with a 95 % interval. A blocking difference means that the two were not the same work on "
        "the same machine: the change is then no verdict on a backend.",
        example="moeperf diff last-week/moeperf.json moeperf-report\n"
        "moeperf diff baselines/sglang/m/triton/c10-in512-out128@*.json",
    )
    parser.add_argument("first", metavar="A", help="a baseline file, or a report: moeperf.json or its folder")
    parser.add_argument("second", metavar="B", help="likewise")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from pytest_moeperf.cli.diff_text import pair_lines, side_lines, unpaired_lines
    from pytest_moeperf.cli.sides import cells_of, compared

    gate = settings_here().gate
    first, second = cells_of(args.first), cells_of(args.second)
    found = compared(first, second, gate=gate)
    if args.json:
        from pytest_moeperf.model.codec import to_plain

        plain: dict[str, Any] = {"a": args.first, "b": args.second, **to_plain(found)}
        print_json(plain)
        return DONE
    print_lines(side_lines(args.first, args.second))
    for pair in found.pairs:
        print_lines(["", *pair_lines(pair, width=width())])
    print_lines(unpaired_lines(found, width=width()))
    return DONE

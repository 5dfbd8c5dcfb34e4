"""``moeperf report``: draw a report again from its JSON, on a machine that has what drawing takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_moeperf.cli.commands import DONE, Commands
from pytest_moeperf.cli.configuration import report_at, settings_here
from pytest_moeperf.cli.output import print_lines


def add(commands: Commands) -> None:
    parser = commands.add(
        "report",
        run=run,
        summary="draw the page of a report again from its JSON",
        description="Write moeperf.html and comment.md of a report from its moeperf.json. Nothing is measured: a GPU "
        "machine without plotly keeps the JSON, and the page is drawn wherever it is wanted.",
        example="pytest -m perf --backend=triton --perf-report=moeperf-report\nmoeperf report moeperf-report",
    )
    parser.add_argument(
        "report",
        nargs="?",
        metavar="REPORT_DIR",
        help="folder or file of the report; default: that of the configuration, else of the last invocation",
    )
    parser.add_argument("--to", metavar="DIR", help="folder to write into; default: that of the report")


def run(args: argparse.Namespace) -> int:
    from pytest_moeperf.cli.report_file import read_view
    from pytest_moeperf.reporting.files import write_atomically
    from pytest_moeperf.reporting.github import COMMENT_NAME, pull_request_comment
    from pytest_moeperf.reporting.html import write_html

    settings = settings_here()
    report = report_at(settings, args.report)
    view = read_view(report)
    folder = Path(args.to) if args.to else (report if report.is_dir() else report.parent)
    print_lines([str(write_atomically(folder / COMMENT_NAME, pull_request_comment(view)))])
    print_lines([str(write_html(view, folder))])
    return DONE

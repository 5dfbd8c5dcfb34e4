"""``moeperf servers``: what runs on this machine, and how to end it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_moeperf.cli.commands import DONE, FAILED, Commands
from pytest_moeperf.cli.output import print_json, print_lines, table
from pytest_moeperf.errors import MoeperfError, UsageProblem

if TYPE_CHECKING:
    from pytest_moeperf.model.server import ServerRecord


def add(commands: Commands) -> None:
    parser = commands.add(
        "servers",
        run=run_list,
        summary="servers of yours that run on this machine, and how to stop them",
        description="List the servers that test runs of this user have launched and that still run, or stop them. "
        "A server that somebody holds is only stopped with --force.",
        example="moeperf servers\nmoeperf servers stop 3f2a\nmoeperf servers stop --all",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    listing = actions.add_parser("list", help="list them (the default)", allow_abbrev=False)
    for each in (parser, listing):
        each.add_argument("--json", action="store_true", help="print JSON instead of a table")
    listing.set_defaults(run=run_list)
    stopping = actions.add_parser("stop", help="stop one, or all", allow_abbrev=False)
    stopping.add_argument("id", metavar="ID", nargs="?", help="as listed; may be shortened")
    stopping.add_argument("--all", action="store_true", help="all servers of this user")
    stopping.add_argument("--force", action="store_true", help="also those that somebody holds")
    stopping.set_defaults(run=run_stop)


def run_list(args: argparse.Namespace) -> int:
    from pytest_moeperf.servers.registry import list_left, list_servers

    records = list_servers()
    if args.json:
        print_json([record.to_dict() for record in records])
    else:
        print_lines(server_lines(records))
        for left in list_left():
            launch = left.record.launch_id[:8]
            print_lines(
                [
                    f"left of {launch}, {left.record.name}, whose guardian was killed: {left.text()}",
                    f"  next: moeperf servers stop {launch}",
                ]
            )
    return DONE


def server_lines(records: Sequence[ServerRecord]) -> Iterator[str]:
    """Two lines a server: what it is, then who holds it and where its log is."""
    from pytest_moeperf.servers.registry import holders_text

    if not records:
        yield "no server is running"
        return
    rows = [
        (
            record.launch_id[:8],
            record.name,
            record.state,
            record.url,
            record.started_at[:19].replace("T", " "),
        )
        for record in records
    ]
    header, *lines = table(("id", "server", "state", "url", "started (UTC)"), rows)
    yield header
    for line, record in zip(lines, records, strict=True):
        yield line
        yield f"  held by {holders_text(record)}"
        yield f"  {record.log_path}"


def run_stop(args: argparse.Namespace) -> int:
    from pytest_moeperf.servers.registry import list_left, list_servers, stop_server

    if args.all == (args.id is not None):
        raise UsageProblem(where="ID", problem="which server is to be stopped?", allowed="either an ID or --all")
    if args.id is not None:
        print_lines([stop_server(args.id, force=args.force)])
        return DONE
    records = (*list_servers(), *(left.record for left in list_left()))
    if not records:
        print_lines(["no server is running"])
    code = DONE
    for record in records:
        try:
            done = stop_server(record, force=args.force)
        except MoeperfError as error:
            # One that can't be stopped must not keep the others alive.
            print_lines(str(error).splitlines(), error=True)
            code = FAILED
        else:
            print_lines([done])
    return code

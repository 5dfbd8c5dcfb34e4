"""The ``moeperf`` program: finds the command, runs it, turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence

from pytest_moeperf import __version__
from pytest_moeperf.cli import (
    accept,
    audit,
    ceiling,
    diff,
    importing,
    rehearse,
    report,
    selftest,
    servers,
    show,
    simulate,
)
from pytest_moeperf.cli.commands import FAILED, Commands, Parser
from pytest_moeperf.cli.output import print_lines
from pytest_moeperf.errors import MoeperfError

_COMMANDS = (show, diff, accept, report, importing, audit, ceiling, selftest, rehearse, servers, simulate)
_INTERRUPTED = 130
_SIGNED = re.compile(r"-\d[\d.,%+-]*")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    :raises SystemExit: argparse's, for ``--help``, ``--version`` and a wrong command line.
    """
    parser = build_parser()
    args, unknown = parser.parse_known_args(_joined(sys.argv[1:] if argv is None else argv))
    args.further = unknown
    if unknown and args.command != simulate.NAME:
        parser.error(f"{args.command}: unrecognized arguments: {' '.join(unknown)}")
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except MoeperfError as error:
        sys.stdout.flush()
        print_lines(f"moeperf {args.command}: {error}".splitlines(), error=True)
        return FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # `moeperf show | head`: whoever read has had enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; nothing is read or run."""
    parser = Parser(
        prog="moeperf",
        description="Baselines, machines and servers of pytest-moeperf, outside of a test run.",
        epilog="moeperf COMMAND --help shows its options and an example.\n"
        "exit codes: 0 done, 1 the answer is no (refused, target missed),\n"
        "2 it could not be done.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"moeperf {__version__}")
    commands = Commands(parser)
    for command in _COMMANDS:
        command.add(commands)
    return parser


def _joined(arguments: Iterable[str]) -> list[str]:
    """``--change -5%`` as ``--change=-5%``: argparse takes ``-5%`` for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and _SIGNED.fullmatch(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined

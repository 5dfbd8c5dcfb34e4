"""How a command is declared: one way for all, so that they look alike and each help ends with an example."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from typing import NoReturn

from pytest_moeperf.outgoing import told

DONE, NO, FAILED = 0, 1, 2
"""Exit codes."""
_WIDTH = 79

Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """What is wrong with a command line is told without the secrets in it."""

    def error(self, message: str) -> NoReturn:
        super().error(told(message))


class Commands:
    """The commands of ``moeperf``. Each runs imports of its own, so that ``moeperf --help`` loads nothing heavy."""

    def __init__(self, program: argparse.ArgumentParser) -> None:
        self._parsers = program.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)

    def add(self, name: str, *, run: Run, summary: str, description: str, example: str) -> argparse.ArgumentParser:
        """Declare a command; the parser that comes back takes its options.

        :param run: takes the parsed options and returns the exit code.
        :param description: sentences; they are wrapped here.
        :param summary: half a line, for the list of commands.
        :param example: command lines, one a line, without a prompt.
        """
        parser = self._parsers.add_parser(
            name,
            help=summary,
            description=textwrap.fill(description, _WIDTH),
            epilog="example:\n" + "\n".join(f"  {line}" for line in example.splitlines()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.set_defaults(run=run)
        return parser


def add_baselines_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baselines", metavar="DIR", help="folder of stored baselines; default: that of the configuration"
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")

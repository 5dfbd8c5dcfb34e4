"""The page about the command line and the program name the same commands and options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pytest_moeperf.cli.program import build_parser

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
SHOWN = re.findall(r"^\$ moeperf (.*)$", PAGE, re.MULTILINE)
NAMED = re.findall(r"`moeperf ([a-z].*?)`", PAGE)
COMMANDS = re.findall(r"^    (\w+) ", build_parser().format_help(), re.MULTILINE)


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert re.findall(r"^## (\w+)$", PAGE, re.MULTILINE) == COMMANDS
    assert re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \|", PAGE, re.MULTILINE) == [(name, name) for name in COMMANDS]


def test_every_command_is_shown() -> None:
    assert {line.split()[0] for line in SHOWN} == set(COMMANDS)


@pytest.mark.parametrize("line", [*SHOWN, *NAMED])
def test_what_the_page_says_can_be_typed(line: str) -> None:
    parsed, unknown = build_parser().parse_known_args(shlex.split(line))
    assert parsed.command in COMMANDS
    assert unknown == []


def test_options_that_the_page_names_exist(capsys: pytest.CaptureFixture[str]) -> None:
    helps = ""
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            build_parser().parse_args([command, "--help"])
        helps += capsys.readouterr().out
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    named = set(re.findall(r"`(--[a-z-]+)`", prose)) - {"--help"}
    of_others = {"--perf-report", "--update-baselines", "--fault", "--time-scale", "--session-sd"}
    missing = {option for option in named - of_others if not re.search(rf"{option}\b", helps)}
    assert missing == set()

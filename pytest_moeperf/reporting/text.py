"""Plain-text helpers: what is told on one line, lines of a given width."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping

from pytest_moeperf.outgoing import printable_line, told

_KEYWORD = re.compile(r"[\w:+\-.\[\]\\/]+")
"""One word of a ``-k`` expression, as pytest reads it."""
_OPTION = re.compile(r"(--[a-z-]+)(=?)")
_RECORDING = {"--update-baselines": "", "--perf-update-baselines": "", "--perf-reason": "=", "--perf-launches": "="}
_COMMAND_WORD = re.compile(r"""(?:-[km]\s+)?(?:[^\s"']|"[^"]*"|'[^']*')+""")


def safe(text: str) -> str:
    """Text from a server, a log or a test, fit to be shown, on one line."""
    return told(printable_line(text))


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(limit - 3, 0)].rstrip() + "..."


def wrap(text: str, *, width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of at most ``width``; a word that is longer stays whole, so that paths and node ids can be copied."""
    # A figure and its percent sign stay together: textwrap doesn't break at no-break spaces.
    joined = text.replace(" %", "\u00a0%")
    lines = textwrap.wrap(
        joined, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\u00a0", " ") for line in lines]


def fill(template: str, *, node_id: str, pytest_command: str) -> str:
    """``{pytest}``, ``{measure}`` and ``{node}`` of a next step, quoted for a shell.

    ``{measure}`` is the command without what makes it record.

    ``-k {node}`` becomes ``-k`` with the test's own name, which is what ``-k`` matches. For a name that ``-k`` can't
    read, and for ``{node}`` anywhere else, the whole node id is put in.
    """
    # Before it is quoted for a shell: quotes of quotes are no names and values.
    node_id = told(node_id)
    function, bracket, parameters = node_id.partition("[")
    name = f"{function.rpartition('::')[2]}{bracket}{parameters}"
    selection = f"-k {shlex.quote(name)}" if _KEYWORD.fullmatch(name) else shlex.quote(node_id)
    filled = template.replace("-k {node}", selection).replace("{node}", shlex.quote(node_id))
    anew = dict(_OPTION.findall(template))
    for mark, dropped in (("{pytest}", anew), ("{measure}", _RECORDING | anew)):
        filled = filled.replace(mark, _without_options(pytest_command, dropped))
    return filled


def _without_options(command: str, anew: Mapping[str, str]) -> str:
    """What the step gives anew is not given twice.

    :param anew: option -> ``=`` if it takes a value.
    """
    kept: list[str] = []
    value_follows = False
    for word in told(shlex.split(command)):
        if value_follows and not word.startswith("-"):
            value_follows = False
            continue
        name, equals, _ = word.partition("=")
        value_follows = name in anew and bool(anew[name]) and not equals
        if name not in anew:
            kept.append(word)
    return shlex.join(kept)


def wrap_command(command: str, *, width: int, indent: str) -> list[str]:
    """A shell command over several lines, joined by backslashes: it can be pasted as it stands."""
    lines: list[str] = []
    current = indent
    for word in _COMMAND_WORD.findall(command):
        if current.strip() and len(current) + len(word) + 3 > width:
            lines.append(f"{current} \\")
            current = f"{indent}  {word}"
        else:
            current = f"{current} {word}" if current.strip() else f"{indent}{word}"
    return [*lines, current]

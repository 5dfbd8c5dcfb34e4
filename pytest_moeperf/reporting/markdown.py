"""Pieces of GitHub Markdown. Nothing that is passed in can become markup, a mention or a command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"([\\`*_\[\]|~$])")
_LIST_OR_HEADING = re.compile(r"^(\s*\d*)([-+#.)])(?=\s)")
_BACKTICKS = re.compile(r"`+")
_BREAK = "&#8203;"
"""A zero-width space: after ``@`` and ``#`` it keeps a name from being a mention and a number from being an issue."""


def escape(text: str) -> str:
    """Text that shows as it is: no markup, no HTML, no mention of a person or an issue, no link."""
    text = _LIST_OR_HEADING.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", text.replace("\n", " ")))
    return _inert(text)


def _inert(text: str) -> str:
    """No HTML, and nothing that GitHub links by itself, even inside HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"[@#](?=\w)", rf"\g<0>{_BREAK}", text)
    return text.replace("://", f":{_BREAK}//").replace("www.", f"www{_BREAK}.")


def code(text: str) -> str:
    """``text`` between as many backticks as it needs. Bars are escaped by ``table``, not here."""
    text = text.replace("\n", " ")
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, *, language: str = "") -> str:
    """A block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown already."""
    lines = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def details(summary: str, lines: Iterable[str]) -> list[str]:
    """A folded block. ``summary`` is plain text; ``lines`` are Markdown."""
    return ["<details>", f"<summary>{_inert(summary.replace(chr(10), ' '))}</summary>", "", *lines, "", "</details>"]

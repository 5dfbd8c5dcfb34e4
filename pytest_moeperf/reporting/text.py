"""Plain-text helpers: secrets out, control characters out, lines of a given width."""

from __future__ import annotations

import re
import shlex
import textwrap
from typing import Any

HIDDEN = "<hidden>"

_NAME = r"(?:[A-Za-z0-9]+[-_])*(?:api[-_]?key|secret(?:[-_]key)?|token|password|passwd|credentials?|authorization)"
_SECRET_KEY = re.compile(rf"(?:--)?{_NAME}", re.IGNORECASE)
_VALUE = r"([\"']?)[^\s\"',)]+\2"
_SECRETS_IN_TEXT = (
    re.compile(rf"(?<![\w-])((?:--)?{_NAME}[\"']?\s*[=:]\s*)(?!None\b|Bearer\b){_VALUE}", re.IGNORECASE),
    re.compile(rf"(?<![\w-])(--{_NAME}\s+)(?!-){_VALUE}", re.IGNORECASE),
    re.compile(r"(\bBearer\s+)([\"']?)[^\s\"',)]+", re.IGNORECASE),
    re.compile(r"(\b[a-z][a-z0-9+.-]*://)()[^\s/@:]+:[^\s/@]+(?=@)", re.IGNORECASE),
)
_KEYWORD = re.compile(r"[\w:+\-.\[\]\\/]+")
"""One word of a ``-k`` expression, as pytest reads it."""
_COMMAND_WORD = re.compile(r"""(?:-[km]\s+)?(?:[^\s"']|"[^"]*"|'[^']*')+""")


def redact_text(text: str) -> str:
    """``--api-key=abc`` -> ``--api-key=<hidden>``; also ``api_key='abc'``, ``Bearer abc`` and ``http://user:pw@host``."""
    for pattern in _SECRETS_IN_TEXT:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def redact(plain: Any) -> Any:
    """JSON-plain data without secrets: values of secret-looking keys, and secrets inside any string."""
    if isinstance(plain, str):
        return redact_text(plain)
    if isinstance(plain, dict):
        return {
            key: HIDDEN if isinstance(value, str) and value and _SECRET_KEY.fullmatch(str(key)) else redact(value)
            for key, value in plain.items()
        }
    if isinstance(plain, (list, tuple)):
        flagged = [False, *(isinstance(item, str) and _is_secret_flag(item) for item in plain)]
        return [
            HIDDEN if hide and isinstance(item, str) else redact(item)
            for item, hide in zip(plain, flagged, strict=False)
        ]
    return plain


def _is_secret_flag(text: str) -> bool:
    return text.startswith("--") and _SECRET_KEY.fullmatch(text) is not None


def clean(text: str) -> str:
    """One line of printable characters: what a server logs may hold colours, newlines or worse."""
    without_colours = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return " ".join("".join(char if char.isprintable() else " " for char in without_colours).split())


def safe(text: str) -> str:
    """Text from a server, a log or a test, fit to be shown."""
    return redact_text(clean(text))


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
    """``{pytest}`` and ``{node}`` of a next step, quoted for a shell.

    ``-k {node}`` becomes ``-k`` with the test's own name, which is what ``-k`` matches. For a name that ``-k`` can't
    read, and for ``{node}`` anywhere else, the whole node id is put in.
    """
    function, bracket, parameters = node_id.partition("[")
    name = f"{function.rpartition('::')[2]}{bracket}{parameters}"
    selection = f"-k {shlex.quote(name)}" if _KEYWORD.fullmatch(name) else shlex.quote(node_id)
    filled = template.replace("-k {node}", selection).replace("{node}", shlex.quote(node_id))
    return filled.replace("{pytest}", pytest_command)


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

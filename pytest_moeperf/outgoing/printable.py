"""Text from elsewhere (a server, its log, another user, a file of a pull request), fit for a terminal and a CI's log.

It moves no cursor, sets no title or clipboard, hides and turns round nothing, and is no command to a CI runner.
"""

from __future__ import annotations

import re
import unicodedata

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, screen
    # OSC, DCS, SOS, PM, APC, to their end: titles, links, clipboard. One without an end loses its introducer alone.
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\n\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"  # ESC c and its like
)
# GitHub's runner reads ::error:: where a line begins, and ##[error] anywhere; Azure's and TeamCity's read ##word[.
# Text may be wrapped later, so a line may begin at every blank. A node id (a.py::test_b) stays whole.
_COMMAND = re.compile(r"(?<!\S):(?=:)|#(?=#\w*\[)")


def printable(text: str) -> str:
    """The same lines, without escape sequences, control characters, invisible or direction-changing ones, and lone
    surrogates; commands to a CI runner are broken by a blank. Idempotent."""
    # Logs of many megabytes are ordinary, and nearly all of each is.
    if not text.replace("\n", "").isprintable():
        lines = (line if line.isprintable() else _visible(line) for line in _SEQUENCE.sub("", text).split("\n"))
        text = "\n".join(lines)
    return _COMMAND.sub(r"\g<0> ", text) if "::" in text or "##" in text else text


def printable_line(text: str) -> str:
    """All on one line, with single blanks."""
    return printable(" ".join(printable(text).split()))


def _visible(line: str) -> str:
    return "".join(char if char.isprintable() else _instead(char) for char in line)


def _instead(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Cf":  # joins what it stood between: a key with an invisible character in it is one
        return ""
    return "\ufffd" if category == "Cs" else " "

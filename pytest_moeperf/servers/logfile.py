"""Reading a server's log: its last lines, and what is new. Secrets are blanked."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pytest_moeperf.outgoing import printable, scrub_secrets
from pytest_moeperf.outgoing.secrets import without_known

TAIL_LINES = 12
_TAIL_BYTES = 64 * 1024
_LINE_CHARACTERS = 400
# Progress bars overwrite their line with a carriage return, and coloured logs carry escapes. The search begins where a
# line does: SGLang prints its arguments in a line of 12 700 characters, and one from each of them would be quadratic.
_LINE_END = re.compile(rb"\r\n|\n|\r")
_OVERWRITTEN = re.compile(rb"^[^\n]*\r(?=[^\r\n])", re.MULTILINE)


class ServerLog:
    """One server's log. Every text that leaves it is printable, without the secrets that this process knows."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._read_to = 0
        self._half_line = b""

    def text(self) -> str:
        """All of it, as a terminal would show it; empty where there is none yet."""
        return self._clean(_OVERWRITTEN.sub(b"", self._bytes_from(0)))

    def tail(self, lines: int = TAIL_LINES) -> tuple[str, ...]:
        """The last lines that are not blank, each at most 400 characters."""
        size = self.path.stat().st_size if self.path.exists() else 0
        text = self._clean(_OVERWRITTEN.sub(b"", self._bytes_from(max(0, size - _TAIL_BYTES))))
        # Scrubbed before it is cut: half a key is one, and some have several lines.
        filled = [line for line in scrub_secrets(text).split("\n") if line.strip()]
        return tuple(_shortened(line) for line in filled[-lines:])

    def new_lines(self) -> list[str]:
        """Complete lines since the last call."""
        new = self._bytes_from(self._read_to)
        self._read_to += len(new)
        *complete, self._half_line = _LINE_END.split(self._half_line + new)
        return [_shortened(self._clean(line)) for line in complete if line.strip()]

    def _bytes_from(self, offset: int) -> bytes:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            file.seek(offset)
            return file.read()

    def _clean(self, content: bytes) -> str:
        return without_known(printable(_LINE_END.sub(b"\n", content).decode("utf-8", "replace")))


def _shortened(line: str) -> str:
    return line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 3] + "..."

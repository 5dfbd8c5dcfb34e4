"""The log of an attached server, where its path is stated (``[attach] log``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.run import Check

_ARGUMENTS = re.compile(r"\bserver_args=ServerArgs\(")
"""Once in each start of SGLang."""

END_READ = 32 << 20
"""Bytes of the beginning and of the end that are read: a server's start is at one end, its last hours at the other."""


def refuse_unreadable_log(path: str) -> None:
    """:raises UsageProblem: it was stated, and can't be read here."""
    if not path:
        return
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        raise UsageProblem(
            where="[attach] log",
            problem=f"{path} can't be read: {error.strerror or error}",
            allowed="a file on this machine that the attached server writes its log to",
            next_step="mend the path, or take the line out: the evidence is then what /server_info says",
        ) from None


def read_stated_log(path: str) -> str:
    """Empty where none was stated, or where it is gone by now."""
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            start = file.read(END_READ)
            size = file.seek(0, 2)
            file.seek(max(len(start), size - END_READ))
            data = start + (b"\n" if file.tell() > len(start) else b"") + file.read()
    except OSError:
        return ""
    return _last_life(data.decode("utf-8", errors="replace"))


def _last_life(text: str) -> str:
    """A log that is appended to holds former servers, which prove nothing about this one."""
    lives = [match.start() for match in _ARGUMENTS.finditer(text)]
    return text[text.rfind("\n", 0, lives[-1]) + 1 :] if len(lives) > 1 else text


def of_another_server(path: str, text: str, info: Mapping[str, Any] | None) -> tuple[Check, ...]:
    """A failed check where the log's own arguments are not those of the server that answers; nothing otherwise."""
    start = _ARGUMENTS.search(text)
    if not path or start is None or not info:
        return ()
    line = text[start.start() : text.find("\n", start.start()) if "\n" in text[start.start() :] else None]
    for name in ("port", "random_seed"):
        there, here = re.search(rf"\b{name}=(\d+)", line), info.get(name)
        if there and isinstance(here, int) and int(there[1]) != here:
            message = (
                f"not shown: {path} is the log of another server ({name} {there[1]} there, {here} here); "
                f"mend [attach] log, or take it out"
            )
            return (Check(name="attached_log", status="fail", message=message),)
    return ()

"""Kernel names out of a torch profiler trace, however large: read object by object, never as a whole."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

_CHUNK = 1 << 20
_LARGEST_EVENT = 64 << 20
"""Characters: a bracket that is never closed must not fill the memory."""

KERNEL_CATEGORIES = frozenset({"kernel", "gpu_op"})


def kernel_names(path: Path) -> Counter[str]:
    """How often each GPU kernel ran in a Chrome trace, ``.json`` or ``.json.gz``.

    A trace that was cut in half gives what its first half holds.

    :raises OSError: the file can't be read.
    :raises ValueError: it is no trace: it has no ``traceEvents``.
    """
    names: Counter[str] = Counter()
    with _open(path) as file:
        for event in _events(file, path):
            name = event.get("name")
            if event.get("cat") in KERNEL_CATEGORIES and isinstance(name, str):
                names[name] += 1
    return names


def trace_files(folder: Path) -> list[Path]:
    """The traces under ``folder``, oldest first: ``/start_profile`` writes one a rank."""
    found = [path for pattern in ("*.json", "*.json.gz") for path in folder.rglob(pattern) if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def _open(path: Path) -> IO[str]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _events(file: IO[str], path: Path) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    buffer = _skip_to_events(file, path)
    while True:
        buffer = buffer.lstrip(" \t\r\n,")
        if buffer.startswith("]"):
            return
        try:
            event, end = decoder.raw_decode(buffer)
        except json.JSONDecodeError:
            more = _read(file)
            if not more or len(buffer) > _LARGEST_EVENT:
                return
            buffer += more
            continue
        # Cutting the buffer once an event would be quadratic: take all whole events out of it first.
        if isinstance(event, dict):
            yield event
        position = end
        while (start := buffer.find("{", position)) >= 0 and buffer[position:start].strip(" \t\r\n,") == "":
            try:
                event, position = decoder.raw_decode(buffer, start)
            except json.JSONDecodeError:
                position = start
                break
            if isinstance(event, dict):
                yield event
        buffer = buffer[position:]


def _skip_to_events(file: IO[str], path: Path) -> str:
    """What follows ``"traceEvents": [``; a trace may also be the bare list."""
    buffer = _read(file)
    if buffer.lstrip().startswith("["):
        return buffer.lstrip()[1:]
    while (at := buffer.find('"traceEvents"')) < 0 or "[" not in buffer[at:]:
        more = _read(file)
        if not more:
            raise ValueError(f"{path}: no traceEvents in it, so it is no profiler trace")
        buffer = buffer[at if at >= 0 else -len('"traceEvents"') :] + more
    return buffer[buffer.index("[", at) + 1 :]


def _read(file: IO[str]) -> str:
    try:
        return file.read(_CHUNK)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return ""

"""Where settings are read from. A test gives another root and NVML; nothing here raises for what is not there."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any


def import_nvml() -> Any | None:
    """The ``pynvml`` module of nvidia-ml-py; None where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _affinity() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@dataclass(kw_only=True)
class Probe:
    """One look at a machine: files below ``root``, environment variables, NVML."""

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    nvml: Any | None = field(default_factory=import_nvml)
    affinity: int | None = field(default_factory=_affinity)
    """CPUs that this process may run on."""
    gpus: Sequence[str] = ()
    """Indices or UUIDs of the GPUs that matter; empty: all of the machine."""
    own_pids: frozenset[int] = frozenset({os.getpid()})

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """A file's text without the last newline; None: missing, unreadable, or it holds nothing."""
        try:
            return self.path(path).read_text("utf-8", errors="replace").strip() or None
        except OSError:
            return None

    def integer(self, path: str) -> int | None:
        text = self.text(path)
        try:
            return int(text, 0) if text is not None else None
        except ValueError:
            return None

    def data(self, path: str) -> bytes:
        """A file's bytes; none where it can't be read."""
        try:
            return self.path(path).read_bytes()
        except OSError:
            return b""

    def names(self, folder: str) -> list[str]:
        """What a folder holds, sorted; nothing where it can't be read."""
        try:
            return sorted(entry.name for entry in self.path(folder).iterdir())
        except OSError:
            return []

    @cached_property
    def gpu_facts(self) -> Mapping[str, Any]:
        """What NVML says of the GPUs, read once; empty: no NVML or no GPU."""
        from pytest_moeperf.environment.nvml import read_gpus

        return read_gpus(self)

    @contextmanager
    def nvml_session(self) -> Iterator[Any | None]:
        """NVML between its init and its shutdown; None where it can't be started."""
        if self.nvml is None:
            yield None
            return
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError:
            yield None
            return
        try:
            yield self.nvml
        finally:
            # Where the driver went away in the middle there is nothing left to close.
            with suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()

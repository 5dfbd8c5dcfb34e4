"""A copy of ``examples/sglang_cpu`` with its engine and its model, and what running pytest in it says and leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import tiny_moe

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sglang_cpu"
GPU_EXAMPLE = EXAMPLE.with_name("h200")
RUN_TIMEOUT_S = 1200.0
GONE_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class PytestRun:
    """One pytest invocation, over."""

    code: int
    text: str
    """stdout, then stderr."""

    @property
    def words(self) -> str:
        """The text without line breaks and indents, to look for sentences in."""
        return " ".join(self.text.split())


@dataclass(frozen=True, kw_only=True)
class SglangProject:
    """Its servers are its own: nothing is shared with other projects on this machine."""

    folder: Path
    runtime: Path

    def pytest(self, *arguments: str, sleep_ms: int | None = None) -> PytestRun:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-m", "perf", "-p", "no:cacheprovider", *arguments],
            cwd=self.folder,
            env=self._environment() | ({} if sleep_ms is None else {"SLEEP_MS": str(sleep_ms)}),
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        return PytestRun(code=done.returncode, text=done.stdout + done.stderr)

    def configure(self, text: str) -> None:
        """Append tables to ``moeperf.toml``."""
        with (self.folder / "moeperf.toml").open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")

    def processes(self) -> list[str]:
        """Commands of the servers and guardians of this project that run now."""
        return [" ".join(process.cmdline()) for process in psutil.process_iter() if self._is_ours(process)]

    def processes_left(self) -> list[str]:
        """Those that are still there after the time that an ending server may take."""
        deadline_s = time.monotonic() + GONE_TIMEOUT_S
        while (left := self.processes()) and time.monotonic() < deadline_s:
            time.sleep(0.2)
        return left

    def end_servers(self) -> None:
        """After a failed test one may have been left warm."""
        for process in psutil.process_iter():
            if self._is_ours(process):
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MOEPERF_", "PYTEST_", "COV_")) and name != "SLEEP_MS"
        }
        cache = self.folder.parent / "cache"
        return inherited | {
            "MOEPERF_RUNTIME_DIR": str(self.runtime),
            "XDG_CACHE_HOME": str(cache),
            "COLUMNS": "120",
        }

    def _is_ours(self, process: psutil.Process) -> bool:
        # A guardian is known by its environment; an engine that renames its processes overwrites that, but runs here.
        try:
            return process.cwd() == str(self.folder) or process.environ().get("MOEPERF_RUNTIME_DIR") == str(
                self.runtime
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


def make_project(folder: Path, *, python: str) -> SglangProject:
    """``examples/sglang_cpu``, with its links and its model as its page says to make them."""
    project = _copied(EXAMPLE, folder)
    (project.folder / "engine").symlink_to(Path(python).parent.parent)
    tiny_moe.make_tiny_moe(project.folder / "tiny-moe")
    return project


def make_gpu_project(folder: Path) -> SglangProject:
    """``examples/h200`` likewise; its engine is that of the interpreter that runs pytest."""
    project = _copied(GPU_EXAMPLE, folder)
    tiny_moe.make_tiny_moe(project.folder / "moe-64x8", preset="h200")
    return project


def _copied(example: Path, folder: Path) -> SglangProject:
    """The example as it is in a clean clone, and no baselines."""
    project = SglangProject(folder=folder / "project", runtime=folder / "runtime")
    made_later = ("engine", "tiny-moe", "moe-64x8*", "baselines", "__pycache__")
    shutil.copytree(example, project.folder, ignore=shutil.ignore_patterns(*made_later))
    project.runtime.mkdir(mode=0o700)
    return project

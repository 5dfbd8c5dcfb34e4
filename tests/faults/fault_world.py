"""A small suite on the simulated engine in a folder of its own, measured by whole pytest processes, for the tests of
this folder and for ``benchmarks/chaos.py``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.baselines.store import Entry
from pytest_moeperf.engines.control import Control
from pytest_moeperf.model.server import ServerRecord
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers.runtime import LOCKS_VARIABLE, RUNTIME_VARIABLE
from pytest_moeperf.session.journal import JOURNAL_FOLDER

DEADLINE_S = 90.0
"""How long anything is waited for; far beyond what it takes on a starved machine."""

CONFIG = """\
engine = "simulated"
min_window = "20ms"
launches = 1
# These tests are about faults. A starved machine may be late by this much.
regression = "50%"
win = "45%"
proven = "20%"
"""

TEST = """\
import pytest

@pytest.mark.perf(input_len=16, output_len=16, num_prompts=8)
@pytest.mark.parametrize("concurrency", [2])
def test_decode(moeperf, concurrency):
    moeperf.measure()
"""


def fake_gpus(count: int) -> str:
    """A ``conftest.py`` under which the simulated engine takes GPUs, that only NVML's list knows."""
    return f"""\
from pytest_moeperf.bench import place
from pytest_moeperf.bench.devices import Gpu

place.WITHOUT_GPU = frozenset()
place.gpus_of_this_host = lambda: tuple(Gpu(index=i, uuid=f"GPU-{{i}}", name="fake") for i in range({count}))
"""


QUIET = 'args = ["--profile=triton", "--time-scale={scale}", "--run-sd=0", "--launch-sd=0", "--session-sd=0"]'


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """One pytest run that has ended."""

    code: int
    raw: str

    @property
    def text(self) -> str:
        """Wrapped lines joined again."""
        return " ".join(self.raw.split())

    def section(self, name: str) -> str:
        """What pytest printed of one test that failed, wrapped lines joined again."""
        pattern = rf"^_+ (?:ERROR at (?:setup|teardown) of )?{re.escape(name)} _+$\n(.*?)(?=^[_=]{{3}})"
        match = re.search(pattern, self.raw, re.MULTILINE | re.DOTALL)
        assert match is not None, f"nothing was printed of {name}:\n{self.raw}"
        return " ".join(match[1].split())


class Invocation:
    """A pytest process that runs."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    def output(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str) -> None:
        eventually(
            lambda: text in self.output() or self.process.poll() is not None, lambda: f"no {text!r}:\n{self.output()}"
        )
        assert text in self.output(), f"ended without {text!r}:\n{self.output()}"

    def send(self, number: int) -> None:
        """To the whole process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def end(self) -> Finished:
        code = self.process.wait(DEADLINE_S)
        return Finished(code=code, raw=self.output())


class World:
    """The folder, and all that happens in it."""

    def __init__(
        self,
        folder: Path,
        *,
        config: str = "",
        server: str = "",
        test: str = TEST,
        conftest: str = "",
        scale: float = 1.5,
    ) -> None:
        """
        :param scale: of the simulated engine's steps. Long runs that do little: a starved machine is late by less of
            them, and its runs are not void.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        server = f"[server]\n{QUIET.format(scale=scale)}\n{server}"
        head, _, tables = f"\n{config}".partition("\n[")
        text = f"{CONFIG}{head}\n{server}" + (f"[{tables}" if tables else "")
        (folder / "moeperf.toml").write_text(text, encoding="utf-8")
        (folder / "test_serving.py").write_text(test, encoding="utf-8")
        if conftest:
            (folder / "conftest.py").write_text(conftest, encoding="utf-8")
        self._count = 0

    @property
    def runtime(self) -> Path:
        return self.folder / "runtime"

    def environment(self) -> dict[str, str]:
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("MOEPERF_", "GITHUB_", "PYTEST_", "COV_"))
        }
        return kept | {
            RUNTIME_VARIABLE: str(self.runtime),
            LOCKS_VARIABLE: str(self.folder / "locks"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "120",
        }

    def start(self, *arguments: str, preexec: Callable[[], None] | None = None, **variables: str) -> Invocation:
        """``pytest -m perf ARGUMENTS`` in a process group of its own."""
        self._count += 1
        output = self.folder / f"output-{self._count}.txt"
        command = [sys.executable, "-m", "pytest", "-m", "perf", "-p", "no:cacheprovider", *arguments]
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment() | variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=preexec,  # noqa: PLW1509 - no threads in these tests
            )
        return Invocation(process, output)

    def run(self, *arguments: str, preexec: Callable[[], None] | None = None, **variables: str) -> Finished:
        return self.start(*arguments, preexec=preexec, **variables).end()

    # What is there

    def processes(self) -> dict[int, str]:
        """Everything that was started in this world and lives: pytest, its workers, guardians, servers, load."""
        mark = f"{RUNTIME_VARIABLE}={self.runtime}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def records(self) -> list[ServerRecord]:
        found = []
        for path in self.runtime.glob("launches/*/record.json"):
            with contextlib.suppress(FileNotFoundError):
                found.append(ServerRecord.from_dict(json.loads(path.read_bytes())))
        return found

    def server_in_a_run(self, backend: str) -> ServerRecord:
        """Waits until requests are running on this backend's server."""
        found: list[ServerRecord] = []

        def runs() -> bool:
            found[:] = [record for record in self.records() if record.name.startswith(backend)]
            return bool(found) and running_requests(found[0]) > 0

        eventually(runs, lambda: f"no run on {backend}: {self.records()}, {self.processes()}")
        return found[0]

    def baselines(self) -> list[Entry]:
        """Every stored baseline; raises for a damaged one."""
        return list(FileStore(self.folder / "baselines").all())

    def kept_runs(self) -> int:
        """Finished runs of interrupted invocations."""
        return sum(len(path.read_text().splitlines()) for path in (self.folder / JOURNAL_FOLDER).glob("*.jsonl"))

    def leftovers(self) -> list[str]:
        """What a finished invocation must not leave behind."""
        found = [f"process {pid}: {command}" for pid, command in self.processes().items()]
        for name in ("record.json", "key", "socket", ".record.json*"):
            found += [str(path) for path in self.runtime.glob(f"launches/*/{name}")]
        found += [f"locked: {path}" for path in self.folder.glob("**/*.lock") if not can_lock(path)]
        found += [str(path) for path in (self.folder / "baselines").glob("**/.*.new")]
        return found

    def assert_nothing_is_left(self) -> None:
        """No process, record, key, socket, held lock; every baseline can be read."""
        eventually(lambda: not self.processes(), lambda: f"still there: {self.processes()}")
        assert self.leftovers() == []
        self.baselines()


def eventually(condition: Callable[[], bool], describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.02)


def control_of(record: ServerRecord) -> Control:
    key = Path(record.folder) / "key"
    return Control(url=record.url, api_key=ApiKey(key.read_text()) if key.exists() else None)


def running_requests(record: ServerRecord) -> float:
    text = control_of(record).get_text("/metrics").text
    match = re.search(r"^sglang:num_running_reqs\{.*\} (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def set_fault(record: ServerRecord, fault: str) -> None:
    assert control_of(record).post("/simulated/fault", {"fault": fault}).good


def can_lock(path: Path) -> bool:
    try:
        with filelock.FileLock(path, timeout=0):
            return True
    except filelock.Timeout:
        return False


@contextlib.contextmanager
def cleaned_up(world: World) -> Iterator[World]:
    """Whatever a failed test left is ended, by pid."""
    try:
        yield world
    finally:
        for pid in world.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

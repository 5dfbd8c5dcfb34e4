"""The fault matrix: whole pytest runs, one row a fault. Each ends in the right verdict or error, says so, leaves no
process, record or lock behind, damages no baseline, and keeps the runs that were finished."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import pytest
from fault_world import Finished, Invocation, World, cleaned_up, eventually, set_fault

from pytest_moeperf.model.server import ServerRecord

BOTH = """\
import pytest

@pytest.mark.perf(input_len=16, output_len=16)
@pytest.mark.parametrize("concurrency", [2, 4])
def test_decode(moeperf, concurrency):
    moeperf.measure()
"""


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**how: object) -> World:
        worlds.append(World(tmp_path / "suite", **how))  # type: ignore[arg-type]
        return worlds[0]

    yield make
    for world in worlds:
        with cleaned_up(world):
            world.assert_nothing_is_left()


# Faults of the server that need nobody to act: one invocation, a backend a row.

START_ROWS = {
    "dies_at_start": (
        "crash_at_start",
        ("exited with code 1 after", "before it was ready", "RuntimeError: simulated crash at start"),
    ),
    "hangs_at_start": (
        "hang_at_start",
        (
            "lives (pid",
            "is not ready after 4.0 s: awaited GET http://127.0.0.1:",
            "(last answer: connection refused)",
            "hint: it was still loading weights: raise start_timeout in [tool.moeperf.server]",
        ),
    ),
    "out_of_memory": (
        "oom_at_start",
        ("exited with code 1", "hint: out of GPU memory: lower --mem-fraction-static", "torch.OutOfMemoryError"),
    ),
    "missing_kernel": (
        "missing_kernel_at_start",
        ("exited with code 1", "hint: this kernel does not run on this GPU's architecture", "no kernel image"),
    ),
}
INVALID_ROWS = {
    "dies_mid_run": (
        "crash_mid_run=40",
        (
            "same_server",
            "dies_mid_run (simulated) exited with code 1 while measuring c=2 16/16; its log,",
            'ends with: "RuntimeError: simulated crash in a forward pass"',
        ),
    ),
    "hangs_mid_run": (
        "hang_mid_run=40",
        (
            "same_server",
            "hangs_mid_run (simulated) sent nothing for 1.5 s (request_timeout), with",
            "of 8 requests finished, while measuring c=2 16/16",
        ),
    ),
    "storm_of_503": ("http_503", ("no_failed_requests", "http: status 503")),
    "in_band_error": ("in_band_error@3", ("no_in_band_errors", "got an error inside a stream with status 200")),
    "truncated_stream": ("truncated_stream@3", ("streams_complete", "did not end as the protocol says")),
    "early_eos": ("early_eos@3", ("finish_reason_length", "asked 16, the server counted 8, 8 arrived")),
    "wrong_token_count": ("wrong_token_count@3", ("tokens_as_requested", "asked 16, the server counted 17")),
    "cache_hits": ("cache_hits", ("cached_tokens_as_declared", "64 of 128 prompt tokens came from the prefix cache")),
    "wrong_backend": (
        "silent_fallback=triton",
        ("backend_evidence", "asked for flashinfer_cutlass, but triton ran", "/server_info simulated.executed_runner"),
    ),
}


@pytest.fixture(scope="module")
def by_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Finished]]:
    rows = {**START_ROWS, **INVALID_ROWS}
    tables = ""
    for name, (fault, _) in rows.items():
        asked = ', "--moe-runner-backend=flashinfer_cutlass"' if name == "wrong_backend" else ""
        tables += f'[backends.{name}]\nargs = ["--fault={fault}"{asked}]\n'
    world = World(
        tmp_path_factory.mktemp("matrix"),
        config='request_timeout = "1.5s"\n' + tables + '[backends.healthy]\nargs = ["--time-scale=3"]\n',
        server='start_timeout = "4s"\n',
        scale=0.3,
    )
    with cleaned_up(world):
        yield world, world.run(f"--backend={','.join(rows)},healthy", "--update-baselines")


@pytest.mark.parametrize("name", START_ROWS)
def test_a_server_that_does_not_start(name: str, by_itself: tuple[World, Finished]) -> None:
    _, finished = by_itself
    section = finished.section(f"test_decode[{name}-2]")
    assert section.startswith(f"{name} (simulated) ")
    for part in START_ROWS[name][1]:
        assert part in section
    assert f"ERROR test_serving.py::test_decode[{name}-2]" in finished.raw


@pytest.mark.parametrize("name", INVALID_ROWS)
def test_a_server_that_answers_wrongly(name: str, by_itself: tuple[World, Finished]) -> None:
    _, finished = by_itself
    section = finished.section(f"test_decode[{name}-2]")
    assert section.startswith("INVALID c=2: ")
    for part in INVALID_ROWS[name][1]:
        assert part in section
    refused = (
        "triton ran instead of flashinfer_cutlass." if name == "wrong_backend" else "Only valid runs make a baseline."
    )
    assert f"Not recorded: {refused}" in section


def test_what_faults_leave_behind(by_itself: tuple[World, Finished]) -> None:
    world, finished = by_itself
    assert finished.code == 1
    assert f"{len(INVALID_ROWS)} failed, 1 passed, {len(START_ROWS)} errors" in finished.raw
    assert "During handling of the above exception" not in finished.raw
    (entry,) = world.baselines()
    assert entry.baseline.cell.backend == "healthy"
    assert world.kept_runs() == 0
    world.assert_nothing_is_left()


# Faults that strike in the middle of a run.


def _stop(record: ServerRecord) -> None:
    os.kill(record.pid, signal.SIGSTOP)


def _kill_server(record: ServerRecord) -> None:
    os.kill(record.pid, signal.SIGKILL)


def _kill_guardian(record: ServerRecord) -> None:
    os.kill(record.guardian_pid, signal.SIGKILL)


STRUCK_ROWS = {
    "stopped": (_stop, "stopped (simulated) sent nothing for 1.5 s (request_timeout)"),
    "killed": (_kill_server, "killed (simulated) was ended by SIGKILL while measuring c=2 16/16; somebody sent it"),
    "unguarded": (_kill_guardian, "unguarded (simulated) ended (nobody saw its exit code) while measuring c=2 16/16"),
}


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Finished]]:
    names = (*STRUCK_ROWS, "compiling")
    world = World(
        tmp_path_factory.mktemp("struck"),
        config='request_timeout = "1.5s"\n' + "".join(f"[backends.{name}]\n" for name in names),
        scale=3.0,
    )
    with cleaned_up(world):
        invocation = world.start(f"--backend={','.join(names)}", "--update-baselines")
        for name, (strike, _) in STRUCK_ROWS.items():
            strike(world.server_in_a_run(name))
        invocation.wait_for("compiling c=2 16/16 | candidate | warm-up")
        set_fault(world.server_in_a_run("compiling"), "compile_stall=800")
        yield world, invocation.end()


@pytest.mark.parametrize("name", STRUCK_ROWS)
def test_a_server_that_is_struck_in_a_run(name: str, struck: tuple[World, Finished]) -> None:
    _, finished = struck
    section = finished.section(f"test_decode[{name}-2]")
    assert section.startswith("INVALID c=2: same_server failed in 1 of 1 run.")
    assert STRUCK_ROWS[name][1] in section


def test_a_compile_stall_voids_its_run_which_is_repeated(struck: tuple[World, Finished]) -> None:
    world, finished = struck
    lines = [line for line in finished.raw.splitlines() if "compiling c=2 16/16 | candidate" in line]
    stalled = [line for line in lines if line.endswith("set aside: no_stall_in_window")]
    assert len(stalled) == 1
    assert len(lines) >= 5  # a warm-up, the void one and three that count
    (entry,) = world.baselines()
    assert entry.baseline.cell.backend == "compiling"
    assert len(entry.baseline.runs) == 3
    assert finished.code == 1
    world.assert_nothing_is_left()


def test_a_port_that_is_taken_is_left_for_another(make_world: Callable[..., World], tmp_path: Path) -> None:
    thief = tmp_path / "python"
    thief.write_text(PORT_THIEF)
    thief.chmod(0o755)
    world = make_world(config=f'[backends.robbed]\npython = "{thief}"\n')
    finished = world.run("--backend=robbed", "--update-baselines", MOEPERF_TEST_STOLEN=str(tmp_path / "stolen"))
    assert (finished.code, (tmp_path / "stolen").exists()) == (0, True), finished.raw
    logs = [path.read_text() for path in world.runtime.glob("launches/*/server.log")]
    assert sum("address already in use" in log for log in logs) == 1
    assert len(logs) == 2


PORT_THIEF = """\
#!/usr/bin/env python3
'''Takes the server's port before the server can, once.'''
import os, socket, sys
from pathlib import Path

marker = Path(os.environ["MOEPERF_TEST_STOLEN"])
if "--port" in sys.argv and not marker.exists():
    marker.touch()
    port = int(sys.argv[sys.argv.index("--port") + 1])
    taken = socket.create_server(("127.0.0.1", port))
    os.set_inheritable(taken.fileno(), True)
os.execv(PYTHON, [PYTHON, *sys.argv[1:]])
""".replace("PYTHON", repr(sys.executable))


STEPPED_CLOCK = """\
import sys, time

if "pytest_moeperf.load.worker" in sys.orig_argv:
    real_time_ns, started_s = time.time_ns, time.monotonic()
    time.time_ns = lambda: real_time_ns() + (50_000_000 if time.monotonic() - started_s > 0.6 else 0)
"""


def test_a_clock_that_is_stepped_in_a_run_voids_it(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.stepped]\n", scale=2.5)
    (world.folder / "sitecustomize.py").write_text(STEPPED_CLOCK)
    finished = world.run(
        "--backend=stepped", "--update-baselines", "--perf-report=report", PYTHONPATH=str(world.folder)
    )
    assert "set aside: clocks_monotonic" in finished.raw
    assert (
        "the wall clock was stepped by +50.00 ms inside the run" in (world.folder / "report/moeperf.json").read_text()
    )


def test_a_client_that_can_not_keep_up_voids_its_runs(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.one]\n", scale=1.0)
    invocation = world.start("--backend=one", "--update-baselines")
    while invocation.process.poll() is None:
        clients = [pid for pid, command in world.processes().items() if "pytest_moeperf.load.worker" in command]
        for number, pause_s in ((signal.SIGSTOP, 0.04), (signal.SIGCONT, 0.01)):
            for pid in clients:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(pause_s)
    finished = invocation.end()
    assert finished.code == 1
    section = finished.section("test_decode[one-2]")
    assert section.startswith("INVALID c=2: ")
    assert "client_not_bottleneck failed in" in section
    assert "of the reads held more than one event" in section
    assert world.baselines() == []


# Files that can't be written.

FULL_DISK = """\
import errno, os

real_fsync = os.fsync

def fsync(descriptor):
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if os.environ.get("MOEPERF_TEST_FULL") and ("/baselines/simulated/none/full/" in path or "/report/" in path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    real_fsync(descriptor)

os.fsync = fsync
"""


def test_a_full_disk_keeps_the_runs_and_the_verdicts(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.full]\n[backends.healthy]\n", conftest=FULL_DISK)
    arguments = ("--backend=full,healthy", "--update-baselines", "--perf-report=report")
    finished = world.run(*arguments, MOEPERF_TEST_FULL="1")
    assert finished.code == 1
    assert "can't be written: No space left on device; what was there before is unchanged" in finished.section(
        "test_decode[full-2]"
    )
    assert "moeperf.json: the report can't be written: No space left on device" in finished.text
    assert "the verdicts of this session stand; only this report is missing" in finished.text
    assert "2 passed, 1 error" in finished.raw
    assert [entry.baseline.cell.backend for entry in world.baselines()] == ["healthy"]
    assert list((world.folder / "report").iterdir()) == []
    kept = world.kept_runs()
    assert kept >= 4
    assert f"{kept} finished runs are kept in" in finished.text
    # With room on the disk again, nothing has to be measured again.
    again = world.run("--backend=full", "--update-baselines", "--perf-continue")
    assert again.code == 0, again.raw
    assert "continuing with launch" in again.raw
    assert "candidate is up" not in again.raw
    assert [entry.baseline.cell.backend for entry in world.baselines()] == ["full", "healthy"]
    assert world.kept_runs() == 0


def _without_override() -> None:
    """Even root then needs the permission bits."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def test_a_read_only_folder_is_named_and_costs_no_verdict(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.healthy]\n")
    for folder in ("runtime", "locks"):
        (world.folder / folder).mkdir(mode=0o700)
    world.folder.chmod(0o500)
    try:
        probe = subprocess.run(["touch", world.folder / "probe"], preexec_fn=_without_override, check=False)  # noqa: S607
        if probe.returncode == 0:
            pytest.skip("nothing is read-only to this user")
        # The output file of an invocation lies in the folder too.
        world.folder.chmod(0o700)
        invocation = world.start("--backend=healthy", "--perf-report=report", preexec=_without_override)
        world.folder.chmod(0o500)
        finished = invocation.end()
        world.folder.chmod(0o700)
        invocation = world.start("--backend=healthy", "--update-baselines", preexec=_without_override)
        world.folder.chmod(0o500)
        recording = invocation.end()
    finally:
        world.folder.chmod(0o700)
    assert finished.code == 1
    assert finished.section("test_decode[healthy-2]").startswith("NO_BASELINE")
    assert "runs are not kept for --perf-continue:" in finished.text
    # What was to be written is known to be lost before it is measured.
    assert recording.code == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --update-baselines: nothing could be recorded in" in recording.raw
    assert "can't be written by this user" in recording.raw
    assert "launching" not in recording.raw


IMPATIENT = """
from pytest_moeperf.baselines.files import FileStore

FileStore.__init__.__kwdefaults__["lock_timeout_s"] = 0.5
"""


def test_a_baseline_that_stays_locked_is_an_error_and_the_runs_are_kept(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.healthy]\n", conftest=IMPATIENT)
    folder = world.folder / "baselines" / ".locks"
    folder.mkdir(parents=True)
    with filelock.FileLock(folder / "store.lock"):
        finished = world.run("--backend=healthy", "--update-baselines")
    assert finished.code == 1
    assert "not written: the store was locked for 0.5 s by" in finished.section("test_decode[healthy-2]")
    assert world.baselines() == []
    kept = world.kept_runs()
    assert f"{kept} finished runs are kept in" in finished.text
    again = world.run("--backend=healthy", "--update-baselines", "--perf-continue")
    assert again.code == 0, again.raw
    assert "candidate is up" not in again.raw
    assert len(world.baselines()) == 1


def test_two_invocations_on_the_same_cells_keep_the_runs_of_one(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.healthy]\n")
    first = world.start("--backend=healthy", "--update-baselines")
    eventually(lambda: world.kept_runs() > 0, first.output)
    first.send(signal.SIGSTOP)
    try:
        kept = world.kept_runs()
        second = world.start("--backend=healthy", "--update-baselines")
        second.wait_for("runs are not kept for --perf-continue:")
        assert "another pytest measures the same cells here" in " ".join(second.output().split())
        assert world.kept_runs() == kept
    finally:
        first.send(signal.SIGCONT)
    assert first.end().code == 0
    assert second.end().code == 0
    assert world.kept_runs() == 0


def test_a_baseline_locked_by_another_process_is_waited_for(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.healthy]\n")
    folder = world.folder / "baselines" / ".locks"
    folder.mkdir(parents=True)
    with filelock.FileLock(folder / "store.lock"):
        invocation = world.start("--backend=healthy", "--update-baselines")
        invocation.wait_for("NO_BASELINE")
        time.sleep(0.5)
        assert invocation.process.poll() is None
    assert invocation.end().code == 0
    assert len(world.baselines()) == 1


# Interruptions.

SLOW_BETWEEN = """\
import os, time

def pytest_runtest_logfinish(nodeid):
    if os.environ.get("MOEPERF_TEST_PAUSE") and "-2]" in nodeid:
        print("\\nbetween the tests", flush=True)
        time.sleep(60)
"""


def _continued(world: World, *, launches: int) -> Finished:
    """The invocation that goes on from what was kept, and how often it had to launch."""
    finished = world.run("--backend=one", "--update-baselines", "--perf-continue")
    assert finished.code == 0, finished.raw
    assert "2 passed" in finished.raw
    assert finished.raw.count("candidate is up") == launches
    assert len(world.baselines()) == 2
    assert world.kept_runs() == 0
    return finished


def test_ctrl_c_while_a_server_starts(make_world: Callable[..., World]) -> None:
    world = make_world(config='[backends.one]\nargs = ["--fault=slow_start=60"]\n')
    invocation = world.start("--backend=one", "--update-baselines")
    invocation.wait_for("loading weights")
    invocation.send(signal.SIGINT)
    finished = invocation.end()
    assert finished.code == 2
    assert "KeyboardInterrupt" in finished.raw
    assert world.kept_runs() == 0
    assert world.baselines() == []


@pytest.mark.parametrize(("phase", "kept"), [("warm-up", 0), ("measuring", 4), ("between", 8)])
def test_ctrl_c_while_measuring(phase: str, kept: int, make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.one]\n", test=BOTH, conftest=SLOW_BETWEEN)
    pause = "1" if phase == "between" else ""
    invocation = world.start("--backend=one", "--update-baselines", MOEPERF_TEST_PAUSE=pause)
    if phase == "warm-up":
        world.server_in_a_run("one")
    elif phase == "measuring":
        invocation.wait_for("one c=4 16/16 | candidate | warm-up")
    else:
        invocation.wait_for("between the tests")
    invocation.send(signal.SIGINT)
    finished = invocation.end()
    assert finished.code == 2
    world.assert_nothing_is_left()
    assert world.kept_runs() >= kept
    assert (world.kept_runs() == 0) == (kept == 0)
    assert ("--perf-continue (goes on from them)" in finished.text) == (kept > 0)
    if phase == "measuring":
        assert "continuing with launch" in _continued(world, launches=1).raw
    elif phase == "between":
        assert "continuing with launch" in _continued(world, launches=0).raw


def _narrow(world: World) -> None:
    """Margins within which one stored launch, whose variance is assumed, decides nothing."""
    config = world.folder / "moeperf.toml"
    text = config.read_text("utf-8")
    for wide, narrow in (("50%", "3%"), ("45%", "3%"), ("20%", "2%")):
        assert wide in text
        text = text.replace(wide, narrow)
    config.write_text(text, "utf-8")


def test_runs_that_were_recorded_are_no_undecided_ones(make_world: Callable[..., World]) -> None:
    """An undecided level is extended while the estimate lies inside the margins: the next update measures again."""
    world = make_world(config="[backends.one]\n")
    _narrow(world)
    assert world.run("--backend=one", "--update-baselines").code == 0
    extended = world.run("--backend=one", "--update-baselines")
    assert extended.code == 0, extended.raw
    assert "one c=2 16/16: INCONCLUSIVE" in extended.raw
    again = world.run("--backend=one", "--update-baselines", "--perf-continue")
    assert again.raw.count("candidate is up") == 1, again.raw
    assert "continuing with launch" not in again.raw


def test_an_undecided_invocation_is_gone_on_from(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.one]\n")
    _narrow(world)
    assert world.run("--backend=one", "--update-baselines").code == 0
    undecided = world.run("--backend=one")
    assert undecided.code == 1
    assert undecided.section("test_decode[one-2]").startswith("INCONCLUSIVE")
    assert world.kept_runs() == 0, "they would be told as those of an interrupted invocation"
    again = world.run("--backend=one", "--perf-continue")
    launches = undecided.raw.count("candidate is up")
    assert again.raw.count("continuing with launch") == launches >= 1
    assert "candidate is up" not in again.raw


def test_a_killed_pytest_leaves_nothing_but_its_finished_runs(make_world: Callable[..., World]) -> None:
    world = make_world(config="[backends.one]\n", test=BOTH)
    invocation = world.start("--backend=one", "--update-baselines")
    invocation.wait_for("one c=4 16/16 | candidate | warm-up")
    world.server_in_a_run("one")
    invocation.process.kill()
    assert invocation.end().code == -signal.SIGKILL
    world.assert_nothing_is_left()
    assert world.kept_runs() >= 4
    assert world.baselines() == []
    assert "continuing with launch" in _continued(world, launches=1).raw


def test_a_killed_worker_is_named_and_leaves_nothing(make_world: Callable[..., World]) -> None:
    pytest.importorskip("xdist")
    world = make_world(config="[backends.one]\n")
    invocation = world.start("--backend=one", "--update-baselines", "-n1")
    world.server_in_a_run("one")
    os.kill(_worker(world, invocation), signal.SIGKILL)
    finished = invocation.end()
    assert finished.code == 1
    assert "crashed while running 'test_serving.py::test_decode[one-2]'" in finished.raw
    # The worker that replaces it runs the test again, but a crash stays a failure.
    assert "1 failed, 1 passed" in finished.raw
    assert world.kept_runs() == 0


def test_a_killed_controller_takes_its_workers_and_their_servers_with_it(make_world: Callable[..., World]) -> None:
    pytest.importorskip("xdist")
    world = make_world(config="[backends.one]\n")
    invocation = world.start("--backend=one", "--update-baselines", "-n1")
    world.server_in_a_run("one")
    invocation.process.kill()
    invocation.end()
    world.assert_nothing_is_left()
    assert world.baselines() == []


def _worker(world: World, invocation: Invocation) -> int:
    found: list[int] = []

    def there() -> bool:
        found[:] = [
            pid
            for pid, command in world.processes().items()
            if "exec(eval(sys.stdin.readline()))" in command and pid != invocation.process.pid
        ]
        return bool(found)

    eventually(there, lambda: f"no worker among {world.processes()}")
    return found[0]

"""Servers are shared, and never lost: real processes, real kills."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pytest_moeperf.errors import ServerError, UsageProblem
from pytest_moeperf.model.server import LaunchPlan, ServerProgress, ServerRecord, WaitNotice
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers import launch as launch_module
from pytest_moeperf.servers import lease as lease_module
from pytest_moeperf.servers import proctree
from pytest_moeperf.servers.lease import lease
from pytest_moeperf.servers.ports import free_port
from pytest_moeperf.servers.problems import DevicesBusy, RuntimeFolderError, ServerExited, ServerNotReady
from pytest_moeperf.servers.proof import guardian_of, process_of
from pytest_moeperf.servers.registry import list_left, list_servers, reclaim, stop_server

HERE = Path(__file__).parent
FAKE = (sys.executable, str(HERE / "servers_fake_server.py"), "--port={port}")
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of the test's own, in a path too long for a Unix socket. No server outlives the test."""
    folder = tmp_path / ("long" * 30)
    monkeypatch.setenv("MOEPERF_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("MOEPERF_LOCK_DIR", str(tmp_path / "locks"))
    yield folder
    left = list_servers()
    for record in left:
        stop_server(record, force=True)
    assert left == ()
    assert list_left() == ()


def plan(*arguments: str, digest: str = "spec", **fields: object) -> LaunchPlan:
    values = {"name": "fake", "stop_timeout_s": 1.0, "start_timeout_s": PATIENCE_S, **fields}
    return LaunchPlan(command=(*FAKE, *arguments), spec_digest=digest, **values)  # type: ignore[arg-type]


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive_processes_of(launch_id: str) -> list[int]:
    return [
        int(name) for name in os.listdir("/proc") if name.isdecimal() and proctree.launch_of(int(name)) == launch_id
    ]


def all_gone(record: ServerRecord) -> bool:
    return (
        not alive_processes_of(record.launch_id)
        and not proctree.is_alive(guardian_of(record))
        and sorted(each.name for each in Path(record.folder).iterdir()) == ["guardian.log", "server.log"]
    )


class HolderProcess:
    """Another process that leases a server."""

    def __init__(self, *arguments: str, command: tuple[str, ...] = FAKE, digest: str = "spec") -> None:
        program = [sys.executable, str(HERE / "servers_holder.py"), f"--command={json.dumps(command)}"]
        self.process = subprocess.Popen(
            [*program, f"--digest={digest}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        )

    def record(self) -> ServerRecord:
        assert self.process.stdout is not None
        return ServerRecord.from_dict(json.loads(self.process.stdout.readline()))

    def leave(self, word: str = "") -> None:
        self.process.communicate(f"{word}\n", timeout=PATIENCE_S)

    def kill(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE_S)


def test_a_lease_launches_a_ready_server_and_ends_it() -> None:
    progress: list[ServerProgress] = []
    with lease(plan(), label="me", on_progress=progress.append) as server:
        assert server.is_alive()
        assert server.same_process()
        assert server.exit_status() is None
        assert server.ask_health().good
        assert server.start_s > 0
        assert server.started_here
        (record,) = list_servers()
        assert record == server.record
        assert (record.state, [holder.label for holder in record.holders]) == ("ready", ["me"])
        assert Path(record.log_path).stat().st_mode & 0o777 == 0o600
    assert all_gone(server.record)
    assert {each.phase for each in progress} == {"launched"}


def test_leases_of_one_spec_share_one_server_and_the_last_out_stops_it() -> None:
    with lease(plan(), label="outer") as outer:
        with lease(plan(), label="inner") as inner:
            assert (inner.launch_id, inner.started_here) == (outer.launch_id, False)
            (record,) = list_servers()
            assert [holder.label for holder in record.holders] == ["outer", "inner"]
        assert outer.is_alive()
    assert all_gone(outer.record)


def test_another_spec_and_a_fresh_lease_get_servers_of_their_own() -> None:
    with (
        lease(plan(), label="a", fresh=True) as fresh,
        lease(plan(), label="b") as first,
        lease(plan(digest="other"), label="c") as other,
        lease(plan(), label="d") as shared,
    ):
        assert len({first.pid, other.pid, fresh.pid}) == 3
        assert shared.pid == first.pid
    assert list_servers() == ()


def test_two_processes_that_lease_at_once_get_one_server(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    command = (*FAKE, f"--starts-file={starts}", "--ready-after=0.5")
    holders = [HolderProcess(command=command) for _ in range(2)]
    first, second = (holder.record() for holder in holders)
    assert first.launch_id == second.launch_id
    assert len(starts.read_text().splitlines()) == 1
    holders[0].leave()
    assert proctree.is_alive(process_of(first))
    holders[1].leave()
    assert eventually(lambda: all_gone(first))


@pytest.mark.parametrize("end", ["return", "raise", "SIGTERM", "SIGINT", "SIGKILL", "SIGHUP"])
def test_the_whole_tree_ends_however_the_owner_ends(end: str, tmp_path: Path) -> None:
    daemon = tmp_path / "daemon"
    holder = HolderProcess(command=(*FAKE, f"--daemon-pid-file={daemon}", "--ignore-sigterm"))
    record = holder.record()
    assert int(daemon.read_text()) in alive_processes_of(record.launch_id)
    if end in ("return", "raise"):
        holder.leave(end)
    else:
        holder.kill(getattr(signal, end))
    # The guardian is the last to go: no process of the launch outlives it, not for a moment.
    assert eventually(lambda: not proctree.is_alive(guardian_of(record)))
    assert all_gone(record)


def test_a_forked_child_of_a_killed_owner_does_not_keep_the_server(tmp_path: Path) -> None:
    holder = HolderProcess("--fork")
    record = holder.record()
    holder.process.kill()
    holder.process.wait(PATIENCE_S)
    assert eventually(lambda: all_gone(record))
    holder.process.communicate(timeout=PATIENCE_S)


def test_a_killed_guardian_takes_the_server_with_it_and_its_holder_ends_the_rest(tmp_path: Path) -> None:
    daemon = tmp_path / "daemon"
    with lease(plan(f"--daemon-pid-file={daemon}"), label="me") as server:
        os.kill(server.record.guardian_pid, signal.SIGKILL)
        assert eventually(lambda: not alive_processes_of(server.launch_id))
        assert not server.is_alive()
        with pytest.raises(ServerExited) as caught:
            server.check(doing="while measuring c=64")
        assert str(caught.value) == (
            f"fake ended (nobody saw its exit code) while measuring c=64\n  its log, {server.log_path}, is empty"
        )
    assert list_servers() == ()
    assert not (Path(server.record.folder) / "record.json").exists()


def test_what_a_killed_guardian_and_a_killed_owner_left_ends_without_anybody_looking(tmp_path: Path) -> None:
    children = tmp_path / "children"
    holder = HolderProcess(command=(*FAKE, f"--daemon-pid-file={tmp_path / 'daemon'}", f"--children={children}"))
    record = holder.record()
    # The owner first, stopped, so that it cannot clean up.
    holder.process.send_signal(signal.SIGSTOP)
    os.kill(record.guardian_pid, signal.SIGKILL)
    holder.kill(signal.SIGKILL)
    pids = [record.pid, *map(int, (tmp_path / "daemon").read_text().split()), *map(int, children.read_text().split())]
    assert len(pids) == 4
    assert eventually(lambda: not any(map(proctree.start_time_of, pids)))
    assert eventually(lambda: all_gone(record))
    assert "the guardian was killed; ending " in (Path(record.folder) / "guardian.log").read_text()
    assert not record.cgroup or not Path(record.cgroup).exists()


def test_what_is_left_when_all_were_killed_is_named_by_a_listing_and_ended_by_stop(tmp_path: Path) -> None:
    with everybody_killed(tmp_path) as (record, plain, hidden):
        assert list_servers() == ()
        (left,) = list_left()
        # One that hides is proven to be of the launch by its control group alone.
        proven = sorted([plain, hidden] if record.cgroup else [plain])
        assert [process.pid for process in left.processes] == proven
        pids = ", ".join(f"pid {pid}" for pid in proven)
        text = f"{len(proven)} process{'es' * (len(proven) > 1)} ({pids})"
        assert left.text() == text
        assert all(map(proctree.start_time_of, (plain, hidden)))
        assert stop_server(record.launch_id[:8]) == f"ended what {record.launch_id[:8]}, fake left: {text}"
        assert not any(map(proctree.start_time_of, proven))
        assert all_gone(record)


def test_a_launch_that_needs_the_device_ends_what_is_left_there_and_says_so(tmp_path: Path) -> None:
    notices: list[WaitNotice] = []
    with everybody_killed(tmp_path, devices=("GPU-1",)) as (record, plain, _):
        with lease(plan(digest="other", devices=("GPU-2",)), label="me", on_wait=notices.append):
            assert proctree.start_time_of(plain)
        assert notices == []
        with lease(plan(digest="other", devices=("GPU-1",)), label="me", on_wait=notices.append):
            assert not proctree.start_time_of(plain)
    assert notices[0].what == f"what launch {record.launch_id[:8]} left to end"
    assert f"pid {plain}" in notices[0].holder
    assert notices[0].holder.endswith("), of fake")


def test_who_merely_carries_the_variables_of_a_launch_is_left_alone(tmp_path: Path) -> None:
    with everybody_killed(tmp_path) as (record, plain, _):
        environment = {proctree.LAUNCH_VARIABLE: record.launch_id, "MOEPERF_GUARDIAN": "1.1"}
        bystander = subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE)
        assert eventually(lambda: proctree.launch_of(bystander.pid) == record.launch_id)
        assert list_servers() == ()
        assert bystander.pid not in [process.pid for left in list_left() for process in left.processes]
        with lease(plan(), label="me"):
            stop_server(record.launch_id)
        assert not proctree.start_time_of(plain)
        bystander.communicate(b"\n", timeout=PATIENCE_S)
        assert bystander.returncode == 0


def test_a_server_whose_socket_is_gone_is_stopped_all_the_same() -> None:
    with lease(plan(), label="first", keep_s=600) as server:
        (Path(server.record.folder) / "socket").unlink()
        with pytest.raises(UsageProblem, match="fake is in use by pid"):
            stop_server(server.launch_id)
        assert server.is_alive()
        assert stop_server(server.launch_id, force=True) == f"stopped {server.launch_id[:8]}, fake"
        assert all_gone(server.record)


@contextlib.contextmanager
def everybody_killed(tmp_path: Path, devices: tuple[str, ...] = ()) -> Iterator[tuple[ServerRecord, int, int]]:
    """Owner, guardian and its sweeper, with SIGKILL; the record, and what lives on: a plain child and one that hides."""
    children = tmp_path / "children"
    holder = HolderProcess(f"--devices={','.join(devices)}", command=(*FAKE, f"--children={children}"))
    record = holder.record()
    plain, hidden = map(int, children.read_text().split())
    try:
        holder.process.send_signal(signal.SIGSTOP)
        os.kill(psutil.Process(record.guardian_pid).ppid(), signal.SIGKILL)
        os.kill(record.guardian_pid, signal.SIGKILL)
        holder.kill(signal.SIGKILL)
        assert eventually(lambda: not proctree.is_alive(process_of(record)))
        yield record, plain, hidden
    finally:
        for pid in (plain, hidden):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reclaim(Path(record.folder).parents[1], devices, tell=lambda *_news: None)


def test_a_server_that_dies_is_told_with_its_exit_code() -> None:
    with lease(plan("--say=all is well"), label="me") as server:
        os.kill(server.pid, signal.SIGKILL)
        assert eventually(lambda: not server.is_alive())
        assert server.exit_status() == -signal.SIGKILL
        with pytest.raises(ServerExited) as caught:
            server.check(doing="while measuring c=64")
        assert str(caught.value) == (
            "fake was ended by SIGKILL while measuring c=64\n"
            "  hint: somebody sent it SIGKILL; the kernel does so when memory runs out: see dmesg\n"
            f"  last lines of {server.log_path}:\n"
            "    | all is well"
        )
        with lease(plan(), label="again") as again:
            assert again.launch_id != server.launch_id


def test_a_warm_server_waits_for_the_next_lease_and_ends_when_its_time_is_over() -> None:
    with lease(plan(), label="first", keep_s=600) as first:
        pass
    (record,) = list_servers()
    assert (record.state, record.holders, record.keep_until is not None) == ("warm", (), True)
    with lease(plan(), label="second", keep_s=0.3) as second:
        assert second.launch_id == first.launch_id
        assert list_servers()[0].keep_until is None
    assert eventually(lambda: all_gone(first.record))
    log = (Path(first.record.folder) / "guardian.log").read_text()
    assert log.splitlines()[-2].endswith("ending: its keep time is over")


def test_a_warm_server_that_hangs_is_replaced() -> None:
    with lease(plan(), label="first", keep_s=600) as first:
        connection = http.client.HTTPConnection(first.host, first.port, timeout=5)
        connection.request("GET", "/hang")
        connection.getresponse().read()
        connection.close()
    with lease(plan(), label="second") as second:
        assert second.launch_id != first.launch_id
    assert all_gone(first.record)


def test_a_shared_server_that_hangs_is_named_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "_HEALTH_TRIES", 1)
    holder = HolderProcess()
    record = holder.record()
    os.kill(record.pid, signal.SIGSTOP)
    (held,) = list_servers()[0].holders
    with pytest.raises(ServerNotReady) as caught, lease(plan(), label="me"):
        pass
    assert caught.value.what.startswith(
        f"fake (pid {record.pid}) runs and does not answer GET {record.url}/health; "
        f"it is held by pid {held.pid} (holder, since {held.since})"
    )
    assert caught.value.hint == f"stop it with: moeperf servers stop {record.launch_id[:8]} --force"
    assert proctree.is_alive(process_of(record))
    holder.kill(signal.SIGKILL)
    assert eventually(lambda: all_gone(record))


def test_a_server_that_exits_says_why() -> None:
    lines = ["--say=Load weight begin. avail mem=79.1 GB", "--say=error: unrecognized arguments: --moe-runer-backend"]
    with pytest.raises(ServerExited) as caught, lease(plan(*lines, "--exit-code=2"), label="me"):
        pass
    error = caught.value
    assert (error.exit_code, error.port_taken) == (2, False)
    assert str(error).replace(error.what, "WHAT") == (
        "WHAT\n"
        "  hint: this engine version does not know --moe-runer-backend: see its --help, and args in "
        "[tool.moeperf.server] and [tool.moeperf.backends]\n"
        f"  last lines of {error.log_path}:\n"
        "    | Load weight begin. avail mem=79.1 GB\n"
        "    | error: unrecognized arguments: --moe-runer-backend"
    )
    assert error.what.startswith("fake exited with code 2 after ")
    assert error.what.endswith(", before it was ready")
    assert list_servers() == ()


def test_a_server_that_never_gets_ready_says_what_was_awaited() -> None:
    unready = plan(
        "--health=503",
        "--say=Load weight begin. avail mem=79.1 GB",
        start_timeout_s=1.5,
        ready_log_marker="The server is fired up",
    )
    progress: list[ServerProgress] = []
    with pytest.raises(ServerNotReady) as caught, lease(unready, label="me", on_progress=progress.append):
        pass
    error = caught.value
    pid = int(error.what.split("(pid ")[1].split(")")[0])
    url = error.what.split("awaited GET ")[1].split(" ")[0]
    assert str(error) == (
        f"fake lives (pid {pid}) but is not ready after 1.5 s: awaited GET {url} = 200 (last answer: 503) "
        'and the log line "The server is fired up" (not seen)\n'
        "  hint: it was still loading weights: raise start_timeout in [tool.moeperf.server]\n"
        f"  last lines of {error.log_path}:\n"
        "    | Load weight begin. avail mem=79.1 GB"
    )
    assert (progress[-1].phase, progress[-1].detail) == ("loading weights", "Load weight begin. avail mem=79.1 GB")
    assert proctree.start_time_of(pid) is None


def test_a_taken_port_is_retried_on_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = tmp_path / "starts"
    with lease(plan(digest="squatter"), label="squatter") as taken:
        ports = iter([taken.port, 0])
        monkeypatch.setattr(lease_module, "free_port", lambda host: next(ports) or free_port(host))
        with lease(plan(f"--starts-file={starts}"), label="me") as server:
            assert server.port != taken.port
    assert [line.split()[1] for line in starts.read_text().splitlines()] == [str(taken.port), str(server.port)]


def test_a_stranger_behind_the_port_is_not_taken_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with lease(plan(digest="stranger"), label="stranger") as stranger:
        monkeypatch.setattr(lease_module, "free_port", lambda _host: stranger.port)
        slow = plan("--ready-after=60", start_timeout_s=0.5)
        with pytest.raises(ServerNotReady) as caught, lease(slow, label="me"):
            pass
    assert f"(last answer: answered by pid {stranger.pid}, which is not this server)" in caught.value.what


def test_a_program_that_is_not_there_is_named() -> None:
    missing = LaunchPlan(command=("/no/such/engine", "--port={port}"), name="fake", spec_digest="spec")
    with pytest.raises(ServerError) as caught, lease(missing, label="me"):
        pass
    assert str(caught.value) == (
        "fake could not be started: No such file or directory: /no/such/engine\n"
        "  hint: the command is: /no/such/engine --port={port}"
    )
    assert list_servers() == ()


def test_a_server_of_another_spec_on_the_same_gpu_is_named_not_killed() -> None:
    gpu = ("GPU-1",)
    with lease(plan(devices=gpu, name="triton"), label="first", keep_s=600) as first:
        with pytest.raises(DevicesBusy) as caught, lease(plan(digest="other", devices=gpu, name="cutedsl"), label="me"):
            pass
        (held,) = list_servers()[0].holders
        assert str(caught.value) == (
            f"cutedsl cannot start: triton (launch {first.launch_id[:8]}, pid {first.pid}) is on GPU-1, "
            f"held by pid {os.getpid()} (first, since {held.since})\n"
            "  hint: this process holds it itself: end that lease first"
        )
        with lease(plan(digest="elsewhere", devices=("GPU-2",)), label="me") as elsewhere:
            assert elsewhere.is_alive()
    (warm,) = list_servers()
    with pytest.raises(DevicesBusy) as caught, lease(plan(digest="other", devices=gpu, name="cutedsl"), label="me"):
        pass
    assert str(caught.value) == (
        f"cutedsl cannot start: triton (launch {first.launch_id[:8]}, pid {first.pid}) is on GPU-1, "
        f"held by nobody, kept warm until {warm.keep_until}\n"
        f"  hint: moeperf servers stop {first.launch_id[:8]}"
    )
    assert first.is_alive()
    stop_server(first.launch_id[:8])
    assert all_gone(first.record)


def test_a_server_that_an_invocation_keeps_warm_is_not_in_the_way_of_its_own_next_one() -> None:
    gpu = ("GPU-1",)
    with lease(plan(devices=gpu, name="triton"), label="first", session="s1", keep_s=600) as first:
        pass
    assert list_servers()[0].kept_by == "s1"
    with (
        pytest.raises(DevicesBusy, match="kept warm until"),
        lease(plan(digest="other", devices=gpu, name="cutedsl"), label="me", session="s2"),
    ):
        pass
    assert first.is_alive()
    # A fresh launch of the same server is what a confirmation needs.
    with lease(plan(devices=gpu, name="triton"), label="me", session="s1", fresh=True) as fresh:
        assert all_gone(first.record)
        assert [record.launch_id for record in list_servers()] == [fresh.launch_id]
    log = Path(first.record.folder, "guardian.log").read_text("utf-8")
    assert "ending: asked to stop by me: triton needs its devices" in log


def test_a_server_that_somebody_took_up_meanwhile_is_not_stopped() -> None:
    with lease(plan(), label="first", keep_s=600) as first:
        pass
    (warm,) = list_servers()
    with lease(plan(), label="second") as second:
        assert second.launch_id == first.launch_id
        with pytest.raises(UsageProblem) as caught:
            stop_server(warm)
        (held,) = list_servers()[0].holders
        assert str(caught.value) == (
            f"server {first.launch_id[:8]}: fake is in use by pid {os.getpid()} (second, since {held.since})\n"
            "  next: wait for them, or stop it all the same with --force"
        )
        assert second.is_alive()


def test_a_gpu_has_one_server_whichever_runtime_folder_it_is_recorded_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = ("GPU-1",)
    runtime = os.environ["MOEPERF_RUNTIME_DIR"]
    with lease(plan(devices=gpu, name="triton"), label="alice", keep_s=600) as first:
        pass
    monkeypatch.setenv("MOEPERF_RUNTIME_DIR", str(tmp_path / "elsewhere"))
    assert list_servers() == ()
    notices: list[WaitNotice] = []
    with (
        pytest.raises(ServerNotReady) as caught,
        lease(plan(devices=gpu, name="cutedsl"), label="bob", on_wait=notices.append, wait_timeout_s=1.5),
    ):
        pass
    holder = f"pid {first.record.guardian_pid} (triton, launch {first.launch_id[:8]}, alice, since "
    assert notices[0].what == "GPU-1 to launch cutedsl on"
    assert notices[0].holder.startswith(holder)
    assert notices[0].holder.endswith(") has it")
    assert caught.value.what.startswith("gave up waiting for GPU-1 to launch cutedsl on after ")
    assert holder in caught.value.what
    assert list_servers() == ()
    monkeypatch.setenv("MOEPERF_RUNTIME_DIR", runtime)
    stop_server(first.launch_id)
    monkeypatch.setenv("MOEPERF_RUNTIME_DIR", str(tmp_path / "elsewhere"))
    with lease(plan(devices=gpu, name="cutedsl"), label="bob", wait_timeout_s=0.0) as second:
        # One that has ended holds no device, though its guardian lives to tell its exit code.
        os.kill(second.pid, signal.SIGKILL)
        assert eventually(lambda: second.exit_status() is not None)
        with lease(plan(devices=gpu, name="cutedsl"), label="bob", wait_timeout_s=0.0):
            pass


def test_it_waits_for_a_gpu_that_another_process_uses(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = (
        "import sys, pathlib, time\n"
        "from pytest_moeperf.model.server import LaunchPlan\n"
        "from pytest_moeperf.servers.lease import lease\n"
        f"plan = LaunchPlan(command={FAKE!r}, name='triton', spec_digest='other', devices=('GPU-1',))\n"
        "with lease(plan, label='other job') as server:\n"
        f"    pathlib.Path({str(ready)!r}).touch()\n"
        "    sys.stdin.readline()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        text=True,
    )
    assert eventually(ready.exists)
    notices: list[WaitNotice] = []

    def on_wait(notice: WaitNotice) -> None:
        if not notices:
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.close()
        notices.append(notice)

    with lease(plan(devices=("GPU-1",), name="cutedsl"), label="me", on_wait=on_wait) as server:
        assert server.is_alive()
    other.wait(PATIENCE_S)
    assert (
        notices[0]
        .text()
        .startswith(
            f"waiting for GPU-1 to be free for cutedsl: triton is there, held by pid {other.pid} (other job, since "
        )
    )


def test_stop_asks_before_it_ends_a_server_in_use() -> None:
    holder = HolderProcess()
    record = holder.record()
    (held,) = list_servers()[0].holders
    with pytest.raises(UsageProblem) as caught:
        stop_server(record.launch_id)
    assert str(caught.value) == (
        f"server {record.launch_id[:8]}: fake is in use by pid {held.pid} (holder, since {held.since})\n"
        "  next: wait for them, or stop it all the same with --force"
    )
    stop_server(record.launch_id, force=True)
    assert all_gone(record)
    holder.leave()
    with pytest.raises(UsageProblem) as caught:
        stop_server(record.launch_id)
    assert str(caught.value) == f"server {record.launch_id}: there is no such server\n  allowed: no server is running"


def test_the_api_key_is_shared_with_the_server_and_shown_to_nobody() -> None:
    secret = "sk-very-secret"
    key = ApiKey(secret)
    keyed = plan("--api-key={api_key}", "--say=server_args: api_key={api_key}", api_key=key)
    with lease(keyed, label="me") as server, lease(plan(api_key=ApiKey("another-key-1")), label="you") as shared:
        assert (server.api_key, shared.api_key) == (key, key)
        assert server.log_text() == "server_args: api_key=***\n"
        assert server.log_tail() == ("server_args: api_key=***",)
        assert secret not in repr(keyed) + repr(server) + json.dumps(server.record.to_dict())
        assert (Path(server.record.folder) / "key").stat().st_mode & 0o777 == 0o600
    assert not (Path(server.record.folder) / "key").exists()


def test_an_engine_that_reads_its_key_from_a_file_gets_a_private_one() -> None:
    keyed = plan("--say={key_file}", api_key=ApiKey("planted-key-2"), key_file='api-key: "{api_key}"\n')
    with lease(keyed, label="me") as server:
        path = Path(server.log_text().strip())
        assert path.read_text() == 'api-key: "planted-key-2"\n'
        assert path.stat().st_mode & 0o777 == 0o600
        assert "planted" not in "".join(psutil.Process(server.pid).cmdline())
    assert not path.exists()


def test_a_torn_record_loses_no_server(runtime: Path) -> None:
    with lease(plan(), label="me") as server:
        record = Path(server.record.folder) / "record.json"
        record.write_bytes(record.read_bytes()[:100])
        assert list_servers() == ()
        assert record.with_name("record.json.torn").exists()
        assert server.is_alive()
    assert not alive_processes_of(server.launch_id)


def test_a_guardian_that_gets_sigterm_ends_its_server_and_says_why() -> None:
    with lease(plan(), label="me") as server:
        os.kill(server.record.guardian_pid, signal.SIGTERM)
        assert eventually(lambda: all_gone(server.record))
        assert not server.is_alive()
    lines = (Path(server.record.folder) / "guardian.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        f"started pid {server.pid}: fake",
        f"held by pid {os.getpid()} (me)",
        lines[2].split(" ", 1)[1],
        "ending: the guardian got SIGTERM",
        "gone",
    ]
    assert lines[2].split(" ", 1)[1].startswith("ready after ")


def test_a_guardian_says_when_it_had_to_kill() -> None:
    with lease(plan("--ignore-sigterm"), label="me") as server:
        pass
    log = (Path(server.record.folder) / "guardian.log").read_text()
    assert f"SIGKILL for what SIGTERM did not end: {server.pid}\n" in log


def test_the_guardian_needs_no_package_but_its_own() -> None:
    program = (
        f"import sys; sys.path.append({str(HERE.parents[1])!r})\n"
        "import pytest_moeperf.servers.guardian\n"
        "print(*sorted(name for name in sys.modules if name.startswith('pytest_moeperf')))"
    )
    done = subprocess.run([sys.executable, "-S", "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "pytest_moeperf",
        "pytest_moeperf.servers",
        "pytest_moeperf.servers.cgroups",
        "pytest_moeperf.servers.gpu_memory",
        "pytest_moeperf.servers.guardian",
        "pytest_moeperf.servers.launch_folder",
        "pytest_moeperf.servers.lock_files",
        "pytest_moeperf.servers.private_files",
        "pytest_moeperf.servers.proctree",
        "pytest_moeperf.servers.sweeper",
        "pytest_moeperf.servers.wire",
    ]


def test_whoever_waits_for_a_server_to_start_is_told_and_gets_it_when_the_starter_dies(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    holder = HolderProcess(command=(*FAKE, "--ready-after=600", f"--starts-file={starts}"))
    assert eventually(starts.exists)
    (starting,) = list_servers()
    (held,) = starting.holders
    assert starting.state == "starting"
    starter = f"pid {held.pid} (holder, since {held.since}) is starting it"
    with pytest.raises(ServerNotReady) as caught, lease(plan(), label="impatient", wait_timeout_s=0.0):
        pass
    assert str(caught.value) == (
        f"gave up waiting for fake to start after {caught.value.what.split(' after ')[1].split(':')[0]}: {starter}\n"
        "  hint: moeperf servers lists who has what; to wait longer: --perf-budget=8h"
    )
    notices: list[WaitNotice] = []

    def on_wait(notice: WaitNotice) -> None:
        notices.append(notice)
        holder.process.kill()

    with lease(plan(), label="me", on_wait=on_wait) as server:
        assert (server.started_here, server.launch_id == starting.launch_id) == (True, False)
    assert (notices[0].what, notices[0].holder) == ("fake to start", starter)
    holder.process.communicate(timeout=PATIENCE_S)
    assert eventually(lambda: all_gone(starting))


def test_a_full_disk_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    def full(_path: Path) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(launch_module, "create_private", full)
    with pytest.raises(RuntimeFolderError) as caught, lease(plan(api_key=ApiKey("k")), label="me"):
        pass
    (folder,) = (runtime / "launches").iterdir()
    assert str(caught.value) == (
        f"fake could not be started: {folder} cannot be written: No space left on device\n"
        "  hint: see df -h, or name another folder with MOEPERF_RUNTIME_DIR"
    )


def test_errors_survive_pickling() -> None:
    error = ServerExited(what="x exited", hint="h", log_path="l", log_tail=("t",), exit_code=3, port_taken=True)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), str(again), again.exit_code, again.port_taken) == (ServerExited, str(error), 3, True)


def test_contradictory_wishes_are_refused() -> None:
    with (
        pytest.raises(ValueError, match="a fresh server is never shared"),
        lease(plan(), label="me", fresh=True, keep_s=1.0),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"wait_timeout_s is -1: it must not be negative"),
        lease(plan(), label="me", wait_timeout_s=-1),
    ):
        pass

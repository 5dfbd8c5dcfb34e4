"""Folders that can be trusted, records that are judged on proof only."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_moeperf.model.server import RECORD_SCHEMA, ServerRecord
from pytest_moeperf.servers import cgroups, gpu_memory, proctree, wire
from pytest_moeperf.servers.private_files import create_private, read_private, write_atomically
from pytest_moeperf.servers.problems import RuntimeFolderError
from pytest_moeperf.servers.proof import guardian_is_dead
from pytest_moeperf.servers.registry import (
    holders_text,
    list_left,
    list_servers,
    prune,
    read_records,
    reclaim,
    stop_server,
)
from pytest_moeperf.servers.runtime import file_name_of, host_locks_folder, runtime_folder


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOEPERF_RUNTIME_DIR", str(tmp_path / "moeperf"))
    return runtime_folder()


def record_of(guardian: proctree.Process, folder: Path) -> ServerRecord:
    return ServerRecord(
        schema=RECORD_SCHEMA,
        launch_id=folder.name,
        spec_digest="d1",
        name="triton",
        state="ready",
        exclusive=False,
        url="http://127.0.0.1:3000",
        host="127.0.0.1",
        port=3000,
        health_path="/health",
        devices=(),
        pid=guardian.pid,
        pid_start_time=guardian.start_time,
        guardian_pid=guardian.pid,
        guardian_start_time=guardian.start_time,
        boot_id=proctree.boot_id(),
        hostname=socket.gethostname(),
        pid_namespace=proctree.pid_namespace(),
        cgroup="",
        folder=str(folder),
        log_path=str(folder / "server.log"),
        started_at="2026-11-01T10:00:00+00:00",
        start_s=1.0,
        holders=(),
        keep_until=None,
        kept_by="",
    )


def stored(runtime: Path, record: ServerRecord) -> Path:
    folder = runtime / "launches" / record.launch_id
    folder.mkdir()
    write_atomically(folder / "record.json", json.dumps(record.to_dict()).encode())
    return folder / "record.json"


def test_only_proof_makes_a_guardian_dead(runtime: Path) -> None:
    folder = runtime / "launches" / "a"
    alive = record_of(proctree.myself(), folder)
    assert not guardian_is_dead(alive)
    # Its pid lives, but it is another process: the number was used again.
    assert guardian_is_dead(dataclasses.replace(alive, guardian_start_time=alive.guardian_start_time - 1))
    # This host was booted since.
    assert guardian_is_dead(dataclasses.replace(alive, boot_id="an earlier one"))
    # Another host that shares the folder: nothing is known of it.
    assert not guardian_is_dead(dataclasses.replace(alive, boot_id="its own", hostname="another"))


def test_a_guardian_of_another_container_is_judged_by_its_socket(runtime: Path) -> None:
    folder = runtime / "launches" / "a"
    folder.mkdir()
    elsewhere = dataclasses.replace(record_of(proctree.Process(2**30, 1), folder), pid_namespace="pid:[1]")
    assert guardian_is_dead(elsewhere)
    with wire.listen_at(folder / "socket"):
        assert not guardian_is_dead(elsewhere)
    assert guardian_is_dead(elsewhere)


def test_a_dead_child_that_nobody_waited_for_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    process = proctree.child(child.pid)
    assert child.stdout is not None
    child.stdout.read()
    assert proctree.wait_gone(process, timeout_s=30)
    assert child.returncode is None  # a zombie still
    child.communicate()


def test_a_reused_pid_is_not_signalled() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    true_one = proctree.child(child.pid)
    proctree.send_signal(proctree.Process(child.pid, true_one.start_time - 1), 9)
    child.communicate(b"\n", timeout=30)
    assert child.returncode == 0


def test_listing_names_the_living_and_touches_nothing(runtime: Path) -> None:
    live = record_of(proctree.myself(), runtime / "launches" / "live")
    dead = dataclasses.replace(
        record_of(proctree.Process(2**30, 1), runtime / "launches" / "dead"), started_at="2026-11-01T09:00:00+00:00"
    )
    live_path, dead_path = stored(runtime, live), stored(runtime, dead)
    (dead_path.parent / "server.log").write_text("kept")
    assert list_servers() == (live,)
    assert live_path.exists()
    assert list_left() == ()
    assert sorted(each.name for each in dead_path.parent.iterdir()) == ["record.json", "server.log"]
    reclaim(runtime, (), tell=lambda *_news: None)
    assert live_path.exists()
    assert [each.name for each in dead_path.parent.iterdir()] == ["server.log"]


def test_a_torn_record_is_put_aside_and_another_version_s_is_left_alone(runtime: Path) -> None:
    good = record_of(proctree.myself(), runtime / "launches" / "good")
    stored(runtime, good)
    torn = stored(runtime, dataclasses.replace(good, launch_id="torn"))
    torn.write_bytes(torn.read_bytes()[:50])
    newer = stored(runtime, dataclasses.replace(good, launch_id="newer", schema=RECORD_SCHEMA + 1))
    assert read_records(runtime) == [good]
    assert [each.name for each in torn.parent.iterdir()] == ["record.json.torn"]
    assert newer.exists()


@pytest.mark.parametrize("names", ["another folder", "another launch"])
def test_a_forged_record_makes_nobody_touch_the_folder_that_it_names(names: str, runtime: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in ("key", "socket", "record.json", "server.log"):
        (victim / name).write_text("precious")
    forged = dataclasses.replace(
        record_of(proctree.Process(2**30, 1), victim),
        launch_id="forged",
        log_path=str(victim / "server.log"),
    )
    path = stored(runtime, forged)
    if names == "another launch":
        path.write_text(path.read_text().replace('"forged"', '"../../victim"'))
        assert read_records(runtime) == []
    else:
        (record,) = read_records(runtime)
        assert (record.folder, record.log_path) == (str(path.parent), str(path.parent / "server.log"))
        stop_server(record)
    reclaim(runtime, (), tell=lambda *_news: None)
    assert (list_servers(), list_left()) == ((), ())
    assert not path.exists()
    assert sorted(each.name for each in victim.iterdir()) == ["key", "record.json", "server.log", "socket"]


@pytest.mark.parametrize("kind", ["FIFO", "link", "open to others", "deep", "linked folder"])
def test_what_is_no_private_record_is_not_believed(kind: str, runtime: Path, tmp_path: Path) -> None:
    path = stored(runtime, record_of(proctree.myself(), runtime / "launches" / "a"))
    if kind == "open to others":
        path.chmod(0o644)
    elif kind == "deep":
        path.write_text("[" * 100_000)
    elif kind == "linked folder":
        path.parent.rename(tmp_path / "a")
        path.parent.symlink_to(tmp_path / "a")
    else:
        path.rename(tmp_path / "record")
        os.mkfifo(path, 0o600) if kind == "FIFO" else path.symlink_to(tmp_path / "record")
    assert list_servers() == ()


def test_the_logs_of_the_newest_launches_stay(runtime: Path) -> None:
    for index in range(5):
        folder = runtime / "launches" / f"ended{index}"
        folder.mkdir()
        os.utime(folder, (time.time() - 7200 + index, time.time() - 7200 + index))
    stored(runtime, record_of(proctree.myself(), runtime / "launches" / "live"))
    prune(runtime, keep=2)
    assert sorted(each.name for each in (runtime / "launches").iterdir()) == ["ended3", "ended4", "live"]


def test_holders_in_words(runtime: Path) -> None:
    record = record_of(proctree.myself(), runtime / "launches" / "a")
    assert holders_text(record) == "nobody"
    assert holders_text(dataclasses.replace(record, keep_until="noon")) == "nobody, kept warm until noon"


def test_the_runtime_folder_is_private(runtime: Path) -> None:
    assert runtime.stat().st_mode & 0o777 == 0o700
    assert sorted(each.name for each in runtime.iterdir()) == ["launches", "locks"]


@pytest.mark.parametrize("kind", ["link", "open", "file", "no parent"])
def test_a_runtime_folder_that_can_not_be_trusted_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "moeperf"
    problem = f"the folder for server records, {folder}, "
    hint = "name another one with MOEPERF_RUNTIME_DIR, or put this one right"
    if kind == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "target")
        problem += "is a symbolic link"
    elif kind == "open":
        folder.mkdir()
        folder.chmod(0o755)
        problem += "is open to others (mode 0755, not 0700)"
    elif kind == "file":
        folder.write_text("")
        problem += "is not a folder"
    else:
        folder = tmp_path / "missing" / "moeperf"
        problem = f"the folder {folder} cannot be made: No such file or directory"
        hint = "name another one with MOEPERF_RUNTIME_DIR (records) or MOEPERF_LOCK_DIR (locks)"
    monkeypatch.setenv("MOEPERF_RUNTIME_DIR", str(folder))
    with pytest.raises(RuntimeFolderError) as caught:
        runtime_folder()
    assert str(caught.value) == f"{problem}\n  hint: {hint}"


def test_a_user_has_one_runtime_folder_however_the_shell_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOEPERF_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    without = runtime_folder()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_folder() == without == Path(f"/tmp/moeperf-{os.geteuid()}")  # noqa: S108


def test_the_folder_of_the_host_s_locks_is_for_all_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOEPERF_LOCK_DIR", str(tmp_path / "locks"))
    assert host_locks_folder().stat().st_mode & 0o7777 == 0o1777
    (tmp_path / "link").symlink_to(tmp_path / "locks")
    monkeypatch.setenv("MOEPERF_LOCK_DIR", str(tmp_path / "link"))
    with pytest.raises(RuntimeFolderError, match="is a symbolic link or not a folder"):
        host_locks_folder()


def test_private_files_are_private_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert read_private(path) == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "link")
    with pytest.raises(OSError, match="symbolic links"):
        read_private(tmp_path / "link")


def test_file_names_of_keys_are_readable_and_never_clash() -> None:
    assert file_name_of("GPU-5c2a") == "GPU-5c2a"
    names = {file_name_of(key) for key in ("cpu:0-7", "cpu_0-7", "cpu/0-7", "../cpu", "x" * 300)}
    assert len(names) == 5
    assert not any("/" in name for name in names)
    assert max(map(len, names)) < 100


def test_gpu_memory_is_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 2**30
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError(Exception): pass\n"
        "class Info: used = 3 * 2**30\n"
        "def nvmlInit(): pass\n"
        "def nvmlShutdown(): pass\n"
        "def nvmlDeviceGetHandleByUUID(uuid):\n"
        "    if uuid != 'GPU-1': raise NVMLError\n"
        "    return uuid\n"
        "def nvmlDeviceGetMemoryInfo(handle): return Info\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert gpu_memory.used_bytes(["GPU-1"], module_folder=str(tmp_path)) == {"GPU-1": 3 * gib}
    assert gpu_memory.used_bytes(["GPU-2"], module_folder=str(tmp_path)) == {}
    assert gpu_memory.used_bytes(["GPU-1"], module_folder=None) == {}
    monkeypatch.delitem(sys.modules, "pynvml")

    falling = iter([60 * gib, 30 * gib, 2 * gib])
    over = gpu_memory.wait_until_free({"GPU-1": 2 * gib}, measure=lambda _: {"GPU-1": next(falling)}, timeout_s=30)
    assert over == {}
    assert next(falling, None) is None
    stuck = gpu_memory.wait_until_free({"GPU-1": 0}, measure=lambda _: {"GPU-1": gib}, timeout_s=0)
    assert stuck == {"GPU-1": gib}
    assert gpu_memory.wait_until_free({"GPU-1": 0}, measure=lambda _: {}, timeout_s=30) == {}


def test_a_group_that_is_not_the_launch_s_own_proves_nothing(tmp_path: Path) -> None:
    for name in ("moeperf-abc", "user.slice"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("12\n13\n")
    assert cgroups.pids_in(str(tmp_path / "moeperf-abc"), "abc") == {12, 13}
    assert cgroups.pids_in(str(tmp_path / "user.slice"), "abc") == set()
    assert cgroups.pids_in(str(tmp_path / "moeperf-gone"), "gone") == set()
    assert cgroups.pids_in("", "") == set()


def test_a_group_with_a_share_of_its_own_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "of", lambda launch_id: tmp_path / f"moeperf-{launch_id}")
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu memory\n")
    assert cgroups.make("a") is None
    control.write_text("\n")
    assert cgroups.make("b") == tmp_path / "moeperf-b"
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["cgroup.subtree_control", "moeperf-b"]
    cgroups.remove(tmp_path / "moeperf-b")
    monkeypatch.setattr(cgroups, "of", lambda _launch_id: None)
    assert cgroups.make("c") is None

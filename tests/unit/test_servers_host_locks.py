"""The folder of locks that all users of a host share, and what others can put there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_moeperf.servers import host_locks
from pytest_moeperf.servers.lock_files import LockFile
from pytest_moeperf.servers.measuring import measuring_lock
from pytest_moeperf.servers.problems import DevicesBusy, RuntimeFolderError
from pytest_moeperf.servers.runtime import user_name

LOCK = "GPU-1.measuring.lock"
ALICE, BOB = 60_001, 60_002
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where every user of the host may look, unlike pytest's own folders."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    folder = top / "locks"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("MOEPERF_LOCK_DIR", str(folder))
    yield folder
    shutil.rmtree(top)


def measure(wait_timeout_s: float = 0.0) -> None:
    with measuring_lock(["GPU-1"], label="me", wait_timeout_s=wait_timeout_s):
        pass


def as_user(uid: int, do: Callable[[], None]) -> str:
    """Run it in a child of that user; what it raised, in words."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            do()
        except BaseException as error:  # noqa: BLE001 - told by the parent
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    return text


def refused() -> str:
    with pytest.raises(RuntimeFolderError) as caught:
        measure()
    return str(caught.value)


def hint(path: Path) -> str:
    return (
        f"\n  hint: once nobody measures, its owner or root removes it: rm {path}; or name another folder with "
        "MOEPERF_LOCK_DIR, the same for all users of this host"
    )


def plant(kind: str, path: Path, victim: Path) -> str:
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "hard link":
        path.hardlink_to(victim)
        return "is a second name (hard link) of another file"
    else:
        path.symlink_to(victim if kind == "link" else victim.with_name("nowhere"))
        return "is a symbolic link"
    return "is not a plain file"


@pytest.mark.parametrize("kind", ["FIFO", "link", "dangling link", "hard link", "folder"])
def test_what_is_no_plain_file_is_refused_at_once_and_left_as_it_is(kind: str, locks: Path) -> None:
    victim = locks.parent / "victim"
    victim.write_text("precious")
    victim.chmod(0o640)
    problem = plant(kind, locks / LOCK, victim)
    assert refused() == f"the lock of GPU-1 cannot be used: {locks / LOCK} {problem}{hint(locks / LOCK)}"
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", 0o640)
    assert not victim.with_name("nowhere").exists()


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"{",
        b"[" * 4000,
        b"[]",
        b'{"pid": 1e400, "label": "", "since": ""}',
        b'{"pid": "x", "label": "", "since": ""}',
        b"\xff" * 100_000,
    ],
)
def test_a_note_that_makes_no_sense_is_somebody(note: bytes, locks: Path) -> None:
    lock = host_locks.acquire("GPU-1", "measuring", while_waiting=lambda _: None)
    (locks / LOCK).write_bytes(note)
    assert host_locks.holder_text(lock) == "somebody"
    lock.release()


def test_a_label_is_text_and_nothing_else(locks: Path) -> None:
    lock = host_locks.acquire("GPU-1", "measuring", while_waiting=lambda _: None)
    evil = "x\n::error::boo\x1b]0;title\x07\x1b[2J\x9b1m ##[error] \u202e" + "y" * 1000
    (locks / LOCK).write_text(
        json.dumps({"pid": 2**22 + 1, "label": evil, "since": "now\n::stop-commands::x" + "z" * 99})
    )
    notices: list[str] = []
    with (
        pytest.raises(DevicesBusy) as caught,
        measuring_lock(["GPU-1"], label="me", on_wait=lambda notice: notices.append(notice.text()), wait_timeout_s=1.5),
    ):
        pass
    lock.release()
    for text in (*notices, caught.value.what):
        assert text.isprintable()
        assert f"pid {2**22 + 1} (x : :error::boo # #[error] yyyy" in text
        assert len(text) < 300


def test_a_lock_that_was_removed_while_it_was_held_is_noticed(locks: Path) -> None:
    def removed_and_taken_by_another() -> None:
        with measuring_lock(["GPU-1"], label="me"):
            (locks / LOCK).unlink()
            measure()

    with pytest.raises(RuntimeFolderError) as caught:
        removed_and_taken_by_another()
    assert str(caught.value) == (
        f"the lock of GPU-1 was removed while it was held ({locks / LOCK}): somebody else may have measured there at "
        "the same time, so what was measured is not believed\n"
        f"  hint: measure again; who may remove locks: ls -ld {locks} (root should own it, mode 1777)"
    )


def test_whoever_waits_for_a_file_that_was_removed_goes_on_with_the_new_one(locks: Path) -> None:
    first = LockFile(locks / LOCK)
    second = LockFile(locks / LOCK)
    assert first.try_acquire()
    assert not second.try_acquire()
    (locks / LOCK).unlink()
    third = LockFile(locks / LOCK)
    assert third.try_acquire()
    assert not second.try_acquire()
    assert not first.is_the_file()
    third.release()
    assert second.try_acquire()
    second.release()
    first.release()


def test_a_folder_in_which_anybody_may_remove_is_refused(locks: Path) -> None:
    locks.chmod(0o777)
    owner = user_name(os.geteuid())
    assert refused() == (
        f"the folder for the host's locks, {locks}, lets everybody who may write there remove the locks of others "
        f"(no sticky bit): it belongs to {owner}, mode 0777\n"
        f"  hint: {owner} or root opens it to all users: chmod 1777 {locks}; or name another one with "
        "MOEPERF_LOCK_DIR, the same for all users of this host"
    )


@as_root
def test_a_folder_of_another_user_s_that_is_closed_is_told_with_the_way_out(locks: Path) -> None:
    os.chown(locks, ALICE, ALICE)
    locks.chmod(0o755)
    assert as_user(BOB, measure) == (
        f"RuntimeFolderError: the folder for the host's locks, {locks}, is closed to this user: it belongs to "
        f"user {ALICE}, mode 0755\n"
        f"  hint: user {ALICE} or root opens it to all users: chmod 1777 {locks}; or name another one with "
        "MOEPERF_LOCK_DIR, the same for all users of this host"
    )


@as_root
def test_a_lock_of_another_user_s_that_is_closed_is_told_with_the_way_out(locks: Path) -> None:
    (locks / LOCK).touch()
    os.chown(locks / LOCK, ALICE, ALICE)
    (locks / LOCK).chmod(0o600)
    os.utime(locks / LOCK, (0, 0))
    assert as_user(BOB, measure) == (
        f"RuntimeFolderError: the lock of GPU-1 cannot be used: {locks / LOCK} belongs to user {ALICE} and is closed to "
        f"others (mode 0600, not 0666){hint(locks / LOCK)}"
    )


@as_root
def test_users_share_a_lock_and_can_not_remove_each_other_s(locks: Path) -> None:
    assert as_user(ALICE, measure) == ""
    with measuring_lock(["GPU-1"], label="root's job"):
        text = as_user(BOB, measure)
        assert "gave up waiting for GPU-1 to measure on after" in text
        assert f"pid {os.getpid()} of root (root's job, since " in text
        assert as_user(BOB, (locks / LOCK).unlink).startswith("PermissionError")
    assert as_user(BOB, measure) == ""
    assert (locks / LOCK).stat().st_uid == ALICE


def test_the_default_folder_is_put_right_by_its_owner(monkeypatch: pytest.MonkeyPatch, locks: Path) -> None:
    monkeypatch.delenv("MOEPERF_LOCK_DIR")
    monkeypatch.setattr("pytest_moeperf.servers.runtime.DEFAULT_LOCKS", str(locks))
    locks.chmod(0o755)
    measure()
    assert locks.stat().st_mode & 0o7777 == 0o1777

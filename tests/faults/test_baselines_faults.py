"""What a file store survives: many writers, kill -9, a full disk, folders that may not be written, links."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import filelock
import msgspec
import pytest

from pytest_moeperf.baselines import FileStore
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.model.baseline import Baseline, BaselineEvent, StoredRun
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.workload import Cell, Workload

FORK = multiprocessing.get_context("fork")
PRELOADED = (filelock, msgspec)
"""A child that gave up its rights or its disk could not import them any more."""
NOBODY = 65534
WRITE_AGAIN = "make room, or make the folder one that this user may write; then record again"


def stored(name: str, *, session: str = "s1") -> StoredRun:
    return StoredRun(id=name, session=session, launch=session, started_at="2026-11-01", values={"throughput": 100.0})


def event(kind: str, name: str) -> BaselineEvent:
    return BaselineEvent(at="2026-11-01T00:00:00Z", kind=kind, reason=name, runs=1, change={})


FIRST = Baseline(
    engine="sglang",
    model="m",
    cell=Cell(backend="triton", workload=Workload(concurrency=1)),
    fingerprint=Fingerprint(),
    evidence=Evidence(),
    runs=(stored("r0"),),
    anchor=(stored("r0"),),
    history=(event("recorded", "r0"),),
)


def extended(baseline: Baseline, run: StoredRun) -> Baseline:
    return replace(baseline, runs=(*baseline.runs, run), history=(*baseline.history, event("extended", run.id)))


def in_child(work: Callable[[], str]) -> str:
    """What ``work`` returns, or the text of its BaselineError, from a process of its own."""
    receiver, sender = FORK.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send(work())
        except BaselineError as error:
            sender.send(str(error))

    child = FORK.Process(target=run)
    child.start()
    sender.close()
    try:
        return str(receiver.recv())
    finally:
        child.join(20)
        assert child.exitcode == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder whose parents anybody may enter, unlike those of ``tmp_path``."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".*tmp*")]


def test_no_writer_of_many_loses_a_run(tmp_path: Path) -> None:
    FileStore(tmp_path).save(FIRST)
    writers, runs_each = 6, 5

    def write(writer: int) -> None:
        store = FileStore(tmp_path)
        for number in range(runs_each):
            # Each sees the state before the others wrote, most of the time.
            seen = store.all()[0].baseline
            store.save(extended(seen, stored(f"w{writer}-{number}", session=f"s{writer}")))

    children = [FORK.Process(target=write, args=(writer,)) for writer in range(writers)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0] * writers
    (entry,) = FileStore(tmp_path).all()
    expected = {"r0"} | {f"w{writer}-{number}" for writer in range(writers) for number in range(runs_each)}
    assert {run.id for run in entry.baseline.runs} == expected
    assert len(entry.baseline.history) == 1 + writers * runs_each
    assert [run.id for run in entry.baseline.anchor] == ["r0"]
    assert leftovers(tmp_path) == []


def _record_until_killed(root: Path, acknowledged: Connection) -> None:
    store = FileStore(root)
    for number in range(10_000):
        baseline = store.all()[0].baseline
        store.save(extended(baseline, stored(f"{os.getpid()}-{number}")))
        acknowledged.send(number)


def test_kill_9_at_any_moment_damages_nothing_and_forgets_nothing(tmp_path: Path) -> None:
    """100 kills, each within the first saves of a writer; the next writer goes on where the last one died."""
    chance = random.Random(20261101)
    for attempt in range(100):
        root = tmp_path / f"store{attempt // 10}"
        if attempt % 10 == 0:
            FileStore(root).save(FIRST)
        before = {run.id for run in FileStore(root).all()[0].baseline.runs}
        receiver, sender = FORK.Pipe(duplex=False)
        child = FORK.Process(target=_record_until_killed, args=(root, sender))
        child.start()
        sender.close()
        time.sleep(chance.uniform(0.001, 0.03))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(20)
        confirmed = set()
        while receiver.poll():
            try:
                confirmed.add(f"{child.pid}-{receiver.recv()}")
            except EOFError:
                break
        (entry,) = FileStore(root).all()
        now = {run.id for run in entry.baseline.runs}
        assert now >= before | confirmed
        assert len(now) <= len(before | confirmed) + 1
    # The kernel freed every dead writer's lock, and the next save clears what they left behind.
    for root in tmp_path.iterdir():
        store = FileStore(root, lock_timeout_s=1.0)
        store.save(extended(store.all()[0].baseline, stored("last")))
        assert leftovers(root) == []


def test_a_full_disk_leaves_the_old_file_and_says_so(tmp_path: Path) -> None:
    before = FileStore(tmp_path).save(FIRST)
    text = Path(before.path).read_text()

    def save_without_room() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        FileStore(tmp_path).save(extended(FIRST, stored("r1")))
        return "saved"

    assert in_child(save_without_room) == (
        f"{before.path}: can't be written: File too large; what was there before is unchanged\n  next: {WRITE_AGAIN}"
    )
    assert Path(before.path).read_text() == text
    assert leftovers(tmp_path) == []


def _without_rights(work: Callable[[], str]) -> Callable[[], str]:
    def drop() -> str:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return work()

    return drop


def test_a_store_that_may_not_be_written_says_so_and_can_still_be_read(open_folder: Path) -> None:
    root = open_folder / "baselines"
    saved = FileStore(root).save(FIRST)
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)

    def save() -> str:
        FileStore(root).save(extended(FIRST, stored("r1")))
        return "saved"

    def read() -> str:
        return FileStore(root).all()[0].baseline.runs[0].id

    try:
        if os.getuid() == 0:
            assert in_child(_without_rights(save)) == (
                f"{saved.path}: can't be written: no lock in {root}/.locks: Permission denied\n"
                "  next: make the baselines folder one that this user may write, on a file system with locks"
            )
            (root / ".locks" / "store.lock").chmod(0o666)
        assert in_child(_without_rights(save)) == (
            f"{saved.path}: can't be written: Permission denied; what was there before is unchanged\n"
            f"  next: {WRITE_AGAIN}"
        )
        assert in_child(_without_rights(read)) == "r0"
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_a_folder_that_can_not_be_made_says_so(open_folder: Path) -> None:
    open_folder.chmod(0o555)

    def save() -> str:
        FileStore(open_folder / "baselines").save(FIRST)
        return "saved"

    message = in_child(_without_rights(save))
    open_folder.chmod(0o755)
    assert message == (
        f"{open_folder}/baselines/sglang/m/triton/c1-in512-out128@{digest()}.json: can't be written: no lock in "
        f"{open_folder}/baselines/.locks: Permission denied\n"
        "  next: make the baselines folder one that this user may write, on a file system with locks"
    )


def digest() -> str:
    from pytest_moeperf.baselines.naming import fingerprint_digest

    return fingerprint_digest(FIRST.fingerprint)


def test_a_store_that_stays_locked_names_the_holder(tmp_path: Path) -> None:
    saved = FileStore(tmp_path).save(FIRST)
    holding, ready = FORK.Pipe(duplex=False)

    def hold() -> None:
        with FileStore(tmp_path)._lock.held(tmp_path / "x.json"):
            ready.send("held")
            time.sleep(60)

    holder = FORK.Process(target=hold)
    holder.start()
    try:
        assert holding.recv() == "held"
        with pytest.raises(BaselineError) as caught:
            FileStore(tmp_path, lock_timeout_s=0.2).save(extended(FIRST, stored("r1")))
    finally:
        holder.kill()
        holder.join(20)
    before, since, after = str(caught.value).partition(" since ")
    assert before == (
        f"{saved.path}: not written: the store was locked for 0.2 s by process {holder.pid} on {socket.gethostname()}"
    )
    assert since
    assert after.partition("\n")[2] == (
        "  next: a writer needs the lock for a moment only: end that process if it hangs, then record again"
    )
    # The dead holder's lock is free at once.
    FileStore(tmp_path, lock_timeout_s=0.2).save(extended(FIRST, stored("r1")))


def test_a_lock_without_a_note_still_says_how_to_find_its_holder(tmp_path: Path) -> None:
    FileStore(tmp_path).save(FIRST)
    with filelock.FileLock(tmp_path / ".locks" / "store.lock"), pytest.raises(BaselineError) as caught:
        FileStore(tmp_path, lock_timeout_s=0.1).save(extended(FIRST, stored("r1")))
    assert caught.value.problem == (
        f"not written: the store was locked for 0.1 s by an unknown process (see `fuser {tmp_path}/.locks/store.lock`)"
    )


def test_locks_stay_out_of_reviews(tmp_path: Path) -> None:
    FileStore(tmp_path).save(FIRST)
    assert (tmp_path / ".locks" / ".gitignore").read_text() == "*\n"
    assert [path.name for path in tmp_path.iterdir()] in (["sglang", ".locks"], [".locks", "sglang"])


def test_a_truncated_file_is_neither_used_nor_overwritten(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    path = Path(store.save(FIRST).path)
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    messages = []
    for action in (
        lambda: store.find(engine="sglang", model="m", cell=FIRST.cell),
        lambda: store.save(extended(FIRST, stored("r1"))),
    ):
        with pytest.raises(BaselineError) as caught:
            action()
        messages.append(str(caught.value))
    assert len(set(messages)) == 1
    # It costs its own cell, and no other one.
    assert store.all() == ()
    assert [str(stray) for stray in store.strays()] == messages[:1]
    assert messages[0].startswith(f"{path}: is cut off or broken: ")
    assert messages[0].endswith(
        f"\n  next: restore it with `git checkout -- {path}` or from a backup; pytest-moeperf itself replaces files "
        "as a whole"
    )
    assert path.read_bytes() == half


def test_a_newer_schema_is_neither_used_nor_overwritten(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    path = Path(store.save(FIRST).path)
    newer = path.read_text().replace('"schema": 1', '"schema": 7')
    path.write_text(newer)
    with pytest.raises(BaselineError) as caught:
        store.save(extended(FIRST, stored("r1")))
    assert str(caught.value) == (
        f"{path}: has schema 7; this version of pytest-moeperf reads up to 1\n"
        "  next: upgrade it (`pip install --upgrade pytest-moeperf`), or use the version that wrote the file"
    )
    assert path.read_text() == newer


def test_bytes_that_are_no_text_and_folders_in_the_way_are_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    path = Path(store.save(FIRST).path)
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(BaselineError) as caught:
        store.find(engine="sglang", model="m", cell=FIRST.cell)
    assert str(caught.value) == (
        f"{path}: is not UTF-8 text (byte 7)\n  next: restore it with `git checkout -- {path}` or from a backup"
    )
    path.unlink()
    path.mkdir()
    with pytest.raises(BaselineError) as caught:
        store.find(engine="sglang", model="m", cell=FIRST.cell)
    assert str(caught.value) == (
        f"{path}: can't be read: Is a directory\n  next: make it a file that this user may read"
    )


def test_nothing_is_written_through_links_below_the_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "baselines", tmp_path / "outside"
    outside.mkdir()
    store = FileStore(root)
    path = Path(store.save(FIRST).path)
    victim = outside / "victim.json"
    victim.write_text(path.read_text())
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(BaselineError) as caught:
        store.save(extended(FIRST, stored("r1")))
    assert str(caught.value) == (
        f"{path}: is a symbolic link (to {victim}), which is not followed\n"
        "  next: put the file itself there, or make the whole baselines folder a link"
    )
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(outside)
    with pytest.raises(BaselineError, match="is a symbolic link"):
        store.save(FIRST)
    assert sorted(outside.iterdir()) == [victim]


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "baselines").symlink_to("shared")
    FileStore(tmp_path / "baselines").save(FIRST)
    assert FileStore(tmp_path / "shared").all()[0].baseline == FIRST


@pytest.mark.parametrize("model", ["../../../../escape", "/etc/passwd", "..", "a/../../b", "x\ny"])
@pytest.mark.parametrize("backend", ["../../escape", "/abs", ".."])
def test_no_name_leads_out_of_the_root(tmp_path: Path, model: str, backend: str) -> None:
    root = tmp_path / "deep" / "er" / "baselines"
    cell = Cell(backend=backend, workload=Workload(concurrency=1))
    saved = FileStore(root).save(replace(FIRST, model=model, cell=cell))
    assert Path(saved.path).resolve().is_relative_to(root)
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert FileStore(root).find(engine="sglang", model=model, cell=cell) == (saved,)

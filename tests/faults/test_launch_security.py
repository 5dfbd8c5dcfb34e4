"""What a launch lays open: to other users of the host, to whoever reads reports, baselines and logs."""

from __future__ import annotations

import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fault_world import Finished, World, cleaned_up, control_of

from pytest_moeperf.model.server import ServerRecord
from pytest_moeperf.servers import proctree

OWN_REQUEST = """\
import json, pathlib, urllib.request
import pytest

@pytest.mark.perf(input_len=16, output_len=16, concurrency=2)
def test_decode(moeperf):
    headers = {"Authorization": f"Bearer {moeperf.api_key}"}
    with urllib.request.urlopen(urllib.request.Request(f"{moeperf.url}/server_info", headers=headers)) as answer:
        assert json.load(answer)["version"]
    pathlib.Path(f"asked-{moeperf.backend}").touch()
    moeperf.measure()
"""


class Seen:
    """What was seen of one server while it was measured."""

    def __init__(self, world: World, record: ServerRecord) -> None:
        folder = Path(record.folder)
        self.record = record
        self.key = (folder / "key").read_text()
        self.modes = {
            str(path.relative_to(world.runtime)): stat.S_IMODE(path.lstat().st_mode)
            for path in (world.runtime, *world.runtime.rglob("*"))
        }
        self.folders = {str(path.relative_to(world.runtime)) for path in world.runtime.rglob("*") if path.is_dir()}
        self.listening = {
            connection.laddr.ip
            for process in proctree.descendants(record.guardian_pid)
            for connection in psutil.Process(process.pid).net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        self.unauthorized = {path: status_without_key(record, path) for path in ("/server_info", "/v1/models")}
        self.commands = list(world.processes().values())
        self.info = control_of(record).get_json("/server_info").data


def status_without_key(record: ServerRecord, path: str) -> int:
    try:
        with urllib.request.urlopen(f"{record.url}{path}", timeout=30) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, list[Seen], Finished]]:
    config = "[backends.one]\n[backends.two]\n"
    world = World(tmp_path_factory.mktemp("security"), config=config, test=OWN_REQUEST, scale=1.0)
    with cleaned_up(world):
        invocation = world.start("--backend=one,two", "--update-baselines", "--perf-report=report")
        seen = [Seen(world, world.server_in_a_run(name)) for name in ("one", "two")]
        yield world, seen, invocation.end()


Measured = tuple[World, list[Seen], Finished]


def test_each_launch_has_a_key_of_its_own_and_asks_for_it(measured: Measured) -> None:
    world, seen, finished = measured
    assert sorted(path.name for path in world.folder.glob("asked-*")) == ["asked-one", "asked-two"], finished.raw
    assert len({each.key for each in seen}) == 2
    assert all(len(each.key) >= 32 for each in seen)
    assert [each.unauthorized for each in seen] == [{"/server_info": 401, "/v1/models": 401}] * 2
    assert all(each.info is not None for each in seen)


def test_the_key_is_nowhere_but_in_its_file(measured: Measured) -> None:
    world, seen, _ = measured
    assert seen[0].key not in repr(seen[0].record)
    left = [path for path in world.folder.rglob("*") if path.is_file()]
    assert {"moeperf.json", "moeperf.html", "server.log", "guardian.log"} <= {path.name for path in left}
    for path in left:
        content = path.read_bytes()
        for each in seen:
            assert each.key.encode() not in content, path


def test_only_this_user_can_look_into_the_runtime_folder(measured: Measured) -> None:
    _, seen, _ = measured
    for each in seen:
        assert each.modes.pop(".") == 0o700
        wrong = {
            name: oct(mode) for name, mode in each.modes.items() if mode != (0o700 if name in each.folders else 0o600)
        }
        assert wrong == {}


def test_a_server_listens_on_the_loopback_only(measured: Measured) -> None:
    _, seen, _ = measured
    assert [each.listening for each in seen] == [{"127.0.0.1"}] * 2


def test_no_command_line_holds_a_key(measured: Measured) -> None:
    """Other users of the host read them in /proc."""
    _, seen, _ = measured
    commands = [command for each in seen for command in each.commands]
    assert not [command for command in commands for each in seen if each.key in command]


def test_no_shell_is_in_between(measured: Measured) -> None:
    _, seen, _ = measured
    commands = [command for each in seen for command in each.commands]
    assert any("pytest_moeperf.engines.simulated" in command for command in commands)
    assert not any(command.split(" ", 1)[0].endswith(("/sh", "/bash", "sh")) for command in commands)

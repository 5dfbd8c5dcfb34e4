"""Waiting for readiness, on a clock of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from pytest_moeperf.model.server import LaunchPlan, ServerProgress
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.servers import readiness
from pytest_moeperf.servers.link import GuardianLink
from pytest_moeperf.servers.problems import ServerExited, ServerNotReady
from pytest_moeperf.servers.readiness import Health, exit_text, wait_ready
from pytest_moeperf.servers.wire import LineClosedError

GOOD, BAD = Health(good=True, text="200"), Health(good=False, text="503")


class FakeWorld:
    """A server whose log, health and end follow a script, by seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.asked_at: list[float] = []
        self.progress: list[ServerProgress] = []
        self.good_from_s = 1e9
        self.exit_at_s = 1e9
        self.guardian_dies_at_s = 1e9
        self.log_lines: dict[float, str] = {}
        self.log_path = str(folder / "server.log")
        self.record = self
        self.port, self.pid, self.url = 3000, 77, "http://127.0.0.1:3000"
        self.strangers: list[int | None] = []
        monkeypatch.setattr(readiness, "ask_health", self._ask_health)
        monkeypatch.setattr(readiness, "stranger_on", lambda _record: self.strangers.pop(0) if self.strangers else None)

    def _ask_health(self, _host: str, _port: int, _path: str, *, api_key: ApiKey | None) -> Health:
        assert api_key == ApiKey("k")
        self.asked_at.append(self.now_s)
        return GOOD if self.now_s >= self.good_from_s else BAD

    def exit_code(self) -> int | None:
        if self.now_s >= self.guardian_dies_at_s:
            raise LineClosedError
        return 3 if self.now_s >= self.exit_at_s else None

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s
        for due_s in [due_s for due_s in self.log_lines if due_s <= self.now_s]:
            with Path(self.log_path).open("a") as file:
                file.write(self.log_lines.pop(due_s) + "\n")

    def wait(self, *, marker: str | None = None, start_timeout_s: float = 60.0) -> float:
        plan = LaunchPlan(
            command=("{port}",),
            name="fake",
            spec_digest="d",
            api_key=ApiKey("k"),
            ready_log_marker=marker,
            start_timeout_s=start_timeout_s,
        )
        return wait_ready(
            plan,
            cast(GuardianLink, self),
            on_progress=self.progress.append,
            clock=lambda: self.now_s,
            sleep=self.sleep,
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeWorld:
    return FakeWorld(monkeypatch, tmp_path)


def test_it_asks_gently_and_not_at_all_once_ready(world: FakeWorld) -> None:
    world.good_from_s = 5.0
    start_s = world.wait()
    assert 5.0 <= start_s < 5.25
    assert world.pauses[0] == 0.1
    assert max(world.pauses) == 0.25
    assert world.pauses == sorted(world.pauses)
    assert world.asked_at[-1] == start_s


def test_the_marker_counts_too(world: FakeWorld) -> None:
    world.good_from_s = 0.0
    world.log_lines = {3.0: "Load weight begin. avail mem=79 GB", 8.0: "The server is fired up and ready to roll!"}
    assert world.wait(marker="fired up") >= 8.0
    phases = [each.phase for each in world.progress]
    assert phases == sorted(phases, key=["launched", "loading weights", "ready"].index)
    assert "loading weights" in phases
    assert world.progress[-1].detail == "Load weight begin. avail mem=79 GB"


def test_a_stranger_s_good_answer_is_not_believed(world: FakeWorld) -> None:
    world.good_from_s = 0.0
    world.strangers = [42, 42, None]
    world.wait()
    assert len(world.asked_at) == 3


def test_an_end_is_told_at_once_with_the_log(world: FakeWorld) -> None:
    world.log_lines = {1.0: "error: unrecognized arguments: --x"}
    world.exit_at_s = 2.0
    with pytest.raises(ServerExited) as caught:
        world.wait()
    error = caught.value
    assert (error.exit_code, error.port_taken, error.log_tail) == (3, False, ("error: unrecognized arguments: --x",))
    assert world.now_s < 3.0


def test_a_dead_guardian_is_an_end(world: FakeWorld) -> None:
    world.guardian_dies_at_s = 0.0
    with pytest.raises(ServerExited) as caught:
        world.wait()
    assert str(caught.value) == (
        f"fake ended (nobody saw its exit code) after 0 ms, before it was ready\n  its log, {world.log_path}, is empty"
    )


def test_never_ready_ends_at_the_time_out(world: FakeWorld) -> None:
    with pytest.raises(ServerNotReady) as caught:
        world.wait(start_timeout_s=30.0)
    assert world.now_s == pytest.approx(30.0)
    assert str(caught.value) == (
        "fake lives (pid 77) but is not ready after 30 s: "
        "awaited GET http://127.0.0.1:3000/health = 200 (last answer: 503)\n"
        "  hint: raise start_timeout in [tool.moeperf.server] if it needs longer\n"
        f"  its log, {world.log_path}, is empty"
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exited with code 0"),
        (1, "exited with code 1"),
        (-9, "was ended by SIGKILL"),
        (-200, "was ended by signal 200"),
        (None, "ended (nobody saw its exit code)"),
    ],
)
def test_exit_codes_in_words(code: int | None, text: str) -> None:
    assert exit_text(code) == text

"""``moeperf servers`` over a real server, and ``moeperf simulate`` as a real process."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_samples import moeperf

from pytest_moeperf.model.server import LaunchPlan
from pytest_moeperf.servers.lease import lease
from pytest_moeperf.servers.ports import free_port
from pytest_moeperf.servers.registry import list_servers, stop_server

FAKE = Path(__file__).parents[1] / "faults" / "servers_fake_server.py"
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A runtime folder of the test's own. No server outlives the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MOEPERF_RUNTIME_DIR", str(tmp_path / "runtime"))
    yield
    for record in list_servers():
        stop_server(record, force=True)


def plan(digest: str) -> LaunchPlan:
    return LaunchPlan(
        command=(sys.executable, str(FAKE), "--port={port}"),
        name=f"{digest} (simulated)",
        spec_digest=digest,
        stop_timeout_s=1.0,
        start_timeout_s=PATIENCE_S,
    )


def warm(digest: str) -> str:
    """Leave a server warm, as ``--perf-keep-server`` does. Returns its launch id."""
    with lease(plan(digest), label="pytest pid 1", keep_s=600.0) as server:
        return server.launch_id


def test_nothing_runs() -> None:
    for arguments in (("servers",), ("servers", "list"), ("servers", "stop", "--all")):
        ran = moeperf(*arguments)
        assert (ran.code, ran.out, ran.err) == (0, "no server is running\n", "")
    assert moeperf("servers", "--json").out == "[]\n"


def test_a_warm_server_is_listed_and_stopped() -> None:
    launch_id = warm("triton")
    ran = moeperf("servers")
    assert (ran.code, ran.err) == (0, "")
    (record,) = list_servers()
    steady = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", "TIME", ran.out).replace(record.url, "URL")
    assert [line.split() for line in steady.splitlines()[:2]] == [
        ["id", "server", "state", "url", "started", "(UTC)"],
        [launch_id[:8], "triton", "(simulated)", "warm", "URL", "TIME"],
    ]
    assert steady.splitlines()[2:] == [
        "  held by nobody, kept warm until TIME+00:00",
        f"  {record.log_path}",
    ]
    assert moeperf("servers", "list").out == ran.out
    assert [found["launch_id"] for found in json.loads(moeperf("servers", "list", "--json").out)] == [launch_id]
    stopped = moeperf("servers", "stop", launch_id[:6])
    assert (stopped.code, stopped.out) == (0, f"stopped {launch_id[:8]}, triton (simulated)\n")
    assert list_servers() == ()


def test_a_server_in_use_needs_force_and_does_not_keep_others_alive() -> None:
    idle = warm("idle")
    with lease(plan("held"), label="pytest gw1") as server:
        refused = moeperf("servers", "stop", server.launch_id)
        assert (refused.code, refused.out) == (2, "")
        assert "held (simulated) is in use by pid " in refused.err
        assert "(pytest gw1, since " in refused.err
        ran = moeperf("servers", "stop", "--all")
        assert (ran.code, ran.out) == (2, f"stopped {idle[:8]}, idle (simulated)\n")
        assert "wait for them, or stop it all the same with --force" in ran.err
        assert [record.launch_id for record in list_servers()] == [server.launch_id]
        forced = moeperf("servers", "stop", "--all", "--force")
        assert (forced.code, forced.out) == (0, f"stopped {server.launch_id[:8]}, held (simulated)\n")


@pytest.mark.parametrize("arguments", [(), ("3f2a", "--all")])
def test_either_an_id_or_all(arguments: tuple[str, ...]) -> None:
    ran = moeperf("servers", "stop", *arguments)
    assert (ran.code, ran.err) == (
        2,
        "moeperf servers: ID: which server is to be stopped?\n  allowed: either an ID or --all\n",
    )


def test_an_id_that_is_not_there() -> None:
    ran = moeperf("servers", "stop", "3f2a")
    assert ran.code == 2
    assert ran.err == "moeperf servers: server 3f2a: there is no such server\n  allowed: no server is running\n"


def test_simulate_serves_until_interrupted() -> None:
    port = free_port()
    program = [sys.executable, "-m", "pytest_moeperf.cli", "simulate", "--backend=triton", f"--port={port}"]
    with subprocess.Popen([*program, "--seed=7"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            info = _server_info(port)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=PATIENCE_S) == 0
        finally:
            process.kill()
    assert (info["moe_runner_backend"], info["port"]) == ("triton", port)
    # An option that `moeperf` doesn't know is the server's own.
    assert info["simulated"]["args"]["seed"] == 7


def test_what_the_simulated_server_refuses_is_its_own_message() -> None:
    program = [sys.executable, "-m", "pytest_moeperf.cli", "simulate", "--backend=triton", "--no-such-flag"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "unrecognized arguments: --no-such-flag" in done.stderr


def _server_info(port: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/server_info")
            found: dict[str, Any] = json.loads(connection.getresponse().read())
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return found
        finally:
            connection.close()

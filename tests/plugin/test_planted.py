"""Secrets planted in the configuration, the environment and a server's log, of which no output of a pytest run holds one."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from pytest_moeperf.testing import SimulatedSuite

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from planted import PLANTED, leaks

PRIVATE = {"server.log", "guardian.log", "moeperf.toml", "python"}
"""What the user wrote, and the server's own log in the user's private runtime folder."""


def leaking(*folders: Path) -> list[str]:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return [path.name for path in files if path.name not in PRIVATE and leaks(path.read_text(errors="replace"))]


def test_a_server_that_does_not_start_and_says_everything(
    suite: SimulatedSuite, monkeypatch: pytest.MonkeyPatch, own_runtime_folder: Path
) -> None:
    folder = suite.pytester.path
    log = folder / "python"
    lines = "\n".join(f"printf '%s\\n' {shlex.quote(text)}" for text in PLANTED.values())
    log.write_text(f"#!/bin/sh\n{lines}\nexit 3\n")
    log.chmod(0o755)
    monkeypatch.setenv("DB_PASS", "Pl4nted-in-the-shell")
    config = folder / "moeperf.toml"
    env = "".join(f"V{number} = {json.dumps(text)}\n" for number, text in enumerate(PLANTED.values()))
    own = f"[server]\npython = {json.dumps(str(log))}\nargs = ['--api-key=Pl4nted-own-key']\n[server.env]\nDB_PASS = 'Pl4nted-1'\n{env}"
    config.write_text(f"{config.read_text()}\n{own}")
    for options in (
        ("--perf-plan",),
        (
            "--update-baselines",
            f"--perf-reason={PLANTED['jwt']}",
            "--perf-report=report",
            "--junitxml=j.xml",
            "-k",
            "fast-2",
        ),
    ):
        result = suite.run(*options, "-rA", "--showlocals")
        assert not leaks(result.raw), [line for line in result.raw.splitlines() if leaks(line)]
        assert "Traceback" not in result.raw
    assert "exited with code 3" in result.raw
    assert leaking(folder, own_runtime_folder) == []
    assert all(path.stat().st_mode & 0o77 == 0 for path in own_runtime_folder.rglob("server.log"))

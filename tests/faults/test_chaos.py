"""``benchmarks/chaos.py`` with a few kills: what the hundred of a full run are held to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CHAOS = Path(__file__).resolve().parents[2] / "benchmarks" / "chaos.py"


def test_random_kills_leave_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "chaos.json"
    done = subprocess.run(
        [sys.executable, CHAOS, "--kills", "6", "--seed", "7", "--json", file],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    assert figures["findings"] == []
    assert figures["kills"] == 6
    assert sum(figures["by_target"].values()) == 6
    wanted = ("orphans", "damaged_baselines", "stale_locks", "lost_runs")
    assert {name: figures[name] for name in wanted} == dict.fromkeys(wanted, 0)

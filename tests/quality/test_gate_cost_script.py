"""``benchmarks/gate_cost.py`` runs, and its JSON holds what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEYS = (
    "aa_false_fail",
    "aa_false_win",
    "aa_inconclusive",
    "caught_3",
    "caught_5",
    "caught_10",
    "win_10_flagged",
)


def test_the_figures_of_every_rule_in_every_world(tmp_path: Path) -> None:
    target = tmp_path / "gate.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gate_cost.py"), "--trials", "40", "--json", str(target)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(target.read_text())
    assert set(found["worlds"]) == {"quiet", "noisy", "pair_1.5", "h200_c10", "h200_c10_tpot", "go_nightly"}
    for rules in found["worlds"].values():
        assert {"moeperf", "moeperf_stored_only", "pytest_benchmark_5pct", "bencher_t_test", "paired_t_8_8"} <= set(
            rules
        )
        for figures in rules.values():
            assert all(0 <= figures[key] <= 1 and figures[f"{key}_error"] > 0 for key in KEYS)
            assert 1 <= figures["mean_launches_aa"] <= 17
            assert 1 <= figures["mean_launches_5"] <= 17
    assert [row["change"] for row in found["gross"]] == [0.0, -0.015, -0.05, -0.1, -0.2, -0.5, 0.67]
    assert "is undecided at a true -5 % by design" in done.stdout

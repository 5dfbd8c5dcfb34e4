"""Rows of ``h200_runs.csv`` from the JSON of reports.

    python benchmarks/data/condense_h200.py MACHINE REPORT.json ... [--sleep-ms MS]

They go to stdout, in the order of time. What each column holds stands in README.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

STARTED_AT = 6
"""Column of the time."""


def row(run: dict[str, Any], *, machine: str, sleep_ms: str) -> list[str | int]:
    launch, metrics, workload = run["launch"], run["metrics"], run["cell"]["workload"]
    return [
        machine,
        launch["id"][:8],
        launch["backend"],
        workload["concurrency"],
        workload["num_prompts"],
        run["index"],
        run["started_at"],
        int(run["warmup"]),
        f"{metrics['out_tps_steady']:.1f}",
        f"{metrics['tpot_ms']['mean']:.4f}",
        f"{metrics['ttft_ms']['mean']:.2f}",
        f"{metrics['duration_s']:.3f}",
        f"{launch['start_s']:.1f}",
        " ".join(check["name"] for check in run["checks"] if check["status"] == "fail"),
        sleep_ms,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("machine")
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT.json")
    parser.add_argument("--sleep-ms", default="")
    arguments = parser.parse_args()
    runs = {
        run["id"]: run
        for report in arguments.reports
        for outcome in json.loads(report.read_text("utf-8"))["outcomes"]
        for run in outcome["runs"]
    }
    rows = [row(run, machine=arguments.machine, sleep_ms=arguments.sleep_ms) for run in runs.values()]
    rows.sort(key=lambda cells: str(cells[STARTED_AT]))
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()

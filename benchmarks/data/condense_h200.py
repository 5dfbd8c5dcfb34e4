"""Rows of ``h200_runs.csv`` from the JSON of reports, or from journals of interrupted campaigns.

    python benchmarks/data/condense_h200.py MACHINE REPORT.json|JOURNAL.jsonl ... [--sleep-ms MS] [--frozen-gc]

They go to stdout, in the order of time. What each column holds stands in README.md. A sleep is the candidate's alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STARTED_AT = 6
"""Column of the time."""


def runs_of(file: Path) -> Iterator[dict[str, Any]]:
    text = file.read_text("utf-8")
    if file.suffix == ".jsonl":
        yield from map(json.loads, text.splitlines())
        return
    for outcome in json.loads(text)["outcomes"]:
        yield from outcome["runs"]


def row(run: dict[str, Any], *, machine: str, sleep_ms: str, frozen_gc: bool) -> list[str | int]:
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
        sleep_ms if launch["arm"] == "candidate" else "",
        int(frozen_gc),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("machine")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--sleep-ms", default="")
    parser.add_argument("--frozen-gc", action="store_true", help="/freeze_gc was called when each server was up")
    arguments = parser.parse_args()
    told = {"machine": arguments.machine, "sleep_ms": arguments.sleep_ms, "frozen_gc": arguments.frozen_gc}
    runs = {run["id"]: run for file in arguments.files for run in runs_of(file)}
    rows = [row(run, **told) for run in runs.values()]
    rows.sort(key=lambda cells: str(cells[STARTED_AT]))
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()

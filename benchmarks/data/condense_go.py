"""Condenses Go's nightly A/A runs into ``go117_aa.csv``.

    git clone https://go.googlesource.com/perf && python benchmarks/data/condense_go.py perf/cmd/benchseries/testdata

Takes the files of the never-changing Go 1.17 arm, the benchmarks (not the builds) that have 25 ns/op values on every
day, and of those every second by name. Writes, a line for each benchmark and day, ln(ns/op / that benchmark's overall
median) of each run in units of 0.0001, in the order of the runs.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
import sys
from pathlib import Path

RUNS = 25
EVERY = 2
LINE = re.compile(r"^(Benchmark\S+-\d+)\s+\d+\s+([\d.]+) ns/op")


def read(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Benchmark -> day -> ns/op of each run."""
    found: dict[str, dict[str, list[float]]] = {}
    for path in sorted(folder.rglob("Go1.17-opt.*")):
        day = path.name.rsplit(".", 1)[1][:8]
        for line in path.read_text().splitlines():
            if match := LINE.match(line):
                found.setdefault(match[1], {}).setdefault(day, []).append(float(match[2]))
    return found


def main() -> None:
    benchmarks = read(Path(sys.argv[1]))
    days = sorted({day for runs in benchmarks.values() for day in runs})
    whole = {
        name: runs
        for name, runs in sorted(benchmarks.items())
        if sorted(runs) == days and all(len(values) == RUNS for values in runs.values())
    }
    target = Path(__file__).with_name("go117_aa.csv")
    with target.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["benchmark", "day", *(f"run{index + 1}" for index in range(RUNS))])
        for name in list(whole)[::EVERY]:
            median = statistics.median(value for values in whole[name].values() for value in values)
            for day in days:
                row = [round(1e4 * math.log(value / median)) for value in whole[name][day]]
                writer.writerow([name.removeprefix("Benchmark"), day, *row])
    size = target.stat().st_size / 1024
    print(f"{len(whole)} benchmarks on {len(days)} days, every {EVERY}nd kept: {target} ({size:.0f} KiB)")


if __name__ == "__main__":
    main()

"""Derives the group-sequential constants that ``pytest_moeperf/stats/boundaries.py`` ships, and shows how sure
they are.

python benchmarks/derive_boundaries.py                 # the table, as Python, with the spread over 8 seeds
python benchmarks/derive_boundaries.py --check         # compares it with what is shipped; exit status 1 if it moved
"""

from __future__ import annotations

import argparse
import statistics

from pytest_moeperf.stats.boundaries import LOOKS, TABLE, derive

ALPHAS = (
    0.05,
    0.04,
    0.039,
    0.03,
    0.02,
    0.0195,
    0.015,
    0.01,
    0.0075,
    0.005,
    0.0035,
    0.0025,
    0.0015,
    0.001,
    0.0005,
    0.00025,
    0.0001,
)
SEEDS = range(8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the shipped table")
    parser.add_argument(
        "--log2-samples", type=int, default=20, help="quasi-random samples of each seed, as a power of 2"
    )
    options = parser.parse_args()

    tables = [derive(ALPHAS, LOOKS, log2_samples=options.log2_samples, seed=seed) for seed in SEEDS]
    moved = 0.0
    for alpha in ALPHAS:
        columns = list(zip(*(table[alpha] for table in tables), strict=True))
        found = tuple(round(statistics.fmean(column), 4) for column in columns)
        error = max(statistics.stdev(column) / len(column) ** 0.5 for column in columns)
        print(f"    {alpha:g}: {found},  # standard error {error:.4f}")
        if options.check:
            moved = max(moved, *(abs(new / old - 1) for new, old in zip(found, TABLE[alpha], strict=True)))
    if options.check:
        print(f"largest relative difference from the shipped table: {moved:.2%}")
    return int(moved > 0.005)


if __name__ == "__main__":
    raise SystemExit(main())

"""How much slower does SGLang's ``/slow_down`` make a server? Its sleep lies in the scheduler, which the GPU overlaps.

    python benchmarks/slow_down.py --url http://127.0.0.1:30000 [--concurrency 10] [--vocab-size 1024] [--json FILE]

Each repeat has a run of every sleep, every second one in reverse. The change is that of the median run against the
median run without sleep. ``examples/h200/campaign.py`` reads the file to plant regressions of a known size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import urllib.request
from pathlib import Path
from typing import Any

from parity import run_ours

from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.model.vocabulary import Vocabulary
from pytest_moeperf.model.workload import Workload

SLEEPS_MS = (0.0, 0.3, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 1.0, 1.3, 1.6)
METRICS = ("tpot_ms", "out_tps")


def set_sleep(url: str, sleep_ms: float) -> None:
    request = urllib.request.Request(  # noqa: S310 (our own server)
        f"{url}/slow_down",
        data=json.dumps({"forward_sleep_time": sleep_ms / 1e3 or None}).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310 (our own server)


def sweep(url: str, workload: Workload, *, repeats: int, vocab_size: int) -> list[dict[str, Any]]:
    """One row a sleep: ``sleep_ms``, the runs of each metric, and its change against no sleep."""
    runs: dict[float, list[dict[str, float]]] = {sleep_ms: [] for sleep_ms in SLEEPS_MS}
    run_ours(url, workload, make_prompts(workload, run_key="warm-up", vocabulary=Vocabulary(size=vocab_size)))
    try:
        for repeat in range(repeats):
            for sleep_ms in SLEEPS_MS if repeat % 2 == 0 else SLEEPS_MS[::-1]:
                set_sleep(url, sleep_ms)
                prompts = make_prompts(workload, run_key=f"{repeat} {sleep_ms}", vocabulary=Vocabulary(size=vocab_size))
                runs[sleep_ms].append(run_ours(url, workload, prompts))
    finally:
        set_sleep(url, 0.0)
    medians = {
        sleep_ms: {name: statistics.median(run[name] for run in made) for name in METRICS}
        for sleep_ms, made in runs.items()
    }
    return [
        {
            "sleep_ms": sleep_ms,
            **{name: [run[name] for run in made] for name in METRICS},
            "change": {name: medians[sleep_ms][name] / medians[0.0][name] - 1 for name in METRICS},
        }
        for sleep_ms, made in runs.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", required=True, help="a server that runs already; its radix cache must be off")
    parser.add_argument("--vocab-size", type=int, default=1024)
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--input-len", type=int, default=512)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--num-prompts", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    workload = Workload(
        concurrency=arguments.concurrency,
        input_len=arguments.input_len,
        output_len=arguments.output_len,
        num_prompts=arguments.num_prompts,
    )
    rows = sweep(arguments.url, workload, repeats=arguments.repeats, vocab_size=arguments.vocab_size)
    print(f"{workload.label}, {workload.num_prompts} prompts, median of {arguments.repeats} runs")
    print(f"{'sleep [ms]':>10}{'TPOT [ms]':>11}{'change':>9}{'tok/s':>9}{'change':>9}")
    for row in rows:
        tpot, tok_s = (statistics.median(row[name]) for name in METRICS)
        change = row["change"]
        print(f"{row['sleep_ms']:>10.2f}{tpot:>11.3f}{change['tpot_ms']:>+9.1%}{tok_s:>9.0f}{change['out_tps']:>+9.1%}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"workload": workload.as_fields(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

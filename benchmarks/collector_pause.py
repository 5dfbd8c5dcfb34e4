"""How long is SGLang silent when it collects garbage, and where? Needs the real SGLang on a CPU.

    python benchmarks/collector_pause.py [--freeze] [--runs 4] [--sglang-python PYTHON]

Each line is the longest silence of a run: the gap between two neighbouring tokens of any stream, and which token of
which request ended it. A full collection of the scheduler comes after a fixed number of steps, so it is at the same
place of every launch's first run; after ``/freeze_gc`` (``--freeze``) it is nowhere.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request

from parity import TINY_MOE, cpu_server

from pytest_moeperf.load.driver import drive
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.vocabulary import Vocabulary
from pytest_moeperf.model.workload import Workload

WORKLOAD = Workload(concurrency=4, input_len=32, output_len=64, num_prompts=60)
VOCABULARY = 256


def longest_silence(result: LoadResult) -> tuple[float, int, int]:
    """Milliseconds, and the request and the number of its event that ended it."""
    events = sorted(
        (at_ns, record.index, number) for record in result.records for number, at_ns in enumerate(record.event_ns)
    )
    gaps = ((after[0] - before[0], *after[1:]) for before, after in itertools.pairwise(events))
    gap_ns, request, number = max(gaps)
    return gap_ns / 1e6, request, number


def usual_step_ms(result: LoadResult) -> float:
    steps = (after - before for record in result.records for before, after in itertools.pairwise(record.event_ns))
    return statistics.median(steps) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sglang-python", default=os.environ.get("MOEPERF_SGLANG_PYTHON"))
    parser.add_argument("--freeze", action="store_true", help="POST /freeze_gc before the first run")
    parser.add_argument("--runs", type=int, default=4)
    arguments = parser.parse_args()
    if not arguments.sglang_python:
        parser.error("--sglang-python (or MOEPERF_SGLANG_PYTHON) must name an interpreter that has sglang")
    # A time-out that ends us must end the server too: let its signal run the clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as model:
        subprocess.run([sys.executable, str(TINY_MOE), model], check=True, stdout=subprocess.DEVNULL)
        with cpu_server(arguments.sglang_python, model) as url:
            if arguments.freeze:
                urllib.request.urlopen(f"{url}/freeze_gc", data=b"", timeout=30).close()  # noqa: S310 (our own server)
            for run in range(arguments.runs):
                prompts = make_prompts(WORKLOAD, run_key=f"{run}", vocabulary=Vocabulary(size=VOCABULARY))
                result = drive(url=url, workload=WORKLOAD, prompts=prompts, timeout_s=600)
                silence_ms, request, number = longest_silence(result)
                print(
                    f"run {run}: {silence_ms:.0f} ms before token {number} of request {request}; "
                    f"a step takes {usual_step_ms(result):.1f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()

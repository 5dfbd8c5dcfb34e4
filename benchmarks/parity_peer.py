"""sglang.bench_serving, its own command line, on prompts that are given to it. Runs in the interpreter that has sglang.

Reads one job a line from stdin, ``{"prompts": FILE, "output_len": N, "arguments": [...]}``, and answers ``done`` on
stdout: importing sglang takes longer than a run. What bench_serving itself prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    from sglang.benchmark import datasets
    from sglang.benchmark.datasets.common import DatasetRow

    for line in sys.stdin:
        job = json.loads(line)
        rows = [
            DatasetRow(prompt=prompt, prompt_len=len(prompt), output_len=job["output_len"])
            for prompt in json.loads(Path(job["prompts"]).read_text())
        ]

        def given(*_args: Any, rows: list[Any] = rows, **_more: Any) -> list[Any]:
            return rows

        datasets.get_dataset = given
        sys.argv = ["sglang.bench_serving", *job["arguments"]]
        runpy.run_module("sglang.bench_serving", run_name="__main__")
        answers.write("done\n")


if __name__ == "__main__":
    main()

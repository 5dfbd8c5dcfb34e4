"""sglang.bench_serving, its own command line, on prompts that are given to it. Runs in the interpreter that has sglang.

python parity_peer.py PROMPTS.json OUTPUT_LEN [arguments of sglang.bench_serving ...]
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    from sglang.benchmark import datasets
    from sglang.benchmark.datasets.common import DatasetRow

    prompts = json.loads(Path(sys.argv[1]).read_text())
    output_len = int(sys.argv[2])

    def given(*_args: Any, **_more: Any) -> list[Any]:
        return [DatasetRow(prompt=prompt, prompt_len=len(prompt), output_len=output_len) for prompt in prompts]

    datasets.get_dataset = given
    sys.argv = ["sglang.bench_serving", *sys.argv[3:]]
    runpy.run_module("sglang.bench_serving", run_name="__main__")


if __name__ == "__main__":
    main()

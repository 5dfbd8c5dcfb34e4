"""Everything that docs/on-h200.md shows, in one go: ``python examples/h200/campaign.py OUT STEP [STEP ...]``.

Each step is one pytest command; its output, its report and the baselines after it are kept in OUT. A step whose verdict
is not the expected one is told and does not stop the next. ``slow_down`` and ``parity`` are no pytest commands: the
first measures what ``/slow_down`` really costs, which the steps ``slow2``, ``slow5`` and ``slow10`` need, the second
compares the instrument with sglang.bench_serving.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]


@dataclass(frozen=True, kw_only=True)
class Step:
    arguments: tuple[str, ...]
    expected: str
    """A regular expression that the output must match."""
    expected_s: float = 90.0
    """About how long it takes, on a host that has compiled its kernels."""
    slowdown: float = 0.0
    """The planted regression: the share of its throughput that the candidate loses."""
    env: dict[str, str] = field(default_factory=dict)


ONE_CELL = ("-k", "c10")
LATENCY = ("-k", "c1")
"""c=1 and c=10."""
SUITE = ("-k", "not c256")
AGAINST_KERNEL = ("--backend=triton", "--perf-reference=triton_kernel")
RECORD = ("--update-baselines", "--perf-launches=1")
WORSE = ("--backend=triton", *ONE_CELL)
FP8 = {"MOEPERF_MODEL": str(HERE / "moe-64x8-fp8")}
STEPS = {
    "record": Step(arguments=("--backend=triton", *RECORD, *SUITE), expected="Recorded: ", expected_s=180),
    "again": Step(arguments=("--backend=triton", *RECORD, *ONE_CELL), expected="Recorded: "),
    "record_c2": Step(arguments=("--backend=triton", *RECORD, "-k", "c2 and not c256"), expected="Recorded: "),
    "record_all": Step(
        arguments=("--backend=triton", "--update-baselines", "--perf-launches=2"), expected="Recorded: ", expected_s=500
    ),
    "pass": Step(
        arguments=("--backend=triton", "-k", "c10 or c64"), expected="EQUIVALENT|NON_INFERIOR", expected_s=130
    ),
    "slow2": Step(arguments=WORSE, expected="EQUIVALENT|NON_INFERIOR|INCONCLUSIVE", slowdown=0.02, expected_s=400),
    "slow5": Step(arguments=WORSE, expected="REGRESSION|INCONCLUSIVE", slowdown=0.05, expected_s=400),
    "slow10": Step(arguments=WORSE, expected="REGRESSION", slowdown=0.10, expected_s=400),
    "record_kernel": Step(
        arguments=("--backend=triton_kernel", *RECORD, *SUITE), expected="Recorded: ", expected_s=180
    ),
    "screen_win": Step(
        arguments=(*AGAINST_KERNEL, "--perf-mode=screen", *LATENCY), expected="INCONCLUSIVE", expected_s=90
    ),
    "win": Step(arguments=(*AGAINST_KERNEL, "-k", "c1 and not c10"), expected="UNVERIFIED_WIN", expected_s=330),
    "verify": Step(
        arguments=(*AGAINST_KERNEL, "--perf-verify-wins", "--perf-continue", "-k", "c1 and not c10"),
        expected=r"\bVERIFIED_WIN",
        expected_s=720,
    ),
    "loss": Step(
        arguments=("--backend=triton_kernel", "--perf-reference=triton", *LATENCY),
        expected="REGRESSION",
        expected_s=400,
    ),
    # The checkpoint is bf16, for which SGLang 0.5.14 has no cutlass kernel. It takes the flag, repeats it in
    # /server_info, and runs triton.
    "fallback": Step(arguments=("--backend=cutlass", *RECORD, *ONE_CELL), expected="asked for cutlass, but triton ran"),
    # The checkpoint declares fp8, for which flashinfer_cutlass has no kernel. SGLang 0.5.23 runs triton and says so in
    # its log; 0.5.14 dies of a request.
    "fp8": Step(arguments=("--backend=flashinfer_cutlass", *RECORD, *ONE_CELL), expected="1 failed", env=FP8),
    "fp8_triton": Step(arguments=("--backend=triton", *RECORD, *ONE_CELL), expected="Recorded: ", env=FP8),
    # Two GPUs against the baseline of one.
    "tp2": Step(
        arguments=("--backend=triton", *ONE_CELL),
        expected="INCOMPARABLE",
        expected_s=150,
        env={"MOEPERF_TENSOR_PARALLEL": "2"},
    ),
}
ONE_SERVER_S = {"slow_down": 180.0, "parity": 330.0}
"""``one_server.py`` measures these on a server that stays."""
ONE_SERVER_SAYS = {"slow_down": r"sleep \[ms\]", "parity": "agrees"}
# Machines differ by 2 %, so a planted regression is held against fresh launches of the same backend.
HEAD_TO_HEAD = """
[reference]
env = { PLANTED = "nothing" }
"""


def sleep_for(slowdown: float, measured: Path) -> float:
    """Milliseconds of ``/slow_down`` that take ``slowdown`` of the throughput, between what was measured.

    Raises:
        ValueError: nothing that was measured is so slow.
    """
    rows = json.loads(measured.read_text("utf-8"))["rows"]
    for below, above in itertools.pairwise(rows):
        low, high = (-row["change"]["out_tps"] for row in (below, above))
        if low <= slowdown <= high:
            share = (slowdown - low) / (high - low)
            return float(below["sleep_ms"] + share * (above["sleep_ms"] - below["sleep_ms"]))
    raise ValueError(f"{measured}: no sleep took {slowdown:.0%} of the throughput")


def planted(out: Path) -> Path:
    """The suite in a folder of its own, where each backend is held against itself, head to head."""
    folder = out / "planted"
    if not folder.exists():
        shutil.copytree(
            HERE, folder, ignore=shutil.ignore_patterns("baselines", "moe-64x8*", "__pycache__", ".moeperf")
        )
        (folder / "moe-64x8").symlink_to(HERE / "moe-64x8")
        with (folder / "moeperf.toml").open("a", encoding="utf-8") as file:
            file.write(HEAD_TO_HEAD)
    return folder


def command_of(name: str, out: Path, *, measured: Path, left_s: float | None) -> tuple[list[str], dict[str, str]]:
    """The step's command and what it adds to the environment."""
    if name in ONE_SERVER_S:
        return [sys.executable, str(HERE / "one_server.py"), str(out / name), name], {}
    step = STEPS[name]
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
        *("-o", "filterwarnings=default", "-p", "no:timeout", "-m", "perf", f"--perf-report={out / name}"),
        *(() if left_s is None else (f"--perf-budget={left_s:.0f}s",)),
        *step.arguments,
        str(planted(out) if step.slowdown else HERE),
    ]
    if not step.slowdown:
        return command, step.env
    return command, step.env | {"SLEEP_MS": f"{sleep_for(step.slowdown, measured):.3f}", "FREEZE_GC": "1"}


def run(name: str, out: Path, *, measured: Path, left_s: float | None) -> bool:
    """Whether to go on. Steps of one name may be run several times: the second is kept as NAME-2."""
    command, added = command_of(name, out, measured=measured, left_s=left_s)
    print(f"== {name}: {shlex.join(command[1:])} {added or ''}", flush=True)
    began = time.monotonic()
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "output.txt"
    with output.open("w", encoding="utf-8") as file:
        file.write(f"{added or ''}\n")
        file.flush()
        code, interrupted = ended(command, env=os.environ | added, output=file)
    took_s = time.monotonic() - began
    said = output.read_text("utf-8")
    shutil.copytree(HERE / "baselines", folder / "baselines", dirs_exist_ok=True)
    expected = STEPS[name].expected if name in STEPS else ONE_SERVER_SAYS[name]
    as_expected = "as expected" if re.search(expected, " ".join(said.split())) else f"NOT as expected: {expected}"
    if name in STEPS:
        folder.rename(next(path for path in _names(folder) if not path.exists()))
    lines = [line for line in said.splitlines() if " | run " not in line]
    print("\n".join(lines[-60:]))
    print(f"== {name}: exit {code}, {took_s:.0f} s, {as_expected}", flush=True)
    return not interrupted


def ended(command: list[str], *, env: Mapping[str, str], output: IO[str]) -> tuple[int, bool]:
    """Run it to its end: its exit status, and whether it was interrupted. Ctrl-C reaches it too, and is waited for:
    what was measured by then is worth its minutes."""
    with subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            return process.wait(), False
        except KeyboardInterrupt:
            return process.wait(), True


def _names(folder: Path) -> Iterator[Path]:
    return (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("steps", nargs="+", metavar="STEP", choices=(*STEPS, *ONE_SERVER_S))
    parser.add_argument(
        "--until",
        type=float,
        metavar="TIME",
        help="leave out steps that would end later (Unix time); budget the others",
    )
    parser.add_argument("--measured", type=Path, metavar="FILE", help="what slow_down found, if not in OUT")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    measured = arguments.measured or out / "slow_down" / "slow_down.json"
    (HERE / "baselines").mkdir(exist_ok=True)
    for preset, model in (("h200", "moe-64x8"), ("h200-fp8", "moe-64x8-fp8")):
        subprocess.run(
            [sys.executable, str(REPOSITORY / "tests/e2e/tiny_moe.py"), "--preset", preset, str(HERE / model)],
            check=True,
        )
    for name in arguments.steps:
        expected_s = STEPS[name].expected_s if name in STEPS else ONE_SERVER_S[name]
        left_s = arguments.until - time.time() if arguments.until else None
        if left_s is not None and expected_s > left_s:
            print(f"== {name}: left out, it takes about {expected_s:.0f} s", flush=True)
            continue
        try:
            if not run(name, out, measured=measured, left_s=left_s):
                break
        except (OSError, ValueError) as error:
            print(f"== {name}: {error}", flush=True)


if __name__ == "__main__":
    main()

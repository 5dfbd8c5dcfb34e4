"""Everything that docs/on-h200.md shows, in one go: ``python examples/h200/campaign.py OUT STEP [STEP ...]``.

Each step is one pytest command; its output, its report and the baselines after it are kept in OUT. A step whose verdict
is not the expected one is told and does not stop the next.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]


@dataclass(frozen=True, kw_only=True)
class Step:
    arguments: tuple[str, ...]
    expected: str
    """A word that must stand in the output."""
    sleep_ms: str = ""
    env: dict[str, str] = field(default_factory=dict)


TWO = ("-k", "c10 or c64")
STEPS = {
    "record": Step(arguments=("--backend=triton", "--update-baselines", "--perf-launches=2"), expected="recorded"),
    "record2": Step(
        arguments=("--backend=triton", "--update-baselines", "--perf-launches=2", *TWO), expected="recorded"
    ),
    "again2": Step(
        arguments=("--backend=triton", "--update-baselines", "--perf-launches=1", *TWO), expected="recorded"
    ),
    "pass": Step(arguments=("--backend=triton",), expected="passed"),
    "pass2": Step(arguments=("--backend=triton", *TWO), expected="NON_INFERIOR"),
    "slow20": Step(arguments=("--backend=triton", "-k", "c10"), expected="REGRESSION", sleep_ms="0.6"),
    "slow5": Step(arguments=("--backend=triton", "-k", "c10"), expected="moeperf", sleep_ms="0.13"),
    "pass10": Step(arguments=("--backend=triton", "-k", "c10"), expected="passed"),
    "win": Step(
        arguments=("--backend=triton", "--perf-reference=triton_kernel", "-k", "c10"), expected="UNVERIFIED_WIN"
    ),
    "verify": Step(
        arguments=("--backend=triton", "--perf-reference=triton_kernel", "--perf-verify-wins", "-k", "c10"),
        expected="VERIFIED_WIN",
    ),
    # The checkpoint declares fp8, for which flashinfer_cutlass has no kernel. SGLang 0.5.23 runs triton and says so in
    # its log; 0.5.14 dies of a request.
    "fp8": Step(
        arguments=("--backend=flashinfer_cutlass", "--update-baselines", "--perf-launches=1", "-k", "c10"),
        expected="flashinfer_cutlass",
        env={"MOEPERF_MODEL": str(HERE / "moe-64x8-fp8")},
    ),
    # Two GPUs against the baseline of one.
    "tp2": Step(
        arguments=("--backend=triton", "-k", "c10"), expected="INCOMPARABLE", env={"MOEPERF_TENSOR_PARALLEL": "2"}
    ),
    "loss": Step(arguments=("--backend=triton_kernel", "--perf-reference=triton", "-k", "c10"), expected="REGRESSION"),
}


def run(name: str, out: Path) -> None:
    step = STEPS[name]
    folder = out / name
    command = [
        *(sys.executable, "-m", "pytest", "-p", "pytest_moeperf.plugin", "-p", "no:cacheprovider"),
        *("-o", "filterwarnings=default", "-p", "no:timeout", "-m", "perf", f"--perf-report={folder}"),
        *step.arguments,
        str(HERE),
    ]
    env = os.environ | step.env | ({"SLEEP_MS": step.sleep_ms} if step.sleep_ms else {})
    began = time.monotonic()
    print(f"== {name}: {' '.join(step.arguments)} {step.sleep_ms and f'SLEEP_MS={step.sleep_ms}'}", flush=True)
    done = subprocess.run(
        command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "output.txt").write_text(done.stdout)
    shutil.copytree(HERE / "baselines", folder / "baselines", dirs_exist_ok=True)
    as_expected = "as expected" if step.expected in done.stdout else f"NOT as expected ({step.expected})"
    lines = [line for line in done.stdout.splitlines() if " | run " not in line]
    print("\n".join(lines[-45:]))
    print(f"== {name}: exit {done.returncode}, {time.monotonic() - began:.0f} s, {as_expected}", flush=True)


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    (HERE / "baselines").mkdir(exist_ok=True)
    for preset, model in (("h200", "moe-64x8"), ("h200-fp8", "moe-64x8-fp8")):
        subprocess.run(
            [sys.executable, str(REPOSITORY / "tests/e2e/tiny_moe.py"), "--preset", preset, str(HERE / model)],
            check=True,
        )
    for name in sys.argv[2:]:
        run(name, target)

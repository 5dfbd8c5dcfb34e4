"""What needs a server that stays: ``python examples/h200/one_server.py OUT slow_down|parity``.

``slow_down``: its effect. ``parity``: whether our metrics agree with sglang.bench_serving's, at 10 and at 1024 streams.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
MODEL = HERE / "moe-64x8"
VOCABULARY = "2048"
# Decode steps of 1024 streams run in a graph too.
GRAPHS = ("--cuda-graph-bs-decode", "1", "2", "10", "64", "128", "256", "1024")


def server_command(config: Path) -> tuple[list[str], dict[str, str]]:
    """The suite's own server, without its client's flags; and its environment."""
    server = tomllib.loads(config.read_text("utf-8"))["server"]
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(MODEL), *server["args"], *GRAPHS]
    return [*command, "--moe-runner-backend=triton"], server["env"]


def main(out: Path, what: str) -> None:
    sys.path.insert(0, str(BENCHMARKS))
    from parity import serving

    out.mkdir(parents=True, exist_ok=True)
    command, env = server_command(HERE / "moeperf.toml")
    parity = [
        *(sys.executable, str(BENCHMARKS / "parity.py"), "--sglang-python", sys.executable),
        *("--tokenizer", str(MODEL), "--vocab-size", VOCABULARY),
    ]
    slow_down = [sys.executable, str(BENCHMARKS / "slow_down.py"), "--vocab-size", VOCABULARY]
    at_10 = ("--concurrency=10", "--input-len=512", "--output-len=128", "--num-prompts=60", "--pairs=4")
    at_1024 = ("--concurrency=1024", "--input-len=128", "--output-len=64", "--num-prompts=3072", "--pairs=4")
    with serving(command, env=env, start_timeout_s=600) as url:
        for name, arguments in {
            "slow_down": (("slow_down", slow_down),),
            "parity": (("parity_c10", [*parity, *at_10]), ("parity_c1024", [*parity, *at_1024])),
        }[what]:
            done = subprocess.run(
                [*arguments, f"--url={url}", f"--json={out / name}.json"],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            print(done.stdout, flush=True)
            (out / f"{name}.txt").write_text(done.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

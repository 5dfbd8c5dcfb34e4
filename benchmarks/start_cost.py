"""What an installed but unused plugin adds to pytest's start: ours, pytest-benchmark's and xdist's, in one run.

    python benchmarks/start_cost.py [--rounds 30] [--json FILE]

Each round starts pytest once with each plugin, in a new order, on a folder with one plain test. CPU time (user and
system) is what is compared: wall time on a shared machine is mostly other people's. Also shown: what each imports.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PLUGINS = {
    "nothing": "",
    "moeperf": "pytest_moeperf.plugin",
    "pytest-benchmark": "pytest_benchmark.plugin",
    "xdist": "xdist.plugin",
}
HEAVY = ("numpy", "scipy", "torch", "aiohttp", "msgspec", "filelock", "psutil", "starlette", "subprocess")
SEEN = f"""
import sys
def pytest_unconfigure():
    print("IMPORTED", [name for name in {HEAVY!r} if name in sys.modules])
"""


def start(plugin: str, folder: Path, *, extra: tuple[str, ...] = ()) -> tuple[float, str]:
    command = [sys.executable, "-m", "pytest", "-q", *(("-p", plugin) if plugin else ()), *extra, "test_plain.py"]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s * 1000, done.stdout


def measure(rounds: int) -> dict[str, Any]:
    present = {
        name: module
        for name, module in PLUGINS.items()
        if not module or importlib.util.find_spec(module.partition(".")[0]) is not None
    }
    draws = random.Random(0)
    cpu_ms: dict[str, list[float]] = {name: [] for name in present}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_plain.py").write_text("def test_plain(): pass\n")
        (folder / "seen.py").write_text(SEEN)
        (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        for module in present.values():
            start(module, folder)
        for _ in range(rounds):
            for plugin in draws.sample(sorted(present), len(present)):
                cpu_ms[plugin].append(start(present[plugin], folder)[0])
        imported = {
            plugin: next(
                line.partition(" ")[2]
                for line in start(module, folder, extra=("-p", "seen"))[1].splitlines()
                if line.startswith("IMPORTED")
            )
            for plugin, module in present.items()
        }
    base = statistics.median(cpu_ms["nothing"])
    return {
        plugin: {
            "cpu_ms": round(statistics.median(values), 1),
            "added_ms": round(statistics.median(values) - base, 1),
            "imports": imported[plugin],
        }
        for plugin, values in cpu_ms.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = measure(arguments.rounds)
    print(f"{'plugin':18}{'CPU ms':>8}{'added':>8}  heavy imports")
    for plugin, row in results.items():
        print(f"{plugin:18}{row['cpu_ms']:8.1f}{row['added_ms']:+8.1f}  {row['imports']}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rounds": arguments.rounds, "plugins": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

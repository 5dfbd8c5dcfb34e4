"""``moeperf simulate``: the simulated engine in the foreground."""

from __future__ import annotations

import argparse
import os
import sys

from pytest_moeperf.cli.commands import Commands
from pytest_moeperf.cli.values import whole_number

NAME = "simulate"
_MODULE = "pytest_moeperf.engines.simulated"


def add(commands: Commands) -> None:
    parser = commands.add(
        NAME,
        run=run,
        summary="run the simulated engine in the foreground",
        description="Run a server that speaks SGLang's protocol, with step times and noise of a profile instead of a "
        "GPU. It serves until Ctrl-C. Every further option is the simulated server's own: "
        f"python -m {_MODULE} --help lists them (faults, noise, time scale, ...).",
        example="moeperf simulate --backend=triton --port=30000\n"
        "moeperf simulate --backend=mine --profile=mine.toml --port=30001 --fault=crash_mid_run=5000",
    )
    parser.add_argument("--backend", metavar="NAME", required=True, help="its name, and profile unless there is one")
    parser.add_argument("--port", metavar="P", type=whole_number(0), default=30000, help="0: any free one")
    parser.add_argument("--profile", metavar="FILE|NAME", help="step times, noise and traces")


def run(args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", _MODULE, f"--backend={args.backend}", f"--port={args.port}"]
    command += [f"--profile={args.profile}"] if args.profile else []
    # In place of this process, so that Ctrl-C and SIGTERM reach the server itself.
    os.execv(command[0], [*command, *args.further])  # noqa: S606 - a list of arguments, no shell

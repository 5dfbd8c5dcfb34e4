"""A process that leases a server, says so in one line of JSON, and ends as it is told."""

from __future__ import annotations

import argparse
import json
import os
import sys

from pytest_moeperf.model.server import LaunchPlan
from pytest_moeperf.servers.lease import lease


def main() -> None:
    """Leases, prints, waits for a line on stdin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", required=True)
    parser.add_argument("--digest", required=True)
    parser.add_argument("--keep-s", type=float, default=0.0)
    parser.add_argument("--devices", default="")
    parser.add_argument("--fork", action="store_true")
    options = parser.parse_args()
    plan = LaunchPlan(
        command=tuple(json.loads(options.command)),
        name="fake",
        spec_digest=options.digest,
        stop_timeout_s=1.0,
        devices=tuple(filter(None, options.devices.split(","))),
    )
    with lease(plan, label="holder", keep_s=options.keep_s) as server:
        if options.fork and os.fork() == 0:
            # A forked child has a copy of every open file, the lease's socket too.
            sys.stdin.read()
            os._exit(0)
        print(json.dumps(server.record.to_dict()), flush=True)
        if sys.stdin.readline().strip() == "raise":
            raise RuntimeError("on purpose")


if __name__ == "__main__":
    main()

"""Planted regressions: ``SLEEP_MS=0.35`` makes the candidate's server sleep that long in every forward pass."""

import json
import os
import urllib.request


def pytest_moeperf_server_ready(launch, url, api_key):
    sleep_ms = os.environ.get("SLEEP_MS")
    if sleep_ms is None or launch.arm != "candidate":
        return
    request = urllib.request.Request(
        f"{url}/slow_down",
        data=json.dumps({"forward_sleep_time": float(sleep_ms) / 1000}).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"},
    )
    urllib.request.urlopen(request, timeout=30).close()

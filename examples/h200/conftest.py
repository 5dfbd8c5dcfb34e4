"""``SLEEP_MS=0.35``: a planted regression, the candidate's server sleeps that long in every forward pass.

``FREEZE_GC=1``: no server collects the garbage of its start in the middle of a run (docs/fixtures-and-hooks.md).
"""

import json
import os
import urllib.request


def pytest_moeperf_server_ready(launch, url, api_key):
    if os.environ.get("FREEZE_GC") == "1":
        post(f"{url}/freeze_gc", {}, api_key)
    sleep_ms = os.environ.get("SLEEP_MS")
    if sleep_ms is not None and launch.arm == "candidate":
        post(f"{url}/slow_down", {"forward_sleep_time": float(sleep_ms) / 1000}, api_key)


def post(url, body, api_key):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
    urllib.request.urlopen(request, timeout=30).close()

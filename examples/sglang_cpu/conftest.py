"""A regression on demand: with ``SLEEP_MS=20`` the server sleeps 20 ms in every forward pass."""

import http.client
import json
import os
from urllib.parse import urlsplit


def pytest_moeperf_server_ready(url, api_key):
    sleep_ms = os.environ.get("SLEEP_MS")
    # None ends what an earlier run may have asked of a server that was kept warm.
    sleep_s = float(sleep_ms) / 1000 if sleep_ms else None
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request(
        "POST",
        "/slow_down",
        body=json.dumps({"forward_sleep_time": sleep_s}),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"},
    )
    status = connection.getresponse().status
    connection.close()
    assert status == http.client.OK, f"/slow_down answered {status}"

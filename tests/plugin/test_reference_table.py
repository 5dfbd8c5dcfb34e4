"""``[tool.moeperf.reference]``: the same backend from another installation, launched beside the candidate."""

from __future__ import annotations

from pytest_moeperf.testing import SimulatedSuite

TABLE = """
[reference]
env = { INSTALLATION = "main" }
"""
SLOWER = """
import json
import urllib.request

def pytest_moeperf_server_ready(launch, url, api_key):
    if launch.arm == "candidate":
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}
        body = json.dumps({"forward_sleep_time": 0.006}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{url}/slow_down", data=body, headers=headers)).close()
"""


def test_a_slower_pull_request_is_held_against_what_is_launched_beside_it(suite: SimulatedSuite) -> None:
    config = suite.pytester.path / "moeperf.toml"
    config.write_text(config.read_text() + TABLE)
    suite.pytester.makeconftest(SLOWER)
    result = suite.run("-k", "fast-1")
    assert result.code == 1, result.raw
    assert (
        "moeperf: engine simulated, fast, held against their own baselines and [tool.moeperf.reference] (" in result.raw
    )
    assert result.section("_ test_decode[fast-1] _", "c=1   ") == (
        "_____________________________ test_decode[fast-1] ______________________________\n"
        "REGRESSION  throughput at c=1: # against # tok/s, +# % [+# %, +# %] at\n"
        "  # %, 4 pairs of fresh launches.\n"
        "  Proven worse: the whole # % interval lies beyond a loss of 5 %.\n"
        '  Ran: triton (confirmed, /server_info simulated.executed_runner: "triton").\n'
        "    Both arms were launched here, side by side; no stored baseline took part.\n"
        "  Also REGRESSION: TPOT at c=1: # against # ms, +# % (slower) [+# %,\n"
        "    +# %] at # %, 4 pairs of fresh launches.\n"
        "  Next (again, in fresh launches):\n"
        "    pytest -m perf --backend=fast -k 'test_decode[fast-1]'\n"
        "  Or: If this loss is accepted, with the reason:\n"
        "    moeperf accept fast/c1-in16-out32 --reason='why'\n"
        "=================================== moeperf ====================================\n"
        "moeperf  fast held against its own baseline and [tool.moeperf.reference]\n"
        "         simulated | 8 launches, # s\n"
        "all cells: 16 tokens in, 32 out; figures in tok/s\n"
        "cell  baseline  measured  change [#]  verdict     launches  ceiling"
    )
    assert " REGRESSION  4x2" in result.section("c=1   ", "== short")

    recorded = suite.run("-k", "fast-1", "--update-baselines", "--perf-launches=1")
    assert recorded.code == 0, recorded.raw
    assert "[tool.moeperf.reference]" not in recorded.raw, "nothing is launched beside what is recorded"

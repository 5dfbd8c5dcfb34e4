"""For the whole test suite: pytest's own harness, and skips by probed capability that CI turns into failures."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# The examples run without the development extras.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    # How long an example takes says something of the machine, which others use too, and nothing of the code.
    settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    # pytest tests/unit --hypothesis-profile=deep
    settings.register_profile("deep", settings.get_profile("shared"), max_examples=3000)
    settings.load_profile("shared")

TEST_TIMEOUT_S = 300.0
REQUIRE_SGLANG = "MOEPERF_REQUIRE_SGLANG"
REQUIRE_GPU = "MOEPERF_REQUIRE_GPU"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Not in pyproject.toml: where the examples run without the development extras, it would be an unknown option.
    if config.pluginmanager.hasplugin("timeout") and config.option.timeout is None:
        config.option.timeout = TEST_TIMEOUT_S
    # A script's background job ignores Ctrl-C, and so would all that tests start and then interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, variable, missing in (
        ("sglang", REQUIRE_SGLANG, _missing_sglang()),
        ("gpu", REQUIRE_GPU, _missing_gpu() if any(item.get_closest_marker("gpu") for item in items) else ""),
    ):
        if not missing or os.environ.get(variable) == "1":
            continue
        for item in items:
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"{missing}; {variable}=1 makes this a failure"))


def _missing_sglang() -> str:
    python = os.environ.get("MOEPERF_SGLANG_PYTHON", "")
    if python and Path(python).is_file():
        return ""
    return 'no SGLang: export MOEPERF_SGLANG_PYTHON="$(python tests/e2e/sglang_env.py)"'


def _missing_gpu() -> str:
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False).stdout  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        found = ""
    return "" if "GPU " in found else "no NVIDIA GPU (nvidia-smi -L lists none)"


@pytest.fixture(scope="session")
def sglang_python() -> str:
    """The interpreter of a real SGLang on a CPU."""
    return os.environ["MOEPERF_SGLANG_PYTHON"]

"""What the server and the GPUs report of themselves while a run goes on."""

from pytest_moeperf.telemetry.nvml import Sampler, checks
from pytest_moeperf.telemetry.prometheus import parse_prometheus, server_counters

__all__ = ["Sampler", "checks", "parse_prometheus", "server_counters"]

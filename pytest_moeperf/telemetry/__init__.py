"""What the server and the GPUs report of themselves while a run goes on."""

from pytest_moeperf.telemetry.counters import server_counters
from pytest_moeperf.telemetry.nvml import Sampler, checks
from pytest_moeperf.telemetry.prometheus import parse_prometheus
from pytest_moeperf.telemetry.queue import QueueSampler

__all__ = ["QueueSampler", "Sampler", "checks", "parse_prometheus", "server_counters"]

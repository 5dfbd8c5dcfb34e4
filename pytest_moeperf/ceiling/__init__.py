"""How fast a cell could be at best on this hardware, and how near a measurement comes."""

from pytest_moeperf.ceiling.bandwidth import measure_bandwidth_bytes_s
from pytest_moeperf.ceiling.gpus import find_gpu, gpu_names
from pytest_moeperf.ceiling.roofline import ceiling_tok_s, distinct_experts, efficiency
from pytest_moeperf.ceiling.rows import SWEEP_HEADER, TERM_HEADER, sweep_rows, term_rows

__all__ = [
    "SWEEP_HEADER",
    "TERM_HEADER",
    "ceiling_tok_s",
    "distinct_experts",
    "efficiency",
    "find_gpu",
    "gpu_names",
    "measure_bandwidth_bytes_s",
    "sweep_rows",
    "term_rows",
]

"""A serving benchmark as a test. Run it with ``pytest -m perf --backend=triton``."""

import pytest


@pytest.mark.perf(input_len=64, output_len=48)
@pytest.mark.parametrize("concurrency", [1, 4, 16])
@pytest.mark.throughput(regression="5%", win="3%")
@pytest.mark.tpot(regression="5%", win="3%", at_most_ms=120)
def test_decode(moeperf, concurrency):
    moeperf.measure(concurrency=concurrency)

"""A serving benchmark on the real SGLang. ``docs/sglang-on-a-cpu.md`` says how to run it."""

import pytest


@pytest.mark.perf(input_len=64, output_len=64)
@pytest.mark.parametrize("concurrency", [1])
@pytest.mark.throughput(regression="45%", win="80%")
@pytest.mark.tpot(regression="80%", win="45%")
def test_decode(moeperf, concurrency):
    moeperf.measure(concurrency=concurrency)

"""A serving benchmark on the real SGLang. ``docs/sglang-on-a-cpu.md`` says how to run it."""

import pytest


@pytest.mark.perf(input_len=64, output_len=64, num_prompts=16)
@pytest.mark.parametrize("concurrency", [4])
@pytest.mark.throughput(regression="40%", win="60%")
@pytest.mark.tpot(regression="60%", win="40%")
def test_decode(moeperf, concurrency):
    moeperf.measure(concurrency=concurrency)

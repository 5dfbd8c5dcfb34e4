"""Decode throughput of GLM-5-NVFP4 from one stream to 1024: 512 tokens in, 128 out, 4 x concurrency requests, closed
loop (as ``--request-rate 100000`` is to a server that answers a few requests a second)."""

import pytest

pytestmark = [pytest.mark.perf(input_len=512, output_len=128)]


@pytest.mark.parametrize("concurrency", [1, 2, 10, 64, 256, 1024])
@pytest.mark.throughput(regression="5%", win="3%")
@pytest.mark.tpot(regression="5%", win="3%")
def test_decode(moeperf, concurrency):
    moeperf.measure(concurrency=concurrency)

"""``pytest -m perf --backend=triton,triton_kernel examples/h200``"""

import pytest

# A run lasts 2 to 12 s: below that a handful of steps decides, beyond it launches cost less than runs.
PROMPTS = {1: 16, 2: 32, 10: 120, 64: 512, 256: 1024}


@pytest.mark.perf(input_len=512, output_len=128)
@pytest.mark.parametrize(("concurrency", "num_prompts"), PROMPTS.items(), ids=[f"c{c}" for c in PROMPTS])
@pytest.mark.throughput(regression="5%", win="3%")
@pytest.mark.tpot(regression="5%", win="3%")
def test_decode(moeperf, concurrency, num_prompts):
    moeperf.measure()

"""c=256 of the sweep in examples/glm5_nvfp4, one wave of short requests. c=1024 needs more than two cores: its profiles
are held against the table in virtual time (tests/unit/test_glm5_example.py), not over sockets."""

import pytest


@pytest.mark.perf(input_len=8, output_len=64)
@pytest.mark.parametrize(("concurrency", "num_prompts"), [(256, 256)])
def test_decode(moeperf, concurrency, num_prompts):
    moeperf.measure(concurrency=concurrency, num_prompts=num_prompts)

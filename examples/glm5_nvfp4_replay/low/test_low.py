"""c = 1, 2 and 10 of the sweep in examples/glm5_nvfp4, with short requests: what differs between the profiles is how
long a step lasts, and a step lasts as long whatever the length of a request."""

import pytest


@pytest.mark.perf(input_len=8, output_len=56)
@pytest.mark.parametrize(("concurrency", "num_prompts"), [(1, 2), (2, 4), (10, 10)])
def test_short(moeperf, concurrency, num_prompts):
    moeperf.measure(concurrency=concurrency, num_prompts=num_prompts)


@pytest.mark.perf(input_len=512, output_len=128)
@pytest.mark.parametrize(("concurrency", "num_prompts"), [(10, 10)])
def test_shape_of_the_table(moeperf, concurrency, num_prompts):
    """The lengths of the stored table, so that its numbers are what is found here: docs/seeds.md, first row."""
    moeperf.measure(concurrency=concurrency, num_prompts=num_prompts)

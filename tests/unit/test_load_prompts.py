"""Prompts: deterministic, unique, without special ids."""

from __future__ import annotations

import itertools
import zlib

import pytest

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.arrivals import arrival_offsets_ns
from pytest_moeperf.load.prompts import FIRST_ID, make_prompts
from pytest_moeperf.model.workload import Workload

WORKLOAD = Workload(concurrency=8, input_len=32, seed=7)


def test_the_same_everywhere_and_for_ever() -> None:
    prompts = make_prompts(WORKLOAD, run_key="a")
    assert prompts[0][:5] == [610, 748, 661, 487, 342]
    assert prompts == make_prompts(WORKLOAD, run_key="a")
    assert zlib.crc32(repr(prompts).encode()) == 187483184


def test_shape_and_range() -> None:
    prompts = make_prompts(WORKLOAD, run_key="a", vocab_size=1024)
    assert [len(prompt) for prompt in prompts] == [32] * 32
    ids = set(itertools.chain(*prompts))
    assert min(ids) >= FIRST_ID
    assert max(ids) < 1024


def test_no_two_prompts_of_a_run_share_even_their_first_token() -> None:
    prompts = make_prompts(Workload(concurrency=200, input_len=4), run_key="a", vocab_size=1024)
    assert len({prompt[0] for prompt in prompts}) == 800


def test_more_prompts_than_first_tokens_stay_unique() -> None:
    prompts = make_prompts(Workload(concurrency=1, input_len=8, num_prompts=3000), run_key="a", vocab_size=1000)
    assert len({tuple(prompt) for prompt in prompts}) == 3000


@pytest.mark.parametrize("other", [Workload(concurrency=8, input_len=32, seed=8), WORKLOAD])
def test_another_seed_or_run_shares_nothing(other: Workload) -> None:
    first = make_prompts(WORKLOAD, run_key="a", vocab_size=100_000)
    second = make_prompts(other, run_key="b", vocab_size=100_000)
    common = [sum(x == y for x, y in zip(a, b, strict=True)) for a, b in zip(first, second, strict=True)]
    assert max(common) <= 2
    assert not {tuple(prompt[:2]) for prompt in first} & {tuple(prompt[:2]) for prompt in second}


def test_a_shared_prefix() -> None:
    workload = Workload(concurrency=8, input_len=32, shared_prefix_len=20)
    prompts = make_prompts(workload, run_key="a")
    assert len({tuple(prompt[:20]) for prompt in prompts}) == 1
    assert len({prompt[20] for prompt in prompts}) == 32
    whole = make_prompts(Workload(concurrency=2, input_len=4, shared_prefix_len=9), run_key="a")
    assert len({tuple(prompt) for prompt in whole}) == 1
    assert len(whole[0]) == 4


def test_a_vocabulary_without_room() -> None:
    with pytest.raises(LoadError, match="a vocabulary of 11 has no room for prompts"):
        make_prompts(WORKLOAD, run_key="a", vocab_size=11)


def test_poisson_arrivals_have_the_rate_and_are_seeded() -> None:
    offsets = arrival_offsets_ns(rate=50.0, count=5000, seed=3)
    assert offsets == arrival_offsets_ns(rate=50.0, count=5000, seed=3)
    assert offsets != arrival_offsets_ns(rate=50.0, count=5000, seed=4)
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    assert offsets[-1] / 1e9 == pytest.approx(100, rel=0.05)


def test_constant_arrivals() -> None:
    assert arrival_offsets_ns(rate=4.0, count=3, seed=0, kind="constant") == [0, 250_000_000, 500_000_000]

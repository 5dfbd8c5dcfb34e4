"""Prompts: deterministic, unique, without special ids."""

from __future__ import annotations

import itertools
import zlib
from array import array
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists, randoms

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.arrivals import arrival_offsets_ns
from pytest_moeperf.load.prompts import make_prompts, reusable_tokens
from pytest_moeperf.model.vocabulary import FIRST_ID, Vocabulary
from pytest_moeperf.model.workload import Workload

WORKLOAD = Workload(concurrency=8, input_len=32, seed=7)


def test_the_same_everywhere_and_for_ever() -> None:
    prompts = [prompt.tolist() for prompt in make_prompts(WORKLOAD, run_key="a")]
    assert prompts[0][:5] == [610, 748, 661, 487, 342]
    assert prompts == [prompt.tolist() for prompt in make_prompts(WORKLOAD, run_key="a")]
    assert zlib.crc32(repr(prompts).encode()) == 187483184


def test_shape_and_range() -> None:
    prompts = make_prompts(WORKLOAD, run_key="a", vocabulary=Vocabulary(size=1024))
    assert [len(prompt) for prompt in prompts] == [32] * 32
    ids = set(itertools.chain(*prompts))
    assert min(ids) >= FIRST_ID
    assert max(ids) < 1024


def test_no_two_prompts_of_a_run_share_even_their_first_token() -> None:
    prompts = make_prompts(Workload(concurrency=200, input_len=4), run_key="a", vocabulary=Vocabulary(size=1024))
    assert len({prompt[0] for prompt in prompts}) == 800


def test_more_prompts_than_first_tokens_stay_unique() -> None:
    prompts = make_prompts(
        Workload(concurrency=1, input_len=8, num_prompts=3000), run_key="a", vocabulary=Vocabulary(size=1000)
    )
    assert len({tuple(prompt) for prompt in prompts}) == 3000


@pytest.mark.parametrize("other", [Workload(concurrency=8, input_len=32, seed=8), WORKLOAD])
def test_another_seed_or_run_shares_nothing(other: Workload) -> None:
    first = make_prompts(WORKLOAD, run_key="a", vocabulary=Vocabulary(size=100_000))
    second = make_prompts(other, run_key="b", vocabulary=Vocabulary(size=100_000))
    common = [sum(x == y for x, y in zip(a, b, strict=True)) for a, b in zip(first, second, strict=True)]
    assert max(common) <= 2
    assert not {tuple(prompt[:2]) for prompt in first} & {tuple(prompt[:2]) for prompt in second}


@pytest.mark.parametrize(
    ("count", "size", "most"), [(900, 1000, 0), (3000, 1000, 1), (4096, 1000, 1), (4096, 151_936, 0), (500, 20, 2)]
)
def test_no_two_prompts_share_more_than_the_vocabulary_forces(count: int, size: int, most: int) -> None:
    workload = Workload(concurrency=1, input_len=64, num_prompts=count)
    prompts = make_prompts(workload, run_key="a", vocabulary=Vocabulary(size=size))
    assert len({tuple(prompt[: most + 1]) for prompt in prompts}) == count


def test_reserved_ids_are_never_sent() -> None:
    reserved = frozenset(range(100, 990))
    prompts = make_prompts(WORKLOAD, run_key="a", vocabulary=Vocabulary(size=1000, reserved=reserved))
    assert set(itertools.chain(*prompts)) <= {*range(10, 100), *range(990, 1000)}


def test_what_a_cache_can_reuse_is_counted_from_the_prompts() -> None:
    workload = Workload(concurrency=1024, input_len=64)
    prompts = make_prompts(workload, run_key="a")
    assert reusable_tokens(prompts) == 4096 - 990
    assert reusable_tokens(prompts, page_size=16) == 0
    assert reusable_tokens(make_prompts(workload, run_key="a", vocabulary=Vocabulary(size=5000))) == 0
    shared = make_prompts(Workload(concurrency=4, input_len=64, shared_prefix_len=40), run_key="a")
    assert reusable_tokens(shared) == 15 * 40
    assert reusable_tokens(shared, page_size=16) == 15 * 32
    whole = make_prompts(Workload(concurrency=1, input_len=8, shared_prefix_len=8), run_key="a")
    assert reusable_tokens(whole) == 3 * 7


@settings(max_examples=50, deadline=None)
@given(lists(lists(integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=12), integers(1, 3), randoms())
def test_it_is_what_a_cache_gives_in_any_order(drawn: list[list[int]], page: int, order: Random) -> None:
    cache: set[tuple[int, ...]] = set()
    hits = 0
    for prompt in order.sample(drawn, len(drawn)):
        pages = [tuple(prompt[: end + page]) for end in range(0, (len(prompt) - 1) // page * page, page)]
        known = next((n for n, start in enumerate(pages) if start not in cache), len(pages))
        hits += known * page
        cache.update(pages)
    assert reusable_tokens([array("I", prompt) for prompt in drawn], page_size=page) == hits


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
        make_prompts(WORKLOAD, run_key="a", vocabulary=Vocabulary(size=11))


def test_poisson_arrivals_have_the_rate_and_are_seeded() -> None:
    offsets = arrival_offsets_ns(rate=50.0, count=5000, seed=3)
    assert offsets == arrival_offsets_ns(rate=50.0, count=5000, seed=3)
    assert offsets != arrival_offsets_ns(rate=50.0, count=5000, seed=4)
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    assert offsets[-1] / 1e9 == pytest.approx(100, rel=0.05)


def test_constant_arrivals() -> None:
    assert arrival_offsets_ns(rate=4.0, count=3, seed=0, kind="constant") == [0, 250_000_000, 500_000_000]

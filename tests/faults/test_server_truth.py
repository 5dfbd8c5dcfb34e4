"""What only the server knows: how many it ran at once, who was on which rank, what it counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_world import Finished, World, cleaned_up

TEST = """\
import pytest

@pytest.mark.perf(input_len=16, output_len=16, num_prompts=24, concurrency=6)
def test_asked(moeperf):
    moeperf.measure()

@pytest.mark.perf(input_len=16, output_len=16, num_prompts=24, concurrency=6, queueing=True)
def test_queueing(moeperf):
    moeperf.measure()

@pytest.mark.perf(input_len=16, output_len=16, num_prompts=16, concurrency=2)
def test_below_the_cap(moeperf):
    moeperf.measure()
"""


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Finished]]:
    table = '[backends.capped]\nargs = ["--max-running-requests=2"]\n'
    world = World(tmp_path_factory.mktemp("truth"), config=table, test=TEST, scale=1.0)
    with cleaned_up(world):
        yield world, world.run("--backend=capped", "--update-baselines")


def test_a_cap_below_the_concurrency_is_invalid(capped: tuple[World, Finished]) -> None:
    _, finished = capped
    section = finished.section("test_asked[capped]")
    assert "INVALID" in section
    assert (
        "the server runs at most 2 requests at once (its max_running_requests), 6 were asked for: the others waited in "
        "its queue. Raise --max-running-requests, or say queueing=True in the perf marker"
    ) in section


def test_a_cell_that_says_so_and_one_below_the_cap_are_recorded(capped: tuple[World, Finished]) -> None:
    world, finished = capped
    assert finished.code == 1
    names = {Path(entry.path).name.partition("@")[0] for entry in world.baselines()}
    assert names == {"c6-in16-out16-queueing", "c2-in16-out16-n16"}

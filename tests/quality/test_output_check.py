"""What the output check sees and how often it is wrong about a sound server: docs/metrics.md gives these figures."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from pytest_moeperf.bench.agreement import Answers, Retold, compare_answers
from pytest_moeperf.bench.sanity import LONG, SHORT, retold_places

TRIALS = 300
PROMPTS = LONG.num_prompts + SHORT.num_prompts
WRONG = -1


@dataclass(frozen=True, kw_only=True)
class Server:
    """Tokens are 0 where right, another number where rounding chose another one."""

    rounding: float
    """Chance of each token to be another one than the reference's, or than this server's own prefill gives."""
    corrupted: float = 0.0
    """Share of prompts whose answers are wrong."""
    after: int = 0
    """Tokens from which on they are."""

    def answers(self, source: random.Random) -> Answers:
        def token(*, wrong: bool) -> int:
            return WRONG if wrong else int(source.random() < self.rounding)

        wrong = [source.random() < self.corrupted for _ in range(PROMPTS)]
        return Answers(
            first=tuple(token(wrong=bad and self.after == 0) for bad in wrong),
            long=tuple(tuple(range(LONG.output_len)) for _ in range(LONG.num_prompts)),
            retold=tuple(
                Retold(depth=depth, decoded=token(wrong=wrong[prompt] and depth >= self.after > 0), prefilled=0)
                for prompt, depth in retold_places()
            ),
        )


def statuses(candidate: Server, *, trials: int = TRIALS) -> dict[str, float]:
    """Share of each status, the reference being sound and rounding as the candidate does."""
    source = random.Random(5)
    counts: dict[str, float] = {}
    for _ in range(trials):
        reference = Server(rounding=candidate.rounding).answers(source)
        # What rounding changes in the reference's first tokens is in the candidate's share.
        level = Answers(first=(0,) * PROMPTS, long=reference.long, retold=reference.retold)
        status = compare_answers(level, candidate.answers(source)).status
        counts[status] = counts.get(status, 0) + 1 / trials
    return counts


@pytest.mark.parametrize("rounding", [0.0, 0.02, 0.05, 0.1])
def test_a_sound_server_passes(rounding: float) -> None:
    assert statuses(Server(rounding=rounding), trials=2000).get("fail", 0.0) <= 0.001


@pytest.mark.parametrize("rounding", [0.15, 0.2, 0.4, 0.8])
def test_a_model_that_rounding_upsets_is_never_failed_for_it(rounding: float) -> None:
    assert statuses(Server(rounding=rounding)).get("fail", 0.0) <= 0.01


@pytest.mark.parametrize(("rounding", "corrupted"), [(0.0, 0.27), (0.02, 0.32), (0.05, 0.4), (0.1, 0.55)])
def test_a_share_of_corrupted_prompts_is_seen(rounding: float, corrupted: float) -> None:
    assert statuses(Server(rounding=rounding, corrupted=corrupted))["fail"] >= 0.9


@pytest.mark.parametrize(
    ("rounding", "corrupted", "after"),
    [(0.0, 1.0, 8), (0.0, 1.0, 32), (0.0, 1.0, 56), (0.05, 1.0, 48), (0.0, 0.6, 40), (0.05, 0.6, 16), (0.1, 1.0, 40)],
)
def test_garbage_later_in_the_answers_is_seen(rounding: float, corrupted: float, after: int) -> None:
    assert statuses(Server(rounding=rounding, corrupted=corrupted, after=after))["fail"] >= 0.9


def test_what_it_cannot_see() -> None:
    """A tenth of the prompts; garbage beyond the longest answer that is asked for."""
    assert statuses(Server(rounding=0.0, corrupted=0.1)).get("fail", 0.0) <= 0.05
    assert statuses(Server(rounding=0.0, corrupted=1.0, after=64)).get("fail", 0.0) == 0.0

"""Does a candidate still say what the reference says? Read off greedy tokens alone.

Two correct kernels round differently. Where the two likeliest tokens are close, that changes a token, and with it
everything that follows: long answers of two correct servers differ, and prove nothing. So only tokens that were chosen
after the same context are compared:

- the first token of each fixed prompt, the candidate's with the reference's (the prefill);
- a later token of the candidate's own answer with the one that it gives when the prompt and the answer so far are sent
  as a prompt (decoding, at that depth);
- answers that end in the same few tokens over and over, where the reference's do not: a model goes on repeating what it
  is shown, so such an answer may agree with itself.

What rounding does to this model is measured on the reference: the share of its own later tokens that its prefill does
not repeat. A candidate may have twice that, and `MARGIN`; it fails where more can't be chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from pytest_moeperf.model.run import Check

NAME = "output_sanity"
MARGIN = 0.10
"""Share of tokens that may differ where rounding shows nothing on the reference: its kernels' rounding is not that of
the candidate's."""
UNMEASURED = 0.4
"""Allowed where a server gives text alone: nothing says what rounding does."""
BLIND = 0.5
"""With more than that allowed, only the grossest fault would be seen."""
ALPHA = 0.001
"""Of each comparison; six are made of a launch."""
POWER = 0.95
BANDS = 3
TAIL = 16
STUCK = 2
"""Different tokens in the tail of an answer that has got stuck, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retold:
    """A token of an answer, and what the same server says when prompt and answer up to there are its prompt."""

    depth: int
    """Tokens of the answer before it."""
    decoded: object
    prefilled: object


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """Of one launch."""

    first: tuple[object, ...]
    """Of each fixed prompt."""
    long: tuple[tuple[int, ...], ...]
    """Whole answers; none where the server gives text alone."""
    retold: tuple[Retold, ...]
    """By depth."""


def compare_answers(reference: Answers | None, candidate: Answers | None) -> Check:
    """:return: ``unknown`` where it can't be seen: a side is missing, or rounding alone changes too much."""
    if candidate is None:
        return Check(name=NAME, status="fail", message="the fixed prompts were not all answered")
    if reference is None:
        return _not_shown("no reference was launched before this one, so there is nothing to compare its output with")
    noise = rounding(reference)
    if len(reference.first) != len(candidate.first) or (noise is not None and MARGIN + 2 * noise > BLIND):
        return _not_shown(_why_blind(noise))
    allowed = UNMEASURED if noise is None else MARGIN + 2 * noise
    problems = [
        *_first_tokens(_differing(reference, candidate), len(candidate.first), allowed),
        *_later_tokens(candidate.retold, allowed),
        *_stuck_answers(reference, candidate),
    ]
    if problems:
        return Check(name=NAME, status="fail", message="; ".join(problems))
    if noise is None:
        return _not_shown("the server gives text and no token ids, so what it decodes could not be compared")
    return Check(name=NAME, status="pass", message=_agreement(reference, candidate, allowed, noise))


def _why_blind(noise: float | None) -> str:
    if noise is None or MARGIN + 2 * noise <= BLIND:
        return "one side gives token ids and the other text alone"
    return (
        f"{noise:.0%} of the reference's own tokens change when its answer so far is sent as a prompt, so on this "
        "model greedy tokens do not tell right from wrong"
    )


def _differing(reference: Answers, candidate: Answers) -> int:
    return sum(ours != theirs for ours, theirs in zip(candidate.first, reference.first, strict=True))


def _agreement(reference: Answers, candidate: Answers, allowed: float, noise: float) -> str:
    count, later = len(candidate.first), len(candidate.retold)
    return (
        f"{count - _differing(reference, candidate)} of {count} first tokens are the reference's, "
        f"{later - _changed(candidate.retold)} of {later} later ones are what the prefill gives; "
        f"wrong answers to {found_share(count, allowed, noise):.0%} of prompts would have been seen"
    )


def rounding(answers: Answers) -> float | None:
    """Share of a server's own tokens that its prefill does not repeat."""
    return _changed(answers.retold) / len(answers.retold) if answers.retold else None


@cache
def most_by_chance(count: int, share: float) -> int:
    """The largest number of ``count`` that is not beyond chance where ``share`` is allowed."""
    most = 0
    while most < count and 1 - _at_most(most, count, share) > ALPHA:
        most += 1
    return most


def found_share(count: int, allowed: float, noise: float) -> float:
    """The smallest share of corrupted prompts that fails with `POWER`, in whole per cent; 1 if none does."""
    most = most_by_chance(count, allowed)

    def found(percent: int) -> bool:
        wrong = percent / 100
        return _at_most(most, count, wrong + (1 - wrong) * noise) <= 1 - POWER

    return next((percent for percent in range(1, 100) if found(percent)), 100) / 100


def _at_most(most: int, count: int, share: float) -> float:
    """Chance of ``most`` or fewer of ``count``."""
    return math.fsum(
        math.comb(count, number) * share**number * (1 - share) ** (count - number) for number in range(most + 1)
    )


def _not_shown(text: str) -> Check:
    return Check(name=NAME, status="unknown", message=f"not shown: {text}")


def _changed(retold: Sequence[Retold]) -> int:
    return sum(item.decoded != item.prefilled for item in retold)


def _first_tokens(changed: int, count: int, allowed: float) -> list[str]:
    most = most_by_chance(count, allowed)
    if changed <= most:
        return []
    return [f"the first token differs from the reference's for {changed} of {count} fixed prompts (rounding: {most})"]


def _later_tokens(retold: Sequence[Retold], allowed: float) -> list[str]:
    """All depths together, and each band of them alone: garbage that begins late is in the last band only."""
    size = math.ceil(len(retold) / BANDS) or 1
    for band in [retold, *(retold[start : start + size] for start in range(0, len(retold), size))]:
        changed, most = _changed(band), most_by_chance(len(band), allowed)
        if changed > most:
            wrong = [item.depth for item in band if item.decoded != item.prefilled]
            which = f"{changed} of {len(band)} tokens that it decoded (the first after {wrong[0]} tokens)"
            return [
                f"{which} are not what it says when prompt and answer up to there are its prompt (rounding: {most})"
            ]
    return []


def _stuck_answers(reference: Answers, candidate: Answers) -> list[str]:
    pairs = [(_stuck(theirs), _stuck(ours)) for theirs, ours in zip(reference.long, candidate.long, strict=True)]
    ours = sum(stuck and not theirs for theirs, stuck in pairs)
    theirs = sum(stuck and not ours for stuck, ours in pairs)
    if not ours or ours <= most_by_chance(len(pairs), min(1.0, MARGIN + theirs / len(pairs))):
        return []
    return [f"{ours} of {len(pairs)} answers end in the same token over and over where the reference's do not"]


def _stuck(answer: Sequence[object]) -> bool:
    return len(set(answer[-TAIL:])) <= STUCK

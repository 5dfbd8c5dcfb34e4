"""What is read off greedy tokens of two servers: see `pytest_moeperf.bench.agreement`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_moeperf.bench.agreement import Answers, Retold, compare_answers, found_share, most_by_chance
from pytest_moeperf.bench.sanity import LONG, SHORT, fixed_contexts, retold_places

SOUND = Answers(
    first=tuple(range(128)),
    long=tuple(tuple(range(64)) for _ in range(32)),
    retold=tuple(Retold(depth=depth, decoded=depth, prefilled=depth) for _, depth in retold_places()),
)


def changed(count: int, *, depth_from: int = 0) -> Answers:
    """``count`` later tokens, of this depth or more, are not what the prefill gives."""
    late = [number for number, item in enumerate(SOUND.retold) if item.depth >= depth_from][:count]
    retold = tuple(replace(item, prefilled=-1) if number in late else item for number, item in enumerate(SOUND.retold))
    return replace(SOUND, retold=retold)


def test_the_same_output_is_sound_and_the_message_says_what_would_have_been_seen() -> None:
    check = compare_answers(SOUND, SOUND)
    assert check.status == "pass"
    assert check.message == (
        "128 of 128 first tokens are the reference's, 64 of 64 later ones are what the prefill gives; "
        "wrong answers to 26% of prompts would have been seen"
    )


def test_answers_that_part_after_a_token_of_rounding_are_sound() -> None:
    """Nothing compares two servers' long answers token by token."""
    other = tuple(tuple(range(1000, 1064)) for _ in range(32))
    assert compare_answers(SOUND, replace(SOUND, long=other)).status == "pass"


def test_a_share_of_corrupted_prompts_fails() -> None:
    """A mean of 60 % would have passed."""
    candidate = replace(SOUND, first=(*range(88), *([-1] * 40)))
    check = compare_answers(SOUND, candidate)
    assert check.status == "fail"
    assert check.message == "the first token differs from the reference's for 40 of 128 fixed prompts (rounding: 24)"


def test_garbage_that_begins_late_fails_though_first_tokens_agree() -> None:
    check = compare_answers(SOUND, changed(8, depth_from=56))
    assert check.status == "fail"
    assert check.message == (
        "8 of 20 tokens that it decoded (the first after 56 tokens) are not what it says when prompt and answer up to "
        "there are its prompt (rounding: 7)"
    )


def test_one_token_over_and_over_fails_though_it_agrees_with_itself() -> None:
    stuck = tuple((*range(32), *([0] * 32)) if number < 12 else answer for number, answer in enumerate(SOUND.long))
    check = compare_answers(SOUND, replace(SOUND, long=stuck))
    assert check.status == "fail"
    assert check.message == ("12 of 32 answers end in the same token over and over where the reference's do not")
    both = replace(SOUND, long=stuck)
    assert compare_answers(both, both).status == "pass", "a model may do so by itself"


def test_a_model_on_which_rounding_changes_much_may_differ_as_much() -> None:
    candidate = replace(SOUND, first=(*range(98), *([-1] * 30)))
    assert compare_answers(changed(0), candidate).status == "fail"
    assert compare_answers(changed(7), candidate).status == "pass"


def test_where_rounding_changes_nearly_everything_nothing_is_shown() -> None:
    check = compare_answers(changed(20), SOUND)
    assert check.status == "unknown"
    assert check.message == (
        "not shown: 31% of the reference's own tokens change when its answer so far is sent as a prompt, so on this "
        "model greedy tokens do not tell right from wrong"
    )


def test_text_without_ids_shows_only_what_is_wrong() -> None:
    text = Answers(first=tuple("abcdefgh" * 12), long=(), retold=())
    assert compare_answers(text, text).status == "unknown"
    assert compare_answers(text, replace(text, first=tuple("x" * 96))).status == "fail"
    assert compare_answers(SOUND, text).status == "unknown"


def test_a_missing_side_is_never_a_pass() -> None:
    assert compare_answers(None, SOUND).status == "unknown"
    assert compare_answers(SOUND, None).status == "fail"


@pytest.mark.parametrize(("count", "share", "most"), [(128, 0.1, 24), (64, 0.1, 15), (32, 0.1, 9), (4, 1.0, 4)])
def test_chance(count: int, share: float, most: int) -> None:
    assert most_by_chance(count, share) == most


def test_what_would_be_found_grows_with_what_is_allowed() -> None:
    shares = [found_share(128, 0.1 + 2 * noise, noise) for noise in (0.0, 0.05, 0.1, 0.15, 0.2)]
    assert shares == sorted(shares)
    assert shares[0] <= 0.26
    assert shares[-1] <= 0.65


def test_what_is_asked() -> None:
    contexts = fixed_contexts()
    assert len(contexts) == LONG.num_prompts + SHORT.num_prompts == 128
    assert {len(context) for context in contexts} == {8, 16, 24, 48}
    places = retold_places()
    assert [depth for _, depth in places] == sorted(depth for _, depth in places)
    assert {depth for _, depth in places} == set(range(4, 64))
    assert all(sum(prompt == other for other, _ in places) == 2 for prompt in range(LONG.num_prompts))

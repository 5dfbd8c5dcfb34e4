"""Prompts as token ids: from a seed, unique per request and per run, the same on every platform."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable
from itertools import pairwise

from pytest_moeperf.errors import LoadError
from pytest_moeperf.model.vocabulary import FIRST_ID, UNREAD, Vocabulary
from pytest_moeperf.model.workload import Workload


def make_prompts(workload: Workload, *, run_key: str, vocabulary: Vocabulary = UNREAD) -> list[array[int]]:
    """``num_prompts`` prompts of ``input_len`` ids, all of them ordinary tokens of the vocabulary.

    Two runs with different ``run_key`` share nothing, so a prefix cache that survived the last run can't help this
    one. Within a run the first ids all differ as long as the vocabulary has that many; of more prompts than that no two
    share more than their first, and so on. The leading ``shared_prefix_len`` ids are the same for all requests of the
    run.

    :raises LoadError: for a vocabulary without room.
    """
    ids = vocabulary.ids
    span = len(ids)
    if span < 2:
        raise LoadError(
            what=f"a vocabulary of {vocabulary.size} has no room for prompts: ids below {FIRST_ID} are special, and "
            f"{len(vocabulary.reserved)} are reserved",
            next_step="look at vocab_size in the model's config.json, and at its tokenizer.json",
        )
    shared = min(workload.shared_prefix_len, workload.input_len)
    own = workload.input_len - shared
    prefix = array("I", [ids[draw % span] for draw in _draws(workload, run_key, "prefix", shared)])
    # As few ids as it takes to tell each prompt from all others: the digits of its number, least first.
    digits = next(count for count in range(1, 33) if span**count >= workload.num_prompts)
    starts = [draw % span for draw in _draws(workload, run_key, "start", min(own, digits))]
    prompts = []
    for index in range(workload.num_prompts):
        tail = array("I", [ids[draw % span] for draw in _draws(workload, run_key, str(index), own)])
        rest = index
        for position, start in enumerate(starts):
            rest, digit = divmod(rest, span)
            tail[position] = ids[(start + digit) % span]
        prompts.append(prefix + tail)
    return prompts


def reusable_tokens(prompts: Iterable[array[int]], *, page_size: int = 1) -> int:
    """The most tokens of these prompts that a prefix cache can have from the others, in whatever order they come.

    A cache of whole pages holds a tree of them: what is not new in it was there. The last token of a prompt is always
    computed.
    """
    ordered = sorted(prompts)
    return sum(_common(one, other, page_size) for one, other in pairwise(ordered))


def _common(one: array[int], other: array[int], page_size: int) -> int:
    most = max(0, min(len(one), len(other) - 1))
    same = next((at for at in range(most) if one[at] != other[at]), most)
    return same // page_size * page_size


def _draws(workload: Workload, run_key: str, part: str, length: int) -> array[int]:
    # SHAKE is specified to the bit and never changes with a library's version, as a random module's stream may.
    seed = f"{workload.dataset}\0{workload.seed}\0{run_key}\0{part}".encode()
    draws = array("I")
    draws.frombytes(hashlib.shake_256(seed).digest(draws.itemsize * length))
    if sys.byteorder == "big":
        draws.byteswap()
    return draws

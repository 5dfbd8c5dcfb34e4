"""Prompts as token ids: from a seed, unique per request and per run, the same on every platform."""

from __future__ import annotations

import hashlib
import sys
from array import array

from pytest_moeperf.errors import LoadError
from pytest_moeperf.model.workload import Workload

FIRST_ID = 10
"""Ids below are the special tokens of most vocabularies (padding, begin, end) and are never sent."""


def make_prompts(workload: Workload, *, run_key: str, vocab_size: int = 1000) -> list[list[int]]:
    """``num_prompts`` prompts of ``input_len`` token ids in [10, vocab_size).

    Two runs with different ``run_key`` share nothing, so a prefix cache that survived the last run can't help this
    one. Within a run the first ids all differ as long as the vocabulary has that many: no one-token prefix is shared.
    The leading ``shared_prefix_len`` ids are the same for all requests of the run.

    :raises LoadError: for a vocabulary without room.
    """
    span = vocab_size - FIRST_ID
    if span < 2:
        raise LoadError(what=f"a vocabulary of {vocab_size} has no room for prompts: ids below {FIRST_ID} are special")
    shared = min(workload.shared_prefix_len, workload.input_len)
    own = workload.input_len - shared
    prefix = _ids(workload, run_key, "prefix", shared, span)
    start = _ids(workload, run_key, "start", 1, span)[0] - FIRST_ID
    prompts = []
    for index in range(workload.num_prompts):
        tail = _ids(workload, run_key, str(index), own, span)
        if tail:
            tail[0] = FIRST_ID + (start + index) % span
        prompts.append(prefix + tail)
    return prompts


def _ids(workload: Workload, run_key: str, part: str, length: int, span: int) -> list[int]:
    # SHAKE is specified to the bit and never changes with a library's version, as a random module's stream may.
    seed = f"{workload.dataset}\0{workload.seed}\0{run_key}\0{part}".encode()
    draws = array("I")
    draws.frombytes(hashlib.shake_256(seed).digest(draws.itemsize * length))
    return [FIRST_ID + draw % span for draw in _little_endian(draws)]


def _little_endian(values: array[int]) -> array[int]:
    if sys.byteorder == "big":
        values.byteswap()
    return values

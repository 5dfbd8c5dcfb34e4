"""Which token ids a prompt may be made of."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass
from functools import cache

FIRST_ID = 10
"""Ids below are the special tokens of most vocabularies (padding, begin, end) and are never sent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """The ordinary tokens of one model."""

    size: int
    """Ids below it exist."""
    reserved: frozenset[int] = frozenset()
    """Of those: special, added and placeholder tokens, and ids that stand for nothing."""

    @property
    def ids(self) -> array[int]:
        """What prompts are drawn from, in order."""
        return _ids(self)

    @property
    def name(self) -> str:
        """``151416 ids, 10 to 151642, sha256 0123abcd``: equal where prompts are drawn from the same ids."""
        return _name(self)


@cache
def _ids(vocabulary: Vocabulary) -> array[int]:
    return array("I", (number for number in range(FIRST_ID, vocabulary.size) if number not in vocabulary.reserved))


@cache
def _name(vocabulary: Vocabulary) -> str:
    ids = vocabulary.ids
    if not ids:
        return "no ids"
    span = f"{len(ids)} ids, {ids[0]} to {ids[-1]}"
    if len(ids) == ids[-1] - ids[0] + 1:
        return span
    return f"{span}, sha256 {hashlib.sha256(repr(ids.tolist()).encode()).hexdigest()[:8]}"


UNREAD = Vocabulary(size=1000)
"""For a model whose files are not here: ids that nearly every vocabulary has, and uses for ordinary text."""

"""What the simulated model answers: tokens from one fixed ring, entered where the prompt says.

The same prompt always gets the same greedy answer, another prompt another one; a prompt that ends with a piece of the
ring goes on from there, so an answer can be continued from any point, as a model's can. Text and ids of the whole ring
are serialised once, so that a cumulative stream event is two slices of bytes.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from array import array
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

VOCAB_SIZE = 1024
EOS_ID = 0
RING = 8192
MAX_OUTPUT = 32768
CONTEXT = 3
"""Tokens that tell where in the ring a prompt ends: no three of it come twice."""
_ID_BYTES = 8
_GARBAGE_STRIDE = 7
_WORD = re.compile(r"\w+|[^\w\s]")


class TokenRing:
    """``RING`` tokens in a circle; answers are arcs of it of at most ``MAX_OUTPUT`` tokens."""

    def __init__(self) -> None:
        draws = random.Random(1024)
        letters = "abcdefghijklmnopqrstuvwxyz"
        pieces = ["".join(draws.choices(letters, k=draws.randint(2, 6))) + " " for _ in range(VOCAB_SIZE)]
        # A few pieces that readers of streams get wrong: several bytes a character, JSON escapes, line ends.
        pieces[1:6] = ["é ", "語言 ", '"quoted" ', "\\ ", "line\n"]
        circle = [draws.randrange(1, VOCAB_SIZE) for _ in range(RING)]
        self.ids = [circle[i % RING] for i in range(RING + MAX_OUTPUT)]
        self.after = {
            prompt_bytes([circle[(i + j) % RING] for j in range(CONTEXT)]): (i + CONTEXT) % RING for i in range(RING)
        }
        """Where it goes on after these tokens."""
        text = [json.dumps(pieces[i], ensure_ascii=False)[1:-1].encode() for i in self.ids]
        numbers = [b"%d," % i for i in self.ids]
        self._text, self._text_at = b"".join(text), [0, *accumulate(map(len, text))]
        self._numbers, self._numbers_at = b"".join(numbers), [0, *accumulate(map(len, numbers))]

    def text_json(self, start: int, end: int) -> bytes:
        """The text of tokens start..end, escaped for the inside of a JSON string."""
        return self._text[self._text_at[start] : self._text_at[end]]

    def ids_json(self, start: int, end: int) -> bytes:
        """The ids of tokens start..end, for the inside of a JSON list."""
        return self._numbers[self._numbers_at[start] : self._numbers_at[end] - 1] if end > start else b""

    def garbage(self, start: int, tokens: int) -> list[int]:
        """Places in the ring that make no arc: what no answer says."""
        return [(start + RING // 2 + _GARBAGE_STRIDE * number) % RING for number in range(tokens)]


@cache
def token_ring() -> TokenRing:
    """The one ring, built on first use."""
    return TokenRing()


def tokenize(text: str) -> list[int]:
    """Ids of a text prompt: one for each word or sign. Made up, but stable."""
    return [1 + zlib.crc32(word.encode()) % (VOCAB_SIZE - 1) for word in _WORD.findall(text)] or [1]


def prompt_bytes(prompt: Sequence[int]) -> bytes:
    """The prompt's ids as bytes, eight each.

    :raises ValueError: an entry is not an integer of 64 bits.
    """
    try:
        return array("q", prompt).tobytes()
    except (TypeError, OverflowError) as error:
        raise ValueError(f"input_ids must be a list of integers: {error}") from error


def ring_start(prompt: bytes) -> int:
    """Where in the ring the answer to this prompt starts."""
    known = token_ring().after.get(prompt[-CONTEXT * _ID_BYTES :])
    return zlib.crc32(prompt) % RING if known is None else known

"""Which leading tokens of a prompt the server has seen: a radix cache cut down to whole pages."""

from __future__ import annotations

import hashlib

PAGE = 16
"""Tokens a page; only whole pages are ever shared."""
_TOKEN_BYTES = 8


class PrefixCache:
    """Chained page hashes, oldest dropped first. A prompt's last token is always computed, as in SGLang."""

    def __init__(self, *, max_pages: int = 65536) -> None:
        self._pages: dict[bytes, None] = {}
        self._max_pages = max_pages

    def clear(self) -> None:
        """Forget everything."""
        self._pages.clear()

    def match_and_add(self, prompt: bytes) -> int:
        """How many leading tokens were known; the prompt is known from now on."""
        known, missed = 0, False
        digest = b""
        for page in range((len(prompt) // _TOKEN_BYTES - 1) // PAGE):
            at = page * PAGE * _TOKEN_BYTES
            digest = hashlib.blake2b(prompt[at : at + PAGE * _TOKEN_BYTES], key=digest, digest_size=16).digest()
            missed = missed or digest not in self._pages
            known += 0 if missed else PAGE
            self._pages[digest] = None
        while len(self._pages) > self._max_pages:
            del self._pages[next(iter(self._pages))]
        return known

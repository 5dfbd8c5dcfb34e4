"""Environment variables leave by their names. The value of one goes only where a list says that it is harmless."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from pytest_moeperf.outgoing.secrets import is_secret_name, scrub_secrets

VARIABLE_DIGEST: Final = "not shown, sha256 "
"""Begins what stands for a value."""
_ROUNDS = 20_000
"""What is short or guessed should at least be dear to guess: baselines are published."""


def variable_text(name: str, value: str, *, harmless: Sequence[str], known: Sequence[str] = ()) -> str:
    """The value where it may be shown and stored, else its digest.

    :param harmless: shell patterns of names.
    """
    is_shown = not is_secret_name(name) and any(fnmatchcase(name, pattern) for pattern in harmless)
    return value if is_shown and scrub_secrets(value, known=known) == value else digest_of_variable(name, value)


@lru_cache(maxsize=1024)
def digest_of_variable(name: str, value: str) -> str:
    """What two values of one variable are compared by."""
    digest = hashlib.pbkdf2_hmac("sha256", value.encode("utf-8", "surrogateescape"), name.encode(), _ROUNDS)
    return f"{VARIABLE_DIGEST}{digest.hex()[:12]}"

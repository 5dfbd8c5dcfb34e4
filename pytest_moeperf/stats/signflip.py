"""A check on the t-interval that assumes only symmetry: flip the signs of the paired differences in every way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

MOST_EXACT = 12


def sign_flip_p(differences: Sequence[float], limit: float) -> float:
    """One-sided p-value of "the centre is not above ``limit``", exact over all 2^n sign patterns.

    :raises ValueError: above 12 differences (4096 patterns): the gate never has more.
    """
    if len(differences) > MOST_EXACT:
        raise ValueError(f"{len(differences)} differences have too many sign patterns; at most {MOST_EXACT}")
    shifted = [item - limit for item in differences]
    seen = math.fsum(shifted)
    patterns = itertools.product((1, -1), repeat=len(shifted))
    tolerance = 1e-12 * math.fsum(abs(item) for item in shifted)
    hits = sum(
        math.fsum(sign * item for sign, item in zip(signs, shifted, strict=True)) >= seen - tolerance
        for signs in patterns
    )
    return float(hits / 2.0 ** len(shifted))


def smallest_p(n: int) -> float:
    """The strongest statement that n differences allow."""
    return 2.0**-n

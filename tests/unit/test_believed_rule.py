"""What ``benchmarks/believed.py`` tries again before it counts, and what it does not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import believed
from believed_variants import EITHER, REFUSED, RIGHT, Variant

sys.path.pop(0)
TRUTH = {"servers": [{"tpot_ms": 4.0, "ttft_ms": 8.0}]}


def judged(truth: str, **figures: float) -> tuple[str, bool]:
    end = believed.Ended(how=believed.RECORDED, text="", figures=figures)
    ending, _, again = believed._judged(Variant(name="one", truth=truth, cause="x"), [end], TRUTH)
    return ending, again


@pytest.mark.parametrize(
    ("truth", "figures", "again"),
    [
        (RIGHT, {"ttft_ms": 70.0}, True),  # nothing is planted: a busy host, or the product at every try
        (RIGHT, {"tpot_ms": 6.5}, True),
        (RIGHT, {"tpot_ms": 3.2}, True),  # first tokens that left late
        (RIGHT, {"tpot_ms": 2.0}, False),
        (RIGHT, {"ttft_ms": 4.0}, False),  # no host is faster than the server
        (EITHER, {"ttft_ms": 18.0}, True),
        (EITHER, {"ttft_ms": 42.0}, False),  # held back for 34 ms
        (EITHER, {"tpot_ms": 2.0}, False),  # in two pieces
        (EITHER, {"tpot_ms": 0.02}, False),
        (RIGHT, {"ttft_ms": 18.0, "tpot_ms": 0.02}, False),
    ],
)
def test_figures_that_are_off(truth: str, figures: dict[str, Any], again: bool) -> None:
    assert judged(truth, **figures) == ("believed though wrong", again)


def test_what_may_not_be_believed_counts_at_once() -> None:
    assert judged(REFUSED, ttft_ms=8.0, tpot_ms=4.0) == ("believed though wrong", False)


def test_the_truth_is_right() -> None:
    assert judged(RIGHT, ttft_ms=10.0, tpot_ms=4.2) == ("right", False)

"""Does a backend still say what the reference says? A kernel that computes the wrong thing may be very fast."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.load.driver import drive
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Workload

NAME = "output_sanity"
FIXED_PROMPTS = Workload(concurrency=2, input_len=48, output_len=16, num_prompts=16, seed=1)
TIMEOUT_S = 300.0
MIN_FIRST_TOKENS = 0.6
"""Share of prompts whose first token agrees. It comes from the prefill alone, before small differences of rounding have
been fed back; two correct kernels of one model agree on nearly all."""
MIN_PREFIX = 0.25
"""Mean share of the output before the first difference."""

Outputs = tuple[Sequence[object], ...]
"""Of each fixed prompt: token ids, or characters where the server gives text alone."""


def greedy_outputs(*, url: str, protocol: str, api_key: str | None, model: str) -> Outputs | None:
    """What the server answers to the fixed prompts at temperature 0; None if a request failed."""
    prompts = make_prompts(FIXED_PROMPTS, run_key="sanity")
    result = drive(
        url=url,
        workload=FIXED_PROMPTS,
        prompts=prompts,
        protocol=protocol,
        api_key=api_key,
        model=model,
        timeout_s=TIMEOUT_S,
        workers=0,
        keep_output=True,
    )
    records = sorted(result.records, key=lambda record: record.index)
    if len(records) != len(prompts) or not all(record.ok for record in records):
        return None
    return tuple(record.output_ids or tuple(record.output_text or "") for record in records)


def compare_outputs(reference: Outputs | None, candidate: Outputs | None) -> Check:
    """:return: ``unknown`` where one side is missing."""
    if candidate is None:
        return Check(name=NAME, status="fail", message="the fixed prompts were not all answered")
    if reference is None:
        return Check(name=NAME, status="unknown", message="there is no reference output to compare with")
    pairs = list(zip(reference, candidate, strict=True))
    first = sum(bool(ours) and bool(theirs) and ours[0] == theirs[0] for theirs, ours in pairs) / len(pairs)
    prefix = sum(_common(theirs, ours) / max(len(theirs), 1) for theirs, ours in pairs) / len(pairs)
    figures = (
        f"first token equal in {first:.0%} of {len(pairs)} fixed prompts, "
        f"{prefix:.0%} of the greedy output equal before the first difference"
    )
    if first < MIN_FIRST_TOKENS or prefix < MIN_PREFIX:
        wanted = f"at least {MIN_FIRST_TOKENS:.0%} and {MIN_PREFIX:.0%} were expected of the same model"
        return Check(name=NAME, status="fail", message=f"{figures}; {wanted}")
    return Check(name=NAME, status="pass", message=figures)


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    length = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            break
        length += 1
    return length

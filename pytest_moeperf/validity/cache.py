"""What the prefix cache gave a run is what its workload declares: no less and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity.result import failed, passed, unknown

NAME = "cached_tokens_as_declared"
MAX_ACCIDENTAL_CACHE_SHARE = 0.005
"""Of the prompt tokens, on top of what the prompts have in common: what a cache that could not be flushed holds of
earlier ones, which is a token here and there."""
LARGEST_USUAL_PAGE = 64
"""Tokens, where the server does not say."""
LEAST_SHARE = 0.5
"""Of what could have been reused: requests that start together, replicas and evictions cost some of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reuse:
    """What a prefix cache can have of a run's own prompts."""

    most_tokens: int
    """If each request finds everything that the others have in common with it."""
    page_size: int | None = None
    """Tokens that are cached together; None: the server does not say."""


def cached_tokens_check(records: Sequence[RequestRecord], workload: Workload, reuse: Reuse) -> Check:
    known = [record for record in records if record.cached_tokens is not None]
    if len(known) < len(records) and workload.shared_prefix_len:
        return failed(
            NAME,
            f"not shown: {len(records) - len(known)} of {len(records)} answers don't say how many of their prompt "
            f"tokens were cached, so nothing shows that the shared prefix of {workload.shared_prefix_len} was reused: "
            "start SGLang with --enable-cache-report, vLLM with --enable-prompt-tokens-details, or drop "
            "shared_prefix_len",
        )
    if not known:
        return unknown(NAME, "no answer says how many of its prompt tokens were cached")
    cached = sum(record.cached_tokens or 0 for record in known)
    prompt = sum(record.prompt_tokens or record.prompt_len for record in known)
    most = reuse.most_tokens + MAX_ACCIDENTAL_CACHE_SHARE * prompt
    if cached > most:
        return failed(
            NAME,
            f"{cached} of {prompt} prompt tokens came from the prefix cache, at most {most:.0f} were declared: "
            "flush the cache before the run, or switch it off",
            repeatable=True,
        )
    return _enough(cached, len(known), workload, reuse) if workload.shared_prefix_len else passed(NAME)


def _enough(cached: int, requests: int, workload: Workload, reuse: Reuse) -> Check:
    """The first requests of a run, which start together, find nothing; later ones the prefix, cut down to pages."""
    prefix, page = workload.shared_prefix_len, reuse.page_size
    whole = prefix // page * page if page else max(1, prefix - LARGEST_USUAL_PAGE + 1)
    if not whole:
        return failed(
            NAME,
            f"shared_prefix_len={prefix} is less than a page of the server's prefix cache ({page} tokens), so nothing "
            f"of it can be reused: make it at least {page}",
        )
    later = max(0, requests - workload.concurrency)
    least = max(1, round(LEAST_SHARE * later * whole))
    if cached >= least:
        return passed(NAME)
    return failed(
        NAME,
        f"a shared prefix of {prefix} tokens is declared, and {cached} tokens came from the prefix cache (at least "
        f"{least} are expected of the {later} requests after the first {workload.concurrency}): is the cache on, and "
        "large enough (no --disable-radix-cache, no --no-enable-prefix-caching)? Else drop shared_prefix_len",
        repeatable=cached > 0,
    )

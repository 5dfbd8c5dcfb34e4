"""What a launch says to fixed prompts: a wrong kernel may be a very fast one. `agreement` compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_moeperf.bench.agreement import Answers, Retold
from pytest_moeperf.load.driver import drive
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.outgoing.key import ApiKey

CONCURRENCY = 32
CONTEXT_LENGTHS = (8, 16, 24, 48)
LONG = Workload(concurrency=CONCURRENCY, input_len=CONTEXT_LENGTHS[-1], output_len=64, num_prompts=32, seed=1)
"""Answered at length: what decoding gives."""
SHORT = replace(LONG, output_len=1, num_prompts=96)
"""Further prompts, for their first token alone: what the prefill gives."""
RETOLD_EACH = 2
FIRST_DEPTH = 4
"""Tokens of an answer that are sent back with its prompt, at least."""
TIMEOUT_S = 300.0


def greedy_answers(
    *, url: str, protocol: str, api_key: ApiKey | None, model: str, forget: Callable[[], object]
) -> Answers | None:
    """What the server answers at temperature 0; None if a request failed.

    About 2 200 tokens and 6 700 prompt tokens: 64 decode steps of 32 streams, and 160 requests for one token.

    :param forget: empties the server's prefix cache. What it keeps of an answer was written by decoding, which is what
        the second pass has to be independent of.
    """

    def ask(workload: Workload, prompts: Sequence[Sequence[int]]) -> list[Sequence[object]] | None:
        result = drive(
            url=url,
            workload=replace(workload, num_prompts=len(prompts)),
            prompts=prompts,
            protocol=protocol,
            api_key=api_key,
            model=model,
            timeout_s=TIMEOUT_S,
            workers=0,
            keep_output=True,
        )
        records = sorted(result.records, key=lambda record: record.index)
        return [_said(record) for record in records] if _answered(records, len(prompts)) else None

    contexts = fixed_contexts()
    long = ask(LONG, contexts[: LONG.num_prompts])
    if long is None:
        return None
    forget()
    ids = [[token for token in answer if isinstance(token, int)] for answer in long]
    gives_ids = all(len(known) == LONG.output_len for known in ids)
    places = retold_places() if gives_ids else []
    again = [contexts[prompt] + ids[prompt][:depth] for prompt, depth in places]
    short = ask(SHORT, contexts[LONG.num_prompts :] + again)
    if short is None:
        return None
    tokens = [answer[0] if answer else None for answer in short]
    retold = zip(places, tokens[SHORT.num_prompts :], strict=True)
    return Answers(
        first=(*(answer[0] for answer in ids if gives_ids), *tokens[: SHORT.num_prompts]),
        long=tuple(tuple(answer) for answer in ids) if gives_ids else (),
        retold=tuple(
            Retold(depth=depth, decoded=ids[prompt][depth], prefilled=token) for (prompt, depth), token in retold
        ),
    )


def fixed_contexts() -> list[list[int]]:
    """The prompts of both passes, of several lengths: what goes wrong beyond a position shows in the longer ones."""
    whole = replace(LONG, num_prompts=LONG.num_prompts + SHORT.num_prompts)
    prompts = [prompt.tolist() for prompt in make_prompts(whole, run_key="sanity")]
    return [prompt[: CONTEXT_LENGTHS[index % len(CONTEXT_LENGTHS)]] for index, prompt in enumerate(prompts)]


def retold_places() -> list[tuple[int, int]]:
    """(prompt, tokens of its answer that are sent back with it): each prompt early and late, all depths alike."""
    count = LONG.num_prompts * RETOLD_EACH
    span = LONG.output_len - FIRST_DEPTH
    return [(place % LONG.num_prompts, FIRST_DEPTH + place * span // count) for place in range(count)]


def _answered(records: Sequence[RequestRecord], count: int) -> bool:
    return len(records) == count and all(record.ok for record in records)


def _said(record: RequestRecord) -> Sequence[object]:
    """Token ids; the whole text as one where the server gives text alone."""
    return record.output_ids or ((record.output_text,) if record.output_text else ())

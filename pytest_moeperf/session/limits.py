"""Workloads that this model or this host can't hold: refused at collection, before anything is launched."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_moeperf.engines.sglang_flags import option_of
from pytest_moeperf.environment.model_files import context_length, model_folder, read_json
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.load.host import SHARE_OF_MEMORY, client_bytes, free_bytes, memory_text, most_connections
from pytest_moeperf.markers.sound import check_bounds
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.workload import Workload

LONGEST_TOKENS = 1 << 24
"""Of prompt and answer. No model has such a context; a request of that length is a slip of a key."""


def check_measurable(
    item: pytest.Item, workload: Workload, bounds: Sequence[Bound], *, spec: ServerSpec | None
) -> None:
    """
    :param spec: the server, as far as it is known now; None: not at all.
    :raises UsageProblem: names the node, the value, what is allowed and what to write.
    """
    check_bounds(item, workload, bounds)
    where = f"{item.nodeid}: marker 'perf'"
    tokens = workload.input_len + workload.output_len
    lengths = f"input_len={workload.input_len} and output_len={workload.output_len} are {tokens} tokens a request"
    context, source = (None, "") if spec is None else context_of(spec)
    if context is None or context > LONGEST_TOKENS:
        context, source = LONGEST_TOKENS, "no model is known to have more"
    if tokens > context:
        raise UsageProblem(where=where, problem=lengths, allowed=f"at most {context} together ({source})")
    most = most_connections()
    if most is not None and workload.concurrency > most:
        raise UsageProblem(
            where=where,
            problem=f"concurrency={workload.concurrency} is more than this host can have connections",
            allowed=f"at most {most} (open files of a process, ulimit -Hn, and local ports)",
        )
    needed = client_bytes(workload)
    if needed > 1e9 and needed > (room := SHARE_OF_MEMORY * free_bytes()):
        raise UsageProblem(
            where=where,
            problem=f"{lengths}; num_prompts={workload.num_prompts} of them take about {memory_text(needed)} of the "
            f"client's memory",
            allowed=f"{memory_text(room)}, half of what is free on this host: fewer prompts "
            f"(num_prompts={int(workload.num_prompts * room / needed)}) or shorter ones",
        )


def context_of(spec: ServerSpec) -> tuple[int | None, str]:
    """The longest request that the server takes, and where that was read; None: not known."""
    told = option_of(spec.args, "--context-length")
    if told is not None and told.isdigit():
        return int(told), f"--context-length={told}"
    folder = model_folder(spec.model, env=spec.env)
    config = None if folder is None else read_json(folder / "config.json")
    length = None if config is None else context_length(config)
    return length, f"the context of {spec.model}, by its config.json"

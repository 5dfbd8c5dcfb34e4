"""Results of ``sglang.bench_one_batch_server``: one batch that starts together, a line for each batch size.

Its ``output_throughput`` is not bench_serving's: it is of decoding alone, counted from the last first token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_moeperf.baselines.importers.record import Record, number, refuse, whole
from pytest_moeperf.baselines.importers.serving import json_objects
from pytest_moeperf.model.run import Plain

KEYS = frozenset({"batch_size", "latency", "last_ttft"})
"""Keys that bench_serving has not."""
_NOTE = (
    "the file's output_throughput is of decoding alone: throughput here is the batch's output tokens over its latency"
)


def read_one_batch_json(text: str, *, path: str) -> list[Record]:
    """JSON lines, one batch each."""
    return [_record(found, where=where, path=path) for where, found in json_objects(text, path=path)]


def _record(source: Mapping[str, Any], *, where: str, path: str) -> Record:
    batch, latency_s = whole(source.get("batch_size")), number(source.get("latency"))
    output_len = whole(source.get("output_len"))
    if batch is None or latency_s is None or output_len is None:
        raise refuse(path, where, "has no batch_size, output_len and latency")
    workload: dict[str, Plain] = {"concurrency": batch, "num_prompts": batch, "output_len": output_len}
    input_len = whole(source.get("input_len"))
    if input_len is not None:
        workload["input_len"] = input_len
    hits = number(source.get("cache_hit_rate"))
    return Record(
        where=where,
        values={"throughput": batch * output_len / latency_s},
        workload=workload,
        doubts={
            "seed": "bench_one_batch_server does not write it",
            "dataset": "bench_one_batch_server does not write it",
            "tpot": "only the whole batch's latency is in the file",
            "ttft": "only the batch's last first token is in the file",
        },
        # Prompts that came from the cache in part are other work.
        groups={"server": {"cache_hit_rate": hits}} if hits is not None else {},
        engine="sglang",
        duration_s=latency_s,
        completed=batch,
        notes=(_NOTE,),
    )
